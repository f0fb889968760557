"""A video app that keeps what it downloads: whole episodes, watched later.

curl fetches an episode's segments of MPEG transport stream, which stay on
disk; ffmpeg plays some of them at the speed of a player, on the same day or
at a later return; sqlite3 keeps the list. The segments are made once, at the
start, by ffmpeg, from its test picture.
"""

from . import days
from . import run as runs
from .server import Downloads
from .sqlite import Database
from .video import LOOP_SEGMENTS, SEGMENT_S, encode

PROGRAMS = ("ffmpeg", "curl", "sqlite3")
QUALITY_KBIT_S = 2500
EPISODE_SEGMENTS = (40, 75)
BATCH = 12
WATCH_SEGMENTS = (3, 15)
PAUSE_S = 90
SCHEMA = """
CREATE TABLE episode(id INTEGER PRIMARY KEY, segments INTEGER NOT NULL, fetched INTEGER NOT NULL DEFAULT 0,
  watched INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0);
"""


def main():
    runs.main("offline", __doc__, PROGRAMS, play, minutes=60, add_arguments=_add_arguments)


def _add_arguments(parser):
    parser.add_argument("--episodes", type=int, default=22, metavar="N",
                        help="downloaded in all, of some 70 MB each (default 22, 1.5 GB)")
    days.add_arguments(parser)


def play(run):
    source = encode(run, (QUALITY_KBIT_S,))
    with Downloads(run, lambda path: source[path.rpartition("/")[0]]) as downloads:
        app = _App(run, downloads)
        for over in days.sessions(run):
            app.open()
            for _ in range(round(run.options.episodes / len(run.options.returns))):
                app.download()
            while not over():
                app.watch()
            app.close()
        run.facts["kept_bytes"] = sum(path.stat().st_size for path in run.directory.rglob("*.ts"))


class _App:
    def __init__(self, run, downloads):
        self._run, self._downloads = run, downloads
        self._rng = run.random("person")
        self._folder = run.directory / "episodes"
        self._folder.mkdir()
        self._episodes = []  # segments of each
        self._position = {}
        self._library = Database(run, "library.db", "WAL", schema=SCHEMA)
        self._library.close()

    def open(self):
        self._library.open()

    def close(self):
        self._library.close()

    def download(self):
        """A whole episode, a few segments at a time, each under another name until it is whole."""
        number, segments = len(self._episodes), self._rng.randint(*EPISODE_SEGMENTS)
        folder = self._folder / f"{number:03}"
        folder.mkdir()
        self._library.do(f"INSERT INTO episode(id,segments) VALUES({number},{segments});")
        for first in range(0, segments, BATCH):
            batch = range(first, min(first + BATCH, segments))
            parts = [(f"/{QUALITY_KBIT_S}/{n % LOOP_SEGMENTS}/{number}-{n}", folder / f"{n:04}.part") for n in batch]
            self._downloads.fetch(parts)
            size = 0
            for _, part in parts:
                size += part.stat().st_size
                part.rename(part.with_suffix(".ts"))
            self._library.do(f"UPDATE episode SET fetched={batch[-1] + 1},bytes=bytes+{size} WHERE id={number};")
        self._episodes.append(segments)
        self._run.did("download", f"episode {number}, {segments} segments")
        self._run.think(self._rng.uniform(1, 5))

    def watch(self):
        """A stretch of an episode, rather a new one, from where it was left; then a pause."""
        rank = min(int(self._rng.paretovariate(0.6)), len(self._episodes))
        stretch, pause_s = self._rng.randint(*WATCH_SEGMENTS), self._rng.expovariate(1 / PAUSE_S)
        if not self._episodes:
            return self._run.think(pause_s)
        number = len(self._episodes) - rank
        first = self._position.get(number, 0)
        last = min(first + stretch, self._episodes[number])
        for segment in range(first, last):
            with self._run.taking(SEGMENT_S):
                file = self._folder / f"{number:03}" / f"{segment:04}.ts"
                speed = SEGMENT_S / self._run.kept(SEGMENT_S)
                # Reads while playing, and never seeks to the end first; nothing is decoded.
                player = self._run.start(
                    "ffmpeg", "-nostdin", "-v", "error", "-readrate", f"{speed:g}", "-analyzeduration", 200000,
                    "-seekable", 0, "-i", file, "-c", "copy", "-f", "null", "-")
                if player.wait():
                    raise runs.WorkloadError(f"ffmpeg ended with {player.returncode} on {file}")
        self._position[number] = last if last < self._episodes[number] else 0
        self._library.do(f"UPDATE episode SET watched={self._position[number]} WHERE id={number};")
        self._run.did("watch", f"episode {number}, segments {first} to {last - 1}")
        self._run.think(pause_s)
        days.maybe_away(self._run, self._rng, self._run.think)
