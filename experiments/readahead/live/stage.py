"""File systems on loop devices, groups with little memory, and the time of processes."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path

MOUNT = Path("/mnt/flashsift-live")
TRACING = Path("/sys/kernel/tracing/instances")
LIBC = ctypes.CDLL(None, use_errno=True)


def call(*words, **options):
    options = {"check": True, "stdout": subprocess.DEVNULL, **options}
    return subprocess.run([str(word) for word in words], **options)


def read(path):
    return Path(path).read_text().strip()


class Volume:
    """A mounted file system on a loop device."""

    def __init__(self, device, point):
        self.device, self.point = device, point
        self.block = Path("/sys/block") / Path(device).name

    def sectors_read(self):
        return int(read(self.block / "stat").split()[2])

    def requests_read(self):
        return int(read(self.block / "stat").split()[0])

    def busy_seconds(self):
        """Time in which the device had requests."""
        return int(read(self.block / "stat").split()[9]) / 1000


@contextlib.contextmanager
def loop(image):
    """A loop device over a file."""
    device = call("losetup", "--find", "--show", image, stdout=subprocess.PIPE, text=True).stdout.strip()
    try:
        yield device
    finally:
        call("losetup", "-d", device)


@contextlib.contextmanager
def mounted(device, kind="ext4", options="noatime", name="volume"):
    point = MOUNT / name
    point.mkdir(parents=True, exist_ok=True)
    call("mount", "-t", kind, "-o", options, device, point)
    try:
        yield Volume(device, point)
    finally:
        for _ in range(40):
            if call("umount", point, check=False, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.25)
        point.rmdir()


@contextlib.contextmanager
def file_system(image, size_bytes, kind="ext4", name="volume", mkfs=()):
    """A new file system in an image file, mounted; the image is removed at the end."""
    image.unlink(missing_ok=True)
    with open(image, "wb") as file:
        file.truncate(size_bytes)
    ext4 = ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0") if kind == "ext4" else ("-q",)
    call(f"mkfs.{kind}", *(mkfs or ext4), image)
    try:
        with loop(image) as device, mounted(device, kind, name=name) as volume:
            yield volume
    finally:
        image.unlink(missing_ok=True)


@contextlib.contextmanager
def memory_group(limit_bytes):
    """A cgroup whose processes share this much memory with their page cache. Gives its folder."""
    old = Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists()
    root = Path("/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup")
    if not old:
        (root / "cgroup.subtree_control").write_text("+memory")
    group = root / f"flashsift-live-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit_bytes))
        yield group
    finally:
        for _ in range(40):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def cpu_seconds(pid):
    """Time of a process on processors, all threads that run."""
    total = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            total += int(read(schedstat).split()[0])
    return total / 1e9


def children_of(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


class Live:
    """`flashsift tune readahead --live`, or a recording, until `end`."""

    @classmethod
    def watch(cls, program, point, *options, recorders=0):
        words = [program, "tune", "readahead", "--live", point, "--for", "1h", "--json", "--top", "5", *options]
        return cls._begin(words, recorders)

    @classmethod
    def recording(cls, program, point, trace):
        """`flashsift record --exact`, which runs beside a watch with `--propose`."""
        return cls._begin([program, "record", "--exact", "--for", "1h", "--path", point, "--output", trace], 0)

    @classmethod
    def _begin(cls, words, recorders):
        self = cls()
        self._process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
        lines = []
        while "Ctrl-C" not in (line := self._process.stderr.readline()):
            lines.append(line)
            if not line:
                self._process.wait()
                raise RuntimeError(f"it ended: {''.join(lines)}")
        # A recorder beside it says nothing. Its tracing instances are switched off until it begins.
        since, deadline = None, time.monotonic() + 60
        while recorders and (since is None or time.monotonic() < since + 0.5):
            if self._recording() < recorders:
                since = None
            else:
                since = since or time.monotonic()
            if time.monotonic() > deadline:
                self.end()
                raise RuntimeError("its recorder has not begun within a minute")
            time.sleep(0.02)
        return self

    def pids(self):
        return [self._process.pid, *children_of(self._process.pid)]

    def _recording(self):
        recorders = tuple(f"flashsift-{pid}-" for pid in self.pids()[1:])
        on = 0
        for name in os.listdir(TRACING):
            with contextlib.suppress(OSError):
                on += name.startswith(recorders) and read(TRACING / name / "tracing_on") == "1"
        return on

    def cpu_seconds(self):
        return sum(cpu_seconds(pid) for pid in self.pids())

    def end(self):
        """Return its records of JSON, and its messages."""
        self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"tune readahead --live failed: {err}")
        return [json.loads(line) for line in out.splitlines()], err


def confident_median(values):
    """The median, and the bounds of its interval of at least 95 %: two order statistics."""
    values = sorted(values)
    n = len(values)
    from math import comb
    below, rank = 0.0, 0
    while rank < n // 2:
        below += comb(n, rank) / 2 ** n
        if 2 * below > 0.05:
            break
        rank += 1
    rank = max(rank, 1)
    middle = (values[(n - 1) // 2] + values[n // 2]) / 2
    return middle, values[rank - 1], values[n - rank]
