"""`flashsift sweep`: compares caches on many traces, and reports on all of them together."""

import argparse
import glob
import os
import sys
from collections.abc import Sequence
from typing import Any

EPILOG = """examples:
  flashsift sweep testdata/*.parquet --policy all --device all
  flashsift sweep 's3://traces/*.parquet' --policy lru,arc --memory 64MiB -o phones
  flashsift sweep traces/*.xz --sift all --memory 32MiB,64MiB --scheduler tcp://head:8786
  flashsift sweep traces/*.xz --policy lru,arc -o phones        goes on, or only reports

The results are in DIR/cells and DIR/sifters: Parquet, one folder a trace. The report is in
DIR/report.html and DIR/report.json. A sweep that was interrupted goes on where it was; results that
are there are not computed again. Docs: docs/sweep.md."""

# Options of `flashsift compare`: their value and their text.
LISTS = {
    "policy": ("POLICY,…", "replacement policies, or all; `flashsift list policies` explains them"),
    "memory": ("SIZE,…", "cache sizes; default: five powers of two below the size of all pages"),
    "system": ("SYSTEM,…", "systems, or all; --policy is lru by default then"),
    "sift": ("SIFTER,…", "sifters, or all: they hold droppable files in RAM"),
    "device": ("DEVICE,…", "modelled devices, or all, or FILE.toml; `flashsift list devices`"),
    "writeback": ("MODE,…", "when dirty pages are written, beside evictions"),
}
OPTIONS = {
    "drain": (None, "write all dirty pages at the end"),
    "readahead": ("READAHEAD,…", "read-aheads: linux:128k, paper:32"),
    "metadata": ("FILE SYSTEM", "add the writes of this file system's journal and metadata"),
    "layout": ("LAYOUT", "where pages lie on the device; default: ext4 for file traces"),
    "nvm": ("MEMORY,…", "modelled non-volatile memory; default: pcm-2016"),
    "merge": ("SIZE", "the longest request; off: each page is a request"),
    "write_miss": ("STEP", "first step of a write to an uncached page"),
    "sample": ("N%", "estimate from samples with this share of the pages"),
}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    it = argparse.ArgumentParser(
        prog="flashsift sweep",
        description="Compare caches on many traces, on the cores of this machine or on a cluster "
        "of Dask, and report on all traces together.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    it.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="traces in any format, as workers reach them: paths, patterns, s3://, gs://, http://",
    )
    it.add_argument("-o", "--output", default="sweep", metavar="DIR", help="default: sweep")
    cells = it.add_argument_group(
        "cells", "as options of `flashsift compare`; every combination runs"
    )
    for name, (value, text) in LISTS.items():
        cells.add_argument(f"--{name}", action="append", default=[], metavar=value, help=text)
    for name, (wanted, text) in OPTIONS.items():
        option = "--" + name.replace("_", "-")
        if wanted:
            cells.add_argument(option, metavar=wanted, help=text)
        else:
            cells.add_argument(option, action="store_true", help=text)
    run = it.add_argument_group("workers")
    run.add_argument("--scheduler", metavar="tcp://…", help="a cluster; default: this machine")
    run.add_argument("--workers", type=int, metavar="N", help="on this machine; default: its cores")
    run.add_argument(
        "--worker-memory", default="auto", metavar="SIZE",
        help="of each worker on this machine; default: an equal share",
    )
    run.add_argument(
        "--task-seconds", type=float, default=5, metavar="S",
        help="least estimated time of a task, less where threads would have nothing to do: "
        "short comparisons are put together; default: 5",
    )
    run.add_argument(
        "--patience", type=float, default=20, metavar="FACTOR",
        help="a task that takes FACTOR times its estimate, and a minute, hangs: its worker is "
        "restarted; default: 20",
    )
    run.add_argument(
        "--least-patience", type=float, default=60, metavar="S", help=argparse.SUPPRESS
    )
    run.add_argument(
        "--reconnect", type=float, default=600, metavar="S",
        help="time to wait for a scheduler that is lost; default: 600",
    )
    report = it.add_argument_group("report")
    report.add_argument(
        "--groups", metavar="FILE.csv",
        help="columns trace,group: applications or devices; default: names without numbers",
    )
    report.add_argument("--reference", default="lru", metavar="POLICY", help="default: lru")
    report.add_argument(
        "--figures", action="store_true", help="write each figure into DIR/figures, as PDF and SVG"
    )
    report.add_argument("--json", action="store_true", help="print the report as JSON")
    it.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return it


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = parser().parse_args(words)
    try:
        import dask  # noqa: F401
        import distributed  # noqa: F401
        import polars  # noqa: F401
        import tqdm  # noqa: F401
    except ImportError as error:
        print(
            f"flashsift: error: {error}. Sweeps need packages of Python: "
            "python3 -m pip install './python[sweep]' in flashsift's sources",
            file=sys.stderr,
        )
        return 1
    from flashsift import FlashsiftError

    try:
        return sweep(args)
    except (FlashsiftError, OSError, ValueError) as error:
        print(f"flashsift: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("flashsift: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def expanded(texts: Sequence[str]) -> list[str]:
    """Returns the paths of traces, each once, in order. Patterns are expanded, also in URLs."""
    from flashsift import FlashsiftError

    paths: dict[str, None] = {}
    for text in texts:
        if not glob.has_magic(text):
            found = [text if "://" in text else os.path.abspath(text)]
        elif "://" in text:
            import fsspec

            system, path = fsspec.core.url_to_fs(text)
            found = [system.unstrip_protocol(path) for path in sorted(system.glob(path))]
        else:
            found = [os.path.abspath(path) for path in sorted(glob.glob(text, recursive=True))]
        if not found:
            raise FlashsiftError(f"{text}: there is no such file")
        paths |= dict.fromkeys(found)
    return list(paths)


def grid(args: argparse.Namespace) -> Any:
    """Returns the cells that the options ask for."""
    from .plan import Grid, flags

    options: list[str] = []
    for name in OPTIONS:
        value = getattr(args, name)
        if value is True:
            options.append(f"--{name}")
        elif value:
            options += flags("--" + name.replace("_", "-"), [value])
    return Grid(
        policy=tuple(args.policy), memory=tuple(args.memory), system=tuple(args.system),
        sift=tuple(args.sift), device=tuple(args.device), writeback=tuple(args.writeback),
        options=tuple(options),
    )


def stamp(path: str) -> Any:
    """Returns what changes with a file's content: size and time, or what a store says."""
    if "://" not in path:
        found = os.stat(path)
        return [found.st_size, found.st_mtime_ns]
    import fsspec

    system, inner = fsspec.core.url_to_fs(path)
    info = system.info(inner)
    return [info.get("size"), str(info.get("ETag") or info.get("etag") or info.get("mtime"))]


def sweep(args: argparse.Namespace) -> int:
    """Runs what is missing, and reports."""
    from flashsift import FlashsiftError

    from . import fleet, plan
    from .driver import Workers
    from .store import Store
    from .work import version

    paths = expanded(args.traces)
    store = Store(args.output)
    wanted = grid(args)
    stamps = {}
    failures: list[tuple[str, str]] = []
    for path in paths:
        try:
            stamps[path] = stamp(path)
        except FileNotFoundError:
            failures.append((path, "there is no such file"))
    known = store.facts()
    facts = {
        path: known[path][1]
        for path, mark in stamps.items()
        if path in known and known[path][0] == mark
    }
    program = version()
    workers: Workers | None = None

    def cluster() -> Workers:
        nonlocal workers
        if workers is None:
            workers = Workers(
                args.scheduler, args.workers, args.worker_memory, args.reconnect, store.note
            )
            link = workers.client.dashboard_link
            print(f"flashsift: {workers.threads()} workers; dashboard: {link}", file=sys.stderr)
        return workers

    try:
        unread = [path for path in stamps if path not in facts]
        if unread:
            found = read(cluster(), unread, args, failures)
            facts |= found
            store.keep_facts((stamps[path], facts[path]) for path in found)
        items = plan.items(wanted, [facts[path] for path in paths if path in facts], program)
        missing = [item for item in items if not store.has(item)]
        store.note("sweep", items=len(items), missing=len(missing), version=program)
        if len(missing) < len(items) and not args.quiet:
            print(f"flashsift: {len(items) - len(missing)} results are there", file=sys.stderr)
        if missing:
            failures += compute(cluster(), missing, args, store)
    finally:
        if workers is not None:
            workers.close()
    done = [item for item in items if store.has(item)]
    if not done:
        path, why = failures[0]
        raise FlashsiftError(f"no comparison succeeded; the first: {path}: {why}")
    fleet.report(store, done, args, failures)
    for path, why in failures:
        print(f"flashsift: error: {path}: {why}", file=sys.stderr)
    return 1 if failures else 0


def read(
    workers: Any, paths: list[str], args: argparse.Namespace, failures: list[tuple[str, str]]
) -> dict[str, Any]:
    """Lets workers read traces; returns their facts."""
    from . import driver
    from .plan import Batch, Facts, Item
    from .work import describe

    size = max(1, min(50, len(paths) // (4 * workers.threads())))
    unknown = [Item(Facts(path, "", 0, 0, 0), "read", (), path, 1.0) for path in paths]
    batches = [Batch(unknown[n : n + size], n) for n in range(0, len(unknown), size)]
    found: dict[str, Facts] = {}
    with progress("reading traces", len(paths), args.quiet, "trace") as bar:
        for batch, result in driver.run(
            workers, batches, describe, lambda batch: ([item.key for item in batch.items],),
            lambda batch: max(args.least_patience, 60 * len(batch.items)),
        ):
            if isinstance(result, BaseException):
                result = [(item.key, str(result)) for item in batch.items]
            for one in result:
                if isinstance(one, Facts):
                    found[one.path] = one
                else:
                    failures.append((one[0], one[1].removeprefix(f"{one[0]}: ")))
            bar.update(len(batch.items))
    return found


def compute(
    workers: Any, missing: list[Any], args: argparse.Namespace, store: Any
) -> list[tuple[str, str]]:
    """Lets workers run comparisons; stores what they return."""
    from . import driver, plan
    from .work import TRACE_SHARE, work

    memory = workers.memory_bytes()
    failures = []
    if memory:
        for item in list(missing):
            if item.facts.held_bytes > memory * TRACE_SHARE and "--sample" not in item.words:
                missing.remove(item)
                needs = f"{item.facts.requests} requests need {item.facts.held_bytes >> 20} MiB"
                why = f"{needs}, a worker has {memory >> 20} MiB: --worker-memory, or --sample 1%"
                failures.append((item.facts.path, why))
    least_s = plan.task_seconds(missing, args.task_seconds, workers.threads())
    batches = plan.batches(missing, least_s)
    total = sum(batch.seconds for batch in batches)
    with progress("comparing", round(total, 1), args.quiet, "s estimated") as bar:
        for batch, results in driver.run(
            workers, batches, work, lambda batch: (batch.items, memory),
            lambda batch: max(args.least_patience, args.patience * batch.seconds),
        ):
            if isinstance(results, BaseException):
                why = f"{type(results).__name__}: {results}"
                failures += [(item.facts.path, why) for item in batch.items]
                results = []
            items = {item.key: item for item in batch.items}
            for result in results:
                item = items[result["key"]]
                facts = {"key": item.key, "path": item.facts.path, "seconds": result["seconds"]}
                if "rows" in result:
                    store.write(item, result["rows"])
                    store.note("result", rows=len(result["rows"]), **facts)
                else:
                    failures.append((item.facts.path, result["error"]))
                    store.note("failure", why=result["error"], **facts)
            bar.update(round(batch.seconds, 1))
    return failures


def progress(what: str, total: float, quiet: bool, unit: str) -> Any:
    """Returns a bar with the time that is left, on standard error if that is a terminal."""
    from tqdm import tqdm

    shape = "{desc}: {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} [{elapsed}, {remaining} left]"
    return tqdm(total=total, desc=what, unit=unit, disable=quiet or None, bar_format=shape)


if __name__ == "__main__":
    sys.exit(main())
