#!/usr/bin/env bash
# Replays recordings on file systems in memory with several settings (`flashsift prove`), and prints
# what each writes beside what `flashsift compare` predicts. Writes the tables into RESULTS.md.
#
#   run.sh                         # from the measurement that is stored here
#   sudo run.sh --measure [NAME…]  # replays first: messenger, game, feed, each as long as it is
#   sudo run.sh --expire [NAME…]   # the same with vm.dirty_expire_centisecs at 300 s beside
#   sudo run.sh --witness [MINUTES]  # records anew, and compares the device with its replay
#   sudo run.sh --record [MINUTES]   # records the workloads of `small` anew
#   sudo run.sh --cuts [N]           # cuts the power of each setting N times (60)
#
# The measurement needs root, e2fsprogs, xfsprogs and btrfs-progs. $FLASHSIFT names a program
# instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
words=(python3 experiments/writeback-settings/settings.py --flashsift "$program" "$@")
if [ "${1:-}" = --witness ] || [ "${1:-}" = --record ]; then
  # A mount that another namespace copied would not end.
  exec unshare --mount --propagation private "${words[@]}"
fi
exec "${words[@]}"
