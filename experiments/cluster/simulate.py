"""Recordings, and the cells that flashsift simulates: recording, memory, policy and write-back."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.program import records
from common.traces import Known, Trace, examined, split_of

DEVICES = ["microsd-2012", "emmc-5.1", "ufs-3.1"]
# Of the most pages that exist at one time.
SHARES = [0.04, 0.16, 0.40]
# They know the future.
OFFLINE = {"belady", "belady-cost"}
# A combination should be faster than these, and hit as often as those.
FAST = ["spatialclock", "fab", "mglru"]
HITTING = ["arc", "s3fifo"]

OFF = "off"
SIZES = ["64KiB", "128KiB", "512KiB"]
AHEAD = [f"128KiB,{when},first={first}" for when in ("idle=5s", "ratio=10") for first in ("fullest", "oldest")]


@dataclass(frozen=True)
class Recording:
    name: str
    split: str
    sha256: str
    live_pages: int  # the most that exist at one time

    def frames(self) -> dict[float, int]:
        """By share. Two shares of a small recording may be the same number."""
        return {share: max(1, round(self.live_pages * share)) for share in SHARES}


@dataclass(frozen=True)
class Cell:
    recording: str
    frames: int
    policy: str
    cluster: str
    device: str
    accesses: int
    hits: int
    device_writes: int
    device_write_requests: int
    elapsed_us: int
    stall_us: int

    @property
    def key(self) -> tuple[str, int, str, str, str]:
        return self.recording, self.frames, self.policy, self.cluster, self.device

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def combination(self) -> tuple[str, str]:
        return self.policy, self.cluster


class Runner(Known):
    """Runs the cells that are not known, unless it cannot save them."""

    def __init__(self, program: Path, known: list[Cell], save: Callable[[list[Cell]], None] | None):
        super().__init__(known, save is not None)
        self._program, self._save = program, save

    def all_policies(self, path: Path, recording: Recording) -> list[str]:
        """Every fast online policy, with its cells without clusters."""

        def known() -> list[str]:
            own = [cell.policy for cell in self.cells.values() if (cell.recording, cell.cluster) == (recording.name, OFF)]
            return list(dict.fromkeys(own))

        if not known():
            self.simulate(path, recording.name, lambda: self._run(path, recording, ["all"], OFF))
        self.add(path, recording, policies := known(), OFF)
        return policies

    def add(self, path: Path, recording: Recording, policies: list[str], cluster: str) -> None:
        """Adds the cells of these policies to those in use."""
        sizes = dict.fromkeys(recording.frames().values())
        wanted = [
            (recording.name, frames, policy, cluster, device)
            for policy in policies
            for frames in sizes
            for device in DEVICES
        ]
        self.use(path, f"{recording.name}, {cluster}", wanted, lambda missing: self._run(
            path, recording, list(dict.fromkeys(key[2] for key in missing)), cluster))  # fmt: skip

    def _run(self, path: Path, recording: Recording, policies: list[str], cluster: str) -> list[Cell]:
        sizes = sorted(set(recording.frames().values()))
        writeback = "evict" if cluster == OFF else f"cluster:{cluster}"
        command = ["compare", path, "--policy", ",".join(policies), "--frames", ",".join(map(str, sizes))]
        command += ["--drain", "--writeback", writeback, "--device", ",".join(DEVICES), "--json", "--quiet"]
        cells = []
        for row in records(self._program, *command):
            if row["policy"] not in OFFLINE:
                counts = (row[name] for name in ("accesses", "hits", "device_writes", "device_write_requests"))
                times = (round(row[name] * 1e6) for name in ("elapsed_s", "stall_s"))
                cells.append(Cell(recording.name, row["frames"], row["policy"], cluster, row["device"], *counts, *times))
        self._save(list((self.cells | {cell.key: cell for cell in cells}).values()))
        return cells


def recordings(args: Namespace, known: list[Recording]) -> list[tuple[Path, Recording]]:
    """Every recording with a split, and its peak of live pages, which needs a simulation."""
    earlier = {one.name: Trace(one.name, True, one.split, one.sha256, one.live_pages) for one in known}
    found = []
    for path in sorted(args.recordings.glob("*.parquet"), key=lambda path: path.with_suffix(".json")):
        if split_of(path):
            one = examined(args, path, earlier.get(path.stem))
            found.append((path, Recording(one.name, one.split, one.sha256, one.live_pages)))
    return found
