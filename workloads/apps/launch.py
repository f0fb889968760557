"""Programs started with cold caches: copies of Chromium, ffmpeg, git, SQLite and Python, with all
their libraries, run from DIR.

Before each start the pages of all files in DIR leave the page cache
(posix_fadvise, by this script under its own name), as after a restart of the
machine. A program loads its code by faults of mappings and its data by reads.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from . import days
from . import run as runs
from .run import WorkloadError

PROGRAMS = ("chromium", "ffmpeg", "git", "ldd", "sqlite3")
CHROMIUM = Path("/usr/lib/chromium/chromium")
PAUSE_S = 60
MODULES = ("asyncio", "concurrent.futures", "csv", "ctypes", "decimal", "difflib", "email.mime.multipart",
           "html.parser", "http.server", "json", "logging.config", "multiprocessing.pool", "pydoc", "sqlite3",
           "ssl", "statistics", "tarfile", "unittest.mock", "urllib.request", "xml.dom.minidom",
           "xml.etree.ElementTree", "zipfile")
# name -> weight
STARTS = {"chromium": 4, "ffmpeg": 3, "git": 3, "sqlite3": 2, "python3": 4}


def main():
    runs.main("launch", __doc__, PROGRAMS, play, minutes=30, add_arguments=days.add_arguments)


def play(run):
    programs = _Programs(run)
    rng = run.random("starts")
    for over in days.sessions(run):
        while not over():
            name = rng.choices(list(STARTS), STARTS.values())[0]
            detail = programs.start(name, rng)
            run.did("start", f"{name} {detail}".rstrip())
            run.think(rng.expovariate(1 / PAUSE_S))
            days.maybe_away(run, rng, run.think)


class _Programs:
    def __init__(self, run):
        self._run = run
        self._home = run.directory / "home"
        self._libraries = run.directory / "lib"
        self._bin = run.directory / "bin"
        for folder in (self._home, self._libraries, self._bin):
            folder.mkdir()
        if not CHROMIUM.exists():
            raise WorkloadError(f"no {CHROMIUM}: this needs Debian's Chromium")
        shutil.copytree(CHROMIUM.parent, run.directory / "chromium", symlinks=False,
                        ignore_dangling_symlinks=True)
        self._link(run.directory / "chromium/chromium")
        for name in ("ffmpeg", "git", "sqlite3"):
            shutil.copy(shutil.which(name), self._bin / name)
            self._link(self._bin / name)
        self._copy_python()
        run.call("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:duration=4",
                 "-c:v", "mpeg4", run.directory / "film.mkv", home=self._home)
        run.call("git", "init", "--quiet", "--initial-branch=main", run.directory / "repository", home=self._home)
        database = run.directory / "places.db"
        rows = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        run.call("sqlite3", database, "CREATE TABLE place(id INTEGER PRIMARY KEY, name TEXT);"
                 f"{rows} INSERT INTO place SELECT i, hex(i * i) FROM n;", home=self._home)
        # Dirty pages do not leave the cache.
        os.sync()
        self._files = [path for path in run.directory.rglob("*") if path.is_file() and not path.is_symlink()]
        run.facts["copied_bytes"] = sum(path.stat().st_size for path in self._files)

    def _copy_python(self):
        """The interpreter and its standard library, without tests."""
        self._python = self._run.directory / "python"
        library = Path(sysconfig.get_path("stdlib"))
        unwanted = shutil.ignore_patterns(
            "test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "config-*")
        shutil.copytree(library, self._python / "lib" / library.name, ignore_dangling_symlinks=True, ignore=unwanted)
        (self._python / "bin").mkdir()
        shutil.copy(Path(sys.executable).resolve(), self._python / "bin/python3")
        self._link(self._python / "bin/python3")
        for module in (self._python / "lib").rglob("*.so"):
            self._link(module)

    def _link(self, program):
        """Copy the libraries that a program names; the loader is the system's."""
        listed = self._run.call("ldd", program, home=self._home, stdout=subprocess.PIPE)
        for path in re.findall(r"=> (/\S+)", listed):
            there = self._libraries / Path(path).name
            if not there.exists():
                shutil.copy(path, there)

    def start(self, name, rng):
        self._chill()
        return getattr(self, "_" + name)(rng)

    def _chill(self):
        for path in self._files:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def _call(self, *command, env=None):
        self._run.call(*command, home=self._home, stdout=subprocess.DEVNULL, env={
            "LD_LIBRARY_PATH": f"{self._libraries}:{self._run.directory}/chromium", **(env or {})})

    def _chromium(self, _):
        self._call(
            self._run.directory / "chromium/chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self._home}/profile",
            "--dump-dom", "data:text/html,<p>hello")
        return ""

    def _ffmpeg(self, _):
        self._call(self._bin / "ffmpeg", "-nostdin", "-v", "error", "-i", self._run.directory / "film.mkv",
                   "-f", "null", "-")
        return ""

    def _git(self, _):
        self._call(self._bin / "git", "-C", self._run.directory / "repository", "status", "--short")
        return ""

    def _sqlite3(self, _):
        self._call(self._bin / "sqlite3", self._run.directory / "places.db", "SELECT count(*), max(name) FROM place;")
        return ""

    def _python3(self, rng):
        modules = rng.sample(MODULES, rng.randint(3, len(MODULES)))
        self._call(self._python / "bin/python3", "-c", "import " + ", ".join(modules),
                   env={"PYTHONHOME": str(self._python)})
        return " ".join(modules)
