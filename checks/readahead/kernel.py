"""The kernel's side of a recording: a file system on a loop device, and a trace of its events."""

import contextlib
import os
import platform
import re
from pathlib import Path

from apps.testbed import device, mounted, undivided
from readers import PAGE

TRACEFS = Path("/sys/kernel/tracing")
IMAGE_BYTES = 768 << 20
# The device's settings; a loop device keeps those of its last user.
# max_sectors_kb: longest request. The kernel takes it into account, and eMMC has this.
# rq_affinity: a request ends on the processor that sent it, so all its pages are up to date before
# the reader goes on there. Otherwise page faults would depend on the order of the two.
QUEUE = {"max_sectors_kb": 512, "rq_affinity": 2}
# Type, and options of the mount. Nothing but the readers' own reads reaches the device: no
# lazy initialisation, no background work. ext4 with data=journal has no large folios, as F2FS.
FILE_SYSTEMS = {
    "ext4": ("ext4", "noatime"),
    "ext4-data-journal": ("ext4", "noatime,data=journal"),
    "f2fs": ("f2fs", "noatime,background_gc=off"),
}
ADDED = "filemap/mm_filemap_add_to_page_cache"
WINDOWS = {"order": "readahead/page_cache_ra_order", "unbounded": "readahead/page_cache_ra_unbounded"}
NAMES = {"size": "pages", "async_size": "async", "nr_to_read": "pages", "lookahead_size": "async"}


class Refused(Exception):
    """The recording cannot be made here."""


def kernel_version():
    """The version of the kernel's source: 6.18.44, or Debian's package, 6.1.176-1."""
    debian = re.search(r"Debian (\S+)", platform.version())
    return debian[1] if debian else re.match(r"[\d.]+\d", platform.release())[0]


class Trace:
    """A private instance of tracefs, in which only the events of one device are recorded."""

    def __init__(self, undo):
        if not (TRACEFS / "instances").is_dir():
            raise Refused(f"tracefs is not mounted: mount -t tracefs tracefs {TRACEFS}")
        if not (TRACEFS / "events" / ADDED).is_dir():
            raise Refused(f"this kernel has no event {ADDED}")
        self.path = TRACEFS / "instances" / f"readahead-{os.getpid()}"
        with undivided():
            self.path.mkdir()
            undo.callback(self.path.rmdir)
        undo.callback(self._write, "tracing_on", "0")
        self.windows = {source: event for source, event in WINDOWS.items() if (TRACEFS / "events" / event).is_dir()}
        self._events = [ADDED, *self.windows.values()]
        self._write("buffer_size_kb", "4096")
        for event in self._events:
            self._write(f"events/{event}/enable", "1")
            undo.callback(self._write, f"events/{event}/enable", "0")

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
        self._type, self._options = FILE_SYSTEMS[fs]
        self._device = undo.enter_context(device(folder / "image", IMAGE_BYTES, self._type))
        self.block = Path("/sys/block") / Path(self._device).name
        for name, value in QUEUE.items():
            undo.callback((self.block / "queue" / name).write_text, str(self.queue(name)))
            (self.block / "queue" / name).write_text(str(value))
        undo.callback((self.block / "queue/read_ahead_kb").write_text, str(self.queue("read_ahead_kb")))
        (self.block / "queue/read_ahead_kb").write_text("128")
        self._mounted = undo.enter_context(contextlib.ExitStack())
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
        self._mounted.close()
        self._mount()

    def read_ahead(self, size_kb):
        self._read_ahead_file().write_text(str(size_kb))
        if int(self._read_ahead_file().read_text()) != size_kb:
            raise Refused(f"read_ahead_kb cannot be {size_kb}")

    def _read_ahead_file(self):
        device = self.path.stat().st_dev
        return Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")

    def _mount(self):
        self._mounted.enter_context(mounted(self._device, self.path, self._type, self._options))
