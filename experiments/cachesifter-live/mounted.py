"""Simulate mounts with each sifter, and with none: bytes at the device; JSON lines.

    mounted.py PROGRAM           # each recording from its beginning
    mounted.py PROGRAM --warm    # each from its middle on: the caches are on flash, the mount new
"""

import csv
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "experiments/cachesifter"))

from common.pages import PAGE_BYTES
from common.program import output, records
from frontier import TRACES

SIFTERS = ("keep", "controller", "controller:cold-mib=0", "touch", "reject-first", "drop-all")
BUDGETS_MIB = (8, 16, 32, 64)
KEYS = ("kept_share", "fetched_again_share", "dropped_bytes")


def simulated(program, name, sifters, budgets_mib, *options, path=None):
    """The facts of each cell of a recording, and its record."""
    own, patterns, split = TRACES[name]
    # Half of `--memory` is the RAM of the mount.
    words = ["--json", "-q", "--as-mounted", *options, "--sift", ",".join(sifters),
             "--memory", ",".join(f"{2 * mib}MiB" for mib in budgets_mib)]
    words += [word for text in patterns for word in ("--droppable", text)]
    for record in records(program, "compare", path or ROOT / "testdata" / own, *words):
        if record["sifter"] in sifters:
            yield {"trace": name, "split": split, "budget_mib": record["memory_bytes"] >> 21}, record


def row_of(facts, record):
    own = [record["journal_writes"], record["metadata_writes"]]
    return {**facts, "sifter": record["sifter"], "droppable_bytes": record["flash_bytes"],
            "other_bytes": record["other_flash_bytes"], "own_bytes": PAGE_BYTES * sum(own),
            "device_bytes": PAGE_BYTES * sum([record["device_writes"], *own]), **{key: record[key] for key in KEYS}}


def later_half(program, path, folder):
    """A recording from its middle on, behind the names and sizes of the files that are there."""
    copy, whole, half = (folder / f"{path.stem}{end}" for end in (".parquet", ".csv", "-half.csv"))
    # CSV cannot say that a recording is held apart for tests. Our rows do.
    for words in ([path, "--split", "tune", "-o", copy], [copy, "-o", whole]):
        output(program, "import", *words, "-q")
    with open(whole, newline="") as file:
        head, about, *events = csv.reader(file)
    at = {column: number for number, column in enumerate(head)}
    # The longest pause near the middle.
    time = [int(event[at["at_us"]]) for event in events]
    near = range(len(events) * 9 // 20, len(events) * 11 // 20)
    middle = max(near, key=lambda number: time[number] - time[number - 1])
    names, sizes, processes = {}, {}, []
    for event in events[:middle]:
        action, file = event[at["action"]], event[at["file"]]
        if action in ("create", "bind"):
            names[file] = event[at["name"]]
            sizes.setdefault(file, 0)
        elif action == "rename":
            names[file] = event[at["name2"]]
        elif action in ("unbind", "gone"):
            names.pop(file, None)
        elif action == "write":
            sizes[file] = max(sizes.get(file, 0), int(event[at["offset"]]) + int(event[at["len"]]))
        elif action == "truncate":
            sizes[file] = int(event[at["offset"]] or 0)
        elif action == "process":
            processes.append(event)

    def row(**columns):
        columns = {"at_us": time[middle], "offset": 0, "len": 0, "pid": 0, "tid": 0, "flag": 0, "open": 0} | columns
        return [columns.get(column, "") for column in head]

    with open(half, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerows([head, about])
        lines.writerows([time[middle], *event[1:]] for event in processes)
        for file, name in names.items():
            lines.writerow(row(action="size", file=file, offset=sizes.get(file, 0)))
            lines.writerow(row(action="bind", file=file, name=name))
        lines.writerows(events[middle:])
    return half


def main():
    program, *warm = sys.argv[1:]
    with ThreadPoolExecutor(2) as pool, tempfile.TemporaryDirectory() as folder:
        def rows_of(name):
            path = later_half(program, ROOT / "testdata" / TRACES[name][0], Path(folder)) if warm else None
            sifters = (*SIFTERS, "oracle") if warm else SIFTERS
            cells = simulated(program, name, sifters, BUDGETS_MIB, "--metadata", "ext4", path=path)
            return [row_of(*cell) for cell in cells]

        for rows in pool.map(rows_of, TRACES):
            for row in rows:
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
