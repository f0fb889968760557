"""Tables and sentences of RESULTS.md."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from statistics import mean, median

from common.pages import bullets, change, count, listed, markdown, signed
from simulate import (
    DEVICES,
    F2FS,
    FOREIGN,
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
    RESIDENT,
    SHARES,
    SIZES_KIB,
    TIGHT,
    Cell,
    Size,
    Time,
    Trace,
)

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

    def factor(self, trace: Trace, share: int = MIDDLE) -> float | None:
        """Efficiency with the native maximum, as a multiple; none if no prefetched page is used."""
        now, before = (self.cell(trace, PAPER[pages], share).efficiency for pages in (NMSR, DEFAULT))
        return now / before if before else None

    def factors(self, traces: list[Trace], maxima: dict[int, str], of: Callable[[Cell], float]) -> list[float]:
        """Efficiency with the native maximum, as a multiple, with the middle size."""
        pairs = [[of(self.cell(trace, maxima[pages])) for pages in (NMSR, DEFAULT)] for trace in traces]
        return [now / before for now, before in pairs if before]

    def tight(self, trace: Trace, maxima: dict[int, str], of: Callable[[Cell], float]) -> dict[int, float]:
        """The same by size of a cache in which windows push each other out."""
        cells = {
            frames: [self.cells[trace.name, maxima[pages], OTHER_POLICY, frames] for pages in (NMSR, DEFAULT)]
            for frames in TIGHT
        }
        return {frames: of(now) / of(before) for frames, (now, before) in cells.items() if of(before)}

    def elapsed_s(self, trace: Trace, device: str, kernel: str = PHONE) -> dict[int, float]:
        """By maximum in KiB."""
        return {kib: self.time(trace, LINUX[kernel, kib], device).elapsed_s for kib in SIZES_KIB}

    def best_kib(self, trace: Trace, device: str, kernel: str = PHONE) -> int:
        """The smallest maximum with about the least time."""
        times = self.elapsed_s(trace, device, kernel)
        least = min(times.values())
        return next(kib for kib in SIZES_KIB if times[kib] <= least * (1 + EQUAL_PERCENT / 100))

    def native_change(self, trace: Trace, device: str) -> float:
        """Percent of the time that the native maximum costs over the default."""
        times = self.elapsed_s(trace, device)
        return change(times[NMSR_KIB], times[DEFAULT_KIB])


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


def spread(values: list[float], digits: int = 1, unit: str = " %") -> str:
    low, high = min(values), max(values)
    return f"{median(values):.{digits}f}{unit} (median; {low:.{digits}f} to {high:.{digits}f}{unit})"


def times_as(factor: float | None) -> str:
    return "–" if factor is None else f"{factor:.2f}"


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
    rows = []
    for trace in results.traces:
        shares, longest = (f"{results.read_share(trace, kib):.1f}" for kib in BINS_KIB), results.longest_pages(trace)
        rows.append([trace.name, *shares, count(longest), count(native_maximum(longest))])
    return markdown("trace|≤ 4 KiB, %|≤ 16 KiB, %|≤ 64 KiB, %|≤ 128 KiB, %|longest, pages ≤|its NMSR, pages", rows)


def prefetched_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        for readahead in BASIC[1:]:
            cell = results.cell(trace, readahead)
            shares = map(percent, (cell.at_max, cell.efficiency, cell.efficiency_of_read))
            row = [trace.name, NAMES[readahead], count(cell.windows), f"{cell.mean_pages:.1f}", *shares]
            rows.append([*row, f"{cell.wasted_mib:,.1f}"])
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
        cells = [results.cell(trace, PAPER[pages]) for pages in (DEFAULT, NMSR, 8)]
        hits, used = ([percent(of(cell), 2) for cell in cells] for of in (lambda cell: cell.hit_ratio, efficiency))
        pages = (f"{cell.mean_pages:.1f}" for cell in cells)
        rows.append([trace.name, *hits, *pages, *used, times_as(results.factor(trace))])
    groups = [f"{name}, {pages}" for name in ("hits %", "mean pages", "used / asked %") for pages in (DEFAULT, NMSR, 8)]
    return markdown("|".join(["trace", *groups, "× 32 → 16"]), rows)


def memory_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        for share in SHARES:
            hits = [results.cell(trace, PAPER[pages], share).hit_ratio for pages in (DEFAULT, NMSR)]
            row += [times_as(results.factor(trace, share)), signed(100 * (hits[1] - hits[0]), 2)]
        rows.append(row)
    return markdown("|".join(["trace", *(f"{share} %: ×|hits" for share in SHARES)]), rows)


CASED = [OFF, PAPER[DEFAULT], PAPER[NMSR], LINUX[PHONE, DEFAULT_KIB], LINUX[PHONE, NMSR_KIB]]


def cases_table(results: Results) -> str:
    device = DEVICES[0]
    rows = []
    for trace in results.traces:
        for readahead in CASED:
            cell, time = results.cell(trace, readahead), results.time(trace, readahead, device)
            cases = (cell.reads_cached, cell.reads_free, cell.reads_evict_clean, cell.reads_evict_dirty)
            counts = map(count, (*cases, cell.device_read_requests))
            rows.append([trace.name, NAMES[readahead], *counts, *milliseconds(time)])
    head = "trace|read-ahead|Cached|Read|Evictfirst1|Evictfirst2|read requests|reads, ms|all, ms"
    return markdown(head, rows, (0, 1))


def milliseconds(time: Time) -> list[str]:
    return [count(time.read_us / 1e3), count((time.read_us + time.write_us) / 1e3)]


def curve_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        for name, readahead in [("0", OFF), *((str(kib), LINUX[PHONE, kib]) for kib in SIZES_KIB)]:
            cell = results.cell(trace, readahead)
            times = (part for device in DEVICES for part in milliseconds(results.time(trace, readahead, device)))
            row = [trace.name, name, count(cell.device_read_requests), f"{cell.wasted_mib:,.1f}"]
            rows.append([*row, percent(cell.read_hit_ratio), *times])
    devices = "|".join(f"{device}: reads, ms|all, ms" for device in DEVICES)
    return markdown(f"trace|KiB|read requests|wasted MiB|read hits, %|{devices}", rows)


def optimum_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        for device in DEVICES:
            times = results.elapsed_s(trace, device)
            none = results.time(trace, OFF, device).elapsed_s
            row += [f"{results.best_kib(trace, device)}", f"{min(SIZES_KIB, key=lambda kib: times[kib])}"]
            row += [signed(change(min(times.values()), none)), signed(results.native_change(trace, device))]
            row.append(f"{results.best_kib(trace, device, PC)}")
        rows.append(row)
    columns = "{0}: proposed, KiB|least, KiB|least against off, %|128 → 64 KiB, %|Linux 6.18: proposed, KiB"
    return markdown("trace|" + "|".join(columns.format(device) for device in DEVICES), rows)


as_paper, efficiency, of_read = map(attrgetter, ("efficiency_of_paper", "efficiency", "efficiency_of_read"))
# Readings of points that the paper omits: the pages that a hit finds, and the pages that count.
READINGS = {
    "A: hits find prefetched pages, counted as in section 2.4": (PAPER, as_paper),
    "B: as A, used / asked": (PAPER, efficiency),
    "C: hits find any cached page, as in section 2.4": (RESIDENT, as_paper),
    "D: as C, used / asked": (RESIDENT, efficiency),
}


def readings(results: Results) -> str:
    """Each published claim under each reading, with roomy and with tight caches."""
    rows = []
    for system, published in PUBLISHED_EFFICIENCY.items():
        traces = [trace for trace in results.enough if file_system(trace) == system]
        for reading, (maxima, of) in READINGS.items():
            found = [100 * of(results.cell(trace, maxima[DEFAULT])) for trace in traces]
            rows.append([
                f"efficiency on {system}, %", f"{published}", reading, "10 %", spread(found, unit=""), str(len(found))
            ])  # fmt: skip
    for kind, published in PUBLISHED_AT_MAX.items():
        for reading in list(READINGS)[::2]:
            maxima = READINGS[reading][0]
            found = [100 * results.cell(trace, maxima[DEFAULT]).at_max for trace in results.judged(kind)]
            rows.append([
                f"maximum-sized prefetches, {kind} apps, %", f"≤ {published}", reading[0], "10 %",
                spread(found, unit=""), str(len(found)),
            ])  # fmt: skip
    for kind, published in PUBLISHED_FACTOR.items():
        for reading, (maxima, of) in READINGS.items():
            traces = results.judged(kind)
            roomy = results.factors(traces, maxima, of)
            tight = [factor for trace in traces for factor in results.tight(trace, maxima, of).values()]
            for cache, found in (("10 %", roomy), (f"{TIGHT[0]} to {TIGHT[-1]} frames", tight)):
                rows.append([
                    f"efficiency with 16 ÷ 32 pages, {kind} apps", published, reading[0], cache,
                    spread(found, 2, ""), str(len(found)),
                ])  # fmt: skip
    return markdown("claim|published|reading|cache|ours: median (least … most)|cells", rows, text=(0, 1, 2, 3))


def tight_table(results: Results) -> str:
    """The factor of NMSR in tight caches, by used / asked, and the change of the hit ratio."""
    rows = []
    for trace in results.enough:
        factors = results.tight(trace, PAPER, lambda cell: cell.efficiency)
        row = [trace.name]
        for frames in TIGHT:
            cells = [results.cells[trace.name, PAPER[pages], OTHER_POLICY, frames] for pages in (DEFAULT, NMSR)]
            before, now = (100 * cell.hit_ratio for cell in cells)
            row.append(f"{times_as(factors.get(frames))}; {before:.1f} → {now:.1f}")
        rows.append(row)
    return markdown("|".join(["efficiency, hits in %", *(f"{frames} frames" for frames in TIGHT)]), rows)


def verdict(results: Results) -> str:
    reading = next(reading for reading in READINGS if reading[0] == "B")
    maxima, of = READINGS[reading]
    tight = {
        (factor, trace.name, frames)
        for trace in results.enough
        for frames, factor in results.tight(trace, maxima, of).items()
    }
    most, name, frames = max(tight)
    of_launches = [
        factor for trace in results.judged("launching") for factor in results.tight(trace, maxima, of).values()
    ]
    cells = [results.cells[name, maxima[pages], OTHER_POLICY, frames] for pages in (DEFAULT, NMSR)]
    before, now = (100 * cell.hit_ratio for cell in cells)
    roomy = {kind: mean(results.factors(results.judged(kind), maxima, of)) for kind in PUBLISHED_FACTOR}
    return bullets([
        "**Conclusion.** The published direction of NMSR holds under every reading of the rule: a maximum of 16 pages "
        "in place of 32 wastes less. In caches that hold many windows the efficiency (used / asked) rises "
        f"{roomy['using']:.2f} times for apps in use and {roomy['launching']:.2f} times for launches, on average "
        "(published: 2.9, and 6.5 to 30). Where the cache is so small that windows push each other out before they "
        f"are read, the factors of the size that the paper shows come from its rule alone: up to {most:.1f} "
        f"(`{name}` with {frames} frames under {OTHER_POLICY}, where the hit ratio goes from {before:.1f} to "
        f"{now:.1f} %). Here that happens to apps in use; our launches reach {max(of_launches):.2f}."
    ])  # fmt: skip


def conclusion(results: Results) -> str:
    parts = (
        efficiency_sentences, at_max_sentences, eviction_sentences, nmsr_sentences, case_sentences, time_sentences,
    )  # fmt: skip
    return bullets(sentence for part in parts for sentence in part(results))


def efficiency_sentences(results: Results) -> list[str]:
    sentences = []
    for system, published in PUBLISHED_EFFICIENCY.items():
        traces = [trace for trace in results.enough if file_system(trace) == system]
        counted, asked, read = (
            [100 * of(results.cell(trace, PAPER[DEFAULT])) for trace in traces]
            for of in (as_paper, efficiency, of_read)
        )
        kernel = [100 * efficiency(results.cell(trace, LINUX[PHONE, DEFAULT_KIB])) for trace in traces]
        verdict = "is as low as published" if median(counted) <= 2 * published else "is higher than published"
        sentences.append(
            f"**Efficiency on {system}** {verdict}: on {len(traces)} recordings {spread(counted)} as the paper counts "
            f"(published: {published} % on average). Its read-ahead uses {spread(asked)} of the pages that it asks "
            f"for, and {spread(read)} of those that it reads. The read-ahead of Linux 6.1 uses {spread(kernel)} of the pages "
            "that it asks for."
        )
    return sentences


def at_max_sentences(results: Results) -> list[str]:
    sentences = []
    for kind, published in PUBLISHED_AT_MAX.items():
        traces = results.judged(kind)
        paper, kernel = (
            [100 * results.cell(trace, readahead).at_max for trace in traces]
            for readahead in (PAPER[DEFAULT], LINUX[PHONE, DEFAULT_KIB])
        )
        sentences.append(
            f"**Prefetches of the maximum size, {kind} apps**: {spread(paper)} by the paper's rule (published: up to "
            f"{published} %), {spread(kernel)} in Linux 6.1."
        )
    return sentences


def eviction_sentences(results: Results) -> list[str]:
    ratios = {trace.name: results.cell(trace, PAPER[DEFAULT]).eviction_ratio for trace in results.traces}
    evicted = {trace.name: ratios[trace.name] for trace in results.enough}
    at, most = max(evicted.items(), key=lambda one: one[1])
    plain = next(results.cell(trace, OFF).eviction_ratio for trace in results.traces if trace.name == at)
    highest, of, share = max(
        (results.cell(trace, PAPER[DEFAULT], share).eviction_ratio, trace.name, share)
        for trace in results.enough
        for share in SHARES
    )
    apps = [name.removeprefix("f2fs/") for name in F2FS]
    larger = [app for app in apps if ratios[f"f2fs/{app}"] > ratios[app]]
    others = [app for app in apps if app not in larger]
    return [
        f"**Evicted / requested** with the paper's read-ahead is at most {most:.2f}, on `{at}`, and there {plain:.2f} "
        f"without read-ahead (published: up to {PUBLISHED_EVICTED}); over all sizes of the "
        f"cache {highest:.2f}, on `{of}` with {share} %. Published is a larger ratio on F2FS than on ext4. "
        f"Here it is larger for {listed(larger) or 'no app'} and not for {listed(others) or 'no app'}; the recordings "
        "on F2FS are shorter, so this shows no difference of the file systems."
    ]


def nmsr_sentences(results: Results) -> list[str]:
    sentences = []
    for kind, published in PUBLISHED_FACTOR.items():
        factors = [factor for trace in results.judged(kind) if (factor := results.factor(trace))]
        sentences.append(
            f"**NMSR, {kind} apps**: 16 pages in place of 32 multiply the efficiency by {mean(factors):.2f} on "
            f"average, {min(factors):.2f} to {max(factors):.2f} (published: {published}). The direction holds, the "
            "size does not."
        )
    cells = [[results.cell(trace, PAPER[pages]) for pages in (DEFAULT, NMSR)] for trace in results.enough]
    shrunk = [before.mean_pages / now.mean_pages for before, now in cells]
    sentences.append(
        f"The mean prefetch is {min(shrunk):.2f} to {max(shrunk):.2f} times as large with 32 pages as with 16. A "
        "prefetch of the model has 4 to 32 pages, so its size cannot explain a factor of 30."
    )
    moved = {}
    for trace in results.enough:
        for share in SHARES:
            now, before = (results.cell(trace, PAPER[pages], share).hit_ratio for pages in (NMSR, DEFAULT))
            moved[trace.name, share] = 100 * (now - before)
    close = sum(abs(points) <= 0.5 for points in moved.values())
    (at, share), least = min(moved.items(), key=lambda one: one[1])
    sentences.append(
        f"**The hit ratio** with 16 pages is within 0.5 percentage points of that with 32, as published, in {close} of "
        f"{len(moved)} cells. It changes by {signed(least, 2)} to {signed(max(moved.values()), 2)} points; it falls "
        f"most on `{at}` with a cache of {share} %."
    )
    return sentences


def evict_first(cell: Cell) -> int:
    return cell.reads_evict_clean + cell.reads_evict_dirty


def case_sentences(results: Results) -> list[str]:
    fewer, smaller = (
        [trace for trace in results.enough
         if evict_first(results.cell(trace, one)) < evict_first(results.cell(trace, than))]
        for one, than in ((PAPER[DEFAULT], OFF), (PAPER[NMSR], PAPER[DEFAULT]))
    )  # fmt: skip
    gains = [
        100 * (results.cell(trace, PAPER[DEFAULT]).read_hit_ratio - results.cell(trace, OFF).read_hit_ratio)
        for trace in results.enough
    ]
    return [
        f"**The cases of latency**: the paper expects that inefficient read-ahead makes more reads evict first. On "
        f"{len(fewer)} of {len(results.enough)} recordings its read-ahead makes fewer do so than none, because more "
        f"reads are hits: the hit ratio of reads changes by {spread(gains, unit=' percentage points')}. With 16 pages "
        f"in place of 32, fewer reads evict first on {len(smaller)}."
    ]


def time_sentences(results: Results) -> list[str]:
    sentences = []
    for device in DEVICES:
        best = [results.best_kib(trace, device) for trace in results.enough]
        differs = {trace.name: results.native_change(trace, device) for trace in results.enough}
        slower = sum(by > EQUAL_PERCENT for by in differs.values())
        faster = sum(by < -EQUAL_PERCENT for by in differs.values())
        at, worst = max(differs.items(), key=lambda one: one[1])
        to, least = min(differs.items(), key=lambda one: one[1])
        where = listed(f"{kib} KiB on {best.count(kib)}" for kib in SIZES_KIB if kib in best)
        sentences.append(
            f"**Best maximum on {device}**, Linux 6.1: the smallest within {EQUAL_PERCENT} % of the least time is "
            f"{where} of {len(best)} recordings. NMSR's 64 KiB take over {EQUAL_PERCENT} % more time than the default "
            f"of 128 KiB on {slower} and over {EQUAL_PERCENT} % less on {faster}: {signed(least)} % (`{to}`) to "
            f"{signed(worst)} % (`{at}`)." + (" No one maximum is the best for all." if len(set(best)) > 1 else "")
        )
    return sentences


def few(results: Results) -> str:
    traces = [trace for trace in results.traces if trace not in results.enough]
    if not traces:
        return bullets(["All recordings have enough prefetches."])
    return bullets(
        [f"{names(traces)} have fewer than {count(WINDOWS_ENOUGH)} prefetches: they are in the tables, but not in "
         "the sentences above.", foreign(results)]
    )  # fmt: skip


def foreign(results: Results) -> str:
    trace = next(trace for trace in results.traces if trace.name == FOREIGN)
    before, now = (results.cell(trace, PAPER[pages]) for pages in (DEFAULT, NMSR))
    return (
        f"`{FOREIGN}` is the only trace of a phone. By the paper's rule it uses {percent(before.efficiency)} % of the "
        f"pages asked for, {percent(before.at_max)} % of its {count(before.windows)} prefetches have the maximum size, "
        f"and NMSR multiplies the efficiency by {times_as(results.factor(trace))}, with hits of "
        f"{percent(before.hit_ratio, 2)} % before and {percent(now.hit_ratio, 2)} % after."
    )


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


TABLES: dict[str, Callable[[Results], str]] = {
    **{of.__name__.removesuffix("_table"): of for of in (
        conclusion, verdict, readings, tight_table, few, traces_table, sizes_table, sizes_text, prefetched_table,
        nmsr_table, memory_table, cases_table, curve_table, optimum_table,
    )},
    "evicted": lambda results: by_readahead(results, lambda cell: f"{cell.eviction_ratio:.2f}"),
    "hits": lambda results: by_readahead(results, lambda cell: percent(cell.read_hit_ratio)),
    "hits_two": lambda results: by_readahead(results, lambda cell: percent(cell.read_hit_ratio), OTHER_POLICY),
}  # fmt: skip
