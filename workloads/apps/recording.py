"""Record the workloads with flashsift, each on a fresh ext4 on a loop device.

Leaves for each NAME.parquet and its card NAME.json in the folder of --out,
and there a README.md with what all cards say. Needs root. Nothing else
stays: the file systems live in files without a name, mounted below /mnt where
no other process sees them.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .run import WorkloadError

HERE = Path(__file__).resolve().parent.parent
MINUTES = {"browser": 30, "map": 30, "feed": 20, "game": 12, "messenger": 12, "video": 12}
FILE_SYSTEM_BYTES = 8 << 30
# Time limit for a recorder to end after a signal.
END_TIMEOUT_S = 60
IN_NAMESPACE = "FLASHSIFT_RECORD_ALL"
# Mount points with short names for traces: the first that hides nothing that is needed.
PLACES = ("/mnt", "/media", "/srv")


def main():
    options = _options()
    try:
        if os.geteuid():
            raise WorkloadError("mounting and tracing need root: run it with sudo")
        missing = [p for p in ("mkfs.ext4", "mount", "umount", "unshare") if shutil.which(p) is None]
        if missing:
            packages = "e2fsprogs mount util-linux"
            raise WorkloadError(f"not found in PATH: {', '.join(missing)} (on Debian: apt-get install {packages})")
        if IN_NAMESPACE not in os.environ:
            # A mount namespace of its own, whose mounts end with this process.
            os.environ[IN_NAMESPACE] = "1"
            os.execvp("unshare", ["unshare", "--mount", "--", sys.executable, *sys.argv])
        _record(options)
    except (WorkloadError, OSError) as error:
        sys.exit(f"record-all: {error}")


def _options():
    parser = argparse.ArgumentParser(
        prog="record-all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MINUTES, metavar="NAME", default=list(MINUTES),
                        help=f"of {' '.join(MINUTES)} (default: all)")
    parser.add_argument("--minutes-scale", type=float, default=1, metavar="X",
                        help="times the usual minutes: " + ", ".join(f"{n} {m}" for n, m in MINUTES.items()))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("testdata"), metavar="DIR", help="default testdata")
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"), metavar="DIR",
                        help="where the file systems' files lie, some GB, sparse (default /var/tmp)")
    parser.add_argument("--flashsift", default=None, metavar="PROGRAM",
                        help="default: target/release/flashsift, else the one in PATH")
    parser.add_argument("--exact", action="store_true", help="record bytes, not pages")
    parser.add_argument("--parallel", type=int, default=6, metavar="N", help="workloads at once (default 6)")
    return parser.parse_args()


def _record(options):
    flashsift = _flashsift(options.flashsift)
    options.out.mkdir(parents=True, exist_ok=True)
    place = _cover(options.out, options.scratch, HERE, flashsift)
    waiting, running, failed = list(options.only), [], []
    signals = _signals()
    with tempfile.TemporaryDirectory(prefix="record-all-", dir=options.scratch) as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < options.parallel:
                    running.append(_Recording(waiting.pop(0), options, flashsift, place, Path(scratch)))
                    running[-1].start()
                ended = select.select([signals, *(recording.ended for recording in running)], [], [])[0]
                if signals in ended:
                    sys.exit(128 + os.read(signals, 1)[0])
                for recording in [r for r in running if r.ended in ended]:
                    running.remove(recording)
                    try:
                        recording.finish()
                    except WorkloadError as error:
                        _say(error)
                        failed.append(recording.name)
        finally:
            for recording in running:
                recording.stop()
    _write_readme(options.out)
    if failed:
        raise WorkloadError(f"not recorded: {', '.join(failed)}")


def _write_readme(folder):
    """Write a page with the content of all cards of the folder, for people."""
    cards = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows = [
        f"| `{card['trace']}` | {', '.join(card['workload']['programs'])} | {card['workload']['wall_s'] / 60:.0f} min "
        f"| {_requests(card)} | {card['bytes']} | {card['mode']} | {card['lost']} |"
        for card in cards
    ]
    details = []
    for card in cards:
        workload = card["workload"]
        details += [
            f"\n## {workload['workload']}\n",
            f"* `{card['command']}`",
            f"* {card['recorded']}, {card['flashsift']}, {card['kernel']}",
            f"* {card['file_system']}",
            "* " + ", ".join(workload["programs"].values()),
            "* " + ", ".join(f"{n} × {name}" for name, n in workload["actions"].items()),
        ]
    temporary = folder / "README.md.tmp"
    temporary.write_text(HEAD + "\n".join(rows + details) + "\n")
    temporary.replace(folder / "README.md")


def _requests(card):
    return f"{card['describe']['requests']}" if card["describe"] else "?"


def _signals():
    """Return a descriptor that becomes readable at a signal to end, checked between steps."""
    readable, writable = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.write(writable, bytes([number])))
    return readable


def _cover(*needed):
    """Cover a folder with an empty one, in this mount namespace only."""
    for place in map(Path, PLACES):
        if place.is_dir() and not any(Path(path).resolve().is_relative_to(place) for path in needed):
            _run("mount", "-t", "tmpfs", "flashsift", place)
            return place
    raise WorkloadError(f"none of {' '.join(PLACES)} is free: each is absent, or holds the project, --out or --scratch")


def _flashsift(given):
    for name in [given] if given else [str(HERE.parent / "target/release/flashsift"), "flashsift"]:
        if found := shutil.which(name):
            return str(Path(found).resolve())
    raise WorkloadError(f"no such program: {name} (build it by make build, or give its path by --flashsift)")


def _say(text):
    print(text, file=sys.stderr, flush=True)


HEAD = """# Recorded traces

Accesses of real programs to their files, before any cache, recorded by
`flashsift record` on ext4. The programs were not written for this project;
the load was, by the scripts in `workloads/`. `workloads/record-all` wrote
this page and the cards next to the traces (`NAME.json`), which contain all
messages of the recorder, the actions, and `flashsift describe --json` without
the data of figures.

The seed gives the same actions with the same pauses between them, not the
same trace: threads and timers differ from run to run.

| trace | programs | wall time | requests | bytes | mode | lost |
|---|---|---|---|---|---|---|
"""


class _Recording:
    def __init__(self, name, options, flashsift, place, scratch):
        self.name = name
        self._flashsift = flashsift
        self._minutes = MINUTES[name] * options.minutes_scale
        self._mount = place / name
        self._image = scratch / f"{name}.img"
        self._log = scratch / f"{name}.log"
        self._summary = scratch / f"{name}.json"
        self.trace = options.out.resolve() / f"{name}.parquet"
        self._command = [
            flashsift, "record", "-o", self.trace, "--path", self._mount, *(["--exact"] if options.exact else []), "--",
            HERE / name, "--dir", self._mount, "--seed", options.seed, "--minutes", f"{self._minutes:g}",
        ]

    def start(self):
        """Make the file system and begin; `ended` becomes readable at the end."""
        self._mount.mkdir()
        with open(self._image, "wb") as image:
            image.truncate(FILE_SYSTEM_BYTES)
        _run("mkfs.ext4", "-q", "-F", self._image)
        _run("mount", "-o", "loop", self._image, self._mount)
        # Lives on while mounted, and is gone with the mount.
        self._image.unlink()
        self._began = time.strftime("%Y-%m-%d", time.gmtime())
        with open(self._log, "wb") as log, open(self._summary, "wb") as summary:
            self._process = subprocess.Popen(
                [str(part) for part in self._command],
                stdin=subprocess.DEVNULL, stdout=summary, stderr=log, start_new_session=True,
            )
        self.ended = os.pidfd_open(self._process.pid)
        _say(f"{self.name}: {self._minutes:g} minutes, into {self.trace}")

    def finish(self):
        status = self._process.wait()
        self._clean()
        log = self._log.read_text(errors="replace")
        if status:
            raise WorkloadError(f"{self.name}: {self._flashsift} record ended with {status}:\n{log.strip()}")
        lines = [line for line in self._summary.read_text().splitlines() if line.startswith('{"workload"')]
        if len(lines) != 1:
            raise WorkloadError(f"{self.name}: the workload printed no summary:\n{log.strip()}")
        card = self._card(json.loads(lines[0]), log.splitlines())
        path = self.trace.with_suffix(".json")
        temporary = path.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
        temporary.replace(path)
        _say(f"{self.name}: {card['bytes']} bytes; lost: {card['lost']}")

    def stop(self):
        """Ask the recorder and the workload to end, then make them."""
        for number, timeout_s in ((signal.SIGTERM, END_TIMEOUT_S), (signal.SIGKILL, END_TIMEOUT_S)):
            end = time.monotonic() + timeout_s
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
                while time.monotonic() < end:
                    self._process.poll()
                    os.killpg(self._process.pid, 0)
                    time.sleep(0.1)
        self._clean()

    def _clean(self):
        os.close(self.ended)
        # A lazy unmount ends when the last process releases the mount.
        if subprocess.run(["umount", str(self._mount)], capture_output=True).returncode:
            _run("umount", "--lazy", self._mount)
        self._mount.rmdir()

    def _card(self, workload, log):
        # Paths of the recording machine stay private.
        log = [line.replace(f"{self.trace.parent}/", "") for line in log]
        described = subprocess.run([self._flashsift, "describe", "--json", self.trace], capture_output=True, text=True)
        return {
            "trace": self.trace.name,
            "bytes": self.trace.stat().st_size,
            "recorded": self._began,
            "kernel": f"Linux {platform.release().partition('-')[0]} {platform.machine()}, {os.cpu_count()} CPUs",
            "file_system": f"ext4 on a loop device, by {_run('mkfs.ext4', '-V').splitlines()[0]} without options",
            "flashsift": _run(self._flashsift, "--version").strip(),
            "command": self._shown(),
            "mode": "exact" if "--exact" in self._command else "pages",
            # The recorder names each loss, and prints nothing without one; then all its messages.
            "lost": "; ".join(line.strip() for line in log if re.search(r"\blost\b", line, re.I)) or "nothing",
            "recorder": log,
            "workload": workload,
            "describe": _short(json.loads(described.stdout)) if described.returncode == 0 else None,
        }

    def _shown(self):
        """The command as a user would type it."""
        names = {self._flashsift: "flashsift", self.trace: self.trace.name, HERE / self.name: f"workloads/{self.name}"}
        return " ".join(str(names.get(part, part)) for part in self._command)


def _short(described):
    """Leave out the tables of figures, which can be computed again from the trace."""
    if isinstance(described, dict):
        short = {key: _short(value) for key, value in described.items()}
        return {key: value for key, value in short.items() if not (isinstance(value, list) and len(value) > 300)}
    return described


def _run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise WorkloadError(f"{command[0]} ended with {done.returncode}: {done.stdout.strip()}")
    return done.stdout
