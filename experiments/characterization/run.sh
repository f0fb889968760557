#!/usr/bin/env bash
# Checks the six findings of hybrid flush's abstract on traces. Writes numbers to numbers.csv,
# verdicts and tables to RESULTS.md.
#
#   run.sh [--check] [TRACES_DIR…]
#
# It uses every before-cache trace in testdata/, in TRACES_DIR… and in $FLASHSIFT_TRACES (a folder,
# or several joined by `:`). It needs only cargo and Python 3.11 or later.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/characterization/report.py --flashsift "$program" --own testdata "$@"
