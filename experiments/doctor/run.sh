#!/usr/bin/env bash
# Stages a machine with four writers, lets `flashsift doctor` examine it, applies the first remedy,
# and measures at the block device what that saves. Writes RESULTS.md.
#
#   sudo run.sh                # about eight minutes, and ten for the settings of programs
#   sudo run.sh --settings     # only these, in the page that exists
#
# It needs root, tracefs, e2fsprogs, apt, python3, Chromium, and systemd-nspawn for the settings.
# $FLASHSIFT names a program instead of the build. It works on an ext4 file system of its own on a
# loop device.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${FLASHSIFT:-}
if [ -z "$program" ] && [ "${1:-}" != --settings ]; then
  cargo build --release --locked --quiet -p flashsift
  program=${CARGO_TARGET_DIR:-target}/release/flashsift
fi
exec python3 -B experiments/doctor/measure.py --flashsift "${program:+$(realpath "$program")}" "$@"
