"""Run the cells of the experiment and write the results: CSV, and the tables of RESULTS.md."""

import argparse
import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from math import exp, log
from pathlib import Path

HERE = Path(__file__).parent
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
DEVICES = ["microsd-2012", "emmc-5.1", "ufs-3.1"]
CLUSTERS = ["off", "64KiB", "128KiB", "512KiB"]
# They know the future.
OFFLINE = {"belady", "belady-cost"}
# A combination should be faster than these, and hit as often as those.
FAST = ["spatialclock", "fab", "mglru"]
HITTING = ["arc", "s3fifo"]
NEAR = 0.001  # of all accesses


@dataclass(frozen=True)
class Cell:
    trace: str
    policy: str
    cluster: str
    device: str
    accesses: int
    hits: int
    device_writes: int
    device_write_requests: int
    elapsed_us: int

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.accesses

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_us / 1e6


@dataclass(frozen=True)
class Results:
    cells: dict[tuple[str, str, str, str], Cell]  # by trace, device, policy, cluster
    traces: list[str]
    policies: list[str]

    def places(self) -> list[tuple[str, str]]:
        return [(trace, device) for trace in self.traces for device in DEVICES]

    def combinations(self) -> list[tuple[str, str]]:
        return [(policy, cluster) for policy in self.policies for cluster in CLUSTERS]

    def beats(self, place: tuple[str, str], combination: tuple[str, str], clusters: list[str]) -> bool:
        """Whether it is faster than each of FAST with each of `clusters`."""
        return all(
            self.cells[*place, *combination].elapsed_us < self.cells[*place, rival, cluster].elapsed_us
            for rival in FAST
            for cluster in clusters
            if (rival, cluster) != combination
        )

    def hits(self, place: tuple[str, str], combination: tuple[str, str], tolerance: float) -> bool:
        """Whether it hits as often as each of HITTING, without clusters."""
        return all(
            self.cells[*place, *combination].hit_ratio >= self.cells[*place, rival, "off"].hit_ratio - tolerance
            for rival in HITTING
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("--flashsift", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--traces", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    args = parser.parse_args()
    paths = sorted(args.traces.glob("*.parquet"))
    cells = [cell for path in paths for cluster in CLUSTERS for cell in run(args.flashsift, path, cluster)]
    results = Results(
        {(cell.trace, cell.device, cell.policy, cell.cluster): cell for cell in cells},
        [path.stem for path in paths],
        list(dict.fromkeys(cell.policy for cell in cells)),
    )
    document = (HERE / "RESULTS.md").read_text()
    files = {
        "cells.csv": dump(cells),
        "RESULTS.md": MARKED.sub(lambda found: found[1] + TABLES[found[2]](results) + found[3], document),
    }
    stale = [name for name, text in files.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    for name in stale:
        if args.check:
            print(f"{HERE / name} is stale", file=sys.stderr)
        else:
            (HERE / name).write_text(files[name])
    return bool(stale) and args.check


def run(program: Path, path: Path, cluster: str) -> list[Cell]:
    writeback = "evict" if cluster == "off" else f"cluster:{cluster}"
    command = ["compare", path, "--memory", "16MiB", "--drain", "--writeback", writeback]
    command += ["--device", ",".join(DEVICES), "--json", "--quiet"]
    done = subprocess.run([program, *command], capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    cells = []
    for row in map(json.loads, done.stdout.splitlines()):
        if row["policy"] not in OFFLINE:
            counts = (row[name] for name in ("accesses", "hits", "device_writes", "device_write_requests"))
            elapsed_us = round(row["elapsed_s"] * 1e6)
            cells.append(Cell(path.stem, row["policy"], cluster, row["device"], *counts, elapsed_us))
    return cells


def dump(cells: list[Cell]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(Cell))
    writer.writerows(map(astuple, cells))
    return out.getvalue()


def markdown(head: list[str], rows: list[list[str]], text: tuple[int, ...] = (0,)) -> str:
    """Columns that are not `text` are numbers."""
    lines = [head, ["---" if n in text else "---:" for n in range(len(head))], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def name(policy: str, cluster: str) -> str:
    return policy if cluster == "off" else f"{policy} {cluster}"


def effect(results: Results) -> str:
    """Time with clusters as a share of that without: geometric mean of the traces."""
    rows = []
    for device in DEVICES:
        for cluster in CLUSTERS[1:]:
            row = [f"{device}, {cluster}"]
            for policy in ["lru", *HITTING, *FAST]:
                logs = [
                    log(results.cells[trace, device, policy, cluster].elapsed_us)
                    - log(results.cells[trace, device, policy, "off"].elapsed_us)
                    for trace in results.traces
                ]
                row.append(f"{exp(sum(logs) / len(logs)):.2f}")
            rows.append(row)
    return markdown(["time ÷ time without clusters", "lru", *HITTING, *FAST], rows)


def writes(results: Results) -> str:
    """Pages written, and requests."""
    rows = []
    for trace in results.traces:
        for policy in ["lru", *HITTING, *FAST]:
            cells = [results.cells[trace, DEVICES[0], policy, cluster] for cluster in CLUSTERS]
            rows.append([
                f"{trace}, {policy}", f"{100 * cells[0].hit_ratio:.2f}",
                *(f"{cell.device_writes:,} ({cell.device_write_requests:,})" for cell in cells),
            ])  # fmt: skip
    return markdown(["pages written (requests)", "hits %", *CLUSTERS], rows)


def front(results: Results) -> str:
    """The Pareto front of time and hits, fastest first."""
    rows = []
    for trace, device in results.places():
        most_hits = -1
        shown = []
        cells = [results.cells[trace, device, *combination] for combination in results.combinations()]
        for cell in sorted(cells, key=lambda cell: (cell.elapsed_us, -cell.hits)):
            if cell.hits > most_hits:
                most_hits = cell.hits
                shown.append(f"{name(cell.policy, cell.cluster)} {cell.elapsed_s:.3g} s, {100 * cell.hit_ratio:.2f} %")
        rows.append([f"{trace}, {device}", "; ".join(shown)])
    return markdown(["trace, device", "Pareto front"], rows, text=(0, 1))


def ahead(results: Results) -> str:
    """In how many cells a combination is fast, hits, and both."""
    rows = []
    places = results.places()

    def count(test: Callable[[tuple[str, str]], bool]) -> int:
        return sum(map(test, places))

    for one in results.combinations():
        plain = count(lambda place: results.beats(place, one, ["off"]))
        always = count(lambda place: results.beats(place, one, CLUSTERS))
        hits, near = (count(lambda place: results.hits(place, one, by)) for by in (0, NEAR))
        both = count(lambda place: results.beats(place, one, ["off"]) and results.hits(place, one, 0))
        nearly = count(lambda place: results.beats(place, one, ["off"]) and results.hits(place, one, NEAR))
        strict = count(lambda place: results.beats(place, one, CLUSTERS) and results.hits(place, one, NEAR))
        rows.append((one, [plain, always, hits, near, both, nearly, strict]))
    rows.sort(key=lambda row: [-row[1][5], -row[1][4], -row[1][0]])
    head = [f"of {len(places)} cells", "F", "F+", "H", "H−", "F, H", "F, H−", "F+, H−"]
    return markdown(head, [[name(*one), *map(str, counts)] for one, counts in rows[:20]])


TABLES = {table.__name__: table for table in (effect, writes, front, ahead)}

if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"run.sh: {error}")
