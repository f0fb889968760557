"""Real Chromium and Firefox on a home directory of their own, driven by their own protocols."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from apps import firefox, processes
from apps.devtools import DevTools, DevToolsError
from apps.run import WorkloadError, environment

TIMEOUT_S = 60


class Browser:
    """One run of a browser, a context manager that closes it in order.

    `startup_s` is the time from its start to its first answer, `code` its exit status.
    """

    def __init__(self, home, log):
        self.home, self._log = Path(home), Path(log)
        self.process, self.code = None, None

    def __enter__(self):
        began = time.monotonic()
        try:
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self.startup_s = time.monotonic() - began
        return self

    def __exit__(self, kind, error, trace):
        try:
            if error is None:
                self._quit()
                self.code = self.process.wait(TIMEOUT_S)
        finally:
            # A browser that hangs or has lost its driver ends here, with its children.
            if self.process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            with contextlib.suppress(AttributeError, OSError):
                self._drop()

    def processes(self):
        """The browser's own processes: those in its process group, and their descendants."""
        group = [pid for pid, fields in processes.every().items() if int(fields[2]) == self.process.pid]
        return {*group, *processes.below(*group)}

    def open_files(self):
        """Files below the home directory that a process of the browser has open or mapped."""
        found = set()
        for pid in self.processes():
            found.update(processes.opened(pid))
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                    found.add(line.split(None, 5)[-1])
        home = f"{self.home}/"
        return {path.removeprefix(home) for path in found if path.startswith(home)}

    def _begin(self, *words, **options):
        """Starts the program in a process group of its own."""
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home, process_group=0,
                env=environment(self.home) | {"MOZ_CRASHREPORTER_DISABLE": "1"}, **options)


class Chromium(Browser):
    FLAGS = ("--headless=new", "--no-first-run", "--disable-quic", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-proxy-server", "--password-store=basic",
             "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost",
             "--remote-debugging-pipe")
    # Compiled WebAssembly.
    WRITES_LATE = (".cache/browser/Default/Code Cache/wasm/*_0", 15)
    HISTORY = (".config/browser/Default/History", "SELECT url FROM urls")

    def _start(self):
        root = ("--no-sandbox",) if os.getuid() == 0 else ()
        self.process, self._devtools = DevTools.launch(
            self._begin, "chromium", *self.FLAGS, *root, f"--user-data-dir={self.home}/.config/browser", "about:blank")
        self._target, self._session = None, None
        self.fresh_tab()

    def _quit(self):
        with contextlib.suppress(DevToolsError):
            self._devtools.call("Browser.close", timeout=TIMEOUT_S)

    def _drop(self):
        self._devtools.close()

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


class Firefox(Browser):
    # After 300 changes.
    WRITES_LATE = (".cache/mozilla/firefox/person/cache2/index", 60)
    HISTORY = (".mozilla/firefox/person/places.sqlite", "SELECT url FROM moz_places WHERE visit_count > 0")
    PREFERENCES = {
        **firefox.PREFERENCES,
        "network.proxy.type": 1, "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,
        "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9,
        "network.proxy.no_proxies_on": "localhost,.localhost,127.0.0.1",
        "dom.security.https_first": False, "browser.aboutwelcome.enabled": False,
        # Marionette's own preferences are those of tests; thumbnails, for one, are off in them.
        "remote.prefs.recommended": False, "browser.pagethumbnails.capturing_disabled": False,
        # Tables of test pages, which are in the program itself.
        "browser.safebrowsing.malware.enabled": True, "browser.safebrowsing.phishing.enabled": True,
    }

    def _start(self):
        base = self.home / ".mozilla/firefox"
        profile = base / "person"
        profile.mkdir(parents=True, exist_ok=True)
        # A profile in the place that Firefox chooses has its caches in ~/.cache.
        if not (base / "profiles.ini").exists():
            (base / "profiles.ini").write_text(
                "[Profile0]\nName=person\nIsRelative=1\nPath=person\nDefault=1\n\n[General]\nStartWithLastProfile=1\n"
                "Version=2\n")
        port = firefox.prepare(profile, self.PREFERENCES)
        self.process = self._begin(
            "firefox-esr", "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile",
            profile)
        self._marionette = firefox.Marionette(self.process, port, self._log, TIMEOUT_S)

    def _quit(self):
        self._marionette.quit()

    def _drop(self):
        self._marionette.close()

    def _call(self, command, parameters=None):
        return self._marionette.call(command, parameters)

    def fresh_tab(self):
        handles = self._call("WebDriver:GetWindowHandles")
        made = self._call("WebDriver:NewWindow", {"type": "tab"})["handle"]
        for handle in handles:
            self._call("WebDriver:SwitchToWindow", {"handle": handle, "focus": True})
            self._call("WebDriver:CloseWindow")
        self._call("WebDriver:SwitchToWindow", {"handle": made, "focus": True})

    def open(self, url):
        self._call("WebDriver:Navigate", {"url": url})

    def evaluate(self, expression):
        script = ("const done=arguments[arguments.length-1];"
                  f"(async()=>({expression}))().then(v=>done([JSON.stringify(v)??'null']),e=>done(String(e)))")
        answer = self._call("WebDriver:ExecuteAsyncScript", {"script": script, "args": []})["value"]
        if not isinstance(answer, list):
            raise WorkloadError(f"firefox: {expression}: {answer}")
        return json.loads(answer[0])

    def capture(self):
        """Make the thumbnail that the page of new tabs shows."""
        self._call("Marionette:SetContext", {"value": "chrome"})
        self._call("WebDriver:ExecuteAsyncScript", {"args": [], "script": """
            const done=arguments[arguments.length-1];
            const {PageThumbs}=ChromeUtils.importESModule('resource://gre/modules/PageThumbs.sys.mjs');
            PageThumbs.captureAndStore(gBrowser.selectedBrowser).then(()=>done(true),e=>done(String(e)))"""})
        self._call("Marionette:SetContext", {"value": "content"})


BROWSERS = {"chromium": Chromium, "firefox": Firefox}
PROGRAMS = {"chromium": "chromium", "firefox": "firefox-esr"}


def version(name):
    said = subprocess.run([PROGRAMS[name], "--version"], capture_output=True, text=True, env={
        **os.environ, "HOME": "/nonexistent"}).stdout.strip()
    return said.splitlines()[-1] if said else "unknown"


def installed(name):
    return shutil.which(PROGRAMS[name]) is not None


if __name__ == "__main__":
    print(json.dumps({"chromium": version("chromium"), "firefox": version("firefox"),
                      "kernel": os.uname().release.partition("-")[0], "cpus": os.cpu_count(),
                      "date": time.strftime("%Y-%m-%d")}))
