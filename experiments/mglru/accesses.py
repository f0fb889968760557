#!/usr/bin/env python3
"""accesses.py FILE PATTERN GROUP LIMIT SEED: reads pages of FILE in a control group of LIMIT bytes.

Prints one JSON object: the kernel's counts meanwhile. FILE lies on a disk of its own. Read-ahead is
off, and the interpreter's own memory is not charged to the group, since it enters late.
"""

import json
import os
import random
import sys

PAGE = 4096
ACCESSES = 60_000
# Pages in the group are counted this often; charges are rounded to batches of 64.
SAMPLED = 500


def zipf(rng, pages):
    """Popularity by Zipf's law with exponent 0.9; popular pages lie anywhere."""
    weights = [1 / rank**0.9 for rank in range(1, pages + 1)]
    places = list(range(pages))
    rng.shuffle(places)
    return rng.choices(places, weights, k=ACCESSES)


def scans(rng, pages):
    """Zipf's law over a third of the file, and a scan of the rest in runs of 256 pages."""
    hot = zipf(rng, pages // 3)
    chosen, position = [], 0
    for page in hot:
        if rng.random() < 0.001:
            for _ in range(256):
                chosen.append(pages // 3 + position % (pages - pages // 3))
                position += 1
        chosen.append(page)
    return chosen[:ACCESSES]


def shifts(rng, pages):
    """Zipf's law over a third of the file, which moves on by a sixth four times."""
    part = pages // 3
    chosen = []
    for phase in range(5):
        chosen += [phase * part // 2 + page for page in zipf(rng, part)[: ACCESSES // 5]]
    return chosen


def loops(_, pages):
    """A loop over five sixteenths of the file: more than the group's memory."""
    return [index % (pages * 5 // 16) for index in range(ACCESSES)]


def statistics(group):
    with open(f"{group}/memory.stat") as lines:
        return {name: int(value) for name, value in (line.split() for line in lines)}


def sectors(device):
    with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat") as line:
        return int(line.read().split()[2])


def main():
    path, pattern, group, limit, seed = sys.argv[1:]
    file = os.open(path, os.O_RDONLY)
    about = os.fstat(file)
    chosen = globals()[pattern](random.Random(int(seed)), about.st_size // PAGE)
    os.mkdir(group)
    with open(f"{group}/memory.max", "w") as file_of_limit:
        file_of_limit.write(limit)
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("1")
    with open(f"{group}/cgroup.procs", "w") as processes:
        processes.write(str(os.getpid()))
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    before, began = statistics(group), sectors(about.st_dev)
    sizes = []
    for number, page in enumerate(chosen):
        os.pread(file, PAGE, page * PAGE)
        if number % SAMPLED == 0:
            sizes.append(statistics(group)["file"] // PAGE)
    after = statistics(group)
    full = sizes[len(sizes) // 2 :]
    counted = {name: after[name] - before[name] for name in after if name.startswith("workingset_")}
    with open("/sys/kernel/mm/lru_gen/enabled") as enabled:
        kind = "mglru" if int(enabled.read(), 16) else "classic"
    told = {
        "kernel": os.uname().release,
        "lru": kind,
        "pattern": pattern,
        "accesses": len(chosen),
        "pages": len(set(chosen)),
        "read_pages": (sectors(about.st_dev) - began) * 512 // PAGE,
        "frames": round(sum(full) / len(full)),
        "frames_least": min(full),
        "frames_most": max(full),
        "refaults": counted["workingset_refault_file"],
        "activated": counted["workingset_activate_file"],
    }
    print(json.dumps(told))


main()
