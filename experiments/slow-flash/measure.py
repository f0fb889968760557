"""Operations beside a program that keeps slow flash busy, on a mount and on ext4."""

import argparse
import contextlib
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path

from apps import testbed
from apps.testbed import call
from common.pages import markdown
from common.program import output, parser

HERE = Path(__file__).resolve().parent
POINTS = Path("/mnt/flashsift-slow")
BLKIO = Path("/sys/fs/cgroup/blkio")
DEVICE_BYTES = 2 << 30
# A cheap card.
BYTES_PER_S, WRITES_PER_S = 4_000_000, 60
BUDGET = "16MiB"
OPERATIONS = ("create", "write", "close", "rename", "stat", "read", "list")
TEXT = """# A program beside one that keeps slow flash busy

{cpus} processors, Linux {kernel}, {version}, {day}. By `experiments/slow-flash/run.sh`.

Two ext4s on devices that write at most {rate:.0f} MB and {writes} requests a second, one of them below a
mount with `{options}`, at the same time. On each, a build makes 20 files of 2 MiB a
second and deletes them after 12 s, for {seconds} s. Beside it, another program makes files of 8 kB
under a temporary name, 20 a second, and renames, lists and reads them. Times in ms.

{table}
"""


@contextlib.contextmanager
def slow(volume):
    """A volume's device writes slowly until the end of the block."""
    limits = {"write_bps": BYTES_PER_S, "write_iops": WRITES_PER_S}
    number = (volume.block / "dev").read_text().strip()
    files = {BLKIO / f"blkio.throttle.{limit}_device": value for limit, value in limits.items()}
    if not all(file.exists() for file in files):
        raise RuntimeError(f"there is no blkio controller of cgroup v1 in {BLKIO}")
    with contextlib.ExitStack() as undo:
        for file, value in files.items():
            undo.callback(file.write_text, f"{number} 0")
            file.write_text(f"{number} {value}")
        yield


@contextlib.contextmanager
def flashsift(program, backing, point, options):
    point.mkdir()
    call(program, "mount", backing, point, *options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        call(program, "unmount", point)
        point.rmdir()


def end_at_once():
    """Signals end a process of the pool, which has nothing to undo."""
    for number in testbed.ENDING:
        signal.signal(number, signal.SIG_DFL)


def paced(per_s, seconds):
    """Numbers, so many a second, as far as its user keeps up."""
    begun = time.monotonic()
    for number in range(per_s * seconds):
        if time.monotonic() - begun > seconds:
            return
        time.sleep(max(0, begun + number / per_s - time.monotonic()))
        yield number


def build(folder, seconds):
    """Returns how many objects it made."""
    folder.mkdir()
    live, made = deque(), 0
    for made in paced(20, seconds):
        (folder / str(made)).write_bytes(made.to_bytes(8, "little") * (1 << 18))
        live.append((time.monotonic(), made))
        while live and time.monotonic() - live[0][0] > 12:
            (folder / str(live.popleft()[1])).unlink()
    return made + 1


def person(folder, seconds):
    """Returns the times of each operation, ms."""
    folder.mkdir()
    times, content = defaultdict(list), random.Random(1)

    def timed(name, act):
        begun = time.monotonic()
        done = act()
        times[name].append(1000 * (time.monotonic() - begun))
        return done

    for number in paced(20, seconds):
        path, temporary = folder / str(number), folder / f"{number}.tmp"
        file = timed("create", lambda: os.open(temporary, os.O_CREAT | os.O_WRONLY))
        timed("write", lambda: os.write(file, content.randbytes(8000)))
        timed("close", lambda: os.close(file))
        timed("rename", lambda: temporary.rename(path))
        timed("stat", path.stat)
        timed("read", path.read_bytes)
        timed("list", lambda: os.listdir(folder))
    return dict(times)


def measured(args):
    """The times of both arms, and the objects of their builds."""
    with contextlib.ExitStack() as undo:
        POINTS.mkdir()
        undo.callback(POINTS.rmdir)
        places = {}
        for arm in ("ext4", "mount"):
            image = Path(f"target/slow-flash-{os.getpid()}-{arm}.img")
            volume = undo.enter_context(testbed.file_system(image, DEVICE_BYTES, POINTS / f"{arm}-volume"))
            places[arm] = volume.point / "files"
            places[arm].mkdir()
            volume.sync()
            undo.enter_context(slow(volume))
        undo.enter_context(flashsift(args.flashsift, places["mount"], POINTS / "mount", args.options))
        places["mount"] = POINTS / "mount"
        with ProcessPoolExecutor(4, initializer=end_at_once) as pool:
            jobs = {
                (arm, job): pool.submit(job, place / job.__name__, args.seconds)
                for arm, place in places.items()
                for job in (build, person)
            }
            return {arm: [jobs[arm, job].result() for job in (person, build)] for arm in places}


def row(operation, times):
    def figures(of):
        of = sorted(of)
        return [f"{part:.2f}" for part in (of[len(of) // 2], of[len(of) * 99 // 100], of[-1])]

    return [operation, *(figure for arm in times for figure in figures(times[arm][0][operation]))]


def main():
    made = parser(__doc__)
    made.add_argument("--seconds", type=int, default=30)
    made.add_argument("options", nargs=argparse.REMAINDER)
    args = made.parse_args()
    own, args.options = bool(args.options), args.options or ["--budget", BUDGET]
    testbed.begin()
    times = measured(args)
    head = "|".join(["", *(f"{arm}: {what}" for arm in times for what in ("median", "99 %", "longest"))])
    table = markdown(head, [row(operation, times) for operation in OPERATIONS])
    objects = ", ".join(f"{made:,} on {arm}" for arm, (_, made) in times.items())
    text = TEXT.format(
        cpus=os.cpu_count(),
        kernel=platform.release().split("-")[0],
        version=output(args.flashsift, "--version").strip(),
        day=date.today(),
        rate=BYTES_PER_S / 1e6,
        writes=WRITES_PER_S,
        options=" ".join(args.options),
        seconds=args.seconds,
        table=f"{table}\nObjects that the build made: {objects}.",
    )
    if own:
        print(text)
    else:
        (HERE / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except RuntimeError as error:
        sys.exit(f"run.sh: {error}")
