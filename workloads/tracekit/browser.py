"""A headless Chromium reading a local web site, like a person would."""

import os
import random
import time

from .devtools import DevTools, DevToolsError
from .strace import SetupError, TracedProcess, make_pipe, version_of
from .website import START_PAGE, Site, SiteServer

PROGRAMS = ("chromium",)
# The browser is closed and started again on the same profile once: the second
# start finds its files in the cache of the system, as after a break.
SESSIONS = 2
THINK_SECONDS = (1.0, 6.0)
LOAD_TIMEOUT = 30

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The recording must not depend on, or tell about, the network outside.
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
]


def versions():
    return {"chromium": version_of("chromium", "--version")}


def run(workdir, home, raw_trace, seed, seconds):
    """Browse for about `seconds`; returns facts for the summary."""
    site = Site(seed)
    rng = random.Random(f"reader {seed}")
    reader = _Reader(site, rng)
    command = ["chromium", *FLAGS, f"--user-data-dir={workdir}/profile", "about:blank"]
    with SiteServer(site) as server:
        for _ in range(SESSIONS):
            _session(command, workdir, home, raw_trace, reader, server.origin, seconds / SESSIONS)
    return {
        "command": " ".join(command),
        "site": f"{len(site.page_paths)} pages, {len(site.resources)} resources, "
                f"{site.total_bytes() / 1e6:.1f} MB",
        "visits": reader.summary(),
    }


def _session(command, workdir, home, raw_trace, reader, origin, seconds):
    to_browser, our_write = make_pipe()
    our_read, from_browser = make_pipe()
    traced = None
    try:
        traced = TracedProcess(
            command, raw_trace, home, workdir, workdir / "chromium.log",
            descriptors={3: to_browser, 4: from_browser},
        )
        os.close(to_browser)
        os.close(from_browser)
        devtools = DevTools(our_write, our_read)
        try:
            reader.read(devtools, origin, time.monotonic() + seconds)
            devtools.call("Browser.close")
        except (DevToolsError, TimeoutError, BrokenPipeError) as error:
            raise SetupError(f"{error}\nlast lines of chromium:\n{traced.log_tail()}") from error
        traced.wait(60)
    finally:
        if traced:
            traced.kill()
        os.close(our_write)
        os.close(our_read)


class _Reader:
    """Follows links, goes back, and returns to favourite pages (Zipf)."""

    def __init__(self, site, rng):
        self._rng = rng
        # A shuffled order decides which pages are the favourites.
        self._favourites = rng.sample(site.page_paths, len(site.page_paths))
        self._counts = {"link": 0, "favourite": 0, "back": 0, "start page": 0}

    def summary(self):
        return ", ".join(f"{name} {count}" for name, count in self._counts.items())

    def read(self, devtools, origin, deadline):
        target = next(
            t for t in devtools.call("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        session = devtools.call(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )["sessionId"]
        devtools.call("Page.enable", session=session)
        self._open(devtools, session, origin, "start page")
        while time.monotonic() < deadline:
            devtools.pause(self._rng.uniform(*THINK_SECONDS))
            step = self._rng.choices(
                ["link", "favourite", "back", "start page"], [50, 28, 12, 10]
            )[0]
            self._open(devtools, session, origin, step)

    def _open(self, devtools, session, origin, step):
        rng = self._rng
        # Drawn for every step, so that the sequence does not depend on what
        # the browser answers.
        favourite = rng.choices(
            self._favourites, [1 / (rank + 1) for rank in range(len(self._favourites))]
        )[0]
        link = rng.randrange(8)
        devtools.forget_events()
        if step == "back":
            history = devtools.call("Page.getNavigationHistory", session=session)
            before = history["entries"][: history["currentIndex"]]
            if before and before[-1]["url"].startswith(origin):
                devtools.call(
                    "Page.navigateToHistoryEntry", {"entryId": before[-1]["id"]}, session
                )
            else:
                step = "link"
        if step == "link":
            click = f"document.querySelectorAll('nav a')[{link}].click()"
            devtools.call("Runtime.evaluate", {"expression": click, "userGesture": True}, session)
        elif step in ("favourite", "start page"):
            path = favourite if step == "favourite" else START_PAGE
            devtools.call("Page.navigate", {"url": origin + path}, session)
        self._counts[step] += 1
        if not devtools.wait_event(_page_is_there, LOAD_TIMEOUT):
            raise TimeoutError(f"page did not load ({step})")


def _page_is_there(event):
    """Loaded, or brought back whole from the back/forward cache."""
    return event.get("method") == "Page.loadEventFired" or (
        event.get("method") == "Page.frameNavigated"
        and event["params"].get("type") == "BackForwardCacheRestore"
    )
