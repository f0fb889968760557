"""A large generated web: forty sites, shared files, advertisements, that change with the date.

Its numbers are published ones:

* Sizes: Barford and Crovella, "Generating Representative Web Workloads for Network and Server
  Performance Evaluation" (SIGMETRICS 1998): a log-normal body, a Pareto tail. Tails end at 4 MB.
* Objects of a page, by type: HTTP Archive, Web Almanac 2024, "Page Weight", medians of desktop
  pages: 71 requests, of these 18 images and 24 scripts. Style sheets and fonts: 8 and 4, assumed.
* Cache headers and validators: Web Almanac 2020, "Caching": shares of responses, and percentiles
  of the time to live by type.
* Popularity of sites and of a site's pages: Zipf with exponent 0.8, within the 0.64 to 0.83 of
  Breslau et al., "Web Caching and Zipf-like Distributions" (INFOCOM 1999).

Ages of files and how often pages change are assumed.
"""

import bisect
import email.utils
import itertools
import random
import threading
import zlib
from dataclasses import dataclass

from .content import png
from .website import LINKS, START

KB = 1024
SITES = 40
PAGES = 25  # of a site
ZIPF = 0.8
HOUR_S, DAY_S = 3600, 86400
ADVERTISEMENTS = 600
NOISE_BYTES = 8 << 20


@dataclass(frozen=True)
class Type:
    """One type of content."""

    content: str
    scale: float  # of the size, against the paper's
    tail: bool  # whether a few are very large
    no_store: float  # share of responses
    # Hours, at the percentiles 10, 25, 50, 75, 90.
    ttl_h: tuple


PAGE = Type("text/html; charset=utf-8", 0.65, False, 0.321, (0, 1, 336, 8760, 87600))
IMAGE = Type("image/png", 1, True, 0.088, (4, 168, 720, 8760, 8766))
SCRIPT = Type("text/javascript", 0.95, False, 0.048, (0, 2, 720, 8760, 8760))
STYLE = Type("text/css", 0.36, False, 0.007, (24, 24, 720, 8760, 8760))
FONT = Type("font/woff2", 1.2, False, 0.002, (720, 8760, 8760, 8760, 8760))
PERCENTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

# Of responses that may be stored: no lifetime given, so the browser estimates one from the age.
NO_LIFETIME = 0.282 / 0.908
# Revalidated at each use: `no-cache` without `no-store`.
REVALIDATED = 0.077 / 0.908
IMMUTABLE = 0.035 / 0.602
# Last-Modified and ETag: both, one, the other, none.
VALIDATORS = (((True, True), 0.428), ((True, False), 0.307), ((False, True), 0.051), ((False, False), 0.214))

# Files of a site that all its pages draw from; a page shows some of them.
SITE_SCRIPTS, PAGE_SCRIPTS = 26, 16
SITE_STYLES, PAGE_STYLES = 10, 7
SITE_FONTS, PAGE_FONTS = 5, 4
SITE_IMAGES, PAGE_SITE_IMAGES = 14, 6
PAGE_OWN_IMAGES = 10
# Files of others: libraries, advertisements, pixels that count visits.
LIBRARIES, PAGE_LIBRARIES = 60, 8
PAGE_ADVERTISEMENTS = 2
PAGE_COUNTERS = 3


@dataclass(frozen=True)
class File:
    type: Type
    size: int
    cache: str
    modified: bool
    tagged: bool
    # A change each so many seconds, None for never; and when the first was.
    period_s: float | None
    born_s: float

    def version_at(self, now_s):
        return 0 if self.period_s is None else int((now_s - self.born_s) // self.period_s)

    def changed_at(self, now_s):
        return self.born_s + self.version_at(now_s) * (self.period_s or 0)


class LargeWeb:
    """All sites; `answer` is what a Server wants, `now()` tells the date."""

    def __init__(self, seeded, now):
        self._now = now
        self._lock = threading.Lock()
        self._counter = 0
        self._noise = seeded("noise").randbytes(NOISE_BYTES)
        # Letters and digits of the same length.
        self._text = self._noise.translate(bytes(b"abcdefghijklmnopqrstuvwxyz0123456789"[n % 36] for n in range(256)))
        self._files = {}  # (host, path) -> File
        self._shown = {}  # (host, page) -> what it shows
        self._began_s = now()
        self.hosts = [f"s{number:02}" for number in range(SITES)]
        self.pages = {host: [START] + [f"/page{n:02}.html" for n in range(1, PAGES)] for host in self.hosts}
        self.links = {}
        rng = seeded("shared")
        self._libraries = [self._add(rng, "cdn", f"/js/{n}.js", SCRIPT) for n in range(LIBRARIES)]
        for number in range(ADVERTISEMENTS):
            self._add(rng, "ads", f"/{number}.png", IMAGE)
        for host in self.hosts:
            self._site(host, seeded(host))
        self._advertisement = Zipf(seeded("advertisements"), range(ADVERTISEMENTS))
        self._port = 0

    def set_port(self, port):
        self._port = port

    def __len__(self):
        return len(self._files)

    def total_bytes(self):
        return sum(file.size for file in self._files.values())

    def answer(self, host, path, headers):
        """Answer as a server: the whole file, or `304` if the browser has it already."""
        host = host.removesuffix(".localhost")
        path = path.partition("?")[0]
        if host == "count":
            return 200, {"Content-Type": "image/png", "Cache-Control": "no-store"}, _png(b"\0\0\0", 1, 1)
        file = self._files.get((host, path))
        if file is None:
            return 404, {}, b""
        now_s = self._now()
        version = file.version_at(now_s)
        answer = {"Content-Type": file.type.content}
        if file.cache:
            answer["Cache-Control"] = file.cache
        tag = f'"{zlib.crc32(f"{host}{path} {version}".encode()):08x}"'
        changed = email.utils.formatdate(file.changed_at(now_s), usegmt=True)
        if file.tagged:
            answer["ETag"] = tag
        if file.modified:
            answer["Last-Modified"] = changed
        if file.type is PAGE:
            answer["Set-Cookie"] = f"visits={self._next()}; Max-Age=31536000; Path=/"
        if headers.get("If-None-Match", None if file.tagged else "") == tag or (
                "If-None-Match" not in headers and file.modified and headers.get("If-Modified-Since") == changed):
            return 304, answer, b""
        return 200, answer, self._body(host, path, file, version)

    def _next(self):
        with self._lock:
            self._counter += 1
            return self._counter

    def _site(self, host, rng):
        scripts = [self._add(rng, host, f"/js/{n}.js", SCRIPT) for n in range(SITE_SCRIPTS)]
        styles = [self._add(rng, host, f"/css/{n}.css", STYLE) for n in range(SITE_STYLES)]
        fonts = [self._add(rng, host, f"/font/{n}.woff2", FONT) for n in range(SITE_FONTS)]
        images = [self._add(rng, host, f"/img/{n}.png", IMAGE) for n in range(SITE_IMAGES)]
        others = [other for other in self.hosts if other != host]
        for number, page in enumerate(self.pages[host]):
            own = [self._add(rng, host, f"/img/{number:02}-{n}.png", IMAGE) for n in range(PAGE_OWN_IMAGES)]
            # Start pages change hourly, half of the others every few days.
            period = HOUR_S if number == 0 else DAY_S * rng.lognormvariate(1, 1) if rng.random() < 0.5 else None
            self._add(rng, host, page, PAGE, period)
            self._shown[host, page] = (
                [*rng.sample(self._libraries, PAGE_LIBRARIES), *rng.sample(scripts, PAGE_SCRIPTS)],
                rng.sample(styles, PAGE_STYLES), rng.sample(fonts, PAGE_FONTS),
                [*rng.sample(images, PAGE_SITE_IMAGES), *own],
            )
            links = [(host, there) for there in rng.sample(self.pages[host], LINKS - 1)]
            self.links[host, page] = [*links, (rng.choice(others), rng.choice(self.pages[host]))]

    def _add(self, rng, host, path, kind, period=None):
        """Draw a file's properties; the number of draws does not depend on them."""
        size = 11585 * rng.lognormvariate(0, 1.318) * kind.scale
        tail = 133 * KB * rng.paretovariate(1.1)
        if rng.random() < 0.07 and kind.tail:
            size = tail
        immutable, fate, ttl_s = rng.random() < IMMUTABLE, rng.random(), _ttl_s(kind, rng.random())
        validators = rng.choices([v for v, _ in VALIDATORS], [share for _, share in VALIDATORS])[0]
        # Between an hour and two years.
        age_s = HOUR_S * (2 * 365 * 24) ** rng.random()
        if rng.random() < kind.no_store:
            cache = "no-store"
        elif fate < NO_LIFETIME:
            cache = ""
        elif fate < NO_LIFETIME + REVALIDATED:
            cache = "no-cache"
        else:
            cache = f"public, max-age={ttl_s}" + (", immutable" if immutable and not period else "")
        born_s = self._began_s - (period * rng.random() if period else age_s)
        self._files[host, path] = File(kind, int(min(max(size, 200), 4096 * KB)), cache, *validators, period, born_s)
        return f"//{host}.localhost:@PORT@{path}"

    def _body(self, host, path, file, version):
        at = zlib.crc32(f"{host}{path} {version}".encode()) % NOISE_BYTES
        if file.type is PAGE:
            return self._page(host, path, file, version, at)
        if file.type is IMAGE:
            width = max(1, int((file.size / 3) ** 0.5))
            height = max(1, file.size // (3 * width))
            return _png(_slice(self._noise, at, width * height * 3), width, height)
        text = _slice(self._text, at, file.size)
        if file.type is SCRIPT:
            return b"(window.libraries ||= []).push('%s');\n" % text
        return b"/* %s */\n" % text if file.type is STYLE else text

    def _page(self, host, path, file, version, at):
        scripts, styles, fonts, images = self._shown[host, path]
        if path == START:
            # News: images of pages, others with each version.
            rng = random.Random(f"{host} {version}")
            images = [*images[:PAGE_SITE_IMAGES], *(
                f"/img/{rng.randrange(PAGES):02}-{rng.randrange(PAGE_OWN_IMAGES)}.png" for _ in range(PAGE_OWN_IMAGES))]
        with self._lock:
            shown = [self._advertisement.draw() for _ in range(PAGE_ADVERTISEMENTS)]
        serial = self._next()
        parts = ["<!doctype html><meta charset=utf-8>", f"<title>{host}{path}</title>", '<link rel=icon href="data:,">']
        parts += [f'<link rel=stylesheet href="{url}">' for url in styles]
        faces = "".join(f"@font-face{{font-family:f{n};src:url({url})}} .f{n}{{font-family:f{n}}}"
                        for n, url in enumerate(fonts))
        parts.append(f"<style>{faces}</style>")
        parts += [f'<script async src="{url}"></script>' for url in scripts]
        anchors = (f'<a href="//{there}.localhost:@PORT@{page}">{there} {page[1:-5]}</a>'
                   for there, page in self.links[host, path])
        parts.append(f"<nav>{' '.join(anchors)}</nav>")
        parts += [f'<img src="//ads.localhost:@PORT@/{number}.png" width=300 alt="">' for number in shown]
        parts += [f'<img src="//count.localhost:@PORT@/{n}?{serial}" alt="">' for n in range(PAGE_COUNTERS)]
        text = _slice(self._text, at, file.size).decode()
        length = len(text) // len(images) + 1
        for number, url in enumerate(images):
            # Images further down are fetched when the reader reaches them.
            lazy = " loading=lazy" if number > 5 else ""
            words = text[number * length:(number + 1) * length]
            parts.append(f"<p class=f{number % len(fonts)}>{words}</p>")
            parts.append(f'<img src="{url}"{lazy} width=600 height=400 alt="">')
        return "\n".join(parts).replace("@PORT@", str(self._port)).encode()


class Zipf:
    """Draws of items, the n-th with a probability in proportion to n^-0.8."""

    def __init__(self, rng, items):
        self._rng, self._items = rng, list(items)
        self._sums = list(itertools.accumulate(n ** -ZIPF for n in range(1, len(self._items) + 1)))

    def draw(self):
        return self._items[bisect.bisect(self._sums, self._rng.random() * self._sums[-1])]


def _ttl_s(kind, share):
    """The time to live at this percentile, linear between those that are published."""
    points = [(0, kind.ttl_h[0]), *zip(PERCENTILES, kind.ttl_h, strict=True), (1, kind.ttl_h[-1])]
    for (left, low), (right, high) in itertools.pairwise(points):
        if share <= right:
            return round(HOUR_S * (low + (high - low) * (share - left) / (right - left)))
    return round(HOUR_S * kind.ttl_h[-1])


def _slice(data, at, size):
    """That many bytes from a place on, around the end as often as needed."""
    return (data[at:] + data * ((size + at) // len(data)))[:size] if at + size > len(data) else data[at:at + size]


def _png(pixels, width, height):
    return png(width, height, b"".join(b"\0" + pixels[row * 3 * width:(row + 1) * 3 * width] for row in range(height)))
