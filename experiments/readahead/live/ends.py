"""End `tune readahead --live --propose` by a signal at several moments, and list what it leaves.

Writes ends.json.
"""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import stage
from apps import processes, testbed
from common.program import run
from common.rows import write_json

HERE = Path(__file__).resolve().parent
# Time from the start to the signal, s; then its processes have this time to end.
MOMENTS = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0]
GRACE_S = 10


def alive(pid):
    fields = processes.stat(pid)
    return fields is not None and fields[0] != "Z"


def end_at(program, point, number, moment, temporary):
    words = [program, "tune", "readahead", "--live", point, "--for", "1h", "--propose"]
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "TMPDIR": str(temporary)})
    time.sleep(moment)
    pids = [process.pid, *processes.below(process.pid)]
    process.send_signal(number)
    process.wait()
    deadline = time.monotonic() + GRACE_S
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    running = [pid for pid in pids if alive(pid)]
    mine = tuple(f"flashsift-{pid}-" for pid in pids)
    left = [name for name in os.listdir(stage.TRACING) if name.startswith(mine)]
    found = {"signal": signal.Signals(number).name, "after_s": moment, "processes": len(pids),
             "recorders_left": len(running), "instances_left": len(left), "folders_left": len(os.listdir(temporary))}
    for pid in running:
        os.kill(pid, signal.SIGINT)
    while any(map(alive, running)):
        time.sleep(0.02)
    for folder in temporary.iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    return found


def main():
    args = stage.arguments("ends", __doc__, HERE / "ends.json").parse_args()
    testbed.begin()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, \
            testbed.file_system(Path(folder) / "image", 128 << 20, stage.MOUNT / f"ends-{os.getpid()}") as volume:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        found = [end_at(args.flashsift, volume.point, number, moment, temporary)
                 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL) for moment in MOMENTS]
        # The next watch removes the instances of killed ones.
        stage.Live.watch(args.flashsift, volume.point).end()
        left = [name for name in os.listdir(stage.TRACING) if name.startswith("flashsift-")
                and not Path(f"/proc/{name.split('-')[1]}").exists()]
    write_json(args.o, {"ends": found, "left_after_the_next_watch": len(left)})
    for one in found:
        print(one)


if __name__ == "__main__":
    run(main)
