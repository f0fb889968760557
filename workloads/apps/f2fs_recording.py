"""Record workloads on F2FS, for machines whose own kernel lacks it.

  f2fs-record -o TRACE -- WORKLOAD OPTION...   records one workload
  f2fs-record --all --out DIR                  makes the recordings of testdata/f2fs

Each runs in an emulated guest with Debian's kernel and an SD card of 256 MiB
(crates/cli/tests/guest/boot), some ten times slower than here, so give it a
few seconds of --minutes. `make setup` unpacks the kernel into target/guest;
FLASHSIFT_GUEST names another folder. FLASHSIFT is the program (default
target/release/flashsift). The guest sees this machine's files, and its changes
are discarded. It is ended after FLASHSIFT_GUEST_SECONDS (default 1200).

example: workloads/f2fs-record -o messenger.parquet -- workloads/messenger --seed 7 --minutes 0.2
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import testbed
from .recording import HERE, losses, summary_in, write_card
from .run import WorkloadError

DEFAULT_SECONDS = 1200
# qemu takes SD cards whose size is a power of two.
CARD_MIB = 256
MEMORY_MIB = 768


@dataclass(frozen=True)
class Plan:
    """How one recording is made."""

    minutes: float
    options: tuple = ()
    card_mib: int = CARD_MIB
    memory_mib: int = MEMORY_MIB


# Workloads of days: the person comes back once, and pauses are cut to nearly nothing.
ONE_RETURN = ("--returns", "0", "24", "--keep-pause", "0.05")

# Those that end in the guest and fit on its card. Not here: the browsers. Chromium takes 3 minutes
# there to print an empty page, and `browser --minutes 0.2` did not end within 25.
PLANS = {
    "messenger": Plan(0.2),
    "feed": Plan(0.2),
    "map": Plan(0.2),
    # Its packs fill a smaller card.
    "game": Plan(0.2, card_mib=1024),
    "video": Plan(0.2),
    "photos": Plan(0.1, (*ONE_RETURN, "--albums", "1", "--negatives", "3"), card_mib=1024),
    "desktop": Plan(0.1, (*ONE_RETURN, "--mails", "30"), card_mib=1024),
    "offline": Plan(0.1, (*ONE_RETURN, "--episodes", "2"), card_mib=1024),
    # Copies of whole programs, which are to stay in the page cache.
    "launch": Plan(0.1, ONE_RETURN, card_mib=2048, memory_mib=4096),
}


def main():
    options = _options()
    try:
        missing = [program for program in ("qemu-system-x86_64", "mkfs.f2fs") if not testbed.which(program)]
        if missing:
            packages = "qemu-system-x86 f2fs-tools"
            raise WorkloadError(f"not found: {', '.join(missing)} (on Debian: apt-get install {packages})")
        if options.all:
            _record_all(options)
        else:
            workload, *rest = options.command
            _record(Path(workload).absolute(), rest, options.o, options.card, options.memory)
    except (RuntimeError, OSError) as error:
        sys.exit(f"f2fs-record: {error}")


def _options():
    parser = argparse.ArgumentParser(
        prog="f2fs-record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, metavar="TRACE", help="where the trace goes")
    parser.add_argument("--card", type=int, default=CARD_MIB, metavar="MIB",
                        help=f"size of the SD card, a power of two (default {CARD_MIB})")
    parser.add_argument("--memory", type=int, default=MEMORY_MIB, metavar="MIB",
                        help=f"memory of the guest (default {MEMORY_MIB})")
    parser.add_argument("--all", action="store_true", help="make all recordings, with their cards")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of --all: folder of the traces and cards")
    parser.add_argument("--only", nargs="+", choices=PLANS, default=list(PLANS), metavar="NAME",
                        help=f"of --all: some of {' '.join(PLANS)}")
    # argparse would take options of the workload for its own.
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:at])
    options.command = given[at + 1:]
    if options.all == bool(options.command) or options.all != bool(options.out) or options.all == bool(options.o):
        parser.error("give either -o TRACE -- WORKLOAD OPTION..., or --all --out DIR")
    return options


def _record_all(options):
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.only:
        plan = PLANS[name]
        trace = options.out / f"{name}.parquet"
        arguments = ["--seed", "7", "--minutes", f"{plan.minutes:g}", *plan.options]
        began = time.strftime("%Y-%m-%d", time.gmtime())
        try:
            about = _record(HERE / name, arguments, trace, plan.card_mib, plan.memory_mib)
        except WorkloadError as error:
            print(error, file=sys.stderr, flush=True)
            failed.append(name)
            continue
        sizes = f" --card {plan.card_mib}" if plan.card_mib != CARD_MIB else ""
        sizes += f" --memory {plan.memory_mib}" if plan.memory_mib != MEMORY_MIB else ""
        command = f"workloads/f2fs-record -o {name}.parquet{sizes} -- workloads/{name} {' '.join(arguments)}"
        card = {"trace": trace.name, "bytes": trace.stat().st_size, "recorded": began, **about, "command": command}
        write_card(trace, card)
    if failed:
        raise WorkloadError(f"not recorded: {', '.join(failed)}")


def _record(workload, arguments, trace, card_mib, memory_mib):
    """Record a workload in a guest. Return what its card says about the run."""
    flashsift = Path(os.environ.get("FLASHSIFT", testbed.PROJECT / "target/release/flashsift")).resolve()
    for needed, hint in ((flashsift, "make build"), (testbed.GUESTS / "initrd", "make setup"),
                         (workload, "give its path")):
        if not needed.exists():
            raise WorkloadError(f"there is no {needed}: {hint}")
    with tempfile.TemporaryDirectory(prefix="f2fs-record-") as out:
        out = Path(out)
        # The guest's Debian Python is the one of this machine: others may need an environment.
        record = shlex.join(map(str, [
            flashsift, "record", "-o", "/out/trace.parquet", "--path", "/flash", "--",
            "/usr/bin/python3", "-B", workload, "--dir", "/flash/app", *arguments,
        ]))
        command = f"busybox ifconfig lo 127.0.0.1 up\nuname -r > /out/kernel\n{record} > /out/summary 2> /out/log\n"
        try:
            testbed.guest(testbed.GUESTS, "f2fs", out, command, DEFAULT_SECONDS, memory_mib,
                          lambda: testbed.image(out / "card", card_mib << 20, "f2fs"))
        except RuntimeError as error:
            raise WorkloadError(f"{workload.name} was not recorded: {error}") from error
        finally:
            said = [out / name for name in ("summary", "log")]
            summary, log = (path.read_text(errors="replace") if path.exists() else "" for path in said)
            sys.stderr.write(log)
            sys.stdout.write(summary)
            sys.stdout.flush()
        shutil.copy(out / "trace.parquet", trace)
        log = log.replace("/out/trace.parquet", trace.name).splitlines()
        mkfs = testbed.call("mkfs.f2fs", "-V").strip()
        return {
            "kernel": f"Linux {(out / 'kernel').read_text().strip()} x86_64, emulated, 1 CPU",
            "file_system": f"f2fs on an emulated SD card of {card_mib} MiB, by {mkfs} without options",
            "flashsift": testbed.call(flashsift, "--version").strip(),
            "mode": "pages",
            **losses(log),
            "workload": summary_in(summary, f"{workload.name} was not recorded"),
        }
