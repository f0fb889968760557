#!/usr/bin/env python3
"""Efficiency of sweeps: two workers beside one process with two threads, and the cost of tasks.

    FLASHSIFT=target/release/flashsift PYTHONPATH=python benches/python/sweep.py [--traces 10000]

First, eight synthetic traces of each length are compared by `flashsift compare --threads 2`, one
after the other, and by a sweep with two workers; both run alternately, and the wall times of all
runs are shown. Then --traces small synthetic traces go through a sweep from end to end, and
empty tasks through the scheduler, which gives its time for a task.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import flashsift

POLICIES = "lru,arc,clock,s3fifo,lirs,2q,mglru,sieve"


def synthesize(path, requests, seed):
    subprocess.run(
        [flashsift.binary(), "synth", "zipf", "--requests", str(requests), "--seed", str(seed),
         "-q", "-o", path],
        check=True,
    )


def swept(traces, out, words, workers=2):
    """Returns the wall time of a sweep's tasks, by its log: from the first to the last."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "flashsift.sweep", *traces, "-o", out, "-q", "--workers",
         str(workers), *words],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    whole = time.monotonic() - began
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    start = next(line["at"] for line in lines if line["what"] == "sweep")
    results = [line for line in lines if line["what"] == "result"]
    return whole, max(line["at"] for line in results) - start, results


def efficiency(directory, requests, rounds):
    traces = [directory / f"{requests}-{seed}.parquet" for seed in range(8)]
    for seed, path in enumerate(traces):
        synthesize(path, requests, seed)
    words = ["--policy", POLICIES]
    threads, workers = [], []
    for number in range(rounds):
        began = time.monotonic()
        for path in traces:
            subprocess.run(
                [flashsift.binary(), "compare", path, "--threads", "2", "--json", "-q", *words],
                check=True, stdout=subprocess.DEVNULL,
            )
        threads.append(time.monotonic() - began)
        _, tasks, results = swept(traces, directory / f"{requests}-{number}", words)
        workers.append(tasks)
    ours, theirs = statistics.median(workers), statistics.median(threads)
    shortest = min(line["seconds"] for line in results)
    rounds = " ".join(f"{a:.1f}/{b:.1f}" for a, b in zip(threads, workers, strict=True))
    print(f"{requests:8}{shortest:9.2f} s{theirs:13.2f} s{ours:13.2f} s{theirs / ours:13.2f}   {rounds}")


def many(directory, count):
    folder = directory / "many"
    folder.mkdir()
    for seed in range(count):
        synthesize(folder / f"app{seed % 20}-{seed}.parquet", 2000, seed)
    traces = [str(folder / "*.parquet")]
    words = ["--policy", "lru,arc", "--memory", "256KiB"]
    whole, tasks, results = swept(traces, directory / "many-out", words)
    work = sum(line["seconds"] for line in results)
    print(f"{count} traces: {whole:.1f} s in all, {tasks:.1f} s of tasks on two workers")
    print(f"  comparisons take {work:.1f} s: {work / 2 / tasks:.2f} of the workers' time")
    began = time.monotonic()
    swept(traces, directory / "many-out", words)
    print(f"  again, with all results there: {time.monotonic() - began:.1f} s")


def scheduling(count):
    """Prints the time of the scheduler for a task, by empty tasks."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(abs, range(100)))
        began = time.monotonic()
        client.gather(client.map(abs, range(1, count + 1), pure=False))
        each = (time.monotonic() - began) / count
    target = 5
    print(f"{count} empty tasks: {1e3 * each:.2f} ms each, {100 * each / target:.3f} % of {target} s")
    print(f"  a scheduler with tasks of {target} s is busy all the time at {target / each:.0f} threads")
    print(f"  and for 1 % of a worker's time at {0.01 * target / each:.0f} threads waiting in turn")


def main():
    it = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    it.add_argument("--traces", type=int, default=10_000)
    it.add_argument("--requests", type=int, nargs="+", metavar="N",
                    default=[1_000_000, 2_000_000, 4_000_000, 8_000_000])
    it.add_argument("--rounds", type=int, default=3)
    args = it.parse_args()
    print(f"{os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        print(f"8 traces of each length, {POLICIES}, 5 sizes; medians of {args.rounds} rounds")
        print("requests   shortest    two threads    two workers   efficiency   rounds, s")
        for requests in args.requests:
            efficiency(directory, requests, args.rounds)
        scheduling(2000)
        many(directory, args.traces)


if __name__ == "__main__":
    main()
