"""The folder of a sweep: results as a partitioned Parquet dataset, facts, and what happened."""

import json
import os
import pathlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from ..columns import CELLS, SIFTERS
from .plan import Facts, Item

SCHEMAS = {"cells": CELLS, "sifters": SIFTERS}


class Store:
    """Files below the folder of a sweep. Results appear whole or not at all."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def path(self, item: Item) -> pathlib.Path:
        """Returns the file of a result."""
        return self.directory / item.kind / item.partition / f"{item.key}.parquet"

    def has(self, item: Item) -> bool:
        return self.path(item).exists()

    def write(self, item: Item, rows: list[dict[str, Any]]) -> None:
        """Writes a result."""
        schema = SCHEMAS[item.kind]
        known = [{name: row.get(name) for name in schema} for row in rows]
        frame = pl.DataFrame(known, schema=schema)
        path = self.path(item)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            try:
                frame.write_parquet(file, compression="zstd", statistics=False)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                pathlib.Path(file.name).unlink(missing_ok=True)
                raise

    def facts(self) -> dict[str, tuple[Any, Facts]]:
        """Returns what is known of traces, by path, with the stamp that it is valid for."""
        known: dict[str, tuple[Any, Facts]] = {}
        for line in lines(self.directory / "traces.jsonl"):
            stamp = line.pop("stamp")
            known[line["path"]] = (stamp, Facts(**line))
        return known

    def keep_facts(self, found: Iterable[tuple[Any, Facts]]) -> None:
        with open(self.directory / "traces.jsonl", "a", encoding="utf-8") as file:
            for stamp, facts in found:
                print(json.dumps({**facts.__dict__, "stamp": stamp}), file=file)

    def note(self, what: str, **facts: Any) -> None:
        """Adds a line to the log of the sweep: a result, a failure, the loss of a worker."""
        line = {"at": round(time.time(), 3), "what": what, **facts}
        with open(self.directory / "log.jsonl", "a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)

    def read(self, kind: str, items: Iterable[Item]) -> pl.DataFrame:
        """Returns the results of comparisons, in their order."""
        frames = [pl.read_parquet(self.path(item)) for item in items if item.kind == kind]
        if not frames:
            return pl.DataFrame(schema=SCHEMAS[kind])
        return pl.concat(frames)


def lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Returns the lines of a file; a last line that was cut off is left out."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
