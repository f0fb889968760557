"""One run of a workload: arguments, seed, think time, list of actions, programs.

The seed and the minutes determine the actions, their order, and the pauses
between them.  Time here is planned time, the sum of the pauses.  The run
time of programs is in addition, so a slow machine performs the same actions
later.
"""

import argparse
import collections
import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from . import processes
from .testbed import ENDING, end_on_signals

# Programs that workloads drive, with the Debian package and the option for the version.
PACKAGES = {
    "apt-get": ("apt", "--version"),
    "cc": ("gcc", "--version"),
    "chromium": ("chromium", "--version"),
    "curl": ("curl", "--version"),
    "dpkg": ("dpkg", "--version"),
    "dpkg-deb": ("dpkg", "--version"),
    "feh": ("feh", "--version"),
    "ffmpeg": ("ffmpeg", "-version"),
    "firefox-esr": ("firefox-esr", "--version"),
    "gdk-pixbuf-thumbnailer": ("libgdk-pixbuf2.0-bin", None),
    "git": ("git", "--version"),
    "ldd": ("libc-bin", "--version"),
    "notmuch": ("notmuch", "--version"),
    "pip3": ("python3-pip", "--version"),
    "python3": ("python3", "--version"),
    "sqlite3": ("sqlite3", "--version"),
    "unzip": ("unzip", "-v"),
    "Xvfb": ("xvfb", None),
}
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


class WorkloadError(RuntimeError):
    """A requirement is missing, or a program failed."""


def main(name, description, programs, play, minutes, add_arguments=None):
    """Parse the command line, call `play(run)`, print the summary."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=description + "\nIts files stay in DIR, as their deletion would be part of a recording.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", type=Path, required=True,
                        help="where the programs keep their files; made if absent, must be empty")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default 1)")
    parser.add_argument("--minutes", type=positive, default=minutes,
                        help=f"of think time, in all (default {minutes})")
    parser.add_argument("--speed", type=positive, default=1,
                        help="divide every pause by this (default 1)")
    parser.add_argument("--keep-pause", type=positive, metavar="S",
                        help="sleep only the first S seconds of a longer pause; the programs' calendar then moves "
                             "ahead by the rest, their timers do not (default: sleep all)")
    parser.add_argument("--pauses", type=Path, metavar="FILE",
                        help="write what --keep-pause cut there, for `flashsift import --pauses`")
    parser.add_argument("--requests", type=Path, metavar="FILE",
                        help="write what the programs asked of servers there, a JSON object a line")
    parser.add_argument("--actions", type=Path, metavar="FILE",
                        help="write the list of actions there, each with its planned second")
    if add_arguments:
        add_arguments(parser)
    options = parser.parse_args()
    # An ordinary kill runs the finally blocks, as Ctrl-C does.
    end_on_signals()
    try:
        with Run.begin(name, programs, options) as run:
            play(run)
            summary = run.summary()
        print(json.dumps(summary))
    except (WorkloadError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def positive(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return int(value) if value.is_integer() else value


class Run:
    def __init__(self, name, programs, options, scratch):
        self.name = name
        self.options = options
        self.directory = options.dir.resolve()
        # Private, outside the directory, gone at the end: logs, and what only servers need.
        self.scratch = scratch
        self.planned_s = 0.0
        self.requests = RequestLog()
        # More facts for the summary.
        self.facts = {}
        self._programs = programs
        self._counts = collections.Counter()
        self._digest = hashlib.sha256()
        self._list = None
        self._calendar = None
        self._began = time.monotonic()

    @classmethod
    @contextlib.contextmanager
    def begin(cls, name, programs, options):
        _require(programs)
        _make_empty(options.dir)
        # The name in recordings for accesses of this process, which acts as the app.
        _prctl(_PR_SET_NAME, name.encode())
        # Orphans of child processes become children of this process: browsers start
        # helpers in sessions of their own, out of reach of killpg.
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-"))
            stack.callback(_kill_descendants)
            run = cls(name, programs, options, Path(scratch))
            if options.actions:
                run._list = stack.enter_context(open(options.actions, "w"))
            if options.requests:
                run.requests.file = stack.enter_context(open(options.requests, "w"))
            if options.keep_pause:
                pauses = stack.enter_context(open(options.pauses, "w")) if options.pauses else None
                run._calendar = _Calendar(run, pauses)
            yield run

    def require(self, *programs):
        """Further programs, which depend on options."""
        _require(programs)
        self._programs = (*self._programs, *programs)

    def random(self, part):
        """Random numbers for one part of the run, whatever the others draw."""
        return random.Random(f"{self.name} {self.options.seed} {part}")

    def over(self):
        return self.planned_s >= self.options.minutes * 60

    def think(self, seconds):
        with self.taking(seconds):
            pass

    @contextlib.contextmanager
    def taking(self, seconds):
        """The body and a pause together take this long; the body may take longer."""
        began, whole = time.monotonic(), seconds / self.options.speed
        yield
        time.sleep(max(0, began + self.kept(seconds) - time.monotonic()))
        self.planned_s += seconds
        if self._calendar:
            self._calendar.pause(whole, time.monotonic() - began)

    def kept(self, seconds):
        """How long a pause of these seconds really takes."""
        return min(seconds / self.options.speed, self.options.keep_pause or float("inf"))

    def now(self):
        """The date, as the programs see it."""
        return time.time() + (self._calendar.ahead_us / 1e6 if self._calendar else 0)

    def did(self, kind, detail=""):
        """Note an action that was done."""
        kind = kind.replace("_", " ")
        self._counts[kind] += 1
        line = f"{self.planned_s:.3f} {kind} {detail}".rstrip() + "\n"
        self._digest.update(line.encode())
        if self._list:
            self._list.write(line)
            self._list.flush()

    def summary(self):
        options = self.options
        return {
            "workload": self.name,
            "seed": options.seed,
            "minutes": options.minutes,
            "speed": options.speed,
            "wall_s": round(time.monotonic() - self._began, 1),
            "actions": dict(sorted(self._counts.items())),
            # Equal for equal seeds and minutes, on every machine.
            "actions_sha256": self._digest.hexdigest(),
            **self.facts,
            **({"pauses": self._calendar.summary()} if self._calendar else {}),
            **({"requests": self.requests.summary()} if self.requests.count else {}),
            "programs": {name: _version(name) for name in self._programs},
        }

    def start(self, *command, home=None, **keywords):
        """Start a program in a process group of its own, in the directory.

        Ctrl-C in a terminal reaches only us; we end what we started.
        """
        more = keywords.pop("env", {})
        return subprocess.Popen(
            [str(part) for part in command],
            **{"stdin": subprocess.DEVNULL, "cwd": self.directory, **keywords},
            env=environment(home or self.scratch, self._calendar) | more,
            process_group=0,
        )

    def call(self, *command, **keywords):
        """Run a program to its end; failure is an error with its messages."""
        text = keywords.pop("input", None)
        if text is not None:
            keywords["stdin"] = subprocess.PIPE
        process = self.start(*command, stderr=subprocess.PIPE, text=True, **keywords)
        output, complaint = process.communicate(text)
        if process.returncode:
            raise WorkloadError(f"{command[0]} ended with {process.returncode}: {complaint.strip()}")
        return output


def _require(programs):
    missing = [p for p in programs if shutil.which(p) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES[p][0] for p in missing))
        raise WorkloadError(f"not found in PATH: {', '.join(missing)} (on Debian: apt-get install {packages})")


class _Calendar:
    """The date that the programs see: ahead of the machine's by all that was cut out of pauses."""

    def __init__(self, run, pauses):
        self.ahead_us = 0
        self._path = run.scratch / "calendar"
        self._path.write_bytes(bytes(8))
        with open(self._path, "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        self._library = run.scratch / "clock.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", self._library, Path(__file__).parent / "clock.c", "-ldl"]
        built = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if built.returncode:
            raise WorkloadError(f"cc ended with {built.returncode}: {built.stderr.strip()}")
        self._pauses = pauses
        if pauses:
            pauses.write("at_us,cut_us\n")
        self._count, self._all_s, self._cut = 0, 0.0, 0

    def pause(self, whole_s, took_s):
        """Note a pause at its end; what it lacks is cut."""
        self._count += 1
        self._all_s += max(whole_s, took_s)
        cut_us = round((whole_s - took_s) * 1e6)
        # Sleeping is only so exact.
        if cut_us < 1000:
            return
        self._cut += 1
        at_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        self.ahead_us += cut_us
        self._shared[:] = struct.pack("=q", self.ahead_us)
        if self._pauses:
            self._pauses.write(f"{at_us},{cut_us}\n")
            self._pauses.flush()

    def environment(self, preloaded):
        libraries = f"{self._library}:{preloaded}" if preloaded else str(self._library)
        return {"LD_PRELOAD": libraries, "WORKLOAD_CLOCK": str(self._path)}

    def summary(self):
        cut_s = self.ahead_us / 1e6
        return {"all": self._count, "shortened": self._cut, "planned_s": round(self._all_s, 1),
                "slept_s": round(self._all_s - cut_s, 1), "cut_s": round(cut_s, 1)}


class RequestLog:
    """All requests of programs to servers, a JSON object a line.

    `boottime_us` is CLOCK_BOOTTIME at the end of the answer, `bytes` those of its body,
    `conditional` whether the program had a copy and asked if it is still good.
    """

    def __init__(self):
        self.file = None
        self.count = 0
        self._lock = threading.Lock()
        self._served = set()  # URLs, in full
        self._urls = set()
        self._sums = collections.Counter()

    def note(self, method, url, status, size, conditional):
        at_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        with self._lock:
            self.count += 1
            self._urls.add(url)
            self._sums["bytes"] += size
            self._sums["conditional"] += conditional
            self._sums["not_modified"] += status == 304
            if status == 200 and method == "GET":
                if url in self._served:
                    self._sums["again"] += 1
                    self._sums["bytes_again"] += size
                self._served.add(url)
            if self.file:
                line = {"boottime_us": at_us, "method": method, "url": url, "status": status, "bytes": size,
                        "conditional": conditional}
                self.file.write(json.dumps(line) + "\n")

    def summary(self):
        names = ("bytes", "conditional", "not_modified", "again", "bytes_again")
        return {"requests": self.count, "urls": len(self._urls), **{name: self._sums[name] for name in names}}


def _make_empty(directory):
    directory.mkdir(parents=True, exist_ok=True)
    # A fresh ext4 has a lost+found.
    found = [entry.name for entry in directory.iterdir() if entry.name != "lost+found"]
    if found:
        raise WorkloadError(f"{directory} is not empty ({found[0]}): give a fresh directory with --dir")


def _version(program):
    """The version as printed by the program, up to the number; else its package's."""
    package, option = PACKAGES[program]
    if option is None:
        command = ["dpkg-query", "--show", "--showformat", f"{program} ${{Version}}", package]
        asked = subprocess.run(command, capture_output=True, text=True) if shutil.which(command[0]) else None
        return asked.stdout if asked and asked.returncode == 0 else f"{program} unknown"
    command = [program, option]
    line = subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0].strip()
    found = re.match(r".*?\d+\.\d\S*", line)
    version = found[0] if found else line or "unknown"
    return version if program in version.lower() else f"{program} {version}"


def environment(home, calendar=None):
    """A small and fixed environment, independent of the caller's settings but for a library such
    as eatmydata's, which a caller loads into every program."""
    temporary = Path(home) / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": str(temporary),
        # Keeps desktop libraries from looking for a session bus.
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        **{name: os.environ[name] for name in ("LD_PRELOAD",) if name in os.environ},
        **(calendar.environment(os.environ.get("LD_PRELOAD")) if calendar else {}),
    }


def _prctl(option, argument):
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _kill_descendants():
    # The cleanup is short and must not be interrupted.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    # A process may start another one meanwhile, so this repeats until none is left.
    while pids := processes.below(os.getpid()):
        for pid in pids:
            processes.kill(pid)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
