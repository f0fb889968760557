"""Run the cells of the experiment and write the results: CSV, a figure, and RESULTS.md."""

import argparse
import lzma
import re
import sys
from pathlib import Path

import figure
import tables
from simulate import (
    AHEAD,
    FAST,
    HITTING,
    SIZES,
    Cell,
    Recording,
    Runner,
    dump,
    load_cells,
    load_recordings,
    recordings,
)

HERE = Path(__file__).resolve().parent
MARKED = re.compile(r"(<!-- (?:table|text): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Policies that are tried with every way to write clusters, and the combinations that are judged.
TRIED = 5
JUDGED = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("--flashsift", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--recordings", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help="run every cell, also those that are known")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a result is stale")
    args = parser.parse_args()
    found = recordings(args.recordings, args.flashsift, load_recordings(), not args.check)
    # Cells of a recording that has changed are not known.
    digests = {(one.name, one.sha256) for one in load_recordings()}
    current = {one.name for _, one in found if (one.name, one.sha256) in digests}
    known = [] if args.again else [cell for cell in load_cells() if cell.recording in current]
    # Saved after each simulation: an interrupted run goes on where it was.
    runner = Runner(args.flashsift, known, None if args.check else lambda cells: save(found, cells))
    results = choose_and_judge(found, runner)
    cells = results.cells_in_order()
    text = MARKED.sub(lambda mark: mark[1] + tables.ALL[mark[2]](results) + mark[3], (HERE / "RESULTS.md").read_text())
    files = {"RESULTS.md": text, "front.svg": figure.draw(results)}
    stale = [name for name, text in files.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    if args.check:
        for name in stale:
            print(f"{HERE / name} is stale", file=sys.stderr)
        return bool(stale)
    save(found, cells)
    for name in stale:
        (HERE / name).write_text(files[name])
    print(f"{runner.ran} simulations; written: {', '.join(stale) or 'nothing new'}", file=sys.stderr)
    return 0


def choose_and_judge(found: list[tuple[Path, Recording]], runner: Runner) -> "tables.Results":
    choosing = [one for one in found if one[1].split != "test"]
    testing = [one for one in found if one[1].split == "test"]
    # Every policy without clusters and with one size; then the best ones with each way.
    for path, recording in choosing:
        runner.cells(path, recording, runner.all_policies(path, recording), "128KiB")
    trial = tables.Results([one for _, one in choosing], list(runner.used.values()), [])
    best = list(dict.fromkeys(policy for policy, _ in trial.ranked(trial.combinations())))[:TRIED]
    for path, recording in choosing:
        for cluster in (*SIZES, *AHEAD):
            runner.cells(path, recording, best, cluster)
    trial = tables.Results([one for _, one in choosing], list(runner.used.values()), [])
    judged = trial.ranked(trial.combinations())[:JUDGED]
    for path, recording in testing:
        policies = runner.all_policies(path, recording)
        for cluster in SIZES:
            runner.cells(path, recording, policies, cluster)
        for cluster in AHEAD:
            runner.cells(path, recording, list(dict.fromkeys([*best, *FAST, *HITTING, "lru"])), cluster)
    return tables.Results([one for _, one in found], list(runner.used.values()), judged)


def save(found: list[tuple[Path, Recording]], cells: list[Cell]) -> None:
    (HERE / "recordings.csv").write_text(dump(Recording, [recording for _, recording in found]))
    (HERE / "cells.csv.xz").write_bytes(lzma.compress(dump(Cell, cells).encode(), preset=9))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"run.sh: {error}")
