#!/usr/bin/env python3
"""Measures how long the perceptron takes on 200,000 files, on one core.

It trains with the default settings, and for reference with twice as many epochs, whose best loss
in validation counts as the converged one. The recordings have fewer files, so further ones are
drawn from them again, with every feature multiplied by up to 1.1. Times are of the processor.
"""

import argparse
import dataclasses
import os
import pathlib
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np
from flashsift.train import data, perceptron

FILES = 200_000
TESTDATA = pathlib.Path(__file__).resolve().parents[2] / "testdata"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--factor", type=int, default=2, help="epochs of the reference: 2 times")
    parser.add_argument("--epochs", type=int, help="default: those of flashsift train")
    args = parser.parse_args()
    traces = sorted([*TESTDATA.glob("*.parquet"), *TESTDATA.glob("days/*.parquet")])
    # Traces held apart, too: this is the time that training takes, and no model is kept.
    rows = data.load(
        traces, phase=1, labels="paper", units=20, unit_us=1_000_000, ram_bytes=0,
        only_cache=False, with_dead=True, force=True, quiet=True,
    )
    rng = np.random.default_rng(0)
    # Validation has none of the files that training has.
    order = rng.permutation(len(rows))
    valid, train = order[: len(rows) // 10], order[len(rows) // 10 :]
    chosen = np.concatenate([train, rng.choice(train, max(0, args.files - len(train)))])
    features = rows.features[chosen]
    features[len(train) :] *= rng.uniform(1, 1.1, features[len(train) :].shape).astype(np.float32)
    given = (features, rows.positive[chosen], rows.features[valid], rows.positive[valid])
    print(f"{len(chosen)} files, {len(train)} of them recorded; validation: {len(valid)}")
    default = perceptron.Settings()
    if args.epochs:
        default = dataclasses.replace(default, epochs=args.epochs)
    results = {}
    for name, factor in [("default", 1), ("reference", args.factor)]:
        settings = dataclasses.replace(default, epochs=default.epochs * factor)
        before = time.process_time()
        _, losses = perceptron.train(*given, settings, quiet=True)
        seconds = time.process_time() - before
        results[name] = min(losses)
        print(f"{name}: {settings.epochs} epochs, {seconds:.0f} s, loss {min(losses):.6f}")
    print(f"the default's loss is {results['default'] / results['reference'] - 1:+.2%} away")


if __name__ == "__main__":
    main()
