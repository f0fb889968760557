#!/usr/bin/env bash
# Compares the pages that a kernel wrote back, and its flushes, with those that `flashsift compare
# --writeback linux` predicts from a recording of the same run. Writes tables to RESULTS.md, and
# pages.svg.
#
#   run.sh [--check]                     # from the measurement that is stored here
#   sudo run.sh --measure [MINUTES]      # measures anew before (5 minutes of think time)
#   sudo run.sh --mapped                 # measures stores through mappings, on four file systems
#
# The measurement needs root, tracefs, e2fsprogs, and the programs that the workloads drive. The
# rest needs only cargo and Python 3.11 or later. $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${FLASHSIFT:-}
if [ -z "$program" ]; then
  cargo build --release --locked --quiet -p flashsift
  program=${CARGO_TARGET_DIR:-target}/release/flashsift
fi
program=$(realpath "$program")
if [ "${1:-}" = --mapped ]; then
  exec python3 -B experiments/writeback/mapped.py --flashsift "$program" --write
fi
if [ "${1:-}" = --measure ]; then
  python3 -B experiments/writeback/measure.py --flashsift "$program" --minutes "${2:-5}"
  set --
fi
exec python3 -B experiments/writeback/report.py --flashsift "$program" "$@"
