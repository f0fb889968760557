"""Examine staged machines with `flashsift doctor`, and measure what its remedies save."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import services
from apps import packages, testbed
from apps.device_counts import DeviceCounts
from common.machines import CHECK, unshared
from common.pages import markdown, paragraphs
from common.program import parser as parser_of
from common.program import run as run_main
from services import all_bytes, error, inside, mib, promise

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE.parent.parent / "workloads"

MOUNT = Path("/mnt/flashsift-doctor")
SECONDS = 60
PACKAGES = 12
PACKAGE_BYTES = 300_000

# A log line each 0.1 s, each of them synced.
LOGGER = """
import os, sys, time
os.makedirs(sys.argv[1] + "/log", exist_ok=True)
log = os.open(sys.argv[1] + "/log/chatty.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for n in range(int(sys.argv[2]) * 10):
    os.write(log, b"%06d a message of the daemon that no process reads, with a number and a reason\\n" % n)
    os.fsync(log)
    time.sleep(0.1)
"""
# Three transactions a second, with rollback journals.
NOTES = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1] + "/notes.db")
if db.execute("pragma journal_mode").fetchone()[0] != "wal":
    db.execute("pragma journal_mode = delete")
db.execute("create table if not exists notes (n integer primary key, text)")
for n in range(int(sys.argv[2]) * 3):
    db.execute("insert into notes (text) values (?)", ("a note of some length " * 20,))
    db.commit()
    time.sleep(0.33)
"""


class Stage:
    """The programs of the writers, outside of the file system that is examined."""

    def __init__(self, folder):
        self._folder = folder
        self.report = folder / "report.json"
        for name, script in (("logger", LOGGER), ("notes", NOTES)):
            # The kernel names a process by the file that it runs.
            (folder / name).symlink_to(os.path.realpath("/usr/bin/python3"))
            (folder / f"{name}.py").write_text(script)
        self._make_packages()

    def _make_packages(self):
        repository = self._folder / "repository"
        repository.mkdir()
        index = []
        for number in range(PACKAGES):
            name, file = f"package{number}", f"package{number}_1_all.deb"
            facts = packages.control(name, "1", "files")
            files = {f"usr/share/{name}/{file}": os.urandom(PACKAGE_BYTES // 10) for file in range(10)}
            body = packages.deb(testbed.call, self._folder, facts, files)
            (repository / file).write_bytes(body)
            index.append(packages.entry(facts, file, body))
        (repository / "Packages").write_text("\n".join(index))

    def start(self, writer):
        directory = MOUNT / writer
        directory.mkdir(exist_ok=True)
        if writer in ("logger", "notes"):
            return self._call([self._folder / writer, self._folder / f"{writer}.py", directory, SECONDS])
        if writer == "browser":
            return self._call([sys.executable, "-B", WORKLOADS / "browser", "--dir", directory / "profile", "--seed", 7,
                               "--minutes", SECONDS / 60])
        return self._call(["/bin/sh", "-c", self._apt(directory)])

    def _apt(self, root):
        configuration = self._folder / "apt.conf"
        packages.set_up_apt(root, f"copy:{self._folder}/repository", configuration)
        steps = ["apt-get --yes --quiet update"]
        steps += [f"sleep 2; apt-get --yes --quiet install package{number}" for number in range(PACKAGES)]
        return f"export APT_CONFIG={configuration}; {' && '.join(steps)}"

    def _call(self, command):
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                env=environment, text=True)


WRITERS = ["logger", "notes", "browser", "apt"]


def file_system(image):
    """A new ext4 at MOUNT, whose inode tables the kernel does not fill."""
    return testbed.file_system(image, 2 << 30, MOUNT, options=testbed.UNFILLED, make=())


def run(stage, writers, volume, before=lambda: None, doctor=None):
    """Run writers to their end. Return the device's counts and what the doctor says."""
    for writer in writers:
        (MOUNT / writer).mkdir()
    before()
    volume.sync()
    counts = DeviceCounts(volume.device, "doctor")
    watch = services.Watch(doctor, MOUNT, stage.report)
    began = time.monotonic()
    running = [(writer, stage.start(writer)) for writer in writers]
    for writer, process in running:
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{writer} failed: {said[-2000:]}")
    examined = watch.end()
    seconds = time.monotonic() - began
    volume.sync()
    return {**counts.end(), "seconds": seconds}, examined


def files_of(examined):
    """Each file of a writer, with the program that the doctor names."""
    for program in examined["writers"]:
        for file in program["files"]:
            if match := re.match(rf"{MOUNT}/(\w+)/", file["name"]):
                yield match[1], program, file


def by_writer(examined, *keys):
    """Bytes of these kinds by the directory of each writer."""
    sums = dict.fromkeys(WRITERS, 0)
    for writer, _, file in files_of(examined):
        sums[writer] += sum(file[key] for key in keys)
    return sums


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=PARTS, help="write one part of the page, and leave the others")
    parser.add_argument("--services-inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.services_inside:
        os.environ["FLASHSIFT"] = str(args.flashsift)
        services.remedies.FLASHSIFT = args.flashsift
        found = services.measured(list(services.SERVICES), args.flashsift,
                                  lambda text: print(text, file=sys.stderr, flush=True))
        print(services.report(found))
        return
    testbed.begin()
    os.environ["FLASHSIFT"] = str(args.flashsift)
    page = HERE / "RESULTS.md"
    old = page.read_text() if page.exists() else ""
    # Each part begins with its heading and ends with that of the next.
    begins = [begin for heading, _ in PARTS.values() if (begin := old.find(heading)) >= 0] + [len(old)]
    parts = [old[old.find(heading):min(begin for begin in begins if begin > old.find(heading))]
             if heading in old else "" for heading, _ in PARTS.values()]
    for at, (name, (_, make)) in enumerate(PARTS.items()):
        if args.only in (None, name):
            parts[at] = paragraphs(make(args))
            page.write_text("\n".join([HEAD, *(part.rstrip() + "\n" for part in parts if part)]))


def about():
    return (f"Linux {platform.release().split('-')[0]}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the "
            f"end, {time.strftime('%Y-%m-%d')}.")


def staged(args):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        folder = Path(folder)
        stage = Stage(folder)
        image = folder / "card"
        alone = {}
        for writer in WRITERS:
            with file_system(image) as volume:
                alone[writer], _ = run(stage, [writer], volume)
            print(writer, alone[writer], file=sys.stderr, flush=True)
        with file_system(image) as volume:
            before, examined = run(stage, WRITERS, volume, doctor=args.flashsift)
        with file_system(image) as volume:
            again, _ = run(stage, WRITERS, volume)
        tried = []
        for remedy in chosen(examined):
            with file_system(image) as volume:
                mounts = mounts_below()
                after, _ = run(stage, WRITERS, volume, before=lambda remedy=remedy: perform(remedy, "commands"))
                perform(remedy, "undo")
                undone = mounts_below() == mounts
            print(remedy["title"], after, file=sys.stderr, flush=True)
            tried.append((remedy, after, undone))
    return report(alone, before, again, examined, tried)


def mounts_below():
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {MOUNT}" in line]


def chosen(examined):
    """The first three remedies that need no person. The kernel's times are those of this whole
    machine, where others work."""
    return [one for one in examined["remedies"] if one["id"] != "kernel-write-back" and one.get("saving")
            and one.get("steps") and all(step["step"] != "person" for step in one["steps"])][:3]


def served(args):
    subprocess.run([CHECK, "--fetch", *(name for name in services.SERVICES if name in services.CASES)],
                   check=True)
    # The doctor has to see this machine's processes.
    words = unshared(sys.executable, "-B", __file__, "--flashsift", args.flashsift, "--services-inside")
    with services.remedies.groups_removed():
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout + "\n" + about() + "\n"


def perform(remedy, key):
    """Do what the remedy says, as it is printed: `commands` or `undo`."""
    # Its directory exists on a machine that has run for a while.
    for path in re.findall(rf"{MOUNT}/\S+", remedy["commands"][-1]):
        path = Path(path.strip("'"))
        (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
    for command in remedy[key]:
        command = command if shutil.which("sudo") else command.replace("sudo ", "")
        subprocess.run(["/bin/sh", "-c", command], check=True)


HEAD = """# The doctor on staged machines

    sudo experiments/doctor/run.sh          # writes this page
"""
STAGED = "## Chromium, apt and two programs that sync\n"
SETTINGS = "## Settings of programs\n"


def settings(_):
    """The section on the settings of programs, by `checks/remedies`."""
    check = HERE.parent.parent / "checks" / "remedies"
    subprocess.run([check, "--fetch"], check=True)
    found = subprocess.run([check, "--reboot"], capture_output=True, text=True)
    if found.returncode or "SKIPPED" in found.stdout:
        raise RuntimeError(f"checks/remedies: {found.stdout}{found.stderr}")
    tried = subprocess.run([check, "--list"], check=True, capture_output=True, text=True).stdout.split()
    known = sorted(path.stem for path in (HERE.parent.parent / "crates/study/src/doctor/program").glob("*.toml"))
    return f"""{SETTINGS}
`checks/remedies --reboot`. {about()} Each program of Debian runs as its own unit in a container with systemd, on a new ext4 in memory. *KiB* are what the
device writes in a load of 10 s: before the setting, with it, and after it was undone. `doctor --apply`
makes the change and `--undo` takes it back; then the printed commands do. Each setting
was also there after a restart of the machine, and undone, all files of the configuration were as
before, with owner and mode. For rsyslog, nginx, Prometheus and apt the ext4 is synced once a second,
as the kernel would after 30 s, and the load ends with a restart of the program. journald synced each
second before, and Prometheus asked each second, to show in 10 s what their defaults would in
minutes; a pass of apt's load stands for a day.

{found.stdout.strip()}

Not tried, since Debian has no package or no load here: {", ".join(name for name in known if name not in tried)}.
"""


def report(alone, before, again, examined, tried):
    found = by_writer(examined, "reached_bytes")
    found_all = by_writer(examined, "reached_bytes", "file_system_bytes")
    alone_all = {writer: all_bytes(counts) for writer, counts in alone.items()}
    rows = []
    ranked = sorted(WRITERS, key=lambda writer: -found_all[writer])
    in_order = ranked == sorted(WRITERS, key=lambda writer: -alone_all[writer])
    programs = {writer: {} for writer in WRITERS}
    remedies = {writer: set() for writer in WRITERS}
    for writer, program, file in files_of(examined):
        sums, name = programs[writer], program["program"]
        sums[name] = sums.get(name, 0) + file["reached_bytes"] + file["file_system_bytes"]
    for program in examined["writers"]:
        for writer in WRITERS:
            if program["program"] in programs[writer]:
                remedies[writer].update(program["remedies"])
    for writer in ranked:
        truth = alone[writer]["data_written_bytes"]
        main_programs = sorted(programs[writer], key=lambda name: -programs[writer][name])[:3]
        rows.append([writer, ", ".join(main_programs), mib(truth), mib(found[writer]), error(found[writer], truth),
                     mib(alone_all[writer]), mib(found_all[writer]), ", ".join(map(str, sorted(remedies[writer])))])
    writers = markdown("writer|programs, as the doctor names them|data alone|data, doctor|error|all alone|all, doctor|"
                       "remedies", rows, (0, 1, 7))
    written = examined["written"]
    modelled = {"file data": written["data_bytes"], "journal and metadata": written["journal_bytes"]
                + written["metadata_bytes"]}
    measured = {"file data": before["data_written_bytes"], "journal and metadata": before["metadata_written_bytes"]}
    totals = markdown(["", "block layer", "doctor", "error"], [
        [name, mib(measured[name]), mib(modelled[name]), error(modelled[name], measured[name])] for name in measured]).replace("|  |", "| |", 1)
    a_day = examined["duration_us"] / 86_400e6
    base = (all_bytes(before) + all_bytes(again)) / 2
    rows = []
    for remedy, after, undone in tried:
        promised, low, high = promise(remedy, a_day)
        saved = base - all_bytes(after)
        rows.append([remedy["number"], remedy["title"], mib(promised), f"{mib(low)} to {mib(high)}", mib(saved),
                     inside(low, saved, high), "yes" if undone else "**no**"])
    kept = markdown(["", "remedy", "promised", "from, to", "saved", "", "undone"], rows, (0, 1, 5, 6)).replace("|  |", "| |", 2)
    listed = "\n".join(f"{one['number']}. {one['title']}" + (
        f": {mib(one['saving']['bytes_a_day'] * a_day)} MiB ({100 * one['saving']['share']:.1f} %)" if one.get("saving")
        else "") for one in examined["remedies"])
    lost = sum(counts["lost"] for counts in (*alone.values(), before, again, *(after for _, after, _ in tried)))
    version = subprocess.run(["chromium", "--version"], capture_output=True, text=True).stdout.strip()
    return f"""{STAGED}
Four programs write to an ext4 of their own: a logger that syncs each line (`logger`), an application
with an SQLite database and rollback journals (`notes`), Chromium on a small web (`browser`), and apt
and dpkg, which install {PACKAGES} packages (`apt`). `flashsift doctor --json` examines them. Then each of
the first three remedies that need no person is applied alone by its printed commands, the same programs
run again, and the block layer counts what it saves. The kernel's times were not changed, since they are
those of the whole machine.

{about()} {version}. The writers ran for {before['seconds']:.0f} s. The block layer's tracepoint lost {lost} requests.

### Writers

*Alone*: what the block layer counts when the writer runs alone on a new file system, until a final
`sync`. *Doctor*: what the doctor charges to the files of that writer when all four run together.
*All* adds journal and metadata; writers that run together share commits, so they need fewer. MiB.

{writers}
The doctor's order by all bytes is {"that" if in_order else "**not** that"} of the writers alone.

All four together, MiB, by the block layer and by the doctor's models:

{totals}
### Remedies

The saving of each in this time, by the doctor:

{listed}

### The first remedies

*From, to*: what the halves of the watch promise, and a tenth for the error of the models. *Saved* is beside the
mean of two runs without any, which wrote {mib(all_bytes(before))} and
{mib(all_bytes(again))} MiB. *Undone*: after the printed commands that undo it, the machine's mounts were as before. MiB:

{kept}
"""


# By name: the heading, and the function that makes it.
PARTS = {"services": ("## Services\n", served), "programs": (STAGED, staged), "settings": (SETTINGS, settings)}

if __name__ == "__main__":
    run_main(main)
