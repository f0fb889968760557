"""Traces, and the cells of systems with non-volatile memory: trace, write-back, system, frames."""

import argparse
import csv
import hashlib
import io
import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "spatialclock"))
from cells import Simulator  # noqa: E402

PAGE_BYTES = 4096
# A trace of others, as in the experiment `spatialclock`: it is not in testdata/.
FOREIGN = "facebook"
SHORT = ["browser", "feed", "game", "map", "messenger", "video"]
# Recordings of testdata/days in which sqlite3 runs the statements of two Android apps.
STATEMENTS = [f"{app}-{journal}" for app in ("facebook", "calendar") for journal in ("delete", "truncate", "wal")]
MARKED = re.compile(r"(<!-- (?:table|text): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Trace:
    name: str
    own: bool  # recorded by this project
    split: str  # train, tune or test; empty for short traces, by which nothing is chosen
    sha256: str
    live_pages: int  # the most that exist at one time

    def frames(self, percent: int) -> int:
        """A share of the footprint."""
        return max(1, round(self.live_pages * percent / 100))


@dataclass(frozen=True)
class Cell:
    trace: str
    writeback: str  # with further options, separated by blanks
    system: str
    frames: int
    device: str
    accesses: int
    hits: int
    device_reads: int
    device_writes: int
    device_write_requests: int
    sync_writes: int
    flushes: int
    dirty_left: int
    nvm_reads: int
    nvm_writes: int
    nvm_left: int
    nvm_mean_line_writes: float
    nvm_hottest_line_writes: int
    storage_read_us: int
    storage_write_us: int
    memory: str  # time and energy by profile, as JSON

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def left(self) -> int:
        """Pages that storage lacks at the end."""
        return self.dirty_left + self.nvm_left

    @property
    def requests(self) -> int:
        return self.device_reads + self.device_writes

    @property
    def storage_read_s(self) -> float:
        return self.storage_read_us / 1e6

    @property
    def storage_write_s(self) -> float:
        return self.storage_write_us / 1e6

    def cost(self, profile: str, name: str) -> float:
        """A number of a profile of memory, in its unit."""
        return json.loads(self.memory)[profile][name]

    def nvm_s(self, profile: str) -> float:
        return self.cost(profile, "nvm_read_s") + self.cost(profile, "nvm_write_s")


Key = tuple[str, str, str, int, str]


class Runner:
    """Runs the cells that are not known, unless results are only checked."""

    def __init__(self, program: Path, device: str, profiles: list[str], known: Iterable[Cell], may_run: bool):
        self._program = program
        self._device = device
        self._name = device.removesuffix(".toml").split("/")[-1]
        self._profiles = profiles
        self._known = {key(cell): cell for cell in known}
        self._may_run = may_run
        self.used: dict[Key, Cell] = {}
        self.ran = 0

    def cells(self, path: Path | None, trace: Trace, writeback: str, systems: list[str], frames: list[int]) -> None:
        """Adds the cells to those in use. Without a path they must be known."""
        sizes = sorted(set(frames))
        wanted = [(trace.name, writeback, system, size, self._name) for system in systems for size in sizes]
        missing = [one for one in wanted if one not in self._known]
        if missing:
            if path is None or not self._may_run:
                raise RuntimeError(f"{trace.name}: cells are missing: run it with the trace, without --check")
            self._run(path, trace, writeback, list(dict.fromkeys(one[2] for one in missing)), sizes)
        self.used |= {one: self._known[one] for one in wanted}

    def still_holds(self, path: Path | None, trace: Trace) -> bool:
        """Whether the program gives the known counts, in a cell of each kind of system and mode."""
        if path is None:
            return True
        own = [cell for cell in self.used.values() if (cell.trace, cell.device) == (trace.name, self._name)]
        tried = {(cell.writeback, cell.system.split(":")[0]): cell for cell in own}
        for cell in tried.values():
            self._run(path, trace, cell.writeback, [cell.system], [cell.frames])
        return all(self._known[key(cell)] == cell for cell in tried.values())

    def _run(self, path: Path, trace: Trace, writeback: str, systems: list[str], sizes: list[int]) -> None:
        self.ran += 1
        if self._may_run:
            print(f"{trace.name}, {writeback}: {len(systems) * len(sizes)} cells", file=sys.stderr)
        args = ["--system", ",".join(systems), "--frames", ",".join(map(str, sizes)), "--writeback", *writeback.split()]
        args += ["--device", self._device, "--nvm", ",".join(self._profiles), "--json", "--quiet"]
        for line in output(self._program, "compare", path, *args).splitlines():
            row = {"nvm_mean_line_writes": 0, "nvm_hottest_line_writes": 0} | json.loads(line)
            # JSON names the parts of a write-back mode.
            row |= {"trace": trace.name, "writeback": writeback, "device": self._name}
            row |= {name: round(row[f"{name[:-3]}_s"] * 1e6) for name in ("storage_read_us", "storage_write_us")}
            row["nvm_mean_line_writes"] = round(float(row["nvm_mean_line_writes"]), 3)
            costs = {
                name: {of: float(f"{cost:.6g}") for of, cost in one.items()} for name, one in row["memory"].items()
            }
            row["memory"] = json.dumps(costs, separators=(",", ":"))
            cell = Cell(**{field.name: row[field.name] for field in fields(Cell)})
            self._known[key(cell)] = cell


def key(cell: Cell) -> Key:
    return cell.trace, cell.writeback, cell.system, cell.frames, cell.device


def output(program: Path, *args: str | Path) -> str:
    done = subprocess.run([program, *args], capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description=description)
    parser.add_argument("--flashsift", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--own", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help="run every cell, also those that are known")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a result is stale")
    parser.add_argument("folders", type=Path, nargs="*", metavar="TRACES_DIR", help=f"folders with {FOREIGN}")
    args = parser.parse_args()
    args.folders += [Path(folder) for folder in os.environ.get("FLASHSIFT_TRACES", "").split(":") if folder]
    for folder in args.folders:
        if not folder.is_dir():
            parser.error(f"{folder} is no folder")
    return args


def find(args: argparse.Namespace, known: list[Trace], names: list[str]) -> list[tuple[Path | None, Trace]]:
    """The traces of `names` with their peaks of live pages, which need a simulation.

    The foreign trace has no path where it is not found.
    """
    by_name = {trace.name: trace for trace in known}
    found = []
    for name in names:
        own = name != FOREIGN
        folders = [args.own, args.own / "days"] if own else args.folders
        paths = [path for folder in folders for path in folder.glob("*") if path.name.split(".")[0] == name]
        path = next((path for path in paths if not own or path.suffix == ".parquet"), None)
        earlier = by_name.get(name)
        if path is None:
            if own or earlier is None:
                raise RuntimeError(f"{name} is not found: name a folder that has it")
            print(f"{name}: not found: its cells are those of an earlier run", file=sys.stderr)
            found.append((None, earlier))
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        card = path.with_suffix(".json")
        split = (json.loads(card.read_text()).get("split") or "") if own and card.exists() else ""
        if earlier is None or earlier.sha256 != digest:
            if args.check:
                raise RuntimeError(f"{path} is new or has changed: run it without --check")
            live_pages = Simulator(args.flashsift.resolve()).live_pages(path)
        else:
            live_pages = earlier.live_pages
        found.append((path, Trace(name, own, split, digest, live_pages)))
    return found


def current(args: argparse.Namespace, found: list[tuple[Path | None, Trace]], known: list[Trace]) -> set[str]:
    """Names of the traces of which saved results hold: of none that has changed."""
    same = {(trace.name, trace.sha256) for trace in known}
    return {trace.name for path, trace in found if (trace.name, trace.sha256) in same and not (args.again and path)}


def load(kind: type, path: Path) -> list:
    """Rows of a CSV file, which may be compressed; none if it does not exist."""
    if not path.exists():
        return []
    content = path.read_bytes()
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    read = {bool: "True".__eq__, str: str, int: int, float: float}
    rows = csv.DictReader(io.StringIO(text))
    if rows.fieldnames != [field.name for field in fields(kind)]:
        raise RuntimeError(f"{path} has other columns than this program writes: delete it and run it again")
    return [kind(**{field.name: read[field.type](row[field.name]) for field in fields(kind)}) for row in rows]


def dump(kind: type, rows: Iterable) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


def write(folder: Path, files: dict[str, str], check: bool) -> list[str]:
    """Writes the files that differ, unless they are only checked. Returns their names."""

    def is_current(path: Path, text: str) -> bool:
        if not path.exists():
            return False
        content = path.read_bytes()
        return (lzma.decompress(content) if path.suffix == ".xz" else content) == text.encode()

    stale = [name for name, text in files.items() if not is_current(folder / name, text)]
    for name in [] if check else stale:
        content = files[name].encode()
        (folder / name).write_bytes(lzma.compress(content, preset=9) if name.endswith(".xz") else content)
    return stale


def finish(folder: Path, stale: list[str], check: bool, ran: int) -> int:
    """Reports the files that differed. Returns an exit status."""
    if check:
        for name in stale:
            print(f"{folder / name} is stale", file=sys.stderr)
        return int(bool(stale))
    print(f"{ran} simulations; written: {', '.join(stale) or 'nothing new'}", file=sys.stderr)
    return 0


def fill(document: str, tables: dict[str, Callable[[], str]]) -> str:
    """The document with every marked table and text replaced."""
    if unused := tables.keys() ^ {name for _, name, _ in MARKED.findall(document)}:
        raise RuntimeError(f"RESULTS.md and the tables differ in: {', '.join(sorted(unused))}")
    return MARKED.sub(lambda found: found[1] + tables[found[2]]() + found[3], document)
