#!/usr/bin/env bash
# Compares --sample with full runs on every recording of testdata/ and testdata/days/, or on the
# traces given, and prints the tables of RESULTS.md. $FLASHSIFT names a program instead of the
# build. With --long, it also sends 10^9 requests through a pipe, which takes minutes.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
FLASHSIFT=$(flashsift)
export FLASHSIFT
exec python3 experiments/sampling/errors.py "$@"
