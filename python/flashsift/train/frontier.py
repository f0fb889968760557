"""A model end to end: `flashsift compare --sift` with it, at several thresholds.

Precision and recall count files. The frontier counts bytes: what a sifter with the model keeps from
flash, and what applications fetch again because it was dropped.
"""

import json
import subprocess


def run(program, traces, model, thresholds):
    """Returns a point for each threshold, with the bytes of all traces added up."""
    points = []
    for threshold in thresholds:
        sift = f"cachesifter:model={model},threshold={threshold},checkstop=off"
        point = {"threshold": threshold, "kept_from_flash_bytes": 0, "fetched_again_bytes": 0}
        for trace in traces:
            result = subprocess.run(
                [program, "compare", trace, "--sift", sift, "--json"],
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode:
                raise ValueError(f"`{program} compare --sift {sift}` failed: {result.stderr.strip()}")
            kept, fetched = amounts(result.stdout)
            point["kept_from_flash_bytes"] += kept
            point["fetched_again_bytes"] += fetched
        points.append(point)
    return points


def amounts(lines):
    """Returns (bytes kept from flash, bytes fetched again) of the lines of `compare --json`."""
    cells = [json.loads(line) for line in lines.splitlines()]
    [cell] = [cell for cell in cells if cell["sifter"].startswith("cachesifter")]
    return cell["stock_bytes"] - cell["flash_bytes"], cell["fetched_again_bytes"]
