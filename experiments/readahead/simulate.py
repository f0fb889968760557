"""The cells of read-ahead: trace, read-ahead, policy and size of the cache, and their times."""

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from common.program import output, records
from common.traces import FOREIGN, SHORT, Found, Known, Trace, find

# The same workloads on F2FS, and starts of programs with cold caches.
F2FS = [f"f2fs/{name}" for name in ("feed", "game", "map", "messenger", "video")]
LAUNCHED, LAUNCHED_F2FS = ["launch-1", "launch-2"], ["f2fs/launch"]
SIZES_KIB = [16, 32, 64, 128, 256, 512]
PAPER = {pages: f"paper:pages={pages}" for pages in (32, 16, 8)}
# The same, with any cached page as a hit.
RESIDENT = {pages: f"paper:pages={pages},hit=resident" for pages in (32, 16)}
PHONE, PC = "6.1", "6.18"
LINUX = {(kernel, kib): f"linux:kernel={kernel},kib={kib}" for kernel in (PHONE, PC) for kib in SIZES_KIB}
OFF = "off"
READAHEADS = [OFF, *PAPER.values(), *RESIDENT.values(), *LINUX.values()]
# Percent of the peak live pages.
SHARES = [5, 10, 20, 50]
MIDDLE = 10
POLICY, OTHER_POLICY = "lru", "linux2q"
# Caches in which windows of 32 pages push each other out, in frames; under the second policy.
TIGHT = [32, 48, 64, 96, 128, 256]
TIGHT_READAHEADS = [OFF, PAPER[32], PAPER[16], *RESIDENT.values()]
# Their time is modelled, for the first policy and the middle size.
DEVICES = ["emmc-5.1", "ufs-3.1"]


@dataclass(frozen=True)
class Size:
    """Read requests of a trace of at most so many bytes, and more than the next smaller size."""

    trace: str
    most_bytes: int
    reads: int


@dataclass(frozen=True)
class Cell:
    trace: str
    readahead: str
    policy: str
    frames: int
    accesses: int
    read_accesses: int
    hits: int
    read_hits: int
    device_reads: int
    device_read_requests: int
    device_writes: int
    windows: int
    windows_at_max: int
    window_pages: int
    prefetched_asked: int
    prefetched_read: int
    prefetched_used: int
    sequence_hits: int
    evicted: int
    reads_cached: int
    reads_free: int
    reads_evict_clean: int
    reads_evict_dirty: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.trace, self.readahead, self.policy, self.frames

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def read_hit_ratio(self) -> float:
        return self.read_hits / self.read_accesses

    @property
    def efficiency_of_paper(self) -> float:
        """As the paper counts: 7 pages read of 156 prefetched are 4.5 %."""
        return self.sequence_hits / self.window_pages if self.window_pages else 0.0

    @property
    def efficiency(self) -> float:
        """Used, of all pages asked for ahead, also of those cached already."""
        return self.prefetched_used / self.prefetched_asked if self.prefetched_asked else 0.0

    @property
    def efficiency_of_read(self) -> float:
        return self.prefetched_used / self.prefetched_read if self.prefetched_read else 0.0

    @property
    def at_max(self) -> float:
        return self.windows_at_max / self.windows if self.windows else 0.0

    @property
    def mean_pages(self) -> float:
        return self.window_pages / self.windows if self.windows else 0.0

    @property
    def eviction_ratio(self) -> float:
        return self.evicted / self.accesses

    @property
    def wasted_mib(self) -> float:
        return (self.prefetched_read - self.prefetched_used) * 4096 / 2**20


@dataclass(frozen=True)
class Time:
    """A cell with the middle size and the first policy on a modelled device, without pauses."""

    trace: str
    readahead: str
    frames: int
    device: str
    read_us: int
    write_us: int

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.trace, self.readahead, self.frames, self.device

    @property
    def elapsed_s(self) -> float:
        return (self.read_us + self.write_us) / 1e6


class Runner:
    """Runs the cells that are not known, unless results are only checked."""

    def __init__(self, program: Path, may_run: bool, cells: Iterable[Cell], times: Iterable[Time]):
        self._program = program
        self.cells, self.times = Known(cells, may_run), Known(times, may_run)

    def count(
        self, path: Path | None, trace: Trace, policy: str, frames: list[int], readaheads: list[str] = READAHEADS
    ) -> None:
        """Adds the cells of these read-aheads to those in use."""

        def simulate(missing: list[tuple]) -> list[Cell]:
            # The same program computes the cells of a size together.
            return self._cells(path, trace, policy, [key[1] for key in missing], sorted({key[3] for key in missing}))

        wanted = [(trace.name, readahead, policy, size) for readahead in readaheads for size in sorted(set(frames))]
        self.cells.use(path, trace.name, wanted, simulate)

    def still_holds(self, path: Path | None, trace: Trace) -> bool:
        """Whether the program gives what is known, for one size and two read-aheads."""
        if path is None:
            return True
        cells = self._cells(path, trace, POLICY, [PAPER[16], LINUX[PHONE, 64]], [trace.frames(MIDDLE)])
        return all(self.cells.cells[cell.key] == cell for cell in cells)

    def time(self, path: Path | None, trace: Trace, device: str, frames: int) -> None:
        def simulate(missing: list[tuple]) -> Iterable[Time]:
            # With a memory, the time of reads is separate from that of writes.
            options = ["--device", device, "--nvm", "optane"]
            for row in self._run(path, POLICY, [key[1] for key in missing], [frames], options):
                read_us, write_us = (round(1e6 * row[f"storage_{way}_s"]) for way in ("read", "write"))
                yield Time(trace.name, row["readahead"], frames, device, read_us, write_us)

        self.times.use(path, trace.name, [(trace.name, one, frames, device) for one in READAHEADS], simulate)

    def _cells(self, path: Path, trace: Trace, policy: str, readaheads: list[str], frames: list[int]) -> list[Cell]:
        rows = (
            {"sequence_hits": 0} | row | {"policy": policy, "trace": trace.name}
            for row in self._run(path, policy, readaheads, frames)
        )
        return [Cell(**{field.name: row[field.name] for field in fields(Cell)}) for row in rows]

    def _run(
        self, path: Path, policy: str, readaheads: list[str], frames: list[int], options: Iterable[str] = ()
    ) -> list[dict]:
        names, sizes = ",".join(dict.fromkeys(readaheads)), ",".join(map(str, frames))
        words = ["--readahead", names, "--policy", policy, "--frames", sizes, *options, "--json", "--quiet"]
        return records(self._program, "compare", path, *words)


def sizes(program: Path, path: Path, trace: Trace) -> list[Size]:
    described = json.loads(output(program, "describe", path, "--json", "--quiet"))
    return [Size(trace.name, row["most_bytes"], row["reads"]) for row in described["request_sizes"]["sizes"]]


def find_all(args: argparse.Namespace, known: list[Trace]) -> list[Found]:
    """Traces on ext4 first, then those on F2FS, whose names begin with their folder."""
    found = find(args, known, [FOREIGN, *SHORT, *LAUNCHED])
    on_f2fs = argparse.Namespace(**vars(args) | {"own": args.own / "f2fs"})
    earlier = [replace(trace, name=trace.name.removeprefix("f2fs/")) for trace in known if "/" in trace.name]
    names = [name.removeprefix("f2fs/") for name in (*F2FS, *LAUNCHED_F2FS)]
    return found + [(path, replace(trace, name=f"f2fs/{trace.name}")) for path, trace in find(on_f2fs, earlier, names)]
