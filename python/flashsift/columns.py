"""The columns of the results of a sweep. Absent values are null: they have no meaning for the cell.

The program that makes the results tells their fields.
"""

import json

import polars as pl

from ._binary import run
from ._fields import columns

Schema = dict[str, "pl.DataType | type[pl.DataType]"]

DEFINED = json.loads(run(["list", "fields"]))["$defs"]
CELLS: Schema = {name: getattr(pl, kind) for name, kind in columns(DEFINED, "cell").items()}
SIFTERS: Schema = {name: getattr(pl, kind) for name, kind in columns(DEFINED, "sifter").items()}
