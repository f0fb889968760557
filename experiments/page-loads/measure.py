"""Chromium on a mount and on two ext4s, by turns: page loads, processor time, requests."""

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from datetime import date
from pathlib import Path
from statistics import median

from apps import testbed
from apps.testbed import call, join
from common.program import output, parser

HERE = Path(__file__).resolve().parent
LOADS = HERE.parent / "cachesifter-live/loads.py"
POINTS = Path("/mnt/flashsift-pages")
DEVICE_BYTES = 2 << 30
# The load, and what it is.
LOADED = {
    "chromium-days": "One person's browser with the profile of six sessions: three more sessions, on a large web",
    "chromium-people": "Four people's browsers with new profiles, which start often, on a small web",
}
WARM = ("chromium-days",)
FIRST_SEED = 700
TRACE = Path("/sys/kernel/tracing")
SENT = re.compile(r"fuse_request_send: .*\(FUSE_(\w+)\)")
TEXT = """# Page loads on a mount

{cpus} processors, {cpu}, Linux {kernel}, {version}, {day}.
By `experiments/page-loads/run.sh {arguments}`.

Chromium with profiles and caches on a fresh ext4, on the mount over one{options}, and on a second
ext4, by turns in an order that moves; each round has a seed of its own. The load average before was
{load:.1f}. Think time is cut to a 200th, so that one page follows the other, and every start of the
browser counts for its requests and its processor time.

*Median load*: the median time of a page load of a round. *All loads*: the sum of them. *Processor*:
the time of Chromium, of the script that drives it with its server, and of the daemon. *Requests*:
those of the kernel to the daemon for a page, counted in a run of its own.
"""
ROWS = """
## {what}

| of ext4's | the mount | the second ext4 | the mount, by round | the second ext4, by round |
|---|---:|---:|---|---|
{rows}

{figures}
"""
FIGURES = (
    "{rounds} rounds of about {pages} pages. ext4: {load_ms:.0f} ms the median load, {cpu_ms:.0f} ms of processor time "
    "a page. Requests: **{total:.0f}** a page; {kinds}."
)


@contextlib.contextmanager
def mounted(program, backing, point, options, group):
    """The mount, whose daemon is in the group."""
    point.mkdir()
    call(
        program,
        "mount",
        backing,
        point,
        *options,
        preexec_fn=lambda: join(group),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        call(program, "unmount", point)
        point.rmdir()


@contextlib.contextmanager
def requests(point):
    """Counts the requests of the mount there, by kind, until the end of the block."""
    instance = TRACE / f"instances/flashsift-pages-{os.getpid()}"
    device = os.stat(point).st_dev
    event, counts = instance / "events/fuse/fuse_request_send", Counter()
    instance.mkdir()
    try:
        (instance / "buffer_size_kb").write_text("65536")
        (event / "filter").write_text(f"connection == {os.major(device) << 20 | os.minor(device)}")
        (event / "enable").write_text("1")
        yield counts
        (event / "enable").write_text("0")
        if any(int(re.search(r"overrun: (\d+)", path.read_text())[1]) for path in instance.glob("per_cpu/*/stats")):
            raise RuntimeError("the buffer of tracefs was too small")
        with open(instance / "trace") as lines:
            counts.update(found[1] for found in map(SENT.search, lines) if found)
    finally:
        instance.rmdir()


@contextlib.contextmanager
def ending(process):
    """Ends the process, and with it the browser."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def begun(load, directory, seed, group):
    return ending(
        subprocess.Popen(
            [sys.executable, "-B", LOADS, load, directory, str(seed), "1"],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: join(group),
        )
    )


def run(args, load, arm, seed, count=False):
    """One run on a fresh file system: the times of its page loads and its processor time, in ms."""
    with contextlib.ExitStack() as undo:
        group, seconds = undo.enter_context(testbed.counted_group())
        volume = undo.enter_context(testbed.file_system(args.image, DEVICE_BYTES, POINTS / "ext4"))
        at = files = volume.point / "files"
        files.mkdir()
        if load in WARM:
            process = undo.enter_context(begun(load, files, seed, group))
            if process.stdout.readline() != "warm\n":
                raise RuntimeError(process.communicate()[1].strip()[-1500:])
            volume.sync()
        began_s = seconds()
        if arm == "mount":
            at = POINTS / "mount"
            undo.enter_context(mounted(args.flashsift, files, at, args.options, group))
        counted = undo.enter_context(requests(at)) if count else None
        # Ends before the mount.
        process = undo.enter_context(ending(process) if load in WARM else begun(load, at, seed, group))
        out, err = process.communicate(f"{at}\n")
        if process.returncode:
            raise RuntimeError(err.strip()[-1500:])
        steps = json.loads(out.splitlines()[-1])["steps"]
        row = {"median": median(steps), "sum": sum(steps), "cpu": 1000 * (seconds() - began_s), "pages": len(steps)}
        undo.close()
        return {**row, "requests": counted}


def cpu():
    return re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]


def measured(args, load):
    """The rows of a load."""
    arms, rounds = ["ext4", "mount", "again"], []
    for number in range(args.rounds):
        turn = number % len(arms)
        rounds.append({arm: run(args, load, arm, FIRST_SEED + number) for arm in arms[turn:] + arms[:turn]})
        print(
            load,
            number + 1,
            {arm: {key: round(row[key], 1) for key in ("median", "sum", "cpu")} for arm, row in rounds[-1].items()},
            file=sys.stderr,
        )
    counted = run(args, load, "mount", FIRST_SEED, count=True)

    def row(name, key):
        ratios = {arm: [row[arm][key] / row["ext4"][key] for row in rounds] for arm in arms[1:]}
        return (
            f"| {name} | **{median(ratios['mount']):.3f}** | {median(ratios['again']):.3f} | "
            + " | ".join(" ".join(f"{ratio:.2f}" for ratio in ratios[arm]) for arm in arms[1:])
            + " |"
        )

    kinds = [(kind, number / counted["pages"]) for kind, number in counted["requests"].most_common()]
    figures = FIGURES.format(
        rounds=args.rounds,
        pages=counted["pages"],
        load_ms=median(row["ext4"]["median"] for row in rounds),
        cpu_ms=median(row["ext4"]["cpu"] / row["ext4"]["pages"] for row in rounds),
        total=sum(number for _, number in kinds),
        kinds=", ".join(f"{kind} {number:.0f}" for kind, number in kinds if number >= 1),
    )
    return ROWS.format(
        what=LOADED[load],
        rows="\n".join([row("median load", "median"), row("all loads", "sum"), row("processor", "cpu")]),
        figures=textwrap.fill(figures, 100),
    )


def main():
    made = parser(__doc__)
    made.add_argument("--load", choices=LOADED, action="append", help="this load alone (default: all)")
    made.add_argument("rounds", type=int, nargs="?", default=9)
    made.add_argument("options", nargs=argparse.REMAINDER)
    args = made.parse_args()
    testbed.begin()
    args.image = Path(f"target/page-loads-{os.getpid()}.img")
    text = TEXT.format(
        cpus=os.cpu_count(),
        cpu=cpu(),
        kernel=platform.release().split("-")[0],
        day=date.today(),
        version=output(args.flashsift, "--version").strip(),
        arguments=" ".join([*(f"--load {load}" for load in args.load or ()), str(args.rounds)]),
        load=os.getloadavg()[0],
        options=f" with `{' '.join(args.options)}`" if args.options else "",
    )
    text += "".join(measured(args, load) for load in args.load or LOADED)
    if args.options:
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
