#!/usr/bin/env bash
# Compares the pages that Linux's page cache reads in a control group with those that `flashsift
# compare` predicts from a recording of the same run: MGLRU beside `mglru`, and the classic LRU
# beside `linux2q`. Prints the table of RESULTS.md.
#
#   run.sh [PATTERN…]      of accesses.py: zipf, scans, shifts, loops (all)
#
# The kernel is Debian's, in the guest of the tests (crates/cli/tests/guest), which `make test`
# unpacks. Needs qemu and e2fsprogs. $FLASHSIFT names a program instead of the build; SEED the
# accesses (1); OUT keeps the recordings.
set -eu -o pipefail
OUT=${OUT:+$(realpath -m "$OUT")}
. "$(dirname "${BASH_SOURCE[0]}")/../common/start.sh"
root=$PWD here=$PWD/experiments/mglru
flashsift=$(flashsift)
guest=$root/target/guest/mount
patterns=("$@")
(( ${#patterns[@]} )) || patterns=(zipf scans shifts loops)
out=${OUT:-$(mktemp -d /tmp/flashsift-mglru.XXXXXX)}
[[ ${OUT:-} ]] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
limit=$(( 16 << 20 )) file_mib=64
cat > "$out/command" << END
set -eu
mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
dd if=/dev/zero of=file bs=1M count=$file_mib conv=fsync status=none
for lru in y n; do
  echo \$lru > /sys/kernel/mm/lru_gen/enabled
  for pattern in ${patterns[*]}; do
    $flashsift record -o /out/\$pattern-\$lru.parquet -- python3 -BIS $here/accesses.py \\
      /flash/file \$pattern /sys/fs/cgroup/\$pattern-\$lru $limit ${SEED:-1} > /out/\$pattern-\$lru.json 2> /out/says \\
      || { cat /out/says; exit 1; }
  done
done
END
FLASHSIFT_GUEST_SECONDS=${FLASHSIFT_GUEST_SECONDS:-1500} "$root/crates/cli/tests/guest/boot" "$guest" ext4 "$out" >&2
[[ $(cat "$out/status") == 0 ]]
exec python3 "$here/table.py" "$flashsift" "$out" "${patterns[@]}"
