#!/usr/bin/env bash
# Trains every model on the recorded traces, by label and split, and prints the tables of
# RESULTS.md. The perceptron has the paper's momentum and 12 epochs. `flashsift train` has to work
# (docs/train.md). FLASHSIFT: the program to run. --force lets traces that are held apart take part:
# the models are measured on files that they have not seen, and none is kept.
set -eu
cd "$(dirname "$0")/../.."
flashsift=${FLASHSIFT:-flashsift}
out=${1:-target/experiments/train}
mkdir -p "$out"
traces=(testdata/*.parquet testdata/days/*.parquet)

table() { # TITLE OPTION…
  local title=$1
  shift
  printf '\n### %s\n\n```\n$ flashsift train testdata/*.parquet testdata/days/*.parquet --force %s\n' \
    "$title" "--model all --epochs 12 --momentum 0.5 $*"
  # Not a quoted word: FLASHSIFT may be a command with arguments.
  $flashsift train "${traces[@]}" --force --model all \
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

printf '\n### frontier\n\n```\n'
$flashsift train testdata/days/*.parquet --force --only-cache --model all -q -o "$out/frontier" \
  --frontier 0.2,0.3,0.4,0.5,0.7 --frontier-on testdata/browser.parquet --json \
  | python3 -c 'import json, sys
for name, model in json.load(sys.stdin)["models"].items():
    for point in model["frontier"]:
        print(name, *point.values())'
printf '```\n'
