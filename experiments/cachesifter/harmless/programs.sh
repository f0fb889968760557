#!/usr/bin/env bash
# Deletes cache files of pip, npm, Cargo, Go, ccache, Mesa, tumbler, fontconfig and apt, runs them
# again, prints a table and writes it into RESULTS.md.
#
#   programs.sh                  # half an hour on two processors
#   programs.sh pip npm          # these alone; the other records stay
#
# It needs python3 with venv and the programs; one that is not installed is reported and left out.
# Packages come from 127.0.0.1. Only pip-new and yarn are fetched, as the user's own pip and npm do
# it. No root is needed, except for apt on some systems.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../common/start.sh"
exec python3 experiments/cachesifter/harmless/programs.py "$@"
