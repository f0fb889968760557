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
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/flashsift-replay.XXXXXX")
device=
cleanup() {
  [ -z "$device" ] || losetup --detach "$device"
  rm -rf "$folder"
}
trap cleanup EXIT
# The file is written, so that its blocks are allocated before the first replay.
dd if=/dev/zero of="$folder/backing" bs=1M count=512 oflag=direct status=none
device=$(losetup --find --show --direct-io=on "$folder/backing")
python3 experiments/fslru/replay.py "$program" "$device" "$folder" "${1:-3}"
