#!/usr/bin/env bash
# Compares sample periods of W-TinyLFU over all recordings of testdata, at five sizes each, and on
# Zipf's law. Prints the tables of RESULTS.md.
#
#   run.sh [SAMPLE…]     accesses per frame (2 5 10 16 32 64)
#
# $FLASHSIFT names a program instead of the build.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
samples=("$@")
(( ${#samples[@]} )) || samples=(2 5 10 16 32 64)
program=$(flashsift)
zipf=$(mktemp /tmp/flashsift-zipf.XXXXXX)
trap 'rm "$zipf"' EXIT
"$program" synth zipf --requests 20000000 --pages 1000000 --alpha 1.0 --seed 1 --as oracle-general \
  -o "$zipf" 2> /dev/null
python3 experiments/wtinylfu/table.py "$program" "$zipf" "${samples[@]}"
