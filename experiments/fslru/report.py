"""Run the cells of the experiment and write the results: CSV, figures, and RESULTS.md."""

import json
from functools import partial
from pathlib import Path

import charts
import evaluation
import replayed
from common.nvm import Cell, Runner
from common.pages import fill
from common.program import output, parsed, report_parser, run
from common.rows import dump, finish, load, write
from common.traces import FOREIGN, SHORT, STATEMENTS, Trace, current, find, split_of
from evaluation import FSLRU, LINUX, LRU, NVLRU, SYNC, TESTED, VARIANTS, Distance, Results, equal_memory

HERE = Path(__file__).resolve().parent
PROFILES = ["pcm-2016", "pcm-board"]


def main() -> int:
    args = parsed(report_parser(__doc__, again=True, folders=f"folders with {FOREIGN}"))
    earlier = load(Trace, HERE / "traces.csv")
    tested = [path.stem for path in sorted((args.own / "days").glob("*.parquet")) if split_of(path) == TESTED]
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
            nand.add(path, trace, SYNC, systems, trace_sizes(trace, evaluation.PERCENTS))
            two = trace_sizes(trace, evaluation.SHOWN)
            nand.add(path, trace, SYNC, VARIANTS, two)
            nand.add(path, trace, LINUX, [LRU, NVLRU, FSLRU], two)
            ufs.add(path, trace, SYNC, [LRU, *evaluation.BATCHES], two)
            if trace.name not in distances:
                if args.check or path is None:
                    raise RuntimeError(
                        f"{trace.name}: a description is missing: run it with the trace, without --check"
                    )
                distances[trace.name] = describe(args.flashsift, path, trace)
        if trace.split == TESTED:
            for nvm in evaluation.nvm_sizes(trace):
                for system, frames in equal_memory(trace, nvm).values():
                    nand.add(path, trace, LINUX, [system], [frames])
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
    measured = replayed.Measured(results, load(replayed.Replay, HERE / "replays.csv"))
    tables = {name: partial(make, results) for name, make in evaluation.TABLES.items()}
    tables |= {name: partial(make, measured) for name, make in replayed.TABLES.items()}
    files = {"RESULTS.md": fill((HERE / "RESULTS.md").read_text(), tables), **charts.draw_all(results)}
    return finish(HERE, files, args.check, stale, nand.ran + ufs.ran)


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
    run(main)
