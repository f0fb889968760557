#!/usr/bin/env bash
# Plays the requests of some cells on a loop device over a new file, and writes the times to
# played.csv. run.sh shows them in RESULTS.md; it does not repeat them, as they depend on the disk.
#
#   sudo play.sh [FOLDER]      # the file lies in FOLDER (default: .), for example on a card
#
# $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
folder=$(realpath "${1:-.}")
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/spatialclock/play.py "$program" "$folder"
