"""`flashsift sweep`: comparisons of many traces on the workers of Dask, and the fleet's report."""
