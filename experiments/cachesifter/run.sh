#!/usr/bin/env bash
# Compares all sifters on the recordings of testdata/ and prints the tables of RESULTS.md: bytes
# kept from flash against bytes fetched again. Writes every cell to cells.csv. Then it prints the
# paper's tables and figures beside those of the recordings, and draws them into figures/.
#
#   run.sh [--only TRACE…]
#
# It needs cargo and Python 3.11 or later. $FLASHSIFT names a program instead of the build. Trees
# for `lrb` and the paper's tables need `flashsift train` (docs/train.md), the latter also pyarrow;
# they are left out where that does not work.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
program=$(flashsift)
python=${FLASHSIFT_PYTHON:-python3}
out=target/experiments/cachesifter
mkdir -p "$out"

# Traces of the split `train`, as their cards say.
train=()
for card in testdata/days/*.json; do
  ! grep -q '"split": "train"' "$card" || train+=("${card%.json}.parquet")
done
lrb=()
if "$program" train "${train[@]}" --labels reuse --ram-mb 16 --only-cache --model gbdt -q \
  -o "$out/reuse.txt" >&2; then
  lrb=(--model "$out/reuse.txt")
else
  echo "SKIPPED lrb with a model: flashsift train does not work here" >&2
fi
python3 experiments/cachesifter/frontier.py --flashsift "$program" "${lrb[@]}" "$@"
if [ $# -eq 0 ]; then
  if "$python" -c 'import flashsift.train, pyarrow' 2> /dev/null; then
    "$python" experiments/cachesifter/paper.py --flashsift "$program" --out "$out"
  else
    echo "SKIPPED the paper's tables: $python has no flashsift.train or no pyarrow" >&2
  fi
fi
