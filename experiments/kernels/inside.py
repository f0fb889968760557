"""Runs in a guest: applies loads to the flash card, and counts what its kernel does.

    inside.py FLASHSIFT            # puts programs and a database on the card
    inside.py FLASHSIFT LOAD…

Writes /out/counts.json, and for each load /out/LOAD.parquet, a recording of its accesses. Programs
run from the card, in a control group whose memory is limited. They alone fill its page cache: all
other files of the guest belong to other groups.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import quantiles

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workloads"))
from apps.device_counts import DeviceCounts

# major,minor rwbs bytes (command) sector
REQUEST = re.compile(r"block_rq_issue: \d+,\d+ (\w+) (\d+) \(.*?\) (\d+) \+")
CARD = Path("/flash")
DEVICE = "/dev/mmcblk0"
QUEUE = Path("/sys/block/mmcblk0/queue")
GROUP = Path("/sys/fs/cgroup/load")
TRACEFS = Path("/sys/kernel/tracing")
MIB = 1 << 20
PAGE_BYTES = 4096
# Modules of the standard library that the launched program imports.
MODULES = "argparse asyncio decimal email.message html http.client json logging sqlite3 unittest xml.dom.minidom"
LIBRARY = Path("/usr/lib/python3.11")


class Device(DeviceCounts):
    """Counts of the device, its read requests and the events of other tracepoints among them."""

    # For the whole guest, in which nothing else syncs: tracepoints, and an expression for their
    # lines, whose number is summed up if there is one.
    OTHERS = {
        "fsyncs": (["ext4/ext4_sync_file_enter", "f2fs/f2fs_sync_file_enter"], "_sync_file_enter"),
        "commits": (["jbd2/jbd2_end_commit"], "jbd2_end_commit"),
        "checkpoints": (["f2fs/f2fs_write_checkpoint"], "finish checkpoint"),
        # F2FS does not mark its nodes as metadata.
        "node_bytes": (["f2fs/f2fs_submit_write_bio"], r", NODE, .*size = (\d+)"),
    }

    def __init__(self):
        self._journal = journal_sectors()
        super().__init__(DEVICE, "requests")
        self._counts["read_requests"] = 0
        self._others = {}
        for name, (events, _) in self.OTHERS.items():
            if events := [event for event in events if (TRACEFS / "events" / event).exists()]:
                self._others[name] = of = TRACEFS / f"instances/kernels-{name}"
                of.mkdir()
            for event in events:
                (of / "events" / event / "enable").write_text("1")

    def _take(self):
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for rwbs, size, sector in REQUEST.findall(b"\n".join(lines).decode(errors="replace")):
                    self._counts["read_requests"] += rwbs.startswith("R")
                    # Before Linux 6.10 the journal is not marked as metadata.
                    journal = any(int(sector) in extent for extent in self._journal)
                    self._count(rwbs + "M" * journal, int(size), int(sector))

    def end(self):
        counts = super().end()
        for name, of in self._others.items():
            found = [re.search(self.OTHERS[name][1], line) for line in (of / "trace").open()]
            counts[name] = sum(int(one[1]) if one.re.groups else 1 for one in found if one)
            of.rmdir()
        nodes = counts.pop("node_bytes", 0)
        counts["data_written_bytes"] -= nodes
        counts["metadata_written_bytes"] += nodes
        return counts


def journal_sectors() -> list[range]:
    """The places of ext4's journal."""
    stat = subprocess.run(["debugfs", "-R", "stat <8>", DEVICE], capture_output=True, text=True).stdout
    extents = re.findall(r"\(\d+(?:-\d+)?\):(\d+)-(\d+)", stat.partition("EXTENTS:")[2])
    return [range(int(first) * 8, int(last) * 8 + 8) for first, last in extents]


def run(*command, **how):
    return subprocess.run(list(map(str, command)), check=True, **how)


def stat() -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, (GROUP / "memory.stat").read_text().splitlines())}


def limit(bytes_: int) -> None:
    """Makes the group anew: without pages, and with this much memory."""
    if GROUP.exists():
        GROUP.rmdir()
    GROUP.mkdir()
    (GROUP / "memory.max").write_text(str(bytes_))


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


class FilePages:
    """The file pages of the group while a load runs: the quartiles of its second half."""

    def __enter__(self):
        self._found, self._ended = [], threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _sample(self):
        while not self._ended.wait(0.25):
            self._found.append(stat()["file"] // PAGE_BYTES)

    def quartiles(self) -> list[int]:
        return [int(count) for count in quantiles(self._found[len(self._found) // 2 :], n=4)]


def copy_programs() -> None:
    """Copies programs and the libraries that they name to the card, and modules of Python."""
    (CARD / "lib").mkdir()
    for program in ["/usr/bin/python3.11", "/usr/bin/sqlite3", "/usr/bin/git"]:
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        run("cp", "-L", program, *re.findall(r"(/\S+) \(0x", linked), CARD / "lib")
    names = "import sys; print('\\n'.join(sorted({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)})))"
    code = f"import {', '.join(MODULES.split())}, encodings.idna; {names}"
    used = subprocess.run(["/usr/bin/python3.11", "-IBSc", code], capture_output=True, text=True, check=True).stdout
    for file in map(Path, used.split()):
        to = CARD / "usr/lib/python3.11" / file.relative_to(LIBRARY)
        to.parent.mkdir(parents=True, exist_ok=True)
        run("cp", file, to)
        cached = file.parent / "__pycache__" / f"{file.stem}.cpython-311.pyc"
        if cached.exists():
            (to.parent / "__pycache__").mkdir(exist_ok=True)
            run("cp", "-p", cached, to.parent / "__pycache__")
            run("cp", "-p", file, to)
        for linked in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", file], capture_output=True, text=True).stdout):
            run("cp", "-Lu", linked, CARD / "lib")


def from_card(program: str, *arguments: str) -> str:
    """The shell command of a program on the card."""
    return " ".join([f"{CARD}/lib/ld-linux-x86-64.so.2 --library-path {CARD}/lib {CARD}/lib/{program}", *arguments])


PYTHON = f"PYTHONHOME={CARD}/usr " + from_card("python3.11", "-IBSc", f"'import {', '.join(MODULES.split())}'")
SQLITE = from_card("sqlite3")
GIT = from_card("git", "--version", "> /dev/null")


def launches() -> str:
    """Three programs start in turn, four times."""
    return f"for n in 1 2 3 4; do {PYTHON}; {SQLITE} -version > /dev/null; {GIT}; done"


def statements(seed: int, transactions: int, rows: int) -> str:
    """SQL of transactions that insert, change and look up rows at random places."""
    lines, state = [], seed
    for n in range(transactions):
        lines.append("BEGIN;")
        for _ in range(5):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            row = (state >> 33) % rows
            lines.append(f"UPDATE t SET body = hex(zeroblob({100 + row % 80})) || {n} WHERE id = {row};")
            lines.append(f"SELECT count(*) FROM t WHERE id BETWEEN {(row * 31) % rows} AND {(row * 31) % rows + 3};")
            lines.append(f"INSERT INTO log VALUES ({state % 10**9}, hex(zeroblob(60)));")
        lines.append("COMMIT;")
    return "\n".join(lines)


def make_database() -> None:
    script = f"""PRAGMA synchronous = OFF; CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT);
        CREATE TABLE log (at INTEGER, what TEXT); CREATE INDEX by_time ON log (at);
        WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < {ROWS - 1})
        INSERT INTO t SELECT x, hex(zeroblob(150 + x % 100)) FROM n;"""
    run("sqlite3", CARD / "app.db", script)
    (CARD / "statements.sql").write_text(statements(7, 150, ROWS))


ROWS = 40_000


def database() -> str:
    """150 transactions in a database that is larger than memory, each with its fsyncs."""
    return f"{SQLITE} {CARD}/app.db < {CARD}/statements.sql > /dev/null"


# Loads with a recording, and the memory of their group.
LOADS = {"launches": (launches, 20 * MIB), "database": (database, 10 * MIB)}
FILL = CARD / "fill"
FILL_MIB = 40


def in_group(command: str, log) -> None:
    run("sh", "-c", f"echo $$ > {GROUP}/cgroup.procs; {command}", stdout=log, stderr=log)


def measured(flashsift: str, name: str) -> dict:
    make, memory_bytes = LOADS[name]
    limit(memory_bytes)
    drop_caches()
    before, device, began = stat(), Device(), time.monotonic()
    inside = f"echo $$ > {GROUP}/cgroup.procs; {make()}"
    record = [flashsift, "record", "-o", f"/out/{name}.parquet"]
    # ext4 before Linux 6.12 tells no reads. Nor do page faults appear, of which launches consist.
    tells = (TRACEFS / "events/filemap/mm_filemap_get_pages").exists() or Path("/sys/fs/f2fs/mmcblk0").exists()
    record += ["--exact", "--path", CARD] if tells or name == "launches" else ["--strace=always"]
    with FilePages() as pages, open(f"/out/{name}.log", "w") as log:
        run(*record, "--", "sh", "-c", inside, stdout=log, stderr=log)
    seconds = time.monotonic() - began
    os.sync()
    after = stat()
    counts = {**device.end(), "seconds": round(seconds, 1), "memory_bytes": memory_bytes, "file_pages": pages.quartiles()}
    for of in ["pgsteal", "workingset_refault_file"]:
        counts[of] = after[of] - before[of]
    return counts


def states() -> dict:
    """One start of Python with its pages cached, with an empty cache, and with a full one."""
    found = {}
    for state in ["cached", "dropped", "full", "full and dirty"]:
        limit(32 * MIB)
        with open("/out/states.log", "a") as log:
            if state == "cached":
                in_group(PYTHON, log)
            else:
                drop_caches()
                # The shell and this program are not on the card.
                Device().end()
                in_group("true", log)
            if state.startswith("full"):
                in_group(f"cat {FILL} > /dev/null", log)
            # More dirty pages than this end in an out-of-memory kill on 6.12 with F2FS.
            if state == "full and dirty":
                in_group(f"dd if=/dev/zero of={FILL} bs=1M count=12 conv=notrunc", log)
            before, device, began = stat(), Device(), time.monotonic()
            in_group(PYTHON, log)
            seconds = time.monotonic() - began
        counts = device.end()
        found[state] = {"seconds": seconds, "reclaimed": stat()["pgsteal"] - before["pgsteal"]}
        found[state] |= {of: counts[of] for of in ["read_bytes", "read_requests", "data_written_bytes"]}
        drop_caches()
    return found


def full() -> dict:
    """A card that is filled and overwritten at random: what F2FS moves, and starts from it."""
    found = {"started": {"fresh": start()}}
    # On a volume of up to 16 GB F2FS overwrites in place; this is the policy of larger ones: in
    # place at fsyncs of few pages only.
    found["ipu_policy_before"] = int((F2FS / "ipu_policy").read_text())
    (F2FS / "ipu_policy").write_text("16")
    for program in ["lib", "usr"]:
        run("rm", "-r", CARD / program)
    state, chunk = 1, os.urandom(MIB)
    (CARD / "data").mkdir()
    free = os.statvfs(CARD)
    for n in range(free.f_bavail * free.f_frsize * 92 // 100 // MIB):
        (CARD / f"data/{n}").write_bytes(chunk)
    os.sync()
    files = sorted((CARD / "data").iterdir(), key=lambda file: int(file.name))
    used = os.statvfs(CARD)
    found["used_percent"] = round(100 * (1 - used.f_bavail / used.f_blocks), 1)
    found["steps"] = []
    for step in ["first", "second", "third", MAINTENANCE, "fourth"]:
        before, device = f2fs(), Device()
        overwritten = 0 if step == MAINTENANCE else OVERWRITES
        if step == MAINTENANCE:
            (F2FS / "gc_urgent").write_text("1")
            time.sleep(20)
            (F2FS / "gc_urgent").write_text("0")
        for n in range(overwritten):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            with open(files[(state >> 33) % len(files)], "r+b", buffering=0) as file:
                file.seek((state >> 20) % 256 * PAGE_BYTES)
                file.write(chunk[:PAGE_BYTES])
                if n % 16 == 15:
                    os.fsync(file.fileno())
        os.sync()
        counts, after = device.end(), f2fs()
        of = {name: after[name] - before[name] for name in after}
        found["steps"].append({"step": step, "pages": overwritten, **counts, **of})
    # The programs go where files were, in the holes that the overwriting has left.
    for file in files[::4]:
        file.unlink()
    os.sync()
    copy_programs()
    found["started"]["full"] = start()
    return found


OVERWRITES = 2500
MAINTENANCE = "urgent cleaning, 20 s"
F2FS = Path("/sys/fs/f2fs/mmcblk0")


def f2fs() -> dict[str, int]:
    names = ["gc_foreground_calls", "gc_background_calls", "moved_blocks_foreground", "moved_blocks_background"]
    return {name: int((F2FS / name).read_text()) for name in names if (F2FS / name).exists()}


def start() -> dict:
    """A start of Python with an empty cache."""
    limit(64 * MIB)
    drop_caches()
    device = Device()
    with open("/out/full.log", "a") as log:
        in_group(PYTHON, log)
    return {of: count for of, count in device.end().items() if of.startswith("read")}


def main() -> None:
    flashsift, *loads = sys.argv[1:]
    if not loads:
        copy_programs()
        make_database()
        FILL.write_bytes(bytes(FILL_MIB * MIB))
        return os.sync()
    run("mount", "-t", "cgroup2", "cgroup", "/sys/fs/cgroup")
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+memory")
    found = {
        "kernel": os.uname().release,
        "readahead_kib": int((QUEUE / "read_ahead_kb").read_text()),
        "request_kib": int((QUEUE / "max_sectors_kb").read_text()),
        "multi_generational": Path("/sys/kernel/mm/lru_gen/enabled").read_text().strip(),
        "card": run("df", "--output=size,used", "-BM", CARD, capture_output=True, text=True).stdout.split("\n")[1].split(),
        "loads": {},
    }
    for name in loads:
        print(f"{time.monotonic():.0f} s: {name}", flush=True)
        others = {"states": states, "full": full}
        found["loads"][name] = others[name]() if name in others else measured(flashsift, name)
        Path("/out/counts.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
