#!/usr/bin/env bash
# Deletes cache files of real Chromium and Firefox, kind by kind, and writes RESULTS.md.
#
#   run.sh                       # about an hour and a half on two processors
#   run.sh --seeds 1 --only ScriptCache      # options of measure.py; writes no RESULTS.md
#   run.sh report                # RESULTS.md alone, from trials.jsonl.xz
#
# It needs chromium, firefox-esr and python3, no root and no network: the pages come from
# 127.0.0.1. A run that was stopped goes on: trials that are in $OUT are not repeated.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../common/start.sh"
here=$PWD/experiments/cachesifter/harmless
out=${OUT:-target/experiments/harmless}
if [ "${1:-}" = report ]; then exec python3 "$here/report.py" "$here/trials.jsonl.xz"; fi
mkdir -p "$out"
measure() { python3 "$here/measure.py" "$out/$1.jsonl" --browser "$@"; }
measure chromium "$@" &
chromium=$!
trap 'kill "$chromium" 2> /dev/null || true' EXIT
measure firefox "$@"
wait "$chromium"
trap - EXIT
if (( $# > 0 )); then
  exec python3 "$here/report.py" --print "$out/chromium.jsonl" "$out/firefox.jsonl"
fi
python3 "$here/browsers.py" > "$here/machine.json"
cat "$out/chromium.jsonl" "$out/firefox.jsonl" | xz -9 > "$here/trials.jsonl.xz"
exec python3 "$here/report.py" "$here/trials.jsonl.xz"
