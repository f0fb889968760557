"""A PC over days: mail (notmuch), a repository (git), packages (apt, dpkg), Python packages (pip),
and a file manager's thumbnails (gdk-pixbuf).

New mail, commits, packages and pictures appear before each return. The
packages, the index of pip and the repository's origin are made at the start;
apt and pip download from 127.0.0.1, git from a folder outside of DIR. The
file manager is played by the script, which reads the thumbnails that
gdk-pixbuf-thumbnailer made, as the freedesktop.org specification says. apt
and dpkg install into a folder, which needs root.
"""

import base64
import hashlib
import importlib.util
import lzma
import os
import shutil
import subprocess
import sys

from . import days, packages
from . import run as runs
from .content import sentence
from .run import WorkloadError
from .server import Server, tagged

PROGRAMS = ("apt-get", "dpkg", "dpkg-deb", "ffmpeg", "gdk-pixbuf-thumbnailer", "git", "notmuch")
KB = 1024
LOOK_S = 12

NEW_MAILS = 40
FIRST_FILES, FIRST_COMMITS, NEW_COMMITS = 350, 40, 12
PACKAGES, PACKAGE_FILES, FIRST_PACKAGES, UPGRADES, NEW_PACKAGES = 36, (3, 25), 14, 5, 4
WHEELS, WHEEL_FILES = 40, (5, 30)
FOLDERS, FOLDER_PICTURES, NEW_PICTURES = 6, (25, 45), 8

STEPS = {
    "read_mail": 26, "search_mail": 10, "fetch_mail": 8,
    "edit": 12, "look_at_history": 8, "search_code": 5, "switch_branch": 4, "commit": 5,
    "view_folder": 14, "view_picture": 6, "install_for_python": 4,
}


def main():
    runs.main("desktop", __doc__, PROGRAMS, play, minutes=90, add_arguments=_add_arguments)


def _add_arguments(parser):
    parser.add_argument("--mails", type=int, default=1200, metavar="N", help="there from the start (default 1200)")
    days.add_arguments(parser)


def play(run):
    if os.geteuid():
        raise WorkloadError("dpkg needs root to install packages, also into a folder")
    if importlib.util.find_spec("pip") is None:
        raise WorkloadError("this Python has no pip (on Debian: apt-get install python3-pip)")
    origin, index, archive = _Origin(run), _Index(run), _Archive(run)
    with Server.of(run, lambda host, path, headers: _answer(index, archive, path, headers)) as server:
        person = _Person(run, origin, archive, index, server.origin)
        for number, over in enumerate(days.sessions(run)):
            if number:
                origin.grow(NEW_COMMITS)
                archive.upgrade()
                person.deliver(NEW_MAILS)
                person.download_pictures()
            person.begin(first=number == 0)
            while not over():
                person.step()
        run.call("git", "-C", person.work, "gc", "--quiet", home=run.directory)
        run.did("gc")


def _answer(index, archive, path, headers):
    path = path.replace("/./", "/")
    body = index.files.get(path) or archive.files.get(path)
    if body is None:
        return 404, {}, b""
    kind, cache = ("text/html", "max-age=600") if path.endswith("/") else (
        "application/octet-stream", "max-age=31536000, immutable")
    return tagged(body, {"Content-Type": kind, "Cache-Control": cache}, headers)


class _Origin:
    """The repository that others commit to, in scratch."""

    def __init__(self, run):
        self._run, self._rng = run, run.random("origin")
        self.path = run.scratch / "origin.git"
        run.call("git", "init", "--quiet", "--bare", "--initial-branch=main", self.path, cwd=run.scratch)
        self._files = [f"src/{sentence(self._rng, 1)}{n}/file{n % 7}.txt" for n in range(FIRST_FILES)]
        self._text = {name: self._lines(self._rng.randint(20, 200)) for name in self._files}
        self._commits = 0
        self._commit(self._files)
        self.grow(FIRST_COMMITS)

    def _lines(self, count):
        return [sentence(self._rng, self._rng.randint(3, 12)) for _ in range(count)]

    def grow(self, commits):
        """Further commits, each with changes to a few files."""
        for _ in range(commits):
            changed = self._rng.sample(self._files, self._rng.randint(1, 6))
            for name in changed:
                text = self._text[name]
                at = self._rng.randrange(len(text))
                text[at:at + self._rng.randint(0, 4)] = self._lines(self._rng.randint(1, 6))
            self._commit(changed)

    def _commit(self, changed):
        self._commits += 1
        stream = [f"commit refs/heads/main\ncommitter A <a@example.org> {1_700_000_000 + self._commits * 7000} +0000\n",
                  _data(f"change {self._commits}")]
        if self._commits > 1:
            stream.append("from refs/heads/main^0\n")
        for name in changed:
            stream += [f"M 100644 inline {name}\n", _data("\n".join(self._text[name]) + "\n")]
        self._run.call("git", "-C", self.path, "fast-import", "--quiet", input="".join(stream), cwd=self._run.scratch)


def _data(text):
    return f"data {len(text.encode())}\n{text}\n"


class _Index:
    """A package index for pip, in memory."""

    def __init__(self, run):
        rng = run.random("wheels")
        self.files = {}
        self.names = [f"{sentence(rng, 1)}{number}" for number in range(WHEELS)]
        for number, name in enumerate(self.names):
            wheel = _wheel(rng, name, [rng.choice(self.names[:number])] if number > 5 and rng.random() < 0.4 else [])
            self.files |= packages.offer(name, f"{name}-1.0-py3-none-any.whl", wheel)


def _wheel(rng, name, requires):
    files = {f"{name}/__init__.py": b""}
    for number in range(rng.randint(*WHEEL_FILES)):
        lines = (f"value_{n} = '{sentence(rng, 8)}'" for n in range(rng.randint(5, 150)))
        files[f"{name}/part{number}.py"] = "\n".join(lines).encode()
    files[f"{name}/data.bin"] = rng.randbytes(int(40 * KB * rng.lognormvariate(0, 1.3)))
    return packages.wheel(name, files, requires)


class _Archive:
    """A repository of Debian packages, in memory, made by dpkg-deb."""

    def __init__(self, run):
        self._run, self._rng = run, run.random("packages")
        self.names = [f"{sentence(self._rng, 1)}-{number}" for number in range(PACKAGES)]
        self._versions = dict.fromkeys(self.names, 0)
        self._entries = {}
        self.files = {}
        for name in self.names:
            self._build(name)
        self._publish()

    def upgrade(self):
        """New versions of a few packages."""
        for name in self._rng.sample(self.names, UPGRADES):
            self._build(name)
        self._publish()

    def _build(self, name):
        self._versions[name] += 1
        version = f"1.{self._versions[name]}"
        sizes = (int(8 * KB * self._rng.lognormvariate(0, 1.3)) for _ in range(self._rng.randint(*PACKAGE_FILES)))
        files = {f"usr/share/{name}/file{number}": self._rng.randbytes(size) for number, size in enumerate(sizes)}
        body = packages.deb(self._call, self._run.scratch, self._facts(name, version), files)
        file = f"{name}_{version}_all.deb"
        self.files[f"/{file}"] = body
        self._entries[name] = packages.entry(self._facts(name, version), file, body)

    def _facts(self, name, version):
        return packages.control(name, version, sentence(self._rng, 6))

    def _call(self, *command):
        self._run.call(*command, stdout=subprocess.DEVNULL, cwd=self._run.scratch)

    def _publish(self):
        plain = "\n".join(self._entries.values()).encode()
        packed = lzma.compress(plain, lzma.FORMAT_XZ)
        lines = "".join(f" {hashlib.sha256(body).hexdigest()} {len(body)} {name}\n"
                        for name, body in (("Packages", plain), ("Packages.xz", packed)))
        self.files |= {"/Packages": plain, "/Packages.xz": packed,
                       "/Release": f"Suite: x\nAcquire-By-Hash: no\nSHA256:\n{lines}".encode()}


class _Person:
    def __init__(self, run, origin, archive, index, server):
        self._run, self._origin, self._server = run, origin, server
        self._rng = run.random("person")
        self._home = run.directory
        self.work = self._home / "work"
        self._mail = self._home / "Mail"
        self._system = self._home / "system"
        self._to_install = self._rng.sample(archive.names, len(archive.names))
        self._python_packages = self._rng.sample(index.names, len(index.names))
        self._ids = []
        self._set_up_mail()
        self._set_up_apt()
        self._make_pictures()

    # Mail

    def _set_up_mail(self):
        for folder in ("cur", "new", "tmp"):
            (self._mail / folder).mkdir(parents=True)
        (self._home / ".notmuch-config").write_text(
            f"[database]\npath={self._mail}\n[user]\nname=A\nprimary_email=a@example.org\n"
            "[new]\ntags=unread;inbox\n[maildir]\nsynchronize_flags=true\n")
        self.deliver(self._run.options.mails)

    def deliver(self, count):
        """As a fetcher does: written to tmp, synced, moved to new."""
        for _ in range(count):
            number = len(self._ids)
            self._ids.append(f"{number}.{self._run.options.seed}@example.org")
            body = "\n".join(sentence(self._rng, 12) for _ in range(int(3 + 20 * self._rng.lognormvariate(0, 1))))
            day = 1 + number // 50 % 27
            head = (f"From: {sentence(self._rng, 1)} <p{self._rng.randrange(60)}@example.org>\nTo: a@example.org\n"
                    f"Subject: {sentence(self._rng, 5)}\nMessage-ID: <{self._ids[-1]}>\n"
                    f"Date: {day} Nov 2026 10:00:00 +0000\nMIME-Version: 1.0\n")
            if self._rng.random() < 0.15:
                attached = base64.encodebytes(self._rng.randbytes(int(60 * KB * self._rng.lognormvariate(0, 1))))
                text = (f"{head}Content-Type: multipart/mixed; boundary=part\n\n"
                        f"--part\nContent-Type: text/plain\n\n{body}\n--part\nContent-Type: application/octet-stream\n"
                        f"Content-Transfer-Encoding: base64\n\n{attached.decode()}\n--part--\n")
            else:
                text = f"{head}Content-Type: text/plain\n\n{body}\n"
            name = f"{1_790_000_000 + number}.{number}.pc"
            with open(self._mail / "tmp" / name, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            (self._mail / "tmp" / name).rename(self._mail / "new" / name)

    def _notmuch(self, *arguments):
        return self._call("notmuch", *arguments)

    def _fetch_mail(self):
        self.deliver(self._rng.randint(0, 6))
        self._notmuch("new", "--quiet")
        return f"{len(self._ids)} in all"

    def _read_mail(self):
        # Rather new mail; old mail is read again too.
        rank = min(int(self._rng.paretovariate(0.5)), len(self._ids))
        wanted = f"id:{self._ids[-rank]}"
        self._notmuch("show", "--format=text", wanted)
        self._notmuch("tag", "-unread", "--", wanted)
        return str(rank)

    def _search_mail(self):
        word = sentence(self._rng, 1)
        self._notmuch("search", "--limit=50", word)
        return word

    # The repository

    def _git(self, *arguments):
        return self._call("git", "-C", self.work, "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments)

    def _look_at_history(self):
        name = self._rng.choice(self._tracked())
        self._git("log", "-p", "--max-count=20", "--", name)
        return name

    def _search_code(self):
        words = sentence(self._rng, 2)
        self._git("grep", "--count", "-e", words, "-e", words.split()[0])
        return words

    def _switch_branch(self):
        self._git("stash", "--quiet")
        self._git("checkout", "--quiet", "HEAD~" + str(self._rng.randint(3, 15)))
        self._git("checkout", "--quiet", "main")
        return ""

    def _edit(self):
        name = self._rng.choice(self._tracked())
        path = self.work / name
        lines = path.read_text().splitlines()
        lines.insert(self._rng.randint(0, len(lines)), sentence(self._rng, 8))
        # As editors save: another file, synced, that replaces the first.
        temporary = path.with_name(f".{path.name}.swp")
        with open(temporary, "w") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        self._git("status", "--short")
        return name

    def _commit(self):
        self._git("commit", "--quiet", "--all", "--allow-empty", "--message", sentence(self._rng, 5))
        return ""

    def _tracked(self):
        return self._git("ls-files").splitlines()

    # Packages

    def _set_up_apt(self):
        self._apt_conf = self._run.scratch / "apt.conf"
        packages.set_up_apt(self._system, self._server, self._apt_conf)

    def _apt(self, *arguments):
        # dpkg in a folder of its own gives warnings, not errors.
        self._call("apt-get", "--yes", "--quiet", *arguments,
                   env={"APT_CONFIG": str(self._apt_conf)}, stdout=subprocess.DEVNULL)

    def _install(self, count):
        chosen, self._to_install = self._to_install[:count], self._to_install[count:]
        if chosen:
            self._apt("install", *chosen)
        self._run.did("install", f"{len(chosen)} packages")

    def _install_for_python(self):
        if not self._python_packages:
            return "nothing new"
        chosen = [self._python_packages.pop() for _ in range(min(3, len(self._python_packages)))]
        self._call(
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
            "--no-compile", "--upgrade", "--index-url", f"{self._server}/simple/", "--cache-dir",
            self._home / ".cache/pip", "--target", self._home / "python", *chosen)
        return " ".join(chosen)

    # Pictures

    def _make_pictures(self):
        self._negatives = self._run.scratch / "negatives"
        self._negatives.mkdir()
        self._run.call(
            "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "mandelbrot=size=960x640:rate=1:end_pts=25",
            "-vf", f"noise=alls=20:allf=t:all_seed={self._run.options.seed}", "-frames:v", 25, "-q:v", 5,
            self._negatives / "%02d.jpg")
        self._folders = []
        for number in range(FOLDERS):
            folder = self._home / f"Pictures/folder{number}"
            folder.mkdir(parents=True)
            self._folders.append(folder)
            self._fill(folder, self._rng.randint(*FOLDER_PICTURES))

    def _fill(self, folder, count):
        negatives = sorted(self._negatives.iterdir())
        there = len(list(folder.iterdir()))
        for number in range(there, there + count):
            shutil.copyfile(self._rng.choice(negatives), folder / f"picture{number:03}.jpg")

    def download_pictures(self):
        self._fill(self._rng.choice(self._folders), NEW_PICTURES)

    def _view_folder(self):
        """Read each picture's thumbnail; make those that are missing."""
        folder = self._folders[min(int(self._rng.paretovariate(0.8)), FOLDERS) - 1]
        cache = self._home / ".cache/thumbnails/large"
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = 0
        for picture in sorted(folder.iterdir()):
            thumbnail = cache / (hashlib.md5(f"file://{picture}".encode()).hexdigest() + ".png")
            if not thumbnail.exists():
                temporary = thumbnail.with_suffix(".tmp")
                self._call("gdk-pixbuf-thumbnailer", "-s", 256, picture, temporary)
                temporary.rename(thumbnail)
                made += 1
            thumbnail.read_bytes()
        return f"{folder.name}, {made} thumbnails made"

    def _view_picture(self):
        picture = self._rng.choice(sorted(self._rng.choice(self._folders).iterdir()))
        picture.read_bytes()
        return f"{picture.parent.name}/{picture.name}"

    # Sessions

    def begin(self, first):
        """Do the work of every morning: fetch mail, commits and packages."""
        self._notmuch("new", "--quiet")
        self._run.did("new_mail", f"{len(self._ids)} in all")
        if first:
            self._call("git", "clone", "--quiet", f"file://{self._origin.path}", self.work)
            self._run.did("clone")
        else:
            self._git("stash", "--quiet")
            self._git("pull", "--quiet", "--rebase")
            self._run.did("pull")
        self._apt("update")
        if not first:
            self._apt("upgrade")
            self._run.did("upgrade")
        self._install(FIRST_PACKAGES if first else NEW_PACKAGES)

    def step(self):
        self._run.think(self._rng.lognormvariate(0, 0.9) * LOOK_S)
        days.maybe_away(self._run, self._rng, self._run.think)
        step = self._rng.choices(list(STEPS), STEPS.values())[0]
        self._run.did(step, getattr(self, "_" + step)())

    def _call(self, *command, stdout=subprocess.PIPE, **keywords):
        return self._run.call(*command, home=self._home, stdout=stdout, **keywords)
