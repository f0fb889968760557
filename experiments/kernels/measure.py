"""Boot guests with Debian's kernels, and apply the loads of inside.py to their flash card.

Leaves measured.json, the counts of the kernels, and the recordings KERNEL-FILE_SYSTEM-LOAD.parquet.
Needs qemu and what `make setup` unpacks; no privileges.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BOOT = ROOT / "crates/cli/tests/guest/boot"
# Where in target/guest the kernels are.
KERNELS = {"6.1": "", "6.12": "mount"}
FILE_SYSTEMS = ["ext4", "f2fs"]
LOADS = ["database", "launches", "states"]
GUEST_SECONDS = 420
TIMED_OUT = 124
CARD_BYTES = 512 << 20
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "f2fs": ["mkfs.f2fs", "-q"],
}


def guest(kernel: str, file_system: str, out: Path, program: Path, *loads: str) -> bool:
    """Whether the guest ended in time."""
    inside = ["python3", "-B", HERE / "inside.py", program, *loads]
    (out / "command").write_text(shlex.join(map(str, inside)))
    command = [BOOT, ROOT / "target/guest" / KERNELS[kernel], file_system, out]
    environment = {"FLASHSIFT_GUEST_SECONDS": str(GUEST_SECONDS), **os.environ}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode == TIMED_OUT:
        return False
    status = out / "status"
    if not status.exists() or status.read_text().strip() != "0":
        raise RuntimeError(f"{kernel} {file_system} {loads}: {done.stdout}{done.stderr}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="measure.py", description=__doc__)
    parser.add_argument("--flashsift", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"), help="for cards (/var/tmp)")
    parser.add_argument("--file-system", action="append", choices=FILE_SYSTEMS, help="this one alone")
    parser.add_argument("loads", nargs="*", default=[*LOADS, "full"], help=f"of {', '.join(LOADS)}, full")
    args = parser.parse_args()
    program = args.flashsift.resolve()
    file = HERE / "measured.json"
    found = json.loads(file.read_text()) if file.exists() else {}

    def take(kernel: str, file_system: str, out: Path) -> None:
        counts = json.loads((out / "counts.json").read_text())
        known = found.setdefault(f"{kernel} {file_system}", {"loads": {}})
        found[f"{kernel} {file_system}"] = {**counts, "loads": {**known["loads"], **counts["loads"]}}
        file.write_text(json.dumps(found, indent=1) + "\n")
        for trace in out.glob("*.parquet"):
            # Launches are not recorded before Linux 6.12, which does not report page faults.
            if (kernel, trace.stem) != ("6.1", "launches"):
                shutil.copy(trace, HERE / f"{kernel}-{file_system}-{trace.name}")

    with tempfile.TemporaryDirectory(prefix="flashsift-kernels-", dir=args.scratch) as scratch:
        for file_system in args.file_system or FILE_SYSTEMS:
            prepared = Path(scratch) / file_system
            prepared.mkdir()
            # The same card for both kernels. Its blocks have 4 KiB, as those of larger cards.
            card = prepared / "card"
            with open(card, "wb") as new:
                new.truncate(CARD_BYTES)
            subprocess.run([*MAKE[file_system], card], check=True)
            guest("6.12", file_system, prepared, program)
            for kernel in KERNELS:
                groups = [[load for load in LOADS if load in args.loads]]
                groups += [["full"]] if file_system == "f2fs" and "full" in args.loads else []
                for loads in filter(None, groups):
                    print(f"Linux {kernel}, {file_system}: {', '.join(loads)}", file=sys.stderr)
                    out = Path(scratch) / "out"
                    # qemu sometimes loses a wake-up, and the guest sleeps for good.
                    for _ in range(3):
                        shutil.rmtree(out, ignore_errors=True)
                        out.mkdir()
                        subprocess.run(["cp", "--sparse=always", card, out], check=True)
                        if awake := guest(kernel, file_system, out, program, *loads):
                            break
                    if not awake:
                        raise RuntimeError(f"{kernel} {file_system} {loads}: the guest slept three times")
                    take(kernel, file_system, out)
                    shutil.rmtree(out)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"measure.py: {error}")
