#!/usr/bin/env bash
# Measures how long a program's operations take while another one keeps slow flash busy, on a mount
# and on ext4, and writes RESULTS.md.
#
#   sudo run.sh [--seconds 30] [MOUNT-OPTION…]   # a minute and a half
#
# It needs root, e2fsprogs, Python 3.11 and the blkio controller of cgroup v1, which makes the
# devices slow. With options of `flashsift mount` it prints the page only. $FLASHSIFT names a
# program instead of the build. Ctrl-C ends all that it started.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
trap : INT # Python handles it, and this shell ends after it.
exec python3 experiments/slow-flash/measure.py --flashsift "$program" "$@"
