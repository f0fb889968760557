#!/usr/bin/env python3
"""The same sweep by libCacheSim's Python package and by this one: time, miss ratios, own policies.

    python3 -m pip install libcachesim==0.3.5
    FLASHSIFT=target/release/flashsift PYTHONPATH=python benches/python/rival.py

Both read one oracleGeneral trace of objects of one size, and run eight policies at five sizes on
one thread. Shown are wall times, the largest difference of miss ratios, and the speed of LRU
written in Python under both.
"""

import argparse
import collections
import pathlib
import tempfile
import time

import flashsift
import libcachesim as rival
import numpy as np

# Ours and theirs. Where definitions differ in details, miss ratios do, too.
POLICIES = {
    "fifo": rival.FIFO, "lru": rival.LRU, "clock": rival.Clock, "sieve": rival.Sieve,
    "arc": rival.ARC, "2q": rival.TwoQ, "lirs": rival.LIRS, "s3fifo": rival.S3FIFO,
}
EXACT = ["fifo", "lru", "sieve"]


def write(path, requests, objects, seed):
    """Writes a Zipf trace: time, object, size, next access."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, objects + 1)
    ids = rng.choice(objects, requests, p=weights / weights.sum()) + 1
    record = np.dtype([("at", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    rows = np.zeros(requests, record)
    rows["at"] = np.arange(requests) // 1000
    rows["id"], rows["size"], rows["next"] = ids, 1, -1
    rows.tofile(path)


def theirs(path, sizes):
    """Returns the miss ratios by policy and size."""
    ratios = {}
    for name, policy in POLICIES.items():
        for size in sizes:
            reader = rival.TraceReader(
                str(path), rival.TraceType.ORACLE_GENERAL_TRACE,
                rival.ReaderInitParam(ignore_obj_size=True),
            )
            ratios[name, size] = policy(size).process_trace(reader)[0]
    return ratios


def ours(path, sizes):
    trace = flashsift.open(path, format="oracle-general")
    cells = trace.compare(
        policies=list(POLICIES), frames=sizes, object_cache=True, writeback="evict",
        threads=1,
    )
    return {(row["policy"], row["frames"]): 1 - row["hit_ratio"] for row in cells.to_dicts()}


def timed(function, *args):
    began = time.monotonic()
    result = function(*args)
    return time.monotonic() - began, result


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


def plugin(size):
    """LRU by their hooks, as their documentation shows it."""
    return rival.PluginCache(
        cache_size=size,
        cache_name="lru",
        cache_init_hook=lambda _: collections.OrderedDict(),
        cache_hit_hook=lambda order, request: order.move_to_end(request.obj_id),
        cache_miss_hook=lambda order, request: order.__setitem__(request.obj_id, None),
        cache_eviction_hook=lambda order, _: order.popitem(last=False)[0],
        cache_remove_hook=lambda order, obj_id: order.pop(obj_id, None),
        cache_free_hook=lambda order: order.clear(),
    )


def main():
    it = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    it.add_argument("--requests", type=int, default=2_000_000)
    it.add_argument("--objects", type=int, default=200_000)
    it.add_argument("--rounds", type=int, default=3)
    args = it.parse_args()
    sizes = [args.objects // 2**n for n in range(5, 0, -1)]
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "zipf.oracleGeneral")
        write(path, args.requests, args.objects, 1)
        print(f"{args.requests} requests, {len(POLICIES)} policies, {len(sizes)} sizes, one thread")
        for _ in range(args.rounds):
            their_s, their_ratios = timed(theirs, path, sizes)
            our_s, our_ratios = timed(ours, path, sizes)
            print(f"libcachesim {their_s:.2f} s, flashsift {our_s:.2f} s: {their_s / our_s:.1f}")
        print("largest difference of miss ratios, in points:")
        for name in POLICIES:
            away = max(abs(their_ratios[name, size] - our_ratios[name, size]) for size in sizes)
            print(f"  {name:8}{100 * away:6.2f}")
        exact = [(name, size) for name in EXACT for size in sizes]
        assert all(abs(their_ratios[one] - our_ratios[one]) < 1e-4 for one in exact[:10])
        own(path, args.requests, sizes[-1])


def own(path, requests, size):
    """Prints the speed of LRU in Python."""
    def reader():
        return rival.TraceReader(
            str(path), rival.TraceType.ORACLE_GENERAL_TRACE,
            rival.ReaderInitParam(ignore_obj_size=True),
        )

    seconds, ratios = timed(lambda: plugin(size).process_trace(reader()))
    print(f"LRU in Python: libcachesim {requests / seconds / 1e6:.2f} M/s (misses {ratios[0]:.4f})")
    trace = flashsift.open(path, format="oracle-general")
    cells = trace.compare(policies=Lru, frames=size, writeback="evict")
    speed = 1e3 / cells["cpu_ns_per_access"][0]
    print(f"LRU in Python: flashsift {speed:.2f} M/s (misses {1 - cells['hit_ratio'][0]:.4f})")


if __name__ == "__main__":
    main()
