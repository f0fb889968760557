"""A video app: segments buffered on disk ahead of the player, dropped behind it.

curl fetches segments of MPEG transport stream from a server at the chosen
quality; ffmpeg plays (reads and demuxes) each at the speed of a player;
sqlite3 keeps what was watched and up to where.  The videos are made once, at
the start, by ffmpeg, from its test picture.
"""

from . import run as runs
from .server import Downloads
from .sqlite import Database

PROGRAMS = ("ffmpeg", "curl", "sqlite3")
SEGMENT_S = 4
# One loop of the test picture; every video repeats it, with names of its own.
LOOP_SEGMENTS = 5
QUALITIES_KBIT_S = (400, 1000, 2500)
AHEAD_SEGMENTS = 10
BEHIND_SEGMENTS = 3
VIDEOS = 40
PLAYER_STEPS_PER_SAVE = 2

SCHEMA = """
CREATE TABLE watched(video INTEGER PRIMARY KEY, segment INTEGER NOT NULL, quality INTEGER NOT NULL,
  plays INTEGER NOT NULL);
CREATE TABLE buffered(video INTEGER, segment INTEGER, bytes INTEGER NOT NULL, PRIMARY KEY(video, segment));
CREATE TABLE history(id INTEGER PRIMARY KEY, video INTEGER NOT NULL, what TEXT NOT NULL);
"""
# Events that end a stretch of watching, with their weights.
ENDS = {"pause": 30, "seek": 30, "change_quality": 10, "next_video": 30}


def main():
    runs.main("video", __doc__, PROGRAMS, play, minutes=10)


def play(run):
    source = encode(run, QUALITIES_KBIT_S)
    with Downloads(run, lambda path: source[path]) as downloads:
        viewer = _Viewer(run, downloads)
        rng = run.random("viewer")
        viewer.next_video()
        while not run.over():
            viewer.watch(int(min(max(rng.lognormvariate(0, 0.9) * 12, 2), 90)))
            end = rng.choices(list(ENDS), ENDS.values())[0]
            run.did(end, getattr(viewer, end)())
        viewer.close()


def encode(run, qualities):
    """The segments of each quality, by path on the server."""
    folder = run.scratch / "source"
    folder.mkdir()
    duration = LOOP_SEGMENTS * SEGMENT_S
    source = {}
    for quality in qualities:
        run.call(
            "ffmpeg", "-nostdin", "-v", "error",
            "-f", "lavfi", "-i", f"testsrc2=size=640x360:rate=25:duration={duration}",
            "-f", "lavfi", "-i", f"sine=frequency=440:duration={duration}",
            # Every key frame with the decoder's settings, so that each segment can be played alone.
            "-c:v", "mpeg4", "-bsf:v", "dump_extra",
            "-b:v", f"{quality}k", "-maxrate", f"{quality}k", "-bufsize", f"{quality}k",
            "-force_key_frames", f"expr:gte(t,n_forced*{SEGMENT_S})", "-c:a", "mp2", "-b:a", "96k",
            "-f", "segment", "-segment_time", SEGMENT_S, folder / f"{quality}-%02d.ts",
        )
        for number in range(LOOP_SEGMENTS):
            file = folder / f"{quality}-{number:02}.ts"
            source[f"/{quality}/{number}"] = file.read_bytes()
            file.unlink()
    return source


class _Viewer:
    def __init__(self, run, downloads):
        self._run = run
        self._downloads = downloads
        self._rng = run.random("videos")
        self._lengths = [self._rng.randint(20, 400) for _ in range(VIDEOS)]
        self._position = {}  # video -> segment, of those watched in part
        self._video = None
        self._quality = QUALITIES_KBIT_S[1]
        self._buffer = {}  # segment -> file
        self._folder = run.directory / "buffer"
        self._folder.mkdir()
        self._library = Database(run, "library.db", "TRUNCATE", schema=SCHEMA)

    def close(self):
        self._library.close()

    def next_video(self):
        """Another video: a few are watched again and again, each from where it was left."""
        self._empty()
        self._video = min(int(self._rng.paretovariate(0.5)), VIDEOS) - 1
        at = self._position.get(self._video, 0)
        self._library.do(
            f"INSERT INTO watched VALUES({self._video},{at},{self._quality},1) ON CONFLICT DO UPDATE SET plays=plays+1;"
            f"INSERT INTO history(video,what) VALUES({self._video},'start');")
        return f"{self._video} from {at}"

    def pause(self):
        seconds = self._rng.uniform(3, 20)
        self._run.think(seconds)
        return f"{seconds:.0f} s"

    def seek(self):
        """Seek anywhere: a short seek stays in the buffer, a long one empties it."""
        step = self._rng.choice([-3, -2, 2, 3, self._rng.randint(-60, 120)])
        self._move(self._at() + step)
        return f"{step:+}"

    def change_quality(self):
        self._quality = self._rng.choice([q for q in QUALITIES_KBIT_S if q != self._quality])
        # Segments buffered after the current one are fetched again.
        self._drop(lambda segment: segment > self._at())
        return f"{self._quality} kbit/s"

    def watch(self, segments):
        done = 0
        while done < segments and not self._run.over():
            if self._at() >= self._lengths[self._video]:
                self._position[self._video] = 0
                self._run.did("end of video", self._video)
                self._run.did("next video", self.next_video())
            at = self._at()
            self._fill(at, 1)  # the player waits for the first
            with self._run.taking(SEGMENT_S):
                # Reads while playing, and never seeks to the end first; nothing is decoded.
                player = self._run.start(
                    "ffmpeg", "-nostdin", "-v", "error", "-readrate", self._run.options.speed,
                    "-analyzeduration", 200000, "-seekable", 0, "-i", self._buffer[at], "-c", "copy", "-f", "null", "-",
                )
                self._fill(at, AHEAD_SEGMENTS)
                if player.wait():
                    raise runs.WorkloadError(f"ffmpeg ended with {player.returncode} on {self._buffer[at]}")
            self._move(at + 1)
            if done % PLAYER_STEPS_PER_SAVE == 0:
                self._library.do(
                    f"UPDATE watched SET segment={self._at()},quality={self._quality} WHERE video={self._video};")
            done += 1
        self._run.did("watch", f"{done} segments of video {self._video}")

    def _at(self):
        return self._position.get(self._video, 0)

    def _move(self, segment):
        at = min(max(segment, 0), self._lengths[self._video])
        self._position[self._video] = at
        self._drop(lambda segment: not at - BEHIND_SEGMENTS <= segment < at + AHEAD_SEGMENTS)

    def _fill(self, at, count):
        """Fetch those of the next segments that are missing."""
        last = min(at + count, self._lengths[self._video])
        for segment in range(at, last):
            if segment not in self._buffer:
                name = f"{self._video:02}-{segment:04}-{self._quality}.ts"
                file = self._folder / name
                part = file.with_suffix(".part")
                self._downloads.fetch([(f"/{self._quality}/{segment % LOOP_SEGMENTS}", part)])
                part.rename(file)
                self._buffer[segment] = file
                self._library.do(f"INSERT INTO buffered VALUES({self._video},{segment},{file.stat().st_size});")
                self._run.did("segment fetched", name)

    def _drop(self, unwanted):
        gone = [segment for segment in self._buffer if unwanted(segment)]
        for segment in gone:
            self._buffer[segment].unlink()
            self._run.did("segment dropped", self._buffer.pop(segment).name)
        if gone:
            rows = "".join(f"DELETE FROM buffered WHERE video={self._video} AND segment={segment};" for segment in gone)
            self._library.do(f"BEGIN;{rows}COMMIT;")

    def _empty(self):
        self._drop(lambda segment: True)
