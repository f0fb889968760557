"""The paper's numbers, and numbers derived from them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

PAGES_PER_MB = 256
# The paper's cache sizes. Its MB are MiB: 23,666 operations of 4 KiB are its 92.4 MB.
SIZES_MB = [4, 8, 16, 32, 64]


@dataclass(frozen=True)
class Workload:
    """A row of Table 3."""

    name: str
    what: str
    reads: int
    writes: int
    cold_miss_ratio: float

    @property
    def pages(self) -> float:
        """Touched pages: one cold miss each."""
        return self.cold_miss_ratio * (self.reads + self.writes)


@dataclass(frozen=True)
class Table1Cell:
    """A column of Table 1 at one cache size, for W3."""

    hit_ratio: float
    reads: int
    writes: int
    elapsed_s: float
    accesses: int
    frames: int

    @property
    def misses(self) -> float:
        return (1 - self.hit_ratio) * self.accesses

    @property
    def drained_at_least(self) -> float:
        """Evictions are `misses` minus `frames`; other writes are those of the drain."""
        return max(0.0, self.writes - (self.misses - self.frames))

    @property
    def cost_s(self) -> float:
        """As in Figure 5."""
        return (100 * self.reads + 800 * self.writes) / 1e6


class Published:
    def __init__(self, path: Path):
        data = tomllib.loads(path.read_text())
        self.names: dict[str, str] = {ours: theirs for theirs, ours in data["policies"].items()}
        self.workloads = [Workload(**row) for row in data["traces"]]
        self.w3 = self.workloads[2]
        self.table1: dict[int, dict[str, Table1Cell]] = {}
        for table in data["table1"]:
            columns = zip(table["hit_ratio"], table["reads"], table["writes"], table["elapsed_s"])
            more = (self.w3.reads + self.w3.writes, table["memory_mb"] * PAGES_PER_MB)
            self.table1[table["memory_mb"]] = {
                policy: Table1Cell(*column, *more) for policy, column in zip(self.names, columns)
            }
        self.table2: dict[str, list[float]] = data["table2"]
        self.devices: dict[str, dict[str, float]] = data["devices"]
        self.profiles: dict[str, str] = data["profiles"]
        self.disks: dict[str, str] = data["disks"]
        self.reductions: dict[str, dict[str, tuple[float, float]]] = data["reductions"]

    def share_of_w3(self, memory_mb: int) -> float:
        """A cache size as a share of the pages that W3 touches."""
        return memory_mb * PAGES_PER_MB / self.w3.pages

    def elapsed_s(self) -> dict[str, float]:
        """All published numbers of W3 with 64 MB on the microSD card."""
        known = {policy: cell.elapsed_s for policy, cell in self.table1[64].items()}
        return known | {"spatialclock": self.devices["microSD"]["spatialclock"]}
