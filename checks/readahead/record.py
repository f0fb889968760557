#!/usr/bin/env python3
"""Record which read-ahead the kernel does for each reader of readers.py.

  checks/readahead/record.py --fs ext4 -o FILE         with this machine's kernel, as root
  checks/readahead/record.py --guest 6.1 --fs f2fs -o FILE   with a kernel of Debian, emulated
  checks/readahead/record.py --check FILE              records again; prints the first difference
                                                       of each reader

  checks/readahead/record.py --compare FILE FILE       differences between two kernels, by the pages
                                                       added and the page faults

`make setup` unpacks the kernels for --guest into target/guest; FLASHSIFT_GUEST names another
folder. A guest needs qemu and no privileges. It is ended after FLASHSIFT_GUEST_SECONDS (1200).
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from readers import PAGE, readers

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
BOOT = PROJECT / "crates/cli/tests/guest/boot"
TRACEFS = Path("/sys/kernel/tracing")
IMAGE_BYTES = 768 << 20
# The device's settings; a loop device keeps those of its last user.
# max_sectors_kb: longest request. The kernel takes it into account, and eMMC has this.
# rq_affinity: a request ends on the processor that sent it, so all its pages are up to date before
# the reader goes on there. Otherwise page faults would depend on the order of the two.
QUEUE = {"max_sectors_kb": 512, "rq_affinity": 2}
# Type, mount options, options of mkfs. Nothing but the readers' own reads reaches the device: no
# lazy initialisation, no background work. ext4 with data=journal has no large folios, as F2FS.
EXT4_MKFS = ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")
FILE_SYSTEMS = {
    "ext4": ("ext4", "noatime", EXT4_MKFS),
    "ext4-data-journal": ("ext4", "noatime,data=journal", EXT4_MKFS),
    "f2fs": ("f2fs", "noatime,background_gc=off", ("-q", "-f")),
}
ADDED = "filemap/mm_filemap_add_to_page_cache"
WINDOWS = {"order": "readahead/page_cache_ra_order", "unbounded": "readahead/page_cache_ra_unbounded"}
POSIX_FADV = {"normal": 0, "random": 1, "sequential": 2, "willneed": 3, "dontneed": 4}
MADV = {"normal": 0, "random": 1, "sequential": 2, "willneed": 3}
MAPS = {"shared": "map", "private": "private", "executable": "exec"}
NAMES = {"size": "pages", "async_size": "async", "nr_to_read": "pages", "lookahead_size": "async"}
# Fields of a step that all kernels have and that have the same meaning there.
OF_ALL_KERNELS = {"op", "fd", "map", "at", "bytes", "page", "pages", "kind", "advice", "write", "returned", "added",
                  "faulted"}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Refused(Exception):
    """The recording cannot be made here."""


def main():
    options = _options()
    for number in ENDING:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        if options.check:
            sys.exit(_check(options.check, options.guest))
        if options.compare:
            recordings = [path.read_text().splitlines()[1:] for path in options.compare]
            sys.exit(_compare(*recordings, OF_ALL_KERNELS))
        lines = _recorded(options.guest, options.fs, options.only, options.sizes)
        text = "".join(line + "\n" for line in lines)
        if options.o:
            options.o.write_text(text)
        else:
            sys.stdout.write(text)
    except Refused as refused:
        print(f"record.py: {refused}", file=sys.stderr)
        sys.exit(2)


def _options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fs", choices=FILE_SYSTEMS, default="ext4", help="file system (default ext4)")
    parser.add_argument("--guest", metavar="VERSION", help="in a guest with Debian's kernel of this version (6.1)")
    parser.add_argument("-o", type=Path, metavar="FILE", help="where the recording goes (default: standard output)")
    parser.add_argument("--only", nargs="+", metavar="READER", help="some readers")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="KIB", help="some values of read_ahead_kb")
    parser.add_argument("--check", type=Path, metavar="FILE", help="compare with this recording")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="compare two recordings")
    return parser.parse_args()


def _recorded(guest, fs, only, sizes):
    """Return the lines of a recording."""
    return _record_in_guest(guest, fs, only, sizes) if guest else list(_record(fs, only, sizes))


def _record_in_guest(version, fs, only, sizes):
    kind = FILE_SYSTEMS[fs][0]
    missing = [program for program in ("qemu-system-x86_64", f"mkfs.{kind}") if not _which(program)]
    if missing:
        raise Refused(f"not installed: {', '.join(missing)}: make setup")
    kernel = _kernel(version)
    with tempfile.TemporaryDirectory(prefix="readahead-") as out:
        out = Path(out)
        _program(out)
        # The guest's Debian Python is the one of this machine: others may need an environment.
        record = ["/usr/bin/python3", "-B", HERE / "record.py", "--fs", fs, "-o", "/out/recording"]
        if only:
            record += ["--only", *only]
        if sizes:
            record += ["--sizes", *sizes]
        (out / "command").write_text(f"READER=/out/reader {shlex.join(map(str, record))} 2> /out/log\n")
        environment = {"FLASHSIFT_GUEST_SECONDS": "1200", "FLASHSIFT_GUEST_MEMORY": "3072M", **os.environ}
        with open(out / "printed", "w+", errors="replace") as printed:
            guest = subprocess.Popen([BOOT, kernel, kind, out], env=environment, start_new_session=True,
                                     stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT)
            try:
                ended = guest.wait()
            finally:
                if guest.poll() is None:
                    os.killpg(guest.pid, signal.SIGTERM)
                    guest.wait()
            printed.seek(0)
            said = printed.read()[-2000:]
        status, log = ((out / name).read_text().strip() if (out / name).exists() else "" for name in ("status", "log"))
        if status != "0":
            why = log or f"the guest ended with exit status {ended}: {said}"
            raise Refused(f"in the guest: {why}")
        return (out / "recording").read_text().splitlines()


def _kernel(version):
    """Return the folder of a guest's kernel."""
    guests = Path(os.environ.get("FLASHSIFT_GUEST", PROJECT / "target/guest"))
    found = {}
    for folder in (guests, guests / "mount"):
        for modules in (folder / "tree/lib/modules").glob("*"):
            found[modules.name] = folder
    for name, folder in found.items():
        if name == version or name.startswith(f"{version}."):
            return folder
    raise Refused(f"no kernel {version} in {guests}, only {', '.join(found) or 'none'}: make setup")


def _check(path, guest):
    """Compare a recording with a new one. Return the exit status."""
    header, *committed = path.read_text().splitlines()
    about = json.loads(header)["header"]
    if not guest and about["kernel"] != platform.release():
        raise Refused(f"{path} is of kernel {about['kernel']}; this is {platform.release()} (or give --guest)")
    sizes = sorted({json.loads(line)["read_ahead_kb"] for line in committed})
    other, *recorded = _recorded(guest, about["fs"], None, sizes)
    if other != header:
        raise Refused(f"the header was {header}, is {other}")
    return _compare(committed, recorded)


def _compare(committed, recorded, fields=None):
    """Print how each reader differs, in these fields of its steps or all. Return the exit status."""
    old, new = ({(at["reader"], at["read_ahead_kb"]): at for at in map(json.loads, lines)}
                for lines in (committed, recorded))
    different = 0
    for key in [*old, *(key for key in new if key not in old)]:
        why = _difference(old.get(key), new.get(key), fields)
        different += why is not None
        print(f"{key[0]} {key[1]} KiB: {why or 'equal'}")
    print(f"{different} of {len(old.keys() | new.keys())} readers differ")
    return 1 if different else 0


def _difference(old, new, fields):
    if old is None or new is None:
        return "not in the file" if old is None else "only in the file"
    for number, (was, now) in enumerate(zip(old["steps"], new["steps"], strict=False)):
        if fields:
            was, now = ({key: value for key, value in step.items() if key in fields} for step in (was, now))
        if was != now:
            return f"step {number}: was {_json(was)}, is {_json(now)}"
    other = {"steps", "kernel", "fs"} if fields else {"steps"}
    without = [{key: value for key, value in at.items() if key not in other} for at in (old, new)]
    if without[0] != without[1] or len(old["steps"]) != len(new["steps"]):
        return f"was {_json(without[0])}, is {_json(without[1])}, or the number of steps differs"
    return None


def _record(fs, only, wanted):
    """Record the readers. Yield the lines of the recording."""
    if os.geteuid() != 0:
        raise Refused("mounting a file system and tracing the kernel need root")
    for program in (f"mkfs.{FILE_SYSTEMS[fs][0]}", "losetup", "mount", "umount"):
        if not _which(program):
            raise Refused(f"{program} is not installed")
    if unknown := set(only or ()) - {reader.name for reader in readers()}:
        raise Refused(f"no reader is called {', '.join(sorted(unknown))}")
    chosen = [replace(reader, read_ahead_kb=[size for size in reader.read_ahead_kb if not wanted or size in wanted])
              for reader in readers() if not only or reader.name in only]
    sizes = sorted({size for reader in chosen for size in reader.read_ahead_kb})
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="readahead-")))
        program = _program(folder)
        trace = Trace(undo)
        volume = Volume(undo, folder, fs)
        yield _json({"header": {
            "kernel": platform.release(), "fs": fs, "windows": bool(trace.windows),
            "max_sectors_kb": volume.queue("max_sectors_kb"), "optimal_io_size": volume.queue("optimal_io_size"),
            "read_ahead_kb": volume.queue("read_ahead_kb")}})
        recorded = {}
        for size in sizes:
            files = [(reader, f"{number}") for number, reader in enumerate(chosen) if size in reader.read_ahead_kb]
            volume.fill([(reader, name) for reader, name in files])
            volume.read_ahead(size)
            for reader, name in files:
                steps = _run(program, trace, volume, reader, volume.path / name)
                recorded[reader.name, size] = _json({
                    "kernel": platform.release(), "fs": fs, "reader": reader.name, "read_ahead_kb": size,
                    "file_bytes": reader.file_bytes, **({"data": reader.data} if reader.data else {}),
                    "steps": steps})
        for reader in chosen:
            for size in reader.read_ahead_kb:
                yield recorded[reader.name, size]


def _program(folder):
    """Compile reader.c, unless READER names it compiled."""
    if compiled := os.environ.get("READER"):
        return compiled
    if not _which("cc"):
        raise Refused("a C compiler (cc) is not installed")
    program = folder / "reader"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-o", program, HERE / "reader.c"], check=True)
    return program


def _run(program, trace, volume, reader, path):
    """Run one reader. Return its steps with the kernel's reaction to each."""
    about = path.stat()
    trace.begin(about.st_dev)
    ran = subprocess.run(
        [program, path, trace.path / "trace_marker", volume.block], text=True, check=False, capture_output=True,
        input="".join(_line(step) + "\n" for step in reader.steps))
    if ran.returncode:
        raise Refused(f"{reader.name}: {ran.stderr.strip()}")
    events = trace.end(about.st_dev, about.st_ino)
    results = [[int(number) for number in line.split()[1:]] for line in ran.stdout.splitlines()]
    assert len(results) == len(reader.steps), reader.name
    steps = []
    for number, (step, (result, minor, major)) in enumerate(zip(reader.steps, results, strict=True)):
        step = dict(step)
        if step["op"] == "read" and result != step["bytes"]:
            step["returned"] = result
        if step["op"] == "fault":
            step["faulted"] = minor + major > 0
            if step["faulted"]:
                step["faults"] = [minor, major]
        windows, added = events.get(number, ([], []))
        if windows:
            step["windows"] = windows
        if added:
            step["added"] = added
        steps.append(step)
    return steps


def _line(step):
    """The step as reader.c takes it."""
    match step:
        case {"op": "open" | "close" as op, "fd": fd}:
            return f"{op} {fd}"
        case {"op": "read", "fd": fd, "at": at, "bytes": length}:
            return f"read {fd} {at} {length}"
        case {"op": "advise", "fd": fd, "advice": advice}:
            return f"advise {fd} {POSIX_FADV[advice]} {step.get('at', 0)} {step.get('bytes', 0)}"
        case {"op": "map", "map": number, "fd": fd}:
            return f"{MAPS[step.get('kind', 'shared')]} {number} {fd} {step.get('page', 0)} {step.get('pages', 0)}"
        case {"op": "advise", "map": number, "advice": advice}:
            return f"madvise {number} {MADV[advice]}"
        case {"op": "fault", "map": number, "page": page}:
            return f"{'store' if step.get('write') else 'fault'} {number} {page}"
    raise ValueError(step)


class Trace:
    """A private instance of tracefs, in which only the events of one device are recorded."""

    def __init__(self, undo):
        if not (TRACEFS / "instances").is_dir():
            raise Refused(f"tracefs is not mounted: mount -t tracefs tracefs {TRACEFS}")
        if not (TRACEFS / "events" / ADDED).is_dir():
            raise Refused(f"this kernel has no event {ADDED}")
        self.path = TRACEFS / "instances" / f"readahead-{os.getpid()}"
        with _undivided():
            self.path.mkdir()
            undo.callback(self.path.rmdir)
        undo.callback(self._write, "tracing_on", "0")
        self.windows = {source: event for source, event in WINDOWS.items() if (TRACEFS / "events" / event).is_dir()}
        self._events = [ADDED, *self.windows.values()]
        self._write("buffer_size_kb", "4096")
        for event in self._events:
            self._write(f"events/{event}/enable", "1")
            undo.callback(self._write, f"events/{event}/enable", "0")
        self._order_known = "order" in (TRACEFS / "events" / ADDED / "format").read_text()

    def begin(self, device):
        """Forget the past; record the events of a device."""
        # The kernel's own form of a device number.
        number = os.major(device) << 20 | os.minor(device)
        self._write("tracing_on", "0")
        for event in self._events:
            self._write(f"events/{event}/filter", f"s_dev == {number}")
        self._write("trace", "")
        self._write("tracing_on", "1")

    def end(self, device, inode):
        """Return the windows and the added pages of each step, for one file."""
        self._write("tracing_on", "0")
        steps, at = {}, None
        for line in (self.path / "trace").read_text(errors="replace").splitlines():
            if "LOST" in line:
                raise Refused("the trace's buffer is too small: events were lost")
            if marker := re.search(r"tracing_mark_write: step (\w+)", line):
                at = int(marker[1]) if marker[1] != "end" else None
                continue
            event = re.search(r" (page_cache_ra_\w+|mm_filemap_add_to_page_cache): (.*)", line)
            if not event or at is None or not self._is_of(event[2], device, inode):
                continue
            windows, added = steps.setdefault(at, ([], []))
            fields = {NAMES.get(name, name): int(value, 0) for name, value in re.findall(
                r"(\w+)=(0x[0-9a-f]+|\d+)(?= |$)", event[2])}
            if event[1] == "mm_filemap_add_to_page_cache":
                # Kernels whose event has no order add single pages only.
                first, count = fields["ofs"] // PAGE, 1 << fields.get("order", 0)
                if added and sum(added[-1]) == first:
                    added[-1][1] += count
                else:
                    added.append([first, count])
            else:
                source = event[1].removeprefix("page_cache_ra_")
                windows.append({"start": fields["index"], "pages": fields["pages"], "async": fields["async"],
                                "order": fields.get("order", 0), "from": source})
        return steps

    @staticmethod
    def _is_of(text, device, inode):
        found = re.match(r"dev[ =](\d+):(\d+) ino[ =]([0-9a-f]+)", text)
        return found and (int(found[1]), int(found[2]), int(found[3], 16)) == (
            os.major(device), os.minor(device), inode)

    def _write(self, name, value):
        (self.path / name).write_text(value)


class Volume:
    """A file system on a loop device, with one file a reader."""

    def __init__(self, undo, folder, fs):
        self.path = folder / "mounted"
        self.path.mkdir()
        self._type, self._options, mkfs = FILE_SYSTEMS[fs]
        image = folder / "image"
        with open(image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run([_which(f"mkfs.{self._type}"), *mkfs, image], check=True, stdout=subprocess.DEVNULL)
        with _undivided():
            self._device = subprocess.run(
                [_which("losetup"), "--find", "--show", image], check=True, capture_output=True, text=True
            ).stdout.strip()
            undo.callback(subprocess.run, [_which("losetup"), "-d", self._device], check=True)
        self.block = Path("/sys/block") / Path(self._device).name
        for name, value in QUEUE.items():
            undo.callback((self.block / "queue" / name).write_text, str(self.queue(name)))
            (self.block / "queue" / name).write_text(str(value))
        undo.callback((self.block / "queue/read_ahead_kb").write_text, str(self.queue("read_ahead_kb")))
        (self.block / "queue/read_ahead_kb").write_text("128")
        undo.callback(self._unmount)
        self._mount()

    def queue(self, name):
        return int((self.block / "queue" / name).read_text())

    def fill(self, files):
        """Replace all files, and mount anew: nothing of them is cached then."""
        for old in self.path.iterdir():
            if old.is_file():
                old.unlink()
        for reader, name in files:
            with open(self.path / name, "wb") as file:
                for first, count in reader.data or [[0, -(-reader.file_bytes // PAGE)]]:
                    file.seek(first * PAGE)
                    # Not zeros, which a file system may store as a hole.
                    file.write(b"\xa5" * (count * PAGE))
                file.truncate(reader.file_bytes)
        self._unmount()
        self._mount()

    def read_ahead(self, size_kb):
        self._read_ahead_file().write_text(str(size_kb))
        if int(self._read_ahead_file().read_text()) != size_kb:
            raise Refused(f"read_ahead_kb cannot be {size_kb}")

    def _read_ahead_file(self):
        device = self.path.stat().st_dev
        return Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")

    def _mount(self):
        with _undivided():
            subprocess.run(
                [_which("mount"), "-t", self._type, "-o", self._options, self._device, self.path], check=True)

    def _unmount(self):
        if os.path.ismount(self.path):
            with _undivided():
                subprocess.run([_which("umount"), self.path], check=True)


@contextlib.contextmanager
def _undivided():
    """Delay Ctrl-C and `kill` to the end of the block: a thing is made and noted, or neither."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _json(value):
    return json.dumps(value, separators=(",", ":"))


def _which(program):
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


if __name__ == "__main__":
    main()
