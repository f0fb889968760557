"""Record workloads on ext4 and count the pages that the kernel writes back meanwhile.

Leaves for each workload NAME.parquet, the accesses of its programs; and measured.csv with what the
block layer got in each second, and machine.json with the kernel's settings.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE.parent.parent / "workloads"
TRACEFS = Path("/sys/kernel/tracing")
SETTINGS = ["dirty_expire_centisecs", "dirty_writeback_centisecs", "dirty_background_ratio", "dirty_ratio"]
# Enough for what arrives while this process waits for a CPU.
BUFFER_KIB_A_CPU = 8192
SECTORS_A_PAGE = 8
IMAGE_BYTES = 4 << 30
BIO = re.compile(r" (\d+)\.(\d+): block_bio_queue: \d+,\d+ (\w+) \d+ \+ (\d+) \[(.*)\]$")
REQUEST = re.compile(r" (\d+)\.(\d+): block_rq_issue: \d+,\d+ (\w+) (\d+) \(")
BOOT_US = re.compile(rb'"boot_us":(\d+)')


@dataclass(frozen=True)
class Row:
    """Requests of a second of CLOCK_BOOTTIME."""

    workload: str
    second: int
    # Pages of file data, by the task that asked for their write.
    flusher_pages: int
    process_pages: int
    journal_pages: int
    # Pages of the journal and of metadata.
    metadata_pages: int
    write_requests: int
    flushes: int


class Requests:
    """The requests to a block device, by second of CLOCK_BOOTTIME, from its making to `end`."""

    def __init__(self, device: str, name: str):
        # As the kernel numbers devices in tracepoints: 12 bits of major, 20 of minor.
        number = os.stat(device).st_rdev
        number = os.major(number) << 20 | os.minor(number)
        self.counts: Counter[tuple[int, str]] = Counter()
        self.not_understood = 0
        self._instance = TRACEFS / "instances" / f"flashsift-writeback-{os.getpid()}-{name}"
        self._instance.mkdir()
        self._events = [self._instance / f"events/block/{event}" for event in ("block_bio_queue", "block_rq_issue")]
        (self._instance / "buffer_size_kb").write_text(f"{BUFFER_KIB_A_CPU}")
        (self._instance / "trace_clock").write_text("boot")
        self._pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        for event in self._events:
            (event / "filter").write_text(f"dev == {number}")
            (event / "enable").write_text("1")
        self._rest = b""
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """Returns how many events did not fit the kernel's buffer."""
        for event in self._events:
            (event / "enable").write_text("0")
        os.write(self._stopping, b".")
        self._thread.join()
        stats = self._instance.glob("per_cpu/cpu*/stats")
        lost = sum(int(re.search(r"overrun: (\d+)", one.read_text())[1]) for one in stats)
        for descriptor in (self._pipe, self._stop, self._stopping):
            os.close(descriptor)
        self._instance.rmdir()
        return lost

    def _read(self) -> None:
        while self._stop not in select.select([self._pipe, self._stop], [], [])[0]:
            self._take()
        self._take()

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._count(line.decode(errors="replace"))

    def _count(self, line: str) -> None:
        if found := BIO.search(line):
            second, _, flags, sectors, task = found.groups()
            flags = flags.removeprefix("F")
            if flags.startswith("W") and int(sectors):
                self.counts[int(second), kind(flags, task)] += int(sectors)
        elif found := REQUEST.search(line):
            second, _, flags, size = found.groups()
            if flags.startswith("F"):
                self.counts[int(second), "flushes"] += 1
            if flags.removeprefix("F").startswith("W") and int(size):
                self.counts[int(second), "write_requests"] += 1
        elif line.strip() and "LOST" not in line:
            self.not_understood += 1


def kind(flags: str, task: str) -> str:
    if "M" in flags:
        return "metadata_pages"
    if task.startswith("kworker"):
        return "flusher_pages"
    return "journal_pages" if task.startswith("jbd2") else "process_pages"


class Run:
    """A workload on a file system of its own, under the recorder."""

    def __init__(self, name: str, seed: int, minutes: float, program: Path, scratch: Path):
        self.name = name
        self.trace = scratch / f"{name}.parquet"
        self._mount = scratch / name
        self._mount.mkdir()
        image = scratch / f"{name}.img"
        with open(image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        call("mkfs.ext4", "-q", "-F", image)
        device = call("losetup", "--find", "--show", image).strip()
        try:
            # ext4 would fill its inode tables with zeros in the background, once in its life.
            call("mount", "-o", "noinit_itable", device, self._mount)
        finally:
            # The device lives on while it is mounted.
            call("losetup", "--detach", device)
        image.unlink()
        # Writes of mkfs and mount are not of the run.
        call("sync", "--file-system", self._mount)
        self._requests = Requests(device, name)
        command = [program, "record", "-o", self.trace, "--path", self._mount, "--", WORKLOADS / name]
        command += ["--dir", self._mount / "files", "--seed", seed, "--minutes", minutes]
        self._log = open(scratch / f"{name}.log", "w+")
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def wait(self) -> tuple[list[Row], dict]:
        try:
            status = self._process.wait()
            end_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            call("sync", "--file-system", self._mount)
        finally:
            self.stop()
        self._log.seek(0)
        log = self._log.read()
        if status:
            raise RuntimeError(f"{self.name}: the recorder ended with {status}:\n{log}")
        if self.lost or self._requests.not_understood:
            print(f"{self.name}: lost {self.lost}, not understood {self._requests.not_understood}", file=sys.stderr)
        began_s = int(BOOT_US.search(self.trace.read_bytes())[1]) / 1e6
        seconds = sorted({second for second, _ in self._requests.counts})
        rows = [self._row(second) for second in seconds]
        facts = {"began_s": began_s, "ended_s": end_s, "lost": self.lost, "summary": summary(log)}
        return rows, facts

    def _row(self, second: int) -> Row:
        counts = self._requests.counts
        pages = {
            name: round(counts[second, name] / SECTORS_A_PAGE)
            for name in ("flusher_pages", "process_pages", "journal_pages", "metadata_pages")
        }
        requests, flushes = (counts[second, name] for name in ("write_requests", "flushes"))
        return Row(self.name, second, **pages, write_requests=requests, flushes=flushes)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        call("umount", self._mount)
        self.lost = self._requests.end()


def summary(log: str) -> dict:
    (line,) = (line for line in log.splitlines() if line.startswith('{"workload"'))
    known = json.loads(line)
    return {name: known[name] for name in ("programs", "actions", "wall_s")}


def version() -> str:
    done = subprocess.run(["mkfs.ext4", "-V"], capture_output=True, encoding="utf-8", check=True)
    return done.stderr.splitlines()[0]


def call(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="measure.py", description=__doc__)
    parser.add_argument("--flashsift", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"), help="for file systems (/var/tmp)")
    parser.add_argument("workloads", nargs="*", default=["messenger", "feed", "game", "video"])
    args = parser.parse_args()
    if os.geteuid():
        sys.exit("measure.py: mounting and tracing need root")
    memory = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())[1]
    machine = {
        "kernel": "Linux " + os.uname().release.partition("-")[0] + " " + os.uname().machine,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "available_kib": int(memory),
        "settings": {name: int(Path(f"/proc/sys/vm/{name}").read_text()) for name in SETTINGS},
        "file_system": f"ext4 by {version()} without options, mounted with noinit_itable, on a loop device",
        "minutes": args.minutes,
        "seed": args.seed,
        "workloads": {},
    }
    with tempfile.TemporaryDirectory(prefix="flashsift-writeback-", dir=args.scratch) as scratch:
        runs = []
        try:
            for name in args.workloads:
                runs.append(Run(name, args.seed, args.minutes, args.flashsift, Path(scratch)))
            results = {}
            while runs:
                run = runs.pop(0)
                results[run.name] = (run.trace, *run.wait())
        finally:
            for run in runs:
                run.stop()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(Row.__dataclass_fields__)
        for name, (trace, rows, facts) in results.items():
            machine["workloads"][name] = facts
            writer.writerows([getattr(row, field) for field in Row.__dataclass_fields__] for row in rows)
            shutil.copy(trace, HERE / f"{name}.parquet")
    (HERE / "measured.csv").write_text(out.getvalue())
    (HERE / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"measure.py: {error}")
