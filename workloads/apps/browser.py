"""A browser, headless Chromium, with several people's profiles and a web of its own.

The people take turns; each has a profile, sites that they like, and habits:
how long they look at a page, how many tabs they keep, how often they come
back to the same pages, how often they open the browser anew. The sites are
generated and served from 127.0.0.1; nothing outside is asked.
"""

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import run as runs
from .devtools import DevTools, DevToolsError
from .run import WorkloadError
from .server import Server
from .tabs import Tab, Tabs
from .website import START, Web

PROGRAMS = ("chromium",)
# Long, so that a busy machine is only slow.
LOAD_TIMEOUT_S = 180

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Actions must not depend on the network outside, or contact it.
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost",
    "--remote-debugging-pipe",
)


@dataclass(frozen=True)
class Habits:
    name: str
    share: float  # of the time
    sessions: int
    look_s: float  # at a page, median
    tabs: int  # kept open at most
    sites: dict  # host -> weight
    steps: dict  # name -> weight


PEOPLE = (
    # Looks at the news for a few minutes, often.
    Habits("commuter", 3, 4, 5, 3, {"news": 7, "blog": 1, "mail": 2},
           {"link": 34, "favourite": 24, "start_page": 20, "back": 10, "new_tab": 6, "switch_tab": 4, "close_tab": 2}),
    # Opens many goods beside each other and compares them.
    Habits("shopper", 3, 2, 4, 8, {"shop": 8, "news": 1, "blog": 1},
           {"link": 30, "favourite": 8, "start_page": 6, "back": 14, "new_tab": 18, "switch_tab": 18, "close_tab": 6}),
    # Reads long texts.
    Habits("reader", 2, 1, 14, 2, {"blog": 7, "news": 3},
           {"link": 52, "favourite": 10, "start_page": 6, "back": 26, "new_tab": 3, "switch_tab": 2, "close_tab": 1}),
    # Lives in a web application, always in the same tab.
    Habits("clerk", 2, 2, 3, 4, {"mail": 8, "shop": 1, "news": 1},
           {"link": 40, "favourite": 36, "start_page": 10, "back": 6, "new_tab": 3, "switch_tab": 4, "close_tab": 1}),
)


def main():
    runs.main("browser", __doc__, PROGRAMS, play, minutes=30, add_arguments=_add_arguments)


def _add_arguments(parser):
    names = [habits.name for habits in PEOPLE]
    parser.add_argument("--people", nargs="+", choices=names, default=names, metavar="NAME",
                        help=f"users of the browser, of {' '.join(names)} (default: all)")
    parser.add_argument("--visits", type=int, metavar="N",
                        help="end after N pages in all, shared like the minutes, instead of --minutes")
    parser.add_argument("--cache", type=Path, metavar="DIR",
                        help="keep the caches of all people there, not in their profiles")


def play(run):
    web = Web(run.random)
    people = [Person(habits, web, run) for habits in PEOPLE if habits.name in run.options.people]
    shares = sum(person.habits.share for person in people)
    sessions = [
        (person, person.habits.share / shares / person.habits.sessions)
        for person in people for _ in range(person.habits.sessions)
    ]
    run.random("turns").shuffle(sessions)
    run.facts["web"] = f"{len(web)} files, {web.total_bytes() / 1e6:.0f} MB"
    with Server.of(run, web.answer) as server:
        web.set_port(server.port)
        run.visits, done = 0, 0.0
        for person, share in sessions:
            done += share
            run.did("session", person.habits.name)
            with Chromium(run, person.habits.name) as chromium:
                person.browse(chromium, server.port, _end(run, share, done))
    run.facts["command"] = Chromium.COMMAND


def _end(run, share, done):
    """Whether a session with this share, which ends at `done` of the run, is over."""
    if visits := run.options.visits:
        return lambda: run.visits >= round(done * visits)
    end_s = run.planned_s + share * run.options.minutes * 60
    return lambda: run.planned_s >= end_s


class Chromium:
    """The program on one profile; a context manager that closes it in order."""

    PROGRAM = "chromium"
    COMMAND = " ".join(["chromium", *FLAGS])

    def __init__(self, run, profile):
        self._run = run
        self._log = run.scratch / "chromium.log"
        self._home = run.directory / profile
        cache = getattr(run.options, "cache", None)
        self._flags = [f"--disk-cache-dir={cache.resolve() / profile}"] if cache else []

    def __enter__(self):
        with open(self._log, "wb") as log:
            self._process, self.devtools = DevTools.launch(
                self._run.start, "chromium", *FLAGS, f"--user-data-dir={self._home}/profile", *self._flags,
                "about:blank", home=self._home, stdout=log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, (DevToolsError, BrokenPipeError, TimeoutError)):
            said = "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])
            raise WorkloadError(f"chromium: {error}; the last that it said:\n{said}") from error
        if error is None:
            with contextlib.suppress(DevToolsError):
                # It may end before it answers.
                self.devtools.call("Browser.close")
            self._process.wait(LOAD_TIMEOUT_S)
        self.devtools.close()

    @staticmethod
    def cache_bytes(home):
        return sum(path.stat().st_size for path in home.glob("profile/Default/Cache/**/*_?"))

    def first_tab(self):
        target = next(t for t in self.devtools.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        return _Tab(self.devtools, target["targetId"])

    def new_tab(self):
        return _Tab(self.devtools, self.devtools.call("Target.createTarget", {"url": "about:blank"})["targetId"])

    def pause(self, seconds):
        self.devtools.pause(seconds)


class Person:
    def __init__(self, habits, web, run):
        self.habits = habits
        self._web = web
        self._run = run
        self._rng = run.random(habits.name)
        # The first are the favourites.
        self._favourites = {host: self._rng.sample(pages, len(pages)) for host, pages in web.pages.items()}

    def browse(self, chromium, port, over):
        self._chromium = chromium
        self._tabs = Tabs(chromium, self._web, port, self.habits.tabs)
        self._do("start_page")
        while not over():
            self._look(min(self._rng.lognormvariate(0, 0.8) * self.habits.look_s, 90))
            self._do(self._rng.choices(list(self.habits.steps), self.habits.steps.values())[0])

    def _look(self, seconds):
        """Read, scroll to the end, read on; the browser's messages are taken meanwhile."""
        for part in (0.5, 0.5):
            with self._run.taking(seconds * part):
                self._chromium.pause(self._run.kept(seconds * part))
            self._tabs.tab.run("scrollTo({top: document.documentElement.scrollHeight})")

    def _do(self, step):
        # Drawn at every step, so that later steps do not depend on the actions possible here.
        host = self._rng.choices(list(self.habits.sites), self.habits.sites.values())[0]
        pages = self._favourites[host]
        favourite = host, pages[min(int(self._rng.paretovariate(0.8)), len(pages)) - 1]
        drawn = self._tabs.draw(self._rng)
        step = self._tabs.possible(step)
        if step == "back" and not self._tabs.can_go_back():
            step = "favourite"
        page = self._tabs.take(step, drawn, (host, START) if step == "start_page" else favourite)
        self._run.visits += 1
        self._run.did(step, "{} {}{}".format(self.habits.name, *page))


class _Tab(Tab):
    def __init__(self, devtools, target):
        super().__init__()
        self._devtools = devtools
        self._target = target
        self._session = devtools.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self._call("Page.enable")

    def open(self, page, port):
        self._loading(lambda: self._call("Page.navigate", {"url": self.url(page, port)}))
        self._arrived(page)

    def click(self, page, link):
        self._loading(lambda: self.run(f"document.querySelectorAll('nav a')[{link}].click()"))
        self._arrived(page)

    def back(self):
        history = self._call("Page.getNavigationHistory")
        before = history["entries"][history["currentIndex"] - 1]
        self._loading(lambda: self._call("Page.navigateToHistoryEntry", {"entryId": before["id"]}))
        self.visited.pop()

    def show(self):
        self._devtools.call("Target.activateTarget", {"targetId": self._target})

    def close(self):
        self._devtools.call("Target.closeTarget", {"targetId": self._target})

    def run(self, script):
        answer = self._call("Runtime.evaluate", {"expression": script, "userGesture": True})
        if "exceptionDetails" in answer:
            raise DevToolsError(f"{script}: {answer['exceptionDetails']}")

    def _call(self, method, parameters=None):
        return self._devtools.call(method, parameters, self._session)

    def _loading(self, begin):
        self._devtools.forget_events()
        begin()
        if not self._devtools.wait_event(self._is_there, LOAD_TIMEOUT_S):
            raise TimeoutError(f"a page did not load in {LOAD_TIMEOUT_S} s")

    def _is_there(self, event):
        """Loaded, or brought back whole from the back/forward cache."""
        return event.get("sessionId") == self._session and (
            event.get("method") == "Page.loadEventFired"
            or event.get("method") == "Page.frameNavigated"
            and event["params"].get("type") == "BackForwardCacheRestore"
        )
