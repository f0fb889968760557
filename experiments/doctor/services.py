"""Services in a container with systemd, examined by `flashsift doctor` from outside.

The container is that of `checks/remedies`: its root is this machine's, and all that it changes
lands on an ext4 of its own in memory, which the doctor watches.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from apps.device_counts import DeviceCounts
from apps.testbed import call
from common.machines import remedies
from common.pages import MIB, markdown

# Operations of each service in a load, and the pause after each, s.
OPERATIONS, PAUSE_S = 120, 0.25
# Loads before the first one that counts: journald writes more as its files grow, at first.
LOADS_BEFORE = 3
REPORT = "/srv/report.json"

# As Home Assistant's recorder: a commit each second, here each pause, with a write-ahead log. The
# log has its final length, as after some hours: one that grows would write less in each load.
RECORDER = """
import os, sqlite3, time
db = sqlite3.connect("/var/lib/ha/home-assistant_v2.db", isolation_level=None)
db.execute("pragma journal_mode = wal")
db.execute("create table if not exists states (n integer primary key, state text)")
db.execute("create index if not exists by_state on states (state)")
def add():
    db.execute("insert into states (state) values (?)", (os.urandom(50).hex() * 4,))
for n in range(600):
    add()
open("/var/lib/ha/ready", "w").close()
while True:
    if os.path.exists("/var/lib/ha/go"):
        for n in range(OPERATIONS):
            add()
            time.sleep(PAUSE_S)
        os.rename("/var/lib/ha/go", "/var/lib/ha/done")
    time.sleep(0.1)
"""


class Service:
    """A unit with its load and the directory of its files. The texts are lines for a shell inside
    the container."""

    def __init__(self, unit, files, prepare, load, works, value=None):
        self.unit, self.files, self.prepare, self.load, self.works, self.value = unit, files, prepare, load, works, value


# A text of 1 KiB, so that each log has many pages.
LONG = "a-message-of-the-load-" * 48


def each(command):
    return f"for n in $(seq {OPERATIONS}); do {command}; sleep {PAUSE_S}; done > /dev/null"


CASES = remedies.CASES
SERVICES = {
    "nginx": Service("nginx.service", "var/log/nginx", CASES["nginx"].prepare,
                     each(f"curl -sS http://127.0.0.1:8081/{LONG}$n"), CASES["nginx"].works,
                     CASES["nginx"].value),
    "mariadb": Service("mariadb.service", "var/lib/mysql", CASES["mariadb"].prepare, each(CASES["mariadb"].load),
                       CASES["mariadb"].works, CASES["mariadb"].value),
    "redis": Service("redis-server.service", "var/lib/redis", CASES["redis"].prepare,
                     # Values of 1 KiB.
                     each("redis-cli set key-$n $(head -c 512 /dev/urandom | od -An -tx1 | tr -d ' \\n')"),
                     CASES["redis"].works, CASES["redis"].value),
    "home-assistant": Service(
        "recorder.service", "var/lib/ha",
        """mkdir -p /var/lib/ha
            printf '[Service]\\nExecStart=/usr/bin/python3 /srv/recorder.py\\n' > /etc/systemd/system/recorder.service
            systemctl daemon-reload; systemctl start recorder; until [ -e /var/lib/ha/ready ]; do sleep 0.2; done""",
        "rm -f /var/lib/ha/done; touch /var/lib/ha/go; until [ -e /var/lib/ha/done ]; do sleep 0.2; done",
        """python3 -c 'import sqlite3
print("yes" * sqlite3.connect("/var/lib/ha/home-assistant_v2.db").execute("select count(*) > -1 from states")
      .fetchone()[0])'"""),
    # With a sync each second, which by default is one in five minutes.
    "journald": Service("systemd-journald.service", "var/log/journal", CASES["journald"].prepare,
                        each(f"logger {LONG}"), CASES["journald"].works, CASES["journald"].value),
    "rsyslog": Service("rsyslog.service", "var/log", CASES["rsyslog"].prepare, each(f"logger {LONG}"),
                       CASES["rsyslog"].works, CASES["rsyslog"].value),
}


# Directories that lie on the ext4 itself.
PLACES = ["var/log", "var/lib/mysql", "var/lib/redis", "var/lib/ha"]


@contextlib.contextmanager
def machine(names):
    """A container in which these services have run."""
    with tempfile.TemporaryDirectory(dir="/run") as folder, contextlib.ExitStack() as undo:
        one = remedies.Machine(Path(folder), undo)
        script = RECORDER.replace("OPERATIONS", str(OPERATIONS)).replace("PAUSE_S", str(PAUSE_S))
        (one.root / "srv/recorder.py").write_text(script)
        # Through the overlay, the doctor would not find a service's open files.
        for place in PLACES:
            own = one.disk / "own" / place
            own.parent.mkdir(parents=True, exist_ok=True)
            (one.root / place).mkdir(parents=True, exist_ok=True)
            call("cp", "-a", one.root / place, own)
            one.options.append(f"--bind={own}:/{place}")
        one.boot()
        one.install(names)
        for name in names:
            one.run(SERVICES[name].prepare)
        works(one, names)
        for _ in range(LOADS_BEFORE):
            run(one, names)
        yield one


class Watch:
    """`flashsift doctor` over a file system, until `end`; without a program, nothing."""

    def __init__(self, doctor, place, report):
        self._process = None
        if doctor:
            self._process = subprocess.Popen(
                [doctor, "doctor", place, "--for", "1h", "--json", "--top", "1000000", "--last-report", report],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            # It says when it begins.
            while "watching" not in (line := self._process.stderr.readline()):
                if not line:
                    raise RuntimeError("doctor did not begin")

    def end(self):
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGINT)
        said, errors = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"doctor failed: {errors}")
        return json.loads(said)


def works(one, names):
    for name in names:
        if (said := one.run(SERVICES[name].works)) != "yes":
            raise RuntimeError(f"{name} does not work: {said!r}")


def run(one, names, doctor=None):
    """Runs the loads at the same time. Returns the device's counts and what the doctor says."""
    one.volume.sync()
    watch = Watch(doctor, one.disk, one.folder / "report.json")
    counts = DeviceCounts(one.volume.device, "-".join(names))
    owners = owners_of(one, names)
    # rsyslog gets the messages of journald's load.
    loading = [name for name in names if name != "rsyslog" or "journald" not in names]
    loads = [subprocess.Popen(["nsenter", "-t", one.leader, "-a", "sh", "-euc", SERVICES[name].load],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}) for name in loading]
    for load in loads:
        _, said = load.communicate()
        if load.returncode:
            raise RuntimeError(f"a load failed: {said[-1000:]}")
    examined = watch.end()
    one.volume.sync()
    ended = counts.end()
    owners |= owners_of(one, names)
    by_service = dict.fromkeys(names, 0)
    for sector, size in counts.data_writes:
        begin, end = sector * 512, sector * 512 + size
        for block in range(begin // 4096, -(-end // 4096)):
            if (name := owners.get(block)) is not None:
                by_service[name] += min(end, 4096 * (block + 1)) - max(begin, 4096 * block)
    return {**ended, "by_service": by_service}, examined


EXTENT = re.compile(r"^ *\d+: +\d+\.\. *\d+: +(\d+)\.\. *(\d+):", re.MULTILINE)


def owners_of(one, names):
    """The service of each block of a file on the ext4: that of the longest directory above it."""
    owners = {}
    for name in sorted(names, key=lambda name: len(SERVICES[name].files)):
        files = [path for path in (one.disk / "own" / SERVICES[name].files).rglob("*") if path.is_file()]
        told = subprocess.run(["filefrag", "-v", *files], capture_output=True, text=True)
        for first, last in EXTENT.findall(told.stdout):
            owners.update(dict.fromkeys(range(int(first), int(last) + 1), name))
    return owners


def applicable(examined):
    """The remedies that doctor can apply inside, with a promise. The kernel's times stay: they are
    those of this whole machine, where others work."""
    return [one for one in examined["remedies"] if one["id"] == "own-setting" and one.get("saving")
            and all(step["step"] != "person" for step in one["steps"])]


def measured(names, doctor, say):
    """Everything that the page shows."""
    tried, watches = [], []

    def watch(one):
        counts, examined = run(one, names, doctor)
        say(f"{counts}")
        watches.append((counts, examined))
        (one.root / REPORT.lstrip("/")).write_text(json.dumps(examined))
        return counts, examined

    with machine(names) as one:
        before, examined = counts, newest = watch(one)
        chosen = applicable(examined)[:3]
        say(f"chosen: {[(one['name'], one['saving']) for one in chosen]}")
        inside = f"flashsift doctor --last-report {REPORT}"
        files = tuple(file for name in names if name in CASES for file in CASES[name].files)
        configuration = one.configuration(files)
        values = {name: one.run(SERVICES[name].value) for name in names if SERVICES[name].value}
        # Services write more or less as their files grow: a remedy is one of the watch right before
        # it, and its run is held against those before and after it.
        for name in [remedy["name"] for remedy in chosen]:
            [remedy] = [one for one in newest["remedies"] if one["name"] == name]
            one.run(f"{inside} --apply {remedy['number']} --yes")
            works(one, names)
            after, _ = run(one, names)
            one.run(f"{inside} --undo {remedy['number']}")
            works(one, names)
            counts_before, duration_us = counts, newest["duration_us"]
            counts, newest = watch(one)
            tried.append((remedy, after, duration_us, [counts_before, counts]))
            say(f"{remedy['name']}: {remedy['saving']}, {after}")
        (one.root / REPORT.lstrip("/")).write_text(json.dumps(examined))
        for remedy in chosen:
            one.run(f"{inside} --apply {remedy['number']} --yes")
        works(one, names)
        applied = {name: one.run(SERVICES[name].value) for name in values}
        one.shut_down()
        one.boot()
        for name in names:
            one.run(f"systemctl start {SERVICES[name].unit}")
        restarted = {name: one.run(SERVICES[name].value) for name in values}
        works(one, names)
        one.run(f"{inside} --undo all")
        works(one, names)
        undone = {name: one.run(SERVICES[name].value) for name in values}
        left = one.configuration(files)
        differing = sorted(str(path) for path in left.keys() | configuration.keys()
                           if left.get(path) != configuration.get(path))
    return {"names": names, "before": before, "watches": watches, "examined": examined, "tried": tried, "values": values,
            "applied": applied, "restarted": restarted, "undone": undone, "differing": differing}


def by_unit(examined, key):
    sums = {}
    for writer in examined["writers"]:
        unit = writer.get("unit") or writer["name"]
        sums[unit] = sums.get(unit, 0) + writer[key]
    return sums


def mib(count):
    return f"{count / MIB:.2f}"


def error(said, truth):
    return f"{100 * (said / truth - 1):+.1f} %"


# The error of the doctor's models, as a share of what they say: it says so, and the page shows it.
MODELS = 0.1


def promise(remedy, a_day):
    """Bytes that a remedy saves in so much of a day, and those by its worse and its better half,
    with the error of the models."""
    saving = remedy["saving"]
    promised = saving["bytes_a_day"] * a_day
    halves = sorted((saving["first_half_share"], saving["second_half_share"]))
    low, high = (promised * share / saving["share"] for share in halves)
    return [promised, low - MODELS * abs(low), high + MODELS * abs(high)]


def inside(low, saved, high):
    return "inside" if low <= saved <= high else "**outside**"


def rest_of(written):
    return written["journal_bytes"] + written["metadata_bytes"]


def all_bytes(counts):
    return counts["data_written_bytes"] + counts["metadata_written_bytes"]


def bytes_of(name, counts):
    """File data of one service, with all journal and metadata. The data of the others varies from
    run to run: a checkpoint of a write-ahead log falls into it or not."""
    return counts["by_service"][name] + counts["metadata_written_bytes"]


def report(found):
    """The section of the page."""
    examined = found["examined"]
    data, rest = by_unit(examined, "reached_bytes"), by_unit(examined, "file_system_bytes")
    names_of = {}
    for writer in examined["writers"]:
        names_of.setdefault(writer.get("unit"), []).append(writer["name"])
    rows = []
    for name, truth in sorted(found["before"]["by_service"].items(), key=lambda one: -one[1]):
        unit = SERVICES[name].unit
        said = data.get(unit, 0)
        rows.append([name, ", ".join(names_of.get(unit, ["**not named**"])), mib(truth), mib(said), error(said, truth),
                     mib(rest.get(unit, 0))])
    services = markdown("service|as the doctor names it|data, block layer|data, doctor|error|journal, metadata", rows, (0, 1))
    errors = [rest_of(watched["written"]) / counts["metadata_written_bytes"] - 1 for counts, watched in found["watches"]]
    tried = []
    for remedy, after, duration_us, without in found["tried"]:
        promised, low, high = promise(remedy, duration_us / 86_400e6)
        name = remedy["name"].partition(":")[2]
        saved = sorted(bytes_of(name, one) - bytes_of(name, after) for one in without)
        meet = low <= saved[1] and saved[0] <= high
        tried.append([remedy["number"], remedy["title"], mib(promised), f"{mib(low)} to {mib(high)}",
                      f"{mib(saved[0])} to {mib(saved[1])}", "yes" if meet else "**no**"])
    remedies_tried = markdown(["", "remedy", "promised", "from, to", "saved", "meet"], tried, (0, 1, 5)).replace("|  |", "| |", 2)
    written = examined["written"]
    kept = sorted(name for name in found["values"] if found["applied"][name] != found["values"][name])
    survived = [name for name in kept if found["restarted"][name] == found["applied"][name]]
    undone = found["undone"] == found["values"]
    return f"""## Services

Six services run in one container with systemd on an ext4 in memory, and get {OPERATIONS} operations each, one
each {PAUSE_S} s: {", ".join(found["names"])}. journald syncs each second. `doctor` watches the ext4 from
outside. *Block layer*: the file data that it counts in blocks of the service's files. MiB.

{services}
Together, the block layer counts {mib(found["before"]["data_written_bytes"])} MiB of file data, and the doctor
{mib(written["data_bytes"])}; of journal and metadata {mib(found["before"]["metadata_written_bytes"])} and
{mib(rest_of(written))}; in the {len(errors)} watches without a remedy, the doctor's journal and metadata differ
by {100 * min(errors):+.1f} to {100 * max(errors):+.1f} %. It looks up where inodes lie: an earlier version gave each directory blocks
of its own, and was 5.8 % high. journald writes the more the longer its load takes, since it syncs
each second; so it wrote more beside the others than alone, which an earlier page took for an error.
MariaDB writes its log by direct requests of 512 bytes, which an earlier version counted as pages, and a
later one without the zeros with which the kernel fills a block of the log at its first request.

The remedies of these services with a promise that `doctor --apply` can perform, at most three, each alone, with
the promise of the watch right before it. *From, to*: what the halves of that watch promise, and a tenth for the
error of the models. *Saved* is beside the run before it and the one after it: file data of this service, with all
journal and metadata. The kernel's times were not changed, since they are those of the whole machine. MiB:

{remedies_tried}
Every service worked after each `--apply` and each `--undo`. With all of them applied, the container was
restarted: {"all" if survived == kept else "**only** " + (", ".join(survived) or "none")} of the settings
({", ".join(kept)}) were in force still. After `--undo all`, the values were {"" if undone else "**not** "}those from before, and
{"no file of the configuration differed" if not found["differing"] else "these differed: " + ", ".join(found["differing"])}.
"""
