"""The cells of systems with non-volatile memory: trace, write-back, system, frames, device."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from common.program import records
from common.traces import FOREIGN, SHORT, Known, Trace

Key = tuple[str, str, str, int, str]


@dataclass(frozen=True)
class Cell:
    trace: str
    writeback: str  # with further options, separated by blanks
    system: str
    frames: int
    device: str
    accesses: int
    hits: int
    device_reads: int
    device_writes: int
    device_write_requests: int
    sync_writes: int
    flushes: int
    dirty_left: int
    nvm_reads: int
    nvm_writes: int
    nvm_left: int
    nvm_mean_line_writes: float
    nvm_hottest_line_writes: int
    storage_read_us: int
    storage_write_us: int
    memory: str  # time and energy by profile, as JSON

    @property
    def key(self) -> Key:
        return self.trace, self.writeback, self.system, self.frames, self.device

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def left(self) -> int:
        """Pages that storage lacks at the end."""
        return self.dirty_left + self.nvm_left

    @property
    def requests(self) -> int:
        return self.device_reads + self.device_writes

    @property
    def storage_read_s(self) -> float:
        return self.storage_read_us / 1e6

    @property
    def storage_write_s(self) -> float:
        return self.storage_write_us / 1e6

    def cost(self, profile: str, name: str) -> float:
        """A number of a profile of memory, in its unit."""
        return json.loads(self.memory)[profile][name]

    def nvm_s(self, profile: str) -> float:
        return self.cost(profile, "nvm_read_s") + self.cost(profile, "nvm_write_s")


class Runner(Known):
    """Runs cells on a device with these profiles of memory."""

    def __init__(self, program: Path, device: str, profiles: list[str], known: Iterable[Cell], may_run: bool):
        super().__init__(known, may_run)
        self._program, self._device, self._profiles = program, device, profiles
        self._name = device.removesuffix(".toml").split("/")[-1]

    def add(self, path: Path | None, trace: Trace, writeback: str, systems: list[str], frames: list[int]) -> None:
        sizes = sorted(set(frames))
        wanted = [(trace.name, writeback, system, size, self._name) for system in systems for size in sizes]

        def simulate(missing: list[Key]) -> list[Cell]:
            return self._run(path, trace, writeback, list(dict.fromkeys(key[2] for key in missing)), sizes)

        self.use(path, trace.name, wanted, simulate)

    def still_holds(self, path: Path | None, trace: Trace) -> bool:
        """Whether the program gives the known counts, in a cell of each kind of system and mode."""
        if path is None:
            return True
        own = [cell for cell in self.used.values() if (cell.trace, cell.device) == (trace.name, self._name)]
        tried = {(cell.writeback, cell.system.split(":")[0]): cell for cell in own}
        return all(
            self._run(path, trace, cell.writeback, [cell.system], [cell.frames]) == [cell] for cell in tried.values()
        )

    def _run(self, path: Path, trace: Trace, writeback: str, systems: list[str], sizes: list[int]) -> list[Cell]:
        args = ["--system", ",".join(systems), "--frames", ",".join(map(str, sizes)), "--writeback", *writeback.split()]
        args += ["--device", self._device, "--nvm", ",".join(self._profiles), "--json", "--quiet"]
        cells = []
        for row in records(self._program, "compare", path, *args):
            row = {"nvm_mean_line_writes": 0, "nvm_hottest_line_writes": 0} | row
            # JSON names the parts of a write-back mode.
            row |= {"trace": trace.name, "writeback": writeback, "device": self._name}
            row |= {name: round(row[f"{name[:-3]}_s"] * 1e6) for name in ("storage_read_us", "storage_write_us")}
            row["nvm_mean_line_writes"] = round(float(row["nvm_mean_line_writes"]), 3)
            costs = {
                name: {of: float(f"{cost:.6g}") for of, cost in one.items()} for name, one in row["memory"].items()
            }
            row["memory"] = json.dumps(costs, separators=(",", ":"))
            cells.append(Cell(**{field.name: row[field.name] for field in fields(Cell)}))
        return cells


def apps_of(traces: list[Trace]) -> list[Trace]:
    """Traces of whole apps, with the sizes of the papers."""
    return [trace for trace in traces if trace.name in (FOREIGN, *SHORT)]


Value = Callable[[Cell], float]


def writes(cell: Cell) -> float:
    return cell.device_writes


def writes_and_left(cell: Cell) -> float:
    return cell.device_writes + cell.left


def with_left(cell: Cell) -> str:
    """Pages written to storage, and those that it lacks at the end."""
    return f"{cell.device_writes:,} + {cell.left:,}"
