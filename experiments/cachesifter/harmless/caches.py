"""Programs with a cache: each fills it and uses it. A local server has the packages, made here."""

import base64
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

from apps import packages, server
from apps.content import png

TIMEOUT_S = 300


class Failed(Exception):
    """A program ended with an error; the text is the end of its output."""


class Missing(Exception):
    """The program is not installed here."""


class Server(server.Server):
    """Serves `files` (path: body) and counts the bytes of bodies sent."""

    def __init__(self):
        self.files, self.sent_bytes = {}, 0
        super().__init__(self._answer, self._note)

    def _note(self, method, url, status, size, conditional):
        self.sent_bytes += size

    def _answer(self, host, path, asked):
        path = path.partition("?")[0].replace("/./", "/")
        body = self.files.get(path)
        if body is None:
            return 404, {}, b""
        fresh = path.rsplit(".", 1)[-1] in ("whl", "gz", "tgz", "crate", "deb")
        kind = {"Content-Type": "text/html"} if path.startswith("/simple/") else {}
        return server.tagged(body, {"Cache-Control": f"max-age={31536000 if fresh else 600}", **kind}, asked)


class Program:
    """A program with a home directory `home`, whose `cache` a profile describes.

    `prepare` makes its inputs once, `run` uses it and returns its results by name.
    """

    needs = ()
    profile = ""
    cache = ""
    root = "/home/u"
    sample = 40

    def __init__(self, base, seed):
        for tool in self.needs:
            if not shutil.which(tool):
                raise Missing(f"{tool} is not installed")
        self.home, self.work, self.random = base / "home", base / "work", random.Random(seed)
        self.base = base
        self.home.mkdir(parents=True)
        self.server = Server()
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC"}
        self.prepare()

    def prepare(self):
        pass

    def blob(self, kib):
        return self.random.randbytes(kib * 1024)

    def call(self, *command, cwd=None):
        """Runs a command to its end and returns its output."""
        done = subprocess.run(command, cwd=cwd, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=TIMEOUT_S)
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace")
            raise Failed(f"{Path(command[0]).name}: exit {done.returncode}: {said[-2000:]}")
        return done.stdout.decode(errors="replace")

    def fresh(self):
        """Empties the working directory."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()

    def close(self):
        self.server.close()


def first_line(*command, env=None):
    return subprocess.run(command, capture_output=True, text=True, env=env).stdout.strip().split("\n")[0]


def tree(root, but=()):
    """The files below a directory with their hashes, as one hash, and how many they are."""
    lines = []
    for path in sorted(Path(root).rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and name not in but:
            lines.append(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return f"{len(lines)} files {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def tar_gz(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(body), 0o644
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


BACKEND = '''
import base64, hashlib, pathlib, zipfile
NAME = "{name}"
def build_wheel(directory, config_settings=None, metadata_directory=None):
    files = {{f"{{NAME}}.bin": pathlib.Path("data.bin").read_bytes(), f"{{NAME}}.py": b"built = 1",
             f"{{NAME}}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n".encode(),
             f"{{NAME}}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    record = "".join(f"{{at}},,\\n" for at in files) + f"{{NAME}}-1.0.dist-info/RECORD,,\\n"
    with zipfile.ZipFile(pathlib.Path(directory) / f"{{NAME}}-1.0-py3-none-any.whl", "w") as wheel:
        for at, body in files.items():
            wheel.writestr(zipfile.ZipInfo(at), body)
        wheel.writestr(zipfile.ZipInfo(f"{{NAME}}-1.0.dist-info/RECORD"), record)
    return f"{{NAME}}-1.0-py3-none-any.whl"
'''


class Pip(Program):
    profile = "pip"
    cache = ".cache/pip"
    needs = ("python3",)

    def prepare(self):
        python = shutil.which("python3", path=os.environ["PATH"])
        self.call(python, "-m", "venv", str(self.home / "venv"))
        self.python = self.home / "venv/bin/python"
        self.env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.newest()
        self.names = []
        for number in range(8):
            name = f"wheel{number}"
            body = packages.wheel(name, {f"{name}.py": b"", f"{name}.bin": self.blob(8 << number % 4)})
            self.offer(name, f"{name}-1.0-py3-none-any.whl", body)
        for number in range(3):
            name = f"source{number}"
            pyproject = b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            pyproject += f'[project]\nname = "{name}"\nversion = "1.0"\n'.encode()
            self.offer(name, f"{name}-1.0.tar.gz", tar_gz({
                f"{name}-1.0/pyproject.toml": pyproject,
                f"{name}-1.0/PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
                f"{name}-1.0/backend.py": BACKEND.format(name=name).encode(),
                f"{name}-1.0/data.bin": self.blob(24)}))

    def newest(self):
        pass

    def offer(self, name, file, body):
        self.names.append(f"{name}==1.0")
        self.server.files |= packages.offer(name, file, body)

    def version(self):
        return " ".join(self.call(str(self.python), "-m", "pip", "--version").split()[:2])

    def run(self):
        self.fresh()
        self.call(str(self.python), "-m", "pip", "install", "--no-compile", "--target", str(self.work / "site"),
                  "--index-url", self.server.origin + "/simple", "--trusted-host", self.server.origin.split("/")[2],
                  "--retries", "0", *self.names)
        return {"installed": tree(self.work / "site")}


class NewPip(Pip):
    """The pip that the user's own index offers. Since 23.3 the cache has other files."""

    def newest(self):
        done = subprocess.run([self.python, "-m", "pip", "install", "--no-cache-dir", "--upgrade", "pip>=23.3"],
                              capture_output=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        if done.returncode:
            raise Missing("no newer pip can be fetched")


class Npm(Program):
    profile = "npm"
    cache = ".npm/_cacache"
    needs = ("npm", "node")
    sample = 10

    def prepare(self):
        self.env |= {"npm_config_registry": self.server.origin + "/", "npm_config_userconfig": str(self.home / ".npmrc"),
                     "npm_config_globalconfig": os.devnull, "npm_config_audit": "false", "npm_config_fund": "false",
                     "npm_config_update_notifier": "false", "npm_config_fetch_retries": "0"}
        self.names = [f"package-{number}" for number in range(8)]
        for number, name in enumerate(self.names):
            manifest = {"name": name, "version": "1.0.0", "main": "index.js"}
            body = tar_gz({"package/package.json": json.dumps(manifest).encode(),
                           "package/index.js": f"module.exports = {number};".encode(),
                           "package/data.bin": self.blob(4 << number % 4)})
            self.server.files[f"/{name}/-/{name}-1.0.0.tgz"] = body
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(body).digest()).decode()
            manifest["dist"] = {"integrity": integrity, "shasum": hashlib.sha1(body).hexdigest(),
                                "tarball": f"{self.server.origin}/{name}/-/{name}-1.0.0.tgz"}
            self.server.files[f"/{name}"] = json.dumps(
                {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": manifest}}).encode()

    def version(self):
        return "npm " + self.call("npm", "--version").strip()

    def run(self):
        """Installs by the lock file, which the first run makes."""
        lock = self.home / "package-lock.json"
        self.fresh()
        (self.work / "package.json").write_text(json.dumps(
            {"name": "app", "version": "1.0.0", "dependencies": dict.fromkeys(self.names, "^1.0.0")}))
        if lock.exists():
            shutil.copy(lock, self.work)
        self.call("npm", "ci" if lock.exists() else "install", cwd=self.work)
        shutil.copy(self.work / "package-lock.json", lock)
        return {"installed": tree(self.work / "node_modules")}


class Yarn(Npm):
    """Yarn 1, for which there is no profile: it unpacks packages into its cache."""

    profile = ""
    cache = ".cache/yarn"
    needs = ("npm", "node")
    sample = 10

    def prepare(self):
        tool = self.base / "tool"
        done = subprocess.run(["npm", "install", "--prefix", tool, "--no-audit", "--no-fund", "yarn@1"],
                              capture_output=True)
        if done.returncode:
            raise Missing("yarn cannot be fetched")
        self.yarn = str(tool / "node_modules/.bin/yarn")
        super().prepare()

    def version(self):
        return "yarn " + self.call(self.yarn, "--version").strip()

    def run(self):
        self.fresh()
        (self.work / "package.json").write_text(json.dumps(
            {"name": "app", "version": "1.0.0", "dependencies": dict.fromkeys(self.names, "^1.0.0")}))
        self.call(self.yarn, "install", "--registry", self.server.origin, "--cache-folder", str(self.home / self.cache),
                  "--non-interactive", cwd=self.work)
        return {"installed": tree(self.work / "node_modules", but=(".yarn-integrity",))}


class Cargo(Program):
    profile = "cargo"
    cache = ".cargo/registry"
    needs = ("cargo", "rustc")
    sample = 20

    def prepare(self):
        if rustup := os.environ.get("RUSTUP_HOME") or (Path.home() / ".rustup").exists() and Path.home() / ".rustup":
            self.env["RUSTUP_HOME"] = str(rustup)
        self.env |= {"CARGO_HOME": str(self.home / ".cargo"), "CARGO_NET_RETRY": "0",
                     "CARGO_REGISTRIES_LOCAL_INDEX": f"sparse+{self.server.origin}/index/"}
        self.server.files["/index/config.json"] = json.dumps(
            {"dl": self.server.origin + "/crates/{crate}-{version}.crate"}).encode()
        self.names = [f"part{number}" for number in range(6)]
        for number, name in enumerate(self.names):
            body = tar_gz({
                f"{name}-1.0.0/Cargo.toml": f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n'.encode(),
                f"{name}-1.0.0/src/lib.rs": b"mod inner; pub use inner::value;",
                f"{name}-1.0.0/src/inner.rs":
                    f'pub fn value() -> usize {{ include_bytes!("../data.bin").len() + {number} }}'.encode(),
                f"{name}-1.0.0/data.bin": self.blob(4 << number % 4)})
            self.server.files[f"/crates/{name}-1.0.0.crate"] = body
            self.server.files[f"/index/{name[:2]}/{name[2:4]}/{name}"] = json.dumps(
                {"name": name, "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
                 "cksum": hashlib.sha256(body).hexdigest()}).encode() + b"\n"

    def version(self):
        return " ".join(self.call("cargo", "--version").split()[:2])

    def run(self):
        self.fresh()
        (self.work / "src").mkdir()
        needs = "".join(f'{name} = {{ version = "1", registry = "local" }}\n' for name in self.names)
        (self.work / "Cargo.toml").write_text(
            f'[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n{needs}')
        values = ", ".join(f"{name}::value()" for name in self.names)
        (self.work / "src/main.rs").write_text(f'fn main() {{ println!("{{:?}}", [{values}]); }}')
        return {"printed": self.call("cargo", "run", "--quiet", cwd=self.work)}


class Go(Program):
    profile = "go-build"
    cache = ".cache/go-build"
    needs = ("go",)

    def prepare(self):
        self.env |= {"GOCACHE": str(self.home / self.cache), "GOPATH": str(self.home / "go"), "GOPROXY": "off",
                     "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}

    def version(self):
        return " ".join(self.call("go", "version").split()[:3]).replace("go version go", "go ")

    def run(self):
        self.fresh()
        (self.work / "go.mod").write_text("module app\n\ngo 1.19\n")
        parts = [f"part{number}" for number in range(4)]
        for number, name in enumerate(parts):
            (self.work / name).mkdir()
            (self.work / name / "a.go").write_text(f"package {name}\n\nfunc Value() int {{ return {number} }}\n")
        imports = "".join(f'import "app/{name}"\n' for name in parts)
        values = ", ".join(f"{name}.Value()" for name in parts)
        (self.work / "main.go").write_text(f"package main\n\n{imports}\nfunc main() {{ println({values}) }}\n")
        self.call("go", "build", "-o", str(self.work / "app"), ".", cwd=self.work)
        return {"binary": hashlib.sha256((self.work / "app").read_bytes()).hexdigest()[:16]}


class Ccache(Program):
    profile = "ccache"
    cache = ".cache/ccache"
    needs = ("ccache", "gcc")

    def version(self):
        return first_line("ccache", "--version").replace(" version", "")

    def run(self):
        self.fresh()
        (self.work / "shared.h").write_text("struct pair { int left, right; };\n")
        objects = []
        for number in range(20):
            source = self.work / f"unit{number}.c"
            source.write_text(f'#include "shared.h"\n#include <stdio.h>\nint f{number}(struct pair *p) '
                              f'{{ printf("{number}"); return p->left * {number}; }}\n')
            self.call("ccache", "gcc", "-O2", "-c", source.name, "-o", f"unit{number}.o", cwd=self.work)
            objects.append(hashlib.sha256((self.work / f"unit{number}.o").read_bytes()).hexdigest()[:16])
        return {"objects": " ".join(objects)}


SHADER = r"""
import ctypes, hashlib, sys
egl, gl = ctypes.CDLL("libEGL.so.1"), ctypes.CDLL("libGLESv2.so.2")
egl.eglGetPlatformDisplay.restype = egl.eglCreateContext.restype = ctypes.c_void_p
pointer = ctypes.c_void_p
egl.eglGetPlatformDisplay.argtypes = [ctypes.c_uint, pointer, pointer]
display = pointer(egl.eglGetPlatformDisplay(0x31DD, None, None))
assert egl.eglInitialize(display, None, None), "no display"
egl.eglBindAPI(0x30A0)
context = pointer(egl.eglCreateContext(display, None, None, (ctypes.c_int * 3)(0x3098, 2, 0x3038)))
assert context.value and egl.eglMakeCurrent(display, None, None, context), "no context"
gl.glGetString.restype = ctypes.c_char_p
if sys.argv[1:] == ["version"]:
    print(gl.glGetString(0x1F02).decode(), "with", gl.glGetString(0x1F01).decode())
    sys.exit()
name = ctypes.c_uint()
gl.glGenTextures(1, ctypes.byref(name)); gl.glBindTexture(0x0DE1, name)
gl.glTexImage2D(0x0DE1, 0, 0x1908, 64, 64, 0, 0x1908, 0x1401, None)
gl.glTexParameteri(0x0DE1, 0x2801, 0x2600)
frame = ctypes.c_uint()
gl.glGenFramebuffers(1, ctypes.byref(frame)); gl.glBindFramebuffer(0x8D40, frame)
gl.glFramebufferTexture2D(0x8D40, 0x8CE0, 0x0DE1, name, 0)
gl.glViewport(0, 0, 64, 64)
corners = (ctypes.c_float * 8)(-1, -1, 1, -1, -1, 1, 1, 1)
for number in range(12):
    program = gl.glCreateProgram()
    for kind, text in ((0x8B31, "attribute vec2 at; varying vec2 p; void main() "
                                f"{{ p = at * {number + 1}.0; gl_Position = vec4(at, 0.0, 1.0); }}"),
                       (0x8B30, "precision mediump float; varying vec2 p; void main() "
                                f"{{ gl_FragColor = vec4(fract(p.x * {number + 2}.0), sin(p.y), p.x * p.y, 1.0); }}")):
        shader = gl.glCreateShader(kind)
        gl.glShaderSource(shader, 1, ctypes.byref(ctypes.c_char_p(text.encode())), None)
        gl.glCompileShader(shader); gl.glAttachShader(program, shader)
    gl.glBindAttribLocation(program, 0, b"at"); gl.glLinkProgram(program); gl.glUseProgram(program)
    gl.glVertexAttribPointer(0, 2, 0x1406, 0, 0, corners); gl.glEnableVertexAttribArray(0)
    gl.glDrawArrays(5, 0, 4)
    pixels = ctypes.create_string_buffer(64 * 64 * 4)
    gl.glReadPixels(0, 0, 64, 64, 0x1908, 0x1401, pixels)
    assert gl.glGetError() == 0
    print(hashlib.sha256(pixels.raw).hexdigest()[:16])
egl.eglTerminate(display)
"""


class Mesa(Program):
    profile = "mesa"
    cache = ".cache/mesa_shader_cache"
    needs = ("python3",)

    def prepare(self):
        # Without this, Mesa takes the home directory from the password database.
        self.env["XDG_CACHE_HOME"] = str(self.home / ".cache")
        self.env |= {"EGL_PLATFORM": "surfaceless", "LIBGL_ALWAYS_SOFTWARE": "1", "GALLIUM_DRIVER": "llvmpipe"}
        try:
            self.version()
        except Failed as error:
            raise Missing("no OpenGL ES by Mesa") from error

    def version(self):
        words = self.call("python3", "-c", SHADER, "version").split()
        return f"Mesa {words[words.index('Mesa') + 1]} ({words[words.index('with') + 1]})"

    def run(self):
        return {"pixels": self.call("python3", "-c", SHADER)}


# Those that tumbler 4.18 makes.
FLAVORS = ("normal", "large")


class Thumbnails(Program):
    profile = "thumbnails"
    cache = ".cache/thumbnails"
    needs = ("dbus-run-session", "gdbus")

    def prepare(self):
        if not list(Path("/usr/lib").glob("**/tumblerd")):
            raise Missing("tumbler is not installed")
        images = self.home / "Pictures"
        images.mkdir()
        self.uris = []
        for number in range(16):
            path = images / f"{number}.png"
            path.write_bytes(self.image(320 + number))
            os.utime(path, (1_700_000_000, 1_700_000_000))
            self.uris.append(path.as_uri())

    def image(self, width):
        """A PNG of noise in blocks."""
        row = b"".join(bytes(self.random.randrange(256) for _ in range(3)) * 16 for _ in range(width // 16 + 1))
        return png(width, 240, (b"\0" + row[: 3 * width]) * 240, level=-1)

    def version(self):
        return "tumbler " + first_line("dpkg-query", "-W", "-f", "${Version}", "tumbler")

    def run(self):
        wanted = [self.home / self.cache / flavor / f"{hashlib.md5(uri.encode()).hexdigest()}.png"
                  for flavor in FLAVORS for uri in self.uris]
        calls = "; ".join(
            "gdbus call --session --dest org.freedesktop.thumbnails.Thumbnailer1 --object-path "
            "/org/freedesktop/thumbnails/Thumbnailer1 --method org.freedesktop.thumbnails.Thumbnailer1.Queue "
            f"\"{self.uris}\" \"{['image/png'] * len(self.uris)}\" {flavor} foreground 0"
            for flavor in FLAVORS)
        self.fresh()
        # Each thumbnail counts once it is there, even if it is deleted later.
        copies = [self.work / f"{at.parent.name}-{at.name}" for at in wanted]
        pairs = " ".join(f"{at}:{copy}" for at, copy in zip(wanted, copies, strict=True))
        waits = (f"for tick in $(seq 600); do left=; for pair in {pairs}; do to=${{pair#*:}}; "
                 "[ -e $to ] || cp ${pair%:*} $to 2> /dev/null || left=1; done; "
                 "[ -z $left ] && exit 0; sleep 0.05; done; exit 1")
        self.call("dbus-run-session", "--", "bash", "-c", f"{calls}; {waits}")
        return {"thumbnails": " ".join(hashlib.sha256(at.read_bytes()).hexdigest()[:16] for at in copies)}


class Fontconfig(Program):
    profile = "fontconfig"
    cache = ".cache/fontconfig"
    needs = ("fc-list", "fc-match")

    def prepare(self):
        fonts = sorted({Path(line.rstrip(":")) for line in
                        subprocess.run(["fc-list", ":", "file"], capture_output=True, text=True).stdout.split("\n")
                        if line.strip(": ")})
        fonts = [font for font in (Path(str(font).rstrip(": ")) for font in fonts) if font.is_file()]
        if not fonts:
            raise Missing("no fonts are installed")
        for number, font in enumerate(fonts[:24]):
            folder = self.home / f".fonts/{number % 6}"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(font, folder)
        config = self.home / "fonts.conf"
        config.write_text('<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd"><fontconfig>'
                          f'<dir>{self.home}/.fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>')
        self.env["FONTCONFIG_FILE"] = str(config)

    def version(self):
        done = subprocess.run(["fc-list", "--version"], capture_output=True, text=True)
        return (done.stdout + done.stderr).strip().replace(" version", "")

    def run(self):
        lines = self.call("fc-list", ":", "file", "family", "style", "charset", "lang").split("\n")
        return {"fonts": hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16],
                "match": self.call("fc-match", "sans:bold", "file")}


class Apt(Program):
    profile = "apt"
    cache = "var/cache/apt"
    root = ""
    needs = ("apt-get", "dpkg-deb", "dpkg")

    def prepare(self):
        self.env["PATH"] += ":/usr/sbin:/sbin"
        for folder in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg",
                       "var/cache/apt/archives/partial", "var/log/apt"):
            (self.home / folder).mkdir(parents=True)
        self.names, listed = [], []
        for number in range(10):
            name = f"part{number}"
            facts = packages.control(name, "1.0", "test")
            body = packages.deb(self.call, self.base, facts, {f"usr/share/{name}/data": self.blob(4 << number % 4)})
            self.server.files[f"/{name}_1.0_all.deb"] = body
            listed.append(packages.entry(facts, f"{name}_1.0_all.deb", body))
            self.names.append(name)
        self.server.files["/Packages"] = "\n".join(listed).encode()
        (self.home / "etc/apt/sources.list").write_text(f"deb [trusted=yes] {self.server.origin} ./\n")
        config = self.base / "apt.conf"
        config.write_text(f'Dir "{self.home}/";\nDir::State::status '
                          f'"{self.home}/var/lib/dpkg/status";\nDir::Bin::dpkg "/usr/bin/dpkg";\n'
                          f'DPkg::Options {{ "--root={self.work}"; "--admindir={self.home}/var/lib/dpkg"; '
                          '"--force-not-root"; "--log=/dev/null"; };\nAPT::Sandbox::User "root";\n'
                          'Acquire::Retries "0";\nAPT::Architecture "amd64";\nAcquire::Languages "none";\n')
        self.env |= {"APT_CONFIG": str(config), "DEBIAN_FRONTEND": "noninteractive"}

    def version(self):
        return " ".join(self.call("apt-get", "--version").split()[:2])

    def run(self):
        self.fresh()
        shutil.rmtree(self.home / "var/lib/dpkg")
        for folder in ("info", "updates", "triggers"):
            (self.home / "var/lib/dpkg" / folder).mkdir(parents=True)
        (self.home / "var/lib/dpkg/status").touch()
        (self.home / "var/lib/dpkg/available").touch()
        self.call("apt-get", "update")
        self.call("apt-get", "install", "--yes", *self.names)
        return {"installed": tree(self.work / "usr")}


ALL = {"pip": Pip, "pip-new": NewPip, "npm": Npm, "cargo": Cargo, "go-build": Go, "ccache": Ccache, "mesa": Mesa,
       "thumbnails": Thumbnails, "fontconfig": Fontconfig, "apt": Apt, "yarn": Yarn}
