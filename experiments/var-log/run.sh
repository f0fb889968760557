#!/usr/bin/env bash
# Measures what /var/log of a machine writes to its device from boot to shutdown, on ext4 and on a
# mount from boot on, and writes RESULTS.md.
#
#   sudo run.sh [--minutes 60] [MOUNT-OPTION…]
#
# It needs root, e2fsprogs, systemd-nspawn, Python 3.11 and Debian's packages of rsyslog, nginx and
# logrotate, which it fetches. With other minutes, or options of `flashsift mount`, it prints the
# page only. A `sync` of another program counts for both machines: leave this one alone meanwhile.
# $FLASHSIFT names a program instead of the build. Ctrl-C ends all that it started.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
checks/remedies --fetch rsyslog nginx
trap : INT # Python handles it, and this shell ends after it.
exec python3 experiments/var-log/measure.py --flashsift "$program" "$@"
