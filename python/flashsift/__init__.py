"""flashsift for Python: features of the files of a trace, and scores of model files."""

from ._native import SCHEMA, FileModel, FlashsiftError, examples, feature_names

__all__ = ["SCHEMA", "FileModel", "FlashsiftError", "examples", "feature_names"]
