#!/usr/bin/env bash
# SpatialClock (SIGMETRICS '12) over our traces: counts into cells.csv, tables into RESULTS.md, pictures beside it.
#
#   run.sh [--check] [--without-for] [TRACES_DIR…]
#
# It takes every before-cache trace that stands in testdata/, in TRACES_DIR… and in $FLASHSIFT_TRACES (a folder, or
# several joined by `:`). Needs cargo and Python 3.11 or later, nothing else.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --release --locked --quiet -p flashsift
exec python3 -B experiments/spatialclock/report.py \
  --flashsift "${CARGO_TARGET_DIR:-target}/release/flashsift" --own testdata "$@"
