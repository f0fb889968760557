"""Record workloads on ext4 and count the pages that the kernel writes back meanwhile.

Leaves for each workload NAME.parquet, the accesses of its programs; and measured.csv with what the
block layer got in each second, and machine.json with the kernel's settings.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from apps import testbed
from apps.device_counts import DeviceCounts
from apps.recording import summary_in
from common import program
from common.rows import dump, write_json

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE.parent.parent / "workloads"
SETTINGS = ["dirty_expire_centisecs", "dirty_writeback_centisecs", "dirty_background_ratio", "dirty_ratio"]
SECTORS_A_PAGE = 8
IMAGE_BYTES = 4 << 30
BIO = re.compile(r" (\d+)\.(\d+): block_bio_queue: \d+,\d+ (\w+) \d+ \+ (\d+) \[(.*)\]$")
REQUEST = re.compile(r" (\d+)\.(\d+): block_rq_issue: \d+,\d+ (\w+) (\d+) \(")
BOOT_US = re.compile(rb'"boot_us":(\d+)')
PAGES = ("flusher_pages", "process_pages", "journal_pages", "metadata_pages")


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


class Requests(DeviceCounts):
    """The requests to a block device, by second of CLOCK_BOOTTIME, from its making to `end`."""

    EVENTS = ("block_bio_queue", "block_rq_issue")
    CLOCK = "boot"
    BUFFER_KIB_A_CPU = 8192

    def __init__(self, device: str, name: str):
        self.counts: Counter[tuple[int, str]] = Counter()
        self.not_understood = 0
        super().__init__(device, name)

    def end(self) -> int:
        """Returns how many events did not fit the kernel's buffer."""
        return super().end()["lost"]

    def _line(self, line: str) -> None:
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
        self._undo = contextlib.ExitStack()
        image = scratch / f"{name}.img"
        self._volume = self._undo.enter_context(
            testbed.file_system(image, IMAGE_BYTES, scratch / name, options=testbed.UNFILLED, make=())
        )
        # Writes of mkfs and mount are not of the run.
        self._volume.sync()
        self._requests = Requests(self._volume.device, name)
        command = [program, "record", "-o", self.trace, "--path", self._volume.point, "--", WORKLOADS / name]
        command += ["--dir", self._volume.point / "files", "--seed", seed, "--minutes", minutes]
        self._log = open(scratch / f"{name}.log", "w+")
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def wait(self) -> tuple[list[Row], dict]:
        try:
            status = self._process.wait()
            end_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            self._volume.sync()
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
        told = summary_in(log, self.name)
        summary = {name: told[name] for name in ("programs", "actions", "wall_s")}
        facts = {"began_s": began_s, "ended_s": end_s, "lost": self.lost, "summary": summary}
        return rows, facts

    def _row(self, second: int) -> Row:
        counts = self._requests.counts
        pages = {name: round(counts[second, name] / SECTORS_A_PAGE) for name in PAGES}
        requests, flushes = (counts[second, name] for name in ("write_requests", "flushes"))
        return Row(self.name, second, **pages, write_requests=requests, flushes=flushes)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._undo.close()
        self.lost = self._requests.end()


def main() -> None:
    parser = program.parser(__doc__, "measure.py")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"), help="for file systems (/var/tmp)")
    parser.add_argument("workloads", nargs="*", default=["messenger", "feed", "game", "video"])
    args = parser.parse_args()
    testbed.begin()
    version = program.done("mkfs.ext4", "-V").stderr.splitlines()[0]
    memory = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())[1]
    machine = {
        "kernel": "Linux " + os.uname().release.partition("-")[0] + " " + os.uname().machine,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "available_kib": int(memory),
        "settings": {name: int(Path(f"/proc/sys/vm/{name}").read_text()) for name in SETTINGS},
        "file_system": f"ext4 by {version} without options, mounted with noinit_itable, on a loop device",
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
        for name, (trace, _, facts) in results.items():
            machine["workloads"][name] = facts
            shutil.copy(trace, HERE / f"{name}.parquet")
    (HERE / "measured.csv").write_text(dump(Row, (row for _, rows, _ in results.values() for row in rows)))
    write_json(HERE / "machine.json", machine)


if __name__ == "__main__":
    program.run(main, "measure.py")
