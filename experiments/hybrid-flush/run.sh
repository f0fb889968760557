#!/usr/bin/env bash
# Compares Flush-storage, Flush-NVM and hybrid flush on traces, as Figures 8 and 9 of the hybrid
# flush paper do. Writes traces.csv, rewritten.csv, cells.csv.xz, figures, and the tables and
# sentences of RESULTS.md.
#
#   run.sh [TRACES_DIR…]   # runs what is missing: the cells of new and of changed traces
#   run.sh --again         # runs everything, as after a change of the simulator
#   run.sh --check         # writes nothing; runs some cells again, and fails if a result is stale
#
# It uses the traces of testdata/, the recordings of SQLite statements in testdata/days, and the
# trace `facebook` where TRACES_DIR… or $FLASHSIFT_TRACES (a folder, or several joined by `:`) has
# it; else its cells are those of an earlier run. It needs only cargo and Python 3.11 or later.
# $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/hybrid-flush/report.py --flashsift "$program" --own testdata "$@"
