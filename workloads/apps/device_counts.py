"""The bytes and requests that reach a block device while a workload runs.

The kernel's tracepoint marks requests for a file system's metadata and
journal, so that file data is counted apart. Needs root and tracefs.
"""

import contextlib
import os
import re
import select
import threading
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
# major,minor rwbs bytes (…) sector
REQUEST = re.compile(r"block_rq_issue: \d+,\d+ (\w+) (\d+) \(.*?\) (\d+)")


class DeviceCounts:
    """Counts requests from its making to `end`."""

    EVENTS = ("block_rq_issue",)
    CLOCK = "local"
    # Enough for what arrives while this process waits for a CPU.
    BUFFER_KIB_A_CPU = 4096

    def __init__(self, device, name):
        """Begin with a device such as /dev/loop3; `name` tells apart those that count at once."""
        # As the kernel numbers devices in tracepoints: 12 bits of major, 20 of minor.
        number = os.stat(device).st_rdev
        number = os.major(number) << 20 | os.minor(number)
        # A recorder removes what begins with its own name.
        self._instance = TRACEFS / "instances" / f"device-counts-{os.getpid()}-{name}"
        self._instance.mkdir()
        self._counts = {"read_bytes": 0, "data_written_bytes": 0, "metadata_written_bytes": 0,
                        "write_requests": 0, "flushes": 0, "discarded_bytes": 0}
        try:
            (self._instance / "buffer_size_kb").write_text(f"{self.BUFFER_KIB_A_CPU}")
            (self._instance / "trace_clock").write_text(self.CLOCK)
            self._pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            for event in self._enabled():
                (event.parent / "filter").write_text(f"dev == {number}")
                event.write_text("1")
        except OSError:
            self._instance.rmdir()
            raise
        # Begin in sectors and length in bytes of each write of file data.
        self.data_writes = []
        self._rest = b""
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self):
        """Return the counts as plain data. `lost` requests did not fit the kernel's buffer."""
        for event in self._enabled():
            event.write_text("0")
        os.write(self._stopping, b".")
        self._thread.join()
        lost = sum(int(re.search(r"overrun: (\d+)", stats.read_text())[1])
                   for stats in self._instance.glob("per_cpu/cpu*/stats"))
        for descriptor in (self._pipe, self._stop, self._stopping):
            os.close(descriptor)
        self._instance.rmdir()
        return {**self._counts, "lost": lost}

    def _enabled(self):
        return [self._instance / f"events/block/{event}/enable" for event in self.EVENTS]

    def _read(self):
        while self._stop not in select.select([self._pipe, self._stop], [], [])[0]:
            self._take()
        self._take()

    def _take(self):
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._line(line.decode(errors="replace"))

    def _line(self, line):
        if request := REQUEST.search(line):
            self._count(request[1], int(request[2]), int(request[3]))

    def _count(self, rwbs, size, sector):
        counts = self._counts
        # A leading F is a flush before the request, and one without data is only that.
        if rwbs.startswith("F"):
            counts["flushes"] += 1
            rwbs = rwbs[1:]
        if "D" in rwbs[:1]:
            counts["discarded_bytes"] += size
        elif rwbs.startswith("R"):
            counts["read_bytes"] += size
        elif rwbs.startswith("W") and size:
            counts["write_requests"] += 1
            if "M" not in rwbs:
                self.data_writes.append((sector, size))
            counts["metadata_written_bytes" if "M" in rwbs else "data_written_bytes"] += size
