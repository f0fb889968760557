#!/usr/bin/env bash
# Plays the requests of some cells on a loop device over a new file, and writes the times to
# played.csv. run.sh shows them in RESULTS.md; it does not repeat them, as they depend on the disk.
#
#   sudo play.sh [FOLDER]      # the file lies in FOLDER (default: .), for example on a card
set -eu -o pipefail
folder=$(realpath "${1:-.}")
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=${CARGO_TARGET_DIR:-target}/release/flashsift
out=experiments/spatialclock/played.csv
frames=1024 # 4 MB
rounds=5

work=$(mktemp -d "$folder/flashsift-play.XXXXXX")
device=
clean() {
  [ -z "$device" ] || losetup --detach "$device"
  rm -rf "$work"
}
trap clean EXIT
truncate --size 512M "$work/card"
device=$(losetup --find --show --direct-io=on "$work/card")

echo trace,allocation,policy,frames,round,requests,elapsed_us > "$work/played.csv"
for trace in messenger video; do
  "$program" compare "testdata/$trace.parquet" --policy lru,fab,spatialclock --frames "$frames" \
    --writeback evict --drain --layout ext4:alloc=early --merge off --discard off \
    --after-cache "$work" --quiet \
    > "$work/table"
  for round in $(seq "$rounds"); do
    for policy in lru fab spatialclock; do
      "$program" replay "$work/$trace.$policy.$frames.parquet" --target "$device" --fill yes \
        --yes-destroy-data --json --quiet |
        python3 -c 'import json, sys
done = json.load(sys.stdin)
print(*sys.argv[1:], done["requests"], round(done["elapsed_s"] * 1e6), sep=",")' \
          "$trace" early "$policy" "$frames" "$round" | tee -a "$work/played.csv"
    done
  done
done
cat "$work/played.csv" > "$out"
