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
from .large_web import LINKS, START, LargeWeb, Zipf
from .server import Server

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
    with Server(run, web.answer) as server:
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
        self._tabs = [program.first_tab()]
        self._tab = self._tabs[0]
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
                self._tab.run(f"scrollTo({{top: document.documentElement.scrollHeight * {screen / SCREENS}}})")

    def _do(self, step):
        # All drawn at every step, so that later steps do not depend on the actions possible here.
        start = self._hosts.draw(), START
        link, tab, rank = self._rng.randrange(LINKS), self._rng.random(), self._rng.paretovariate(0.6)
        alone, full = len(self._tabs) == 1, len(self._tabs) >= TABS
        if alone and step in ("switch_tab", "close_tab") or full and step == "new_tab":
            step = "link"
        if step == "back" and len(self._tab.visited) < 2 or step == "again" and len(self._seen) < 2:
            step = "start_page"
        if step in ("switch_tab", "close_tab"):
            if step == "close_tab":
                self._tab.close()
                self._tabs.remove(self._tab)
            self._tab = self._tabs[int(tab * len(self._tabs))]
            self._tab.show()
        elif step == "new_tab":
            # As with a middle click on a link.
            there = self._web.links[self._tab.visited[-1]][link]
            self._tab = self._program.new_tab()
            self._tabs.append(self._tab)
            self._tab.open(there, self._port)
        elif step == "back":
            self._tab.back()
        elif step == "link":
            self._tab.click(self._web.links[self._tab.visited[-1]][link], link)
        elif step == "again":
            # Rather one seen lately, never the last.
            self._tab.open(self._seen[-min(int(rank) + 1, len(self._seen))], self._port)
        else:
            self._tab.open(start, self._port)
        page = self._tab.visited[-1]
        if page in self._seen:
            self._seen.remove(page)
        self._seen.append(page)
        self._run.did(step, "{} {}".format(*page))
