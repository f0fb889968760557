"""The counts of flashsift: a cell is one trace, allocation, policy and cache size."""

import json
import random
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from common.pages import PAGE_BYTES
from common.program import done, records
from common.traces import LAYOUTS, fio_requests, live_pages

# The paper's setting: each page is a request, and no discards.
SETTING = ["--writeback", "evict", "--merge", "off", "--discard", "off"]
# Reads and writes alone, as in the paper's traces; placed early.
ALONE = ["--layout", LAYOUTS["early"], "--removals", "ignore"]

# The line in which flashsift describes a trace.
SUMMARY = re.compile(
    r": (?P<format>[\w-]+), (?P<side>before|after)-cache, (?P<space>[\w ]+): .*, (?P<pages>[\d\s]+) different"
    r".*, (?P<time>[^,]+)$"
)


@dataclass(frozen=True)
class Trace:
    name: str
    own: bool  # recorded by this project
    format: str
    space: str
    pages: int  # that it touches
    live_pages: int | None  # the most that exist at one time; unknown without files
    time: str
    like: str  # the workload of the paper that it resembles: W2, or else W3

    @property
    def allocations(self) -> tuple[str, ...]:
        """The paper's first."""
        return ("early", "late") if self.space == "files" else ("given",)


@dataclass(frozen=True)
class Cell:
    trace: str
    allocation: str
    policy: str
    frames: int
    reads: int
    writes: int
    hits: int
    device_reads: int
    device_writes: int
    drained: int
    dropped_dirty: int
    nonsequential: int
    # From the requests themselves, if they were saved: writes to a lower address than the write
    # before, and the non-sequential writes of the drain.
    backward: int | None = None
    nonsequential_drained: int | None = None

    @property
    def memory_mib(self) -> float:
        return self.frames * PAGE_BYTES / 2**20

    @property
    def accesses(self) -> int:
        return self.reads + self.writes

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def nonsequential_share(self) -> float:
        return self.nonsequential / self.device_writes if self.device_writes else 0.0

    @property
    def cost_s(self) -> float:
        return (100 * self.device_reads + 800 * self.device_writes) / 1e6


@dataclass(frozen=True)
class Time:
    """The time of a cell on a modelled device, each request sent when its predecessor completes."""

    trace: str
    allocation: str
    policy: str
    frames: int
    device: str
    elapsed_us: int
    evicting_us: int | None = None  # without the drain, if that was run

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_us / 1e6


@dataclass(frozen=True)
class Alone:
    """A cell of reads and writes alone, drained at the end, on a modelled device."""

    trace: str
    policy: str
    frames: int
    device: str
    device_writes: int
    drained: int
    elapsed_us: int


@dataclass(frozen=True)
class Throughput:
    """A cell of Table 2 on a modelled device."""

    device: str
    operation: str
    order: str
    bytes_per_s: int


@dataclass(frozen=True)
class Played:
    """One replay of a cell's requests on a real target, by play.sh."""

    trace: str
    allocation: str
    policy: str
    frames: int
    round: int
    requests: int
    elapsed_us: int


class Simulator:
    def __init__(self, program: Path):
        self.program = program

    def _call(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        return done(self.program, *args)

    def trace(self, path: Path, own: bool, like: str) -> Trace | str:
        """The trace in a file, or the reason why it is left out."""
        try:
            said = self._call("compare", path, "--writeback", "evict", "--policy", "lru", "--frames", "1", "--json")
        except RuntimeError as error:
            if "no trace format recognises" in str(error):
                return "no trace"
            raise
        # Numbers contain narrow spaces.
        lines = [" ".join(line.split()) for line in said.stderr.splitlines()]
        summary = next(filter(None, map(SUMMARY.search, lines)), None)
        if summary is None:
            raise RuntimeError(f"{path}: unexpected output of flashsift: {lines[0]}")
        if summary["side"] != "before":
            return "an after-cache trace: a cache has already taken the hits out of it"
        if not json.loads(said.stdout)["write_accesses"]:
            return "no writes in it"
        pages = int(summary["pages"].replace(" ", ""))
        most = live_pages(self.program, path) if summary["space"] == "files" else None
        return Trace(
            path.name.split(".")[0], own, summary["format"], summary["space"], pages, most, summary["time"], like
        )

    def throughputs(self, devices: list[str]) -> list[Throughput]:
        """Table 2: 32,768 requests of 4 KiB to different places in 1 GiB, sorted or random."""
        source = random.Random(1)
        in_1_gib = list(range(2**30 // PAGE_BYTES))
        pages = sorted(in_1_gib, key=lambda _: source.random())[:32_768]
        rows = []
        with tempfile.TemporaryDirectory() as out:
            path = Path(out) / "table2.iolog"
            for operation in ("read", "write"):
                for order in ("sorted", "random"):
                    actions = (
                        f"/dev/card {operation} {page * PAGE_BYTES} {PAGE_BYTES}"
                        for page in (sorted(pages) if order == "sorted" else pages)
                    )
                    lines = ["fio version 2 iolog", "/dev/card add", "/dev/card open", *actions, "/dev/card close"]
                    path.write_text("\n".join(lines) + "\n")
                    said = self._call("replay", path, "--null", "--device", ",".join(devices), "--json")
                    modelled = json.loads(said.stdout)["modelled"]
                    rows += (Throughput(row["device"], operation, order, round(row["bytes_per_s"])) for row in modelled)
        return rows

    def cells(
        self, path: Path, trace: Trace, allocation: str, grid: "Grid", devices: list[str], with_requests: bool = False
    ) -> tuple[list[Cell], list[Time], dict[str, float]]:
        """The cells, drained at the end, their times on devices, and CPU seconds by policy.

        With `with_requests`, the cells also have the counts that follow from their requests.
        """
        with tempfile.TemporaryDirectory() as out:
            log = ["--after-cache", out, "--after-cache-format", "fio-iolog-3"] if with_requests else []
            if with_requests and trace.time == "no times":
                log += ["--rate", "1000"]  # a fio log has times
            cells, times, cpu_s = self._compare(path, trace, allocation, grid, devices, ["--drain", *log])
            if with_requests:
                cells = [_count_requests(cell, Path(out)) for cell in cells]
        return cells, times, cpu_s

    def alone(self, path: Path, trace: Trace, grid: "Grid", devices: list[str]) -> list[Alone]:
        """The cells of the trace without its removals."""
        on = ["--drain", "--device", ",".join(devices), "--json"]
        rows = records(self.program, "compare", path, *grid.args(), *SETTING, *ALONE, *on)
        counts = "policy frames device device_writes drained".split()
        return [Alone(trace.name, *(row[name] for name in counts), round(row["elapsed_s"] * 1e6)) for row in rows]

    def with_evicting(self, path: Path, trace: Trace, times: list[Time], device: str) -> list[Time]:
        """The same times, and on `device` those without the drain."""
        shown = [time for time in times if time.device == device]
        grid = Grid([time.policy for time in shown], [time.frames for time in shown])
        _, evicting, _ = self._compare(path, trace, shown[0].allocation, grid, [device], [])
        known = {(time.policy, time.frames): time.elapsed_us for time in evicting}
        return [
            replace(time, evicting_us=known[time.policy, time.frames]) if time.device == device else time
            for time in times
        ]

    def _compare(
        self, path: Path, trace: Trace, allocation: str, grid: "Grid", devices: list[str], more: list[str]
    ) -> tuple[list[Cell], list[Time], dict[str, float]]:
        on = ["--device", ",".join(devices)] if devices else []
        setting = ["--layout", LAYOUTS[allocation], *SETTING]
        cells, times, cpu_s = [], [], dict.fromkeys(grid.policies, 0.0)
        for row in records(self.program, "compare", path, "--json", *grid.args(), *setting, *on, *more):
            # Without --drain there is no count of drained pages.
            cell = {"drained": 0} | row
            place = (trace.name, allocation, cell["policy"], cell["frames"])
            if devices:
                times.append(Time(*place, cell["device"], round(cell["elapsed_s"] * 1e6)))
            # A cell has a line for each device.
            if cell.get("device") != (devices[0] if devices else None):
                continue
            counts = (
                "policy frames read_accesses write_accesses hits device_reads device_writes drained dropped_dirty "
                "nonsequential_writes"
            )
            cells.append(Cell(trace.name, allocation, *(cell[name] for name in counts.split())))
            cpu_s[cell["policy"]] += cell["cpu_ns_per_access"] * cell["accesses"] / 1e9
        return cells, times, cpu_s


@dataclass(frozen=True)
class Grid:
    policies: list[str]
    frames: list[int]

    def args(self) -> list[str]:
        policies, frames = dict.fromkeys(self.policies), sorted(set(self.frames))
        return ["--policy", ",".join(policies), "--frames", ",".join(map(str, frames))]


def _count_requests(cell: Cell, folder: Path) -> Cell:
    policy = re.sub("[:,=]", "-", cell.policy)
    (path,) = folder.glob(f"*.{policy}.{cell.frames}.iolog")
    nonsequential, backward, previous = [], 0, None
    for operation, pages in fio_requests(path):
        if operation == "write":
            nonsequential.append(previous is None or pages.start != previous + 1)
            backward += previous is not None and pages.start < previous
            previous = pages.start
    # The two counts of flashsift must agree.
    if (len(nonsequential), sum(nonsequential)) != (cell.device_writes, cell.nonsequential):
        raise RuntimeError(f"{path.name}: the requests differ from the counts: {cell}")
    in_drain = sum(nonsequential[cell.device_writes - cell.drained :])
    return replace(cell, backward=backward, nonsequential_drained=in_drain)
