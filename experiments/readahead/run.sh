#!/usr/bin/env bash
# Evaluates read-aheads as "Boosting Read-ahead Efficiency" does: its Figures 3 to 5 and Tables 1
# and 3 on our traces. Writes traces.csv, sizes.csv, cells.csv.xz, times.csv, figures, and the
# tables and sentences of RESULTS.md.
#
#   run.sh [TRACES_DIR…]   # runs what is missing: the cells of new and of changed traces
#   run.sh --again         # runs everything, as after a change of the simulator
#   run.sh --check         # writes nothing; runs some cells again, and fails if a result is stale
#
# It uses the traces of testdata/, testdata/f2fs and testdata/days, which `workloads/record-all` and
# `workloads/f2fs-record --all` record, and the trace `facebook` where TRACES_DIR… or
# $FLASHSIFT_TRACES (a folder, or several joined by `:`) has it; else its cells are those of an
# earlier run. It needs only cargo and Python 3.11 or later. $FLASHSIFT names a program instead of
# the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/readahead/report.py --flashsift "$program" --own testdata "$@"
