"""File systems in files, on loop devices, for all that records and measures; and guests.

Each thing is a context that takes down what it made, by its own path or device: at the end, on an
error and on Ctrl-C; on SIGTERM and SIGHUP, too, after `end_on_signals`. Loop devices and mounts
need root; guests do not.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import processes

# The command that makes each file system.
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "f2fs": ("mkfs.f2fs", "-q", "-f"),
}
# ext4 would fill its inode tables with zeros in the background, once in its life: it does so in
# mkfs, or never with this option of the mount.
FILLED = ("-E", "lazy_itable_init=0,lazy_journal_init=0")
UNFILLED = "noinit_itable"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A file system that is in use is unmounted once it is not, within this time.
PATIENCE_S = 60
PROJECT = Path(__file__).resolve().parents[2]
# Boots a guest with a kernel of Debian, as `make setup` unpacks it.
BOOT = PROJECT / "crates/cli/tests/guest/boot"
GUESTS = Path(os.environ.get("FLASHSIFT_GUEST", PROJECT / "target/guest"))
TIMED_OUT = 124
# qemu 7.2 sometimes loses a wake-up, and the guest sleeps for good: it then uses no CPU time.
ASLEEP_S = 60
TRIES = 3


def end_on_signals(numbers=(signal.SIGTERM, signal.SIGHUP)):
    """Makes signals end this process as an error does, so that contexts end."""
    for number in numbers:
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def begin():
    """Makes sure of root, and that contexts end on signals."""
    if os.geteuid():
        raise RuntimeError("mounting and tracing need root: run it with sudo")
    end_on_signals()


@contextlib.contextmanager
def undivided():
    """Delays Ctrl-C and `kill` to the end of the block: a thing is made and noted, or neither."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def which(program):
    """The path of a program, also of one for administrators."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def missing(*kinds):
    """The programs that are not installed, of those that file systems of these kinds need."""
    needed = (*(MAKE[kind][0] for kind in kinds), "losetup", "mount", "umount", "unshare")
    return [program for program in needed if not which(program)]


def call(*words, **options):
    """Runs a command to its end, and returns what it prints."""
    words = [str(word) for word in words]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8", **options}
    done = subprocess.run([which(words[0]) or words[0], *words[1:]], **options)
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {(done.stderr or done.stdout or '').strip()}")
    return done.stdout


def image(path, size_bytes, kind="ext4", *options):
    """A new file system in a sparse file."""
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    call(*MAKE[kind], *options, path)
    return path


class Volume:
    """A mounted file system, with the counts of its device."""

    def __init__(self, device, point):
        self.device, self.point = device, point
        self.block = Path("/sys/block") / Path(device).name

    def _stat(self, field):
        return int((self.block / "stat").read_text().split()[field])

    def requests_read(self):
        return self._stat(0)

    def sectors_read(self):
        return self._stat(2)

    def requests_written(self):
        return self._stat(4)

    def bytes_written(self):
        return 512 * self._stat(6)

    def busy_seconds(self):
        """Time in which the device had requests."""
        return self._stat(9) / 1000

    def sync(self):
        call("sync", "--file-system", self.point)


@contextlib.contextmanager
def loop(path, *options):
    """A loop device over a file. Detached while mounted, it lives until it is unmounted."""
    with contextlib.ExitStack() as undo:
        with undivided():
            device = call("losetup", "--find", "--show", *options, path).strip()
            undo.callback(call, "losetup", "--detach", device)
        yield device


@contextlib.contextmanager
def mounted(device, point, kind="ext4", options="noatime"):
    made = not point.exists()
    point.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:
        with undivided():
            call("mount", "-t", kind, *(("-o", options) if options else ()), device, point)
            undo.callback(unmount, point, made)
        yield Volume(device, point)


def unmount(point, remove=False):
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            call("umount", "--recursive", point)
            break
        except RuntimeError:
            if time.monotonic() > end:
                raise
        time.sleep(0.25)
    if remove:
        point.rmdir()


def _made(path, size_bytes, kind, make):
    image(path, size_bytes, kind, *((FILLED if kind == "ext4" else ()) if make is None else make))


@contextlib.contextmanager
def device(path, size_bytes, kind="ext4", make=None):
    """A loop device with a new file system, for several mounts. Its file goes at once."""
    with contextlib.ExitStack() as undo:
        try:
            _made(path, size_bytes, kind, make)
            made = undo.enter_context(loop(path))
        finally:
            path.unlink(missing_ok=True)
        yield made


@contextlib.contextmanager
def file_system(path, size_bytes, point, kind="ext4", options="noatime", make=None):
    """A new file system, mounted. Its file and its device go with the mount, whatever ends it."""
    with contextlib.ExitStack() as undo:
        try:
            _made(path, size_bytes, kind, make)
            with loop(path) as made:
                volume = undo.enter_context(mounted(made, point, kind, options))
        finally:
            path.unlink(missing_ok=True)
        yield volume


@contextlib.contextmanager
def _group(controller):
    """A cgroup, below this controller's root if it has one. Gives that root and the folder."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    root = Path("/sys/fs/cgroup" if unified else f"/sys/fs/cgroup/{controller}")
    group = root / f"flashsift-{os.getpid()}"
    group.mkdir()
    try:
        yield unified, root, group
    finally:
        for _ in range(40):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


@contextlib.contextmanager
def memory_group(limit_bytes):
    """A cgroup whose processes share this much memory with their page cache. Gives its folder."""
    with _group("memory") as (unified, root, group):
        if unified:
            (root / "cgroup.subtree_control").write_text("+memory")
        (group / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(limit_bytes))
        yield group


@contextlib.contextmanager
def counted_group():
    """A cgroup whose processor time is counted. Gives its folder, and a function: its seconds."""
    with _group("cpuacct") as (unified, _, group):
        def seconds():
            if unified:
                return int((group / "cpu.stat").read_text().split()[1]) / 1e6
            return int((group / "cpuacct.usage").read_text()) / 1e9

        yield group, seconds


def join(group):
    """Moves this process into a group; for `preexec_fn`."""
    if group:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def kernel(version):
    """The folder of a guest's kernel."""
    found = {}
    for folder in (GUESTS, GUESTS / "mount"):
        for modules in (folder / "tree/lib/modules").glob("*"):
            found[modules.name] = folder
    for name, folder in found.items():
        if name == version or name.startswith(f"{version}."):
            return folder
    raise RuntimeError(f"no kernel {version} in {GUESTS}, only {', '.join(found) or 'none'}: make setup")


def guest(folder, kind, out, command, seconds, memory_mib=None, prepare=None):
    """Boots a guest with this kind of file system, which runs lines of bash; again if it sleeps.

    It is ended after $FLASHSIFT_GUEST_SECONDS, or so many. Fails unless the lines end well.
    `prepare` runs before each try; without it, each has a new card.
    """
    seconds = int(os.environ.get("FLASHSIFT_GUEST_SECONDS", seconds))
    environment = {**os.environ, "FLASHSIFT_GUEST_SECONDS": str(seconds)}
    if memory_mib:
        environment["FLASHSIFT_GUEST_MEMORY"] = f"{memory_mib}M"
    for _ in range(TRIES):
        if prepare:
            prepare()
        else:
            (out / "card").unlink(missing_ok=True)
        (out / "command").write_text(command)
        with tempfile.TemporaryFile("w+", errors="replace") as printed:
            process = subprocess.Popen(
                [BOOT, folder, kind, out], stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
                start_new_session=True, env=environment)
            try:
                ended = _wait_or_end_asleep(process)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                    process.wait()
            printed.seek(0)
            said = printed.read().strip()
        if ended is not None:
            break
    status = (out / "status").read_text().strip() if (out / "status").exists() else "none"
    if status != "0":
        why = {TIMED_OUT: f"the guest was ended after {seconds} s", None: f"the guest fell asleep {TRIES} times"}
        raise RuntimeError(f"{why.get(ended, f'in the guest: exit status {status}')}\n{said[-2000:]}")


def _wait_or_end_asleep(process):
    """Return the exit status; None if the session has used no time of the CPU for long."""
    used = None
    while used != (now := _ticks(process.pid)):
        used = now
        try:
            return process.wait(ASLEEP_S)
        except subprocess.TimeoutExpired:
            continue
    return None


def _ticks(session):
    """Time of the CPU that the living processes of a session have used."""
    return sum(processes.ticks(fields) for fields in processes.every().values() if int(fields[3]) == session)


if __name__ == "__main__":
    # python3 -m apps.testbed FILE BYTES KIND [OPTION…]: makes a file system, for scripts.
    image(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
