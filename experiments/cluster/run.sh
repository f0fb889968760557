#!/usr/bin/env bash
# Chooses combinations of policy and clustered write-back on the train and tune recordings of
# testdata/days, and judges them on the test recordings. Writes recordings.csv, cells.csv.xz,
# front.svg and the tables and sentences of RESULTS.md.
#
#   run.sh             # runs what is missing: the cells of new and of changed recordings
#   run.sh --again     # runs everything, as after a change of the simulator
#   run.sh --check     # runs and writes nothing; fails if a result is missing or stale
#
# It needs only cargo and Python 3.11 or later. $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/cluster/report.py --flashsift "$program" --recordings testdata/days "$@"
