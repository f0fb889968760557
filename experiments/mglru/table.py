"""table.py FLASHSIFT DIRECTORY PATTERN…: the recordings of run.sh beside what is predicted."""

import json
import subprocess
import sys

POLICIES = ["mglru", "linux2q", "lru", "belady"]


def predicted(flashsift, trace, frames):
    """Pages that each policy reads."""
    command = [flashsift, "compare", "--json", "--writeback", "evict", "--readahead", "off"]
    command += ["--frames", str(frames), "--policy", ",".join(POLICIES), trace]
    cells = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cells = [json.loads(line) for line in cells.splitlines()]
    return {cell["policy"].split()[0]: cell["device_reads"] for cell in cells if "policy" in cell}


def main():
    flashsift, directory, *patterns = sys.argv[1:]
    print("| pattern | kernel's LRU | frames | accesses | kernel read | kernel's refaults |", end="")
    print("".join(f" {policy} |" for policy in POLICIES))
    print("|---|---|---:|---:|---:|---:|" + "---:|" * len(POLICIES))
    for pattern in patterns:
        for switch in "yn":
            with open(f"{directory}/{pattern}-{switch}.json") as file:
                told = json.load(file)
            reads = predicted(flashsift, f"{directory}/{pattern}-{switch}.parquet", told["frames"])
            kernel = told["read_pages"]
            cells = [pattern, told["lru"], told["frames"], told["accesses"], kernel, told["refaults"]]
            cells += [f"{reads[policy]} ({reads[policy] / kernel:.3f})" for policy in POLICIES]
            print("| " + " | ".join(str(cell) for cell in cells) + " |")


main()
