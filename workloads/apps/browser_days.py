"""One person's browser over days, headless Chromium or Firefox, on a large web of its own.

The profile is cold at first. The person comes back after an hour, a day and
three days; each time the browser is started anew. With --keep-pause the gaps
and the long pauses take only seconds, and the browser sees the date as if
they had not. The web is generated and served from 127.0.0.1; nothing outside
is asked.
"""

from . import days
from . import run as runs
from .browser import Chromium
from .firefox import Firefox
from .large_web import LargeWeb, Zipf
from .server import Server
from .tabs import Tabs
from .website import START

BROWSERS = {"chromium": Chromium, "firefox": Firefox}
# Dwell time on a page: Weibull with a shape below 1, as in Liu, White and Dumais, "Understanding
# Web Browsing Behaviors through Weibull Analysis of Dwell Time" (SIGIR 2010). The scale is one
# person's. Half of all pages are left within some 10 s, as in Weinreich et al., "Not Quite the
# Average" (ACM TWEB 2008).
DWELL_SHAPE = 0.6
DWELL_SCALES_S = (6, 12)
# Nearly half of all visits go to pages seen before (Weinreich et al.: 46 %): again, back, and some
# of the start pages.
STEPS = {"link": 34, "again": 24, "start_page": 20, "back": 10, "new_tab": 6, "switch_tab": 4, "close_tab": 2}
TABS = 5
# A page is read in so many steps; images further down load when they are near.
SCREENS = 4


def main():
    runs.main("browser-days", __doc__, (), play, minutes=150, add_arguments=_add_arguments)


def _add_arguments(parser):
    parser.add_argument("--browser", choices=BROWSERS, default="chromium", help="default chromium")
    parser.add_argument("--dwell", type=runs.positive, metavar="S",
                        help="scale of the times on a page (default: drawn from 6 to 12 s)")
    days.add_arguments(parser)


def play(run):
    browser = BROWSERS[run.options.browser]
    run.require(browser.PROGRAM)
    web = LargeWeb(run.random, run.now)
    run.facts["web"] = f"{len(web)} files, {web.total_bytes() / 1e6:.0f} MB"
    with Server.of(run, web.answer) as server:
        web.set_port(server.port)
        person = _Person(run, web, server.port)
        for number, over in enumerate(days.sessions(run), 1):
            with browser(run, "profile") as program:
                person.browse(program, over)
            run.facts[f"cache_bytes_after_session_{number}"] = browser.cache_bytes(run.directory / "profile")
    run.facts["command"] = browser.COMMAND


class _Person:
    def __init__(self, run, web, port):
        self._run, self._web, self._port = run, web, port
        self._rng = run.random("person")
        drawn_s = self._rng.uniform(*DWELL_SCALES_S)
        self._dwell_s = run.options.dwell or drawn_s
        # Everyone likes other sites, and other pages of a site.
        self._hosts = Zipf(self._rng, self._rng.sample(web.hosts, len(web.hosts)))
        self._seen = []  # (host, path), each once, the last visited at the end

    def browse(self, program, over):
        """A session, from one tab to the closing of the browser."""
        self._program = program
        self._tabs = Tabs(program, self._web, self._port, TABS)
        self._do("start_page")
        while not over():
            self._look(self._rng.weibullvariate(self._dwell_s, DWELL_SHAPE))
            days.maybe_away(self._run, self._rng, self._look)
            self._do(self._rng.choices(list(STEPS), STEPS.values())[0])

    def _look(self, seconds):
        """Read and scroll, down to the end; the browser's messages are taken meanwhile."""
        with self._run.taking(seconds):
            for screen in range(1, SCREENS + 1):
                self._program.pause(self._run.kept(seconds) / SCREENS)
                self._tabs.tab.run(f"scrollTo({{top: document.documentElement.scrollHeight * {screen / SCREENS}}})")

    def _do(self, step):
        # All drawn at every step, so that later steps do not depend on the actions possible here.
        start = self._hosts.draw(), START
        drawn, rank = self._tabs.draw(self._rng), self._rng.paretovariate(0.6)
        step = self._tabs.possible(step)
        if step == "back" and not self._tabs.can_go_back() or step == "again" and len(self._seen) < 2:
            step = "start_page"
        # Again: rather one seen lately, never the last.
        page = self._seen[-min(int(rank) + 1, len(self._seen))] if step == "again" else start
        page = self._tabs.take(step, drawn, page)
        if page in self._seen:
            self._seen.remove(page)
        self._seen.append(page)
        self._run.did(step, "{} {}".format(*page))
