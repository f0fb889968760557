"""Run the cells of the experiment and write the results: CSV, a figure, and RESULTS.md."""

from pathlib import Path

import figure
import tables
from common.pages import fill
from common.program import report_parser, run
from common.rows import dump, finish, load, write
from simulate import AHEAD, FAST, HITTING, SIZES, Cell, Recording, Runner, recordings

HERE = Path(__file__).resolve().parent
# Policies that are tried with every way to write clusters, and the combinations that are judged.
TRIED = 5
JUDGED = 3


def main() -> int:
    parser = report_parser(__doc__, again=True)
    parser.add_argument("--recordings", type=Path, required=True, help="a folder")
    args = parser.parse_args()
    earlier = load(Recording, HERE / "recordings.csv")
    found = recordings(args, earlier)
    # Cells of a recording that has changed are not known.
    digests = {(one.name, one.sha256) for one in earlier}
    current = {one.name for _, one in found if (one.name, one.sha256) in digests}
    known = [] if args.again else [cell for cell in load(Cell, HERE / "cells.csv.xz") if cell.recording in current]
    # Saved after each simulation: an interrupted run goes on where it was.
    runner = Runner(args.flashsift, known, None if args.check else lambda cells: save(found, cells))
    results = choose_and_judge(found, runner)
    if not args.check:
        save(found, results.cells_in_order())
    page = fill((HERE / "RESULTS.md").read_text(), tables.ALL, results)
    return finish(HERE, {"RESULTS.md": page, "front.svg": figure.draw(results)}, args.check, ran=runner.ran)


def choose_and_judge(found: list[tuple[Path, Recording]], runner: Runner) -> "tables.Results":
    choosing = [one for one in found if one[1].split != "test"]
    testing = [one for one in found if one[1].split == "test"]
    # Every policy without clusters and with one size; then the best ones with each way.
    for path, recording in choosing:
        runner.add(path, recording, runner.all_policies(path, recording), "128KiB")
    trial = tables.Results([one for _, one in choosing], list(runner.used.values()), [])
    best = list(dict.fromkeys(policy for policy, _ in trial.ranked(trial.combinations())))[:TRIED]
    for path, recording in choosing:
        for cluster in (*SIZES, *AHEAD):
            runner.add(path, recording, best, cluster)
    trial = tables.Results([one for _, one in choosing], list(runner.used.values()), [])
    judged = trial.ranked(trial.combinations())[:JUDGED]
    for path, recording in testing:
        policies = runner.all_policies(path, recording)
        for cluster in SIZES:
            runner.add(path, recording, policies, cluster)
        for cluster in AHEAD:
            runner.add(path, recording, list(dict.fromkeys([*best, *FAST, *HITTING, "lru"])), cluster)
    return tables.Results([one for _, one in found], list(runner.used.values()), judged)


def save(found: list[tuple[Path, Recording]], cells: list[Cell]) -> None:
    recorded = dump(Recording, [recording for _, recording in found])
    write(HERE, {"recordings.csv": recorded, "cells.csv.xz": dump(Cell, cells)}, check=False)


if __name__ == "__main__":
    run(main)
