"""Runs each workload with short pauses: equal seeds give equal actions, and files appear and
disappear as promised.

Tests that need root, or a program that is not installed, are skipped, by name. Those of programs
that are large to install, and of workloads of days, run with WORKLOADS_LONG=1, as in `make soak`.
"""

import contextlib
import email.utils
import json
import lzma
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(WORKLOADS))
from apps.large_web import LargeWeb  # noqa: E402
from apps.run import RequestLog  # noqa: E402

PROGRAMS = {
    "browser": ("chromium",),
    "desktop": ("apt-get", "dpkg", "dpkg-deb", "ffmpeg", "gdk-pixbuf-thumbnailer", "git", "notmuch"),
    "feed": ("sqlite3", "curl"),
    "game": ("curl", "unzip"),
    "map": ("sqlite3", "curl"),
    "launch": ("chromium", "ffmpeg", "git", "ldd", "sqlite3"),
    "messenger": ("sqlite3",),
    "offline": ("ffmpeg", "curl", "sqlite3"),
    "photos": ("feh", "ffmpeg", "Xvfb"),
    "video": ("ffmpeg", "curl", "sqlite3"),
}
MIB = 1 << 20
LONG = bool(os.environ.get("WORKLOADS_LONG"))
long_form = unittest.skipUnless(LONG, "a long form, which make soak runs")


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
    @long_form
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


class Days(Case):
    """Workloads of days: pauses are shortened, the programs' calendar is not."""

    RUNS = {
        "messenger": ("messenger", "--minutes", 0.5),
        "firefox": ("browser-days", "--browser", "firefox", "--minutes", 3, "--returns", 0, 72),
        "photos": ("photos", "--albums", 1, "--negatives", 2, "--minutes", 2, "--returns", 0, 24),
        "offline": ("offline", "--episodes", 2, "--minutes", 1, "--returns", 0, 24),
        "desktop": ("desktop", "--mails", 30, "--minutes", 2, "--returns", 0, 24),
        "launch": ("launch", "--minutes", 6, "--returns", 0, 24),
    }
    NEEDED = {**PROGRAMS, "firefox": ("firefox-esr",)}

    @classmethod
    def setUpClass(cls):
        """Start all at once: they mostly wait."""
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="workloads-days-")))
        cls.running = {}
        for run, (name, *options) in cls.RUNS.items():
            wanted = (LONG or run == "messenger") and not (run == "desktop" and os.geteuid())
            if wanted and all(map(shutil.which, ("cc", *cls.NEEDED[run]))):
                files = {part: cls.folder / f"{run}.{part}" for part in ("pauses", "requests")}
                command = [sys.executable, WORKLOADS / name, "--dir", cls.folder / run, "--seed", 7,
                           "--keep-pause", 0.02, "--pauses", files["pauses"], "--requests", files["requests"], *options]
                cls.running[run] = subprocess.Popen(
                    list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self, run):
        """Its summary, directory, cuts and requests."""
        self.need("cc", *self.NEEDED[run])
        if run not in self.running:
            self.skip("dpkg needs root")
        output, complaint = self.running[run].communicate()
        self.assertEqual(self.running[run].returncode, 0, complaint)
        work = self.folder / run
        self.assertEqual(_living_in(work), [])
        header, *lines = (self.folder / f"{run}.pauses").read_text().splitlines()
        self.assertEqual(header, "at_us,cut_us")
        cuts = [tuple(map(int, line.split(","))) for line in lines]
        self.assertEqual([at for at, _ in cuts], sorted({at for at, _ in cuts}))
        summary = json.loads(output)
        self.assertAlmostEqual(sum(cut for _, cut in cuts) / 1e6, summary["pauses"]["cut_s"], delta=0.1)
        requests = [json.loads(line) for line in (self.folder / f"{run}.requests").read_text().splitlines()]
        return summary, work, cuts, requests

    def test_cuts_are_listed(self):
        summary, _, cuts, _ = self.result("messenger")
        self.assertEqual(len(cuts), summary["pauses"]["shortened"])
        self.assertGreater(summary["pauses"]["planned_s"], 30)

    @long_form
    def test_firefox_comes_back_after_days(self):
        summary, work, _, requests = self.result("firefox")
        self.assertEqual(summary["actions"]["session"], 2)
        self.assertTrue(list(work.glob("profile/firefox/cache2/entries/*")))
        sums = summary["requests"]
        self.assertEqual(sums["requests"], len(requests))
        self.assertEqual(sums["bytes"], sum(request["bytes"] for request in requests))
        self.assertEqual(sums["urls"], len({request["url"] for request in requests}))
        # After three days some copies are no longer fresh, and still good.
        self.assertGreater(sums["not_modified"], 0)

    @long_form
    def test_feh_keeps_thumbnails(self):
        _, work, _, _ = self.result("photos")
        thumbnails = list(work.glob(".cache/thumbnails/*/*.png"))
        self.assertTrue(thumbnails)
        self.assertLessEqual(len(thumbnails), sum(1 for _ in work.glob("Pictures/*/*.jpg")))

    @long_form
    def test_episodes_stay(self):
        summary, work, _, _ = self.result("offline")
        self.assertEqual(summary["actions"]["download"], 2)
        self.assertEqual(summary["kept_bytes"], summary["requests"]["bytes"])
        self.assertEqual(list(work.rglob("*.part")), [])

    @long_form
    def test_a_pc_installs_pulls_and_reads(self):
        _, work, _, _ = self.result("desktop")
        log = (work / "system/var/log/apt/history.log").read_text()
        self.assertIn("Install:", log)
        self.assertIn("Upgrade:", log)
        self.assertEqual(subprocess.run(["git", "-C", work / "work", "fsck"], capture_output=True).returncode, 0)
        self.assertTrue((work / "Mail/.notmuch/xapian").is_dir())

    @long_form
    def test_programs_start_cold(self):
        summary, _, _, _ = self.result("launch")
        self.assertGreater(summary["actions"]["start"], 2)
        self.assertGreater(summary["copied_bytes"], 100 * MIB)


class Calendar(Case):
    def test_programs_see_a_later_date_and_the_same_monotonic_clock(self):
        self.need("cc")
        library = self.directory / "clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, WORKLOADS / "apps/clock.c", "-ldl"], check=True)
        calendar = self.directory / "calendar"
        calendar.write_bytes((3 * 86400 * 10**6).to_bytes(8, sys.byteorder))
        given = {**os.environ, "LD_PRELOAD": str(library), "WORKLOAD_CLOCK": str(calendar)}
        code = "import time; print(time.time(), time.monotonic())"
        before = time.time(), time.monotonic()
        date, monotonic = map(float, subprocess.check_output([sys.executable, "-c", code], env=given).split())
        after = time.time(), time.monotonic()
        self.assertTrue(before[0] <= date - 3 * 86400 <= after[0])
        self.assertTrue(before[1] <= monotonic <= after[1])


class Servers(unittest.TestCase):
    def web(self, seed=1):
        self.now_s = 1_790_000_000.0
        web = LargeWeb(lambda part: random.Random(f"{seed} {part}"), lambda: self.now_s)
        web.set_port(80)
        return web

    def test_the_large_web_is_ten_times_the_small_one(self):
        web = self.web()
        self.assertGreater(len(web), 10 * 1088)
        self.assertGreater(web.total_bytes(), 490e6)
        kinds = [file.cache.partition("=")[0] or "heuristic" for file in web._files.values()]
        # The shares of responses in the Web Almanac 2020, "Caching"; most files here are images.
        self.assertAlmostEqual(kinds.count("no-store") / len(kinds), 0.092, delta=0.02)
        self.assertAlmostEqual(kinds.count("heuristic") / len(kinds), 0.282, delta=0.02)
        self.assertEqual(web._files, self.web()._files)

    def test_a_copy_is_good_until_the_page_changes(self):
        web = self.web()
        page = next(key for key, file in web._files.items() if file.period_s and file.tagged and file.modified)
        file = web._files[page]
        status, headers, body = web.answer(f"{page[0]}.localhost", page[1], {})
        self.assertEqual((status, body[:15]), (200, b"<!doctype html>"))
        asked = {"If-None-Match": headers["ETag"]}
        self.assertEqual(web.answer(*page, asked)[0::2], (304, b""))
        self.assertEqual(web.answer(*page, {"If-Modified-Since": headers["Last-Modified"]})[0], 304)
        self.assertLessEqual(email.utils.parsedate_to_datetime(headers["Last-Modified"]).timestamp(), self.now_s)
        self.now_s += file.period_s
        self.assertEqual(web.answer(*page, asked)[0], 200)
        self.assertEqual(web.answer(*page, {"If-Modified-Since": headers["Last-Modified"]})[0], 200)

    def test_images_have_their_size_and_all_links_lead_somewhere(self):
        web = self.web()
        for (host, path), file in list(web._files.items())[::400]:
            _, _, body = web.answer(host, path, {})
            self.assertLess(abs(len(body) - file.size), 0.2 * file.size + 6000, path)
        for links in web.links.values():
            self.assertTrue(all(link in web._files for link in links))

    def test_a_byte_served_again_is_counted(self):
        log = RequestLog()
        for url, status, size in (("/a", 200, 10), ("/b", 404, 1), ("/a", 304, 0), ("/a", 200, 12), ("/b", 200, 5)):
            log.note("GET", url, status, size, status == 304)
        self.assertEqual(log.summary(), {
            "requests": 5, "urls": 2, "bytes": 28, "conditional": 1, "not_modified": 1, "again": 1, "bytes_again": 12})


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
            # The workload that meets the first death ends the others itself, perhaps before us.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, complaint = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(complaint, r"^messenger: sqlite3 gave no answer on \w+\.db")

    def test_a_missing_program_is_named_with_its_package(self):
        for name, programs in PROGRAMS.items():
            done = subprocess.run(self.command(name, "--dir", self.directory / name), env={"PATH": "/nowhere"},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("apt-get install", done.stderr)
            for program in programs:
                self.assertIn(program, done.stderr)
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

    def need_mounts(self):
        if os.geteuid():
            self.skip("it needs root")
        allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
        if not allowed or not Path("/dev/loop-control").exists():
            self.skip("mounting a loop device is not allowed here")
        self.need("sqlite3", "mkfs.ext4")

    def recorder(self, text):
        self.need_mounts()
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

    @long_form
    def test_short_recordings_span_days(self):
        self.need_mounts()
        self.need("chromium", "cc", *PROGRAMS["desktop"])
        flashsift = os.environ.get("FLASHSIFT") or next(
            (path for path in (WORKLOADS.parent / f"target/{kind}/flashsift" for kind in ("debug", "release"))
             if path.exists()), None)
        if flashsift is None or not Path("/sys/kernel/tracing/instances").is_dir():
            self.skip("no flashsift is built, or the kernel's tracepoints are not available")
        sql = self.directory / "sql"
        sql.mkdir()
        (sql / "facebook.loading.sql.xz").write_bytes(lzma.compress(b"CREATE TABLE t(a INTEGER PRIMARY KEY, b);"))
        (sql / "facebook.statements.sql.xz").write_bytes(
            lzma.compress(b"".join(b"INSERT INTO t VALUES(%d, 'b');\n" % n for n in range(20))))
        out = self.directory / "out"
        names = ("browser-days-1", "desktop-1", "facebook-wal")
        done = subprocess.run(
            self.command("record-all", "--short", "--only", *names, "--out", out, "--sql", sql,
                         "--flashsift", flashsift, "--scratch", self.directory), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        out /= "days"
        cards = {name: json.loads((out / f"{name}.json").read_text()) for name in names}
        for name in names[:2]:
            card = cards[name]
            self.assertEqual(card["split"], "train")
            self.assertGreater(card["describe"]["duration_us"], 24 * 3600 * 10**6)
            self.assertEqual(card["workload"]["actions"]["session"], 2)
            with lzma.open(out / f"{name}.requests.jsonl.xz") as requests:
                self.assertEqual(len(requests.readlines()), card["workload"]["requests"]["requests"])
        self.assertEqual(cards["facebook-wal"]["workload"]["statements"]["run"], 20)
        self.assertNotIn(str(self.directory), json.dumps(cards))

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
