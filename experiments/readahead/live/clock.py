"""Measure how long programs take at each read_ahead_kb on a slow device, beside the proposals.

The device is a loop device over slow.c: requests one after the other, each with a fixed time and a
time for its bytes. `flashsift profile` measures it; the proposals are for that profile. Then the
device's times are fitted to the runs, and the proposals made anew. Writes clock.csv, card.toml,
proposals.json, fitted.toml and fitted.json. With --tune, the product's own
`tune readahead --clock` starts the programs instead.
"""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import stage
from apps import testbed
from apps.testbed import call
from common.program import output
from common.program import run as run_main
from common.rows import write_dicts

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent.parent
SIZES = [16, 32, 64, 128, 256, 512]
PRESENT = 128
# A card: 40 MB/s, and 200 µs for a request; with the way through the kernel some 350 µs for 4 KiB.
REQUEST_US, US_PER_MIB = 200, 26_214
IMAGE_BYTES = 1536 << 20
DATABASE_ROWS = 400_000
LOOKUPS = 2_500
MEDIA_BYTES = 96 << 20
# Maximum and options of recordings.
RECORDINGS = {"plain": (PRESENT,), "exact": (PRESENT, "--exact"), "exact at 0": (0, "--exact")}
FIELDS = ["workload", "kib", "round", "seconds", "cpu_s", "busy_s", "requests", "bytes"]

LOOK_UP = """
import random, sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
chance = random.Random(5)
for _ in range(int(sys.argv[2])):
    name = "%016x" % (chance.randrange(int(sys.argv[3])) * 0x9E3779B97F4A7C15 % 2 ** 64)
    assert db.execute("select length(text) from notes where name = ?", (name,)).fetchone()
"""


def fill(root):
    """Put programs and data on the device."""
    shutil.copytree("/usr/lib/chromium", root / "chromium", symlinks=True)
    python = root / "python"
    shutil.copytree("/usr/lib/python3.11", python / "lib/python3.11", symlinks=False,
                    ignore=shutil.ignore_patterns("test", "sitecustomize.py"))
    (python / "bin").mkdir()
    shutil.copy("/usr/bin/python3.11", python / "bin/python3.11")
    call(sys.executable, "-m", "pip", "install", "-q", "--target", python / "numpy", "numpy")
    # As a package of a distribution has them.
    subprocess.run([python / "bin/python3.11", "-m", "compileall", "-q", python / "numpy", python / "lib"],
                   stdout=subprocess.DEVNULL)
    call("git", "clone", "-q", "--no-local", PROJECT, root / "repository")
    import sqlite3
    with contextlib.closing(sqlite3.connect(root / "notes.db")) as db:
        db.execute("create table notes (name text, text text)")
        words = "a note of some length that a person may have written " * 9
        db.executemany("insert into notes values (?, ?)", (
            ("%016x" % (n * 0x9E3779B97F4A7C15 % 2 ** 64), words[n % 50:][:440]) for n in range(DATABASE_ROWS)))
        db.execute("create index names on notes (name)")
        db.commit()
    (root / "media").write_bytes(os.urandom(MEDIA_BYTES))


def workloads(root, scratch):
    python = root / "python"
    home = f"PYTHONHOME={python} PYTHONPATH={python}/numpy PYTHONDONTWRITEBYTECODE=1"
    repository = root / "repository"
    # /usr/bin/python3 and its library are on another device, and warm.
    (scratch / "look-up.py").write_text(LOOK_UP)
    return {
        "chromium": f"rm -rf {scratch}/profile; {root}/chromium/chromium --headless --no-sandbox --disable-gpu "
                    f"--user-data-dir={scratch}/profile --dump-dom about:blank",
        "python": f"{home} {python}/bin/python3.11 -c 'import numpy, numpy.fft, numpy.random, asyncio, unittest, "
                  "xml.dom.minidom, http.server, email.mime.text, multiprocessing.pool'",
        "git": f"cd {repository} && git status --porcelain && git grep -c readahead && git log --stat -40",
        "sqlite": f"/usr/bin/python3 {scratch}/look-up.py {root}/notes.db {LOOKUPS} {DATABASE_ROWS}",
        "media": f"dd if={root}/media of=/dev/null bs=64k",
    }


class Card:
    """The slow device, with an ext4 that is mounted anew before each run."""

    def __init__(self, undo, folder):
        source = HERE / "slow.c"
        call("cc", "-O2", "-o", folder / "slow", source)
        self.point = folder / "slow-disk"
        self.point.mkdir()
        with open(folder / "card", "wb") as file:
            file.truncate(IMAGE_BYTES)
        slow = subprocess.Popen([folder / "slow", folder / "card", self.point, str(REQUEST_US), str(US_PER_MIB)])
        undo.callback(slow.wait)
        undo.callback(slow.terminate)
        while not os.path.ismount(self.point):
            time.sleep(0.01)
        self.device = undo.enter_context(testbed.loop(self.point / "image"))
        queue = Path("/sys/block") / Path(self.device).name / "queue"
        # As of an eMMC. The loop device keeps its values for its next user.
        for name, value in (("max_sectors_kb", 512), ("read_ahead_kb", PRESENT)):
            undo.callback((queue / name).write_text, (queue / name).read_text())
            (queue / name).write_text(str(value))
        self._queue = queue

    def format(self):
        call(*testbed.MAKE["ext4"], *testbed.FILLED, self.device)

    def mounted(self, kib=PRESENT, options="noatime,ro,noload"):
        (self._queue / "read_ahead_kb").write_text(str(kib))
        call("blockdev", "--flushbufs", self.device)
        return testbed.mounted(self.device, stage.MOUNT / f"card-{os.getpid()}", options=options)


def run(command, volume):
    """Run a workload. Return its row."""
    requests, sectors, busy = volume.requests_read(), volume.sectors_read(), volume.busy_seconds()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": f"{seconds:.4f}",
            "cpu_s": f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.4f}",
            "busy_s": f"{volume.busy_seconds() - busy:.3f}",
            "requests": volume.requests_read() - requests, "bytes": (volume.sectors_read() - sectors) * 512}


def record(program, card, command, trace, kib, *options):
    """Record a workload, cold, at this maximum. Return what was lost."""
    with card.mounted(kib) as volume:
        recorder = stage.Live.recording(program, volume.point, trace, *options)
        try:
            run(command, volume)
        finally:
            _, said = recorder.end()
    return [line for line in [*recorder.said, *said.splitlines()] if "LOST" in line]


def propose(program, trace, profile, recorded_kib):
    words = [program, "tune", "readahead", trace, "--json", "-q", "--device", profile, "--memory", "1GiB",
             "--present", PRESENT, "--recorded", recorded_kib]
    return json.loads(output(*words))["readahead"]


def fitted(profile, rows):
    """The profile with the times of requests and pages that the runs show, by least squares.

    Beside other programs, a request waits for a processor more than once, which the profile of an
    idle moment does not have.
    """
    groups = {}
    for row in filter(lambda row: row["busy_s"], rows):
        groups.setdefault((row["workload"], row["kib"]), []).append(row)
    points = [[statistics.median(float(row[key]) for row in group) for key in ("requests", "bytes", "busy_s")]
              for group in groups.values()]
    # Relative errors count, else chromium's alone would.
    points = [(requests / busy, pages / 4096 / busy, 1) for requests, pages, busy in points]
    rr = sum(r * r for r, _, _ in points)
    pp = sum(p * p for _, p, _ in points)
    rp = sum(r * p for r, p, _ in points)
    r1, p1 = sum(r for r, _, _ in points), sum(p for _, p, _ in points)
    request_us = 1e6 * (r1 * pp - p1 * rp) / (rr * pp - rp * rp)
    page_us = 1e6 * (p1 * rr - r1 * rp) / (rr * pp - rp * rp)
    text = profile.read_text()
    # One read of the flash a request.
    for key, value in (("read_us", request_us), ("transfer_us", page_us), ("nand_pages", 128), ("buffer_pages", 128)):
        text = re.sub(rf"^{key} = [0-9.]+$", f"{key} = {value:.1f}" if key.endswith("us") else f"{key} = {value}", text,
                      flags=re.MULTILINE)
    return f"# read_us and transfer_us are fitted to the runs of clock.csv, nand_pages is set.\n{text}"


def propose_fitted(program, folder, names, profile, rows, into):
    """Propose anew for the recordings in a folder, with the fitted profile."""
    fitted_profile = into.with_suffix(".toml")
    fitted_profile.write_text(fitted(profile, rows))
    proposals = {}
    for name in names:
        for kind, (kib, *_) in RECORDINGS.items():
            proposals[f"{name}, {kind}"] = propose(program, folder / f"{name}-{kind}.parquet", fitted_profile, kib)
    into.write_text(json.dumps(proposals) + "\n")


def propose_live(program, card, commands, profile):
    """`--live --propose` while all workloads run, one after the other, cold."""
    with card.mounted() as volume:
        live = stage.Live.watch(program, volume.point, "--propose", "--device", profile, "--memory", "1GiB", recorders=1)
        for command in commands.values():
            run(command, volume)
        records, said = live.end()
        return {"counts": {key: records[0][key] for key in ("total", "lost_records")},
                "readahead": records[1]["readahead"], "said": [line for line in said.splitlines() if "LOST" in line]}


def tune(program, card, commands, rounds):
    """Runs `tune readahead --clock` for each program on this device."""
    found = {}
    with card.mounted() as volume:
        for name, command in commands.items():
            said = output(program, "tune", "readahead", "--clock", "--json", "--rounds", rounds, "--on", volume.point,
                          "--", "/bin/sh", "-c", command)
            found[name] = {"date": time.strftime("%Y-%m-%d"), "command": command, **json.loads(said)}
            print(name, said, file=sys.stderr, flush=True)
    return found


def main():
    parser = stage.arguments("clock", __doc__, HERE)
    parser.add_argument("--tune", action="store_true", help="only `tune readahead --clock`: tuned.json")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", help="some workloads")
    args = parser.parse_args()
    testbed.begin()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, contextlib.ExitStack() as undo:
        folder = Path(folder)
        card = Card(undo, folder)
        profile = args.o / "card.toml"
        call(args.flashsift, "profile", "-q", "--target", card.device, "--yes-destroy-data", "--span", "512MiB",
             "--sustained", "256MiB", "--rest", "1s", "-o", folder / "card.toml")
        text = re.sub(r"/dev/loop\d+", "the slow device", (folder / "card.toml").read_text())
        text = re.sub(r"^#.*\n+", "", text, flags=re.MULTILINE)
        if not args.tune:
            profile.write_text(text)
        print("profile", [line for line in text.splitlines() if re.match("(read|transfer)_us = ", line)],
              file=sys.stderr, flush=True)
        card.format()
        with card.mounted(options="noatime") as volume:
            fill(volume.point)
            commands = workloads(volume.point, folder)
        commands = {name: commands[name] for name in args.only or commands}
        for command in commands.values():
            with card.mounted() as volume:
                run(command, volume)
        if args.tune:
            tuned = tune(args.flashsift, card, commands, max(args.rounds, 10))
            (args.o / "tuned.json").write_text(json.dumps(tuned) + "\n")
            return
        proposals = {}
        for name, command in commands.items():
            for kind, (kib, *options) in RECORDINGS.items():
                trace = folder / f"{name}-{kind}.parquet"
                lost = record(args.flashsift, card, command, trace, kib, *options)
                found = {**propose(args.flashsift, trace, profile, kib), "said": lost}
                proposals[f"{name}, {kind}"] = found
                print(name, kind, *(found.get(key) for key in ("proposed_kib", "flat_kib", "saving_s", "lack", "said")),
                      file=sys.stderr, flush=True)
        proposals["all, live"] = propose_live(args.flashsift, card, commands, profile)
        (args.o / "proposals.json").write_text(json.dumps(proposals) + "\n")
        print("live", {k: v for k, v in proposals["all, live"]["readahead"].items() if k != "sizes"},
              file=sys.stderr, flush=True)
        rows = []
        chance = random.Random(1)
        for number in range(args.rounds):
            for kib in chance.sample(SIZES, len(SIZES)):
                for name, command in commands.items():
                    with card.mounted(kib) as volume:
                        rows.append({"workload": name, "kib": kib, "round": number, **run(command, volume)})
                        print(*rows[-1].values(), sep="\t", file=sys.stderr, flush=True)
            write_dicts(args.o / "clock.csv", FIELDS, rows)
        if rows:
            propose_fitted(args.flashsift, folder, commands, profile, rows, args.o / "fitted.json")


if __name__ == "__main__":
    run_main(main)
