"""Compare the bytes that settings write on replayed file systems with those that are predicted."""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apps import testbed
from common import program as programs
from common.pages import MIB, PAGE_BYTES, fill, markdown
from common.program import done, output, records
from common.rows import json_lines, write_json

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MEASURED = HERE / "measured"
RECORDINGS = ["messenger", "game", "feed"]
# Of the script `small`, recorded for this page.
SMALL = ["config", "git", "databases", "install"]
SETTINGS = [
    "ext4", "ext4:commit=60", "ext4:commit=300", "ext4:dioread_lock", "ext4:fast_commit", "xfs", "xfs:sectors=4k",
    "btrfs",
]  # fmt: skip
# The first one is the base, so all of them take two passes.
EXPIRE = ["ext4", "ext4:expire=5m", "ext4:commit=60:expire=5m", "ext4:commit=300:expire=5m", "xfs:expire=5m"]
EXPIRE_FILE = Path("/proc/sys/vm/dirty_expire_centisecs")
IMAGE_BYTES = 4 << 30


def main() -> None:
    parser = programs.parser(__doc__)
    parser.add_argument("--measure", nargs="*")
    parser.add_argument("--expire", nargs="*")
    parser.add_argument("--witness", nargs="?", const=3.0, type=float)
    parser.add_argument("--cuts", nargs="?", const=60, type=int)
    parser.add_argument("--record", nargs="?", const=7.0, type=float)
    arguments = parser.parse_args()
    program = arguments.flashsift
    MEASURED.mkdir(exist_ok=True)
    if arguments.record is not None:
        record(program, arguments.record)
    if arguments.measure is not None:
        replay(program, arguments.measure or RECORDINGS, SETTINGS, "")
    if arguments.expire is not None:
        expire(program, arguments.expire or RECORDINGS)
    if arguments.witness is not None:
        witness(program, arguments.witness)
    if arguments.cuts is not None:
        cut(arguments.cuts)
    write(program)


def trace_of(name: str) -> Path:
    own = HERE / f"{name}.parquet"
    return own if own.exists() else ROOT / f"testdata/{name}.parquet"


def replay(program: Path, names: list[str], settings: list[str], suffix: str) -> None:
    """All recordings at once."""
    running = []
    for name in names:
        words = [program, "prove", trace_of(name), "--json", "--setting", ",".join(settings)]
        with open(MEASURED / f"{name}{suffix}.jsonl", "w") as output:
            running.append(subprocess.Popen([str(word) for word in words], stdout=output))
    # Each is waited for, also after one that failed.
    if sum(abs(one.wait()) for one in running):
        raise SystemExit("a replay failed")
    write_json(MEASURED / "machine.json", versions())


def expire(program: Path, names: list[str]) -> None:
    """One recording takes two passes of its own. Several are replayed at once, with the ones of
    `--measure` as their bases."""
    if len(names) == 1:
        return replay(program, names, EXPIRE, "-expire")
    word = ":expire=5m"
    settings = [setting.removesuffix(word) for setting in EXPIRE if word in setting]
    old = EXPIRE_FILE.read_text(encoding="utf-8").strip()
    # It restores the value when its input ends, also if this process is killed.
    restore = ["sh", "-c", f"trap '' INT TERM HUP; cat >/dev/null; echo {old} >{EXPIRE_FILE}"]
    with subprocess.Popen(restore, stdin=subprocess.PIPE):
        EXPIRE_FILE.write_text("30000")
        replay(program, names, settings, "-expire")
    for name in names:
        path = MEASURED / f"{name}-expire.jsonl"
        arms, base = json_lines(path), json_lines(MEASURED / f"{name}.jsonl")[0]
        for arm in arms:
            ratio = arm["written_bytes"] / base["written_bytes"]
            arm.update(setting=arm["setting"] + word, ratio=ratio, half_width=None)
        path.write_text("".join(f"{json.dumps(arm)}\n" for arm in [base, *arms]))


def versions() -> dict:
    def first(*command: str) -> str:
        said = done(*command)
        return (said.stdout + said.stderr).strip().splitlines()[0]

    return {
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "cpus": os.cpu_count(),
        "tools": [first("mke2fs", "-V"), first("mkfs.xfs", "-V"), first("mkfs.btrfs", "--version")],
    }


def recorded(program: Path, name: str, minutes: float, scratch: Path) -> tuple[Path, int]:
    """Records a workload on ext4, and counts the bytes at its device until it is unmounted."""
    folder, trace = scratch / name, scratch / f"{name}.parquet"
    with testbed.device(scratch / f"{name}.image", IMAGE_BYTES, make=()) as device:
        with testbed.mounted(device, folder, options=testbed.UNFILLED) as volume:
            volume.sync()
            before = volume.bytes_written()
            workload = [HERE / "small", name] if name in (*SMALL, "appends") else [ROOT / "workloads" / name]
            output(
                program, "record", "-o", trace, "--path", folder, "--", *workload, "--dir", folder / "files",
                "--seed", 7, "--minutes", minutes,
            )  # fmt: skip
        # It fails while a copy of the mount is in another namespace.
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        return trace, volume.bytes_written() - before


def record(program: Path, minutes: float) -> None:
    """Records the small workloads."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, ThreadPoolExecutor() as pool:
        for trace, _ in pool.map(lambda name: recorded(program, name, minutes, Path(scratch)), SMALL):
            shutil.copy(trace, HERE)


def witness(program: Path, minutes: float) -> None:
    """Records workloads, and replays the recordings."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, ThreadPoolExecutor() as pool:

        def replayed(name: str) -> None:
            trace, live = recorded(program, name, minutes, Path(scratch))
            found = records(program, "prove", trace, "--json", "--window", "10s", "--setting", "ext4")
            arms = [arm["written_bytes"] for arm in found]
            row = {"workload": name, "minutes": minutes, "live_bytes": live, "arms": arms}
            (MEASURED / f"witness-{name}.json").write_text(json.dumps(row) + "\n")

        list(pool.map(replayed, ["messenger", "appends"]))


def cut(cuts: int) -> None:
    """Cuts the power of each setting so often, on the disk of the tests of power cuts."""
    test = "power_cuts::settings::files_after_power_cuts_by_setting"
    words = ["cargo", "test", "--locked", "-p", "flashsift", "--test", "integration", test, "--", "--ignored", "--nocapture"]
    said = output(*words, env={**os.environ, "FLASHSIFT_CUTS": str(cuts)}, cwd=ROOT)
    found = [line.removeprefix("found ") for line in said.splitlines() if line.startswith("found ")]
    (MEASURED / "cuts.jsonl").write_text("".join(f"{line}\n" for line in found))


def after_cuts() -> str:
    rows = [
        [
            one["setting"], str(one["cuts"]), str(one["not_mounted"]),
            f"{one['synced_lost']} in {one['cuts_with_synced_lost']}", f"{one['wrong']} in {one['cuts_with_wrong']}",
            f"{one['replaced_lost']} in {one['cuts_with_replaced_lost']}", f"{one['created_lost'] / one['cuts']:.1f}",
        ]
        for one in json_lines(MEASURED / "cuts.jsonl")
    ]  # fmt: skip
    head = [
        "setting", "cuts", "not mountable", "synced files lost, in cuts", "unsynced files with wrong content, in cuts",
        "replaced files empty or lost, in cuts", "new unsynced files lost a cut",
    ]  # fmt: skip
    return markdown(head, rows)


def predicted_bytes(program: Path, trace: Path, setting: str) -> int | None:
    """Bytes by the model of the file system; nothing for settings that it does not know."""
    system, *words = setting.split(":")
    options = dict(word.partition("=")[::2] for word in words)
    if options.keys() - {"commit", "expire", "sectors"}:
        return None
    metadata = {"xfs": "xfs" if "sectors" in options else "xfs:sector=512"}.get(system, system)
    if "commit" in options:
        metadata += f":commit={options['commit']}s"
    expire = options.get("expire", "30s")
    (found,) = records(
        program, "compare", trace, "--policy", "lru", "--memory", "16GiB", "--writeback", f"sync,expire:{expire}",
        "--metadata", metadata, "--drain", "--json", "--quiet",
    )  # fmt: skip
    return PAGE_BYTES * sum(found[key] for key in ("device_writes", "journal_writes", "metadata_writes"))


def ratios(program: Path, names: list[str]) -> str:
    rows = []
    for name in names:
        arms = json_lines(MEASURED / f"{name}.jsonl")
        trace = trace_of(name.removesuffix("-expire"))
        base = predicted_bytes(program, trace, "ext4") if arms else None
        for arm in arms:
            predicted = predicted_bytes(program, trace, arm["setting"])
            ratio, half = arm["ratio"] or 1.0, arm["half_width"]
            rows.append([
                name.removesuffix("-expire"), f"`{arm['setting']}`" + (", again" if arm["again"] else ""),
                f"{arm['written_bytes'] / MIB:.1f}", str(arm["writes"]), str(arm["flushes"]),
                f"{ratio:.3f}", f"{half:.3f}" if half else "",
                f"{predicted / base:.3f}" if predicted else "",
                f"{predicted / base - ratio:+.3f}" if predicted else "",
                f"{predicted / arm['written_bytes']:.3f}" if predicted else "",
                f"{arm['late_s']:.2f}",
            ])  # fmt: skip
    head = [
        "recording", "setting", "MiB", "writes", "flushes", "ratio", "±", "predicted", "difference",
        "predicted bytes / measured", "latest operation, s",
    ]  # fmt: skip
    return markdown(head, rows)


def witnesses() -> str:
    rows = []
    for path in sorted(MEASURED.glob("witness-*.json")):
        row = json.loads(path.read_text())
        live = row["live_bytes"]
        rows.append([
            row["workload"], f"{row['minutes']:g}", f"{live / MIB:.2f}",
            *(f"{arm / MIB:.2f}" for arm in row["arms"]), *(f"{arm / live:.3f}" for arm in row["arms"]),
        ])  # fmt: skip
    head = ["workload", "minutes", "live, MiB", "replay, MiB", "again, MiB", "replay / live", "again / live"]
    return markdown(head, rows)


def write(program: Path) -> None:
    page = HERE / "RESULTS.md"
    machine = json.loads((MEASURED / "machine.json").read_text(encoding="utf-8"))
    tables = {
        "machine": f"{machine['kernel']}, {machine['cpus']} CPUs.\n{'; '.join(machine['tools'])}.\n",
        "ratios": ratios(program, [*RECORDINGS, *SMALL, "appends"]),
        "expire": ratios(program, [f"{name}-expire" for name in [*RECORDINGS, "appends"]]),
        "witness": witnesses(),
        "cuts": after_cuts(),
    }
    page.write_text(fill(page.read_text(), {name: lambda text=text: text for name, text in tables.items()}))


if __name__ == "__main__":
    testbed.end_on_signals()
    programs.run(main)
