"""Generated web sites, all from one seed: four sites, their shared files, and cache headers.

Each site is a host below `localhost`, which browsers resolve by themselves
and treat as secure, so that cookies, storage and service workers behave as on
the web. Sizes are log-normal, 1 KB to 1 MB.
"""

import base64
import threading
from dataclasses import dataclass

from .content import noise
from .server import tagged

KB = 1024
SMALLEST, LARGEST = KB, 1024 * KB
LINKS = 8

# Common cache headers. Files with a hash in their name never change; others are revalidated.
HASHED = "public, max-age=31536000, immutable"
HOURS = "public, max-age=14400"
SECONDS = "public, max-age=45"
REVALIDATE = "no-cache"
NEVER = "no-store"


@dataclass(frozen=True)
class Kind:
    """The parameters of one site."""

    host: str
    pages: int
    images: int
    image_bytes: int  # median
    images_a_page: int
    text_bytes: int  # median, of a page
    page_cache: str
    asset_cache: tuple  # (share, header)
    # How many images of a page are advertisements, never the same twice.
    advertisements: int = 0
    script: str = ""


NOTES = """
let notes = JSON.parse(localStorage.getItem('notes') || '[]');
notes.push({page: location.pathname, at: Date.now(), text: 'x'.repeat(700)});
localStorage.setItem('notes', JSON.stringify(notes.slice(-30)));
"""

MAIL = """
const open = indexedDB.open('mail', 1);
open.onupgradeneeded = () => open.result.createObjectStore('messages', {autoIncrement: true});
open.onsuccess = () => {
  const change = open.result.transaction('messages', 'readwrite', {durability: '@DURABILITY@'});
  const store = change.objectStore('messages');
  for (let i = 0; i < @RECORDS@; i++)
    store.put({page: location.pathname, body: 'message '.repeat(@WORDS@), n: i});
};
navigator.serviceWorker.register('/worker.js');
fetch('/api/inbox?page=' + encodeURIComponent(location.pathname)).then(answer => answer.arrayBuffer());
"""

# Keeps the site's own files in a cache that it manages itself.
WORKER = """
self.addEventListener('activate', event => event.waitUntil(clients.claim()));
self.addEventListener('fetch', event => {
  const url = new URL(event.request.url);
  if (url.origin !== location.origin || !/^.(img|js|css)/.test(url.pathname)) return;
  event.respondWith(caches.open('files').then(async cache => {
    const found = await cache.match(event.request);
    if (found) return found;
    const answer = await fetch(event.request);
    await cache.put(event.request, answer.clone());
    return answer;
  }));
});
"""

KINDS = (
    Kind("news", 60, 260, 34 * KB, 9, 14 * KB, REVALIDATE, ((0.5, HOURS), (0.3, SECONDS), (0.2, HASHED)),
         advertisements=3),
    Kind("shop", 90, 420, 22 * KB, 14, 9 * KB, "private, max-age=60", ((0.9, HASHED), (0.1, HOURS)),
         advertisements=1, script=NOTES),
    Kind("blog", 50, 120, 60 * KB, 4, 30 * KB, "public, max-age=600", ((0.7, HASHED), (0.3, REVALIDATE))),
    Kind("mail", 16, 30, 8 * KB, 3, 6 * KB, NEVER, ((1, HASHED),), script=MAIL),
)
START = "/index.html"


class Web:
    """All sites; `answer` is what a Server wants."""

    def __init__(self, random):
        self._serial = 0
        self._lock = threading.Lock()
        self._advertisements = random("advertisements")
        self._files = {}  # (host, path) -> (content type, cache control, body)
        # (host, path) of a page -> those it links to
        self.links = {}
        self.pages = {kind.host: self._pages(kind) for kind in KINDS}
        shared = self._shared(random("shared"))
        for kind in KINDS:
            self._site(kind, random(kind.host), shared)

    def total_bytes(self):
        return sum(len(body) for _, _, body in self._files.values())

    def __len__(self):
        return len(self._files)

    def answer(self, host, path, headers):
        """Answer as a server: the whole file, or `304` if the browser has it already."""
        host = host.removesuffix(".localhost")
        found = self._found(host, path.partition("?")[0])
        if found is None:
            return 404, {}, b""
        content_type, cache, body = found
        answer = {"Content-Type": content_type, "Cache-Control": cache}
        if content_type.startswith("text/html"):
            answer["Set-Cookie"] = f"visits={self._next()}; Max-Age=86400; Path=/"
        return tagged(body, answer, headers)

    def _next(self):
        with self._lock:
            self._serial += 1
            return self._serial

    def _found(self, host, path):
        if host == "ads":
            with self._lock:
                size = _size(self._advertisements, 24 * KB, 0.8)
                return "image/png", SECONDS, _png(self._advertisements, size)
        if path.startswith("/api/"):
            return "application/json", NEVER, b"[%s]" % (b"0," * 900 + b"0")
        found = self._files.get((host, path))
        if found and b"@SERIAL@" in found[2]:
            content_type, cache, body = found
            # A news page changes now and then, its advertisements each time.
            serial = self._next()
            body = body.replace(b"@SERIAL@", b"%d" % serial).replace(b"@EDITION@", b"%d" % (serial // 20))
            return content_type, cache, body
        return found

    def _pages(self, kind):
        return [START] + [f"/page{number:02}.html" for number in range(1, kind.pages)]

    def _shared(self, rng):
        """Libraries and fonts that sites fetch from elsewhere."""
        names = [f"/js/library{number}.js" for number in range(6)]
        for name in names:
            self._files["cdn", name] = "text/javascript", HASHED, _script(rng, _size(rng, 60 * KB, 0.8))
        return names

    def _site(self, kind, rng, shared):
        def add(path, content_type, body):
            shares = [share for share, _ in kind.asset_cache]
            cache = rng.choices([header for _, header in kind.asset_cache], shares)[0]
            self._files[kind.host, path] = content_type, cache, body
            return path

        pictures = [_png(rng, _size(rng, kind.image_bytes, 1.0)) for _ in range(kind.images)]
        images = [add(f"/img/{n:03}.png", "image/png", picture) for n, picture in enumerate(pictures)]
        scripts = [add(f"/js/{n}.js", "text/javascript", _script(rng, _size(rng, 40 * KB, 0.9))) for n in range(5)]
        styles = [add(f"/css/{n}.css", "text/css", _style(rng, n, _size(rng, 18 * KB, 0.7))) for n in range(3)]
        self._files[kind.host, "/worker.js"] = "text/javascript", REVALIDATE, WORKER.encode()
        pages = self.pages[kind.host]
        for number, path in enumerate(pages):
            links = [(kind.host, page) for page in rng.sample(pages, LINKS - 1)]
            other = rng.choice([k.host for k in KINDS if k is not kind])
            links.append((other, rng.choice(self.pages[other])))
            self.links[kind.host, path] = links
            # Logos and such on every page, and images of its own.
            shown = [*images[:2], *images[2 + number::len(pages)]]
            shown += rng.sample(images, max(0, kind.images_a_page - len(shown)))
            libraries = [f"//cdn.localhost:@PORT@{name}" for name in rng.sample(shared, 2)]
            body = _page(kind, rng, links, libraries + scripts[:3], styles[:2], shown)
            self._files[kind.host, path] = "text/html; charset=utf-8", kind.page_cache, body.encode()

    def set_port(self, port):
        """Pages name hosts with the port of the server."""
        for key, (content_type, cache, body) in self._files.items():
            if content_type.startswith("text/html"):
                self._files[key] = content_type, cache, body.replace(b"@PORT@", b"%d" % port)


def _size(rng, median, spread):
    return int(min(max(rng.lognormvariate(0, spread) * median, SMALLEST), LARGEST))


def _filler(rng, size):
    return base64.b64encode(rng.randbytes(size * 3 // 4)).decode()


def _script(rng, size):
    return f"(window.libraries ||= []).push('{_filler(rng, size)}');\n".encode()


def _style(rng, number, size):
    return f".c{number} {{ margin: {number}px }}\n/* {_filler(rng, size)} */\n".encode()


def _png(rng, size):
    """A real image that the browser can decode, of noise, so that it has the given size."""
    width = max(8, int((size / 3) ** 0.5))
    return noise(rng, width, max(1, size // (3 * width)))


def _page(kind, rng, links, scripts, styles, images):
    parts = ["<!doctype html><meta charset=utf-8>", f"<title>{kind.host}</title>"]
    if kind.page_cache == REVALIDATE:
        parts.append("<!-- edition @EDITION@ -->")
    parts += [f'<link rel=stylesheet href="{path}">' for path in styles]
    parts += [f'<script src="{path}"></script>' for path in scripts]
    anchors = (f'<a href="//{host}.localhost:@PORT@{path}">{path[1:-5]}</a>' for host, path in links)
    parts.append(f"<nav>{' '.join(anchors)}</nav>")
    for number in range(kind.advertisements):
        parts.append(f'<img src="//ads.localhost:@PORT@/a{number}.png?@SERIAL@" width=300 alt="">')
    text = _size(rng, kind.text_bytes, 0.6) // len(images)
    for number, path in enumerate(images):
        # Images further down are fetched when the reader reaches them.
        lazy = ' loading=lazy' if number > 3 else ''
        parts.append(f'<p>{_filler(rng, text)}</p><img src="{path}"{lazy} width=600 height=400 alt="">')
    if kind.script:
        script = kind.script.replace("@DURABILITY@", rng.choice(["strict", "relaxed"]))
        script = script.replace("@RECORDS@", str(rng.randint(2, 20))).replace("@WORDS@", str(rng.randint(20, 400)))
        parts.append(f"<script>{script}</script>")
    return "\n".join(parts)
