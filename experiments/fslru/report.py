"""Run the cells of the experiment and write the results: CSV, figures, and RESULTS.md."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "hybrid-flush"))
import charts
import evaluation
import replayed
from evaluation import (
    FSLRU,
    LINUX,
    LRU,
    NVLRU,
    SYNC,
    TESTED,
    VARIANTS,
    Distance,
    Results,
    equal_memory,
)
from nvm_cells import (
    FOREIGN,
    SHORT,
    STATEMENTS,
    Cell,
    Runner,
    Trace,
    arguments,
    current,
    dump,
    fill,
    find,
    finish,
    load,
    output,
    write,
)

PROFILES = ["pcm-2016", "pcm-board"]


def main() -> int:
    args = arguments(__doc__)
    earlier = load(Trace, HERE / "traces.csv")
    tested = [path.stem for path in sorted((args.own / "days").glob("*.json")) if is_test(path)]
    repeated = [FOREIGN, *SHORT, *STATEMENTS]
    found = find(args, earlier, [*repeated, *(name for name in tested if name not in repeated)])
    traces = [trace for _, trace in found]
    holds = current(args, found, earlier)
    known = [cell for cell in load(Cell, HERE / "cells.csv.xz") if cell.trace in holds]
    distances = {one.trace: one for one in load(Distance, HERE / "distances.csv") if one.trace in holds}
    nand = Runner(args.flashsift, str(HERE / "nand-2016.toml"), PROFILES, known, not args.check)
    ufs = Runner(args.flashsift, "ufs-3.1", PROFILES, known, not args.check)
    changed: list[str] = []
    for path, trace in found:
        if trace.name in repeated:
            systems = [LRU, *evaluation.OLD.values(), FSLRU]
            nand.cells(path, trace, SYNC, systems, trace_sizes(trace, evaluation.PERCENTS))
            two = trace_sizes(trace, evaluation.SHOWN)
            nand.cells(path, trace, SYNC, VARIANTS, two)
            nand.cells(path, trace, LINUX, [LRU, NVLRU, FSLRU], two)
            systems = [LRU, *evaluation.BATCHES]
            ufs.cells(path, trace, SYNC, systems, two)
            if trace.name not in distances:
                if args.check or path is None:
                    raise RuntimeError(
                        f"{trace.name}: a description is missing: run it with the trace, without --check"
                    )
                distances[trace.name] = describe(args.flashsift, path, trace)
        if trace.split == TESTED:
            for nvm in evaluation.nvm_sizes(trace):
                for system, frames in equal_memory(trace, nvm).values():
                    nand.cells(path, trace, LINUX, [system], [frames])
        if args.check and trace.name in holds and not (nand.still_holds(path, trace) and ufs.still_holds(path, trace)):
            changed.append(f"cells.csv.xz ({trace.name}; run --again)")
    used = nand.used | ufs.used
    data = {
        "traces.csv": dump(Trace, traces),
        "distances.csv": dump(Distance, (distances[name] for name in repeated)),
        "cells.csv.xz": dump(Cell, used.values()),
    }
    stale = changed + write(HERE, data, args.check)
    results = Results(
        [trace for trace in traces if trace.name in repeated],
        [trace for trace in traces if trace.split == TESTED],
        used,
        distances,
    )
    files = {
        "RESULTS.md": fill((HERE / "RESULTS.md").read_text(), evaluation.all_of(results) | replay_tables(results)),
        **charts.draw_all(results),
    }
    return finish(HERE, stale + write(HERE, files, args.check), args.check, nand.ran + ufs.ran)


def replay_tables(results: Results) -> dict[str, Callable[[], str]]:
    measured = replayed.Measured(results, load(replayed.Replay, HERE / "replays.csv"))
    tables = {
        "replay_text": replayed.sentences,
        "replay_seconds": replayed.seconds,
        "replay_ratios": replayed.ratios,
    }
    return {name: lambda make=make: make(measured) for name, make in tables.items()}


def is_test(card: Path) -> bool:
    return json.loads(card.read_text()).get("split") == TESTED and card.with_suffix(".parquet").exists()


def trace_sizes(trace: Trace, percents: list[int]) -> list[int]:
    return [evaluation.frames(trace, percent) for percent in percents]


def describe(program: Path, path: Path, trace: Trace) -> Distance:
    """The distances of fsync, in write requests to the same file."""
    described = json.loads(output(program, "describe", path, "--json", "--quiet"))
    of_file = next(one for one in described["sync_distance"]["distances"] if one["of"] == "file")
    requests = {one["operation"]: one["requests"] for one in described["mix"]["operations"]}
    least = min((one["writes"] for one in described["sync_distance"]["histogram"] if one["of"] == "file"), default=0)
    return Distance(
        trace.name, requests["reads"], requests["writes"], of_file["syncs"], of_file["without_writes"], least,
        float(of_file["median"]), of_file["most"], float(of_file["mean"]),
    )  # fmt: skip


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"run.sh: {error}")
