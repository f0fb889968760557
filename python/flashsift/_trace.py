"""Traces: opening, description, comparison."""

import json
import os
import pathlib
import re
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._binary import run
from ._native import FlashsiftError
from ._policy import MakePolicy

if TYPE_CHECKING:
    import polars

Size = int | str
Path = str | os.PathLike[str]
PolicyLike = str | MakePolicy

UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
PAGE_BYTES = 4096


class Trace:
    """A trace in a file. Its events are an Arrow stream, read anew each time.

    `polars.DataFrame(trace)`, `pandas.DataFrame.from_arrow(trace)`, `pyarrow.table(trace)` and
    DuckDB take the events without copying them. The columns are those of the Parquet store.
    """

    def __init__(self, path: Path, name: str | None = None, format: str | None = None) -> None:
        self.path = pathlib.Path(path)
        self.name = name or self.path.name
        self.format = format

    def __repr__(self) -> str:
        return f"flashsift.open({self.name!r})"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns a capsule of Arrow's C stream interface with the events."""
        return _native.event_stream(self.path, self.format)

    def describe(self, **options: object) -> dict[str, Any]:
        """Returns the description, as `flashsift describe --json` does."""
        words = ["describe", str(self.path), "--json", "-q", *self._reading(), *flags(options)]
        described: dict[str, Any] = json.loads(run(words))
        return described | {"trace": self.name}

    def compare(
        self,
        policies: PolicyLike | Iterable[PolicyLike] | None = None,
        memory: Size | Iterable[Size] | None = None,
        systems: str | Iterable[str] | None = None,
        sifters: str | Iterable[str] | None = None,
        devices: str | Iterable[str] | None = None,
        writeback: str | Iterable[str] | None = None,
        **options: object,
    ) -> "polars.DataFrame":
        """Runs caches over the trace. Returns a row for each policy, size, device and write-back.

        The parameters are options of `flashsift compare`, which has the defaults; so are further
        options, with underscores: `drain=True`, `readahead=["off", "linux:128k"]`,
        `metadata="ext4"`. A policy is a name or a subclass of `flashsift.Policy`. With `sifters`,
        a row is a sifter at a size.
        """
        import polars as pl

        rows = cells(
            self, policies=policies, memory=memory, systems=systems, sifters=sifters,
            devices=devices, writeback=writeback, **options,
        )
        return pl.DataFrame(rows, infer_schema_length=None)

    def after_cache(
        self, policy: str = "lru", memory: Size = "16MiB", **options: object
    ) -> "Trace":
        """Returns the requests to storage behind a cache as a trace, whose events are Arrow."""
        directory = tempfile.TemporaryDirectory(prefix="flashsift-")
        words = [
            "compare", str(self.path), "--json", "-q", "--policy", policy, "--memory", str(memory),
            "--after-cache", directory.name, *self._reading(), *flags(options),
        ]
        run(words)
        written = sorted(pathlib.Path(directory.name).iterdir())
        if len(written) != 1:
            raise FlashsiftError("after_cache() takes one policy, size, system and write-back")
        trace = Trace(written[0])
        weakref.finalize(trace, directory.cleanup)
        return trace

    def to_polars(self) -> "polars.DataFrame":
        """Returns the events."""
        import polars as pl

        return pl.DataFrame(self)

    def _reading(self) -> list[str]:
        return [] if self.format is None else ["--format", self.format]


def open(path: "Path | Trace", format: str | None = None) -> Trace:
    """Opens a trace of any format that flashsift reads, plain or compressed.

    A URL such as `s3://bucket/trace.parquet` or `http://host/trace.xz` is fetched by fsspec into a
    temporary file, which is removed with the trace.
    """
    if isinstance(path, Trace):
        return path
    text = os.fspath(path)
    if not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", text):
        if not os.path.exists(text):
            raise FlashsiftError(f"{text}: there is no such file")
        return Trace(text, format=format)
    return fetched(text, format)


def fetched(url: str, format: str | None) -> Trace:
    """Opens a trace from anywhere that fsspec reaches."""
    try:
        import fsspec
    except ImportError as error:
        raise FlashsiftError(f"{url}: {error}; python3 -m pip install fsspec") from error
    directory = tempfile.TemporaryDirectory(prefix="flashsift-")
    name = url.rstrip("/").rsplit("/", 1)[-1] or "trace"
    local = os.path.join(directory.name, name)
    try:
        system, path = fsspec.core.url_to_fs(url)
        system.get_file(path, local)
    except FileNotFoundError as error:
        directory.cleanup()
        raise FlashsiftError(f"{url}: there is no such file") from error
    except Exception as error:
        # Each store has errors of its own.
        directory.cleanup()
        raise FlashsiftError(f"{url}: {error}") from error
    trace = Trace(local, name=name, format=format)
    weakref.finalize(trace, directory.cleanup)
    return trace


def compare(trace: Path | Trace, *args: Any, **options: Any) -> "polars.DataFrame":
    """Opens a trace and compares caches on it: see `Trace.compare`."""
    return open(trace).compare(*args, **options)


def describe(trace: Path | Trace, **options: object) -> dict[str, Any]:
    """Opens a trace and describes it: see `Trace.describe`."""
    return open(trace).describe(**options)


def listed(values: Any) -> list[Any]:
    """Returns one value or several as a list."""
    if values is None:
        return []
    if isinstance(values, str | int) or callable(values):
        return [values]
    return list(values)


def cells(trace: Trace, **options: Any) -> list[dict[str, Any]]:
    """Returns the records of a comparison, each a flat dict."""
    policies = listed(options.pop("policies", None))
    named = [policy for policy in policies if isinstance(policy, str)]
    own = [policy for policy in policies if not isinstance(policy, str)]
    limit = options.pop("memory_limit_bytes", None)
    records: list[dict[str, Any]] = []
    if named or not own:
        words = compare_words(trace, named, options)
        records += [json.loads(line) for line in run(words, limit).splitlines()]
    if own:
        records += own_cells(trace, own, dict(options))
    return [flat(record | {"trace": trace.name}) for record in records]


def compare_words(trace: Trace, policies: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Returns the command line of a comparison."""
    options = dict(options)
    words = ["compare", str(trace.path), "--json", "-q", *trace._reading()]
    lists = {
        "--policy": policies,
        "--memory": options.pop("memory", None),
        "--system": options.pop("systems", None),
        "--sift": options.pop("sifters", None),
        "--device": options.pop("devices", None),
    }
    for flag, values in lists.items():
        for value in listed(values):
            words += [flag, str(value)]
    for modes in listed(options.pop("writeback", None)):
        words += ["--writeback", modes]
    return words + flags(options)


def flags(options: dict[str, Any]) -> list[str]:
    """Returns further options as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            for one in listed(value):
                words += [flag, str(one)]
    return words


def own_cells(
    trace: Trace, policies: Sequence[MakePolicy], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Runs policies that are written in Python."""
    frames = [size_bytes(size) // PAGE_BYTES for size in listed(options.pop("memory", None))]
    frames += listed(options.pop("frames", None))
    writeback = listed(options.pop("writeback", None))
    devices = listed(options.pop("devices", None))
    drain = bool(options.pop("drain", False))
    limit = size_bytes(options.pop("trace_memory", os.sysconf("SC_PAGE_SIZE") * pages() // 4 * 3))
    if left := [name for name, value in options.items() if value not in (None, False)]:
        raise FlashsiftError(f"a policy in Python runs without {', '.join(sorted(left))}")
    labels = [getattr(policy, "__name__", str(policy)) for policy in policies]
    lines = _native.run_policies(
        trace.path, trace.name, list(zip(labels, policies, strict=True)), frames, writeback,
        devices, drain, limit, trace.format,
    )
    return [json.loads(line) for line in lines]


def pages() -> int:
    """Returns the pages of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES")


def size_bytes(size: Size) -> int:
    """Reads a size as the command line does: 65536, "64K", "64KiB"."""
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", size.lower())
    if not match:
        raise FlashsiftError(f"{size!r} is no size; write it as 64MiB, 64M or 67108864")
    return int(float(match[1]) * (1 << UNITS[match[2]]))


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record without nested objects: their fields get the name before them."""
    row: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            row |= {f"{key}_{name}": inner for name, inner in flat(value).items()}
        else:
            row[key] = value
    # A point of a curve has its miss ratio.
    if row.get("accesses") and "hits" in row:
        row["hit_ratio"] = row["hits"] / row["accesses"]
    return row
