#!/usr/bin/env bash
# Compares all sifters on the recordings of testdata/ and prints the tables of RESULTS.md: bytes
# kept from flash against bytes fetched again. Writes every cell to cells.csv.
#
#   run.sh [--only TRACE…]
#
# It needs only cargo and Python 3.11 or later. $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${FLASHSIFT:-}
if [ -z "$program" ]; then
  cargo build --release --locked --quiet -p flashsift
  program=${CARGO_TARGET_DIR:-target}/release/flashsift
fi
exec python3 -B experiments/cachesifter/frontier.py --flashsift "$program" "$@"
