"""Simulate mounts with each sifter, and with none: bytes at the device; JSON lines."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "experiments/cachesifter"))

from frontier import TRACES  # noqa: E402

SIFTERS = ("keep", "controller", "touch", "reject-first", "drop-all")
BUDGETS_MIB = (8, 16, 32, 64)
PAGE = 4096
KEYS = ("kept_share", "fetched_again_share", "dropped_bytes")


def simulated(program, trace, path, patterns, split):
    words = [program, "compare", ROOT / "testdata" / path, "--json", "-q", "--as-mounted",
             "--metadata", "ext4", "--sift", ",".join(SIFTERS)]
    # Half of `--memory` is the RAM of the mount.
    words += ["--memory", ",".join(f"{2 * mib}MiB" for mib in BUDGETS_MIB)]
    words += [word for text in patterns for word in ("--droppable", text)]
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    for record in map(json.loads, done.stdout.splitlines()):
        if record["sifter"] not in SIFTERS:
            continue
        yield {"trace": trace, "split": split, "budget_mib": record["memory_bytes"] >> 21,
               "sifter": record["sifter"], "droppable_bytes": record["flash_bytes"],
               "other_bytes": record["other_flash_bytes"],
               "own_bytes": PAGE * (record["journal_writes"] + record["metadata_writes"]),
               "device_bytes": PAGE * sum(record[key] for key in ("device_writes", "journal_writes",
                                                                  "metadata_writes")),
               **{key: record[key] for key in KEYS}}


def main():
    [program] = sys.argv[1:]
    with ThreadPoolExecutor(2) as pool:
        of = pool.map(lambda one: list(simulated(program, one[0], *one[1])), TRACES.items())
        for rows in of:
            for row in rows:
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
