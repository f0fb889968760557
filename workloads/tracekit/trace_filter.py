"""Drop the lines of an strace recording that say nothing about files.

One pass, line by line, no clock and no randomness: the same input always
gives the same output.  Lines are dropped whole or kept byte for byte; the one
rewrite is the host name (see `hide_host`).
"""

import collections
import os
import re

_LINE = re.compile(r"(?P<pid>\d+) +(?P<time>\d+\.\d+) (?P<rest>.*)\n?")
_RESUMED = re.compile(r"<\.\.\. (?P<call>\w+) resumed>")
_ENTRY = re.compile(r"(?P<call>\w+)\((?P<args>.*)")
# With -y a descriptor prints as 5</path>, 5<pipe:[123]>, 5<socket:[4]>,
# 5<anon_inode:[eventpoll]>; '<' and '>' inside a path print as octal escapes.
_DESCRIPTOR = re.compile(r"\d+<(?P<name>[^>]*)>(?P<deleted>\(deleted\))?")
_LAST_DESCRIPTOR = re.compile(r".*, " + _DESCRIPTOR.pattern + r", ")  # mmap's

# Calls whose first argument is a descriptor and which matter only when that
# is a file.
_BY_DESCRIPTOR = frozenset("""
close read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
lseek fcntl fstat ftruncate
""".split())
_MAKES_NO_FILE = frozenset("pipe2 socket eventfd2 epoll_create1 memfd_create".split())
_OPENS = frozenset("open openat openat2 creat".split())
_PATH_ARGUMENT = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<base>[^>]*)>, )?"(?P<path>[^"]*)"')
# The C library's fstat is newfstatat with an empty name.
_STAT = frozenset("newfstatat statx".split())
_STAT_BY_DESCRIPTOR = re.compile(_DESCRIPTOR.pattern + r', "", ')
# File systems without a device below them: nothing there is ever written back.
_NOT_ON_DISK = ("/proc/", "/sys/", "/dev/", "/memfd:")


class TraceFilter:
    """Feed it lines; it says which to keep and counts what it drops."""

    def __init__(self, hide_host=None):
        self.dropped = collections.Counter()
        self.kept = collections.Counter()
        self._host = hide_host
        # What was decided for the call a process is in the middle of: the
        # decision falls when the call is entered and holds for its other half.
        self._halfway = {}
        # Mapped files' address ranges, start to end, in all processes
        # together and never forgotten: an munmap may be kept needlessly, never
        # dropped wrongly.
        self._mapped = {}

    def keep(self, line):
        """The line to write out, or None."""
        match = _LINE.fullmatch(line)
        if not match:
            raise ValueError(f"not a line of strace -f -ttt: {line!r}")
        pid, rest = match["pid"], match["rest"]
        resumed = _RESUMED.match(rest)
        if resumed:
            call = resumed["call"]
            reason, entered = self._halfway.pop(pid, (None, ""))
        else:
            entry = _ENTRY.match(rest)
            # Signals (---) and ends of processes (+++) are always kept.
            call = entry["call"] if entry else rest[:3]
            reason = self._reason_to_drop(call, entry["args"]) if entry else None
            entered = entry["args"] if entry else ""
        if rest.endswith("<unfinished ...>"):
            self._halfway[pid] = reason, entered
        elif call == "mmap" and not reason:
            self._note_mapping(entered, rest)
        if reason:
            self.dropped[reason] += 1
            return None
        self.kept[call] += 1
        return self._without_host(call, line)

    def _reason_to_drop(self, call, args):
        if call in _MAKES_NO_FILE:
            return "new pipe, socket, event or memory descriptor"
        if call in _BY_DESCRIPTOR:
            return self._reason_by_name(_DESCRIPTOR.match(args))
        if call in _STAT:
            by_descriptor = _STAT_BY_DESCRIPTOR.match(args)
            return self._reason_by_name(by_descriptor) if by_descriptor else "stat by name"
        if call in _OPENS:
            path = _PATH_ARGUMENT.match(args)
            if path and os.path.join(path["base"] or "", path["path"]).startswith(_NOT_ON_DISK):
                return "file in /proc, /sys or /dev"
        if call == "mmap":
            descriptor = _LAST_DESCRIPTOR.match(args)
            return self._reason_by_name(descriptor) if descriptor else "mmap of no file"
        if call == "munmap":
            return None if self._hits_mapping(args) else "munmap of no file"
        return None

    def _reason_by_name(self, descriptor):
        if not descriptor:
            return "descriptor that is not open"
        if not descriptor["name"].startswith("/"):
            return "pipe, socket or event descriptor"
        if descriptor["name"].startswith(_NOT_ON_DISK):
            return "file in /proc, /sys or /dev"
        return None

    def _note_mapping(self, args, rest):
        length = re.match(r"[^,]*, (\d+)", args)
        address = re.search(r" = 0x([0-9a-f]+)$", rest)
        if length and address:
            start = int(address[1], 16)
            end = start + int(length[1])
            self._mapped[start] = max(end, self._mapped.get(start, 0))

    def _hits_mapping(self, args):
        match = re.match(r"0x([0-9a-f]+), (\d+)", args)
        if not match:
            return False
        start = int(match[1], 16)
        end = start + int(match[2])
        return any(start < high and low < end for low, high in self._mapped.items())

    def _without_host(self, call, line):
        """Chromium's lock is a link to "<host>-<pid>"; the host goes."""
        if self._host and call in ("symlink", "symlinkat"):
            return line.replace(f'"{self._host}-', '"host-', 1)
        return line
