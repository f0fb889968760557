#!/usr/bin/env python3
"""Speed of policies that are written in Python, in accesses a second.

    FLASHSIFT=target/release/flashsift PYTHONPATH=python benches/python/policy.py [TRACE …]

Each policy runs over each trace; shown are the accesses and the CPU time of the run without
reading, and beside it the same policy in Rust.
"""

import collections
import pathlib
import sys

import flashsift

TESTDATA = pathlib.Path(__file__).parents[2] / "testdata"


class Lru(flashsift.Policy):
    def __init__(self, frames, pages):
        self.order = collections.OrderedDict()

    def insert(self, page, write):
        self.order[page] = None

    def hit(self, page, write):
        self.order.move_to_end(page)

    def evict(self, incoming):
        return self.order.popitem(last=False)[0]

    def remove(self, page):
        del self.order[page]


class Sieve(flashsift.Policy):
    """A FIFO queue, a bit a page, and a hand, as a linked list in two dicts."""

    def __init__(self, frames, pages):
        self.newer, self.older, self.visited = {}, {}, set()
        self.newest = self.oldest = self.hand = None

    def insert(self, page, write):
        self.older[page], self.newer[page] = self.newest, None
        if self.newest is None:
            self.oldest = page
        else:
            self.newer[self.newest] = page
        self.newest = page

    def hit(self, page, write):
        self.visited.add(page)

    def evict(self, incoming):
        page = self.oldest if self.hand is None else self.hand
        while page in self.visited:
            self.visited.discard(page)
            page = self.oldest if self.newer[page] is None else self.newer[page]
        self.hand = page
        self.remove(page)
        return page

    def remove(self, page):
        older, newer = self.older.pop(page), self.newer.pop(page)
        if older is None:
            self.oldest = newer
        else:
            self.newer[older] = newer
        if newer is None:
            self.newest = older
        else:
            self.older[newer] = older
        self.visited.discard(page)
        if self.hand == page:
            self.hand = newer


def main():
    traces = sys.argv[1:] or [str(path) for path in sorted(TESTDATA.glob("*.parquet"))]
    for policy in (Lru, Sieve):
        flashsift.check(policy)
    print(f"{'trace':24}{'policy':10}{'accesses':>12}{'M/s':>8}{'in Rust, M/s':>14}")
    for trace in traces:
        cells = flashsift.compare(
            trace, policies=["lru", "sieve", Lru, Sieve], memory="4MiB", writeback="evict"
        )
        rows = {row["policy"]: row for row in cells.to_dicts()}
        for own in ("Lru", "Sieve"):
            row, rust = rows[own], rows[own.lower()]
            same = all(row[key] == rust[key] for key in ("hits", "device_reads", "device_writes"))
            assert same or own == "Sieve", (row, rust)
            speed, fast = (1e3 / one["cpu_ns_per_access"] for one in (row, rust))
            name = pathlib.Path(trace).name
            print(f"{name:24}{own:10}{row['accesses']:>12}{speed:>8.2f}{fast:>14.1f}")


if __name__ == "__main__":
    main()
