#!/usr/bin/env bash
# The six findings of hybrid flush's abstract over our traces: numbers into numbers.csv, verdicts and tables into RESULTS.md.
#
#   run.sh [--check] [TRACES_DIR…]
#
# It takes every before-cache trace that stands in testdata/, in TRACES_DIR… and in $FLASHSIFT_TRACES (a folder, or
# several joined by `:`). Needs cargo and Python 3.11 or later, nothing else.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --release --locked --quiet -p flashsift
exec python3 -B experiments/characterization/report.py \
  --flashsift "${CARGO_TARGET_DIR:-target}/release/flashsift" --own testdata "$@"
