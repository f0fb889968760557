#!/usr/bin/env bash
# Compares what Debian's kernels 6.1 and 6.12 do on ext4 and F2FS, emulated, with what `flashsift
# compare` predicts from recordings of the same runs. Writes the tables of RESULTS.md.
#
#   run.sh [--check]           # from the measurement that is stored here; fails if a table is stale
#   run.sh --measure [LOAD…]   # boots the kernels before, about ten minutes; LOAD: database,
#                              # launches, states, full (all)
#
# The measurement needs qemu, mkfs.f2fs, the kernels that `make setup` unpacks, and Debian's
# python3.11, sqlite3 and git; no privileges. The rest needs only cargo and Python 3.11 or later.
# $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
if [ "${1:-}" = --measure ]; then
  python3 experiments/kernels/measure.py --flashsift "$program" "${@:2}"
  set --
fi
exec python3 experiments/kernels/report.py --flashsift "$program" "$@"
