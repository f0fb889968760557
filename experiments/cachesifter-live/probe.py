"""Reads and writes 4 KiB at random places of a file, ten times a second, until SIGTERM.

    probe.py FILE SEED

Reads go through the page cache; a write ends with fdatasync. It prints the times in µs.
"""

import json
import os
import random
import signal
import sys
import time

PAUSE_S = 0.1
PAGE = 4096


def main():
    path, seed = sys.argv[1:]
    over = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    rng, times = random.Random(f"probe {seed}"), {"read_us": [], "write_us": []}
    file = os.open(path, os.O_RDWR)
    pages = os.fstat(file).st_size // PAGE
    # A page that the file's writing has left in the page cache says nothing.
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    body = rng.randbytes(PAGE)

    def write(at):
        os.pwrite(file, body, at)
        os.fdatasync(file)

    while not over:
        for name, act in (("read_us", lambda at: os.pread(file, PAGE, at)), ("write_us", write)):
            began = time.perf_counter()
            act(rng.randrange(pages) * PAGE)
            times[name].append(round(1e6 * (time.perf_counter() - began)))
        time.sleep(PAUSE_S)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
