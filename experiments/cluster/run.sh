#!/usr/bin/env bash
# Runs every fast online policy with and without clustered write-back on the traces of testdata/ and
# on three devices. Writes cells to cells.csv and tables to RESULTS.md.
#
#   run.sh [--check]
#
# It needs only cargo and Python 3.11 or later.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --release --locked --quiet -p flashsift
exec python3 -B experiments/cluster/report.py \
  --flashsift "${CARGO_TARGET_DIR:-target}/release/flashsift" --traces testdata "$@"
