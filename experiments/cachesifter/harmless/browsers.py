"""Real Chromium and Firefox on a home directory of their own, driven by their own protocols."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "workloads"))
from apps.devtools import DevTools, DevToolsError  # noqa: E402
from apps.firefox import PREFERENCES  # noqa: E402
from apps.firefox import Firefox as Marionette  # noqa: E402
from apps.firefox import _free_port as free_port  # noqa: E402
from apps.run import WorkloadError  # noqa: E402

TIMEOUT_S = 60


def environment(home):
    temporary = Path(home) / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC",
            "TMPDIR": str(temporary), "DBUS_SESSION_BUS_ADDRESS": "disabled:",
            "MOZ_CRASHREPORTER_DISABLE": "1"}


class Browser:
    """One run of a browser, a context manager that closes it in order.

    `startup_s` is the time from its start to its first answer, `code` its exit status.
    """

    def __init__(self, home, log):
        self.home, self._log = Path(home), Path(log)
        self.process, self.code = None, None

    def __enter__(self):
        began = time.monotonic()
        self._start()
        self.startup_s = time.monotonic() - began
        return self

    def __exit__(self, kind, error, trace):
        try:
            if error is None:
                self._quit()
                self.code = self.process.wait(TIMEOUT_S)
        finally:
            # A browser that hangs or has lost its driver ends here, with its children.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._drop()

    def said(self):
        return self._log.read_text(errors="replace")

    def processes(self):
        """The browser's own processes: those in its process group, and their descendants."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents[int(entry.name)] = (int(fields[1]), int(fields[2]))
        found = {pid for pid, (_, group) in parents.items() if group == self.process.pid}
        while True:
            more = {pid for pid, (parent, _) in parents.items() if parent in found} - found
            if not more:
                return found
            found |= more

    def open_files(self):
        """Files below the home directory that a process of the browser has open or mapped."""
        found = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        found.add(os.readlink(entry.path))
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                    found.add(line.split(None, 5)[-1])
        home = f"{self.home}/"
        return {path.removeprefix(home) for path in found if path.startswith(home)}


class Chromium(Browser):
    NAME = "chromium"
    FLAGS = ("--headless=new", "--no-first-run", "--disable-quic", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-proxy-server", "--password-store=basic",
             "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost",
             "--remote-debugging-pipe")
    # Compiled WebAssembly.
    WRITES_LATE = (".cache/browser/Default/Code Cache/wasm/*_0", 15)
    HISTORY = (".config/browser/Default/History", "SELECT url FROM urls")

    def _start(self):
        theirs_in, self._write = _pipe()
        self._read, theirs_out = _pipe()
        wire = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        root = ("--no-sandbox",) if os.getuid() == 0 else ()
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", wire, "bash", "chromium", *self.FLAGS, *root,
                 f"--user-data-dir={self.home}/.config/browser", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(self.home), cwd=self.home,
                pass_fds=(theirs_in, theirs_out), process_group=0)
        os.close(theirs_in)
        os.close(theirs_out)
        self._devtools = DevTools(self._write, self._read)
        self._target, self._session = None, None
        self.fresh_tab()

    def _quit(self):
        with contextlib.suppress(DevToolsError):
            self._devtools.call("Browser.close", timeout=TIMEOUT_S)

    def _drop(self):
        os.close(self._write)
        os.close(self._read)

    def fresh_tab(self):
        """A new tab in the place of all others, without what a renderer has in memory."""
        pages = [target["targetId"] for target in self._devtools.call("Target.getTargets")["targetInfos"]
                 if target["type"] == "page"]
        self._target = self._devtools.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        for page in pages:
            self._devtools.call("Target.closeTarget", {"targetId": page})
        self._session = self._devtools.call(
            "Target.attachToTarget", {"targetId": self._target, "flatten": True})["sessionId"]
        self._call("Page.enable")

    def open(self, url):
        self._devtools.forget_events()
        answer = self._call("Page.navigate", {"url": url})
        if "errorText" in answer:
            raise WorkloadError(f"chromium: {url}: {answer['errorText']}")
        loaded = self._devtools.wait_event(
            lambda event: event.get("sessionId") == self._session and event["method"] == "Page.loadEventFired",
            TIMEOUT_S)
        if not loaded:
            raise TimeoutError(f"{url} did not load")

    def evaluate(self, expression):
        answer = self._call("Runtime.evaluate", {"expression": expression, "awaitPromise": True,
                                                 "returnByValue": True, "userGesture": True})
        if "exceptionDetails" in answer:
            raise WorkloadError(f"chromium: {expression}: {json.dumps(answer['exceptionDetails'])[:300]}")
        return answer["result"].get("value")

    def capture(self):
        pass

    def _call(self, method, parameters=None):
        return self._devtools.call(method, parameters, self._session, timeout=TIMEOUT_S)


class Firefox(Browser, Marionette):
    NAME = "firefox"
    # After 300 changes.
    WRITES_LATE = (".cache/mozilla/firefox/person/cache2/index", 60)
    HISTORY = (".mozilla/firefox/person/places.sqlite", "SELECT url FROM moz_places WHERE visit_count > 0")
    PREFERENCES = {
        **PREFERENCES,
        "network.proxy.type": 1, "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,
        "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9,
        "network.proxy.no_proxies_on": "localhost,.localhost,127.0.0.1",
        "dom.security.https_first": False, "browser.aboutwelcome.enabled": False,
        # Marionette's own preferences are those of tests; thumbnails, for one, are off in them.
        "remote.prefs.recommended": False, "browser.pagethumbnails.capturing_disabled": False,
        # Tables of test pages, which are in the program itself.
        "browser.safebrowsing.malware.enabled": True, "browser.safebrowsing.phishing.enabled": True,
    }

    def __init__(self, home, log):
        Browser.__init__(self, home, log)

    __enter__, __exit__ = Browser.__enter__, Browser.__exit__

    def _start(self):
        base = self.home / ".mozilla/firefox"
        profile = base / "person"
        profile.mkdir(parents=True, exist_ok=True)
        # A profile in the place that Firefox chooses has its caches in ~/.cache.
        if not (base / "profiles.ini").exists():
            (base / "profiles.ini").write_text(
                "[Profile0]\nName=person\nIsRelative=1\nPath=person\nDefault=1\n\n[General]\nStartWithLastProfile=1\n"
                "Version=2\n")
        port = free_port()
        preferences = {**self.PREFERENCES, "marionette.port": port}
        (profile / "user.js").write_text("".join(
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()))
        with open(self._log, "ab") as log:
            self.process = self._process = subprocess.Popen(
                ["firefox-esr", "--headless", "--marionette", "--remote-allow-system-access", "--no-remote",
                 "--profile", profile],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(self.home), cwd=self.home,
                process_group=0)
        self._socket = self._connect(port)
        self._buffer = b""
        self._last_id = 0
        self._receive()  # a greeting
        self.call("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"pageLoadStrategy": "normal"}}})
        self.call("WebDriver:SetTimeouts", {"pageLoad": TIMEOUT_S * 1000, "script": TIMEOUT_S * 1000})

    def _quit(self):
        self.call("Marionette:Quit", {"flags": ["eAttemptQuit"]})

    def _drop(self):
        with contextlib.suppress(AttributeError, OSError):
            self._socket.close()

    def fresh_tab(self):
        handles = self.call("WebDriver:GetWindowHandles")
        made = self.call("WebDriver:NewWindow", {"type": "tab"})["handle"]
        for handle in handles:
            self.call("WebDriver:SwitchToWindow", {"handle": handle, "focus": True})
            self.call("WebDriver:CloseWindow")
        self.call("WebDriver:SwitchToWindow", {"handle": made, "focus": True})

    def open(self, url):
        self.call("WebDriver:Navigate", {"url": url})

    def evaluate(self, expression):
        script = ("const done=arguments[arguments.length-1];"
                  f"(async()=>({expression}))().then(v=>done([JSON.stringify(v)??'null']),e=>done(String(e)))")
        answer = self.call("WebDriver:ExecuteAsyncScript", {"script": script, "args": []})["value"]
        if not isinstance(answer, list):
            raise WorkloadError(f"firefox: {expression}: {answer}")
        return json.loads(answer[0])

    def capture(self):
        """Make the thumbnail that the page of new tabs shows."""
        self.call("Marionette:SetContext", {"value": "chrome"})
        self.call("WebDriver:ExecuteAsyncScript", {"args": [], "script": """
            const done=arguments[arguments.length-1];
            const {PageThumbs}=ChromeUtils.importESModule('resource://gre/modules/PageThumbs.sys.mjs');
            PageThumbs.captureAndStore(gBrowser.selectedBrowser).then(()=>done(true),e=>done(String(e)))"""})
        self.call("Marionette:SetContext", {"value": "content"})


BROWSERS = {"chromium": Chromium, "firefox": Firefox}
PROGRAMS = {"chromium": "chromium", "firefox": "firefox-esr"}


def version(name):
    said = subprocess.run([PROGRAMS[name], "--version"], capture_output=True, text=True, env={
        **os.environ, "HOME": "/nonexistent"}).stdout.strip()
    return said.splitlines()[-1] if said else "unknown"


def installed(name):
    return shutil.which(PROGRAMS[name]) is not None


def _pipe():
    """Ends of a pipe with high numbers, out of the way of 3 and 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64))
        os.close(end)
    return ends


if __name__ == "__main__":
    print(json.dumps({"chromium": version("chromium"), "firefox": version("firefox"),
                      "kernel": os.uname().release.partition("-")[0], "cpus": os.cpu_count(),
                      "date": time.strftime("%Y-%m-%d")}))
