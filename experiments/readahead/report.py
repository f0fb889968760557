"""Run the cells of the experiment and write the results: CSV, figures, and RESULTS.md."""

from pathlib import Path

import figures
import tables
from common.pages import fill
from common.program import parsed, report_parser, run
from common.rows import dump, finish, load, write
from common.traces import FOREIGN, current
from simulate import (
    DEVICES,
    MIDDLE,
    OTHER_POLICY,
    POLICY,
    SHARES,
    TIGHT,
    TIGHT_READAHEADS,
    Cell,
    Runner,
    Size,
    Time,
    Trace,
    find_all,
    sizes,
)

HERE = Path(__file__).resolve().parent


def main() -> int:
    args = parsed(report_parser(__doc__, again=True, folders=f"folders with {FOREIGN}"))
    earlier = load(Trace, HERE / "traces.csv")
    found = find_all(args, earlier)
    traces = [trace for _, trace in found]
    holds = current(args, found, earlier)
    cells, times, requests = (
        [row for row in load(kind, HERE / name) if row.trace in holds]
        for kind, name in ((Cell, "cells.csv.xz"), (Time, "times.csv"), (Size, "sizes.csv"))
    )
    runner = Runner(args.flashsift, not args.check, cells, times)
    changed: list[str] = []
    for path, trace in found:
        if all(size.trace != trace.name for size in requests):
            if path is None or args.check:
                raise RuntimeError(f"{trace.name}: its requests are missing: run it with the trace, without --check")
            requests += sizes(args.flashsift, path, trace)
        for policy in (POLICY, OTHER_POLICY):
            runner.count(path, trace, policy, [trace.frames(share) for share in SHARES])
        runner.count(path, trace, OTHER_POLICY, TIGHT, TIGHT_READAHEADS)
        for device in DEVICES:
            runner.time(path, trace, device, trace.frames(MIDDLE))
        if args.check and not runner.still_holds(path, trace):
            changed.append(f"cells.csv.xz ({trace.name}; run --again)")
    data = {
        "traces.csv": dump(Trace, traces),
        "sizes.csv": dump(Size, (size for trace in traces for size in requests if size.trace == trace.name)),
        "cells.csv.xz": dump(Cell, runner.cells.used.values()),
        "times.csv": dump(Time, runner.times.used.values()),
    }
    stale = changed + write(HERE, data, args.check)
    results = tables.Results(traces, requests, runner.cells.used, runner.times.used)
    page = fill((HERE / "RESULTS.md").read_text(), tables.TABLES, results)
    files = {"RESULTS.md": page, **figures.draw_all(results)}
    return finish(HERE, files, args.check, stale, runner.cells.ran + runner.times.ran)


if __name__ == "__main__":
    run(main)
