#!/usr/bin/env bash
# Measures how long Chromium's pages load on a mount, beside two ext4s, and writes RESULTS.md.
#
#   sudo run.sh [--load NAME] [ROUNDS [MOUNT-OPTION…]]   # four minutes a round (9)
#
# It needs root, e2fsprogs, Python 3.11, Chromium and tracefs, and a machine that does nothing else:
# the second ext4 shows how far equal runs differ. With options of `flashsift mount` it prints the
# page only. $FLASHSIFT names a program instead of the build. Ctrl-C ends all that it started.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
trap : INT # Python handles it, and this shell ends after it.
exec python3 experiments/page-loads/measure.py --flashsift "$program" "$@"
