"""Tables and sentences of RESULTS.md."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median

from common.nvm import Cell, Key, Value, apps_of, with_left, writes, writes_and_left
from common.pages import PAGE_BYTES, bullets, change, count, listed, markdown, signed
from common.traces import Trace
from rewritten import Rewritten

WRITEBACK = "hf"
DEVICE, MEMORY = "ufs-3.1", "optane"
STORAGE = "storage"
NVM, HYBRID = "flush-nvm:pages={},flush=no", "hybrid-flush:pages={},flush=no"
FIFO = "flush-nvm:pages={},flush=no,order=fifo"
# Readings of points that the paper omits: the form of its traces, and the order of Flush-NVM.
ALONE = f"{WRITEBACK} --removals ignore"
READINGS = {
    "A: removals seen, LRU": (WRITEBACK, NVM),
    "B: removals seen, FIFO": (WRITEBACK, FIFO),
    "C: reads and writes alone, LRU": (ALONE, NVM),
    "D: reads and writes alone, FIFO": (ALONE, FIFO),
}
FLUSHED = ["flush-nvm:pages={}", "hybrid-flush:pages={}"]
SHARE, FIXED = "10 %", "64 MiB"
# The greatest throughput of UFS 3.1 in order (Samsung, 2020-03-17), bytes a second. The time of the
# memory is already that of its bytes at its greatest throughput.
READ_BYTES_PER_S, WRITE_BYTES_PER_S = 2.1e9, 1.2e9
# Lim & Bahn, IEEE Access 2021, §IV: less than Flush-storage and than Flush-NVM, percent.
PUBLISHED = {"writes": ((21.7, 48.1), (10.8, 18.1)), "time": ((18.5, 41.0), (7.6, 16.0))}
# The knee is the smallest buffer that brings this share of the largest saving.
KNEE = 0.9


def dram_frames(trace: Trace) -> dict[str, int]:
    return {SHARE: trace.frames(10), FIXED: 64 * 2**20 // PAGE_BYTES}


def buffers(trace: Trace) -> list[int]:
    """The sizes of the experiment, in pages; a sixteenth for traces that would fit into them."""
    unit = 64 if trace.live_pages >= 640 else 4
    return [unit << n for n in range(7)]


def middle(trace: Trace) -> int:
    return buffers(trace)[4]


@dataclass(frozen=True)
class Place:
    trace: Trace
    dram: str
    pages: int


@dataclass(frozen=True)
class Results:
    traces: list[Trace]
    by_key: dict[Key, Cell]
    rewritten: dict[str, Rewritten]  # by trace

    def cell(self, place: Place, system: str, writeback: str = WRITEBACK) -> Cell:
        frames = dram_frames(place.trace)[place.dram]
        return self.by_key[place.trace.name, writeback, system.format(place.pages), frames, DEVICE]

    def places(self, trace: Trace, dram: str) -> list[Place]:
        return [Place(trace, dram, pages) for pages in buffers(trace)]

    @cached_property
    def apps(self) -> list[Trace]:
        """Traces of whole apps, with the sizes of the experiment."""
        return apps_of(self.traces)

    @cached_property
    def statements(self) -> list[Trace]:
        return [trace for trace in self.traces if trace not in self.apps]

    def first_writes(self, place: Place) -> int:
        """Pages that hybrid flush writes past its buffer: written once since they entered DRAM."""
        plain, nvm, hybrid = (self.cell(place, system) for system in (STORAGE, NVM, HYBRID))
        # The three write back the same pages at the same times.
        if plain.device_writes != nvm.nvm_writes:
            raise RuntimeError(f"{place}: Flush-NVM gets other pages than storage would")
        return plain.device_writes - hybrid.nvm_writes


def time_s(cell: Cell) -> float:
    """On the modelled device."""
    return cell.storage_read_s + cell.storage_write_s + cell.nvm_s(MEMORY)


def paper_time_s(cell: Cell) -> float:
    """Bytes by the greatest throughput, as the paper computes."""
    read_s, write_s = paper_split(cell)
    return read_s + write_s + cell.nvm_s(MEMORY)


def paper_split(cell: Cell) -> tuple[float, float]:
    return cell.device_reads * PAGE_BYTES / READ_BYTES_PER_S, cell.device_writes * PAGE_BYTES / WRITE_BYTES_PER_S


@dataclass(frozen=True)
class Comparison:
    """Hybrid flush beside another system, over traces and sizes of the buffer."""

    pairs: list[tuple[float, float, Place]]  # hybrid flush and the other

    @property
    def fewer(self) -> int:
        return sum(hybrid < other for hybrid, other, _ in self.pairs)

    @property
    def more(self) -> int:
        return sum(hybrid > other for hybrid, other, _ in self.pairs)

    @cached_property
    def saved(self) -> list[tuple[float, Place]]:
        """Percent that hybrid flush saves, where the other has something to save."""
        return [(-change(hybrid, other), place) for hybrid, other, place in self.pairs if other]

    @cached_property
    def percents(self) -> list[float]:
        return [percent for percent, _ in self.saved]

    def sentence(self) -> str:
        most, at = max(self.saved, key=lambda one: one[0])
        return (
            f"{signed(-mean(self.percents))} % on average (median {signed(-median(self.percents))} %) and "
            f"{signed(-most)} % at best (`{at.trace.name}`)"
        )


def compare(
    results: Results, traces: list[Trace], dram: str, than: str, value: Value, writeback: str = WRITEBACK
) -> Comparison:
    places = [place for trace in traces for place in results.places(trace, dram)]
    return compare_at(results, places, than, value, writeback)


def compare_at(results: Results, places: list[Place], than: str, value: Value, writeback: str) -> Comparison:
    cells = [(results.cell(at, HYBRID, writeback), results.cell(at, than, writeback), at) for at in places]
    return Comparison([(value(hybrid), value(other), at) for hybrid, other, at in cells])


def read_as(results: Results, reading: str, baseline: str, value: Value) -> Comparison:
    """The apps with DRAM of 10 % and buffers up to the middle size, under one reading."""
    writeback, nvm = READINGS[reading]
    places = [place for trace in results.apps for place in results.places(trace, SHARE)]
    places = [place for place in places if place.pages <= middle(place.trace)]
    than = STORAGE if baseline == "Flush-storage" else nvm
    return compare_at(results, places, than, value, writeback)


def readings(results: Results) -> str:
    """Each published claim under each reading."""
    rows = []
    for kind, name, value in (
        ("writes", "storage writes", writes), ("writes", "storage writes + pages left", writes_and_left),
        ("time", "time, greatest throughput", paper_time_s), ("time", "time, UFS 3.1 modelled", time_s),
    ):  # fmt: skip
        for baseline, (average, most) in zip(("Flush-storage", "Flush-NVM"), PUBLISHED[kind]):
            for reading in READINGS:
                if baseline == "Flush-storage" and reading.endswith("FIFO"):
                    continue
                found = read_as(results, reading, baseline, value)
                holds = "yes" if mean(found.percents) > 0 and 2 * found.fewer > len(found.pairs) else "no"
                rows.append([
                    f"{name}, less than {baseline}", f"−{average} (≤ −{most})",
                    reading.removesuffix(", LRU") if baseline == "Flush-storage" else reading, holds,
                    f"{signed(-mean(found.percents))}; {signed(-median(found.percents))} "
                    f"({signed(-min(found.percents))} … {signed(-max(found.percents))})",
                    f"{found.fewer} of {len(found.pairs)}",
                ])  # fmt: skip
    head = "claim|published, %|reading|direction|ours, %: mean; median (least … most)|cells"
    return markdown(head, rows, text=(0, 2, 3))


def verdict(results: Results) -> str:
    def cells(reading: str, baseline: str) -> str:
        found = read_as(results, reading, baseline, writes)
        return f"{found.fewer} of {len(found.pairs)} cells ({signed(-mean(found.percents))} % on average)"

    a, b, c, d = READINGS
    return bullets([
        "**Conclusion.** On traces of the paper's form, reads and writes alone, hybrid flush writes less than "
        f"Flush-storage in {cells(c, 'Flush-storage')} (published: −21.7 %), and less than Flush-NVM in "
        f"{cells(d, 'Flush-NVM')} if pages leave that by FIFO, and in {cells(c, 'Flush-NVM')} if by LRU (published: "
        "−10.8 %). On traces that also tell which files are deleted, it writes less than Flush-storage in "
        f"{cells(a, 'Flush-storage')}, but less than Flush-NVM in only {cells(a, 'Flush-NVM')} by LRU and "
        f"{cells(b, 'Flush-NVM')} by FIFO: a page that is deleted soon never leaves the buffer of Flush-NVM, and "
        "hybrid flush has written it."
    ])  # fmt: skip


def traces(results: Results) -> str:
    rows = []
    for trace in results.traces:
        hits = [results.cell(results.places(trace, dram)[0], STORAGE) for dram in (SHARE, FIXED)]
        pages = results.rewritten[trace.name]
        rows.append([
            trace.name, trace.split, count(hits[0].accesses), count(trace.live_pages), count(pages.pages),
            count(pages.more_than_once), *(f"{100 * cell.hit_ratio:.1f}" for cell in hits),
        ])  # fmt: skip
    head = "trace|split|page accesses|peak live pages|pages written back|more than once"
    return markdown(f"{head}|hits with 10 %, %|hits with 64 MiB, %", rows, text=(0, 1))


def written(dram: str) -> Callable[[Results], str]:
    """Figure 8 in numbers."""

    def table(results: Results) -> str:
        text = ""
        for group in (results.apps, results.statements):
            rows = []
            for trace in group:
                places = results.places(trace, dram)
                plain = results.cell(places[0], STORAGE)
                rows.append([f"**{trace.name}** Flush-storage: {with_left(plain)}", *[""] * 7])
                for name, system in (("Flush-NVM", NVM), ("hybrid", HYBRID)):
                    rows.append([name, *(with_left(results.cell(place, system)) for place in places)])
            sizes = "|".join(f"{pages:,}" for pages in buffers(group[0]))
            text += "\n" * bool(text) + markdown(f"buffer, pages|{sizes}", rows)
        return text

    return table


def summary(results: Results) -> str:
    """Averages over traces and sizes, beside the published ones."""
    rows = []
    values = (
        ("writes", "storage writes", writes), ("writes", "storage writes + pages left", writes_and_left),
        ("time", "time, UFS 3.1 modelled", time_s), ("time", "time, greatest throughput", paper_time_s),
    )  # fmt: skip
    for kind, name, value in values:
        for baseline, than, (average, most) in zip(("Flush-storage", "Flush-NVM"), (STORAGE, NVM), PUBLISHED[kind]):
            row = [f"{name}, against {baseline}", f"{average} (≤ {most})"]
            for group in (results.apps, results.statements):
                for dram in (SHARE, FIXED):
                    saved = compare(results, group, dram, than, value).percents
                    ends = f"{signed(min(saved))} … {signed(max(saved))}"
                    row.append(f"{signed(mean(saved))}; {signed(median(saved))} ({ends})")
            rows.append(row)
    head = "hybrid flush saves, %: mean; median (least … most)|published mean (most)|apps, DRAM 10 %|apps, 64 MiB"
    return markdown(head + "|SQLite statements, DRAM 10 %|SQLite statements, 64 MiB", rows)


def lost_from(results: Results, trace: Trace, dram: str) -> int | None:
    """The smallest buffer from which on hybrid flush writes more than Flush-NVM at every size."""
    found = None
    for place in reversed(results.places(trace, dram)):
        if results.cell(place, HYBRID).device_writes <= results.cell(place, NVM).device_writes:
            break
        found = place.pages
    return found


def crossover(results: Results) -> str:
    rows = []
    for trace in results.traces:
        row = [trace.name]
        for dram in (SHARE, FIXED):
            pages = lost_from(results, trace, dram)
            hot = results.rewritten[trace.name].more_than_once
            row += ["never", ""] if pages is None else [count(pages), f"{100 * pages / hot:,.0f}" if hot else "–"]
        rows.append(row)
    head = "trace|DRAM 10 %: hybrid loses from, pages|share of the rewritten pages, %"
    return markdown(f"{head}|64 MiB: from, pages|share of the rewritten pages, %", rows)


def crossover_text(results: Results) -> str:
    """Whether the number of rewritten pages predicts the crossover."""
    shares = {}
    for trace in results.traces:
        pages = lost_from(results, trace, SHARE)
        if pages is not None and pages > buffers(trace)[0]:
            shares[trace.name] = 100 * pages / results.rewritten[trace.name].more_than_once
    least, most = (side(shares, key=shares.__getitem__) for side in (min, max))
    return bullets(
        [
            "The smallest size of a trace means that hybrid flush writes more with every buffer. Where it wins with "
            f"some size (DRAM of 10 %), the crossover is at {shares[least]:.0f} % (`{least}`) to {shares[most]:.0f} % "
            f"(`{most}`) of the rewritten pages: their number does not predict it."
        ]
    )


def origins(results: Results) -> str:
    """Where storage writes come from, at one size."""
    rows = []
    for trace in results.traces:
        place = Place(trace, SHARE, middle(trace))
        nvm, hybrid = results.cell(place, NVM), results.cell(place, HYBRID)
        first = results.first_writes(place)
        rows.append([
            f"{trace.name}, {place.pages:,}", count(results.cell(place, STORAGE).device_writes),
            count(nvm.device_writes), count(deleted_at_least(results, place)), count(nvm.left),
            count(first), count(hybrid.device_writes - first), count(hybrid.left),
        ])  # fmt: skip
    head = "trace, buffer|Flush-storage: writes|Flush-NVM: writes|deleted in the buffer, at least|left"
    return markdown(f"{head}|hybrid: writes past the buffer|out of the buffer|left", rows)


def deleted_at_least(results: Results, place: Place) -> int:
    """Pages that were deleted while Flush-NVM had them in its buffer.

    Each page that is written back leaves the buffer for storage, is left there, or is deleted.
    """
    cell = results.cell(place, NVM)
    return max(0, results.rewritten[place.trace.name].pages - cell.device_writes - cell.nvm_left)


def knee(results: Results, trace: Trace, dram: str, system: str) -> tuple[int, float, float]:
    """The knee in pages, the saving there, and the largest, both in percent of Flush-storage."""
    saved = {
        place.pages: -change(results.cell(place, system).device_writes, results.cell(place, STORAGE).device_writes)
        for place in results.places(trace, dram)
    }
    most = max(saved.values())
    pages = next(pages for pages, percent in saved.items() if percent >= KNEE * most)
    return pages, saved[pages], most


def verdicts(results: Results) -> str:
    def sentence(trace: Trace) -> str:
        pages, percent, most = knee(results, trace, SHARE, HYBRID)
        nvm = knee(results, trace, SHARE, NVM)
        beside = f"Flush-NVM has its knee at {nvm[0]:,} pages, {signed(-nvm[1], 0)} % (largest {signed(-nvm[2], 0)} %)."
        if most < 1:
            return f"`{trace.name}`: no buffer saves 1 % of the writes with hybrid flush. {beside}"
        left = results.cell(Place(trace, SHARE, pages), HYBRID).left
        return (
            f"`{trace.name}`: with {pages:,} pages of NVM this workload writes {percent:.0f} % less, and has "
            f"{left:,} pages left; the knee is at {pages:,} (largest saving {most:.0f} %). {beside}"
        )

    return bullets(map(sentence, results.traces))


def times(results: Results) -> str:
    """Figure 9 in numbers, at one size, in milliseconds."""
    rows = []
    for trace in results.traces:
        place = Place(trace, SHARE, middle(trace))
        for name, system in (("Flush-storage", STORAGE), ("Flush-NVM", NVM), ("hybrid", HYBRID)):
            cell = results.cell(place, system)
            nvm = 1000 * cell.nvm_s(MEMORY)
            split = [1000 * part for part in (cell.storage_read_s, cell.storage_write_s)]
            simple = [1000 * part for part in paper_split(cell)]
            shown = [f"{part:,.1f}" for part in (*split, nvm, sum(split) + nvm, *simple, sum(simple) + nvm)]
            rows.append([f"**{trace.name}**, {place.pages:,}" if system == STORAGE else "", name, *shown])
    head = "trace, buffer|ms|read|write|NVM|**all**|read, greatest throughput|write|**all**"
    return markdown(head, rows, text=(0, 1))


def flushes(results: Results) -> str:
    rows = []
    for trace in results.traces:
        place = Place(trace, SHARE, middle(trace))
        row = [trace.name, count(place.pages), count(results.cell(place, STORAGE).flushes)]
        for without, with_flush in zip((NVM, HYBRID), FLUSHED):
            no, yes = results.cell(place, without), results.cell(place, with_flush)
            row += [count(no.flushes), count(yes.flushes), signed(change(time_s(yes), time_s(no)))]
        rows.append(row)
    head = (
        "trace|buffer|Flush-storage: FLUSHes|Flush-NVM, `flush=no`|`flush=yes`|time, %|hybrid, `flush=no`|`flush=yes`"
    )
    return markdown(f"{head}|time, %", rows)


def conclusion(results: Results) -> str:
    def apps(than: str, value: Value, dram: str) -> Comparison:
        return compare(results, results.apps, dram, than, value)

    def named(some: list[Trace]) -> str:
        return listed(f"`{trace.name}`" for trace in some) if some else "no trace"

    plain = [compare(results, results.traces, dram, STORAGE, writes) for dram in (SHARE, FIXED)]
    fewer, cells = sum(one.fewer for one in plain), sum(len(one.pairs) for one in plain)
    nvm = apps(NVM, writes, SHARE)
    nvm_64 = apps(NVM, writes, FIXED)
    with_left = apps(NVM, writes_and_left, SHARE)
    losses = [place for hybrid, other, place in nvm.pairs if hybrid > other]
    by_first = sum(results.first_writes(at) >= results.cell(at, NVM).device_writes for at in losses)
    losing = {trace.name: lost_from(results, trace, SHARE) for trace in results.traces}
    everywhere = [trace for trace in results.traces if losing[trace.name] == buffers(trace)[0]]
    later = [trace for trace in results.traces if losing[trace.name] and trace not in everywhere]
    never = [trace for trace in results.traces if losing[trace.name] is None]
    return bullets([
        f"**Against Flush-storage the published ranking holds**: hybrid flush writes fewer pages in {fewer} of "
        f"{cells} cells. With DRAM of 10 % of the footprint the writes of the apps change by "
        f"{apps(STORAGE, writes, SHARE).sentence()}, with 64 MiB by {apps(STORAGE, writes, FIXED).sentence()} "
        "(published: −21.7 % on average, −48.1 % at best).",
        f"**Against Flush-NVM it does not hold where removals are seen** (reading A below, buffers of all sizes; see "
        f"the table of readings for the others). Hybrid flush writes fewer pages in {nvm.fewer} of "
        f"{len(nvm.pairs)} cells of the apps with DRAM of 10 % and more in {nvm.more}; with 64 MiB fewer in "
        f"{nvm_64.fewer} and more in {nvm_64.more}. The writes change by {nvm.sentence()} with 10 % "
        "(published: −10.8 % on average, −18.1 % at best). The mean is large because Flush-NVM writes almost nothing "
        "with a large buffer; cells in which it writes nothing are left out of the percentages.",
        f"With DRAM of 10 %, hybrid flush writes more than Flush-NVM with every buffer on {named(everywhere)}; from "
        f"some size on, on {named(later)}."
        + (f" On {named(never)} it writes no more with the largest buffer." if never else ""),
        f"**The reason is the first write-back**: in {by_first} of the {len(losses)} cells of the apps in which hybrid "
        "flush loses, the pages that it writes past its buffer, those written once since they entered DRAM, are "
        "alone at least as many as all writes of Flush-NVM.",
        "**Part of what Flush-NVM saves is only late**: its buffer is full at the end. With the pages left counted as "
        f"written, hybrid flush writes less than Flush-NVM in {with_left.fewer} of {len(with_left.pairs)} cells of "
        f"the apps with 10 %, and the median change is {signed(-median(with_left.percents))} %.",
        "**Time** of the apps, with DRAM of 10 %, on the modelled UFS 3.1: "
        f"{apps(STORAGE, time_s, SHARE).sentence()} against Flush-storage; {apps(NVM, time_s, SHARE).sentence()} "
        "against Flush-NVM. As the paper computes time, bytes by greatest throughput: "
        f"{apps(STORAGE, paper_time_s, SHARE).sentence()}; {apps(NVM, paper_time_s, SHARE).sentence()}. Published: "
        "−18.5 % on average and −41.0 % at best against Flush-storage, −7.6 and −16.0 % against Flush-NVM.",
    ])  # fmt: skip


TABLES = {
    **{of.__name__: of for of in (
        conclusion, traces, summary, verdict, readings, verdicts, crossover, crossover_text, origins, times, flushes,
    )},
    "written_10": written(SHARE),
    "written_64": written(FIXED),
}  # fmt: skip
