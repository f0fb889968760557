#!/usr/bin/env bash
# Trains every model on the recorded traces, by label and split, and prints the tables of
# RESULTS.md. The perceptron has the paper's momentum and 12 epochs. `flashsift train` has to work
# (docs/train.md). FLASHSIFT: the program to run.
set -eu
cd "$(dirname "$0")/../.."
flashsift=${FLASHSIFT:-flashsift}
out=${1:-target/experiments/train}
mkdir -p "$out"
traces=(testdata/*.parquet testdata/days/*.parquet)

table() { # TITLE OPTION…
  local title=$1
  shift
  printf '\n### %s\n\n```\n$ flashsift train testdata/*.parquet testdata/days/*.parquet %s\n' \
    "$title" "--model all --epochs 12 --momentum 0.5 $*"
  # Not a quoted word: FLASHSIFT may be a command with arguments.
  $flashsift train "${traces[@]}" --model all \
    --epochs 12 --momentum 0.5 "$@" -q -o "$out/${title// /-}"
  printf '```\n'
}

table "paper random" --split random
table "paper application" --split application
table "paper application, caches only" --split application --only-cache
table "paper time" --split time
table "reuse application" --labels reuse --split application
table "reuse random" --labels reuse --split random
table "phase 2 random" --phase 2 --split random
table "phase 2 application" --phase 2 --split application
