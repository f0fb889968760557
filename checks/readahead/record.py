#!/usr/bin/env python3
"""Record which read-ahead the kernel does for each reader of readers.py.

  record.py --fs ext4 -o FILE               with this machine's kernel, as root
  record.py --guest 6.1 --fs f2fs -o FILE   with a kernel of Debian, emulated
  record.py --check FILE                    records again; prints each reader's first difference
  record.py --compare FILE FILE             the same of two recordings, whose kernels may differ:
                                            compares the pages added, and which pages fault

`make setup` unpacks the kernels for --guest into target/guest; FLASHSIFT_GUEST names another
folder. A guest needs qemu and no privileges. It is ended after FLASHSIFT_GUEST_SECONDS (1200).
"""

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workloads"))
from apps import testbed
from kernel import FILE_SYSTEMS, Refused, Trace, Volume, kernel_version
from readers import readers

HERE = Path(__file__).resolve().parent
POSIX_FADV = {"normal": 0, "random": 1, "sequential": 2, "willneed": 3, "dontneed": 4}
MADV = {"normal": 0, "random": 1, "sequential": 2, "willneed": 3}
MAPS = {"shared": "map", "private": "private", "executable": "exec"}
# Fields of a step that all kernels have and that have the same meaning there.
OF_ALL_KERNELS = {"op", "fd", "map", "at", "bytes", "page", "pages", "kind", "advice", "write", "returned", "added",
                  "faulted"}


def main():
    options = _options()
    testbed.end_on_signals(testbed.ENDING)
    try:
        if options.check:
            sys.exit(_check(options.check, options.guest))
        if options.compare:
            recordings = [_read(path)[1:] for path in options.compare]
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
    if absent := [program for program in ("qemu-system-x86_64", f"mkfs.{kind}") if not testbed.which(program)]:
        raise Refused(f"not installed: {', '.join(absent)}: make setup")
    with tempfile.TemporaryDirectory(prefix="readahead-") as out:
        out = Path(out)
        _program(out)
        # The guest's Debian Python is the one of this machine: others may need an environment.
        record = ["/usr/bin/python3", "-B", HERE / "record.py", "--fs", fs, "-o", "/out/recording"]
        if only:
            record += ["--only", *only]
        if sizes:
            record += ["--sizes", *sizes]
        command = f"READER=/out/reader {shlex.join(map(str, record))} 2> /out/log\n"
        try:
            testbed.guest(testbed.kernel(version), kind, out, command, 1200, 3072)
        except RuntimeError as error:
            log = (out / "log").read_text().strip() if (out / "log").exists() else ""
            raise Refused(f"in the guest: {log}" if log else error) from error
        return (out / "recording").read_text().splitlines()


def _read(path):
    """Return the lines of a recording."""
    try:
        lines = path.read_text().splitlines()
        if "header" in json.loads(lines[0]) and all("reader" in json.loads(line) for line in lines[1:]):
            return lines
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise Refused(f"{path} is not a recording: {error}") from error
    raise Refused(f"{path} is not a recording")


def _check(path, guest):
    """Compare a recording with a new one. Return the exit status."""
    header, *committed = _read(path)
    about = json.loads(header)["header"]
    if not guest and about["kernel"] != kernel_version():
        raise Refused(f"{path} is of kernel {about['kernel']}; this is {kernel_version()} (or give --guest)")
    sizes = sorted({json.loads(line)["read_ahead_kb"] for line in committed})
    other, *recorded = _recorded(guest, about["fs"], None, sizes)
    if other != header:
        raise Refused(f"the header was {header}, is {other}")
    return _compare(committed, recorded)


def _compare(committed, recorded, fields=None):
    """Print how each reader differs, in all or these fields of its steps. Return the status."""
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
    if absent := testbed.missing(FILE_SYSTEMS[fs][0]):
        raise Refused(f"not installed: {', '.join(absent)}")
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
            "kernel": kernel_version(), "fs": fs, "windows": bool(trace.windows),
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
                    "kernel": kernel_version(), "fs": fs, "reader": reader.name, "read_ahead_kb": size,
                    "file_bytes": reader.file_bytes, **({"data": reader.data} if reader.data else {}),
                    "steps": steps})
        for reader in chosen:
            for size in reader.read_ahead_kb:
                yield recorded[reader.name, size]


def _program(folder):
    """Compile reader.c, unless READER names it compiled."""
    if compiled := os.environ.get("READER"):
        return compiled
    if not testbed.which("cc"):
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


def _json(value):
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
