"""Rows of results in files: read, written, and held against those of an earlier run."""

import csv
import io
import json
import lzma
import sys
from collections.abc import Callable, Iterable
from dataclasses import astuple, fields
from pathlib import Path

READ: dict[object, Callable] = {
    bool: "True".__eq__,
    str: str,
    int: int,
    float: float,
    int | None: lambda text: int(text) if text else None,
    float | None: lambda text: float(text) if text else None,
}


def _content(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def load(kind: type, path: Path) -> list:
    """Rows of a CSV file, which may be compressed; none if it does not exist."""
    if not path.exists():
        return []
    rows = csv.DictReader(io.StringIO(_content(path).decode()))
    if rows.fieldnames != [field.name for field in fields(kind)]:
        raise RuntimeError(f"{path} has other columns than this program writes: delete it and run it again")
    return [kind(*(READ[field.type](row[field.name]) for field in fields(kind))) for row in rows]


def dump(kind: type, rows: Iterable) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


def load_dicts(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def write_dicts(path: Path, columns: list[str], rows: Iterable[dict]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def json_lines(path: Path) -> list[dict]:
    """Records of a file with one a line, which may be compressed; none if it does not exist."""
    return [json.loads(line) for line in _content(path).splitlines()] if path.exists() else []


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def write(folder: Path, files: dict[str, str], check: bool) -> list[str]:
    """Writes the files that differ, unless they are only checked. Returns their names."""
    stale = [
        name for name, text in files.items()
        if not (folder / name).exists() or _content(folder / name) != text.encode()
    ]  # fmt: skip
    for name in [] if check else stale:
        content = files[name].encode()
        (folder / name).write_bytes(lzma.compress(content, preset=9) if name.endswith(".xz") else content)
    return stale


def finish(folder: Path, files: dict[str, str], check: bool, stale: list[str] = (), ran: int | None = None) -> int:
    """Writes the files, and reports those that differed. Returns an exit status."""
    stale = [*stale, *write(folder, files, check)]
    if check:
        for name in stale:
            print(f"{folder / name} is stale", file=sys.stderr)
        return int(bool(stale))
    simulations = "" if ran is None else f"{ran} simulations; "
    print(f"{simulations}written: {', '.join(stale) or 'nothing new'}", file=sys.stderr)
    return 0
