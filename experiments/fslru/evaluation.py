"""Tables and sentences of RESULTS.md."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median

from common.nvm import Cell, Key, Value, apps_of, with_left, writes, writes_and_left
from common.pages import bullets, change, count, geometric, listed, markdown, signed
from common.traces import Trace

LRU, NVLRU, FSLRU = "storage", "nvlru", "fslru"
NAMES = {LRU: "LRU", NVLRU: "NVLRU", FSLRU: "FSLRU"}
SYNC, LINUX = "sync", "linux"
NAND, UFS = "nand-2016", "ufs-3.1"
PCM, BOARD = "pcm-2016", "pcm-board"
TESTED = "test"
PERCENTS = list(range(10, 100, 10))  # of the footprint
SHOWN = [20, 50]
# A cache larger than half of all pages is no cache: results are judged up to here.
JUDGED = [percent for percent in PERCENTS if percent <= 50]
DRAM = {5: "fslru:dram=5", 10: FSLRU, 20: "fslru:dram=20", 40: "fslru:dram=40"}
ATOMIC = {0: "fslru:atomic=0", 512: "fslru:atomic=512", 2048: FSLRU, 4096: "fslru:atomic=4096"}
# Readings of NVLRU by the fate of a version that an fsync supersedes, which the paper omits.
OLD = {
    "A: freed at the fsync": NVLRU,
    "B: ages in the queue": "nvlru:old=ages",
    "C: ages, and is written": "nvlru:old=written",
}
BATCHES = [NVLRU, "nvlru:batch=32", FSLRU, "fslru:batch=32"]
VARIANTS = list(dict.fromkeys([*DRAM.values(), *ATOMIC.values(), *BATCHES]))
READINGS = {
    "energy_quotient_w": "quotient",
    "energy_j": "joules at 3.3 V",
    "energy_mj_page_j": "3.3 mJ a page",
    "energy_by_time_j": "3.3 mJ a write, a read by its time",
}
# Kang & Eom, IEEE TCE 2016, §IV.
PUBLISHED = {"requests": (11.8, 4.0), "time": (3.2, 3.7)}
PUBLISHED_ENERGY = "−20 to −99", "up to −26.6, −74.9 and −97.6"
# Percent: the most that 11.8 times fewer requests save if all cost the same, and the published.
EVEN_MOST, ENERGY_MOST = 100 - 100 / 11.8, 99
# Table I and II: syncs, reads, writes, footprint in MB, and the distance's least, most and mean.
PUBLISHED_TRACES = [
    ("Game", 312, 4027, 6657, 5.7, 1, 108, 3.48),
    ("SNS", 2339, 2475, 11198, 6.3, 1, 13, 1.89),
    ("Messenger", 14399, 43663, 15412, 6.6, 1, 16, 1.59),
]


@dataclass(frozen=True)
class Distance:
    """Requests of a trace, and the number of writes to a file between two of its syncs."""

    trace: str
    reads: int
    writes: int
    syncs: int
    without_writes: int
    least: int
    median: float
    most: int
    mean: float


def frames(trace: Trace, percent: int) -> int:
    """FSLRU and NVLRU need a frame of DRAM or more, and two of non-volatile memory."""
    return max(4, trace.frames(percent))


def nvm_sizes(trace: Trace) -> list[int]:
    """Non-volatile memory of the test recordings, in pages; less for those that would fit."""
    return [256, 1024, 4096] if trace.live_pages >= 640 else [16, 64, 256]


def equal_memory(trace: Trace, nvm: int) -> dict[str, tuple[str, int]]:
    """By name: systems of the same DRAM and the same non-volatile memory, and their frames."""
    dram = frames(trace, 10)
    return {
        "no NVM": (LRU, dram),
        "all DRAM": (LRU, dram + nvm),
        "Flush-NVM": (f"flush-nvm:pages={nvm}", dram),
        "hybrid flush": (f"hybrid-flush:pages={nvm}", dram),
        "FSLRU": (f"fslru:dram={round(100 * dram / (dram + nvm), 5)!r}", dram + nvm),
    }


@dataclass(frozen=True)
class Results:
    traces: list[Trace]
    tested: list[Trace]
    by_key: dict[Key, Cell]
    distances: dict[str, Distance]

    def cell(self, trace: Trace, system: str, percent: int, writeback: str = SYNC, device: str = NAND) -> Cell:
        return self.by_key[trace.name, writeback, system, frames(trace, percent), device]

    def apps(self) -> list[Trace]:
        return apps_of(self.traces)

    def statements(self) -> list[Trace]:
        return [trace for trace in self.traces if trace not in self.apps()]


def requests(cell: Cell) -> float:
    return cell.requests


def merged(cell: Cell) -> float:
    """Requests that write, of neighbouring pages each."""
    return cell.device_write_requests


def time_s(profile: str) -> Value:
    return lambda cell: sum(time_parts(cell, profile))


def time_parts(cell: Cell, profile: str) -> tuple[float, float, float]:
    """DRAM, non-volatile memory, storage; seconds."""
    return cell.cost(profile, "dram_s"), cell.nvm_s(profile), cell.storage_read_s + cell.storage_write_s


def energy(reading: str) -> Value:
    return lambda cell: cell.cost(PCM, reading)


def ratios(results: Results, traces: list[Trace], than: str, value: Value, percents: list[int]) -> list[float]:
    """How many times the value of FSLRU another system has, where FSLRU has one."""
    pairs = [
        (value(results.cell(trace, than, percent)), value(results.cell(trace, FSLRU, percent)))
        for trace in traces
        for percent in percents
    ]
    return [other / ours for other, ours in pairs if ours]


def span(numbers: list[float]) -> str:
    return f"{min(numbers):,.2f} … {max(numbers):,.2f}"


def traces(results: Results) -> str:
    """Tables I and II."""
    rows = []
    for name, syncs, reads, written, mb, *distance in PUBLISHED_TRACES:
        least, most, average = distance
        numbers = [count(syncs), count(reads), count(written), f"{mb} MB", "", str(least), "", str(most), f"{average}"]
        rows.append([f"*{name}*", *numbers])
    for trace in results.traces:
        one = results.distances[trace.name]
        rows.append([
            trace.name, count(one.syncs), count(one.reads), count(one.writes),
            f"{trace.live_pages * 4096 / 1e6:,.1f} MB", count(one.without_writes), count(one.least),
            f"{one.median:g}", count(one.most), f"{one.mean:.2f}",
        ])  # fmt: skip
    head = "trace|syncs|reads|writes|footprint|syncs without writes|distance: least|median|most|mean"
    return markdown(head, rows)


def hits(results: Results) -> str:
    def at(trace: Trace, percent: int) -> str:
        return " / ".join(f"{100 * results.cell(trace, system, percent).hit_ratio:.1f}" for system in NAMES)

    rows = [[trace.name, *(at(trace, percent) for percent in (10, *SHOWN, 90))] for trace in results.traces]
    return markdown("LRU / NVLRU / FSLRU, hits in %|10 %|20 %|50 %|90 %", rows)


def requests_table(results: Results) -> str:
    rows = []
    for trace in results.traces:
        for percent in SHOWN:
            for system, name in NAMES.items():
                cell = results.cell(trace, system, percent)
                rows.append([
                    f"**{trace.name}**, {percent} %" if system == LRU else "", name, count(cell.device_reads),
                    count(cell.device_writes - cell.sync_writes), count(cell.sync_writes), f"**{cell.requests:,}**",
                    count(cell.left), count(cell.device_write_requests),
                ])  # fmt: skip
    head = "trace, cache|pages|read|written|sync writes|**all**|left|write requests, merged"
    return markdown(head, rows, text=(0, 1))


def factors(results: Results) -> str:
    rows = []
    values = [
        ("all requests", requests, PUBLISHED["requests"]), ("storage writes", writes, None),
        ("storage writes + pages left", writes_and_left, None), ("write requests, merged", merged, None),
        ("time, `pcm-2016`", time_s(PCM), PUBLISHED["time"]), ("time, `pcm-board`", time_s(BOARD), PUBLISHED["time"]),
    ]  # fmt: skip
    for name, value, published in values:
        for n, than in enumerate((LRU, NVLRU)):
            row = [f"{name}: {NAMES[than]} ÷ FSLRU", f"≤ {published[n]}" if published else ""]
            for group in (results.apps(), results.statements()):
                found = ratios(results, group, than, value, JUDGED)
                row.append(f"{geometric(found):,.2f} ({span(found)})")
            row.append(f"{max(ratios(results, results.traces, than, value, PERCENTS)):,.2f}")
            rows.append(row)
    return markdown("cache ≤ 50 %: mean (least … most)|published|apps|SQLite statements|most, ≤ 90 %", rows)


def by_trace(results: Results) -> str:
    """Ratios of each trace up to half of the footprint."""
    kinds = [(value, than) for value in (requests, writes_and_left, time_s(BOARD)) for than in (LRU, NVLRU)]
    rows = [
        [trace.name, *(span(ratios(results, [trace], than, value, JUDGED)) for value, than in kinds)]
        for trace in results.traces
    ]
    head = "cache ≤ 50 %|requests: LRU ÷ FSLRU|NVLRU ÷ FSLRU|writes + left: LRU ÷ FSLRU|NVLRU ÷ FSLRU"
    return markdown(f"{head}|time, `pcm-board`: LRU ÷ FSLRU|NVLRU ÷ FSLRU", rows)


def times(results: Results) -> str:
    rows = []
    for trace in results.traces:
        for system, name in NAMES.items():
            cell = results.cell(trace, system, 50)
            row = [f"**{trace.name}**" if system == LRU else "", name]
            for profile in (PCM, BOARD):
                parts = time_parts(cell, profile)
                row += [f"{part:,.3f}" for part in (*parts, sum(parts))]
            rows.append(row)
    head = "50 %, seconds|" + "".join(f"|`{profile}`: DRAM|NVM|NAND|all" for profile in (PCM, BOARD))
    return markdown(head, rows, text=(0, 1))


def energies(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        for reading in READINGS:
            for than in (LRU, NVLRU):
                found = [
                    change(energy(reading)(results.cell(trace, FSLRU, percent)),
                           energy(reading)(results.cell(trace, than, percent)))
                    for percent in JUDGED
                ]  # fmt: skip
                row.append(f"{signed(min(found), 0)} … {signed(max(found), 0)}")
        rows.append(row)
    head = "FSLRU, cache ≤ 50 %: change in %"
    for name in READINGS.values():
        head += f"|{name}: against LRU|against NVLRU"
    published = ["*published*", *PUBLISHED_ENERGY, *[""] * (2 * len(READINGS) - 2)]
    return markdown(head, [published, *rows])


def variants(kinds: dict[int, str], head: str) -> Callable[[Results], str]:
    """Storage writes, time and wear with each value of a parameter."""

    def table(results: Results) -> str:
        def shown(cell: Cell) -> str:
            return f"{with_left(cell)}; {time_s(BOARD)(cell):,.2f} s; {cell.nvm_mean_line_writes:,.0f}"

        rows = [
            [trace.name, *(shown(results.cell(trace, system, 50)) for system in kinds.values())]
            for trace in results.traces
        ]
        return markdown("|".join([head, *(f"{value:,}" for value in kinds)]), rows)

    return table


def wear(results: Results) -> str:
    rows = []
    for trace in results.traces:
        cells = (results.cell(trace, system, percent) for percent in SHOWN for system in (NVLRU, FSLRU))
        worn = (f"{cell.nvm_mean_line_writes:,.1f} / {cell.nvm_hottest_line_writes:,}" for cell in cells)
        rows.append([trace.name, *worn])
    head = "writes of a line: mean / hottest"
    return markdown(head + "".join(f"|{percent} %: NVLRU|FSLRU" for percent in SHOWN), rows)


def flushes(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        cells = {system: results.cell(trace, system, 20, SYNC, UFS) for system in (LRU, *BATCHES)}
        row += (f"{cell.flushes:,}; {cell.storage_read_s + cell.storage_write_s:,.2f} s" for cell in cells.values())
        before, after = cells[FSLRU], cells["fslru:batch=32"]
        row.append(f"{signed(change(after.device_writes, before.device_writes))} %")
        rows.append(row)
    head = "20 %: FLUSHes; time on `ufs-3.1`|LRU|NVLRU|NVLRU, `batch=32`|FSLRU|FSLRU, `batch=32`|its writes"
    return markdown(head, rows)


def under_linux(results: Results) -> str:
    rows = []
    for trace in results.traces:
        cells = (results.cell(trace, system, 20, writeback) for writeback in (SYNC, LINUX) for system in NAMES)
        rows.append([trace.name, *map(with_left, cells)])
    head = "20 %: writes + pages left" + "".join(f"|`{mode}`: LRU|NVLRU|FSLRU" for mode in (SYNC, LINUX))
    return markdown(head, rows)


def equal_cells(results: Results, trace: Trace, nvm: int) -> dict[str, Cell]:
    return {
        name: results.by_key[trace.name, LINUX, system, size, NAND]
        for name, (system, size) in equal_memory(trace, nvm).items()
    }


def equal(results: Results) -> str:
    """Systems of equal memory, on the test recordings."""
    rows = []
    for trace in results.tested:
        for n, nvm in enumerate(nvm_sizes(trace)):
            cells = equal_cells(results, trace, nvm)
            with_nvm = [name for name in cells if name not in ("no NVM", "all DRAM")]
            least = min(cells[name].device_writes for name in with_nvm)
            row = [f"**{trace.name}**, {frames(trace, 10):,}" if n == 0 else "", count(nvm)]
            for name, cell in cells.items():
                best = name in with_nvm and cell.device_writes == least
                row.append(f"**{with_left(cell)}**" if best else with_left(cell))
            rows.append(row)
    names = "|".join(equal_memory(results.tested[0], 256))
    return markdown(f"recording, DRAM|NVM|{names}", rows)


def equal_sentences(results: Results) -> str:
    names = ["Flush-NVM", "hybrid flush", "FSLRU"]
    places = [equal_cells(results, trace, nvm) for trace in results.tested for nvm in nvm_sizes(trace)]
    said = []
    for what, value in (("storage writes", writes), ("storage writes + pages left", writes_and_left)):
        least = {name: 0 for name in names}
        for cells in places:
            best = min(value(cells[name]) for name in names)
            for name in names:
                least[name] += value(cells[name]) == best
        every = {name: [-change(value(cells[name]), value(cells["no NVM"])) for cells in places] for name in names}
        said.append(
            f"The fewest {what}, ties included: "
            + ", ".join(f"{name} in {least[name]} of {len(places)} cells" for name in names)
            + ". Against a page cache without non-volatile memory they save, as mean and median over cells, "
            + listed(f"{mean(saved):.1f} and {median(saved):.1f} % ({name})" for name, saved in every.items())
            + "."
        )
    better = sum(
        min(writes_and_left(cells[name]) for name in names) < writes_and_left(cells["all DRAM"]) for cells in places
    )
    both = [sum(cells[name].device_reads for cells in places) for name in ("FSLRU", "Flush-NVM")]
    pairs = [(cells["FSLRU"].device_reads, cells["Flush-NVM"].device_reads) for cells in places]
    said.append(
        f"FSLRU reads fewer pages from storage than Flush-NVM in {sum(ours < other for ours, other in pairs)} of "
        f"{len(pairs)} cells and more in {sum(ours > other for ours, other in pairs)}; over all cells "
        f"together its reads change by {signed(change(*both))} %."
    )
    said.append(
        f"In {better} of {len(places)} cells the best of the three writes less, pages left included, than a page cache "
        "that has that much more DRAM instead."
    )
    return bullets(said)


def readings(results: Results) -> str:
    """Each published claim under each reading."""
    rows = []

    def add(claim: str, published: str, reading: str, than: str, value: Value) -> None:
        row = [claim, published, reading]
        for group in (results.apps(), results.statements()):
            found = ratios(results, group, than, value, JUDGED)
            above = sum(one > 1 for one in found)
            holds = "yes" if geometric(found) > 1 and 2 * above > len(found) else "no"
            row.append(f"{holds}: {geometric(found):,.2f} ({span(found)}), {above} of {len(found)}")
        rows.append(row)

    for kind, claim, value in (
        ("requests", "requests", requests), ("time", "time, `pcm-board`", time_s(BOARD)),
    ):  # fmt: skip
        most, most_nvlru = PUBLISHED[kind]
        add(f"{claim}: LRU ÷ FSLRU", f"≤ {most}", "all", LRU, value)
        for reading, system in OLD.items():
            add(f"{claim}: NVLRU ÷ FSLRU", f"≤ {most_nvlru}", reading, system, value)
    for name, reading in READINGS.items():
        add("energy: LRU ÷ FSLRU", "1.25 to 100", reading, LRU, energy(name))
    for name, reading in READINGS.items():
        for old, system in OLD.items():
            add("energy: NVLRU ÷ FSLRU", "≤ 41", f"{reading}; {old[0]}", system, energy(name))
    head = "claim|published|reading|apps: direction, mean (least … most), cells above 1|SQLite statements"
    return markdown(head, rows, text=(0, 2, 3, 4))


def verdict(results: Results) -> str:
    def cells(than: str, value: Value) -> str:
        found = ratios(results, results.traces, than, value, JUDGED)
        return f"{sum(one > 1 for one in found)} of {len(found)} cells ({span(found)} times)"

    freed, ages, written = OLD.values()
    saved = [100 - 100 / one for one in ratios(results, results.traces, LRU, energy("energy_by_time_j"), JUDGED)]
    return bullets([
        f"**Conclusion.** FSLRU sends fewer requests than LRU in {cells(LRU, requests)}, as published. It sends fewer "
        "than NVLRU, as published, if a version that an fsync has superseded stays in NVLRU's queue until it is the "
        f"oldest: in {cells(ages, requests)}, and in {cells(written, requests)} if it is written then, too. If its "
        f"frame is freed at the fsync, which the paper does not say, NVLRU is level: {cells(freed, requests)}.",
        f"**Energy.** With 3.3 mJ for each page of storage, 11.8 times fewer requests can save {EVEN_MOST:.1f} % at "
        f"most, and the paper shows {ENERGY_MOST} %. So it must have counted a write of storage for more than a read. "
        f"In proportion to their times, FSLRU saves {min(saved):.0f} to {max(saved):.0f} % against LRU (published: 20 "
        "to 99 %).",
    ])  # fmt: skip


def conclusion(results: Results) -> str:
    apps, statements = results.apps(), results.statements()

    def most(than: str, value: Value, traces: list[Trace] = results.traces) -> str:
        found = {trace.name: max(ratios(results, [trace], than, value, JUDGED)) for trace in traces}
        best = max(found, key=found.__getitem__)
        return f"{found[best]:,.2f} times (`{best}`)"

    def wins(than: str, value: Value, traces: list[Trace]) -> str:
        found = ratios(results, traces, than, value, JUDGED)
        return f"{sum(one > 1 for one in found)} of {len(found)}"

    def better_energy(reading: str, than: str) -> str:
        found = ratios(results, results.traces, than, energy(reading), JUDGED)
        return f"{sum(one > 1 for one in found)} of {len(found)}"

    def sync_share(traces: list[Trace]) -> str:
        cells = [results.cell(trace, LRU, percent) for trace in traces for percent in JUDGED]
        return f"{100 * median(cell.sync_writes / cell.requests for cell in cells):.0f} %"

    fewer_hits = [
        100 * (results.cell(trace, LRU, percent).hit_ratio - results.cell(trace, NVLRU, percent).hit_ratio)
        for trace in apps
        for percent in JUDGED
    ]
    flushed = sum(results.cell(trace, FSLRU, 20).flushes for trace in results.traces)
    synced = sum(results.cell(trace, LRU, 20).flushes for trace in results.traces)
    batched = sum(results.cell(trace, "fslru:batch=32", 20).flushes for trace in results.traces)
    return bullets([
        f"**Storage requests: the published ranking against LRU {holds(results, LRU, requests)}.** FSLRU sends fewer "
        f"in {wins(LRU, requests, apps)} cells of the apps and {wins(LRU, requests, statements)} of the SQLite "
        f"statements (cache ≤ 50 % of the footprint). LRU sends at most {most(LRU, requests, statements)} as many on "
        f"the statements and {most(LRU, requests, apps)} on the apps (published: 11.8 times). It writes at most "
        f"{most(LRU, writes, apps)} as many pages on the apps; with the pages left counted as written, "
        f"{most(LRU, writes_and_left, apps)}. FSLRU can save little but sync writes, which are {sync_share(apps)} of "
        f"LRU's requests on the apps and {sync_share(statements)} on the statements (medians).",
        f"**This is a count of pages.** LRU's syncs write neighbouring pages, which a device gets as one request; "
        f"FSLRU evicts pages one by one. In merged requests FSLRU writes less often than LRU in "
        f"{wins(LRU, merged, apps)} cells of the apps and {wins(LRU, merged, statements)} of the statements.",
        f"**Against NVLRU it {holds(results, NVLRU, requests)} where superseded versions are freed** (reading A; the "
        "others are below). FSLRU sends fewer requests in "
        f"{wins(NVLRU, requests, apps)} cells of the apps and {wins(NVLRU, requests, statements)} of the statements. "
        f"NVLRU sends at most {most(NVLRU, requests)} as many (published: 4 times). The frames that its copies take "
        f"cost NVLRU {median(fewer_hits):.1f} points of LRU's hit ratio on the apps (median; at most "
        f"{max(fewer_hits):.1f}).",
        f"**Time** (`pcm-board`) is less than LRU's in {wins(LRU, time_s(BOARD), results.traces)} cells; LRU takes at "
        f"most {most(LRU, time_s(BOARD))} as long, on the apps {most(LRU, time_s(BOARD), apps)} (published: 3.2). It "
        f"is less than NVLRU's in {wins(NVLRU, time_s(BOARD), results.traces)}; NVLRU takes at most "
        f"{most(NVLRU, time_s(BOARD))} as long (published: 3.7).",
        "**Energy depends on how Table III is read.** FSLRU takes less than LRU in "
        f"{better_energy('energy_quotient_w', LRU)} cells by the paper's quotient, in {better_energy('energy_j', LRU)} "
        f"in joules with 3.3 mA at 3.3 V, in {better_energy('energy_mj_page_j', LRU)} with 3.3 mJ a page, and in "
        f"{better_energy('energy_by_time_j', LRU)} with 3.3 mJ a page written and a tenth for a page read.",
        f"**FLUSHes are a price that the paper leaves out.** At 20 %, LRU sends {synced:,} FLUSHes over all traces, "
        f"one a sync. FSLRU sends {flushed:,}, most of them before it frees a durable frame that it wrote to storage; "
        f"with `batch=32` it sends {batched:,}.",
    ])  # fmt: skip


def holds(results: Results, than: str, value: Value) -> str:
    """Whether FSLRU is better, cell by cell."""
    found = ratios(results, results.traces, than, value, JUDGED)
    share = sum(one > 1 for one in found) / len(found)
    if share == 1:
        return "holds"
    return "holds in most cells" if share > 0.5 else "does not hold"


TABLES = {
    **{of.__name__: of for of in (
        conclusion, verdict, readings, traces, factors, by_trace, hits, times, energies, wear, flushes, equal,
    )},
    "requests": requests_table,
    "dram": variants(DRAM, "50 %, DRAM in percent"),
    "atomic": variants(ATOMIC, "50 %, threshold in bytes"),
    "linux": under_linux,
    "equal_text": equal_sentences,
}  # fmt: skip
