"""Delete files of a browser's profile, kind by kind, and see what its next visits cost and lose.

Each trial begins with a copy of a profile that three sessions have filled. Its files of one kind
are deleted (one, a third, all), between two runs of the browser or while it runs, and the same
pages are visited again. Undisturbed trials stand between the others. Trials are appended to
TRIALS, one JSON object a line; those that are there are not repeated.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from apps import testbed
from browsers import BROWSERS, WorkloadError, installed
from common.rows import json_lines
from kinds import RULE, block_cache, dropped_by_rule, in_cache, kind_of, urls_of
from web import Server, Site

FILL_SESSIONS = 3
CONTROL_EVERY = 8
# Content that no cache holds: the experiment has to see that its loss is harm.
STORED = {
    "chromium": ("Cookies", "History", "Local Storage/", "Local Storage/leveldb/N.log",
                 "IndexedDB/", "File System/", "Service Worker/Database/"),
    "firefox": ("cookies.sqlite", "places.sqlite", "storage/default/ORIGIN/idb/", "storage/default/ORIGIN/ls/",
                "storage/default/ORIGIN/fs/", "serviceworker.txt"),
}
FAILURES = (OSError, ValueError, KeyError, RuntimeError, TimeoutError, WorkloadError, subprocess.SubprocessError)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=Path, help="file of results, which is continued")
    parser.add_argument("--browser", choices=BROWSERS, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", metavar="PATTERN", help="kinds in which this regular expression is found")
    parser.add_argument("--modes", nargs="+", choices=("between", "running"), default=["between", "running"])
    args = parser.parse_args()
    # The ways to end it are errors here, so that the browser ends and its profile goes.
    testbed.end_on_signals(testbed.ENDING)
    if not installed(args.browser):
        sys.exit(f"{args.browser} is not installed")
    done = json_lines(args.trials)
    with tempfile.TemporaryDirectory(prefix="harmless-") as scratch, open(args.trials, "a") as out:
        for seed in args.seeds:
            mine = [trial for trial in done if (trial["browser"], trial["seed"]) == (args.browser, seed)]
            Seed(args, seed, Path(scratch) / f"{args.browser}-{seed}", out, mine).run()


class Seed:
    """All trials of one seed: a site, a filled profile, and its copies."""

    def __init__(self, args, seed, scratch, out, done):
        self.args, self.seed, self._out, self._done = args, seed, out, done
        self.browser = BROWSERS[args.browser]
        scratch.mkdir()
        self.home, self.template, self.log = scratch / "home", scratch / "template", scratch / "log"
        self.home.mkdir()
        self.site = Site(seed)
        self.reference = {}
        self.always_open = set()

    def run(self):
        plan = random.Random(f"plan {self.args.browser} {self.seed}")
        with Server(self.site) as server:
            self.server = server
            self.fill()
            files = self.listed()
            trials = self.trials(files)
            plan.shuffle(trials)
            # Those of an earlier run stay: their profile was another one.
            number = sum(trial["amount"] == "none" for trial in self._done)
            for at, trial in enumerate(trials):
                if at % CONTROL_EVERY == 0:
                    for mode in self.args.modes:
                        self.do(f"control {number}", "none", mode, [], at, len(trials))
                    number += 1
                self.do(*trial, at, len(trials))

    def fill(self):
        """Fill a profile, keep it as the template, and note how its pages look."""
        for session in range(FILL_SESSIONS):
            with self.browser(self.home, self.log) as browser:
                if session == 0:
                    self.go(browser, "app", "/")
                    browser.evaluate("fill()")
                    self.go(browser, "once", "/")
                problems = self.visit(browser, learn=session == 0)
                self.linger(browser, session)
            self.server.take()
            if problems or browser.code:
                raise RuntimeError(f"session {session + 1} of {self.args.browser}: {browser.code} {problems}")
        shutil.rmtree(self.home / "tmp", ignore_errors=True)
        self.copy(self.home, self.template)
        print(f"{self.args.browser} seed {self.seed}: {len(self.listed())} files in caches", flush=True)

    def linger(self, browser, session):
        """Stay until the browser has written what it writes late."""
        browser.capture()
        if session == FILL_SESSIONS - 1:
            self.go(browser, "draw", "/")
            browser.evaluate("check()")
            place, timeout_s = self.browser.WRITES_LATE
            if self.args.browser == "firefox":
                # Its index counts changes only once it has seen all entries, 50 s after the start.
                time.sleep(65)
                self.go(browser, "many", "/")
                browser.evaluate("check()")
            end = time.monotonic() + timeout_s
            while not any(self.home.glob(place)) and time.monotonic() < end:
                time.sleep(1)

    def copy(self, source, target):
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)

    def listed(self, everything=False):
        """Paths of the profile's files below the home directory, in caches only or all."""
        found = []
        for folder, _, names in os.walk(self.home):
            base = os.path.relpath(folder, self.home)
            found += [f"{base}/{name}" for name in names]
        return sorted(path for path in found if (everything or in_cache(path)) and not path.startswith("tmp/"))

    def trials(self, files):
        """Kinds, amounts and modes, each with the profile's files of the kind."""
        kinds = collections.defaultdict(list)
        for path in files:
            kinds[kind_of(path)].append(path)
        kinds[RULE] = [path for path in files if dropped_by_rule(path)]
        trials = [(kind, amount, mode, paths) for kind, paths in kinds.items()
                  for amount in amounts(len(paths)) for mode in self.args.modes]
        everything = self.listed(everything=True)
        for prefix in STORED[self.args.browser]:
            paths = [path for path in everything if kind_of(path).startswith(prefix) and not in_cache(path)]
            if paths:
                trials.append((f"stored: {prefix}", "all", "between", paths))
        return [trial for trial in trials if not self.args.only or re.search(self.args.only, trial[0])]

    def do(self, kind, amount, mode, paths, at, of):
        name = {"browser": self.args.browser, "seed": self.seed, "kind": kind, "amount": amount, "mode": mode}
        if any(name.items() <= trial.items() for trial in self._done):
            return
        if mode == "running" and kind in self.always_open:
            trial = {**name, "files": len(paths), "deleted": 0, "bytes": 0, "own": [], "phases": [], "open": {},
                     "held": len(paths), "back": 0, "gone": {}, "remade": {}}
            self.note(trial, at, of)
            return
        self.copy(self.template, self.home)
        (self.home / "tmp").mkdir()
        self.before = self.identities()
        self.log.write_text("")
        rng = random.Random(f"{self.args.browser} {self.seed} {kind} {amount} {mode}")
        trial = {**name, "files": len(paths), "deleted": [], "bytes": 0, "own": [], "phases": [], "open": {}}
        self.server.take()
        try:
            getattr(self, mode)(trial, rng, paths)
        except FAILURES as error:
            trial["phases"].append(self.phase("failed", [f"{type(error).__name__}: {error}"[:300]], None))
        self.aftermath(trial)
        trial["deleted"] = len(trial["deleted"])
        if kind.startswith("control") and mode == "running":
            self.always_open = {kind for kind, (held, there) in trial["open"].items() if held == there}
        self.note(trial, at, of)

    def note(self, trial, at, of):
        self._out.write(json.dumps(trial) + "\n")
        self._out.flush()
        problems = sum(len(phase["problems"]) for phase in trial["phases"])
        asked = sum(size for phase in trial["phases"] for _, size in phase["asked"].values())
        print(f"{self.args.browser} seed {self.seed} {at + 1}/{of} {trial['kind']}, "
              f"{trial['amount']}, {trial['mode']}: "
              f"{trial['deleted']} deleted, {asked} bytes asked, {problems} problems", flush=True)

    def between(self, trial, rng, paths):
        self.delete(trial, rng, paths)
        self.session(trial, "next run")

    def running(self, trial, rng, paths):
        """Delete after a first visit, closed files only; a sifter drops no others."""
        with self.browser(self.home, self.log) as browser:
            self.visit(browser, lambda: self.note_open(browser, trial))
            self.server.take()
            held = browser.open_files()
            there = [path for path in paths if (self.home / path).exists()]
            trial["held"] = sum(path in held for path in there)
            free = [path for path in there if path not in held]
            self.delete(trial, rng, free)
            if not trial["deleted"] and trial["amount"] != "none":
                return
            browser.fresh_tab()
            phase = self.phase("same run", self.visit(browser), browser)
        phase["code"] = browser.code
        phase["problems"] += self.crashes()
        trial["phases"].append(phase)
        self.session(trial, "next run")

    def session(self, trial, name):
        with self.browser(self.home, self.log) as browser:
            phase = self.phase(name, self.visit(browser), browser)
        phase["code"] = browser.code
        phase["problems"] += self.crashes()
        trial["phases"].append(phase)

    def phase(self, name, problems, browser):
        asked = collections.defaultdict(lambda: [0, 0])
        for url, size in self.server.take():
            asked[url][0] += 1
            asked[url][1] += size
        return {"name": name, "asked": asked, "problems": problems, "code": None,
                "startup_s": round(browser.startup_s, 3) if browser else None}

    def note_open(self, browser, trial):
        """Count how many files of each kind the browser has open, and how many there are."""
        held = browser.open_files()
        for path in self.listed():
            counts = trial["open"].setdefault(kind_of(path), [0, 0])
            counts[0] += path in held
            counts[1] += 1

    def delete(self, trial, rng, paths):
        count = {"one": 1, "third": -(-len(paths) // 3), "all": len(paths), "none": 0}[trial["amount"]]
        own = set()
        for path in sorted(rng.sample(paths, min(count, len(paths)))):
            data = (self.home / path).read_bytes()
            own |= urls_of(data, self.site.resources)
            trial["bytes"] += len(data)
            (self.home / path).unlink()
            trial["deleted"].append(path)
        trial["own"] = sorted(own)

    def identities(self):
        found = {}
        for path in self.listed():
            with contextlib.suppress(FileNotFoundError):
                found[path] = (self.home / path).stat().st_ino
        return found

    def aftermath(self, trial):
        """Files that came back, that are gone or were made anew besides; history."""
        after = self.identities()
        deleted = set(trial["deleted"])
        trial["back"] = sum(path in after for path in deleted)
        gone = collections.Counter(kind_of(path) for path in self.before if path not in after and path not in deleted)
        remade = collections.Counter(
            kind_of(path) for path, number in self.before.items()
            if path not in deleted and after.get(path, number) != number and not self.derived(path, trial["own"]))
        for path in self.before:
            # A cache of block files that is made anew keeps their inodes.
            if path.endswith("/index") and (was := self.block_cache(self.template, path)):
                now = self.block_cache(self.home, path)
                if now is None or was[1] != now[1]:
                    remade[f"{kind_of(path).removesuffix('/index')}, all entries"] += 1
        trial["gone"], trial["remade"] = gone, remade
        if trial["phases"]:
            with contextlib.suppress(IndexError):
                trial["phases"][-1]["problems"] += self.history()

    @staticmethod
    def block_cache(home, path):
        with contextlib.suppress(OSError):
            return block_cache((home / path).read_bytes())

    def derived(self, path, own):
        """Whether a file holds only what comes from the deleted ones, as compiled code does."""
        with contextlib.suppress(OSError):
            urls = urls_of((self.home / path).read_bytes(), self.site.resources)
            return bool(urls) and urls <= set(own)
        return False

    def history(self):
        """The page that was seen only in the first session is still in the history."""
        path, query = self.browser.HISTORY
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.home / path}?mode=ro", uri=True)) as database:
                seen = [url for (url,) in database.execute(query)]
        except sqlite3.Error as error:
            return [f"history: {error}"]
        return [] if any("//once." in url for url in seen) else ["history lost"]

    def crashes(self):
        dumps = [path for path in self.listed(everything=True) if path.endswith(".dmp")]
        said = [line for line in self.log.read_text(errors="replace").splitlines()
                if "Received signal" in line or "FATAL" in line or "Check failed" in line]
        self.log.write_text("")
        return [f"crash: {Path(dump).name}" for dump in dumps] + [f"crash: {line[:200]}" for line in said]

    def go(self, browser, host, path):
        browser.open(f"http://{host}.localhost:{self.server.port}{path}")

    def visit(self, browser, after_page=lambda: None, learn=False):
        """Visit all pages, the application twice; return what is not as it should be."""
        problems = []
        for host, path in [*self.site.pages, ("app", "/")]:
            self.go(browser, host, path)
            if learn and host == "app":
                # Its worker controls the next page.
                browser.evaluate("navigator.serviceWorker.ready.then(()=>true)")
                self.go(browser, host, path)
            looks = browser.evaluate("check()")
            sums = looks.pop("sums")
            place = f"{host}{path}"
            if learn:
                self.reference[place] = looks
            expected = self.site.expected(host, path)
            problems += [f"{place}: {name} is {sums.get(name)}" for name in expected
                         if sums.get(name) != expected[name]]
            for name, value in self.reference[place].items():
                if looks.get(name) != value:
                    problems.append(f"{place}: {name} is {json.dumps(looks.get(name))[:300]}")
            after_page()
        if learn and (lost := self.reference["app/"]["lost"]):
            raise RuntimeError(f"the application lacks {lost} from the beginning")
        return problems


def amounts(count):
    """A third of few files is one, or all."""
    return ("one", "third", "all") if count > 4 else ("one", "all") if count > 1 else ("all",)


if __name__ == "__main__":
    main()
