"""Runs each workload with short pauses: equal seeds give equal actions, and files appear and
disappear as promised.

Tests that need root, or a program that is not installed, are skipped, by name.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "browser": ("chromium",),
    "feed": ("sqlite3", "curl"),
    "game": ("curl", "unzip"),
    "map": ("sqlite3", "curl"),
    "messenger": ("sqlite3",),
    "video": ("ffmpeg", "curl", "sqlite3"),
}
MIB = 1 << 20


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="workloads-")))

    def need(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skip(f"{program} is not installed")

    def skip(self, reason):
        # At the start of a line, for `make test`.
        print(f"\nSKIPPED workloads::{self._testMethodName}: {reason}", flush=True)
        self.skipTest(reason)

    def command(self, name, *options):
        return [sys.executable, WORKLOADS / name, *map(str, options)]

    def run_workload(self, name, *options, seeds=(7, 7), minutes=1.0, directory="work"):
        """Run it for each seed, at once: equal seeds give equal actions, others do not.

        Returns what the first summed up, its actions as "kind detail", its directory.
        """
        self.need(*PROGRAMS[name])
        works = [self.directory / f"{directory}{number}" for number in range(len(seeds))]
        processes = [
            subprocess.Popen(
                self.command(name, "--dir", work, "--seed", seed, "--minutes", minutes, "--speed", 2000,
                             "--actions", work.with_suffix(".actions"), *options),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for work, seed in zip(works, seeds, strict=True)
        ]
        summaries = []
        for process, work in zip(processes, works, strict=True):
            output, complaint = process.communicate()
            self.assertEqual(process.returncode, 0, complaint)
            self.assertEqual(_living_in(work), [])
            summaries.append(json.loads(output))
        for seed, summary in zip(seeds, summaries, strict=True):
            same = summary["actions_sha256"] == summaries[0]["actions_sha256"]
            self.assertEqual(same, seed == seeds[0], f"seeds {seeds[0]} and {seed}")
        listed = [line.split(" ", 1)[1] for line in works[0].with_suffix(".actions").read_text().splitlines()]
        self.assertEqual(sum(summaries[0]["actions"].values()), len(listed))
        return summaries[0], listed, works[0]

    def assert_whole(self, *databases):
        for path in databases:
            with contextlib.closing(sqlite3.connect(path)) as database:
                self.assertEqual(database.execute("PRAGMA integrity_check").fetchone(), ("ok",), path)


class Messenger(Case):
    def test_messenger_keeps_three_databases(self):
        _, actions, work = self.run_workload("messenger", seeds=(7, 7, 8))
        databases = [work / f"{name}.db" for name in ("messages", "contacts", "attachments")]
        self.assert_whole(*databases)
        with contextlib.closing(sqlite3.connect(databases[0])) as messages:
            received = sum(int(a.split()[1]) for a in actions if a.startswith("receive"))
            received += sum(a.split()[0] in ("send", "attach") for a in actions)
            deleted = 30 * sum(a == "delete old" for a in actions)
            (count,) = messages.execute("SELECT count(*) FROM message").fetchone()
            self.assertEqual(count, 40000 + received - deleted)
            self.assertEqual(messages.execute("PRAGMA journal_mode").fetchone(), ("wal",))
        # The last to close a WAL deletes it; a truncated journal stays, a deleted one does not.
        self.assertFalse((work / "messages.db-wal").exists())
        self.assertFalse((work / "contacts.db-journal").exists())
        self.assertEqual((work / "attachments.db-journal").stat().st_size, 0)


class Statements(Case):
    LOADING = """CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
CREATE TRIGGER twice AFTER INSERT ON t WHEN new.a < 100 BEGIN
  INSERT INTO t VALUES(new.a + 100, new.b);
END;
"""
    STATEMENTS = """INSERT INTO t VALUES(1,'a')
INSERT INTO t VALUES(2,'multiple
lines; and a semicolon')
.shell touch never
BEGIN;
INSERT INTO t VALUES(3,'c')
UPDATE t SET b='d' WHERE a=3;
COMMIT;
INSERT INTO nowhere VALUES(1);
SELECT count(*) FROM t"""

    def test_statements_of_others_are_run_and_counted(self):
        loading, statements = self.directory / "loading.sql", self.directory / "statements.sql"
        loading.write_text(self.LOADING)
        statements.write_text(self.STATEMENTS)
        for journal, left in (("DELETE", False), ("TRUNCATE", True), ("WAL", False)):
            summary, _, work = self.run_workload(
                "messenger", "--load", loading, "--sql", statements, "--journal", journal, seeds=(7,),
                directory=journal)
            self.assertEqual(summary["statements"], {
                "loaded": 2, "run": 8, "without_semicolon": 4, "left_out": 1, "failed_loading": 0, "failed": 1})
            self.assertEqual(summary["actions"], {"statement": 4, "transaction": 1})
            self.assertEqual((work / "statements.db-journal").exists(), left)
            with contextlib.closing(sqlite3.connect(work / "statements.db")) as database:
                rows = dict(database.execute("SELECT a, b FROM t"))
            self.assertEqual(sorted(rows), [1, 2, 3, 101, 102, 103])
            self.assertEqual(rows[3], "d")
            self.assertEqual(rows[2], "multiple\nlines; and a semicolon")


class Feed(Case):
    def test_feed_trims_its_images(self):
        summary, actions, work = self.run_workload("feed", "--cache-mib", 4, minutes=3)
        self.assert_whole(*(work / f"{name}.db" for name in ("feed", "outbox", "settings")))
        trimmed = sum(int(a.split()[-2]) for a in actions if a.endswith(" trimmed"))
        self.assertGreater(trimmed, 0)
        images = {path.name: path.stat().st_size for path in (work / "images").iterdir() if path.name != "journal"}
        self.assertLessEqual(sum(images.values()), 4 * MIB)
        # The journal and the folder agree.
        listed = {}
        for line in (work / "images" / "journal").read_text().splitlines()[5:]:
            word, key, *size = line.split()
            if word == "CLEAN":
                listed[f"{key}.0"] = int(size[0])
            elif word == "REMOVE":
                del listed[f"{key}.0"]
        self.assertEqual(images, listed)
        self.assertGreater(summary["actions"]["story"], 0)
        self.assertEqual(list((work / "clips").iterdir()), [])


class Video(Case):
    def test_video_drops_what_was_played(self):
        _, actions, work = self.run_workload("video")
        there = set()
        for action in actions:
            if action.startswith("segment fetched "):
                there.add(action.split()[-1])
            elif action.startswith("segment dropped "):
                there.remove(action.split()[-1])
            self.assertLessEqual(len(there), 13)
        self.assertGreater(sum(a.startswith("segment dropped") for a in actions), 10)
        self.assertEqual({path.name for path in (work / "buffer").iterdir()}, there)
        with contextlib.closing(sqlite3.connect(work / "library.db")) as library:
            self.assertEqual(library.execute("SELECT count(*) FROM buffered").fetchone(), (len(there),))


class Game(Case):
    def test_game_installs_patches_and_saves(self):
        summary, actions, work = self.run_workload("game", minutes=2.5)
        self.assertEqual(sorted(p.name for p in (work / "packs").iterdir()),
                         ["films.zip", "levels.pak", "sounds.pak", "textures.pak"])
        self.assertFalse((work / "base.zip").exists())
        self.assertEqual(summary["actions"]["patch"], 1)
        saved = {}
        for action in actions:
            if action.startswith("checkpoint "):
                slot, size = action.removeprefix("checkpoint ").removesuffix(" bytes").split(", ")
                saved[slot] = int(size)
        self.assertTrue(saved)
        for slot, size in saved.items():
            if slot != "auto":  # that one is also written between checkpoints
                self.assertEqual((work / "saves" / f"{slot}.sav").stat().st_size, size)
        left = [path.name for path in work.rglob("*") if path.suffix in (".tmp", ".part", ".new")]
        self.assertEqual(left, [])
        compiled = sum(int(a.split()[-3]) for a in actions if a.endswith("compiled"))
        self.assertEqual(sum(path.is_file() for path in (work / "shaders").rglob("*")), compiled)


class Map(Case):
    def test_map_keeps_tiles_in_files_and_databases(self):
        summary, actions, work = self.run_workload("map", "--cache-mib", 3, minutes=3)
        self.assert_whole(*(work / name for name in ("satellite.db", "region.mbtiles", "places.db")))
        files = [path for path in (work / "tiles").rglob("*") if path.is_file()]
        self.assertTrue(files)
        self.assertEqual({path.suffix for path in files}, {".png"})
        self.assertLessEqual(sum(path.stat().st_size for path in files), 3 * MIB)
        self.assertTrue(any(", 0 trimmed" not in a and a.endswith("trimmed") for a in actions))
        saved = sum(int(a.split()[-2]) for a in actions if a.startswith("save region"))
        with contextlib.closing(sqlite3.connect(work / "region.mbtiles")) as region:
            self.assertEqual(region.execute("SELECT count(*) FROM tiles").fetchone(), (saved,))
        self.assertIn("navigate", summary["actions"])


class Browser(Case):
    def test_browser_keeps_a_profile_for_each_person(self):
        summary, actions, work = self.run_workload("browser", "--people", "reader", minutes=0.8, seeds=(7,))
        self.assertEqual(summary["actions"]["session"], 1)
        self.assert_whole(work / "reader/profile/Default/History")
        with contextlib.closing(sqlite3.connect(work / "reader/profile/Default/History")) as history:
            (visits,) = history.execute("SELECT count(*) FROM visits").fetchone()
        self.assertGreaterEqual(visits, sum(a.split()[0] in ("link", "favourite", "start") for a in actions))
        self.assertTrue(list(work.glob("reader/profile/Default/Cache/**/*_0")))

    def test_browser_visits_so_many_pages_and_keeps_caches_apart(self):
        cache = self.directory / "cache"
        summary, _, work = self.run_workload(
            "browser", "--people", "commuter", "--visits", 6, "--cache", cache, seeds=(7,))
        self.assertEqual(summary["actions"].pop("session"), 4)
        self.assertEqual(sum(summary["actions"].values()), 6)
        self.assertTrue(list(cache.glob("commuter/**/*_0")))
        self.assertFalse(list(work.glob("commuter/profile/Default/Cache/**/*_0")))


class Ends(Case):
    """Every started process ends."""

    def begin(self, name):
        """Start a workload, wait for its first action."""
        self.need(*PROGRAMS[name])
        actions = self.directory / "actions"
        os.mkfifo(actions)
        process = subprocess.Popen(
            self.command(name, "--dir", self.directory / "work", "--actions", actions),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.addCleanup(process.kill)
        listed = self.enterContext(open(actions))
        self.assertTrue(listed.readline())
        return process

    def test_signals_leave_no_process(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                self.setUp()
                process = self.begin("messenger")
                self.assertEqual(len(_living_in(self.directory / "work")), 3)
                process.send_signal(number)
                output, complaint = process.communicate()
                self.assertEqual((process.returncode, output, complaint), (128 + number, "", ""))
                self.assertEqual(_living_in(self.directory / "work"), [])

    def test_a_killed_program_is_an_error(self):
        process = self.begin("messenger")
        for pid in _living_in(self.directory / "work"):
            os.kill(pid, signal.SIGKILL)
        _, complaint = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(complaint, r"^messenger: sqlite3 gave no answer on \w+\.db")

    def test_a_missing_program_is_named_with_its_package(self):
        for name, programs in PROGRAMS.items():
            done = subprocess.run(self.command(name, "--dir", self.directory / name), env={"PATH": "/nowhere"},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"apt-get install {' '.join(programs)}", done.stderr)
            self.assertFalse((self.directory / name).exists())

    def test_a_directory_with_files_is_refused(self):
        self.need("sqlite3")
        (self.directory / "file").touch()
        done = subprocess.run(self.command("messenger", "--dir", self.directory), capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not empty (file)", done.stderr)


class RecordAll(Case):
    # Replaces the recorder, which has its own tests: runs the workload and reports losses.
    RECORDER = """#!/bin/sh
case $1 in
--version) echo flashsift 0; exit ;;
record) shift; out=$2; while [ "$1" != -- ]; do shift; done; shift ;;
*) exit 1 ;;
esac
"$@" || exit
echo '  LOST on processor 1: 3 records of accesses' >&2
df --output=fstype "$3" | tail -n 1 > "$out"
"""

    def recorder(self, text):
        if os.geteuid():
            self.skip("it needs root")
        allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
        if not allowed or not Path("/dev/loop-control").exists():
            self.skip("mounting a loop device is not allowed here")
        self.need("sqlite3", "mkfs.ext4")
        program = self.directory / "flashsift"
        program.write_text(text)
        program.chmod(0o755)
        return subprocess.Popen(
            self.command("record-all", "--only", "messenger", "--minutes-scale", 0.001, "--flashsift", program,
                         "--out", self.directory / "out", "--scratch", self.directory),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_record_all_leaves_a_trace_and_its_card(self):
        process = self.recorder(self.RECORDER)
        output, complaint = process.communicate()
        self.assertEqual((process.returncode, output), (0, ""), complaint)
        out = self.directory / "out"
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["README.md", "messenger.json", "messenger.parquet"])
        self.assertEqual((out / "messenger.parquet").read_text(), "ext4\n")
        card = json.loads((out / "messenger.json").read_text())
        self.assertEqual(card["lost"], "LOST on processor 1: 3 records of accesses")
        self.assertEqual(card["workload"]["seed"], 7)
        self.assertIn("workloads/messenger --dir /", card["command"])
        self.assertIn("| `messenger.parquet` | sqlite3 |", (out / "README.md").read_text())
        self.assertNotIn(str(self.directory), Path("/proc/self/mountinfo").read_text())

    def test_record_all_ended_leaves_nothing(self):
        os.mkfifo(self.directory / "begun")
        process = self.recorder(f"#!/bin/sh\n[ $1 = record ] || exit\necho > {self.directory}/begun\nexec sleep 1000\n")
        self.addCleanup(process.kill)
        (self.directory / "begun").read_text()
        process.terminate()
        _, complaint = process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, complaint)
        self.assertEqual(sorted(p.name for p in self.directory.iterdir()), ["begun", "flashsift", "out"])
        self.assertEqual(list((self.directory / "out").iterdir()), [])


def _living_in(directory):
    """Processes whose working directory is below a directory, as for all programs of workloads."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(entry / "cwd")).is_relative_to(directory.resolve()):
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    unittest.main()
