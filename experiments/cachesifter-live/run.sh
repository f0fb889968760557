#!/usr/bin/env bash
# Runs real programs on ext4, tmpfs and the mount with several sifters, and writes RESULTS.md.
#
#   sudo run.sh                  # about 45 minutes on two processors
#   sudo run.sh paced [ROUNDS [FIRST]] # 30 minutes a round (1): a browser at the pace of a person,
#                                # all arms at the same time; adds them to RESULTS.md. From the
#                                # round FIRST (0) on: those before it stay
#   sudo run.sh warm [ROUNDS [FIRST]] # 20 minutes a round: the same with the profile of two days
#   run.sh mounted               # five minutes: simulations of mounts with and without a sifter,
#                                # and with and without a ceiling on bytes fetched again
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
for at_which in paced=chromium-at-pace warm=chromium-warm; do
  if [ "${1:-}" = "${at_which%=*}" ]; then
    at_pace "$1" "${at_which#*=}" "${2:-1}" "${3:-0}" ext4 keep-16 controller-16 touch-16 drop-all-16
    exec python3 "$here/report.py" "$here"
  fi
done
if [ "${1:-}" = mounted ]; then
  python3 "$here/mounted.py" "$program" > "$here/mounted.jsonl"
  python3 "$here/mounted.py" "$program" --warm > "$here/warm-simulated.jsonl"
  python3 "$here/ceiling.py" "$program" > "$here/ceiling.jsonl"
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
python3 "$here/measure.py" --flashsift "$program" --out "$out" \
  --images "$work/images" "${models[@]}" "$@"
if (( $# > 0 )); then exec python3 "$here/report.py" --print "$out"; fi
cp "$out"/runs.jsonl "$out"/simulated.jsonl "$out"/machine.json "$here"
exec python3 "$here/report.py" "$here"
