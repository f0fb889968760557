"""Describe every trace, check the six findings, and write the results."""

import argparse
import os
import sys
from pathlib import Path

import tables
from numbers_of import Flashsift, Numbers, dump, load

HERE = Path(__file__).parent


def main() -> int:
    args = arguments()
    rows = run(args)
    files = {
        "numbers.csv": dump(rows),
        "RESULTS.md": tables.fill((HERE / "RESULTS.md").read_text(), rows),
    }
    stale = [name for name, text in files.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    if args.check:
        for name in stale:
            print(f"{HERE / name} is stale", file=sys.stderr)
        return bool(stale)
    for name in stale:
        (HERE / name).write_text(files[name])
    print(f"written: {', '.join(stale) or 'nothing, all was current'}", file=sys.stderr)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("--flashsift", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--own", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("folders", type=Path, nargs="*", metavar="TRACES_DIR", help="more traces")
    args = parser.parse_args()
    args.folders += [Path(folder) for folder in os.environ.get("FLASHSIFT_TRACES", "").split(":") if folder]
    for folder in args.folders:
        if not folder.is_dir():
            parser.error(f"{folder} is no folder")
    return args


def run(args: argparse.Namespace) -> list[Numbers]:
    """Numbers of every trace found, and saved numbers of traces of others that are not found."""
    flashsift = Flashsift(args.flashsift)
    rows: list[Numbers] = []
    for folder in [args.own, *args.folders]:
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            numbers = flashsift.numbers(path, own=folder == args.own)
            if isinstance(numbers, str):
                print(f"{path}: left out: {numbers}", file=sys.stderr)
            elif numbers.trace in {row.trace for row in rows}:
                raise RuntimeError(f"{path}: there is another trace called {numbers.trace}: rename one")
            else:
                rows.append(numbers)
    found = {row.trace for row in rows}
    kept = [row for row in load(HERE / "numbers.csv") if not row.own and row.trace not in found]
    for row in kept:
        print(f"{row.trace}: not found: its numbers are those of an earlier run", file=sys.stderr)
    return rows + kept


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"run.sh: {error}")
