"""Simulate sifters in a mount with and without the ceiling on bytes fetched again; JSON lines."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "experiments/cachesifter"))

from frontier import TRACES  # noqa: E402

SIFTERS = ("touch", "drop-all", "controller")
BUDGETS_MIB = (16, 32)
# The second is above any share that a cache can have.
CEILINGS = ("10%", "1000%")


def main():
    [program] = sys.argv[1:]
    for trace, (path, patterns, split) in TRACES.items():
        for ceiling in CEILINGS:
            words = [program, "compare", ROOT / "testdata" / path, "--json", "-q", "--as-mounted",
                     "--fetch-again", ceiling, "--sift", ",".join(SIFTERS)]
            # Half of `--memory` is the RAM of the mount.
            words += ["--memory", ",".join(f"{2 * mib}MiB" for mib in BUDGETS_MIB)]
            words += [word for text in patterns for word in ("--droppable", text)]
            done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
            for record in map(json.loads, done.stdout.splitlines()):
                if record["sifter"] in SIFTERS:
                    keys = ("sifter", "kept_share", "fetched_again_share")
                    row = {"trace": trace, "split": split, "budget_mib": record["memory_bytes"] >> 21,
                           "ceiling": ceiling, **{key: record[key] for key in keys}}
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
