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
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
if [ "${1:-}" = --mapped ]; then
  exec python3 experiments/writeback/mapped.py --flashsift "$program" --write
fi
if [ "${1:-}" = --measure ]; then
  python3 experiments/writeback/measure.py --flashsift "$program" --minutes "${2:-5}"
  set --
fi
exec python3 experiments/writeback/report.py --flashsift "$program" "$@"
