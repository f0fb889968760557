"""Recordings, and the cells that flashsift simulates: recording, memory, policy and write-back."""

import csv
import hashlib
import io
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "spatialclock"))
from cells import Simulator  # noqa: E402

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
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def combination(self) -> tuple[str, str]:
        return self.policy, self.cluster


class Runner:
    """Runs the cells that are not known, unless it cannot save them."""

    def __init__(self, program: Path, known: list[Cell], save: Callable[[list[Cell]], None] | None):
        self._program = program
        self._known = {(c.recording, c.frames, c.policy, c.cluster, c.device): c for c in known}
        self._save = save
        self.used: dict[tuple, Cell] = {}
        self.ran = 0

    def all_policies(self, path: Path, recording: Recording) -> list[str]:
        """Every fast online policy, with its cells without clusters."""
        known = [cell.policy for cell in self._known.values() if (cell.recording, cell.cluster) == (recording.name, OFF)]
        if not known:
            known = [cell.policy for cell in self._run(path, recording, ["all"], OFF)]
        policies = list(dict.fromkeys(known))
        self.cells(path, recording, policies, OFF)
        return policies

    def cells(self, path: Path, recording: Recording, policies: list[str], cluster: str) -> None:
        """Adds the cells of these policies to those in use."""
        keys = {
            policy: [
                (recording.name, frames, policy, cluster, device)
                for frames in dict.fromkeys(recording.frames().values())
                for device in DEVICES
            ]
            for policy in policies
        }
        missing = [policy for policy in policies if not all(key in self._known for key in keys[policy])]
        if missing:
            self._run(path, recording, missing, cluster)
        self.used |= {key: self._known[key] for policy in policies for key in keys[policy]}

    def _run(self, path: Path, recording: Recording, policies: list[str], cluster: str) -> list[Cell]:
        if self._save is None:
            raise RuntimeError(f"{recording.name}: cells are missing: run it without --check")
        self.ran += 1
        sizes = sorted(set(recording.frames().values()))
        print(f"{recording.name}, {cluster}: {', '.join(policies)}", file=sys.stderr)
        writeback = "evict" if cluster == OFF else f"cluster:{cluster}"
        command = ["compare", path, "--policy", ",".join(policies), "--frames", ",".join(map(str, sizes))]
        command += ["--drain", "--writeback", writeback, "--device", ",".join(DEVICES), "--json", "--quiet"]
        done = subprocess.run([str(self._program), *map(str, command)], capture_output=True, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        cells = []
        for row in map(json.loads, done.stdout.splitlines()):
            if row["policy"] not in OFFLINE:
                counts = (row[name] for name in ("accesses", "hits", "device_writes", "device_write_requests"))
                times = (round(row[name] * 1e6) for name in ("elapsed_s", "stall_s"))
                key = (recording.name, row["frames"], row["policy"], cluster, row["device"])
                cells.append(Cell(*key, *counts, *times))
                self._known[key] = cells[-1]
        self._save(list(self._known.values()))
        return cells


def recordings(folder: Path, program: Path, known: list[Recording], may_run: bool) -> list[tuple[Path, Recording]]:
    """Every recording with a split, and its peak of live pages, which needs a simulation."""
    by_digest = {(one.name, one.sha256): one for one in known}
    found = []
    for card in sorted(folder.glob("*.json")):
        path, split = card.with_suffix(".parquet"), json.loads(card.read_text()).get("split")
        if split is None or not path.exists():
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        recording = by_digest.get((path.stem, digest))
        if recording is None:
            if not may_run:
                raise RuntimeError(f"{path} is new or has changed: run it without --check")
            recording = Recording(path.stem, split, digest, Simulator(program).live_pages(path))
        found.append((path, Recording(path.stem, split, digest, recording.live_pages)))
    return found


def load_recordings() -> list[Recording]:
    path = HERE / "recordings.csv"
    return _parse(Recording, path.read_text()) if path.exists() else []


def load_cells() -> list[Cell]:
    path = HERE / "cells.csv.xz"
    return _parse(Cell, lzma.decompress(path.read_bytes()).decode()) if path.exists() else []


def _parse(kind: type, text: str) -> list:
    read = [field.type for field in fields(kind)]
    rows = csv.reader(io.StringIO(text))
    next(rows)
    return [kind(*(of(value) for of, value in zip(read, row))) for row in rows]


def dump(kind: type, rows: list) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()
