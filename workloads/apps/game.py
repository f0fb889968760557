"""A game: packs of assets installed, read and patched, saves written atomically.

curl downloads the packs and unzip unpacks them, and plays the part that reads
the film pack. The engine is this script, as no real one is small enough: it
reads levels in large pieces and textures here and there by pread, sounds by
mmap; it compiles shaders into a cache of files once, writes saves so that
they survive a crash (temporary file, fsync, rename, fsync of the folder),
settings without fsync, and a log.
"""

import collections
import io
import itertools
import json
import mmap
import os
import subprocess
import zipfile

from . import run as runs
from .server import Downloads

PROGRAMS = ("curl", "unzip")
KB, MB = 1024, 1024 * 1024
LEVELS = 8
LEVEL_BYTES = 3 * MB
TEXTURES_BYTES = 40 * MB
TEXTURES = 900
SOUNDS_BYTES = 8 * MB
SOUNDS = 120
FILMS = 5
SHADERS = 260
# Assets loaded at the start of a level.
TEXTURES_PER_LEVEL = 60
SHADERS_PER_LEVEL = 45
PIECE = 256 * KB
# Textures in the engine's own memory.
ENGINE_BYTES = 6 * MB

MOMENTS = {  # events while playing, name -> weight
    "explore": 60,
    "fight": 20,
    "checkpoint": 8,
    "die": 3,
    "settings": 2,
    "next_level": 5,
    "film": 1,
    "quit": 1,
}


def main():
    runs.main("game", __doc__, PROGRAMS, play, minutes=10)


def play(run):
    packs = _Packs(run)
    with Downloads(run, packs.body) as downloads:
        run.did("install", packs.install(downloads))
        game = _Game(run, packs)
        rng = run.random("moments")
        patched = False
        while not run.over():
            run.did("start", game.start())
            moment = ""
            while moment != "quit" and not run.over():
                run.think(rng.lognormvariate(0, 0.6) * 0.9)
                moment = rng.choices(list(MOMENTS), MOMENTS.values())[0]
                run.did(moment, getattr(game, moment)())
            game.stop()
            run.think(rng.uniform(2, 8))
            if not patched and run.planned_s > run.options.minutes * 20:
                patched = True
                run.did("patch", packs.patch(downloads))


class _Packs:
    """The packs on the server and, installed, in `packs/`; where each asset lies in them."""

    def __init__(self, run):
        self._run = run
        self.folder = run.directory / "packs"
        rng = run.random("packs")
        self.textures = _cut(rng, TEXTURES, TEXTURES_BYTES)
        self.sounds = _cut(rng, SOUNDS, SOUNDS_BYTES)

    def body(self, path):
        rng = self._run.random(path)
        if path.startswith("/levels-"):
            return rng.randbytes(LEVELS * LEVEL_BYTES)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packs:
            packs.writestr("levels.pak", rng.randbytes(LEVELS * LEVEL_BYTES))
            packs.writestr("textures.pak", rng.randbytes(TEXTURES_BYTES))
            packs.writestr("sounds.pak", rng.randbytes(SOUNDS_BYTES))
            films = io.BytesIO()
            with zipfile.ZipFile(films, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as film:
                for number in range(FILMS):
                    film.writestr(f"film{number}.bin", rng.randbytes(rng.randint(1, 4) * MB))
            packs.writestr("films.zip", films.getvalue())
        return archive.getvalue()

    def install(self, downloads):
        archive = self._run.directory / "base.zip"
        part = archive.with_suffix(".part")
        downloads.fetch([("/base.zip", part)])
        part.rename(archive)
        self._run.call("unzip", "-q", archive, "-d", self.folder)
        archive.unlink()
        return f"{len(list(self.folder.iterdir()))} packs"

    def patch(self, downloads):
        """Replace all old levels by new ones."""
        new = self.folder / "levels.pak.new"
        downloads.fetch([("/levels-2.pak", new)])
        _sync(new)
        new.rename(self.folder / "levels.pak")
        _sync(self.folder)
        return "levels.pak"


class _Game:
    """The engine's actions, and the position of the player."""

    def __init__(self, run, packs):
        self._run = run
        self._packs = packs
        self._rng = run.random("engine")
        self._level = 0
        self._place = 0.0  # in the level, as a number among its textures
        self._progress = 0
        # Textures in the engine's own memory, least recent first.
        self._resident = collections.OrderedDict()
        self._resident_bytes = 0
        self._compiled = set()  # shaders that this process has
        for folder in ("saves", "shaders"):
            (run.directory / folder).mkdir()
        self._settings = {"volume": 70, "quality": "medium", "language": "en"}

    def start(self):
        directory = self._run.directory
        self._levels, self._textures, sounds = (
            os.open(self._packs.folder / f"{name}.pak", os.O_RDONLY) for name in ("levels", "textures", "sounds")
        )
        self._sounds = mmap.mmap(sounds, 0, prot=mmap.PROT_READ)
        os.close(sounds)
        log = directory / "game.log"
        if log.exists():
            log.replace(directory / "game.log.1")
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if (directory / "settings.json").exists():
            json.loads((directory / "settings.json").read_text())
        else:
            self._write_settings()
        self._read_save()
        return self._load_level()

    def stop(self):
        self._save("auto")
        self._sounds.close()
        for descriptor in (self._levels, self._textures, self._log):
            os.close(descriptor)
        self._forget_textures()
        self._compiled.clear()

    def explore(self):
        return self._stream(self._rng.randint(2, 12), sounds=2)

    def fight(self):
        return self._stream(self._rng.randint(4, 20), sounds=6)

    def checkpoint(self):
        self._progress += 1
        return self._save("auto" if self._rng.random() < 0.7 else f"slot{self._rng.randint(1, 3)}")

    def die(self):
        self._forget_textures()
        self._read_save()
        return self._load_level()

    def settings(self):
        self._settings["volume"] = self._rng.randint(0, 100)
        self._write_settings()
        return f"volume {self._settings['volume']}"

    def next_level(self):
        self._level = (self._level + 1) % LEVELS
        self._save("auto")
        return self._load_level()

    def film(self):
        name = f"film{self._rng.randrange(FILMS)}.bin"
        self._run.call("unzip", "-p", self._packs.folder / "films.zip", name, stdout=subprocess.DEVNULL)
        return name

    def quit(self):
        return ""

    def _stream(self, textures, sounds):
        """The player walks on: textures come into view, most of them seen before; sounds play."""
        here = self._textures_of_level()
        self._place += self._rng.gauss(0, 12)
        seen = (int(self._rng.gauss(self._place, 25)) % len(here) for _ in range(textures))
        read = sum(self._read_texture(here[number]) for number in seen)
        for _ in range(sounds):
            offset, size = self._packs.sounds[min(int(self._rng.paretovariate(0.5)), SOUNDS) - 1]
            self._sounds[offset:offset + size]
        self._note(f"frame {self._rng.randint(30, 60)} fps, {len(self._resident)} textures")
        return f"{read} of {textures} textures read"

    def _load_level(self):
        start = self._level * LEVEL_BYTES
        for offset in range(start, start + LEVEL_BYTES, PIECE):
            os.pread(self._levels, PIECE, offset)
        # In the order of the pack, as loaders do.
        textures = sum(map(self._read_texture, sorted(self._textures_of_level()[:TEXTURES_PER_LEVEL])))
        shaders = self._run.random(f"shaders {self._level}").sample(range(SHADERS), SHADERS_PER_LEVEL)
        new = sum(map(self._shader, shaders))
        self._note(f"level {self._level} loaded")
        return f"level {self._level}: {textures} textures read, {new} shaders compiled"

    def _textures_of_level(self):
        """A third of all, in the order of the places where they are seen."""
        return self._run.random(f"textures {self._level}").sample(range(TEXTURES), TEXTURES // 3)

    def _read_texture(self, number):
        if number in self._resident:
            self._resident.move_to_end(number)
            return False
        offset, size = self._packs.textures[number]
        os.pread(self._textures, size, offset)
        self._resident[number] = size
        self._resident_bytes += size
        while self._resident_bytes > ENGINE_BYTES:
            self._resident_bytes -= self._resident.popitem(last=False)[1]
        return True

    def _forget_textures(self):
        self._resident.clear()
        self._resident_bytes = 0

    def _shader(self, number):
        """Read a compiled shader from the cache, or compile it; return whether it was compiled."""
        if number in self._compiled:
            return False
        self._compiled.add(number)
        rng = self._run.random(f"shader {number}")
        name = rng.randbytes(20).hex()
        file = self._run.directory / "shaders" / name[:2] / name[2:]
        if file.exists():
            file.read_bytes()
            return False
        file.parent.mkdir(exist_ok=True)
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(rng.randbytes(int(min(rng.lognormvariate(0, 0.9) * 6 * KB, 80 * KB))))
        temporary.rename(file)
        return True

    def _save(self, slot):
        """Write a save atomically, and keep the one before it."""
        folder = self._run.directory / "saves"
        file, temporary = folder / f"{slot}.sav", folder / f"{slot}.tmp"
        data = self._rng.randbytes(150 * KB + min(self._progress, 60) * 5 * KB)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for offset in range(0, len(data), 64 * KB):
            os.write(descriptor, data[offset:offset + 64 * KB])
        os.fsync(descriptor)
        os.close(descriptor)
        if file.exists():
            file.replace(folder / f"{slot}.bak")
        temporary.rename(file)
        _sync(folder)
        self._note(f"saved {slot}")
        return f"{slot}, {len(data)} bytes"

    def _read_save(self):
        file = self._run.directory / "saves" / "auto.sav"
        if file.exists():
            file.read_bytes()

    def _write_settings(self):
        file = self._run.directory / "settings.json"
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._settings))
        temporary.rename(file)

    def _note(self, text):
        os.write(self._log, f"{self._run.planned_s:.1f} {text}\n".encode())


def _cut(rng, count, total):
    """Consecutive (offset, size) of log-normal sizes that fill a pack."""
    weights = [rng.lognormvariate(0, 0.8) for _ in range(count)]
    scale = total / sum(weights)
    ends = [int(end * scale) for end in itertools.accumulate(weights, initial=0)]
    return [(start, end - start) for start, end in itertools.pairwise(ends)]


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
