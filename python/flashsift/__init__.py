"""flashsift for Python: traces, comparisons of caches, own policies, and models for sifters.

    import flashsift

    trace = flashsift.open("trace.parquet")
    cells = trace.compare(policies=["lru", "arc"], memory=["4MiB", "16MiB"])
    flashsift.plot.hit_ratio(cells).savefig("hits.pdf")
"""

from . import plot
from ._binary import binary
from ._native import SCHEMA, FileModel, FlashsiftError, examples, feature_names
from ._policy import Policy, check
from ._trace import Trace, compare, describe, open

__all__ = [
    "SCHEMA",
    "FileModel",
    "FlashsiftError",
    "Policy",
    "Trace",
    "binary",
    "check",
    "compare",
    "describe",
    "examples",
    "feature_names",
    "open",
    "plot",
]
