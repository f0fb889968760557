"""A cache of downloads on disk as Android's libraries keep it.

After OkHttp's DiskLruCache, which image loaders use: an entry is written
under a temporary name and renamed; a text journal tells what is there and in
which order it was used, appended to at each access and now and then written
anew; beyond a size the least recently used entries are deleted.
"""

import collections
import os


class DiskCache:
    # Number of obsolete journal lines at which the journal is rewritten.
    REDUNDANT_LINES = 1000

    def __init__(self, directory, max_bytes):
        directory.mkdir()
        self._directory = directory
        self._max_bytes = max_bytes
        self._sizes = collections.OrderedDict()  # key -> bytes, least recently used first
        self._bytes = 0
        self._lines = 0
        self._journal = None
        self._rewrite()

    def __contains__(self, key):
        return key in self._sizes

    def read(self, key):
        self._sizes.move_to_end(key)
        self._note("READ", key)
        return (self._directory / f"{key}.0").read_bytes()

    def begin(self, key):
        """Path to write a new entry to, before `commit`."""
        self._note("DIRTY", key)
        return self._directory / f"{key}.0.tmp"

    def commit(self, key):
        """Commit an entry that is completely written; return the keys evicted for it."""
        temporary = self._directory / f"{key}.0.tmp"
        size = temporary.stat().st_size
        os.replace(temporary, self._directory / f"{key}.0")
        self._bytes += size - self._sizes.pop(key, 0)
        self._sizes[key] = size
        self._note(f"CLEAN {key}", size)
        gone = []
        while self._bytes > self._max_bytes:
            gone.append(next(iter(self._sizes)))
            self.remove(gone[-1])
        return gone

    def remove(self, key):
        (self._directory / f"{key}.0").unlink()
        self._bytes -= self._sizes.pop(key)
        self._note("REMOVE", key)

    def close(self):
        self._journal.close()

    def open(self):
        """Read the journal and rewrite it, as the app's next start does."""
        (self._directory / "journal").read_bytes()
        self._rewrite()

    def _note(self, word, rest):
        self._journal.write(f"{word} {rest}\n".encode())
        self._lines += 1
        if self._lines - len(self._sizes) >= self.REDUNDANT_LINES:
            self._journal.close()
            self._rewrite()

    def _rewrite(self):
        path, temporary = self._directory / "journal", self._directory / "journal.tmp"
        with open(temporary, "wb") as journal:
            journal.write(b"libcore.io.DiskLruCache\n1\n201105\n1\n\n")
            for key, size in self._sizes.items():
                journal.write(f"CLEAN {key} {size}\n".encode())
        os.replace(temporary, path)
        self._lines = len(self._sizes)
        self._journal = open(path, "ab", buffering=0)
