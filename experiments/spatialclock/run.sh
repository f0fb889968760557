#!/usr/bin/env bash
# Repeats the experiments of SpatialClock (SIGMETRICS '12) on traces. Writes counts to cells.csv,
# tables to RESULTS.md, and figures.
#
#   run.sh [--check] [--without-for] [TRACES_DIR…]
#
# It uses every before-cache trace in testdata/, in TRACES_DIR… and in $FLASHSIFT_TRACES (a folder,
# or several joined by `:`). It needs only cargo and Python 3.11 or later.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --release --locked --quiet -p flashsift
exec python3 -B experiments/spatialclock/report.py \
  --flashsift "${CARGO_TARGET_DIR:-target}/release/flashsift" --own testdata "$@"
