"""table.py FLASHSIFT DIRECTORY PATTERN…: the recordings of run.sh beside what is predicted."""

import json
import sys
from pathlib import Path

from common.pages import markdown
from common.program import records

POLICIES = ["mglru", "linux2q", "lru", "belady"]


def predicted(flashsift, trace, frames):
    """Pages that each policy reads."""
    words = ["--json", "--writeback", "evict", "--readahead", "off", "--frames", frames, "--policy", ",".join(POLICIES)]
    cells = records(flashsift, "compare", *words, trace)
    return {cell["policy"].split()[0]: cell["device_reads"] for cell in cells if "policy" in cell}


def main():
    flashsift, directory, *patterns = sys.argv[1:]
    rows = []
    for pattern in patterns:
        for switch in "yn":
            told = json.loads(Path(directory, f"{pattern}-{switch}.json").read_text())
            reads = predicted(flashsift, f"{directory}/{pattern}-{switch}.parquet", told["frames"])
            kernel = told["read_pages"]
            row = [pattern, told["lru"], told["frames"], told["accesses"], kernel, told["refaults"]]
            rows.append(row + [f"{reads[policy]} ({reads[policy] / kernel:.3f})" for policy in POLICIES])
    head = ["pattern", "kernel's LRU", "frames", "accesses", "kernel read", "kernel's refaults", *POLICIES]
    print(markdown(head, rows, (0, 1), tight=True), end="")


main()
