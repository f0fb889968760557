"""Start programs under strace, in their own process group, and end them."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

# Everything that moves file data, changes a file's size or name, hands
# descriptors around, or starts and ends a process.  access, readlink and the
# like say nothing about data and are left out.
TRACED_CALLS = """
open openat openat2 creat close close_range dup dup2 dup3 fcntl chdir fchdir
read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 lseek
mmap munmap msync fsync fdatasync sync_file_range sync syncfs
truncate ftruncate fallocate sendfile copy_file_range splice
rename renameat renameat2 link linkat symlink symlinkat
unlink unlinkat rmdir mkdir mkdirat fstat newfstatat statx
clone clone3 fork vfork execve exit_group
pipe2 socket eventfd2 epoll_create1 memfd_create
""".split()

# Pipe ends are moved up here first, so that wiring them to 3, 4, ... in the
# child can never overwrite one that is still to be wired.
_FIRST_PRIVATE_FD = 64


class SetupError(Exception):
    """Something the recording needs is missing or did not start."""


def require_programs(*names):
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise SetupError(
            f"not found in PATH: {', '.join(missing)} "
            f"(on Debian: apt-get install {' '.join(missing)})"
        )


def version_of(*command):
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return lines[0].strip() if lines else "unknown"


def clean_environment(home):
    """A small fixed environment: nothing of the caller's leaks into the trace."""
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        # So that a killed program leaves nothing behind in /tmp.
        "TMPDIR": f"{home}/tmp",
        # Keeps desktop libraries from looking for a session bus.
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
    }


def make_pipe():
    """A pipe as (read end, write end), both close-on-exec and numbered high."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE_FD))
        os.close(end)
    return tuple(ends)


class TracedProcess:
    """`strace -o raw -- command` and all its descendants.

    `descriptors` maps a descriptor number in the child to one of ours; it is
    how the driving script talks to programs that want numbered pipes.
    """

    def __init__(self, command, raw_trace, home, cwd, log, descriptors=None):
        strace = [
            shutil.which("strace"),
            "-f",
            "--seccomp-bpf",  # stop only at the traced calls: far less slowdown
            "-ttt",
            "-y",
            "-s", "0",  # no file contents in the trace
            "-A", "-o", str(raw_trace),
            # '?' makes strace accept names this machine does not have.
            "-e", "trace=" + ",".join("?" + name for name in TRACED_CALLS),
            "--",
            # posix_spawn cannot change directory, so a tiny shell does.
            "/bin/sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *command,
        ]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        for number, ours in (descriptors or {}).items():
            actions.append((os.POSIX_SPAWN_DUP2, ours, number))
        self._log = Path(log)
        self.pid = os.posix_spawn(
            strace[0], strace, clean_environment(home),
            file_actions=actions, setpgroup=0,
        )
        self._status = None

    def exited(self):
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def wait(self, timeout):
        """Wait for strace, and so for every traced process, to be gone."""
        deadline = time.monotonic() + timeout
        while not self.exited():
            if time.monotonic() > deadline:
                raise SetupError(f"traced program did not end in {timeout} s")
            time.sleep(0.05)

    def log_tail(self):
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])

    def kill(self):
        """End the whole tree; harmless when it has already ended."""
        if self.exited():
            return  # strace ends only after the last of its tracees
        # The tracees go first: killing strace alone would only detach them.
        for pid in self._tracees():
            _kill(os.kill, pid)
        _kill(os.killpg, self.pid)
        _, self._status = os.waitpid(self.pid, 0)

    def _tracees(self):
        """What strace traces, as the kernel tells it.

        Browsers start helpers in sessions of their own, out of reach of
        killpg.
        """
        tracer = re.compile(rf"^TracerPid:\t{self.pid}$", re.MULTILINE)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if tracer.search((entry / "status").read_text()):
                    yield int(entry.name)
            except OSError:
                continue  # it ended meanwhile


def _kill(how, pid):
    try:
        how(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
