#!/usr/bin/env bash
# Measures `flashsift tune readahead` on this machine, and writes RESULTS.md from the results.
#
#   sudo run.sh                # all parts: about an hour
#   sudo run.sh cost           # the time that --live takes beside 20,000 reads a second: cost.csv
#   sudo run.sh clock          # how long programs take at each maximum, and proposals: clock.csv
#   sudo run.sh clock --tune --only chromium   # what `tune readahead --clock` finds: tuned.json
#   sudo run.sh kinds          # what --live does on each file system: kinds.json
#   sudo run.sh ends           # what signals leave: ends.json
#   run.sh report              # RESULTS.md alone
#
# PART --help lists options. It needs root, tracefs, Linux 6.12, a C compiler, fio, e2fsprogs,
# xfsprogs, btrfs-progs, Chromium, git and pip; guests need qemu and the kernels of `make setup`.
# $FLASHSIFT names a program instead of the build. Each file system is on a loop device of its own.
set -eu -o pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../common/start.sh"
part=${1:-all}
(( $# == 0 )) || shift
[ "$part" = report ] || program=$(flashsift)
parts=("$part")
if [ "$part" = all ]; then parts=(cost clock kinds ends); fi
for part in "${parts[@]}"; do
  [ "$part" = report ] ||
    python3 "experiments/readahead/live/$part.py" --flashsift "$program" "$@"
done
[[ "$part" = report || " $* " = *" --tune "* ]] || printf '{"kernel": "%s", "cpus": %s, "date": "%s"}\n' \
  "$(uname -r | sed 's/-.*//')" "$(nproc)" "$(date -I)" > experiments/readahead/live/machine.json
exec python3 experiments/readahead/live/report.py
