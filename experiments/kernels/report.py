"""Compare what Debian's kernels did under the loads of inside.py with `flashsift compare`."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import program
from common.pages import PAGE_BYTES, apart, fill, item, markdown, minus
from common.program import output, records
from common.rows import finish

HERE = Path(__file__).resolve().parent
FILE_SYSTEMS = {"ext4": "ext4:groups=4", "f2fs": "f2fs"}
NAMES = {"ext4": "ext4", "f2fs": "F2FS"}
LOADS = ["launches", "database"]


@dataclass(frozen=True)
class Run:
    """A load on a file system of a kernel: what the kernel did, and what is predicted."""

    kernel: str
    file_system: str
    load: str
    counted: dict
    # From the recording of 6.12, which alone has page faults: with the quartiles of the group's
    # file pages as memory, the smallest first.
    predictions: list[dict]
    # From the recording of this kernel; that of 6.12 for launches.
    predicted: dict
    # Syncs of files and of directories in it.
    syncs: int

    @property
    def name(self) -> str:
        return f"{self.kernel}, {NAMES[self.file_system]}, {self.load}"


def main() -> int:
    args = program.report_parser(__doc__).parse_args()
    measured = json.loads((HERE / "measured.json").read_text())
    runs = [run(args.flashsift, *at.split(), load, facts) for load in LOADS for at, facts in measured.items()]
    page = fill((HERE / "RESULTS.md").read_text(), TABLES, runs, measured)
    return finish(HERE, {"RESULTS.md": page}, args.check)


def run(flashsift: Path, kernel: str, file_system: str, load: str, facts: dict) -> Run:
    counted = facts["loads"][load]
    own, with_faults = (HERE / f"{by}-{file_system}-{load}.parquet" for by in (kernel, "6.12"))
    own = own if own.exists() else with_faults
    options = [
        "--policy", "mglru" if switched_on(facts) else "linux2q", "--frames", ",".join(map(str, counted["file_pages"])),
        "--readahead", f"linux:kernel={kernel},kib={facts['readahead_kib']},io-kib={facts['request_kib']}",
        "--merge", f"{facts['request_kib']}KiB", "--writeback", "linux", "--ram", f"{counted['memory_bytes']}B",
        "--metadata", FILE_SYSTEMS[file_system], "--drain",
    ]  # fmt: skip
    predictions, predicted = (
        records(flashsift, "compare", trace, "--quiet", "--json", *options)
        for trace in (with_faults, own)
    )
    with tempfile.TemporaryDirectory() as scratch:
        events = Path(scratch) / "events.csv"
        output(flashsift, "import", "--quiet", own, "-o", events)
        syncs = sum(line.split(",")[1] in ("sync", "sync-directory") for line in events.read_text().splitlines())
    return Run(kernel, file_system, load, counted, predictions, predicted[1], syncs)


def spread(counts: list[int]) -> str:
    """The middle one, and the others in parentheses unless they are the same."""
    least, middle, most = counts[0], counts[len(counts) // 2], counts[-1]
    return f"{middle:,}" if least == most else f"{middle:,} ({least:,} to {most:,})"


def compared(counted: float, predicted: list[int]) -> list[str]:
    ordered = sorted(predicted)
    return [f"{counted:,.0f}", spread(ordered), apart(predicted[len(predicted) // 2], counted)]


def reads(runs: list[Run], _: dict) -> str:
    head = ["kernel, file system, load", "memory, pages", "pages read", "predicted", "", "read requests", "predicted", ""]
    rows = []
    for one in runs:
        pages, requests = (compared(count, [of[field] for of in one.predictions]) for count, field in [
            (one.counted["read_bytes"] / PAGE_BYTES, "device_reads"),
            (one.counted["read_requests"], "device_read_requests"),
        ])  # fmt: skip
        rows.append([one.name, spread(one.counted["file_pages"]), *pages, *requests])
    return markdown(head, rows)


def own_pages(one: Run) -> int:
    return one.predicted["journal_writes"] + one.predicted["metadata_writes"]


def written(one: Run) -> tuple[int, float]:
    """All pages written: predicted, and counted."""
    counted = one.counted["data_written_bytes"] + one.counted["metadata_written_bytes"]
    return one.predicted["device_writes"] + own_pages(one), counted / PAGE_BYTES


def writes(runs: list[Run], _: dict) -> str:
    head = ["kernel, file system", "data pages", "predicted", "", "journal and metadata", "predicted", "", "all", "fsyncs", "recorded",
            "commits or checkpoints"]  # fmt: skip
    rows = []
    for one in runs:
        if one.load == "database":
            counted, predicted = one.counted, one.predicted
            commits = counted["commits"] if one.file_system == "ext4" else counted["checkpoints"]
            rows.append([
                f"{one.kernel}, {NAMES[one.file_system]}",
                *compared(counted["data_written_bytes"] / PAGE_BYTES, [predicted["device_writes"]]),
                *compared(counted["metadata_written_bytes"] / PAGE_BYTES, [own_pages(one)]),
                apart(*written(one)), f"{counted['fsyncs']:,}", f"{one.syncs:,}", f"{commits:,}",
            ])  # fmt: skip
    return markdown(head, rows)


def states(_: list[Run], measured: dict) -> str:
    head = ["kernel, file system", "page cache", "pages read", "read requests", "pages reclaimed", "pages written", "time, s",
            "÷ cached"]  # fmt: skip
    rows = []
    for at, facts in measured.items():
        kernel, file_system = at.split()
        of = facts["loads"]["states"]
        for state, one in of.items():
            pages = [one["read_bytes"], one["data_written_bytes"]]
            read, written = (f"{count / PAGE_BYTES:,.0f}" for count in pages)
            rows.append([
                f"{kernel}, {NAMES[file_system]}", state, read, f"{one['read_requests']:,}", f"{one['reclaimed']:,}", written,
                f"{one['seconds']:.1f}", f"{one['seconds'] / of['cached']['seconds']:.1f}",
            ])  # fmt: skip
    return markdown(head, rows)


def full(_: list[Run], measured: dict) -> str:
    head = ["kernel", "step", "pages overwritten", "data pages written", "nodes and other metadata", "write requests",
            "blocks moved: awaited", "in the background"]  # fmt: skip
    rows = []
    for at, facts in measured.items():
        for one in facts["loads"].get("full", {"steps": []})["steps"]:
            written = [f"{one[of] / PAGE_BYTES:,.0f}" for of in ["data_written_bytes", "metadata_written_bytes"]]
            written.append(f"{one['write_requests']:,}")
            # The reader of the tracepoint got nothing.
            if one["pages"] and not one["write_requests"]:
                written = ["–"] * 3
            moved = (f"{one[f'moved_blocks_{ground}']:,}" for ground in ["foreground", "background"])
            rows.append([at.split()[0], one["step"], f"{one['pages']:,}", *written, *moved])
    return markdown(head, rows)


def fullstarts(_: list[Run], measured: dict) -> str:
    rows = []
    for at, facts in measured.items():
        if of := facts["loads"].get("full"):
            for state, one in of["started"].items():
                used = f"{of['used_percent']} %" if state == "full" else "–"
                pages = one["read_bytes"] / PAGE_BYTES
                rows.append([at.split()[0], state, used, f"{pages:,.0f}", f"{one['read_requests']:,}", f"{pages / one['read_requests']:.1f}"])
    return markdown(["kernel", "card", "used", "pages read", "read requests", "pages a request"], rows)


def settings(_: list[Run], measured: dict) -> str:
    lines = []
    for at, facts in measured.items():
        file_system = at.split()[1]
        generations = "on" if switched_on(facts) else "off"
        size, used = facts["card"]
        lines.append(
            f"Linux {facts['kernel']}, {NAMES[file_system]} of {size} of which {used} are used, read-ahead of "
            f"{facts['readahead_kib']} KiB, multi-generational LRU {generations}"
        )
    return "".join(map(item, lines))


def short(runs: list[Run], measured: dict) -> str:
    errors = {
        (load, field): [(one.predictions[1][of] / one.counted[field] * scale - 1) * 100 for one in runs if one.load == load]
        for load in LOADS
        for field, of, scale in [("read_bytes", "device_reads", PAGE_BYTES), ("read_requests", "device_read_requests", 1)]
    }
    database = [one for one in runs if one.load == "database"]
    data = [(one.predicted["device_writes"] / one.counted["data_written_bytes"] * PAGE_BYTES - 1) * 100 for one in database]
    every = [(predicted / counted - 1) * 100 for predicted, counted in map(written, database)]
    own = [(own_pages(one) / one.counted["metadata_written_bytes"] * PAGE_BYTES - 1) * 100 for one in database]
    syncs = [one.syncs - one.counted["fsyncs"] for one in database]
    started = [facts["loads"]["states"] for facts in measured.values()]
    more = [of["full"]["read_requests"] / of["dropped"]["read_requests"] for of in started]
    times = [of[state]["seconds"] / of["cached"]["seconds"] for of in started for state in ["dropped", "full"]]
    full = [facts["loads"]["full"] for facts in measured.values() if "full" in facts["loads"]]
    awaited = [sum(step["moved_blocks_foreground"] for step in of["steps"] if step["pages"]) for of in full]
    cleaned = [sum(step["moved_blocks_background"] for step in of["steps"]) for of in full]
    fresh = [of["started"]["full"]["read_requests"] / of["started"]["fresh"]["read_requests"] for of in full]
    return "".join(map(item, [
        f"**The database**, on {len(database)} pairs of kernel and file system: pages read are predicted "
        "with errors of "
        f"{between(errors['database', 'read_bytes'])}, read requests {between(errors['database', 'read_requests'])}, pages of "
        f"data written {between(data)}, journal and metadata {between(own)}, both together {between(every)}.",
        f"**Launches under memory pressure** are predicted less well: pages read "
        f"{between(errors['launches', 'read_bytes'])}, read requests {between(errors['launches', 'read_requests'])}. The page "
        "cache of a group shrinks and grows with the programs in it, and the prediction has one size.",
        f"**fsyncs**: {sum(n == 0 for n in syncs)} of {len(syncs)} recordings have as many as the kernel counted.",
        f"**A launch with a full page cache** sends {min(more):.2f} to {max(more):.2f} times the read requests of one with an "
        f"empty cache, and reclaims pages meanwhile. Without its pages it takes {min(times):.1f} to {max(times):.1f} times as "
        "long as with them, emulated.",
        f"**A full F2FS** moved {' and '.join(f'{n:,}' for n in awaited)} blocks while an application overwrote its files: it "
        f"writes into holes before it cleans. When asked to clean, it moved {' and '.join(f'{n:,}' for n in cleaned)}. Programs "
        f"in such holes start with {' and '.join(f'{n:.2f}' for n in fresh)} times the requests.",
    ]))  # fmt: skip


def between(percents: list[float]) -> str:
    ends = dict.fromkeys(f"{end:+.1f}" for end in (min(percents), max(percents)))
    return minus(f"{' to '.join(ends)} %")


def switched_on(facts: dict) -> bool:
    """Whether the kernel uses the multi-generational LRU."""
    return facts["multi_generational"] != "0x0000"


TABLES = {of.__name__: of for of in (short, settings, reads, writes, states, full, fullstarts)}

if __name__ == "__main__":
    program.run(main)
