"""The traces of experiments, and the cells that were simulated with them."""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from common.pages import PAGE_BYTES
from common.program import output

# A trace of others: it is not in testdata/.
FOREIGN = "facebook"
SHORT = ["browser", "feed", "game", "map", "messenger", "video"]
# Recordings of testdata/days in which sqlite3 runs the statements of two Android apps.
STATEMENTS = [f"{app}-{journal}" for app in ("facebook", "calendar") for journal in ("delete", "truncate", "wal")]
# When a page of a file gets its place: on ext3 as soon as it is dirty (early), on ext4 at its
# write-back (late). The pages of a block trace have their addresses (given).
LAYOUTS = {"early": "ext4:alloc=early", "late": "ext4", "given": "identity"}


@dataclass(frozen=True)
class Trace:
    name: str
    own: bool  # recorded by this project
    split: str  # train, tune or test; empty for short traces, by which nothing is chosen
    sha256: str
    live_pages: int  # the most that exist at one time

    def frames(self, percent: int) -> int:
        """A share of the footprint."""
        return max(1, round(self.live_pages * percent / 100))


Found = tuple[Path | None, Trace]


def split_of(path: Path) -> str:
    """The split that the card of a recording names; nothing without a card."""
    card = path.with_suffix(".json")
    return (json.loads(card.read_text()).get("split") or "") if card.exists() else ""


def examined(args: argparse.Namespace, path: Path, earlier: Trace | None, own: bool = True) -> Trace:
    """The trace of a file. Its peak of live pages needs a simulation if it is not known."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if earlier is not None and earlier.sha256 == digest:
        pages = earlier.live_pages
    elif args.check:
        raise RuntimeError(f"{path} is new or has changed: run it without --check")
    else:
        pages = live_pages(args.flashsift, path)
    return Trace(path.name.split(".")[0], own, split_of(path) if own else "", digest, pages)


def find(args: argparse.Namespace, known: list[Trace], names: list[str]) -> list[Found]:
    """The traces of `names`. The foreign one has no path where it is not found."""
    by_name = {trace.name: trace for trace in known}
    found: list[Found] = []
    for name in names:
        own = name != FOREIGN
        folders = [args.own, args.own / "days"] if own else args.folders
        paths = [path for folder in folders for path in folder.glob("*") if path.name.split(".")[0] == name]
        path = next((path for path in paths if not own or path.suffix == ".parquet"), None)
        earlier = by_name.get(name)
        if path is not None:
            found.append((path, examined(args, path, earlier, own)))
        elif own or earlier is None:
            raise RuntimeError(f"{name} is not found: name a folder that has it")
        else:
            print(f"{name}: not found: its cells are those of an earlier run", file=sys.stderr)
            found.append((None, earlier))
    return found


def current(args: argparse.Namespace, found: list[Found], known: list[Trace]) -> set[str]:
    """Names of the traces of which saved results hold: of none that has changed."""
    same = {(trace.name, trace.sha256) for trace in known}
    return {trace.name for path, trace in found if (trace.name, trace.sha256) in same and not (args.again and path)}


class Known:
    """Cells by their `key`. Missing ones are simulated, unless results are only checked."""

    def __init__(self, cells: Iterable, may_run: bool):
        self.cells = {cell.key: cell for cell in cells}
        self.used: dict = {}
        self.may_run, self.ran = may_run, 0

    def use(self, path: Path | None, name: str, wanted: list, run: Callable[[list], Iterable]) -> None:
        """Adds the cells of these keys to those in use. Without a path they must be known."""
        if missing := [key for key in wanted if key not in self.cells]:
            self.simulate(path, name, lambda: run(missing))
        self.used |= {key: self.cells[key] for key in wanted}

    def simulate(self, path: Path | None, name: str, run: Callable[[], Iterable]) -> None:
        if path is None or not self.may_run:
            raise RuntimeError(f"{name}: cells are missing: run it with the trace, without --check")
        self.ran += 1
        cells = {cell.key: cell for cell in run()}
        print(f"{name}: {len(cells)} cells", file=sys.stderr)
        self.cells |= cells


def live_pages(program: Path, path: Path) -> int:
    """The most pages that exist at one time.

    The requests and discards of a cache of one frame show them. A place that is read first existed
    before the trace.
    """
    one = ["--policy", "lru", "--frames", "1", "--layout", LAYOUTS["early"], "--merge", "off", "--drain"]
    requests = list(after_cache(program, path, *one, "--writeback", "evict"))
    known, live = set(), set()
    for operation, pages in requests:
        if operation == "read":
            live.update(set(pages) - known)
        known.update(pages)
    most = len(live)
    for operation, pages in requests:
        if operation == "trim":
            live.difference_update(pages)
        else:
            live.update(pages)
        most = max(most, len(live))
    return most


def after_cache(program: Path, path: Path, *options: str) -> Iterator[tuple[str, range]]:
    """Operations and pages of the requests of one cell."""
    with tempfile.TemporaryDirectory() as out:
        output(program, "compare", path, *options, "--after-cache", out, "--after-cache-format", "fio-iolog-3")
        (log,) = Path(out).iterdir()
        yield from fio_requests(log)


def fio_requests(path: Path) -> Iterator[tuple[str, range]]:
    """Operations and pages of a fio log, version 3."""
    with path.open() as log:
        for line in log:
            words = line.split()
            if len(words) == 5:
                start, length = int(words[3]) // PAGE_BYTES, int(words[4]) // PAGE_BYTES
                yield words[2], range(start, start + length)
