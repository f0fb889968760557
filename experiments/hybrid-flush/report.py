"""Run the cells of the experiment and write the results: CSV, figures, and RESULTS.md."""

import sys
from argparse import Namespace
from pathlib import Path

import figures
import tables
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
    write,
)
from rewritten import Rewritten, count_rewritten
from tables import ALONE, FIFO, FLUSHED, HYBRID, NVM, STORAGE, WRITEBACK, Results

HERE = Path(__file__).resolve().parent


def main() -> int:
    args = arguments(__doc__)
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
        runner.cells(path, trace, WRITEBACK, systems, list(frames.values()))
        fifo = [FIFO.format(pages) for pages in tables.buffers(trace)]
        runner.cells(path, trace, WRITEBACK, fifo, [frames[tables.SHARE]])
        alone = [one for one in systems if "flush=no" in one or one == STORAGE]
        runner.cells(path, trace, ALONE, alone + fifo, [frames[tables.SHARE]])
        if trace.name not in rewritten:
            if args.check or path is None:
                raise RuntimeError(f"{trace.name}: a count is missing: run it with the trace, without --check")
            rewritten[trace.name] = count_rewritten(args.flashsift, path, trace, frames[tables.SHARE])
        elif args.check and path and not still_holds(args, runner, rewritten[trace.name], path, trace):
            changed.append(f"cells.csv.xz or rewritten.csv ({trace.name}; run --again)")
    data = {
        "traces.csv": dump(Trace, traces),
        "rewritten.csv": dump(Rewritten, (rewritten[trace.name] for trace in traces)),
        "cells.csv.xz": dump(Cell, runner.used.values()),
    }
    stale = changed + write(HERE, data, args.check)
    results = Results(traces, runner.used, rewritten)
    files = {
        "RESULTS.md": fill((HERE / "RESULTS.md").read_text(), tables.all_of(results)),
        **figures.draw_all(results),
    }
    return finish(HERE, stale + write(HERE, files, args.check), args.check, runner.ran)


def still_holds(args: Namespace, runner: Runner, known: Rewritten, path: Path, trace: Trace) -> bool:
    """Whether the program still gives the counts of a trace; some of its cells are tried."""
    return runner.still_holds(path, trace) and known == count_rewritten(args.flashsift, path, trace, known.frames)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"run.sh: {error}")
