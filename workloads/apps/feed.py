"""A social feed app: posts in SQLite, images in a cache on disk.

The sqlite3 program keeps the posts (WAL), what waits to be sent (TRUNCATE)
and the settings (DELETE); curl downloads images and clips; the app itself
(this script) keeps the image cache, trims it, and reads images while
scrolling.
"""

from . import run as runs
from . import sqlite
from .content import sentence
from .disk_cache import DiskCache
from .server import Downloads
from .sqlite import Database

PROGRAMS = ("sqlite3", "curl")
KB, MB = 1024, 1024 * 1024
KEEP_POSTS = 400
FIRST_POST = 1_000_000
AUTHORS = 300

# name -> journal mode, synchronous, schema
DATABASES = {
    "feed": ("WAL", "NORMAL", """
CREATE TABLE post(id INTEGER PRIMARY KEY, author INTEGER NOT NULL, body TEXT NOT NULL,
  images INTEGER NOT NULL, likes INTEGER NOT NULL, liked INTEGER NOT NULL DEFAULT 0, seen INTEGER NOT NULL DEFAULT 0,
  layout BLOB);
CREATE INDEX post_by_author ON post(author, id);
CREATE INDEX post_unseen ON post(id) WHERE NOT seen;
CREATE TABLE comment(id INTEGER PRIMARY KEY, post INTEGER NOT NULL, author INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX comment_by_post ON comment(post);
"""),
    "outbox": ("TRUNCATE", "FULL", "CREATE TABLE outbox(id INTEGER PRIMARY KEY, kind TEXT, post INTEGER, body TEXT);"),
    "settings": ("DELETE", "FULL", "CREATE TABLE setting(name TEXT PRIMARY KEY, value TEXT);"),
}

ACTIONS = {  # name -> weight, and seconds of thought before it (median)
    "scroll": (60, 1),
    "open": (12, 2.5),
    "like": (9, 0.7),
    "story": (8, 1.5),
    "refresh": (6, 2),
    "comment": (3, 8),
    "profile": (4, 3),
}
SESSION_S = (40, 200)
BACKGROUND_S = (5, 25)


def main():
    runs.main("feed", __doc__, PROGRAMS, play, minutes=10, add_arguments=_add_arguments)


def _add_arguments(parser):
    parser.add_argument("--cache-mib", type=int, default=40, help="size of the image cache (default 40)")
    sqlite.add_arguments(parser)


def play(run):
    if run.options.sql or run.options.load:
        return sqlite.play_files(run)
    with Downloads(run, _Content(run).body) as downloads:
        app = _Feed(run, downloads)
        rng = run.random("actions")
        while not run.over():
            app.start()
            end = run.planned_s + rng.uniform(*SESSION_S)
            while run.planned_s < end and not run.over():
                action = rng.choices(list(ACTIONS), [weight for weight, _ in ACTIONS.values()])[0]
                run.think(min(rng.lognormvariate(0, 0.7) * ACTIONS[action][1], 30))
                run.did(action, getattr(app, "_" + action)())
            app.stop()
            run.think(rng.uniform(*BACKGROUND_S))
            run.did("background sync", app.background())


class _Content:
    """The server's images and clips by name, the same for the same seed."""

    MEDIAN_BYTES = {"thumb": 80 * KB, "full": 250 * KB, "clip": 1200 * KB}

    def __init__(self, run):
        self._run = run

    def body(self, path):
        kind = path.split("/")[1]
        rng = self._run.random(path)
        size = rng.lognormvariate(0, 0.7) * self.MEDIAN_BYTES[kind]
        return rng.randbytes(int(min(max(size, 3 * KB), 6 * MB)))


class _Feed:
    def __init__(self, run, downloads):
        self._run = run
        self._downloads = downloads
        self._rng = run.random("app")
        # Images of each post.  Numbers rise with time; older ones are fetched downwards.
        self._posts = {FIRST_POST: 0}
        # The position is the post at the top of the screen.
        self._position = self._oldest = self._newest = FIRST_POST
        self._databases = {name: Database(run, f"{name}.db", *how) for name, how in DATABASES.items()}
        self._images = DiskCache(run.directory / "images", run.options.cache_mib * MB)
        (run.directory / "clips").mkdir()
        self.stop()

    def start(self):
        for database in self._databases.values():
            database.open()
        self._images.open()
        self._do("settings", "SELECT count(*) FROM setting;")
        self._do("feed", "SELECT count(body) FROM (SELECT body FROM post ORDER BY id DESC LIMIT 30);")
        self._run.did("start", self._new_posts(self._rng.randint(10, 25)))
        self._position = self._newest

    def stop(self):
        self._do("settings", f"INSERT OR REPLACE INTO setting VALUES('position','{self._position}');")
        self._send_outbox()
        self._forget_old()
        for database in self._databases.values():
            database.close()
        self._images.close()

    def background(self):
        """Work that the system wakes the app for: a few posts, no images."""
        for name in ("feed", "outbox"):
            self._databases[name].open()
        count = self._rng.randint(1, 5)
        self._insert_newer(count)
        for name in ("feed", "outbox"):
            self._databases[name].close()
        return f"{count} posts"

    def _do(self, name, sql):
        self._databases[name].do(sql)

    def _insert_posts(self, numbers):
        rows = []
        for post in numbers:
            images = self._posts[post] = self._rng.choices([0, 1, 2, 3, 4], [20, 55, 10, 8, 7])[0]
            author = min(int(self._rng.paretovariate(0.6)), AUTHORS)
            text = sentence(self._rng, 3 + int(self._rng.lognormvariate(2.8, 0.9)))
            rows.append(
                f"INSERT INTO post VALUES({post},{author},'{text}',{images},{self._rng.randint(0, 900)},0,0,"
                f"randomblob({self._rng.randint(600, 3500)}));"
            )
        self._do("feed", f"BEGIN;{''.join(rows)}COMMIT;")

    def _insert_newer(self, count):
        first, self._newest = self._newest + 1, self._newest + count
        self._insert_posts(range(first, self._newest + 1))

    def _insert_older(self, count):
        last, self._oldest = self._oldest - 1, self._oldest - count
        self._insert_posts(range(last, self._oldest - 1, -1))

    def _forget_old(self):
        """Keep the newest posts only, as apps do when they are left."""
        if len(self._posts) > KEEP_POSTS:
            self._oldest = self._newest - KEEP_POSTS + 1
            self._posts = {post: images for post, images in self._posts.items() if post >= self._oldest}
            self._do("feed",
                f"BEGIN;DELETE FROM comment WHERE post < {self._oldest};"
                f"DELETE FROM post WHERE id < {self._oldest};COMMIT;")

    def _new_posts(self, count):
        self._insert_newer(count)
        # The first screens are fetched before they are seen.
        return f"{count} posts, {self._load(self._thumbs(self._newest, 8))}"

    def _thumbs(self, newest, posts):
        """Names of the images of so many posts, downwards from one."""
        shown = range(newest, max(newest - posts, self._oldest - 1), -1)
        return [f"thumb-{post}-{i}" for post in shown for i in range(self._posts[post])]

    def _load(self, names):
        """Download the images that are not in the cache."""
        missing = [name for name in dict.fromkeys(names) if name not in self._images]
        if missing:
            self._downloads.fetch([(f"/{name.replace('-', '/')}", self._images.begin(name)) for name in missing])
        trimmed = sum(len(self._images.commit(name)) for name in missing)
        return f"{len(missing)} downloaded, {trimmed} trimmed"

    def _show(self, names):
        done = self._load(names)
        for name in names:
            # A very small cache may have trimmed the first for the last.
            if name in self._images:
                self._images.read(name)
        return done

    def _scroll(self):
        """Some posts on; the next screen's images are fetched ahead."""
        count = self._rng.randint(3, 8)
        if self._position - count - 4 < self._oldest:
            self._insert_older(self._rng.randint(10, 20))
        top, self._position = self._position, self._position - count
        self._do("feed",
            f"SELECT count(body), sum(length(layout)) FROM post WHERE id BETWEEN {self._position} AND {top};"
            f"UPDATE post SET seen=1 WHERE id BETWEEN {self._position + 1} AND {top};")
        shown = self._show(self._thumbs(top, count))
        self._load(self._thumbs(self._position, 5))
        return f"{count} posts, {shown}"

    def _refresh(self):
        done = self._new_posts(self._rng.randint(5, 20))
        self._position = self._newest
        return done

    def _open(self):
        """One post near by, its whole images and comments."""
        post = self._nearby()
        rows = "".join(
            f"INSERT INTO comment(post,author,body) VALUES({post},{self._rng.randint(1, AUTHORS)},"
            f"'{sentence(self._rng, self._rng.randint(2, 40))}');"
            for _ in range(self._rng.randint(0, 12))
        )
        self._do("feed", f"BEGIN;{rows}COMMIT;SELECT count(body) FROM comment WHERE post={post};")
        return f"post {post}, {self._show([f'full-{post}-{i}' for i in range(self._posts[post])])}"

    def _nearby(self):
        return min(self._position + self._rng.randint(0, 4), self._newest)

    def _like(self):
        post = self._nearby()
        self._do("feed", f"UPDATE post SET liked=1, likes=likes+1 WHERE id={post};")
        self._do("outbox", f"INSERT INTO outbox(kind,post) VALUES('like',{post});")
        if self._rng.random() < 0.4:
            self._send_outbox()
        return f"post {post}"

    def _comment(self):
        post = self._nearby()
        text = sentence(self._rng, self._rng.randint(2, 30))
        self._do("outbox", f"INSERT INTO outbox(kind,post,body) VALUES('comment',{post},'{text}');")
        self._do("feed", f"INSERT INTO comment(post,author,body) VALUES({post},0,'{text}');")
        self._send_outbox()
        return f"post {post}"

    def _send_outbox(self):
        self._do("outbox", "DELETE FROM outbox;")

    def _story(self):
        """A clip: downloaded, played once, deleted."""
        number = self._rng.randrange(10**6)
        file = self._run.directory / "clips" / f"{number:06}.mp4"
        self._downloads.fetch([(f"/clip/{number}", file)])
        with open(file, "rb", buffering=0) as clip:
            while clip.read(64 * KB):
                self._run.think(0.2)
        file.unlink()
        return f"clip {number}"

    def _profile(self):
        """Show old posts of a user, as far as the database and the cache still have them."""
        author = min(int(self._rng.paretovariate(0.6)), AUTHORS)
        self._do("feed", f"SELECT count(body), sum(length(layout)) FROM post WHERE author={author};")
        posts = self._rng.sample(list(self._posts), min(3, len(self._posts)))
        return f"author {author}, {self._show([name for post in posts for name in self._thumbs(post, 1)])}"
