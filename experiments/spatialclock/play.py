"""Play the requests of some cells on a loop device, and write played.csv."""

import json
import sys
import tempfile
from pathlib import Path

from apps import testbed
from cells import SETTING, Played
from common.program import output, run
from common.rows import dump
from common.traces import LAYOUTS

HERE = Path(__file__).resolve().parent
TRACES, POLICIES = ["messenger", "video"], ["lru", "fab", "spatialclock"]
FRAMES = 1024  # 4 MB
ROUNDS = 5
CARD_BYTES = 512 << 20


def main() -> None:
    program, folder = sys.argv[1:]
    testbed.begin()
    played = []
    with tempfile.TemporaryDirectory(prefix="flashsift-play-", dir=folder) as work:
        card = Path(work) / "card"
        with open(card, "wb") as file:
            file.truncate(CARD_BYTES)
        with testbed.loop(card, "--direct-io=on") as device:
            for trace in TRACES:
                grid = ["--policy", ",".join(POLICIES), "--frames", FRAMES, "--layout", LAYOUTS["early"], "--drain"]
                output(program, "compare", f"testdata/{trace}.parquet", *grid, *SETTING, "--after-cache", work, "--quiet")
                for number in range(1, ROUNDS + 1):
                    for policy in POLICIES:
                        log = Path(work) / f"{trace}.{policy}.{FRAMES}.parquet"
                        options = ["--fill", "yes", "--yes-destroy-data", "--json", "--quiet"]
                        done = json.loads(output(program, "replay", log, "--target", device, *options))
                        elapsed_us = round(done["elapsed_s"] * 1e6)
                        played.append(Played(trace, "early", policy, FRAMES, number, done["requests"], elapsed_us))
                        print(played[-1], file=sys.stderr)
    (HERE / "played.csv").write_text(dump(Played, played))


if __name__ == "__main__":
    run(main, "play.sh")
