#!/usr/bin/env bash
# Compares --sample with full runs on every recording of testdata/ and testdata/days/, or on the
# traces given, and prints the tables of RESULTS.md. FLASHSIFT: the program to run. With --long, it
# also sends 10^9 requests through a pipe, which takes minutes.
set -eu
cd "$(dirname "$0")/../.."
exec python3 experiments/sampling/errors.py "$@"
