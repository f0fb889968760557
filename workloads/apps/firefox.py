"""Headless Firefox, driven over Marionette, its own protocol: JSON over a TCP connection.

Each message is its length, a colon and an array: [0, id, command, parameters] there,
[1, id, error, result] back.
"""

import json
import socket
import subprocess
import time

from .run import WorkloadError
from .tabs import Tab

ANSWER_TIMEOUT_S = 180

PREFERENCES = {
    # Nothing outside is asked.
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.newtabpage.enabled": False,
    "browser.region.network.url": "",
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.safebrowsing.downloads.enabled": False,
    "browser.safebrowsing.update.enabled": False,
    "browser.search.update": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage": "about:blank",
    "browser.startup.page": 0,
    "datareporting.healthreport.uploadEnabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.push.connection.enabled": False,
    "extensions.getAddons.cache.enabled": False,
    "extensions.systemAddon.update.enabled": False,
    "extensions.update.enabled": False,
    "geo.provider.network.url": "",
    "media.gmp-manager.updateEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.proxy.type": 0,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
    "toolkit.telemetry.unified": False,
    # Hosts below localhost are this machine.
    "network.dns.localDomains": "localhost",
    "network.dns.native-is-localhost": True,
}


class Firefox:
    """The program on one profile; a context manager that closes it in order."""

    PROGRAM = "firefox-esr"
    COMMAND = "firefox-esr --headless --marionette --no-remote --profile PROFILE"

    def __init__(self, run, profile):
        self._run = run
        self._log = run.scratch / "firefox.log"
        self._home = run.directory / profile

    @staticmethod
    def cache_bytes(home):
        return sum(path.stat().st_size for path in home.glob("firefox/cache2/entries/*"))

    def __enter__(self):
        profile = self._home / "firefox"
        port = prepare(profile, PREFERENCES)
        with open(self._log, "wb") as log:
            self._process = self._run.start(
                *self.COMMAND.split()[:-1], profile, home=self._home, stdout=log, stderr=subprocess.STDOUT,
                env={"MOZ_CRASHREPORTER_DISABLE": "1"})
        self.marionette = Marionette(self._process, port, self._log, ANSWER_TIMEOUT_S)
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            self.marionette.quit()
            self._process.wait(ANSWER_TIMEOUT_S)
        self.marionette.close()

    def first_tab(self):
        return _Tab(self.marionette, self.marionette.call("WebDriver:GetWindowHandle")["value"])

    def new_tab(self):
        made = self.marionette.call("WebDriver:NewWindow", {"type": "tab"})
        return _Tab(self.marionette, made["handle"], show=True)

    def pause(self, seconds):
        time.sleep(seconds)


def prepare(profile, preferences):
    """Write the preferences of a profile. Returns the port on which Firefox will listen."""
    profile.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (profile / "user.js").write_text("".join(
        f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
        for name, value in {**preferences, "marionette.port": port}.items()))
    return port


class Marionette:
    """The connection to a Firefox that was started."""

    def __init__(self, process, port, log, timeout_s):
        self._socket = _connect(process, port, log)
        self._buffer = b""
        self._last_id = 0
        self._receive()  # a greeting
        self.call("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"pageLoadStrategy": "normal"}}})
        self.call("WebDriver:SetTimeouts", {"pageLoad": timeout_s * 1000, "script": timeout_s * 1000})

    def call(self, command, parameters=None):
        self._last_id += 1
        data = json.dumps([0, self._last_id, command, parameters or {}]).encode()
        self._socket.sendall(b"%d:%s" % (len(data), data))
        while True:
            message = self._receive()
            if message[:2] == [1, self._last_id]:
                _, _, error, result = message
                if error:
                    raise WorkloadError(f"firefox: {command}: {error.get('error')}: {error.get('message')}")
                return result

    def quit(self):
        self.call("Marionette:Quit", {"flags": ["eAttemptQuit"]})

    def close(self):
        self._socket.close()

    def _receive(self):
        while True:
            length, colon, rest = self._buffer.partition(b":")
            if colon and len(rest) >= int(length):
                self._buffer = rest[int(length):]
                return json.loads(rest[:int(length)])
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise WorkloadError("firefox closed its connection")
            self._buffer += chunk


def _connect(process, port, log):
    end = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
        except ConnectionRefusedError:
            # It gives no other sign that it listens.
            time.sleep(0.1)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise WorkloadError(f"firefox does not listen; the last that it said:\n{said}")


class _Tab(Tab):
    def __init__(self, firefox, handle, show=False):
        super().__init__()
        self._firefox, self._handle = firefox, handle
        if show:
            self.show()

    def open(self, page, port):
        self._firefox.call("WebDriver:Navigate", {"url": self.url(page, port)})
        self._arrived(page)

    def click(self, page, link):
        found = self._firefox.call("WebDriver:FindElements", {"using": "css selector", "value": "nav a"})
        # A click on a link returns when the next page is loaded.
        self._firefox.call("WebDriver:ElementClick", {"id": next(iter(found[link].values()))})
        self._arrived(page)

    def back(self):
        self._firefox.call("WebDriver:Back")
        self.visited.pop()

    def show(self):
        self._firefox.call("WebDriver:SwitchToWindow", {"handle": self._handle, "focus": True})

    def close(self):
        self._firefox.call("WebDriver:CloseWindow")

    def run(self, script):
        self._firefox.call("WebDriver:ExecuteScript", {"script": script, "args": []})
