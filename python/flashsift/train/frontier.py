"""A model end to end: `flashsift compare --sift` with it, at several thresholds.

Precision and recall count files. The frontier counts bytes: what a sifter with the model keeps from
flash, and what applications fetch again because it was dropped.
"""

import json
import subprocess


def run(program, traces, model, thresholds, memory="32MiB"):
    """Returns a point for each threshold, with the bytes of all traces added up.

    The model is one of phase 1. Half of `memory` is the sifter's, the rest the page cache's.
    """
    points = []
    for threshold in thresholds:
        sift = f"cachesifter:model={model},threshold={threshold}"
        point = {"threshold": threshold, "kept_from_flash_bytes": 0, "fetched_again_bytes": 0}
        for trace in traces:
            words = [program, "compare", str(trace), "--sift", sift, "--memory", memory, "--json"]
            result = subprocess.run(words, capture_output=True, text=True, check=False)
            if result.returncode:
                raise ValueError(f"`{' '.join(words)}` failed: {result.stderr.strip()}")
            kept, fetched = amounts(result.stdout)
            point["kept_from_flash_bytes"] += kept
            point["fetched_again_bytes"] += fetched
        points.append(point)
    return points


def amounts(lines):
    """Returns (bytes kept from flash, bytes fetched again) of the output of `compare --json`."""
    records = [json.loads(line) for line in lines.splitlines()]
    ours = [record for record in records if record["sifter"].startswith("cachesifter")]
    if len(ours) != 1:
        raise ValueError(f"`compare --json` has {len(ours)} results of cachesifter, not one")
    record = ours[0]
    return record["stock_bytes"] - record["flash_bytes"], record["fetched_again_bytes"]
