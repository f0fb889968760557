"""Photos on a PC, viewed with feh: albums as thumbnails, which feh keeps in ~/.cache/thumbnails,
slide shows, and new photos at each return.

feh shows them on a virtual screen, Xvfb. The photos are made by ffmpeg, at the
start, and copied into the albums as from a camera.
"""

import contextlib
import os
import shutil
import time

from . import days, processes
from . import run as runs
from .run import WorkloadError

PROGRAMS = ("feh", "ffmpeg", "Xvfb")
ALBUM_PHOTOS = (25, 60)
NEW_PHOTOS = (15, 40)
LOOK_S = 12
IDLE_S = 0.4
STEPS = {"album": 60, "slides": 25, "one_photo": 15}


def main():
    runs.main("photos", __doc__, PROGRAMS, play, minutes=60, add_arguments=_add_arguments)


def _add_arguments(parser):
    parser.add_argument("--albums", type=int, default=8, metavar="N", help="there from the start (default 8)")
    parser.add_argument("--negatives", type=int, default=40, metavar="N",
                        help="different photos; the albums hold copies of them (default 40)")
    days.add_arguments(parser)


def play(run):
    negatives = _develop(run)
    with _screen(run) as display:
        viewer = _Viewer(run, negatives, display)
        for over in days.sessions(run):
            viewer.copy_photos()
            while not over():
                viewer.step()


def _develop(run):
    """Photos of 1 to 3 MB, in scratch."""
    count = run.options.negatives
    folder = run.scratch / "negatives"
    folder.mkdir()
    # The noise differs from seed to seed, and makes the size of a photo.
    run.call(
        "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi",
        "-i", "testsrc2=size=1920x1280:rate=1",
        "-vf", f"noise=alls=28:allf=t:all_seed={run.options.seed}", "-frames:v", count, "-q:v", 4,
        folder / "%02d.jpg")
    return sorted(folder.iterdir())


@contextlib.contextmanager
def _screen(run):
    """A virtual screen; its number is printed when it is ready."""
    read, write = os.pipe()
    with open(run.scratch / "xvfb.log", "wb") as log:
        server = run.start("Xvfb", "-displayfd", write, "-screen", 0, "1280x1024x24", "-nolisten", "tcp",
                           stdout=log, stderr=log, pass_fds=(write,), cwd=run.scratch)
    os.close(write)
    with open(read) as number:
        display = number.readline().strip()
    if not display:
        raise WorkloadError(f"Xvfb did not start: {(run.scratch / 'xvfb.log').read_text(errors='replace').strip()}")
    yield f":{display}"
    server.terminate()
    server.wait()


class _Viewer:
    def __init__(self, run, negatives, display):
        self._run, self._negatives, self._display = run, negatives, display
        self._rng = run.random("viewer")
        self._folder = run.directory / "Pictures"
        self._albums = []
        for _ in range(run.options.albums):
            self._copy(self._rng.randint(*ALBUM_PHOTOS))

    def copy_photos(self):
        """From the camera, into an album of their own."""
        self._run.did("copy_photos", f"{self._copy(self._rng.randint(*NEW_PHOTOS))} photos")

    def _copy(self, count):
        album = self._folder / f"album{len(self._albums):02}"
        album.mkdir(parents=True)
        for number in range(count):
            shutil.copyfile(self._rng.choice(self._negatives), album / f"IMG_{number:04}.jpg")
        self._albums.append(album)
        return count

    def step(self):
        days.maybe_away(self._run, self._rng, self._run.think)
        # The newest albums are opened most.
        album = self._albums[-min(int(self._rng.paretovariate(0.7)), len(self._albums))]
        step = self._rng.choices(list(STEPS), STEPS.values())[0]
        seconds = self._rng.lognormvariate(0, 0.8) * LOOK_S
        getattr(self, "_" + step)(album, seconds)
        self._run.did(step, album.name)

    def _album(self, album, seconds):
        """All thumbnails of an album; those that are missing are made."""
        feh = self._feh("--thumbnails", "--cache-thumbnails", "--thumb-width", 256, "--thumb-height", 256,
                        "--limit-width", 1280, album)
        self._close(feh, seconds)

    def _slides(self, album, seconds):
        """Some photos in a row."""
        photos = sorted(album.iterdir())
        first = self._rng.randrange(len(photos))
        shown = photos[first:first + self._rng.randint(3, 12)]
        delay = self._run.kept(max(0.5, seconds / len(shown)))
        with self._run.taking(seconds):
            if self._feh("--slideshow-delay", f"{delay:.3f}", "--on-last-slide", "quit", *shown).wait():
                raise WorkloadError("feh failed on a slide show")

    def _one_photo(self, album, seconds):
        self._close(self._feh(self._rng.choice(sorted(album.iterdir()))), seconds)

    def _close(self, feh, seconds):
        """After a look at what it shows."""
        _idle(feh)
        self._run.think(seconds)
        feh.terminate()
        feh.wait()

    def _feh(self, *arguments):
        return self._run.start("feh", "--quiet", "--geometry", "1280x1024", *arguments, home=self._run.directory,
                               env={"DISPLAY": self._display})


def _idle(process):
    """Wait until a program has nothing left to do: it used no processor time for a while."""
    used, since = None, time.monotonic()
    while process.poll() is None and time.monotonic() - since < IDLE_S:
        now = processes.stat(process.pid)[11:13]
        if now != used:
            used, since = now, time.monotonic()
        time.sleep(0.05)
    if process.returncode:
        raise WorkloadError(f"feh ended with {process.returncode}")
