#!/usr/bin/env bash
# Prints the pages that reach flash with and without the sifter `keep`, for every recording of
# testdata/, as the table of RESULTS.md. It needs only cargo.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
cargo test --quiet --locked -p flashsift-traces --test integration -- --exact --nocapture \
  sift::no_budget_writes_more_than_stock | grep '^|'
