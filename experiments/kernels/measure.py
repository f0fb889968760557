"""Boot guests with Debian's kernels, and apply the loads of inside.py to their flash card.

Leaves measured.json, the counts of the kernels, and the recordings KERNEL-FILE_SYSTEM-LOAD.parquet.
Needs qemu and what `make setup` unpacks; no privileges.
"""

import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from apps import testbed
from common import program as programs
from common.rows import write_json

HERE = Path(__file__).resolve().parent
KERNELS = ["6.1", "6.12"]
FILE_SYSTEMS = ["ext4", "f2fs"]
LOADS = ["database", "launches", "states"]
GUEST_SECONDS = 420
CARD_BYTES = 512 << 20
# Blocks have 4 KiB, as those of larger cards.
MAKE = {"ext4": ("-b", "4096", *testbed.FILLED), "f2fs": ()}


def guest(kernel: str, file_system: str, out: Path, program: Path, *loads: str, card: Path | None = None) -> None:
    """Runs loads in a guest, on a copy of a card if one is given."""

    def prepare() -> None:
        if card:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            testbed.call("cp", "--sparse=always", card, out)

    command = shlex.join(map(str, ["python3", "-B", HERE / "inside.py", program, *loads]))
    testbed.guest(testbed.kernel(kernel), file_system, out, command, GUEST_SECONDS, prepare=prepare)


def main() -> None:
    parser = programs.parser(__doc__, "measure.py")
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"), help="for cards (/var/tmp)")
    parser.add_argument("--file-system", action="append", choices=FILE_SYSTEMS, help="this one alone")
    parser.add_argument("loads", nargs="*", default=[*LOADS, "full"], help=f"of {', '.join(LOADS)}, full")
    args = parser.parse_args()
    testbed.end_on_signals()
    program = args.flashsift.resolve()
    file = HERE / "measured.json"
    found = json.loads(file.read_text()) if file.exists() else {}

    def take(kernel: str, file_system: str, out: Path) -> None:
        counts = json.loads((out / "counts.json").read_text())
        known = found.setdefault(f"{kernel} {file_system}", {"loads": {}})
        found[f"{kernel} {file_system}"] = {**counts, "loads": {**known["loads"], **counts["loads"]}}
        write_json(file, found)
        for trace in out.glob("*.parquet"):
            # Launches are not recorded before Linux 6.12, which does not report page faults.
            if (kernel, trace.stem) != ("6.1", "launches"):
                shutil.copy(trace, HERE / f"{kernel}-{file_system}-{trace.name}")

    with tempfile.TemporaryDirectory(prefix="flashsift-kernels-", dir=args.scratch) as scratch:
        for file_system in args.file_system or FILE_SYSTEMS:
            prepared = Path(scratch) / file_system
            prepared.mkdir()
            # The same card for both kernels.
            card = testbed.image(prepared / "card", CARD_BYTES, file_system, *MAKE[file_system])
            guest("6.12", file_system, prepared, program)
            for kernel in KERNELS:
                groups = [[load for load in LOADS if load in args.loads]]
                groups += [["full"]] if file_system == "f2fs" and "full" in args.loads else []
                for loads in filter(None, groups):
                    print(f"Linux {kernel}, {file_system}: {', '.join(loads)}", file=sys.stderr)
                    out = Path(scratch) / "out"
                    guest(kernel, file_system, out, program, *loads, card=card)
                    take(kernel, file_system, out)
                    shutil.rmtree(out)


if __name__ == "__main__":
    programs.run(main, "measure.py")
