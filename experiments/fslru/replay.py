"""Replay the output of each system, with its accesses to memory, and write replays.csv."""

import json
import os
import sys
import tempfile
from pathlib import Path

from apps import testbed
from common.nvm import Cell
from common.program import output, run
from common.rows import dump, load
from common.traces import Trace
from evaluation import BOARD, LRU, NAND, SYNC, frames
from replayed import PERCENT, REPLAYED, Replay

HERE = Path(__file__).resolve().parent
# Requests and FLUSHes of LRU: recordings with more take minutes a replay.
MOST_REQUESTS = 20_000


def is_short(cell: Cell) -> bool:
    return cell.device_reads + cell.device_write_requests + cell.flushes <= MOST_REQUESTS


def main() -> None:
    program, rounds = Path(sys.argv[1]), int(sys.argv[2])
    testbed.begin()
    folder = os.environ.get("TMPDIR", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="flashsift-replay-", dir=folder) as folder:
        backing = Path(folder) / "backing"
        # The file is written, so that its blocks are allocated before the first replay.
        testbed.call("dd", "if=/dev/zero", f"of={backing}", "bs=1M", "count=512", "oflag=direct")
        with testbed.loop(backing, "--direct-io=on") as device:
            replay_all(program, device, Path(folder), rounds)


def replay_all(program: Path, device: str, folder: Path, rounds: int) -> None:
    cells = {cell.key: cell for cell in load(Cell, HERE / "cells.csv.xz")}
    own = HERE.parent.parent / "testdata"
    traces = []
    for trace in load(Trace, HERE / "traces.csv"):
        cell = cells.get((trace.name, SYNC, LRU, frames(trace, PERCENT), NAND))
        path = next(iter([*own.glob(f"{trace.name}.parquet"), *own.glob(f"days/{trace.name}.parquet")]), None)
        if path and cell and is_short(cell):
            traces.append((path, trace))
    logs = {}
    for path, trace in traces:
        size = frames(trace, PERCENT)
        into = folder / trace.name
        output(program, "compare", path, "--system", ",".join(REPLAYED), "--frames", str(size), "--writeback", SYNC,
               "--nvm", BOARD, "--after-cache", into, "--json", "--quiet")  # fmt: skip
        for system in REPLAYED:
            name = "lru" if system == LRU else system.translate(str.maketrans(":=", "--"))
            logs[trace.name, system] = into / f"{trace.name}.{name}.{size}.parquet"
    replays = []
    # Systems take turns, so that a change in the machine's speed meets all of them.
    for turn in range(1, rounds + 1):
        for _, trace in traces:
            for system in REPLAYED:
                replays.append(replay(program, device, logs[trace.name, system], trace, system, turn))
                last = replays[-1]
                print(f"{turn}: {trace.name}, {system}: {last.elapsed_s} s", file=sys.stderr)
    (HERE / "replays.csv").write_text(dump(Replay, sorted(replays, key=order)))


def order(one: Replay) -> tuple[str, int, int]:
    return one.trace, list(REPLAYED).index(one.system), one.round


def replay(program: Path, device: str, log: Path, trace: Trace, system: str, turn: int) -> Replay:
    # The formula has no discards.
    options = ["--yes-destroy-data", "--fold", "--without-discards", "--nvm", BOARD, "--json", "--quiet"]
    found = json.loads(output(program, "replay", log, "--target", device, *options))
    flush = found["operations"].get("sync", {"requests": 0, "total_s": 0.0})
    memory = found["memory"]
    return Replay(
        trace.name, trace.sha256, system, frames(trace, PERCENT), turn, found["requests"], flush["requests"],
        round(found["elapsed_s"], 3), round(flush["total_s"], 3), round(memory["elapsed_s"], 3),
        round(memory["formula_s"], 3),
    )  # fmt: skip


if __name__ == "__main__":
    run(main, "replay.sh")
