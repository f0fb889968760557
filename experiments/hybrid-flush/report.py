"""Run the cells of the experiment and write the results: CSV, figures, and RESULTS.md."""

from pathlib import Path

import figures
import tables
from common.nvm import Cell, Runner
from common.pages import fill
from common.program import parsed, report_parser, run
from common.rows import dump, finish, load, write
from common.traces import FOREIGN, SHORT, STATEMENTS, Trace, current, find
from rewritten import Rewritten, count_rewritten
from tables import ALONE, FIFO, FLUSHED, HYBRID, NVM, STORAGE, WRITEBACK, Results

HERE = Path(__file__).resolve().parent


def main() -> int:
    args = parsed(report_parser(__doc__, again=True, folders=f"folders with {FOREIGN}"))
    earlier = load(Trace, HERE / "traces.csv")
    found = find(args, earlier, [FOREIGN, *SHORT, *STATEMENTS])
    traces = [trace for _, trace in found]
    holds = current(args, found, earlier)
    known = [cell for cell in load(Cell, HERE / "cells.csv.xz") if cell.trace in holds]
    rewritten = {one.trace: one for one in load(Rewritten, HERE / "rewritten.csv") if one.trace in holds}
    changed: list[str] = []
    runner = Runner(args.flashsift, "ufs-3.1", ["optane"], known, not args.check)
    for path, trace in found:
        frames = tables.dram_frames(trace)
        systems = [STORAGE, *(kind.format(pages) for kind in (NVM, HYBRID) for pages in tables.buffers(trace))]
        systems += [kind.format(tables.middle(trace)) for kind in FLUSHED]
        runner.add(path, trace, WRITEBACK, systems, list(frames.values()))
        fifo = [FIFO.format(pages) for pages in tables.buffers(trace)]
        runner.add(path, trace, WRITEBACK, fifo, [frames[tables.SHARE]])
        alone = [one for one in systems if "flush=no" in one or one == STORAGE]
        runner.add(path, trace, ALONE, alone + fifo, [frames[tables.SHARE]])
        if trace.name not in rewritten:
            if args.check or path is None:
                raise RuntimeError(f"{trace.name}: a count is missing: run it with the trace, without --check")
            rewritten[trace.name] = count_rewritten(args.flashsift, path, trace, frames[tables.SHARE])
        elif args.check and path:
            count = rewritten[trace.name]
            # Some of its cells are tried.
            if not runner.still_holds(path, trace) or count != count_rewritten(args.flashsift, path, trace, count.frames):
                changed.append(f"cells.csv.xz or rewritten.csv ({trace.name}; run --again)")
    data = {
        "traces.csv": dump(Trace, traces),
        "rewritten.csv": dump(Rewritten, (rewritten[trace.name] for trace in traces)),
        "cells.csv.xz": dump(Cell, runner.used.values()),
    }
    stale = changed + write(HERE, data, args.check)
    results = Results(traces, runner.used, rewritten)
    page = fill((HERE / "RESULTS.md").read_text(), tables.TABLES, results)
    return finish(HERE, {"RESULTS.md": page, **figures.draw_all(results)}, args.check, stale, runner.ran)


if __name__ == "__main__":
    run(main)
