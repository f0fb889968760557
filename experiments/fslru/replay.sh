#!/usr/bin/env bash
# Performs the output of LRU, NVLRU and FSLRU on a loop device, with their accesses to memory
# delayed to the latencies of `pcm-board`. Writes replays.csv; run.sh then renews RESULTS.md.
#
#   sudo replay.sh [ROUNDS]   # 3 rounds by default; about ten minutes on an idle machine
#
# It needs root for the loop device, cargo, and Python 3.11 or later. The device's file of 512 MiB
# is made in $TMPDIR (else /var/tmp), which must be on a file system that takes O_DIRECT, and is
# removed at the end. $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/fslru/replay.py "$program" "${1:-3}"
