#!/usr/bin/env bash
# Runs real programs on ext4, tmpfs and the mount with several sifters, and writes RESULTS.md.
#
#   sudo run.sh                  # about 30 minutes on two processors
#   sudo run.sh paced [ROUNDS]   # 30 to 45 minutes a round (1): a browser at the pace of a person,
#                                # all arms at the same time; adds them to RESULTS.md
#   sudo run.sh ceiling          # 31 minutes: one such round, and simulations, for the ceiling on
#                                # bytes fetched again; adds them to RESULTS.md
#   sudo run.sh warm [ROUNDS [FIRST]] # 20 minutes a round (1): browsers with the profile of two
#                                # days; adds them to RESULTS.md. From the round FIRST (0) on: those
#                                # before it stay
#   run.sh mounted               # three minutes: simulations of mounts with and without a sifter
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
models=()
trap : INT # Python handles it, and this shell ends after it.
at_pace() { # at_pace NAME LOAD ROUNDS FIRST ARM…: into NAME.jsonl, behind the rounds before FIRST
  for arm in "${@:5}"; do
    mkdir -p "$work/$1/$arm"
    python3 "$here/measure.py" --flashsift "$program" --out "$work/$1/$arm" \
      --images "$work/images" "${models[@]}" --loads "$2" --arms "$arm" --rounds "$3" --first "$4" &
  done
  wait
  if (( $4 == 0 )); then : > "$here/$1.jsonl"; fi
  cat "$work/$1"/*/runs.jsonl >> "$here/$1.jsonl"
}
if [ "${1:-}" = ceiling ]; then
  at_pace paced-ceiling chromium-at-pace 1 0 ext4 keep-16 controller-16 touch-16
  python3 "$here/ceiling.py" "$program" > "$here/ceiling.jsonl"
  exec python3 "$here/report.py" "$here"
fi
if [ "${1:-}" = warm ]; then
  at_pace warm chromium-warm "${2:-1}" "${3:-0}" ext4 keep-16 controller-16 touch-16 drop-all-16
  exec python3 "$here/report.py" "$here"
fi
if [ "${1:-}" = mounted ]; then
  python3 "$here/mounted.py" "$program" > "$here/mounted.jsonl"
  python3 "$here/mounted.py" "$program" --warm > "$here/warm-simulated.jsonl"
  exec python3 "$here/report.py" "$here"
fi
days=(testdata/days/browser-days-[15].parquet)
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
if [ "${1:-}" = paced ]; then
  arms=(ext4 keep-64 keep-16 controller-16 drop-all-16 touch-16)
  if (( ${#models[@]} )); then arms+=(cachesifter-64 cachesifter-16); fi
  at_pace paced chromium-at-pace "${2:-1}" 0 "${arms[@]}"
  exec python3 "$here/report.py" "$here"
fi
python3 "$here/measure.py" --flashsift "$program" --out "$out" \
  --images "$work/images" "${models[@]}" "$@"
if (( $# > 0 )); then exec python3 "$here/report.py" --print "$out"; fi
cp "$out"/runs.jsonl "$out"/simulated.jsonl "$out"/machine.json "$here"
exec python3 "$here/report.py" "$here"
