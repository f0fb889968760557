"""Markdown tables between the markers of RESULTS.md."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from cells import Cell, Time, Trace
from published import PAGES_PER_MB, SIZES_MB, Published

MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Results:
    published: Published
    policies: list[str]  # the paper's that were run, in its order
    readings: list[str]  # other readings of some of them
    beyond: list[str]
    traces: list[Trace]
    cells: dict[tuple[str, str, int], Cell]  # by trace, policy, frames
    times: dict[tuple[str, str, int, str], Time]  # by trace, policy, frames, device

    def name(self, policy: str) -> str:
        base, colon, parameters = policy.partition(":")
        return self.published.names.get(base, base) + colon + parameters

    def sizes(self, trace: Trace) -> list[int]:
        """In frames, ascending."""
        return sorted({frames for kind in sizes(trace, self.published) for frames in kind})

    def size_name(self, trace: Trace, frames: int) -> str:
        papers, shares = sizes(trace, self.published)
        if frames in papers:
            return f"{SIZES_MB[papers.index(frames)]} MB" + (", all fits" if frames >= trace.pages else "")
        share = self.published.share_of_w3(SIZES_MB[shares.index(frames)])
        return f"{share:.0%} ({frames / PAGES_PER_MB:.1f} MB)"


def sizes(trace: Trace, published: Published) -> tuple[list[int], list[int]]:
    """The paper's sizes in frames, and sizes with the same share of this trace as of W3."""
    papers = [mb * PAGES_PER_MB for mb in SIZES_MB]
    return papers, [max(1, round(trace.pages * published.share_of_w3(mb))) for mb in SIZES_MB]


def ends(results: Results, trace: Trace) -> list[int]:
    """The smallest and the largest size of both kinds."""
    papers, shares = sizes(trace, results.published)
    return [papers[0], papers[-1], shares[0], shares[-1]]


def fill(document: str, results: Results) -> str:
    """The document with every marked table replaced."""
    filled = MARKED.sub(lambda found: found[1] + TABLES[found[2]](results) + found[3], document)
    unused = TABLES.keys() - {name for _, name, _ in MARKED.findall(document)}
    if unused:
        raise ValueError(f"RESULTS.md has no place for: {', '.join(sorted(unused))}")
    return filled


def markdown(head: list[str], rows: list[list[str]], text: tuple[int, ...] = (0,)) -> str:
    """Columns that are not `text` are numbers."""
    lines = [head, ["---" if n in text else "---:" for n in range(len(head))], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def traces(results: Results) -> str:
    """Table 3."""
    rows = []
    for load in results.published.workloads:
        mib = load.pages / PAGES_PER_MB
        rows.append([
            f"*{load.name}* {load.what}", "", count(load.reads), f"{load.reads / PAGES_PER_MB:,.1f}",
            count(load.writes), f"{load.writes / PAGES_PER_MB:,.1f}", f"{load.cold_miss_ratio:.2f}", f"≈ {mib:,.0f}",
        ])  # fmt: skip
    for trace in results.traces:
        infinite = results.cells[trace.name, "lru", trace.pages]
        kind = f"{trace.format}, {trace.space}, {trace.time}"
        rows.append([
            trace.name, kind, count(infinite.reads), f"{infinite.reads / PAGES_PER_MB:,.1f}",
            count(infinite.writes), f"{infinite.writes / PAGES_PER_MB:,.1f}", f"{1 - infinite.hit_ratio:.2f}",
            f"{trace.pages / PAGES_PER_MB:,.1f}",
        ])  # fmt: skip
    head = "trace|kind|page reads|MiB|page writes|MiB|cold-miss ratio|touches, MiB"
    return markdown(head.split("|"), rows, text=(0, 1))


def published(results: Results) -> str:
    """Table 1, and numbers derived from it."""
    rows = []
    for mb, cells in results.published.table1.items():
        def row(title: str, show: Callable) -> None:
            rows.append([title, *(show(cell) for cell in cells.values())])

        row(f"**{mb} MB** hit ratio", lambda cell: f"{cell.hit_ratio:.4f}")
        row("reads", lambda cell: count(cell.reads))
        row("writes", lambda cell: count(cell.writes))
        row("elapsed, s", lambda cell: f"{cell.elapsed_s:.1f}")
        row("*cost model, s*", lambda cell: f"{cell.cost_s:.1f}")
        row("*misses*", lambda cell: count(cell.misses))
        row("*drained, at least*", lambda cell: share(cell.drained_at_least, cell.writes))
    return markdown(["W3", *(results.name(policy) for policy in results.published.table1[4])], rows)


def ours(results: Results) -> str:
    """Table 1 of each trace."""
    text = ""
    columns = results.policies + results.beyond
    for trace in results.traces:
        rows = []
        for frames in ends(results, trace):
            def row(title: str, show: Callable[[Cell], str]) -> None:
                cells = (results.cells[trace.name, policy, frames] for policy in columns)
                rows.append([title, *map(show, cells)])

            row(f"**{results.size_name(trace, frames)}** hit ratio", lambda cell: f"{cell.hit_ratio:.4f}")
            row("reads", lambda cell: count(cell.device_reads))
            row("writes", lambda cell: count(cell.device_writes))
            row("of them drained", lambda cell: share(cell.drained, cell.device_writes))
            row("not sequential", lambda cell: share(cell.nonsequential, cell.device_writes))
        text += f"\n{markdown([f'**{trace.name}**', *map(results.name, columns)], rows)}"
    return text + "\n"


def spatialclock(results: Results) -> str:
    """SpatialClock against LRU, at all sizes with evictions and at one without."""
    rows = []
    for trace in results.traces:
        sizes = results.sizes(trace)
        evicting = [frames for frames in sizes if frames < trace.pages]
        for frames in evicting + [frames for frames in sizes if frames >= trace.pages][:1]:
            lru = results.cells[trace.name, "lru", frames]
            row = [f"{trace.name}, {results.size_name(trace, frames)}", f"{lru.hit_ratio:.4f}"]
            clocks = [results.cells[trace.name, policy, frames] for policy in READINGS_OF_SPATIALCLOCK]
            row += [points(clock, lru) for clock in clocks]
            row += [count(lru.device_writes)]
            row += [change(clock.device_writes, lru.device_writes) for clock in clocks]
            row += [count(lru.nonsequential)]
            row += [change(clock.nonsequential, lru.nonsequential) for clock in clocks]
            rows.append(row)
    head = "trace, cache|hit ratio LRU|SC, points|set|writes LRU|SC|set|not sequential LRU|SC|set"
    return markdown(head.split("|"), rows)


READINGS_OF_SPATIALCLOCK = ["spatialclock", "spatialclock:insert_ref=1"]


def order(results: Results) -> str:
    """The policies of Figure 9, from the fewest to the most non-sequential writes."""
    elapsed_s = results.published.elapsed_s()
    def line(values: dict[str, float]) -> str:
        return ", ".join(f"{results.name(policy)} {values[policy]:,.0f}" for policy in sorted(values, key=values.get))

    rows = [["*W3*, 64 MB: seconds on microSD", "", line(elapsed_s)]]
    for trace in results.traces:
        for frames in ends(results, trace)[1::2]:
            values = {
                policy: float(results.cells[trace.name, policy, frames].nonsequential) for policy in results.policies
            }
            published_s = [elapsed_s[policy] for policy in values]
            rho = rank_correlation(published_s, list(values.values()))
            rows.append([f"{trace.name}, {results.size_name(trace, frames)}", f"{rho:+.2f}", line(values)])
    return markdown(["trace, cache", "ρ", "order"], rows, text=(0, 2))


def scatter(results: Results) -> str:
    """Sources of the non-sequential writes, and how many go to lower addresses."""
    rows = []
    columns = results.policies + READINGS_OF_SPATIALCLOCK[1:]
    for trace in results.traces:
        for frames in ends(results, trace)[1::2]:
            cells = [results.cells[trace.name, policy, frames] for policy in columns]
            name = f"{trace.name}, {results.size_name(trace, frames)}"
            rows.append([f"**{name}**: not sequential", *(count(cell.nonsequential) for cell in cells)])
            rows.append(["of them in the drain", *(count(cell.nonsequential_drained) for cell in cells)])
            rows.append(["backward", *(count(cell.backward) for cell in cells)])
    return markdown(["", *map(results.name, columns)], rows)


def readings(results: Results) -> str:
    """Effects of alternatives on hit ratio, writes and non-sequential writes."""
    rows = []
    for trace in results.traces:
        for frames in ends(results, trace):
            row = [f"{trace.name}, {results.size_name(trace, frames)}"]
            for other in results.readings:
                usual, read = (results.cells[trace.name, policy, frames] for policy in (other.partition(":")[0], other))
                writes = change(read.device_writes, usual.device_writes)
                row.append(f"{points(read, usual)}; {writes}; {change(read.nonsequential, usual.nonsequential)}")
            rows.append(row)
    return markdown(["trace, cache", *(f"`{other}`" for other in results.readings)], rows)


def elapsed_s(results: Results, trace: Trace, frames: int, device: str) -> dict[str, float]:
    """By policy of the paper."""
    profile = results.published.profiles[device]
    return {policy: results.times[trace.name, policy, frames, profile].elapsed_s for policy in results.policies}


def times(results: Results) -> str:
    """Figures 6 to 8: seconds by device, trace, size, policy, and Table 1's order on microSD."""
    text = ""
    table1_s = results.published.elapsed_s()
    columns = results.policies + READINGS_OF_SPATIALCLOCK[1:] + results.beyond
    for device, profile in results.published.profiles.items():
        rows = []
        published = results.published.devices[device]
        if device == "microSD":
            rows.append(["*W3, 64 MB*", *(f"{table1_s[policy]:.1f}" for policy in results.policies)])
        else:
            rows.append(["*W3, 64 MB*", *(f"{published[p]:.1f}" if p in published else "" for p in results.policies)])
        rows[0] += [""] * (len(columns) - len(results.policies) + 1)
        for trace in results.traces:
            for frames in ends(results, trace):
                seconds = elapsed_s(results, trace, frames, device)
                rho = rank_correlation([table1_s[policy] for policy in seconds], list(seconds.values()))
                all_s = [results.times[trace.name, policy, frames, profile].elapsed_s for policy in columns]
                name = f"{trace.name}, {results.size_name(trace, frames)}"
                rows.append([name, *(f"{one:,.1f}" for one in all_s), f"{rho:+.2f}"])
        head = [f"**{device}**, seconds", *map(results.name, columns), "ρ with W3's order"]
        text += f"\n{markdown(head, rows)}"
    return text + "\n"


def reductions(results: Results) -> str:
    """Captions of Figures 6 to 8: SpatialClock's time against each scheme, worst to best."""
    rows = []
    devices = results.published.profiles
    for load in results.published.workloads:
        ranges = (results.published.reductions[device][load.name] for device in devices)
        rows.append([f"*{load.name}*", *(f"{least:+.1f} … {most:+.1f}".replace("-", "−") for least, most in ranges)])
    for reading in READINGS_OF_SPATIALCLOCK:
        for trace in results.traces:
            sizes = [frames for frames in results.sizes(trace) if frames < trace.pages]
            row = [f"{trace.name}{', set' if ':' in reading else ''}"]
            for device, profile in devices.items():
                saved = []
                for frames in sizes:
                    own = results.times[trace.name, reading, frames, profile].elapsed_s
                    others = elapsed_s(results, trace, frames, device)
                    saved += [1 - own / other for policy, other in others.items() if policy != "spatialclock" and other]
                row.append(f"{min(saved):+.1%} … {max(saved):+.1%}".replace("-", "−").replace("%", "") if saved else "")
            rows.append(row)
    return markdown(["SpatialClock below the others, %", *devices], rows)


def anomaly(results: Results) -> str:
    """§5.5.4: FOR's time on the microSD card, and its share of non-sequential writes, by size."""
    rows = []
    if "for" not in results.policies:
        return "FOR was left out.\n"
    for trace in results.traces:
        papers, _ = sizes(trace, results.published)
        row = [trace.name]
        before = None
        for frames in papers:
            cell = results.cells[trace.name, "for", frames]
            seconds = elapsed_s(results, trace, frames, "microSD")["for"]
            rises = " ↑" if before is not None and seconds > before else ""
            row.append(f"{seconds:,.1f}{rises} ({cell.nonsequential_share:.0%})")
            before = seconds
        rows.append(row)
    return markdown(["FOR on microSD: s (not sequential)", *(f"{mb} MB" for mb in SIZES_MB)], rows)


TABLES: dict[str, Callable[[Results], str]] = {
    table.__name__: table
    for table in (traces, published, ours, spatialclock, order, scatter, readings, times, reductions, anomaly)
}


def count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def share(part: float, whole: float) -> str:
    return f"{count(part)} ({part / whole:.0%})" if whole else count(part)


def points(to: Cell, of: Cell) -> str:
    """The increase of the hit ratio, in percentage points."""
    return f"{(to.hit_ratio - of.hit_ratio) * 100:+.2f}".replace("-", "−").replace("−0.00", "+0.00")


def change(to: int, of: int) -> str:
    return f"{to / of - 1:+.0%}".replace("-", "−").replace("−0%", "+0%") if of else count(to)


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's ρ: Pearson's of the ranks, equal values sharing their mean rank."""

    def ranks(values: list[float]) -> list[float]:
        return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]

    x, y = ranks(a), ranks(b)
    mean = (len(x) + 1) / 2
    covariance = sum((i - mean) * (j - mean) for i, j in zip(x, y))
    spread = (sum((i - mean) ** 2 for i in x) * sum((j - mean) ** 2 for j in y)) ** 0.5
    return covariance / spread if spread else 0.0
