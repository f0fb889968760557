"""The error of `compare --sample` on recordings, and a trace of 10^9 requests."""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

from common.pages import markdown
from common.program import records

ROOT = pathlib.Path(__file__).parents[2]
FLASHSIFT = os.environ["FLASHSIFT"]
GIVEN = [pathlib.Path(word) for word in sys.argv[1:] if not word.startswith("-")]
TRACES = GIVEN or sorted([*ROOT.glob("testdata/*.parquet"), *ROOT.glob("testdata/days/*.parquet")])
POLICIES = "lru,clock,arc,2q,s3fifo,lirs,mglru,belady"
RATES = ["1%", "5%", "20%"]


def cells(trace, *words):
    """Returns the cells of a comparison at three sizes, by policy and frames."""
    grid = ["--policy", POLICIES, "--memory", "4MiB,16MiB,64MiB", "--json", "-q"]
    try:
        found = records(FLASHSIFT, "compare", trace, *grid, *words)
    except RuntimeError:
        return {}
    return {(one["policy"], one["frames"]): one for one in found}


def main():
    full = {trace: cells(trace) for trace in TRACES}
    print(f"{len(TRACES)} recordings, {POLICIES}, 4, 16 and 64 MiB\n")
    found = {rate: {trace: cells(trace, "--sample", rate) for trace in TRACES} for rate in RATES}
    head = "sample|cells|frames of a sample|hits, points: median, 95 %|within ±|reads, %: median, 95 %|writes, %: median, 95 %"
    rows = [row(rate, frames, full, found[rate]) for rate in RATES for frames in (1024, 4096, 16384)]
    print(markdown(head, rows, tight=True))
    rows = []
    for policy in POLICIES.split(","):
        away, within = errors(full, found["20%"], lambda key, p=policy: key[0] == p)
        rows.append([policy, spread(away["hit_ratio"], 100), f"{100 * within:.0f} %"])
    print(markdown("policy|hits at 20 %, points: median, 95 %|within ±", rows, tight=True), end="")
    if "--long" in sys.argv:
        long()


def errors(full, sampled, wanted):
    """Returns the errors of figures, and the share of hit ratios within their interval."""
    away = {"hit_ratio": [], "device_reads": [], "device_writes": []}
    within = []
    for trace, estimates in sampled.items():
        for key, estimate in estimates.items():
            if not wanted(key):
                continue
            true = full[trace][key]
            ratio = true["hits"] / true["accesses"]
            away["hit_ratio"].append(abs(estimate["hit_ratio"] - ratio))
            within.append(away["hit_ratio"][-1] <= estimate["hit_ratio_error"])
            for figure in ("device_reads", "device_writes"):
                if true[figure] > 1000:
                    away[figure].append(abs(estimate[figure] / true[figure] - 1))
    return away, statistics.mean(within) if within else 0


def spread(values, scale):
    if not values:
        return "-"
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{scale * statistics.median(ordered):.2f}, {scale * high:.2f}"


def row(rate, frames, full, sampled):
    away, within = errors(full, sampled, lambda key: key[1] == frames)
    own = round(frames * float(rate.rstrip("%")) / 100)
    return [rate, len(away["hit_ratio"]), own, spread(away["hit_ratio"], 100), f"{100 * within:.0f} %",
            spread(away["device_reads"], 100), spread(away["device_writes"], 100)]


def long(requests=10**9):
    """Sends a Zipf trace of 10^9 requests through a pipe, and prints time and memory."""
    import numpy as np

    words = [FLASHSIFT, "compare", "-", "--format", "oracle-general", "--policy", "lru,arc,s3fifo",
             "--memory", "1GiB,4GiB", "--writeback", "evict", "--trace-memory", "1GiB", "--json",
             "-q"]
    for sample in ([], ["--sample", "0.1%"]):
        began = time.monotonic()
        process = subprocess.Popen(
            [*words, *sample], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        rng = np.random.default_rng(1)
        record = np.dtype([("at", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
        rows = np.zeros(1 << 20, record)
        rows["size"], rows["next"] = 4096, -1
        sent = 0
        try:
            while sent < requests:
                count = min(len(rows), requests - sent)
                # About Zipf(1) over 2^24 objects: the logarithm of the rank is uniform.
                rows["id"] = np.exp(rng.random(len(rows)) * np.log(1 << 24)).astype("<u8")
                rows["at"] = np.arange(sent, sent + len(rows)) // 100_000
                process.stdin.write(rows[:count].tobytes())
                sent += count
            process.stdin.close()
        except BrokenPipeError:
            pass
        process.stdin = None
        out, messages = process.communicate()
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        shown = " ".join(sample) or "no sample"
        print(f"\n10^9 requests, {shown}: status {process.returncode}, {sent} sent, "
              f"{time.monotonic() - began:.0f} s, largest child so far {peak} MiB")
        print(messages.decode().strip())
        for line in out.splitlines():
            cell = json.loads(line)
            keys = ("policy", "memory_bytes", "accesses", "hit_ratio", "hit_ratio_error")
            print({key: cell[key] for key in keys})


if __name__ == "__main__":
    main()
