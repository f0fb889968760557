"""The processes of this machine, by /proc."""

import contextlib
import os
import signal
from pathlib import Path


def stat(pid):
    """Fields of a process behind its name, which may hold spaces and brackets; none if it is gone.

    State, parent, group, session; user and system time are the 12th and the 13th.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def every():
    """All processes with their fields."""
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return {pid: fields for pid in pids if (fields := stat(pid))}


def below(*roots):
    """All descendants of processes."""
    parents = {pid: int(fields[1]) for pid, fields in every().items()}
    found, rest = [], list(roots)
    while rest:
        parent = rest.pop()
        children = [pid for pid in parents if parents[pid] == parent]
        found += children
        rest += children
    return found


def ticks(fields):
    """Time on processors."""
    return int(fields[11]) + int(fields[12])


def opened(pid):
    """Paths that a process has open."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(entry.path)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
