#!/usr/bin/env bash
# Runs real programs on ext4, tmpfs and the mount with several sifters, and writes RESULTS.md.
#
#   sudo run.sh                  # about 30 minutes on two processors
#   sudo run.sh paced [ROUNDS]   # 12 minutes a round (1): a browser at the pace of a person, all
#                                # arms at the same time; adds them to RESULTS.md
#   sudo run.sh --quick          # three minutes: one round, shorter; writes no RESULTS.md
#   sudo run.sh --loads pip      # one load (see --help); writes no RESULTS.md
#   run.sh report                # RESULTS.md alone, from runs.jsonl, paced.jsonl, simulated.jsonl
#
# It needs root, e2fsprogs, Python 3.11, Chromium, pip and sqlite3, and Firefox for one load. Pages
# come from 127.0.0.1. $FLASHSIFT names a program instead of the build. Ctrl-C ends the programs,
# the mount and the loop device. cachesifter takes part where `flashsift train` works
# (docs/train.md): its models learn from the recorded days of other people.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
here=$PWD/experiments/cachesifter-live
if [ "${1:-}" = report ]; then exec python3 "$here/report.py" "$here"; fi
program=$(flashsift)
work=target/experiments/cachesifter-live
out=$work/results
mkdir -p "$out"
days=(testdata/days/browser-days-[15].parquet)
models=()
for phase in 1 2; do
  model=$work/phase$phase.safetensors
  if [ -e "$model" ] || "$program" train "${days[@]}" --only-cache --phase $phase --split time -q \
      -o "$model" > "$work/train$phase.log" 2>&1; then
    models+=("$model")
  else
    echo "cachesifter is left out: training fails, see $work/train$phase.log" >&2
  fi
done
if (( ${#models[@]} == 2 )); then models=(--models "${models[@]}"); else models=(); fi
trap : INT # Python handles it, and this shell ends after it.
if [ "${1:-}" = paced ]; then
  arms=(ext4 keep-64 keep-16 controller-16 drop-all-16 touch-16)
  if (( ${#models[@]} )); then arms+=(cachesifter-64 cachesifter-16); fi
  for arm in "${arms[@]}"; do
    mkdir -p "$work/paced/$arm"
    python3 "$here/measure.py" --flashsift "$program" --out "$work/paced/$arm" \
      --images "$work/images" "${models[@]}" --loads chromium-at-pace --arms "$arm" \
      --rounds "${2:-1}" &
  done
  wait
  cat "$work"/paced/*/runs.jsonl > "$here/paced.jsonl"
  exec python3 "$here/report.py" "$here"
fi
python3 "$here/measure.py" --flashsift "$program" --out "$out" \
  --images "$work/images" "${models[@]}" "$@"
if (( $# > 0 )); then exec python3 "$here/report.py" --print "$out"; fi
cp "$out"/runs.jsonl "$out"/simulated.jsonl "$out"/machine.json "$here"
exec python3 "$here/report.py" "$here"
