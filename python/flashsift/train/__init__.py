"""Training of the models that `flashsift compare --sift` and mounts run."""
