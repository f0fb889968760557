"""Paths that hold in any directory, for the processes that tests start."""

import os
import pathlib

for name in ["FLASHSIFT", "PYTHONPATH"]:
    if value := os.environ.get(name):
        os.environ[name] = str(pathlib.Path(value).resolve())
