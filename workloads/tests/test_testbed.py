"""File systems of the test bed are gone after their end, however it comes."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(WORKLOADS))
from apps import testbed  # noqa: E402

HOLDS = """
import sys, time
from pathlib import Path
from apps import testbed
testbed.end_on_signals()
folder = Path(sys.argv[1])
with testbed.file_system(folder / "image", 64 << 20, folder / "point") as volume:
    print(volume.device, flush=True)
    if sys.argv[2:]:
        raise RuntimeError("an error")
    # `pause` would sleep on if the signal came just before it.
    while True:
        time.sleep(0.1)
"""


@unittest.skipIf(os.geteuid() or testbed.missing("ext4"), "mounting needs root, e2fsprogs and losetup")
class TestBed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="testbed-", dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def left(self, device):
        """The remains of the test's file system: files, mounts, a loop device over its image."""
        backing = Path("/sys/block", Path(device).name, "loop/backing_file")
        over = backing.read_text().split()[0] if backing.exists() else ""
        mounts = Path("/proc/self/mounts").read_text().count(str(self.folder))
        return [*self.folder.iterdir(), *([mounts] if mounts else []), *([over] if str(self.folder) in over else [])]

    def test_a_file_system_ends_with_its_block(self):
        with testbed.file_system(self.folder / "image", 64 << 20, self.folder / "point") as volume:
            before = volume.bytes_written()
            (volume.point / "file").write_bytes(b"x" * (1 << 20))
            volume.sync()
            self.assertGreaterEqual(volume.bytes_written() - before, 1 << 20)
        self.assertEqual(self.left(volume.device), [])

    def test_nothing_is_left_after_an_error_or_a_signal(self):
        environment = {**os.environ, "PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"}
        for end in (None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            words = [sys.executable, "-c", HOLDS, self.folder, *(["error"] if end is None else [])]
            with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True) as process:
                device = process.stdout.readline().strip()
                if end:
                    process.send_signal(end)
            self.assertNotEqual(process.returncode, 0)
            self.assertEqual(self.left(device), [], end)

    def test_a_file_system_that_cannot_be_made_leaves_nothing(self):
        with self.assertRaisesRegex(RuntimeError, "mkfs.ext4 ended with"):
            with testbed.file_system(self.folder / "image", 1 << 10, self.folder / "point"):
                pass
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
