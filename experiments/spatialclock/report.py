"""Run the cells of the experiment and write the results: CSV, tables in RESULTS.md, figures."""

import argparse
import sys
import time
from pathlib import Path

import figures
import tables
from cells import Alone, Cell, Grid, Played, Simulator, Throughput, Time, Trace
from common.pages import fill
from common.program import parsed, report_parser, run
from common.rows import dump, finish, load
from published import PAGES_PER_MB, Published

HERE = Path(__file__).resolve().parent
# Alternatives where the paper is ambiguous.
OTHER_READINGS = [
    "spatialclock:insert_ref=1",
    "spatialclock:order=file",
    "clock:insert_ref=1",
    "fab:count=dirty",
    "linux2q:promote=3",
]
# Recordings of testdata/days, and the workloads of the paper that they resemble.
W2_LIKE = ["offline-1"]
# The policies of current Android kernels, and the bound.
BEYOND = ["mglru", "belady"]


def main() -> int:
    args = arguments()
    published = Published(HERE / "published.toml")
    policies = [policy for policy in published.names if policy != "for" or args.with_for]
    traces, cells, times = run_all(args, published, policies)
    profiles = [*published.disks.values(), *published.profiles.values()]
    throughputs = Simulator(args.flashsift).throughputs(profiles)
    alone = run_alone(args, published, policies, traces)
    played = load(Played, HERE / "played.csv")
    results = tables.Results(
        published,
        policies,
        OTHER_READINGS,
        BEYOND,
        traces,
        {(cell.trace, cell.allocation, cell.policy, cell.frames): cell for cell in cells},
        {(time.trace, time.allocation, time.policy, time.frames, time.device): time for time in times},
        {(row.device, row.operation, row.order): row for row in throughputs},
        played,
        {(row.trace, row.policy, row.device): row for row in alone},
    )
    files = {
        "traces.csv": dump(Trace, traces),
        "cells.csv": dump(Cell, cells),
        "times.csv": dump(Time, times),
        "alone.csv": dump(Alone, alone),
        "table2.csv": dump(Throughput, throughputs),
        "RESULTS.md": fill((HERE / "RESULTS.md").read_text(), tables.TABLES, results),
        **figures.draw(results),
    }
    return finish(HERE, files, args.check)


def arguments() -> argparse.Namespace:
    parser = report_parser(__doc__, folders="more traces")
    parser.add_argument(
        "--without-for", dest="with_for", action="store_false", help="leave FOR out: its evictions examine every frame"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="TRACE", help="run these; the cells of others are those of an earlier run"
    )
    return parsed(parser)


def run_all(
    args: argparse.Namespace, published: Published, policies: list[str]
) -> tuple[list[Trace], list[Cell], list[Time]]:
    """Cells of every trace found, and saved cells of traces of others that are not found."""
    simulator = Simulator(args.flashsift)
    traces: list[Trace] = []
    cells: list[Cell] = []
    times: list[Time] = []
    earlier = {trace.name: trace for trace in load(Trace, HERE / "traces.csv")}

    def keep(trace: Trace) -> None:
        print(f"{trace.name}: not run: its cells are those of an earlier run", file=sys.stderr)
        traces.append(trace)
        kept = [cell for cell in load(Cell, HERE / "cells.csv") if cell.trace == trace.name]
        if lacking := {*policies, *OTHER_READINGS, *BEYOND} - {cell.policy for cell in kept}:
            raise RuntimeError(f"{trace.name}: {', '.join(sorted(lacking))} was not run then: run it")
        cells.extend(kept)
        times.extend(time for time in load(Time, HERE / "times.csv") if time.trace == trace.name)

    streams = [args.own / "days" / f"{name}.parquet" for name in W2_LIKE]
    for folder in [args.own, *args.folders]:
        own = folder == args.own
        paths = sorted(path for path in folder.iterdir() if path.is_file()) + (streams if own else [])
        for path in paths:
            name = path.name.split(".")[0]
            if args.only and name not in args.only:
                if name in earlier and name not in {trace.name for trace in traces}:
                    keep(earlier[name])
                continue
            trace = simulator.trace(path, own, "W2" if path in streams else "W3")
            if isinstance(trace, str):
                print(f"{path}: left out: {trace}", file=sys.stderr)
            elif trace.name in {other.name for other in traces}:
                raise RuntimeError(f"{path}: there is another trace called {trace.name}: rename one")
            else:
                traces.append(trace)
                its_cells, its_times = cells_of(simulator, path, trace, published, policies)
                cells += its_cells
                times += its_times
    names = {trace.name for trace in traces}
    for trace in earlier.values():
        if trace.name not in names and not trace.own:
            keep(trace)
    return traces, cells, times


def run_alone(args: argparse.Namespace, published: Published, policies: list[str], traces: list[Trace]) -> list[Alone]:
    """Reads and writes alone at 64 MB, without FOR. Saved rows of traces that are not run."""
    rows = load(Alone, HERE / "alone.csv")
    found = {path.name.split(".")[0]: path for folder in [args.own, *args.folders] for path in folder.glob("*.*")
             if path.suffix != ".json"}  # fmt: skip
    grid = Grid([policy for policy in policies if policy != "for"], [64 * PAGES_PER_MB])
    kept = []
    for trace in traces:
        if trace.space != "files" or trace.like != "W3":
            continue
        own = [row for row in rows if row.trace == trace.name]
        path = found.get(trace.name)
        if path and (not own or not args.only or trace.name in args.only):
            own = Simulator(args.flashsift).alone(path, trace, grid, list(published.profiles.values()))
        kept += own
    return kept


def cells_of(
    simulator: Simulator, path: Path, trace: Trace, published: Published, policies: list[str]
) -> tuple[list[Cell], list[Time]]:
    """Run cells at the paper's sizes, at the same shares of the trace as of W3, and at all pages.

    The last shows the writes that no cache avoids.
    """
    started = time.monotonic()
    sizes, shares = tables.sizes(trace, published)
    # Figure 9, and the drain, are about 64 MB.
    shown = {sizes[-1], shares[-1]}
    others = {*sizes, *shares} - shown
    devices = list(published.profiles.values())
    all_policies = [*policies, *OTHER_READINGS, *BEYOND]
    cells, times, all_cpu_s, for_cpu_s = [], [], 0.0, 0.0
    for allocation in trace.allocations:
        for frames in (others, shown):
            grid = Grid(all_policies, sorted(frames))
            some, on_devices, cpu_s = simulator.cells(path, trace, allocation, grid, devices, frames is shown)
            if frames is shown:
                on_devices = simulator.with_evicting(path, trace, on_devices, published.profiles["microSD"])
            cells += some
            times += on_devices
            all_cpu_s += sum(cpu_s.values())
            for_cpu_s += cpu_s.get("for", 0.0)
    if trace.pages not in others | shown:
        cells += simulator.cells(path, trace, trace.allocations[0], Grid(["lru"], [trace.pages]), [])[0]
    taken_s, share = time.monotonic() - started, for_cpu_s / all_cpu_s
    print(f"{path}: {len(cells)} cells in {taken_s:.1f} s; {share:.0%} of their CPU time is FOR's", file=sys.stderr)
    return cells, times


if __name__ == "__main__":
    run(main)
