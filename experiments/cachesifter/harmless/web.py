"""A seeded web site on the loopback device, which counts what a browser asks for.

Every resource may be cached for a year. The pages check their own content: each fetches its
resources and reports their SHA-256. `app.localhost` is a web application with a service worker and
stored content that the server does not have.
"""

import hashlib
import json
import random
import threading
import urllib.parse
from pathlib import Path

from apps import server
from apps.content import noise

HOSTS = ("news", "shop", "blog")
PAGES = 2
IMAGES = 5
DRAFTS = 6
MANY = 330
YEAR = "public, max-age=31536000"
FONTS = Path("/usr/share/fonts")


class Site:
    """The resources of all hosts, as (type, body), and what their pages should report."""

    def __init__(self, seed):
        self.seed = seed
        self.resources = {}
        self.pages = []  # (host, path), in the order of a visit
        self._rng = random.Random(f"harmless {seed}")
        font = next(iter(sorted(FONTS.rglob("*.ttf"))), None) if FONTS.is_dir() else None
        for host in HOSTS:
            self._add(host, "/favicon.ico", "image/png", self._png(16, 16))
            shared = [self._script(host, f"/shared{number}.js", 60_000) for number in range(2)]
            style = self._style(host)
            if font:
                self._add(host, "/text.ttf", "font/ttf", font.read_bytes())
            self._add(host, "/long.bin", "application/octet-stream", self._rng.randbytes(300_000))
            for number in range(PAGES):
                self._page(host, number, shared, style, bool(font))
        self._app()
        self._drawing()
        # Only the first session sees it: its entries and its place in the history have to stay.
        self._html("once", "/", "<link rel=icon href='data:,'>", "<h1>once</h1>",
                   [self._add("once", f"/{number}.bin", "application/octet-stream", self._rng.randbytes(9_000))
                    for number in range(8)], script="sums();")
        # So many entries at once that Firefox writes the index of its cache.
        self._html("many", "/", "<link rel=icon href='data:,'>", "<h1>many</h1>",
                   [self._add("many", f"/{number}.bin", "application/octet-stream", self._rng.randbytes(400))
                    for number in range(MANY)])
        del self.pages[-2:]

    def stored(self):
        """Content that only the browser has, by name."""
        rng = random.Random(f"stored {self.seed}")
        text = lambda size: rng.randbytes(size // 2).hex()  # noqa: E731
        return {
            "cookie": text(32),
            "http_only": text(32),
            "local": text(400),
            "record": text(2_000),
            "blob": text(300_000),
            "file": text(80_000),
            "drafts": [text(40_000) for _ in range(DRAFTS)],
        }

    def _add(self, host, path, kind, body):
        self.resources[f"{host}.localhost{path}"] = (kind, body)
        return path

    def _png(self, width, height):
        return noise(self._rng, width, height, level=1)

    def _script(self, host, path, size):
        lines = ["self.made=(self.made||0);"]
        while sum(map(len, lines)) < size:
            number = len(lines)
            lines.append(f"function f{number}(x){{let s=x;for(let i=0;i<{self._rng.randrange(3, 9)};i++)"
                         f"s=(s*{self._rng.randrange(3, 99)}+{self._rng.randrange(1000)})%65521;return s}}\n"
                         f"self.made=(self.made+f{number}({number}))%65521;")
        return self._add(host, path, "text/javascript", "\n".join(lines).encode())

    def _style(self, host):
        rules = [f".c{number}{{color:#{self._rng.randrange(1 << 24):06x};margin:{number % 7}px}}"
                 for number in range(300)]
        rules.append("@font-face{font-family:text;src:url(/text.ttf)} body{font-family:text}")
        rules.append("#probe{border-left:37px solid}")
        return self._add(host, "/style.css", "text/css", "\n".join(rules).encode())

    def _page(self, host, number, shared, style, font):
        sides = [max(8, int(self._rng.lognormvariate(4, 0.7))) for _ in range(IMAGES)]
        images = [self._add(host, f"/image{number}-{i}.png", "image/png", self._png(min(side, 220), min(side, 220)))
                  for i, side in enumerate(sides)]
        own = self._script(host, f"/page{number}.js", 25_000)
        paths = [*images, *shared, own, style, *(["/text.ttf"] if font else [])]
        body = "".join(f'<img src="{path}">' for path in images)
        body += "".join(f'<script src="{path}"></script>' for path in [*shared, own])
        body += f"<p id=probe class=c1>{self._rng.randbytes(3000).hex()}</p>"
        head = f'<link rel=stylesheet href="{style}"><link rel=icon href="/favicon.ico">'
        self._html(host, f"/page{number}", head, body, paths, ranges=["/long.bin"])

    def _html(self, host, path, head, body, paths, ranges=(), script=""):
        head = f"<!DOCTYPE html><meta charset=utf-8><title>{host} {path}</title><script>{ERRORS}</script>{head}"
        tail = f"<script>const PATHS={json.dumps(paths)},RANGES={json.dumps(list(ranges))};{CHECK}{script}</script>"
        self._add(host, path, "text/html; charset=utf-8", (head + body + tail).encode())
        self.pages.append((host, path))

    def _app(self):
        assets = [self._add("app", f"/asset{number}.bin", "application/octet-stream",
                            self._rng.randbytes(self._rng.randrange(4_000, 60_000))) for number in range(6)]
        self._script("app", "/library.js", 30_000)
        worker = WORKER.replace("ASSETS", json.dumps(assets)).replace("SECRET", json.dumps(self.secret()))
        self._add("app", "/worker.js", "text/javascript", worker.encode())
        self._html("app", "/", "<link rel=icon href='data:,'>", "<h1>app</h1>", assets,
                   script=APP.replace("STORED", json.dumps(self.stored())).replace("SECRET", json.dumps(self.secret())))

    def secret(self):
        """An answer that only the service worker gives."""
        return random.Random(f"secret {self.seed}").randbytes(16).hex()

    def _drawing(self):
        module = _wasm(self._rng, functions=1500)
        self._add("draw", "/module.wasm", "application/wasm", module)
        self._html("draw", "/", "<link rel=icon href='data:,'>", "<canvas width=64 height=64></canvas>",
                   ["/module.wasm"], script=DRAW)

    def expected(self, host, path):
        """The SHA-256 of each resource that this page fetches."""
        kind, body = self.resources[f"{host}.localhost{path}"]
        del kind
        text = body.decode()
        paths = json.loads(text.partition("const PATHS=")[2].partition(",RANGES=")[0])
        ranges = json.loads(text.partition(",RANGES=")[2].partition(";")[0])
        sums = {at: _sha(self.resources[f"{host}.localhost{at}"][1]) for at in paths}
        for at in ranges:
            sums[f"{at} 5000-90000"] = _sha(self.resources[f"{host}.localhost{at}"][1][5000:90001])
        return sums


# Elements that do not load: before all others.
ERRORS = """
window.failed=[];addEventListener('error',e=>failed.push(String(e.target.src||e.target.href||e.message)),true);
"""
CHECK = """
async function sha(buffer){return [...new Uint8Array(await crypto.subtle.digest('SHA-256',buffer))]
  .map(b=>b.toString(16).padStart(2,'0')).join('')}
async function sums(){const out={};
  for(const path of PATHS){try{const r=await fetch(path);
    out[path]=r.ok?await sha(await r.arrayBuffer()):'status '+r.status}catch(e){out[path]=String(e)}}
  for(const path of RANGES){const name=path+' 5000-90000';
    try{const r=await fetch(path,{headers:{Range:'bytes=5000-90000'}});
      out[name]=r.status==206?await sha(await r.arrayBuffer()):'status '+r.status}catch(e){out[name]=String(e)}}
  return out}
async function check(){await document.fonts.ready;const probe=document.getElementById('probe');
  return {sums:await sums(),failed,made:window.made,
    border:probe?getComputedStyle(probe).borderLeftWidth:null,
    images:[...document.images].filter(i=>!i.naturalWidth).map(i=>i.src),
    ...(window.more?await more():{})}}
"""
WORKER = """
importScripts('/library.js');
const secret=SECRET;
addEventListener('install',e=>e.waitUntil(caches.open('assets').then(c=>c.addAll(ASSETS)).then(()=>skipWaiting())));
addEventListener('activate',e=>e.waitUntil(clients.claim()));
addEventListener('fetch',e=>{const path=new URL(e.request.url).pathname;
  if(path=='/secret'){e.respondWith(new Response(secret));return}
  if(!path.startsWith('/asset'))return;
  e.respondWith(caches.open('assets').then(async c=>(await c.match(path))||fetch(e.request)))});
"""
# The page registers its worker at each visit, as applications do.
APP = """
const stored=STORED;
const open=()=>new Promise((yes,no)=>{const r=indexedDB.open('notes',1);
  r.onupgradeneeded=()=>r.result.createObjectStore('notes');r.onsuccess=()=>yes(r.result);r.onerror=()=>no(r.error)});
const done=t=>new Promise((yes,no)=>{t.oncomplete=yes;t.onerror=t.onabort=()=>no(t.error)});
const got=r=>new Promise((yes,no)=>{r.onsuccess=()=>yes(r.result);r.onerror=()=>no(r.error)});
navigator.serviceWorker.register('/worker.js');
async function fill(){
  await navigator.serviceWorker.ready;
  document.cookie='known='+stored.cookie+';max-age=9999999';
  await fetch('/login');
  localStorage.setItem('known',stored.local);
  const db=await open(),t=db.transaction('notes','readwrite',{durability:'strict'});
  t.objectStore('notes').put(stored.record,'record');
  t.objectStore('notes').put(new Blob([stored.blob]),'blob');
  await done(t);db.close();
  const root=await navigator.storage.getDirectory(),h=await root.getFileHandle('file',{create:true});
  const w=await h.createWritable();await w.write(stored.file);await w.close();
  const drafts=await caches.open('drafts');
  for(let i=0;i<stored.drafts.length;i++)await drafts.put('/draft'+i,new Response(stored.drafts[i]));
}
async function lost(name,value){try{return await value()?[]:[name]}catch(e){return [name+': '+e]}}
async function more(){const out=[];const was=navigator.serviceWorker.controller!==null;
  out.push(...await lost('service worker',()=>was));
  out.push(...await lost('answer of the service worker',async()=>(await (await fetch('/secret')).text())==SECRET));
  out.push(...await lost('cookie',()=>document.cookie.includes('known='+stored.cookie)));
  out.push(...await lost('http-only cookie',async()=>(await (await fetch('/who')).text())==stored.http_only));
  out.push(...await lost('localStorage',()=>localStorage.getItem('known')==stored.local));
  const get=async k=>{const db=await open();const v=await got(db.transaction('notes').objectStore('notes').get(k));
    db.close();return v};
  out.push(...await lost('IndexedDB',async()=>await get('record')==stored.record));
  out.push(...await lost('IndexedDB blob',async()=>(await (await get('blob')).text())==stored.blob));
  out.push(...await lost('private file',async()=>{const root=await navigator.storage.getDirectory();
    return (await (await (await root.getFileHandle('file')).getFile()).text())==stored.file}));
  for(let i=0;i<stored.drafts.length;i++)out.push(...await lost('CacheStorage',async()=>{
    const r=await (await caches.open('drafts')).match('/draft'+i);return r&&(await r.text())==stored.drafts[i]}));
  return {lost:out}}
"""
DRAW = """
async function more(){
  const wasm=await WebAssembly.instantiateStreaming(fetch('/module.wasm'));let s=0;
  for(let i=0;i<1500;i++)s=wasm.instance.exports.run(s);
  let drawn='no WebGL';const gl=document.querySelector('canvas').getContext('webgl');
  if(gl){const shader=(kind,text)=>{const o=gl.createShader(kind);gl.shaderSource(o,text);gl.compileShader(o);return o};
    const p=gl.createProgram();
    gl.attachShader(p,shader(gl.VERTEX_SHADER,'attribute vec2 a;void main(){gl_Position=vec4(a,0,1);}'));
    gl.attachShader(p,shader(gl.FRAGMENT_SHADER,'precision mediump float;void main(){float s=0.;'+
      'for(int i=0;i<40;i++)s+=sin(float(i));gl_FragColor=vec4(.2,.4,.6,1.+s*0.);}'));
    gl.linkProgram(p);gl.useProgram(p);gl.bindBuffer(gl.ARRAY_BUFFER,gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER,new Float32Array([-1,-1,3,-1,-1,3]),gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);gl.vertexAttribPointer(0,2,gl.FLOAT,false,0,0);gl.drawArrays(gl.TRIANGLES,0,3);
    const px=new Uint8Array(4);gl.readPixels(9,9,1,1,gl.RGBA,gl.UNSIGNED_BYTE,px);drawn=px.join()}
  return {wasm:s,drawn}}
"""


def _sha(body):
    return hashlib.sha256(body).hexdigest()


def _leb(number):
    out = bytearray()
    while True:
        low = number & 127
        number >>= 7
        out.append(low | (128 if number else 0))
        if not number:
            return bytes(out)


def _wasm(rng, functions):
    """A module whose export `run` calls all its functions, each of some arithmetic."""
    def section(number, data):
        return bytes([number]) + _leb(len(data)) + data

    def function(code):
        body = b"\0" + code + b"\x0b"
        return _leb(len(body)) + body

    def constant(value):  # below 2^6, so one byte as signed LEB128
        return b"\x41" + bytes([value & 63])

    bodies = []
    for _ in range(functions):
        code = b"\x20\0"
        for _ in range(120):
            code += constant(rng.randrange(1, 64)) + rng.choice((b"\x6a", b"\x6c", b"\x73"))
        bodies.append(function(code))
    calls = b"\x20\0" + b"".join(b"\x10" + _leb(number) for number in range(functions))
    bodies.append(function(calls))
    count = _leb(functions + 1)
    return (b"\0asm\1\0\0\0" + section(1, b"\1\x60\1\x7f\1\x7f") + section(3, count + b"\0" * (functions + 1))
            + section(7, b"\1\3run\0" + _leb(functions)) + section(10, count + b"".join(bodies)))


class Server(server.Server):
    """Serves a site; `take()` returns what was asked since the last call."""

    def __init__(self, site):
        self._site, self._asked, self._lock = site, [], threading.Lock()
        super().__init__(self._answer, self._note)

    def _note(self, method, url, status, size, conditional):
        url = urllib.parse.urlsplit(url)
        with self._lock:
            self._asked.append((f"{url.hostname}{url.path}", size))

    def take(self):
        """Requests since the last call, as (url without scheme and port, bytes)."""
        with self._lock:
            asked, self._asked = self._asked, []
        return asked

    def _answer(self, host, path, asked):
        site, path = self._site, path.partition("?")[0]
        if path == "/login":
            cookie = f"secret={site.stored()['http_only']}; HttpOnly; Max-Age=9999999"
            return 200, {"Cache-Control": "no-store", "Set-Cookie": cookie}, b""
        if path == "/who":
            found = dict(part.strip().partition("=")[::2] for part in asked.get("Cookie", "").split(";"))
            return 200, {"Cache-Control": "no-store"}, found.get("secret", "nobody").encode()
        if f"{host}{path}" not in site.resources:
            return 404, {"Cache-Control": "no-store"}, b"not found"
        kind, body = site.resources[f"{host}{path}"]
        status, headers, rest = server.tagged(body, {
            "Content-Type": kind, "Cache-Control": YEAR, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            "Accept-Ranges": "bytes"}, asked)
        wanted = asked.get("Range", "")
        if not wanted.startswith("bytes="):
            return status, headers, rest
        first, _, last = wanted[6:].partition("-")
        first, last = int(first), min(int(last or len(body) - 1), len(body) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        return 206, headers, body[first:last + 1]
