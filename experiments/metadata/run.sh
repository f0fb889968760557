#!/usr/bin/env bash
# Records workloads on fresh file systems, and prints what flashsift models beside what the block
# layer counted from mounting to unmounting, as the tables of RESULTS.md. Needs root.
#
#   run.sh [NAME…]     of workloads/record-all; default: all that RESULTS.md has
#
# FILE_SYSTEM is ext4 (the default), or xfs or btrfs, whose metadata have no model and are counted
# only. MINUTES_SCALE times the usual minutes (default 0.1); $FLASHSIFT names a program instead of
# the build; SQL is the folder of the databases' statements, without which they are left out; OUT
# keeps the recordings.
set -eu -o pipefail
OUT=${OUT:+$(realpath -m "$OUT")} SQL=${SQL:+$(realpath -m "$SQL")}
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
flashsift=$(flashsift)
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  names=(browser browser-days-1 firefox-days-1 desktop-1 feed game launch-1 map messenger offline-1
    photos-1 video)
  if [ -n "${SQL:-}" ]; then
    names+=({facebook,calendar}-{delete,wal,truncate})
  fi
fi
out=${OUT:-$(mktemp --directory --tmpdir=/var/tmp flashsift-metadata-XXXXXX)}
if [ -z "${OUT:-}" ]; then trap 'rm -r "$out"' EXIT; fi
mkdir -p "$out/raw" "$out/cards"
for name in "${names[@]}"; do
  # Recordings that are there already are compared again.
  if [ ! -e "$out/raw/$name.raw.parquet" ]; then
    workloads/record-all --flashsift "$flashsift" --only "$name" --raw "$out/raw" \
      --file-system "${FILE_SYSTEM:-ext4}" --out "$out/cards" --minutes-scale "${MINUTES_SCALE:-0.1}" ${SQL:+--sql "$SQL"} >&2
  fi
done
experiments/metadata/table "$flashsift" "$out" "${FILE_SYSTEM:-ext4}" "${names[@]}"
