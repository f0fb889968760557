"""A small generated web site and the server for it, all from one seed.

Sizes are log-normal (2 KB to 400 KB).  Pages are `no-cache` with an ETag, so
a browser asks again and mostly gets 304; most assets may be kept for a long
time, some go stale soon and are asked for again.
"""

import base64
import hashlib
import http.server
import random
import struct
import threading
import zlib

KB = 1024
SMALLEST, LARGEST = 2 * KB, 400 * KB
START_PAGE = "/news.html"
# The start page changes after so many answers, as a news page does.
START_PAGE_CHANGES_EVERY = 6

LONG_LIVED = "public, max-age=31536000, immutable"
SHORT_LIVED = "public, max-age=20"
REVALIDATE = "no-cache"

NOTES_SCRIPT = """
let notes = JSON.parse(localStorage.getItem('notes') || '[]');
notes.push({page: location.pathname, at: Date.now(), text: 'x'.repeat(%(note_bytes)d)});
localStorage.setItem('notes', JSON.stringify(notes.slice(-20)));
"""

DATABASE_SCRIPT = """
const open = indexedDB.open('reader', 1);
open.onupgradeneeded = () => open.result.createObjectStore('articles', {autoIncrement: true});
open.onsuccess = () => {
  const change = open.result.transaction('articles', 'readwrite', {durability: '%(durability)s'});
  const store = change.objectStore('articles');
  for (let i = 0; i < %(records)d; i++)
    store.put({page: location.pathname, body: 'article '.repeat(%(words)d), n: i});
};
"""


class Site:
    def __init__(self, seed, pages=60, images=170, scripts=14, styles=8):
        self._random = random.Random(f"site {seed}")
        self._lock = threading.Lock()
        self._start_page_answers = 0
        self.resources = {}  # path -> (content type, cache control, body)
        self.page_paths = [START_PAGE] + [f"/page{i:02}.html" for i in range(1, pages)]
        self._images = [self._add_image(i) for i in range(images)]
        self._scripts = [self._add_script(i) for i in range(scripts)]
        self._styles = [self._add_style(i) for i in range(styles)]
        for number, path in enumerate(self.page_paths):
            body = self._page(number)
            self.resources[path] = ("text/html; charset=utf-8", REVALIDATE, body)

    def lookup(self, path):
        """(content type, cache control, body) for a request, or None."""
        found = self.resources.get(path)
        if path == START_PAGE:
            with self._lock:
                edition = self._start_page_answers // START_PAGE_CHANGES_EVERY
                self._start_page_answers += 1
            content_type, cache, body = found
            found = content_type, cache, body + b"<!-- edition %d -->" % edition
        return found

    def total_bytes(self):
        return sum(len(body) for _, _, body in self.resources.values())

    def _size(self, median, spread):
        size = self._random.lognormvariate(0, spread) * median
        return int(min(max(size, SMALLEST), LARGEST))

    def _asset_cache(self):
        return LONG_LIVED if self._random.random() < 0.85 else SHORT_LIVED

    def _add(self, path, content_type, body):
        self.resources[path] = (content_type, self._asset_cache(), body)
        return path

    def _add_image(self, number):
        # A real PNG, so that the browser decodes it; noise, so that it does
        # not compress and its size is the one drawn.
        size = self._size(median=28 * KB, spread=1.1)
        width = max(8, int((size / 3) ** 0.5))
        rows = b"".join(
            b"\0" + self._random.randbytes(3 * width) for _ in range(max(1, size // (3 * width)))
        )
        height = len(rows) // (3 * width + 1)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        body = b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
        )
        return self._add(f"/img/{number:03}.png", "image/png", body)

    def _filler(self, size):
        return base64.b64encode(self._random.randbytes(size * 3 // 4)).decode()

    def _add_script(self, number):
        body = f"window.lib{number} = '{self._filler(self._size(45 * KB, 0.9))}';\n"
        return self._add(f"/js/lib{number}.js", "text/javascript", body.encode())

    def _add_style(self, number):
        body = f".c{number} {{ margin: {number}px }}\n/* {self._filler(self._size(18 * KB, 0.7))} */\n"
        return self._add(f"/css/style{number}.css", "text/css", body.encode())

    def _zipf_sample(self, items, count):
        """Distinct items, the first ones much likelier: shared logos and such."""
        weights = [1 / (rank + 2) for rank in range(len(items))]
        return sorted(set(self._random.choices(items, weights, k=count)))

    def _page(self, number):
        rng = self._random
        links = rng.sample(self.page_paths, 8)
        parts = ["<!doctype html><meta charset=utf-8>", f"<title>Page {number}</title>"]
        parts += [f'<link rel=stylesheet href="{p}">' for p in self._zipf_sample(self._styles, 3)]
        parts += [f'<script src="{p}"></script>' for p in self._zipf_sample(self._scripts, 4)]
        parts.append("<nav>" + " ".join(f'<a href="{p}">{p[1:-5]}</a>' for p in links) + "</nav>")
        # Shared images by rank, and some that belong to this page alone.
        own = self._images[number::len(self.page_paths)]
        for path in self._zipf_sample(self._images, rng.randint(2, 7)) + own:
            parts.append(f'<img src="{path}" alt="">')
            text = self._filler(int(rng.lognormvariate(0, 0.8) * 700))
            parts.append(f"<p>{text}</p>")
        if number % 5 == 1:
            parts.append(f"<script>{NOTES_SCRIPT % {'note_bytes': rng.randint(200, 3000)}}</script>")
        if number % 6 == 2:
            values = {
                "durability": rng.choice(["strict", "relaxed"]),
                "records": rng.randint(2, 20),
                "words": rng.randint(20, 400),
            }
            parts.append(f"<script>{DATABASE_SCRIPT % values}</script>")
        return "\n".join(parts).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive, as real servers do

    def do_GET(self):
        found = self.server.site.lookup(self.path)
        if found is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content_type, cache, body = found
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        unchanged = self.headers.get("If-None-Match") == etag
        self.send_response(304 if unchanged else 200)
        self.send_header("Cache-Control", cache)
        self.send_header("ETag", etag)
        if not unchanged:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not unchanged:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class SiteServer(http.server.ThreadingHTTPServer):
    """Serves a Site on a free port of 127.0.0.1; a context manager."""

    daemon_threads = True

    def __init__(self, site):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.site = site
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # a browser drops connections when it leaves a page
