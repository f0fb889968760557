"""The counts of flashsift: a cell is one trace, policy and cache size."""

import csv
import io
import json
import re
import subprocess
import tempfile
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

PAGE_BYTES = 4096

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
    time: str


@dataclass(frozen=True)
class Cell:
    trace: str
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
    policy: str
    frames: int
    device: str
    elapsed_us: int

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_us / 1e6


class Simulator:
    def __init__(self, program: Path):
        self.program = program
        self.version = self._call("--version").stdout.split()[1]

    def _call(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([self.program, *args], capture_output=True, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return done

    def trace(self, path: Path, own: bool) -> Trace | str:
        """The trace in a file, or the reason why it is left out."""
        try:
            done = self._call("compare", path, "--policy", "lru", "--frames", "1", "--json")
        except RuntimeError as error:
            if "no trace format recognises" in str(error):
                return "no trace"
            raise
        # Numbers contain narrow spaces.
        lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
        summary = next(filter(None, map(SUMMARY.search, lines)), None)
        if summary is None:
            raise RuntimeError(f"{path}: unexpected output of flashsift: {lines[0]}")
        if summary["side"] != "before":
            return "an after-cache trace: a cache has already taken the hits out of it"
        if not json.loads(done.stdout)["write_accesses"]:
            return "no writes in it"
        pages = int(summary["pages"].replace(" ", ""))
        return Trace(path.name.split(".")[0], own, summary["format"], summary["space"], pages, summary["time"])

    def cells(
        self, path: Path, trace: Trace, grid: "Grid", devices: list[str]
    ) -> tuple[list[Cell], list[Time], dict[str, float]]:
        """The cells, drained at the end, their times on devices, and CPU seconds by policy."""
        on = ["--device", ",".join(devices)] if devices else []
        done = self._call("compare", path, "--drain", "--json", *grid.args(), *on)
        cells, times, cpu_s = [], [], dict.fromkeys(grid.policies, 0.0)
        for line in done.stdout.splitlines():
            cell = json.loads(line)
            place = (trace.name, cell["policy"], cell["frames"])
            if devices:
                times.append(Time(*place, cell["device"], round(cell["elapsed_s"] * 1e6)))
            # A cell has a line for each device.
            if cell.get("device") != (devices[0] if devices else None):
                continue
            counts = (
                "policy frames read_accesses write_accesses hits device_reads device_writes drained dropped_dirty "
                "nonsequential_writes"
            )
            cells.append(Cell(trace.name, *(cell[name] for name in counts.split())))
            cpu_s[cell["policy"]] += cell["cpu_ns_per_access"] * cell["accesses"] / 1e9
        return cells, times, cpu_s

    def with_requests(self, path: Path, trace: Trace, cells: list[Cell]) -> list[Cell]:
        """The same cells, with counts from their requests."""
        grid = Grid([cell.policy for cell in cells], [cell.frames for cell in cells])
        rate = ["--rate", "1000"] if trace.time == "no times" else []  # a fio log has times
        with tempfile.TemporaryDirectory() as out:
            log = ["--after-cache", out, "--after-cache-format", "fio-iolog-3"]
            self._call("compare", path, "--drain", *grid.args(), *rate, *log)
            return [_count_requests(cell, Path(out)) for cell in cells]


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
    with path.open() as log:
        for line in log:
            words = line.split()
            if len(words) == 5 and words[2] == "write":
                start = int(words[3])
                nonsequential.append(previous is None or start != previous + PAGE_BYTES)
                backward += previous is not None and start < previous
                previous = start
    # The two counts of flashsift must agree.
    if (len(nonsequential), sum(nonsequential)) != (cell.device_writes, cell.nonsequential):
        raise RuntimeError(f"{path.name}: the requests differ from the counts: {cell}")
    in_drain = sum(nonsequential[cell.device_writes - cell.drained :])
    return replace(cell, backward=backward, nonsequential_drained=in_drain)


def load(kind: type, path: Path) -> list:
    """Rows of a CSV file as `kind`; none if it does not exist."""
    if not path.exists():
        return []
    read = {bool: "True".__eq__, str: str, int: int}
    with path.open(newline="") as file:
        return [
            kind(**{
                field.name: read.get(field.type, lambda text: int(text) if text else None)(row[field.name])
                for field in fields(kind)
            })
            for row in csv.DictReader(file)
        ]


def dump(kind: type, rows: list) -> str:
    """Write `rows` as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()
