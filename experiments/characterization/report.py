"""Describe every trace, check the six findings, and write the results."""

import argparse
import sys
from pathlib import Path

import tables
from common.pages import fill
from common.program import parsed, report_parser, run
from common.rows import dump, finish, load
from numbers_of import Numbers, numbers

HERE = Path(__file__).resolve().parent


def main() -> int:
    args = parsed(report_parser(__doc__, folders="more traces"))
    rows = all_numbers(args)
    page = fill((HERE / "RESULTS.md").read_text(), tables.TABLES, rows)
    return finish(HERE, {"numbers.csv": dump(Numbers, rows), "RESULTS.md": page}, args.check)


def all_numbers(args: argparse.Namespace) -> list[Numbers]:
    """Numbers of every trace found, and saved numbers of traces of others that are not found."""
    rows: list[Numbers] = []
    for folder in [args.own, *args.folders]:
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            found = numbers(args.flashsift, path, own=folder == args.own)
            if isinstance(found, str):
                print(f"{path}: left out: {found}", file=sys.stderr)
            elif found.trace in {row.trace for row in rows}:
                raise RuntimeError(f"{path}: there is another trace called {found.trace}: rename one")
            else:
                rows.append(found)
    names = {row.trace for row in rows}
    kept = [row for row in load(Numbers, HERE / "numbers.csv") if not row.own and row.trace not in names]
    for row in kept:
        print(f"{row.trace}: not found: its numbers are those of an earlier run", file=sys.stderr)
    return rows + kept


if __name__ == "__main__":
    run(main)
