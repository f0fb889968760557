"""One load in a process of its own: a real program with seeded sessions on one directory.

    loads.py NAME DIRECTORY SEED SCALE

Think times are cut to a 200th, except those of the loads at a person's pace. It prints a JSON
object: bytes that the server sent, and the time of each step in ms. A step is a page load of a
browser, a download of the feed, an installation of pip, or a look at all files.

A warm load first browses for days in DIRECTORY, of which the pauses are cut out. Then it prints
`warm`, waits for the path at which it finds the same files from then on, and goes on. It tells what
came after that alone.
"""

import contextlib
import io
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from apps import browser, browser_days, disk_cache, feed, firefox, packages

sys.path.append(str(Path(__file__).resolve().parents[1] / "cachesifter/harmless"))
import caches

# Think time is short, so that a session is a matter of seconds.
SPEED = 200
# The pace of a person, for rules that wait: the kernel's 30 s, and CacheSifter's 20 s and 60 s.
PACE = 1
SESSIONS = 3
DAYS_MINUTES = {"chromium": 10, "firefox": 6}
# The hours between the sessions that warm a profile, and those between the sessions that count.
WARMING_H, WARM_H = (0, 1, 18, 4, 20, 2), (8, 0, 0)
SESSION_MINUTES = 12
# The pauses that are kept: of those in which the profile becomes warm, and of those that count.
WARMING_PAUSE_S, WARM_PAUSE_S = 0.05, 60
VISITS = 45
FEED_MINUTES = 8
PACKAGES, INSTALLATIONS, INSTALLED, PACKAGE_KIB = 60, 5, 6, (64, 2048)
FILES, FILE_BYTES, LOOK_EVERY = 900, (20_000, 120_000), 10


def timed(tab, steps):
    """Measures the page loads of a class of tabs."""
    for name in ("open", "click", "back"):
        setattr(tab, name, _timed(getattr(tab, name), steps))


def _timed(load, steps):
    def wrapped(self, *arguments):
        began = time.monotonic()
        load(self, *arguments)
        steps.append(time.monotonic() - began)
    return wrapped


def browsing(main, tab, speed=SPEED):
    def load(directory, seed, scale, *options):
        steps = []
        timed(tab, steps)
        return called(main, directory / "browser", seed, steps,
                      *(option(scale) if callable(option) else option for option in options), speed=speed)
    return load


def called(main, directory, seed, steps, *options, speed=SPEED):
    """Runs a workload's own command line."""
    sys.argv = ["load", "--dir", str(directory), "--seed", str(seed), "--speed", str(speed), *options]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main()
    summary = json.loads(out.getvalue().splitlines()[-1])
    return {"served_bytes": summary["requests"]["bytes"], "steps": steps,
            "requests": summary["requests"]["requests"], "actions_sha256": summary["actions_sha256"],
            "program": list(summary["programs"].values())[0]}


def days(name, tab, speed=SPEED):
    load = browsing(browser_days.main, tab, speed)
    return lambda directory, seed, scale: load(
        directory, seed, scale, "--browser", name, "--returns", *["0"] * SESSIONS,
        "--minutes", lambda scale: str(max(1, round(DAYS_MINUTES[name] * scale))))


def warm(name, tab, minutes, speed=SPEED):
    """A browser with the profile of two days, in sessions of so many minutes."""
    def load(directory, seed, scale):
        steps, counted = [], []
        timed(tab, steps)
        plain = browser_days.days.sessions

        def sessions(run):
            for number, session in enumerate(plain(run)):
                if number == len(WARMING_H):
                    print("warm", file=sys.__stdout__, flush=True)
                    run.directory = Path(sys.stdin.readline().strip()) / "browser"
                    run.options.keep_pause = WARM_PAUSE_S
                    counted.append(run.requests.summary())
                    steps.clear()
                yield session

        browser_days.days.sessions = sessions
        hours = [str(hours) for hours in (*WARMING_H, *WARM_H)]
        told = called(browser_days.main, directory / "browser", seed, steps, "--browser", name, "--returns", *hours,
                      "--minutes", str(minutes * len(hours) * scale), "--keep-pause", str(WARMING_PAUSE_S), speed=speed)
        return {**told, "served_bytes": told["served_bytes"] - counted[0]["bytes"],
                "requests": told["requests"] - counted[0]["requests"], "warming_requests": counted[0]["requests"]}
    return load


def people(directory, seed, scale):
    return browsing(browser.main, browser._Tab)(
        directory, seed, scale, "--visits", lambda scale: str(round(VISITS * scale)))


def feeding(directory, seed, scale):
    """The feed application, which fetches an image again if its file is gone."""
    class Robust(disk_cache.DiskCache):
        def _missing(self, key):
            return key in self._sizes and not (self._directory / f"{key}.0").exists()

        def __contains__(self, key):
            if self._missing(key):
                self._bytes -= self._sizes.pop(key)
            return super().__contains__(key)

        def remove(self, key):
            if self._missing(key):
                (self._directory / f"{key}.0").touch()
            super().remove(key)

    steps = []

    class Fetched(feed.Downloads):
        def fetch(self, wanted):
            began = time.monotonic()
            super().fetch(wanted)
            steps.append(time.monotonic() - began)

    feed.DiskCache, feed.Downloads = Robust, Fetched
    return called(feed.main, directory / "feed", seed, steps, "--minutes", str(max(1, round(FEED_MINUTES * scale))))


def pip(directory, seed, scale):
    """Installations of changing packages from a local index, each into an empty directory."""
    class Many(caches.Pip):
        def prepare(self):
            super().prepare()
            self.names = []
            for number in range(PACKAGES):
                name, body = f"many{number}", self.blob(self.random.randint(*PACKAGE_KIB))
                self.offer(name, f"{name}-1.0-py3-none-any.whl", packages.wheel(name, {f"{name}.bin": body}))
            self.all = list(self.names)

    rng, steps = random.Random(f"pip {seed}"), []
    with tempfile.TemporaryDirectory() as base:
        program = Many(Path(base), seed)
        program.env["PIP_CACHE_DIR"] = str(directory / ".cache/pip")
        for _ in range(max(2, round(INSTALLATIONS * scale))):
            # A few packages are in most installations, most in few.
            ranks = {min(int(rng.paretovariate(0.5)), PACKAGES) - 1 for _ in range(INSTALLED * 2)}
            program.names = [program.all[rank] for rank in sorted(ranks)[:INSTALLED]]
            began = time.monotonic()
            program.run()
            steps.append(time.monotonic() - began)
        sent, version = program.server.sent_bytes, program.version()
        program.close()
    return {"served_bytes": sent, "steps": steps, "program": version}


def punisher(directory, seed, scale):
    """A cache of which every file is wanted: a dropped one is fetched and written again at once."""
    rng, steps, served = random.Random(f"punisher {seed}"), [], 0
    cache = directory / "cache"
    cache.mkdir()
    sizes = {}

    def fetch(number):
        nonlocal served
        (cache / f"{number:05}.entry").write_bytes(random.Random(f"{seed} {number}").randbytes(sizes[number]))
        served += sizes[number]

    for number in range(round(FILES * scale)):
        sizes[number] = rng.randint(*FILE_BYTES)
        fetch(number)
        if number % LOOK_EVERY:
            continue
        began = time.monotonic()
        present = {entry.name for entry in cache.iterdir()}
        for old in sizes:
            if f"{old:05}.entry" not in present:
                fetch(old)
        steps.append(time.monotonic() - began)
    for old in sizes:
        try:
            body = (cache / f"{old:05}.entry").read_bytes()
        except FileNotFoundError:
            fetch(old)
            continue
        if body != random.Random(f"{seed} {old}").randbytes(sizes[old]):
            raise RuntimeError(f"wrong content of file {old}")
    return {"served_bytes": served, "steps": steps, "program": "a script"}


ALL = {
    "chromium": days("chromium", browser._Tab),
    "chromium-at-pace": days("chromium", browser._Tab, PACE),
    "chromium-people": people,
    "chromium-days": warm("chromium", browser._Tab, DAYS_MINUTES["chromium"]),
    "chromium-warm": warm("chromium", browser._Tab, SESSION_MINUTES, PACE),
    "firefox": days("firefox", firefox._Tab),
    "firefox-days": warm("firefox", firefox._Tab, DAYS_MINUTES["firefox"]),
    "feed": feeding,
    "pip": pip,
    "punisher": punisher,
}
ALL["pressure"] = ALL["chromium"]


if __name__ == "__main__":
    name, directory, seed, scale = sys.argv[1:]
    result = ALL[name](Path(directory), int(seed), float(scale))
    result["steps"] = [round(1000 * seconds, 1) for seconds in result["steps"]]
    print(json.dumps(result))
