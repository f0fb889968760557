#!/usr/bin/env bash
# Stages services in a container, and Chromium, apt and others on an ext4 of their own. Lets
# `flashsift doctor` examine them, applies remedies, and measures at the block device what those
# save. Writes RESULTS.md.
#
#   sudo run.sh                     # about half an hour
#   sudo run.sh --only services     # one part: services, programs, settings
#
# It needs root, tracefs, e2fsprogs, apt, python3, Chromium and systemd-nspawn. $FLASHSIFT names a
# program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
exec python3 experiments/doctor/measure.py --flashsift "$program" "$@"
