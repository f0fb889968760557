"""Tables and sentences of RESULTS.md."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median

from simulate import (
    F2FS,
    LAUNCHED,
    LAUNCHED_F2FS,
    LINUX,
    MIDDLE,
    OFF,
    OTHER_POLICY,
    PAPER,
    PC,
    PHONE,
    POLICY,
    SHARES,
    SIZES_KIB,
    TIMED,
    Cell,
    Size,
    Time,
    Trace,
)
from words import bullets, change, count, listed, markdown, signed

# Liang et al., §3.2 and §4.2.
PUBLISHED_EFFICIENCY = {"F2FS": 3, "ext4": 2}
PUBLISHED_AT_MAX = {"using": 72, "launching": 80}
PUBLISHED_EVICTED = 1.1
PUBLISHED_FACTOR = {"using": "2.9", "launching": "6.5 on ext4 and 30 on F2FS"}
# The maximum that the paper proposes, and the one that it replaces, in pages.
NMSR, DEFAULT = 16, 32
NMSR_KIB, DEFAULT_KIB = 4 * NMSR, 4 * DEFAULT
# Fewer windows than these show nothing; `tune readahead` proposes nothing either.
WINDOWS_ENOUGH = 1000
# Times that differ by less count as equal, as in `tune readahead`.
EQUAL_PERCENT = 1
BINS_KIB = (4, 16, 64, 128)
BASIC = [OFF, PAPER[DEFAULT], LINUX[PHONE, DEFAULT_KIB], LINUX[PC, DEFAULT_KIB]]
NAMES = {
    OFF: "off",
    PAPER[DEFAULT]: "paper, 32 pages",
    PAPER[NMSR]: "paper, 16 pages",
    LINUX[PHONE, DEFAULT_KIB]: "Linux 6.1, 128 KiB",
    LINUX[PHONE, NMSR_KIB]: "Linux 6.1, 64 KiB",
    LINUX[PC, DEFAULT_KIB]: "Linux 6.18, 128 KiB",
}


def use(trace: Trace) -> str:
    return "launching" if trace.name in (*LAUNCHED, *LAUNCHED_F2FS) else "using"


def file_system(trace: Trace) -> str:
    return "F2FS" if trace.name in (*F2FS, *LAUNCHED_F2FS) else "ext4"


@dataclass(frozen=True)
class Results:
    traces: list[Trace]
    sizes: list[Size]
    cells: dict[tuple[str, str, str, int], Cell]
    times: dict[tuple[str, str, int, str], Time]

    def cell(self, trace: Trace, readahead: str, share: int = MIDDLE, policy: str = POLICY) -> Cell:
        return self.cells[trace.name, readahead, policy, trace.frames(share)]

    def time(self, trace: Trace, readahead: str, device: str) -> Time:
        return self.times[trace.name, readahead, trace.frames(MIDDLE), device]

    def read_share(self, trace: Trace, most_kib: int) -> float:
        """Percent of the read requests that are no longer."""
        rows = [size for size in self.sizes if size.trace == trace.name]
        short = sum(size.reads for size in rows if size.most_bytes <= 1024 * most_kib)
        return 100 * short / sum(size.reads for size in rows)

    def longest_pages(self, trace: Trace) -> int:
        """The longest read request, rounded up to a power of two."""
        return max(size.most_bytes for size in self.sizes if size.trace == trace.name and size.reads) // 4096

    @cached_property
    def enough(self) -> list[Trace]:
        return [trace for trace in self.traces if self.cell(trace, PAPER[DEFAULT]).windows >= WINDOWS_ENOUGH]

    def judged(self, kind: str) -> list[Trace]:
        return [trace for trace in self.enough if use(trace) == kind]

    def factor(self, trace: Trace, share: int = MIDDLE) -> float:
        """Efficiency with the native maximum, as a multiple."""
        now, before = (self.cell(trace, PAPER[pages], share).efficiency for pages in (NMSR, DEFAULT))
        return now / before if before else 0.0

    def best_kib(self, trace: Trace, device: str) -> int:
        """The smallest maximum with about the least time."""
        elapsed = {kib: self.time(trace, LINUX[PHONE, kib], device).elapsed_s for kib in SIZES_KIB}
        least = min(elapsed.values())
        return next(kib for kib in SIZES_KIB if elapsed[kib] <= least * (1 + EQUAL_PERCENT / 100))


def native_maximum(pages: int) -> int:
    """Equations 1 and 2 of the paper, searched over powers of two."""

    def prefetches(most: int) -> int:
        total, size, number = 0, 4, 0
        while total < pages:
            total, size, number = total + min(size, most), 2 * size, number + 1
        return number

    least = prefetches(1 << 40)
    return next(4 << n for n in range(40) if prefetches(4 << n) == least)


def percent(ratio: float, digits: int = 1) -> str:
    return f"{100 * ratio:.{digits}f}"


def names(traces: list[Trace]) -> str:
    return listed(f"`{trace.name}`" for trace in traces)


def spread(values: list[float], digits: int = 1) -> str:
    return f"{median(values):.{digits}f} (median; {min(values):.{digits}f} to {max(values):.{digits}f})"


def traces_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        cell = results.cell(trace, OFF)
        reads = sum(size.reads for size in results.sizes if size.trace == trace.name)
        writes = cell.accesses - cell.read_accesses
        numbers = (reads, cell.read_accesses, writes, trace.live_pages, results.cell(trace, PAPER[DEFAULT]).windows)
        rows.append([trace.name, use(trace), file_system(trace), *map(count, numbers)])
    head = "trace|apps|file system|read requests|page reads|page writes|peak live pages|prefetches"
    return markdown(head, rows, (0, 1, 2))


def sizes_table(results: Results) -> str:
    rows = [
        [
            trace.name,
            *(f"{results.read_share(trace, kib):.1f}" for kib in BINS_KIB),
            count(results.longest_pages(trace)),
            count(native_maximum(results.longest_pages(trace))),
        ]
        for trace in results.traces
    ]
    return markdown("trace|≤ 4 KiB, %|≤ 16 KiB, %|≤ 64 KiB, %|≤ 128 KiB, %|longest, pages ≤|its NMSR, pages", rows)


def prefetched_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        for readahead in BASIC[1:]:
            cell = results.cell(trace, readahead)
            rows.append(
                [
                    trace.name,
                    NAMES[readahead],
                    count(cell.windows),
                    f"{cell.mean_pages:.1f}",
                    percent(cell.at_max),
                    percent(cell.efficiency),
                    percent(cell.efficiency_of_read),
                    f"{cell.wasted_mib:,.1f}",
                ]
            )
    head = "trace|read-ahead|windows|mean pages|at the maximum, %|used / asked, %|used / read, %|wasted MiB"
    return markdown(head, rows, (0, 1))


def by_readahead(results: Results, value: Callable[[Cell], str], policy: str = POLICY) -> str:
    rows = [
        [trace.name, *(value(results.cell(trace, readahead, policy=policy)) for readahead in BASIC)]
        for trace in results.traces
    ]
    return markdown("trace|" + "|".join(NAMES[readahead] for readahead in BASIC), rows)


def nmsr_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        before, now, small = (results.cell(trace, PAPER[pages]) for pages in (DEFAULT, NMSR, 8))
        rows.append(
            [
                trace.name,
                *(percent(cell.hit_ratio, 2) for cell in (before, now, small)),
                *(f"{cell.mean_pages:.1f}" for cell in (before, now, small)),
                *(percent(cell.efficiency, 2) for cell in (before, now, small)),
                f"{results.factor(trace):.2f}",
            ]
        )
    groups = [f"{name}, {pages}" for name in ("hits %", "mean pages", "used / asked %") for pages in (DEFAULT, NMSR, 8)]
    return markdown("|".join(["trace", *groups, "× 32 → 16"]), rows)


def memory_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        for share in SHARES:
            hits = [results.cell(trace, PAPER[pages], share).hit_ratio for pages in (DEFAULT, NMSR)]
            row += [f"{results.factor(trace, share):.2f}", signed(100 * (hits[1] - hits[0]), 2)]
        rows.append(row)
    return markdown("|".join(["trace", *(f"{share} %: ×|hits" for share in SHARES)]), rows)


CASED = [OFF, PAPER[DEFAULT], PAPER[NMSR], LINUX[PHONE, DEFAULT_KIB], LINUX[PHONE, NMSR_KIB]]


def cases_table(results: Results) -> str:
    device = next(iter(TIMED))
    rows = []
    for trace in results.traces:
        for readahead in CASED:
            cell, time = results.cell(trace, readahead), results.time(trace, readahead, device)
            cases = (cell.reads_cached, cell.reads_free, cell.reads_evict_clean, cell.reads_evict_dirty)
            rows.append([trace.name, NAMES[readahead], *map(count, cases), *milliseconds(time)])
    head = "trace|read-ahead|Cached|Read|Evictfirst1|Evictfirst2|reads, ms|all, ms"
    return markdown(head, rows, (0, 1))


def milliseconds(time: Time) -> list[str]:
    return [count(time.read_us / 1e3), count((time.read_us + time.write_us) / 1e3)]


def curve_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        for name, readahead in [("0", OFF), *((str(kib), LINUX[PHONE, kib]) for kib in SIZES_KIB)]:
            cell = results.cell(trace, readahead)
            rows.append(
                [
                    trace.name,
                    name,
                    count(cell.device_read_requests),
                    f"{cell.wasted_mib:,.1f}",
                    percent(cell.read_hit_ratio),
                    *(part for device in TIMED for part in milliseconds(results.time(trace, readahead, device))),
                ]
            )
    devices = "|".join(f"{device}: reads, ms|all, ms" for device in TIMED)
    return markdown(f"trace|KiB|read requests|wasted MiB|read hits, %|{devices}", rows)


def optimum_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        for device in TIMED:
            best = results.best_kib(trace, device)
            elapsed = {kib: results.time(trace, LINUX[PHONE, kib], device).elapsed_s for kib in SIZES_KIB}
            row += [f"{best}", *(signed(change(elapsed[kib], elapsed[best])) for kib in (NMSR_KIB, DEFAULT_KIB))]
        rows.append(row)
    devices = "|".join(f"{device}: best KiB|64 KiB, %|128 KiB, %" for device in TIMED)
    return markdown(f"trace|{devices}", rows)


def conclusion(results: Results) -> str:
    sentences = []
    paper = {trace.name: results.cell(trace, PAPER[DEFAULT]) for trace in results.traces}
    phone = {trace.name: results.cell(trace, LINUX[PHONE, DEFAULT_KIB]) for trace in results.traces}
    for system, published in PUBLISHED_EFFICIENCY.items():
        traces = [trace for trace in results.enough if file_system(trace) == system]
        if not traces:
            sentences.append(f"**Efficiency on {system}**: no recording has {count(WINDOWS_ENOUGH)} prefetches.")
            continue
        asked, read = ([100 * way(paper[trace.name]) for trace in traces] for way in (efficiency, of_read))
        kernel = [100 * efficiency(phone[trace.name]) for trace in traces]
        sentences.append(
            f"**Efficiency on {system}**: the paper's read-ahead uses {spread(asked)} % of the pages that it asks for "
            f"(published: {published} % on average), but {spread(read)} % of the pages that it reads. "
            f"The model of Linux 6.1 uses {spread(kernel)} % of the pages that it asks for."
        )
    for kind, published in PUBLISHED_AT_MAX.items():
        if traces := results.judged(kind):
            ratios = [100 * paper[trace.name].at_max for trace in traces]
            kernel = [100 * phone[trace.name].at_max for trace in traces]
            sentences.append(
                f"**Prefetches of the maximum size, {kind} apps**: {spread(ratios)} % by the paper's rule, "
                f"{spread(kernel)} % in Linux 6.1 (published: up to {published} %)."
            )
    evicted = {trace.name: paper[trace.name].eviction_ratio for trace in results.enough}
    at, most = max(evicted.items(), key=lambda one: one[1])
    plain = next(results.cell(trace, OFF).eviction_ratio for trace in results.traces if trace.name == at)
    sentences.append(
        f"**Evicted / requested** with the paper's read-ahead is at most {most:.2f} (`{at}`; {plain:.2f} without "
        f"read-ahead; published: up to {PUBLISHED_EVICTED})."
    )
    gains = {
        trace.name: results.cell(trace, PAPER[DEFAULT]).read_hit_ratio - results.cell(trace, OFF).read_hit_ratio
        for trace in results.enough
    }
    worse = [trace for trace in results.enough if gains[trace.name] < 0]
    sentences.append(
        f"**Hits of reads** change with the paper's read-ahead by {spread([100 * one for one in gains.values()])} "
        f"percentage points" + (f"; fewer hits: {names(worse)}." if worse else ", and fall on no recording.")
    )
    for kind, published in PUBLISHED_FACTOR.items():
        if traces := results.judged(kind):
            factors = [results.factor(trace) for trace in traces]
            sentences.append(
                f"**From 32 to 16 pages, {kind} apps**: the efficiency is multiplied by {mean(factors):.2f} on "
                f"average, {min(factors):.2f} to {max(factors):.2f} (published: {published})."
            )
    moved = [
        100 * (results.cell(trace, PAPER[NMSR], share).hit_ratio - results.cell(trace, PAPER[DEFAULT], share).hit_ratio)
        for trace in results.enough
        for share in SHARES
    ]
    sentences.append(
        f"**The hit ratio changes little**, as published: from 32 to 16 pages by {signed(min(moved), 2)} to "
        f"{signed(max(moved), 2)} percentage points, over the four sizes of the cache."
    )
    for device in TIMED:
        best = {trace.name: results.best_kib(trace, device) for trace in results.enough}
        loses = {
            trace.name: change(*(results.time(trace, LINUX[PHONE, kib], device).elapsed_s for kib in pair))
            for trace in results.enough
            for pair in [(NMSR_KIB, DEFAULT_KIB)]
        }
        at, worst = max(loses.items(), key=lambda one: one[1])
        sizes = listed(
            f"{kib} KiB on {number}" for kib in SIZES_KIB if (number := sum(one == kib for one in best.values()))
        )
        sentences.append(
            f"**Time on {device}**, Linux 6.1: the smallest maximum within {EQUAL_PERCENT} % of the least time is "
            f"{sizes} of {len(best)} recordings. 64 KiB in place of 128 KiB changes the time by "
            f"{signed(min(loses.values()))} to {signed(worst)} % (most on `{at}`)."
        )
    return bullets(sentences)


def efficiency(cell: Cell) -> float:
    return cell.efficiency


def of_read(cell: Cell) -> float:
    return cell.efficiency_of_read


def few(results: Results) -> str:
    traces = [trace for trace in results.traces if trace not in results.enough]
    if not traces:
        return bullets(["All recordings have enough prefetches."])
    return bullets(
        [f"{names(traces)} have fewer than {count(WINDOWS_ENOUGH)} prefetches: they are in the tables, but not in "
         "the sentences above."]
    )  # fmt: skip


def sizes_text(results: Results) -> str:
    short = [results.read_share(trace, 64) for trace in results.traces]
    long = [trace for trace in results.traces if results.longest_pages(trace) > DEFAULT]
    sentences = [
        f"At most 64 KiB are {min(short):.1f} to {max(short):.1f} % of the read requests: the published finding that "
        "most are smaller holds." if min(short) > 50 else
        f"At most 64 KiB are {min(short):.1f} to {max(short):.1f} % of the read requests: the published finding that "
        "most are smaller does not hold on each recording.",
        f"Longer than the paper's 32 pages is the longest request of {len(long)} of {len(results.traces)} recordings. "
        "NMSR follows from the longest request, so one request decides it; by the paper's equations these recordings "
        "would get a larger maximum than 16 pages.",
    ]  # fmt: skip
    return bullets(sentences)


def all_of(results: Results) -> dict[str, Callable[[], str]]:
    return {
        "conclusion": lambda: conclusion(results),
        "few": lambda: few(results),
        "traces": lambda: traces_table(results),
        "sizes": lambda: sizes_table(results),
        "sizes_text": lambda: sizes_text(results),
        "prefetched": lambda: prefetched_table(results),
        "evicted": lambda: by_readahead(results, lambda cell: f"{cell.eviction_ratio:.2f}"),
        "hits": lambda: by_readahead(results, lambda cell: percent(cell.read_hit_ratio)),
        "hits_two": lambda: by_readahead(results, lambda cell: percent(cell.read_hit_ratio), OTHER_POLICY),
        "nmsr": lambda: nmsr_table(results),
        "memory": lambda: memory_table(results),
        "cases": lambda: cases_table(results),
        "curve": lambda: curve_table(results),
        "optimum": lambda: optimum_table(results),
    }
