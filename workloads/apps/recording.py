"""Record the workloads with flashsift, each on a fresh file system on a loop device.

Leaves for each NAME.parquet and its card NAME.json in the folder of --out or
its folder days, and there a README.md with what all cards say. Pauses that were shortened are
restored in the trace. Their list is NAME.pauses.csv.xz, and what servers were
asked is NAME.requests.jsonl.xz. Needs root. Nothing else stays: the file
systems live in files without a name, mounted below /mnt where no other
process sees them.
"""

import argparse
import contextlib
import json
import lzma
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
from dataclasses import dataclass
from pathlib import Path

from . import testbed
from .device_counts import DeviceCounts
from .run import WorkloadError

HERE = Path(__file__).resolve().parent.parent
FILE_SYSTEM_BYTES = 8 << 30
# Browsers make their caches larger where much is free.
LARGE_FILE_SYSTEM_BYTES = 48 << 30
# Longer than the timers of browsers: Chromium writes its history after 10 s, cookies after 30 s.
BROWSER_KEEP_PAUSE_S = 40
SKIMMER_KEEP_PAUSE_S = 5
# Of programs without timers of their own.
KEEP_PAUSE_S = 2
SQL_KEEP_PAUSE_S = 0.05
# Of --short.
SHORT_KEEP_PAUSE_S = 0.05
# The options of the mount of each file system, and the word that asks its mkfs for its version.
FILE_SYSTEMS = {"ext4": (("-o", testbed.UNFILLED), "-V"), "xfs": ((), "-V"), "btrfs": ((), "--version")}
# Time limit for a recorder to end after a signal.
END_TIMEOUT_S = 60
IN_NAMESPACE = "FLASHSIFT_RECORD_ALL"
SQL_VARIABLE = "FLASHSIFT_SQL"
# Mount points with short names for traces: the first that hides nothing that is needed.
PLACES = ("/mnt", "/media", "/srv")


@dataclass(frozen=True)
class Plan:
    """How one recording is made."""

    workload: str
    minutes: float
    seed: int = 7
    options: tuple = ()
    # train, tune or test: what the recording may be used for.
    split: str | None = None
    keep_pause_s: float | None = None
    file_system_bytes: int = FILE_SYSTEM_BYTES
    # NAME.loading.sql.xz and NAME.statements.sql.xz of --sql.
    sql: str | None = None
    # Of --short.
    short_s: float = 10
    short_options: tuple = ()


# Of --short: all with one return, after a day.
SHORT_RETURNS = ("--returns", "0", "24")


def _browser(seed, split, browser="chromium"):
    return Plan("browser-days", 150, seed, ("--browser", browser), split, BROWSER_KEEP_PAUSE_S,
                LARGE_FILE_SYSTEM_BYTES, short_s=60, short_options=SHORT_RETURNS)


def _skimmer(seed, split, minutes=240):
    """A person with many pages, so that the cache becomes large."""
    return Plan("browser-days", minutes, seed, ("--browser", "chromium", "--dwell", "2.5"), split, SKIMMER_KEEP_PAUSE_S,
                LARGE_FILE_SYSTEM_BYTES, short_s=60, short_options=SHORT_RETURNS)


def _pc(workload, minutes, seed, split, *short_options):
    return Plan(workload, minutes, seed, (), split, KEEP_PAUSE_S, LARGE_FILE_SYSTEM_BYTES, short_s=60,
                short_options=(*SHORT_RETURNS, *short_options))


def _sql(app, journal, split):
    return Plan("messenger", 60, 7, ("--journal", journal), split, SQL_KEEP_PAUSE_S, sql=app)


PLANS = {
    "browser": Plan("browser", 30, short_s=20),
    "map": Plan("map", 30),
    "feed": Plan("feed", 20),
    "game": Plan("game", 12),
    "messenger": Plan("messenger", 12),
    "video": Plan("video", 12),
    "browser-days-1": _browser(101, "train"),
    "browser-days-2": _browser(102, "tune"),
    "browser-days-3": _skimmer(103, "test", 330),
    "browser-days-4": _skimmer(104, "tune"),
    "browser-days-5": _skimmer(105, "train"),
    "firefox-days-1": _browser(111, "test", "firefox"),
    "desktop-1": _pc("desktop", 90, 121, "train", "--mails", "100"),
    "desktop-2": _pc("desktop", 90, 122, "tune", "--mails", "100"),
    "desktop-3": _pc("desktop", 90, 123, "test", "--mails", "100"),
    "photos-1": _pc("photos", 60, 131, "train", "--albums", "1", "--negatives", "3"),
    "photos-2": _pc("photos", 60, 132, "test", "--albums", "1", "--negatives", "3"),
    "photos-3": _pc("photos", 60, 133, "tune", "--albums", "1", "--negatives", "3"),
    "offline-1": _pc("offline", 60, 141, "train", "--episodes", "2"),
    "offline-2": _pc("offline", 60, 142, "test", "--episodes", "2"),
    "launch-1": _pc("launch", 60, 151, "train"),
    "launch-2": _pc("launch", 60, 152, "test"),
    # At a person's pace, with closes and folios, which the first recordings do not have.
    "browser-2": Plan("browser", 30, 161, (), "test", short_s=20),
    "map-2": Plan("map", 30, 162, (), "test"),
    "feed-2": Plan("feed", 20, 163, (), "test"),
    **{f"{app}-{journal.lower()}": _sql(app, journal, split)
       for app, split in (("facebook", "train"), ("calendar", "test")) for journal in ("DELETE", "WAL", "TRUNCATE")},
}


def main():
    options = _options()
    try:
        if os.geteuid():
            raise WorkloadError("mounting and tracing need root: run it with sudo")
        missing = testbed.missing(options.file_system)
        if missing:
            packages = "e2fsprogs xfsprogs btrfs-progs mount util-linux"
            raise WorkloadError(f"not found: {', '.join(missing)} (on Debian: apt-get install {packages})")
        if IN_NAMESPACE not in os.environ:
            # A mount namespace of its own, whose mounts end with this process.
            os.environ[IN_NAMESPACE] = "1"
            os.execvp("unshare", ["unshare", "--mount", "--", sys.executable, *sys.argv])
        _record(options)
    except (RuntimeError, OSError) as error:
        sys.exit(f"record-all: {error}")


def _options():
    parser = argparse.ArgumentParser(
        prog="record-all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PLANS, metavar="NAME",
                        help=f"of {' '.join(PLANS)} (default: all; with --short one of each kind)")
    parser.add_argument("--minutes-scale", type=float, default=1, metavar="X",
                        help="times the usual minutes: " + ", ".join(f"{n} {p.minutes}" for n, p in PLANS.items()))
    parser.add_argument("--short", action="store_true",
                        help="some seconds of each, pauses shortened to nearly nothing, to see that all works")
    parser.add_argument("--seed", type=int, help="instead of each recording's own")
    parser.add_argument("--sql", type=Path, metavar="DIR", default=os.environ.get(SQL_VARIABLE),
                        help="folder of NAME.loading.sql.xz and NAME.statements.sql.xz for the databases of "
                             f"facebook and calendar, which are left out without it (default: ${SQL_VARIABLE})")
    parser.add_argument("--raw", type=Path, metavar="DIR",
                        help="keep there the traces before pauses were restored")
    parser.add_argument("--out", type=Path, metavar="DIR",
                        help="default testdata, without --short; recordings with a split go to DIR/days")
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"), metavar="DIR",
                        help="where the file systems' files lie, some GB, sparse (default /var/tmp)")
    parser.add_argument("--flashsift", default=None, metavar="PROGRAM",
                        help="default: target/release/flashsift, else the one in PATH")
    parser.add_argument("--file-system", choices=FILE_SYSTEMS, default="ext4",
                        help="what the programs write to (default ext4)")
    parser.add_argument("--exact", action="store_true", help="record bytes, not pages")
    parser.add_argument("--parallel", type=int, default=6, metavar="N", help="workloads at once (default 6)")
    options = parser.parse_args()
    if options.out is None:
        if options.short:
            parser.error("--short needs --out: it must not replace recordings")
        options.out = Path("testdata")
    options.sql = options.sql and Path(options.sql)
    if options.only is None:
        # One of each kind: those whose commands differ by more than the seed.
        kinds = {(plan.workload, plan.options): name for name, plan in reversed(PLANS.items())}
        options.only = [name for name in PLANS if not options.short or name in kinds.values()]
    return options


def _record(options):
    flashsift = _flashsift(options.flashsift)
    folders = {_folder(options.out, PLANS[name]) for name in options.only}
    for folder in filter(None, (options.out, options.raw, *folders)):
        folder.mkdir(parents=True, exist_ok=True)
    without = [name for name in options.only if PLANS[name].sql and not options.sql]
    if without:
        _say(f"left out, as they need --sql: {', '.join(without)}")
    options.only = [name for name in options.only if name not in without]
    place = _cover(*filter(None, (options.out, options.raw, options.sql)), options.scratch, HERE, flashsift)
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
                    except RuntimeError as error:
                        _say(error)
                        failed.append(recording.name)
        finally:
            for recording in running:
                recording.stop()
    for folder in folders:
        _write_readme(folder)
    if failed:
        raise WorkloadError(f"not recorded: {', '.join(failed)}")


def _folder(out, plan):
    """Recordings with a split are apart from the oldest ones, which tests expect as they are."""
    return out / "days" if plan.split else out


def _write_readme(folder):
    """Write a page with the content of all cards of the folder, for people."""
    cards = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows = [
        f"| `{card['trace']}` | {', '.join(card['workload']['programs'])} | {card['workload']['wall_s'] / 60:.0f} min "
        f"| {_span(card)} | {_requests(card)} | {card['bytes']} | {card['mode']} "
        f"| {card.get('split', '')} | {card['lost']} |"
        for card in cards
    ]
    details = []
    for card in cards:
        workload = card["workload"]
        details += [
            f"\n## {card['trace'].removesuffix('.parquet')}\n",
            f"* `{card['command']}`",
            f"* {card['recorded']}, {card['flashsift']}, {card['kernel']}",
            f"* {card['file_system']}",
            "* " + ", ".join(workload["programs"].values()),
            "* " + ", ".join(f"{n} × {name}" for name, n in workload["actions"].items()),
            *(f"* {text}" for text in _further(workload)),
            *(f"* {text}" for text in _device(card.get("device"))),
            # Added by hand, where a recording has a flaw.
            *([f"* {card['note']}"] if "note" in card else []),
        ]
    temporary = folder / "README.md.tmp"
    temporary.write_text(HEAD + "\n".join(rows + details) + "\n")
    temporary.replace(folder / "README.md")


def _further(workload):
    """Facts that only some workloads have."""
    if pauses := workload.get("pauses"):
        yield (f"{pauses['shortened']} of {pauses['all']} pauses were shortened while recording, by "
               f"{pauses['cut_s'] / 3600:.1f} h in all, and are restored in the trace")
    if asked := workload.get("requests"):
        yield (f"servers: {asked['requests']} requests for {asked['urls']} URLs, {asked['bytes'] / 1e6:.0f} MB; "
               f"{asked['not_modified']} answers said that the copy is still good; "
               f"{asked['again']} URLs were served again in full, {asked['bytes_again'] / 1e6:.0f} MB")
    if web := workload.get("web"):
        yield f"web: {web}"


def _device(reached):
    """A sentence about the requests that the block layer sent to the device."""
    if reached:
        data, metadata = (reached[f"{kind}_written_bytes"] / 1e6 for kind in ("data", "metadata"))
        yield (f"the device got {data:.1f} MB of file data and {metadata:.1f} MB of journal and metadata in "
               f"{reached['write_requests']} requests, and {reached['flushes']} flushes"
               + (f"; {reached['lost']} requests were not counted" if reached["lost"] else ""))


def _span(card):
    """From the first to the last event of the trace."""
    return f"{card['describe']['duration_us'] / 3.6e9:.1f} h" if card["describe"] else "?"


def _requests(card):
    return f"{card['describe']['requests']}" if card["describe"] else "?"


def _signals():
    """Return a descriptor that becomes readable at a signal to end, checked between steps."""
    readable, writable = os.pipe()
    for number in testbed.ENDING:
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

*Recorded* is the time that the recording took, *span* the time from the first
to the last event. It is longer where long pauses were shortened while
recording and restored in the trace (`NAME.pauses.csv.xz`). *Split* says what a
trace is for: policies and parameters are chosen on *train* and *tune*, results
are reported on *test*. `NAME.requests.jsonl.xz` lists what the programs asked
of the workload's servers.

| trace | programs | recorded | span | requests | bytes | mode | split | lost |
|---|---|---|---|---|---|---|---|---|
"""


class _Recording:
    def __init__(self, name, options, flashsift, place, scratch):
        self.name = name
        self._plan = plan = PLANS[name]
        self._flashsift = flashsift
        self._minutes = plan.short_s / 60 if options.short else plan.minutes * options.minutes_scale
        self._mount_options, made_by = FILE_SYSTEMS[options.file_system]
        self._made_by = (f"mkfs.{options.file_system}", made_by)
        self._file_system = options.file_system
        self._mount = place / name
        self._image = scratch / f"{name}.img"
        self._log = scratch / f"{name}.log"
        self._summary = scratch / f"{name}.json"
        self._pauses = scratch / f"{name}.pauses.csv"
        self._requests = scratch / f"{name}.requests.jsonl"
        self._raw = scratch / f"{name}.raw.parquet"
        self._keep_raw = options.raw and options.raw.resolve()
        self.trace = _folder(options.out, plan).resolve() / f"{name}.parquet"
        keep_pause_s = plan.keep_pause_s and (SHORT_KEEP_PAUSE_S if options.short else plan.keep_pause_s)
        seed = plan.seed if options.seed is None else options.seed
        self._inputs = [options.sql.resolve() / f"{plan.sql}.{part}.sql.xz" for part in ("loading", "statements")
                        ] if plan.sql else []
        self._command = [
            flashsift, "record", "-o", self._raw, "--path", self._mount, *(["--exact"] if options.exact else []), "--",
            HERE / plan.workload, "--dir", self._mount, "--seed", seed, "--minutes", f"{self._minutes:g}",
            *plan.options, *(plan.short_options if options.short else ()), "--requests", self._requests,
            *(["--load", self._inputs[0], "--sql", self._inputs[1]] if plan.sql else []),
            *(["--keep-pause", keep_pause_s, "--pauses", self._pauses] if keep_pause_s else []),
        ]

    def start(self):
        """Make the file system and begin; `ended` becomes readable at the end."""
        self._mount.mkdir()
        testbed.image(self._image, self._plan.file_system_bytes, self._file_system)
        # Image and device live on while mounted, and are gone with the mount.
        with testbed.loop(self._image) as device:
            self._image.unlink()
            self._device = DeviceCounts(device, self.name)
            _run("mount", *self._mount_options, device, self._mount)
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
        summary = summary_in(self._summary.read_text(), f"{self.name}:\n{log.strip()}")
        log = log.splitlines()
        self._restore(log)
        card = self._card(summary, log)
        write_card(self.trace, card)
        _say(f"{self.name}: {card['bytes']} bytes; lost: {card['lost']}")

    def _restore(self, log):
        """Make the trace from what was recorded: with its pauses, and with the servers' sums."""
        given = ["--split", self._plan.split] if self._plan.split else []
        if self._pauses.exists():
            given += ["--pauses", self._pauses]
            _pack(self._pauses, self.trace.with_suffix(".pauses.csv.xz"))
        if self._requests.exists() and self._requests.stat().st_size:
            given += ["--requests", self._requests]
            _pack(self._requests, self.trace.with_suffix(".requests.jsonl.xz"))
        if self._keep_raw:
            for path in (self._raw, self._requests, self._pauses):
                if path.exists():
                    shutil.copy(path, self._keep_raw)
        if given:
            done = _run(self._flashsift, "import", self._raw, "-o", self.trace, *given)
            log += done.splitlines()
        else:
            shutil.move(self._raw, self.trace)

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
            self._device.end()
            self._reached = None
        else:
            self._reached = self._device.end()
        self._mount.rmdir()

    def _card(self, workload, log):
        # Paths of the recording machine stay private.
        for folder in (self.trace.parent, self._raw.parent):
            log = [line.replace(f"{folder}/", "") for line in log]
        described = subprocess.run([self._flashsift, "describe", "--json", self.trace], capture_output=True, text=True)
        return {
            "trace": self.trace.name,
            **({"split": self._plan.split} if self._plan.split else {}),
            "bytes": self.trace.stat().st_size,
            "recorded": self._began,
            "kernel": f"Linux {platform.release().partition('-')[0]} {platform.machine()}, {os.cpu_count()} CPUs",
            "file_system": ", mounted with ".join((
                f"{self._file_system} on a loop device, by {_run(*self._made_by).splitlines()[0]} without options",
                *self._mount_options[1:])),
            "flashsift": _run(self._flashsift, "--version").strip(),
            "command": self._shown(),
            "mode": "exact" if "--exact" in self._command else "pages",
            **losses(log),
            # From mounting to unmounting; not known where something still used the file system.
            "device": self._reached,
            "workload": workload,
            "describe": _short(json.loads(described.stdout)) if described.returncode == 0 else None,
        }

    def _shown(self):
        """The command as a user would type it."""
        paths = (self._raw, self._pauses, self._requests, *self._inputs)
        names = {self._flashsift: "flashsift", HERE / self._plan.workload: f"workloads/{self._plan.workload}",
                 **{path: path.name for path in paths}}
        return " ".join(str(names.get(part, part)) for part in self._command)


def summary_in(printed, failure):
    """The summary among the lines that a workload printed."""
    lines = [line for line in printed.splitlines() if line.startswith('{"workload"')]
    if len(lines) != 1:
        raise WorkloadError(f"the workload printed no summary: {failure}")
    return json.loads(lines[0])


def losses(log):
    """The recorder's messages, and those of losses, without which it prints nothing."""
    lost = "; ".join(line.strip() for line in log if re.search(r"\blost\b", line, re.I))
    return {"lost": lost or "nothing", "recorder": log}


def write_card(trace, card):
    """Write what a recording's card says, beside its trace."""
    path = trace.with_suffix(".json")
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    temporary.replace(path)


def _pack(source, target):
    with lzma.open(target, "wb") as packed:
        packed.write(source.read_bytes())


def _short(described):
    """Leave out the tables of figures, which can be computed again from the trace."""
    if isinstance(described, dict):
        short = {key: _short(value) for key, value in described.items()}
        return {key: value for key, value in short.items() if not (isinstance(value, list) and len(value) > 300)}
    return described


def _run(*command):
    return testbed.call(*command, stderr=subprocess.STDOUT)
