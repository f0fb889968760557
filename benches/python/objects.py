#!/usr/bin/env python3
"""Caches of objects with sizes, by libCacheSim's Python package and by this one: agreement, speed.

    make rival                       installs the package, and runs this on testdata
    make rival TRACES="a.csv b.xz"   the same on other traces

Each trace becomes a trace of objects with sizes, in libCacheSim's oracleGeneral: an object is what
begins at one place of a file, and keeps the size of its first request, as both simulators do. One
more trace is generated, as a web cache might see it: popularity by Zipf's law, sizes log-normal.
Shown are request and byte miss ratios of both at four sizes, the largest difference by policy, and
the times of whole runs in turn, on one thread.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import flashsift
import libcachesim as rival
import numpy as np

# Ours, theirs, and why they may differ; without a reason they have to agree to four digits.
POLICIES = {
    "fifo": (rival.FIFO, None),
    "lru": (rival.LRU, None),
    "clock": (rival.Clock, None),
    "sieve": (rival.Sieve, None),
    "lfu": (rival.LFU, None),
    "gdsf": (rival.GDSF, "theirs takes the object in before it evicts, which may be the object itself"),
    "s3fifo:fill=main": (rival.S3FIFO, None),
    "s3fifo": (rival.S3FIFO, "theirs fills its main queue first; see fill=main"),
    "2q": (rival.TwoQ, "theirs drops the name before it evicts for the object"),
    "arc:steps=bytes": (rival.ARC, None),
    "arc": (rival.ARC, "theirs moves its target by single bytes; see steps=bytes"),
    "belady": (rival.Belady, None),
    "hyperbolic:size=ignored": (rival.Hyperbolic, "both draw samples"),
}
SHARES = [0.01, 0.03, 0.1, 0.3]
RECORD = np.dtype([("at", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def save(path, ids, sizes):
    """Writes a trace of objects, each as large as at its first request."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rows = np.zeros(len(ids), RECORD)
    rows["at"] = np.arange(len(ids)) // 1000
    rows["id"] = inverse + 1
    rows["size"] = np.maximum(sizes[first], 1)[inverse]
    order = np.lexsort((np.arange(len(ids)), inverse))
    rows["next"] = -1
    same = inverse[order[1:]] == inverse[order[:-1]]
    rows["next"][order[:-1][same]] = order[1:][same]
    rows.tofile(path)


def converted(source, path):
    """Writes the reads and writes of a trace as requests for objects."""
    events = flashsift.open(source).to_polars()
    events = events.filter(events["action"].is_in(["read", "write"]))
    places = events.select("file", "offset").to_numpy().astype(np.int64)
    _, ids = np.unique(places, axis=0, return_inverse=True)
    save(path, ids.reshape(-1), events["len"].to_numpy().astype(np.int64))


def web(path, requests, objects, seed=1):
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, objects + 1)
    ids = rng.choice(objects, requests, p=weights / weights.sum())
    save(path, ids, np.exp(rng.normal(9, 1.5, objects)).astype(np.int64)[ids])


def reader(path):
    return rival.TraceReader(str(path), rival.TraceType.ORACLE_GENERAL_TRACE)


def theirs(path, policy, size):
    return policy(size, hashpower=20).process_trace(reader(path))


def ours(path, policies, sizes):
    cells = flashsift.open(path, format="oracle-general").compare(
        policies=policies, memory=sizes, object_cache=True)
    return {(row["policy"], row["memory_bytes"]): (row["miss_ratio"], row["byte_miss_ratio"])
            for row in cells.to_dicts()}


def agreement(name, path):
    """Prints the largest differences by policy. Returns those that should agree and do not."""
    rows = np.fromfile(path, RECORD)
    _, first = np.unique(rows["id"], return_index=True)
    working_set = int(rows["size"][first].astype(np.uint64).sum())
    sizes = [max(int(share * working_set), 4096) for share in SHARES]
    found = ours(path, list(POLICIES), sizes)
    print(f"\n{name}: {len(rows)} requests, {len(first)} objects of {working_set / 2**20:.1f} MiB")
    print(f"  {'':24} requests missed %, ours / theirs, at 1, 3, 10, 30 %{'':12}differs by, points")
    wrong = []
    for policy, (make, reason) in POLICIES.items():
        pairs = [(found[policy, size], theirs(path, make, size)) for size in sizes]
        away = [max(abs(a[n] - b[n]) for a, b in pairs) * 100 for n in (0, 1)]
        ratios = "  ".join(f"{100 * a[0]:5.2f} / {100 * b[0]:5.2f}" for a, b in pairs)
        print(f"  {policy:24} {ratios}  {away[0]:6.3f}, bytes {away[1]:6.3f}"
              + (f"  ({reason})" if reason else ""))
        if reason is None and max(away) >= 0.01:
            wrong.append(f"{name}, {policy}: {away[0]:.3f} and {away[1]:.3f} points")
    return wrong


def speed(path, rounds):
    """Prints the times of whole runs in turn."""
    size = 1 << 30
    binary = os.environ.get("FLASHSIFT", "flashsift")
    for policy in ["lru", "s3fifo:fill=main", "gdsf"]:
        ratios, loops = [], []
        for _ in range(rounds):
            began = time.monotonic()
            theirs(path, POLICIES[policy][0], size)
            their_s = time.monotonic() - began
            began = time.monotonic()
            done = subprocess.run([binary, "compare", str(path), "--format", "oracle-general",
                                   "--object-cache", "--policy", policy, "--memory", str(size),
                                   "-q", "--json", "--threads", "1"],
                                  check=True, capture_output=True)
            our_s = time.monotonic() - began
            cell = json.loads(done.stdout)
            loop_s = cell["cpu_ns_per_request"] * cell["requests"] / 1e9
            ratios.append(their_s / our_s)
            loops.append(their_s / loop_s)
            print(f"  {policy:18} libcachesim {their_s:.2f} s, flashsift {our_s:.2f} s, "
                  f"of which the loop {loop_s:.2f} s")
        print(f"  {policy:18} median ratios: process to process {median(ratios):.1f}, "
              f"their process to our loop {median(loops):.1f}")


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    it = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    it.add_argument("traces", nargs="*")
    it.add_argument("--requests", type=int, default=10_000_000)
    it.add_argument("--objects", type=int, default=1_000_000)
    it.add_argument("--rounds", type=int, default=5)
    args = it.parse_args()
    testdata = pathlib.Path(__file__).parents[2] / "testdata"
    traces = args.traces or [testdata / f"{name}.parquet" for name in ("browser", "map", "feed")]
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "objects.oracleGeneral")
        for trace in traces:
            converted(trace, path)
            wrong += agreement(pathlib.Path(trace).name, path)
        web(path, args.requests // 10, args.objects // 10)
        wrong += agreement("web", path)
        web(path, args.requests, args.objects)
        print(f"\nspeed: {args.requests} requests, {args.objects} objects, a cache of 1 GiB")
        speed(path, args.rounds)
    if wrong:
        raise SystemExit("these should agree: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
