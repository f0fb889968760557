"""A map app: tiles in a tree of files, in a cache database, and in MBTiles.

curl downloads the street map's tiles into files (layer/zoom/column/row) that
the app itself (this script) reads, refreshes when they are too old, and
trims. sqlite3 keeps the satellite layer in a cache database that notes each
use (DELETE), regions saved for later as MBTiles (TRUNCATE), and places and
tracks (WAL).
"""

import collections
import math
import os

from . import run as runs
from .server import Downloads
from .sqlite import Database

PROGRAMS = ("sqlite3", "curl")
KB, MB = 1024, 1024 * 1024

# The screen, in tiles; one more row on each side is kept ready.
WIDTH, HEIGHT = 4, 6
ZOOMS = range(10, 18)
# Where the app is used: a town's place on the map at zoom 0, and the places in it.
TOWN = (0.5372, 0.3281)
TOWN_SIZE = 0.0003
PLACES = 12
# Tiles in the app's own memory.
MEMORY_TILES = 150
SATELLITE_BYTES = 24 * MB
MAX_AGE_S = (240, 900)
CHANGED_SHARE = 0.25

SATELLITE = """
CREATE TABLE tiles(zoom INTEGER, col INTEGER, row INTEGER, expires INTEGER, accessed INTEGER, data BLOB,
  PRIMARY KEY(zoom, col, row));
CREATE INDEX tiles_by_use ON tiles(accessed);
"""
MBTILES = """
CREATE TABLE metadata(name TEXT, value TEXT);
CREATE TABLE tiles(zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, tile_data BLOB);
CREATE UNIQUE INDEX tile_index ON tiles(zoom_level, tile_column, tile_row);
"""
PLACES_SCHEMA = """
CREATE TABLE visit(id INTEGER PRIMARY KEY, place INTEGER, zoom INTEGER, at INTEGER);
CREATE TABLE track(id INTEGER PRIMARY KEY, at INTEGER, x REAL, y REAL);
"""

# The next action of a person, name -> weight.
ACTIONS = {
    "pan": 46,
    "fling": 12,
    "zoom_in": 10,
    "zoom_out": 10,
    "place": 10,
    "navigate": 4,
    "layer": 4,
    "look_at_region": 6,
    "save_region": 1.5,
    "leave": 1,
}


def main():
    runs.main("map", __doc__, PROGRAMS, play, minutes=30, add_arguments=_add_arguments)


def _add_arguments(parser):
    parser.add_argument("--cache-mib", type=int, default=40, help="size of the tiles in files (default 40)")


def play(run):
    with Downloads(run, _body(run)) as downloads:
        app = _Map(run, downloads)
        rng = run.random("actions")
        run.did("start", app.show())
        while not run.over():
            action = rng.choices(list(ACTIONS), ACTIONS.values())[0]
            run.think(rng.lognormvariate(0, 0.8) * 1.8)
            run.did(action, getattr(app, action)())
        app.close()


def _tile_bytes(rng, zoom):
    """Tiles of towns are large, of the open land small."""
    median = 9 * KB if zoom < 12 else 16 * KB
    return int(min(max(rng.lognormvariate(0, 0.7) * median, KB), 120 * KB))


def _body(run):
    def body(path):
        rng = run.random(path)
        return rng.randbytes(_tile_bytes(rng, int(path.split("/")[2])))
    return body


class _Map:
    def __init__(self, run, downloads):
        self._run = run
        self._rng = run.random("app")
        self._streets = _TileFiles(run, downloads, "street")
        self._satellite = _TileDatabase(run)
        self._region = Database(run, "region.mbtiles", "TRUNCATE", "FULL", MBTILES)
        self._diary = Database(run, "places.db", "WAL", "NORMAL", PLACES_SCHEMA)
        self._places = [tuple(at + self._rng.gauss(0, TOWN_SIZE) for at in TOWN) for _ in range(PLACES)]
        self._x, self._y = self._places[0]
        self._zoom = 14
        self._layer = self._streets
        self._memory = collections.OrderedDict()  # tiles drawn last, in the app's own memory
        self._regions = []
        self._saved = {}  # (zoom, column, row) in MBTiles

    def close(self):
        for database in (self._satellite.database, self._region, self._diary):
            database.close()

    def leave(self):
        """The app goes to the background, its memory is taken, and it comes back."""
        self.close()
        self._memory.clear()
        self._run.think(self._rng.uniform(3, 15))
        for database in (self._satellite.database, self._region, self._diary):
            database.open()
        return self.show()

    def show(self):
        """Draw the tiles on the screen and prepare those beside it."""
        keys = self._screen(margin=1)
        wanted = [key for key in keys if (self._layer, key) not in self._memory]
        done = self._layer.load(wanted)
        for key in keys:
            self._memory[self._layer, key] = None
            self._memory.move_to_end((self._layer, key))
        while len(self._memory) > MEMORY_TILES:
            self._memory.popitem(last=False)
        return f"zoom {self._zoom}, {len(wanted)} {self._layer.name} tiles: {done}"

    def pan(self):
        self._go(self._rng.uniform(-1.5, 1.5), self._rng.uniform(-2, 2))
        return self.show()

    def fling(self):
        angle = self._rng.uniform(0, 2 * math.pi)
        shown = []
        for step in range(self._rng.randint(3, 6)):
            length = 3 / (1 + step)
            self._go(length * math.cos(angle), length * math.sin(angle))
            shown.append(self.show())
            self._run.think(0.35)
        return "; ".join(shown)

    def zoom_in(self):
        return self._zoom_to(self._zoom + self._rng.choice([1, 1, 2]))

    def zoom_out(self):
        return self._zoom_to(self._zoom - self._rng.choice([1, 1, 2, 3]))

    def place(self):
        """Back to one of the places, to a few of them mostly."""
        number = self._some_place()
        self._x, self._y = self._places[number]
        self._layer = self._streets
        self._diary.do(f"INSERT INTO visit(place,zoom,at) VALUES({number},{self._zoom},{self._run.planned_s:.0f});")
        return f"{number}, {self._zoom_to(self._rng.choice([14, 15, 15, 16]))}"

    def navigate(self):
        """Along the way to another place; the screen moves with the driver."""
        x, y = self._places[self._some_place()]
        self._layer, self._zoom = self._streets, 16
        steps = max(1, int(max(abs(x - self._x), abs(y - self._y)) * 2**self._zoom / 0.5))
        step_x, step_y = (x - self._x) / steps, (y - self._y) / steps
        driven = min(steps, 60)
        for _ in range(driven):
            self._x, self._y = self._x + step_x, self._y + step_y
            self._diary.do(f"INSERT INTO track(at,x,y) VALUES({self._run.planned_s:.0f},{self._x},{self._y});")
            self.show()
            self._run.think(1)
        return f"{driven} of {steps} steps"

    def layer(self):
        self._layer = self._satellite if self._layer is self._streets else self._streets
        return self.show()

    def save_region(self):
        """Save the surroundings, in several zooms, for use without a network."""
        new = {}
        for zoom in range(12, 17):
            reach = 2 if zoom < 15 else 2 ** (zoom - 13)
            column, row = self._tile(zoom)
            for c in range(column - reach, column + reach + 1):
                for r in range(row - reach, row + reach + 1):
                    if (zoom, c, r) not in self._saved:
                        new[zoom, c, r] = _tile_bytes(self._rng, zoom)
        rows = [
            f"INSERT INTO tiles VALUES({z},{c},{_mbtiles_row(z, r)},randomblob({size}));"
            for (z, c, r), size in new.items()
        ]
        for batch in _batches(rows, 50):
            self._region.do(f"BEGIN;{''.join(batch)}COMMIT;")
            self._run.think(0.5)
        self._saved |= new
        self._regions.append((self._x, self._y))
        return f"{len(new)} tiles"

    def look_at_region(self):
        """A region saved before, without a network; the saved tiles of the screen."""
        if self._regions:
            self._x, self._y = self._rng.choice(self._regions)
        self._zoom = self._rng.randint(13, 15)
        keys = [key for key in self._screen(margin=0) if key in self._saved]
        self._region.do("".join(
            "SELECT length(hex(tile_data)) FROM tiles WHERE "
            f"zoom_level={z} AND tile_column={c} AND tile_row={_mbtiles_row(z, r)};" for z, c, r in keys))
        return f"{len(keys)} tiles"

    def _some_place(self):
        return min(int(self._rng.paretovariate(0.7)), PLACES) - 1

    def _zoom_to(self, zoom):
        self._zoom = min(max(zoom, ZOOMS[0]), ZOOMS[-1])
        return self.show()

    def _go(self, columns, rows):
        self._x += columns / 2**self._zoom
        self._y += rows / 2**self._zoom

    def _tile(self, zoom):
        return int(self._x * 2**zoom), int(self._y * 2**zoom)

    def _screen(self, margin):
        column, row = self._tile(self._zoom)
        return [
            (self._zoom, column + c, row + r)
            for r in range(-(HEIGHT // 2) - margin, HEIGHT // 2 + margin)
            for c in range(-(WIDTH // 2) - margin, WIDTH // 2 + margin)
        ]


class _TileFiles:
    """One file for each tile; expired ones are fetched again, the least recently used trimmed."""

    def __init__(self, run, downloads, name):
        self.name = name
        self._run = run
        self._downloads = downloads
        self._rng = run.random(f"{name} files")
        self._tiles = collections.OrderedDict()  # key -> (bytes, good until this planned second)
        self._bytes = 0

    def load(self, keys):
        now = self._run.planned_s
        old = [key for key in keys if key in self._tiles and self._tiles[key][1] < now]
        changed = [key for key in old if self._rng.random() < CHANGED_SHARE]
        new = [key for key in keys if key not in self._tiles]
        self._fetch(new + changed)
        for key in old:
            # Unchanged on the server: valid for a while again, as its time stamp records.
            if key not in changed:
                os.utime(self._file(key))
                self._tiles[key] = self._tiles[key][0], self._good_until()
        for key in keys:
            self._tiles.move_to_end(key)
            self._file(key).read_bytes()
        trimmed = self._trim()
        return f"{len(new)} new, {len(old)} old, {len(changed)} changed, {trimmed} trimmed"

    def _fetch(self, keys):
        wanted = []
        for key in keys:
            file = self._file(key)
            file.parent.mkdir(parents=True, exist_ok=True)
            wanted.append(("/{}/{}/{}/{}".format(self.name, *key), file.with_suffix(".tmp")))
        if wanted:
            self._downloads.fetch(wanted)
        for key, (_, temporary) in zip(keys, wanted, strict=True):
            size = temporary.stat().st_size
            temporary.replace(self._file(key))
            self._bytes += size - self._tiles.get(key, (0, 0))[0]
            self._tiles[key] = size, self._good_until()

    def _trim(self):
        """Trim to nine tenths, so that not every step has to trim."""
        trimmed = 0
        if self._bytes > self._run.options.cache_mib * MB:
            while self._bytes > self._run.options.cache_mib * MB * 9 // 10:
                key, (size, _) = self._tiles.popitem(last=False)
                self._file(key).unlink()
                self._bytes -= size
                trimmed += 1
        return trimmed

    def _good_until(self):
        return self._run.planned_s + self._rng.uniform(*MAX_AGE_S)

    def _file(self, key):
        zoom, column, row = key
        return self._run.directory / "tiles" / self.name / str(zoom) / str(column) / f"{row}.png"


class _TileDatabase:
    """A cache in SQLite that notes each use, as MapLibre's does."""

    name = "satellite"

    def __init__(self, run):
        self._run = run
        self._rng = run.random("satellite database")
        self.database = Database(run, "satellite.db", "DELETE", "FULL", SATELLITE)
        self._tiles = collections.OrderedDict()  # key -> bytes, least recently used first
        self._bytes = 0

    def load(self, keys):
        now = int(self._run.planned_s)
        new = [key for key in keys if key not in self._tiles]
        statements = []
        for z, c, r in keys:
            if (z, c, r) not in self._tiles:
                size = self._tiles[z, c, r] = _tile_bytes(self._rng, z)
                self._bytes += size
                statements.append(f"INSERT INTO tiles VALUES({z},{c},{r},{now + 600},{now},randomblob({size}));")
            else:
                where = f"WHERE zoom={z} AND col={c} AND row={r}"
                statements.append(f"SELECT length(hex(data)) FROM tiles {where};")
                statements.append(f"UPDATE tiles SET accessed={now} {where};")
            self._tiles.move_to_end((z, c, r))
        trimmed = 0
        while self._bytes > SATELLITE_BYTES:
            (z, c, r), size = self._tiles.popitem(last=False)
            self._bytes -= size
            trimmed += 1
            statements.append(f"DELETE FROM tiles WHERE zoom={z} AND col={c} AND row={r};")
        if statements:
            self.database.do(f"BEGIN;{''.join(statements)}COMMIT;")
        return f"{len(new)} new, {trimmed} trimmed"


def _mbtiles_row(zoom, row):
    """MBTiles count rows from the south."""
    return 2**zoom - 1 - row


def _batches(rows, size):
    return [rows[start:start + size] for start in range(0, len(rows), size)]
