"""Kinds of files by their paths, the rule of the product, and the verdict on a kind."""

import re
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# The places of one profile. Their names are those that the experiment gives.
PREFIXES = (".cache/browser/Default/", ".config/browser/Default/", ".config/browser/",
            ".cache/mozilla/firefox/person/", ".mozilla/firefox/person/")
# Parts of paths that differ from file to file, each with the name of all of them.
PARTS = [(re.compile(pattern), name) for pattern, name in (
    (r"[0-9a-f]{16}_([0-9s])", r"HASH_\1"),
    (r"[0-9A-F]{40}|[0-9a-f]{40}|[A-Z2-7]{32}", "HASH"),
    (r"\{?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?(\.\w+)?", r"UUID\1"),
    (r"f_[0-9a-f]{6}", "f_N"),
    (r"data_\d", "data_N"),
    (r"https?[+_].*?([.]indexeddb[.].*)?", r"ORIGIN\1"),
    (r"\d+(\.ldb|\.log|\.dmp)?", r"N\1"),
    (r"MANIFEST-\d+", "MANIFEST-N"),
    (r"(Session|Tabs)_\d+", r"\1_N"),
    (r"ce_.+", "ce_NAME"),
    (r"\d{4,}[a-z-]+(\.sqlite|\.files)(.*)", r"N\1\2"),
    (r"\d+\.(png|jpg)|[0-9a-f]{32}\.(png|jpg)", "HASH.png"),
)]


def kind_of(path):
    """Returns the kind of a file from its path below the home directory."""
    for prefix in PREFIXES:
        if path.startswith(prefix):
            path = path.removeprefix(prefix)
            break
    return named(path, PARTS)


def named(path, parts):
    """A path with the names of its parts that differ from file to file."""
    def name_of(part):
        found = ((pattern.fullmatch(part), name) for pattern, name in parts)
        return next((match.expand(name) for match, name in found if match), part)

    return "/".join(map(name_of, path.split("/")))


def in_cache(path):
    """Whether a directory of the path has `cache` in its name: those that a sifter looks at."""
    return "cache" in path.rpartition("/")[0].lower()


# --- the rule of crates/files/src/sift/droppable.rs ---

def _names(constant):
    """The names in a list of droppable.rs, so that this file cannot lag behind."""
    source = (ROOT / "crates/files/src/sift/droppable.rs").read_text()
    found = re.search(rf"const {constant}: \[&str; \d+\] =\s*\[(.*?)\];", source, re.S)
    return re.findall(r'"([^"]+)"', found[1])


def shell(pattern):
    return re.compile("".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in pattern), re.S)


NO_CACHE = [shell(pattern) for pattern in _names("NO_CACHE")]
PINNED = [shell(pattern) for pattern in _names("INDEXES")]
DATABASE = re.compile(r".*\.(db|db3|sqlite|sqlite3|sqlitedb)|.+-(journal|wal|shm)|.*-mj[0-9A-F]{6}9[0-9A-F]{2}", re.I)


def dropped_by_rule(path):
    """Whether `Droppable::caches()` has this path."""
    path = f"/{path}"
    name = path.rpartition("/")[2]
    return (in_cache(path) and not any(pattern.fullmatch(path) for pattern in NO_CACHE)
            and not DATABASE.fullmatch(name) and not any(pattern.fullmatch(name) for pattern in PINNED))


# --- the content of a cache file ---

def urls_of(data, resources):
    """The resources (`host/path`: body) that a cache file holds, from its key and its content."""
    found = {url for url, (_, body) in resources.items() if len(body) >= 64 and body[:64] in data}
    key = _simple_key(data) or _cache2_key(data)
    named = re.findall(r"http://([^/:\s]+)(?::\d+)?(/[^\s\0]*)", key)
    return found | ({"".join(url) for url in named} & set(resources))


def _simple_key(data):
    """The key of an entry in Chromium's simple cache (`SimpleFileHeader`)."""
    if len(data) < 24 or struct.unpack_from("<Q", data)[0] != 0xFCFB6D1BA7725C30:
        return ""
    length = struct.unpack_from("<I", data, 12)[0]
    return data[24:24 + length].decode(errors="replace")


def _cache2_key(data):
    """The key of an entry in Firefox's cache2: in the metadata, whose offset is at the end."""
    if len(data) < 4:
        return ""
    offset = struct.unpack_from(">I", data, len(data) - 4)[0]
    found = re.search(rb":(http://[^\0]*)\0", data[offset:]) if offset < len(data) else None
    return found[1].decode(errors="replace") if found else ""


def block_cache(data):
    """Entries and time of creation of a cache of block files, from its index (`IndexHeader`)."""
    if len(data) < 48 or struct.unpack_from("<I", data)[0] != 0xC103CAC3:
        return None
    return struct.unpack_from("<i", data, 8)[0], struct.unpack_from("<Q", data, 40)[0]


# --- the verdict ---

# The kind of all files that `dropped_by_rule` has.
RULE = "every file that the rule drops"
ORDER = ("harmless", "costly", "harmful")
# Files about others, which browsers write anew and rename. They hold no content.
REWRITTEN = ("the-real-index", "index.txt", "journal.baj", "snapshot.baf", "cache2/index", "cache2/index.log",
             ".json", ".bin")
# Compiled code of scripts, which is of no use once the script is fetched again.
DERIVED = "Code Cache/"


def compared(trial, controls):
    """Returns what a trial has beside all undisturbed runs of the same seed and mode.

    All hold `phases` (each with `asked`: url to requests and bytes, `problems`, `code`), `gone`
    and `remade` (kind to number of files that the experiment did not delete). Bytes of `own` URLs,
    which the deleted files held, and of others are apart.
    """
    own = set(trial["own"])
    result = {"own_requests": 0, "own_bytes": 0, "other_requests": 0, "other_bytes": 0, "others": [],
              "problems": [], "gone": {}, "remade": {}}
    for number, phase in enumerate(trial["phases"]):
        usual = [control["phases"][number] for control in controls if number < len(control["phases"])]
        for url, (requests, size) in phase["asked"].items():
            most = [max((one["asked"].get(url, (0, 0))[i] for one in usual), default=0) for i in (0, 1)]
            more, bytes_more = max(0, requests - most[0]), max(0, size - most[1])
            side = "own" if url in own else "other"
            result[f"{side}_requests"] += more
            result[f"{side}_bytes"] += bytes_more
            if side == "other" and bytes_more:
                result["others"].append(url)
        known = {problem for one in usual for problem in one["problems"]}
        result["problems"] += [f"{phase['name']}: {problem}" for problem in phase["problems"] if problem not in known]
        if phase["code"]:
            result["problems"].append(f"{phase['name']}: exit status {phase['code']}")
    for what in ("gone", "remade"):
        for kind, count in trial[what].items():
            if kind.endswith(REWRITTEN) or own and kind.startswith(DERIVED):
                continue
            if (more := count - max((control[what].get(kind, 0) for control in controls), default=0)) > 0:
                result[what][kind] = more
    return result


def verdict(difference):
    """Harmful: content is lost or wrong, or the browser failed. Costly: more than the deleted
    files' own bytes is fetched or lost. Harmless: all else."""
    if difference["problems"]:
        return "harmful"
    if difference["other_bytes"] or difference["gone"] or difference["remade"]:
        return "costly"
    return "harmless"


def worst(verdicts):
    return max(verdicts, key=ORDER.index)
