"""Classification and verdicts of experiments/cachesifter/harmless, without a browser."""

import signal
import struct
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("experiments/cachesifter/harmless", "experiments", "workloads")]
import kinds  # noqa: E402
from browsers import Browser  # noqa: E402
from measure import amounts  # noqa: E402
from web import Site  # noqa: E402

UUID = "da7dbeda-9740-463b-b770-ad5a31e5d376"
FIREFOX = ".mozilla/firefox/person/storage/default/http+++app.localhost+1234"


class Kinds(unittest.TestCase):
    def test_files_of_one_role_are_one_kind(self):
        for path, kind in (
            (".cache/browser/Default/Cache/Cache_Data/00ff00ff00ff00ff_0", "Cache/Cache_Data/HASH_0"),
            (".cache/browser/Default/Cache/Cache_Data/00ff00ff00ff00ff_s", "Cache/Cache_Data/HASH_s"),
            (".config/browser/Default/GPUCache/data_3", "GPUCache/data_N"),
            (".config/browser/Default/GPUCache/f_00000a", "GPUCache/f_N"),
            (f".config/browser/Default/Service Worker/CacheStorage/{'0a' * 20}/{UUID}/index",
             "Service Worker/CacheStorage/HASH/UUID/index"),
            (f".cache/mozilla/firefox/person/cache2/entries/{'0A' * 20}", "cache2/entries/HASH"),
            (f"{FIREFOX}/cache/morgue/12/{{{UUID}}}.final", "storage/default/ORIGIN/cache/morgue/N/UUID.final"),
            (f"{FIREFOX}/idb/4077151340nsoet.sqlite", "storage/default/ORIGIN/idb/N.sqlite"),
            (".config/browser/Default/Local Storage/leveldb/000003.log", "Local Storage/leveldb/N.log"),
            (".config/browser/Default/Cookies", "Cookies"),
        ):
            self.assertEqual(kinds.kind_of(path), kind, path)

    def test_the_rule_is_that_of_the_product(self):
        # Paths of the tests in droppable.rs.
        for path, dropped in (
            ("h/.cache/app/a", True),
            ("p/Default/Cache/Cache_Data/00ff_0", True),
            ("p/Code Cache/js/a_0", True),
            ("h/cached.txt", False),
            ("p/GPUCache/data_1", False),
            ("p/Code Cache/js/index-dir/the-real-index", False),
            ("h/.cache/app/thumbs.db-wal", False),
            ("p/Service Worker/CacheStorage/1/2/3_0", False),
            ("p/Service Worker/ScriptCache/00ff_0", False),
            ("h/.cache/app/records/000003.log", False),
            ("h/.cache/mozilla/firefox/p/cache2/entries/00FF", True),
            ("h/.cache/mozilla/firefox/p/thumbnails/a.png", False),
            (f"{FIREFOX}/cache/morgue/12/{{{UUID}}}.final", False),
        ):
            self.assertEqual(kinds.dropped_by_rule(path), dropped, path)

    def test_a_cache_file_names_its_resource(self):
        key = b"1/0/_dk_http://localhost http://localhost http://news.localhost:1234/a.png"
        simple = struct.pack("<QIIII", 0xFCFB6D1BA7725C30, 5, len(key), 0, 0) + key + bytes(50)
        metadata = b"\0\0:http://news.localhost:1234/b.png\0more"
        cache2 = bytes(300) + metadata + struct.pack(">I", 300)
        resources = {f"news.localhost/{name}.png": ("image/png", name.encode() * 100) for name in "abc"}
        self.assertEqual(kinds.urls_of(simple, resources), {"news.localhost/a.png"})
        self.assertEqual(kinds.urls_of(cache2, resources), {"news.localhost/b.png"})
        self.assertEqual(kinds.urls_of(b"head" + b"c" * 100, resources), {"news.localhost/c.png"})
        self.assertEqual(kinds.urls_of(b"", resources), set())

    def test_a_third_of_few_files_is_no_amount(self):
        self.assertEqual([amounts(count) for count in (1, 4, 5)],
                         [("all",), ("one", "all"), ("one", "third", "all")])


def run_of(asked=(), problems=(), code=0, gone=(), remade=(), own=()):
    phase = {"name": "next run", "asked": dict(asked), "problems": list(problems), "code": code}
    return {"phases": [phase], "gone": dict(gone), "remade": dict(remade), "own": list(own)}


class Verdicts(unittest.TestCase):
    control = run_of(asked={"/who": [2, 64]}, remade={"a/index": 1})

    def judge(self, **trial):
        difference = kinds.compared(run_of(**trial), [self.control])
        return kinds.verdict(difference), difference

    def test_own_bytes_are_harmless(self):
        word, difference = self.judge(asked={"/who": [2, 64], "/a": [1, 900]}, own=["/a"], remade={"a/index": 1})
        self.assertEqual((word, difference["own_bytes"], difference["other_bytes"]), ("harmless", 900, 0))

    def test_other_bytes_and_lost_files_cost(self):
        word, difference = self.judge(asked={"/who": [3, 96], "/a": [1, 900]}, own=["/a"])
        self.assertEqual((word, difference["other_requests"], difference["other_bytes"]), ("costly", 1, 32))
        self.assertEqual(self.judge(gone={"a/HASH_0": 1})[0], "costly")
        self.assertEqual(self.judge(remade={"a/index": 2})[0], "costly")

    def test_files_that_follow_from_others_are_no_loss(self):
        self.assertEqual(self.judge(remade={"Cache/index-dir/the-real-index": 2})[0], "harmless")
        self.assertEqual(self.judge(own=["/a"], gone={"Code Cache/js/HASH_0": 1})[0], "harmless")
        self.assertEqual(self.judge(gone={"Code Cache/js/HASH_0": 1})[0], "costly")

    def test_lost_content_is_harm(self):
        self.assertEqual(self.judge(problems=["app/: lost is [\"cookie\"]"])[0], "harmful")
        self.assertEqual(self.judge(code=-11)[0], "harmful")
        self.assertEqual(kinds.worst(["harmless", "harmful", "costly"]), "harmful")


class Pages(unittest.TestCase):
    def test_equal_seeds_give_equal_sites(self):
        one, again, other = Site(7), Site(7), Site(8)
        self.assertEqual(one.resources, again.resources)
        self.assertNotEqual(one.resources, other.resources)
        for host, path in one.pages:
            expected = one.expected(host, path)
            self.assertTrue(expected, f"{host}{path}")
            for name in expected:
                self.assertIn(f"{host}.localhost{name.partition(' ')[0]}", one.resources)


class Ends(unittest.TestCase):
    def test_a_browser_that_does_not_start_is_ended(self):
        """A browser that was started and never listened ran on after the experiment."""
        class Mute(Browser):
            def _start(self):
                self.process = self._begin("sleep", "1000")
                raise RuntimeError("it does not listen")

        home = self.enterContext(tempfile.TemporaryDirectory())
        browser = Mute(home, Path(home) / "log")
        with self.assertRaises(RuntimeError), browser:
            pass
        self.assertEqual(browser.process.returncode, -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
