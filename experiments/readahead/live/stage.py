"""The watch of `tune readahead --live` and the time of processes, for all measurements."""

import contextlib
import json
import os
import signal
import subprocess
import time
from math import comb
from pathlib import Path

from apps import processes
from common.program import parser

MOUNT = Path("/mnt/flashsift-live")
TRACING = Path("/sys/kernel/tracing/instances")


def arguments(part, description, output):
    """The parser of a part, whose results go to a path."""
    made = parser(description, f"run.sh {part}")
    made.add_argument("-o", type=Path, default=output, help="where the results go")
    return made


def read(path):
    return Path(path).read_text().strip()


def cpu_seconds(pid):
    """Time of a process on processors, all threads that run."""
    total = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            total += int(read(schedstat).split()[0])
    return total / 1e9


class Live:
    """`flashsift tune readahead --live`, or a recording, until `end`."""

    @classmethod
    def watch(cls, program, point, *options, recorders=0):
        words = [program, "tune", "readahead", "--live", point, "--for", "1h", "--json", "--top", "5", *options]
        return cls._begin(words, recorders)

    @classmethod
    def recording(cls, program, point, trace, *options):
        """`flashsift record`, which runs with `--exact` beside a watch with `--propose`."""
        return cls._begin([program, "record", "--for", "1h", "--path", point, "--output", trace, *options], 0)

    @classmethod
    def _begin(cls, words, recorders):
        self = cls()
        self._process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
        self.said = []
        while "Ctrl-C" not in (line := self._process.stderr.readline()):
            self.said.append(line)
            if not line:
                self._process.wait()
                raise RuntimeError(f"it ended: {''.join(self.said)}")
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
        return [self._process.pid, *processes.below(self._process.pid)]

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
            raise RuntimeError(f"{self._process.args[1]} failed: {err}")
        return [json.loads(line) for line in out.splitlines()], err


def confident_median(values):
    """The median, and the bounds of its interval of at least 95 %: two order statistics."""
    values = sorted(values)
    n = len(values)
    below, rank = 0.0, 0
    while rank < n // 2:
        below += comb(n, rank) / 2 ** n
        if 2 * below > 0.05:
            break
        rank += 1
    rank = max(rank, 1)
    middle = (values[(n - 1) // 2] + values[n // 2]) / 2
    return middle, values[rank - 1], values[n - rank]
