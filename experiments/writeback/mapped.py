"""Hold stores through mappings against the block layer, on several file systems.

Prints a table: pages of file data that the device got, beside those that `flashsift compare
--writeback linux --drain` predicts from a recording of the same run. With --write, puts it into
RESULTS.md.
"""

import argparse
import ctypes
import mmap
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from apps import testbed
from apps.testbed import call
from common.pages import apart, fill, markdown
from common.program import records
from measure import PAGES, Requests

HERE = Path(__file__).resolve().parent
IMAGE_BYTES = 2 << 30
# The kind of each file system, and options of mkfs. ext4 has no large folios beside encryption.
KINDS = {
    "ext4": ("ext4", "-E", "lazy_itable_init=0"),
    "ext4 without large folios": ("ext4", "-E", "lazy_itable_init=0", "-O", "encrypt"),
    "XFS": ("xfs",),
    "btrfs": ("btrfs",),
}
SIZE, STORES, APART = 4 << 20, 20, 200_000


def stores(path: Path, chunk_bytes: int) -> None:
    """Store into a mapped file that is made by writes of so many bytes; 0: that is there."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(0, SIZE if chunk_bytes else 0, chunk_bytes or 1):
        os.write(file, b"x" * chunk_bytes)
    os.fsync(file)
    mapped = mmap.mmap(file, SIZE)
    for n in range(STORES):
        mapped[n * APART] = n
        os.fsync(file)


def lmdb(path: Path, transactions: int) -> None:
    """Commit transactions of ten small values each into an LMDB that writes through its map."""
    library = ctypes.CDLL("liblmdb.so.0")
    MDB_WRITEMAP = 0x80000

    class Value(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p)]

    def done(status: int) -> None:
        if status:
            raise OSError(f"LMDB: error {status}")

    path.mkdir(exist_ok=True)
    env, db = ctypes.c_void_p(), ctypes.c_uint()
    done(library.mdb_env_create(ctypes.byref(env)))
    done(library.mdb_env_set_mapsize(env, ctypes.c_size_t(64 << 20)))
    done(library.mdb_env_open(env, bytes(path), MDB_WRITEMAP, 0o644))
    for n in range(transactions):
        txn = ctypes.c_void_p()
        done(library.mdb_txn_begin(env, None, 0, ctypes.byref(txn)))
        done(library.mdb_dbi_open(txn, None, 0, ctypes.byref(db)))
        for m in range(10):
            key = f"{(n * 7919 + m * 104729) % 100_000:08}".encode()
            value = bytes([65 + n % 26]) * 200
            pair = Value(len(key), key), Value(len(value), value)
            done(library.mdb_put(txn, db, *map(ctypes.byref, pair), 0))
        done(library.mdb_txn_commit(txn))
    library.mdb_env_close(env)


# journald with a place of its own for sockets and files, in a mount namespace of its own.
JOURNALD = """
mount -t tmpfs run /run
mkdir -p /run/systemd/journal /run/log/journal
mount --bind "$0" /run/log/journal
echo 0123456789abcdef0123456789abcdef >/run/machine-id
mount --bind /run/machine-id /etc/machine-id
mkdir -p /run/log/journal/0123456789abcdef0123456789abcdef
/lib/systemd/systemd-journald & journald=$!
until [ -S /run/systemd/journal/dev-log ]; do sleep 0.1; done
for n in $(seq $1); do echo "entry $n of a service $((n % 7))"; done |
  logger --socket /run/systemd/journal/dev-log --tag service
sleep 1
kill $journald
wait $journald
"""


def journal(path: Path, entries: int) -> None:
    """Have journald write entries."""
    path.mkdir(exist_ok=True)
    unshare = ["unshare", "--mount", "--propagation", "private", "bash", "-ec", JOURNALD]
    subprocess.run([*unshare, path, str(entries)], check=True)


RUNS = {
    "stores, file made in one go": ("stores", SIZE),
    "stores, by 64 KiB": ("stores", 64 << 10),
    "stores, by 4 KiB": ("stores", 4096),
    "stores, file there before": ("stores", 0),
    "LMDB, 200 transactions": ("lmdb", 200),
    "journald, 5,000 entries": ("journal", 5000),
}


def measured(program: Path, scratch: Path, kind: str, what: str, size: int) -> tuple[int, int]:
    """Return the pages of file data that the device got, and those that are predicted."""
    made, *options = KINDS[kind]
    trace = scratch / "trace.parquet"
    with testbed.file_system(scratch / "image", IMAGE_BYTES, scratch / "mounted", made, make=options) as volume:
        file = volume.point / "file"
        if size == 0:
            file.write_bytes(b"x" * SIZE)
        volume.sync()
        requests = Requests(volume.device, f"{os.getpid()}")
        try:
            run = [sys.executable, __file__, "--run", what, file, size]
            call(program, "record", "-o", trace, "--path", volume.point, "--", *run)
            volume.sync()
        finally:
            lost = requests.end()
        if lost or requests.not_understood:
            raise RuntimeError(f"lost {lost}, not understood {requests.not_understood}")
    got = sum(sectors for (_, of), sectors in requests.counts.items() if of in PAGES[:3])
    compare = ["compare", trace, "--policy", "lru", "--memory", "2GiB", "--writeback", "linux", "--drain", "--json"]
    return round(got / 8), records(program, *compare)[0]["device_writes"]


def table(program: Path, kinds: list[str]) -> str:
    rows = []
    for kind in kinds:
        for name, (what, size) in RUNS.items():
            with tempfile.TemporaryDirectory(prefix="flashsift-mapped-", dir="/var/tmp") as scratch:
                got, predicted = measured(program, Path(scratch), kind, what, size)
            rows.append([kind, name, f"{got:,}", f"{predicted:,}", apart(predicted, got)])
            print(*rows[-1], sep="\t", file=sys.stderr)
    return markdown("file system|workload|data pages at the device|predicted|", rows, text=(0, 1)).rstrip().replace("|  |", "| |", 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="mapped.py", description=__doc__)
    parser.add_argument("--flashsift", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=f"of {', '.join(KINDS)}")
    args = parser.parse_args()
    if args.run:
        what, path, size = args.run
        return {"stores": stores, "lmdb": lmdb, "journal": journal}[what](Path(path), int(size))
    testbed.begin()
    text = table(args.flashsift.resolve(), args.kinds)
    if not args.write:
        return print(text)
    results = HERE / "RESULTS.md"
    kernel = "Linux " + os.uname().release.partition("-")[0]
    text = f"{kernel}, {time.strftime('%Y-%m-%d', time.gmtime())}:\n\n{text}\n"
    results.write_text(fill(results.read_text(), {"mapped": lambda: text}, partly=True))


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        sys.exit(f"mapped.py: {error}")
