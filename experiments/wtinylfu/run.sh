#!/usr/bin/env bash
# Compares sample periods of W-TinyLFU over all recordings of testdata, at five sizes each, and on
# Zipf's law. Prints the tables of RESULTS.md.
#
#   run.sh [SAMPLE…]     accesses per frame (2 5 10 16 32 64)
#
# FLASHSIFT names the program (default target/release/flashsift).
set -eu -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
samples=("$@")
(( ${#samples[@]} )) || samples=(2 5 10 16 32 64)
cd "$here/../.."
zipf=$(mktemp /tmp/flashsift-zipf.XXXXXX)
trap 'rm "$zipf"' EXIT
flashsift=${FLASHSIFT:-target/release/flashsift}
"$flashsift" synth zipf --requests 20000000 --pages 1000000 --alpha 1.0 --seed 1 --as oracle-general \
  -o "$zipf" 2> /dev/null
python3 -B "$here/table.py" "$flashsift" "$zipf" "${samples[@]}"
