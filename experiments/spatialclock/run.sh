#!/usr/bin/env bash
# Repeats the experiments of SpatialClock (SIGMETRICS '12) on traces. Writes counts to cells.csv,
# tables to RESULTS.md, and figures.
#
#   run.sh [--check] [--without-for] [TRACES_DIR…] [--only TRACE…]
#
# It uses every before-cache trace in testdata/, the recording of testdata/days that is like W2, and
# those in TRACES_DIR… and in $FLASHSIFT_TRACES (a folder, or several joined by `:`). With --only it
# runs these, and takes the cells of the others from an earlier run. It needs only cargo and Python
# 3.11 or later. $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/spatialclock/report.py --flashsift "$program" --own testdata "$@"
