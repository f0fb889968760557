"""Simulate sifters in a mount with and without the ceiling on bytes fetched again; JSON lines."""

import json
import sys

from mounted import TRACES, simulated

SIFTERS = ("touch", "drop-all", "controller")
BUDGETS_MIB = (16, 32)
# The second is above any share that a cache can have.
CEILINGS = ("10%", "1000%")


def main():
    [program] = sys.argv[1:]
    for name in TRACES:
        for ceiling in CEILINGS:
            for row, record in simulated(program, name, SIFTERS, BUDGETS_MIB, "--fetch-again", ceiling):
                shares = {key: record[key] for key in ("sifter", "kept_share", "fetched_again_share")}
                print(json.dumps({**row, "ceiling": ceiling, **shares}), flush=True)


if __name__ == "__main__":
    main()
