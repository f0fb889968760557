"""Markdown tables between the markers of RESULTS.md."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from cells import Alone, Cell, Played, Throughput, Time, Trace
from common.pages import count, markdown, wrapped
from common.pages import signed as signed_to
from published import PAGES_PER_MB, SIZES_MB, Published


@dataclass(frozen=True)
class Results:
    published: Published
    policies: list[str]  # the paper's that were run, in its order
    readings: list[str]  # other readings of some of them
    beyond: list[str]
    traces: list[Trace]
    cells: dict[tuple[str, str, str, int], Cell]  # by trace, allocation, policy, frames
    times: dict[tuple[str, str, str, int, str], Time]  # the same, and device
    throughputs: dict[tuple[str, str, str], Throughput]  # by device, operation, order
    played: list[Played]
    alone: dict[tuple[str, str, str], Alone]  # reads and writes alone: by trace, policy, device

    def cell(self, trace: Trace, policy: str, frames: int, allocation: str | None = None) -> Cell:
        """By default as the paper allocates."""
        return self.cells[trace.name, allocation or trace.allocations[0], policy, frames]

    def time(self, trace: Trace, allocation: str, policy: str, frames: int, device: str) -> Time:
        """On our model of one of the paper's devices."""
        return self.times[trace.name, allocation, policy, frames, self.published.profiles[device]]

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
    """The paper's sizes in frames, and sizes with the same share of this trace as of W3.

    A trace like W2 has only the paper's: neither it nor W2 fits into any of them.
    """
    papers = [mb * PAGES_PER_MB for mb in SIZES_MB]
    if trace.like != "W3":
        return papers, papers
    return papers, [max(1, round(trace.pages * published.share_of_w3(mb))) for mb in SIZES_MB]


def ends(results: Results, trace: Trace) -> list[int]:
    """The smallest and the largest size of both kinds, which are two sizes if there is one kind."""
    papers, shares = sizes(trace, results.published)
    return [papers[0], papers[-1], shares[0], shares[-1]]


def traces(results: Results) -> str:
    """Table 3."""
    rows = []
    for load in results.published.workloads:
        mib = load.pages / PAGES_PER_MB
        rows.append([
            f"*{load.name}* {load.what}", "", count(load.reads), f"{load.reads / PAGES_PER_MB:,.1f}",
            count(load.writes), f"{load.writes / PAGES_PER_MB:,.1f}", f"{load.cold_miss_ratio:.2f}", f"≈ {mib:,.0f}",
            "",
        ])  # fmt: skip
    for trace in results.traces:
        infinite = results.cell(trace, "lru", trace.pages)
        live = "" if trace.live_pages is None else f"{trace.live_pages / PAGES_PER_MB:,.1f}"
        kind = f"{trace.format}, {trace.space}, {trace.time}"
        rows.append([
            trace.name, kind, count(infinite.reads), f"{infinite.reads / PAGES_PER_MB:,.1f}",
            count(infinite.writes), f"{infinite.writes / PAGES_PER_MB:,.1f}", f"{1 - infinite.hit_ratio:.2f}",
            f"{trace.pages / PAGES_PER_MB:,.1f}", live,
        ])  # fmt: skip
    head = "trace|kind|page reads|MiB|page writes|MiB|cold-miss ratio|touches, MiB|peak live, MiB"
    return markdown(head, rows, text=(0, 1))


def table2(results: Results) -> str:
    """Table 2: throughputs of the devices and of their models."""
    rows = []
    cells = [(operation, order) for operation in ("read", "write") for order in ("sorted", "random")]
    for device, measured in results.published.table2.items():
        profile = (results.published.disks | results.published.profiles)[device]
        # As in the paper, a KB is 1,024 bytes.
        ours = [results.throughputs[profile, *cell].bytes_per_s / 1024 for cell in cells]
        rows.append([device, *(f"{one:,.1f}" for one in measured)])
        rows.append([f"`{profile}`", *(f"{one:,.1f}" for one in ours)])
        changes = (f"{mine / one - 1:+.1%}" for mine, one in zip(ours, measured))
        rows.append(["", *(change.replace("-0.0", "+0.0").replace("-", "−") for change in changes)])
    return markdown(["KB/s", "reads, sorted", "scattered", "writes, sorted", "scattered"], rows)


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
        for frames in dict.fromkeys(ends(results, trace)):
            def row(title: str, show: Callable[[Cell], str]) -> None:
                cells = (results.cell(trace, policy, frames) for policy in columns)
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
            lru = results.cell(trace, "lru", frames)
            row = [f"{trace.name}, {results.size_name(trace, frames)}", f"{lru.hit_ratio:.4f}"]
            clocks = [results.cell(trace, policy, frames) for policy in READINGS_OF_SPATIALCLOCK]
            row += [points(clock, lru) for clock in clocks]
            row += [count(lru.device_writes)]
            row += [change(clock.device_writes, lru.device_writes) for clock in clocks]
            row += [count(lru.nonsequential)]
            row += [change(clock.nonsequential, lru.nonsequential) for clock in clocks]
            rows.append(row)
    head = "trace, cache|hit ratio LRU|SC, points|set|writes LRU|SC|set|not sequential LRU|SC|set"
    return markdown(head, rows)


READINGS_OF_SPATIALCLOCK = ["spatialclock", "spatialclock:insert_ref=1"]
BY_FILE = "spatialclock:order=file"


def order(results: Results) -> str:
    """The policies of Figure 9, from the fewest to the most non-sequential writes."""
    elapsed_s = results.published.elapsed_s()
    def line(values: dict[str, float]) -> str:
        return ", ".join(f"{results.name(policy)} {values[policy]:,.0f}" for policy in sorted(values, key=values.get))

    rows = [["*W3*, 64 MB: seconds on microSD", "", line(elapsed_s)]]
    for trace in results.traces:
        for frames in dict.fromkeys(ends(results, trace)[1::2]):
            values = {
                policy: float(results.cell(trace, policy, frames).nonsequential) for policy in results.policies
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
        for frames in dict.fromkeys(ends(results, trace)[1::2]):
            cells = [results.cell(trace, policy, frames) for policy in columns]
            name = f"{trace.name}, {results.size_name(trace, frames)}"
            rows.append([f"**{name}**: not sequential", *(count(cell.nonsequential) for cell in cells)])
            rows.append(["of them in the drain", *(count(cell.nonsequential_drained) for cell in cells)])
            rows.append(["backward", *(count(cell.backward) for cell in cells)])
    return markdown(["", *map(results.name, columns)], rows)


def late(results: Results) -> str:
    """Non-sequential writes if a page gets its place early or late."""
    rows = []
    policies = ["lru", "clock", "fab", "spatialclock", *READINGS_OF_SPATIALCLOCK[1:], BY_FILE]
    for trace in results.traces:
        frames = ends(results, trace)[3]
        for allocation in trace.allocations if len(trace.allocations) > 1 else ():
            cells = (results.cell(trace, policy, frames, allocation) for policy in policies)
            rows.append([place(results, trace, allocation), *(count(cell.nonsequential) for cell in cells)])
    head = f"not sequential, cache: {results.published.share_of_w3(64):.0%}"
    return markdown([head, *map(short, map(results.name, policies))], rows)


def readings(results: Results) -> str:
    """Effects of alternatives on hits, writes, non-sequential writes, and seconds on microSD."""
    rows = []
    for trace in results.traces:
        for frames in dict.fromkeys(ends(results, trace)):
            row = [f"{trace.name}, {results.size_name(trace, frames)}"]
            for other in results.readings:
                usual, read = (results.cell(trace, policy, frames) for policy in (other.partition(":")[0], other))
                seconds = [
                    results.time(trace, cell.allocation, cell.policy, frames, "microSD").elapsed_us
                    for cell in (read, usual)
                ]
                changes = [
                    points(read, usual), change(read.device_writes, usual.device_writes),
                    change(read.nonsequential, usual.nonsequential), change(*seconds),
                ]  # fmt: skip
                row.append("; ".join(changes))
            rows.append(row)
    return markdown(["trace, cache", *(f"`{other}`" for other in results.readings)], rows)


def elapsed_s(results: Results, trace: Trace, allocation: str, frames: int, device: str) -> dict[str, float]:
    """By policy of the paper."""
    return {
        policy: results.time(trace, allocation, policy, frames, device).elapsed_s for policy in results.policies
    }


def place(results: Results, trace: Trace, allocation: str, frames: int | None = None) -> str:
    """Trace, cache size if given, and allocation if the trace leaves it open."""
    size = of_other(trace) if frames is None else f", {results.size_name(trace, frames)}"
    return f"{trace.name}{size}{'' if allocation == 'given' else f', {allocation}'}"


def of_other(trace: Trace) -> str:
    """The largest size of a trace that is not like W3, for rows below the share of W3."""
    return "" if trace.like == "W3" else f" ({SIZES_MB[-1]} MB)"


def like_w3(results: Results, trace: Trace, allocation: str, frames: int, device: str = "microSD") -> float:
    """Rank correlation of the policies' times with those of W3, 64 MB, microSD."""
    table1_s = results.published.elapsed_s()
    seconds = elapsed_s(results, trace, allocation, frames, device)
    return rank_correlation([table1_s[policy] for policy in seconds], list(seconds.values()))


def summary(results: Results) -> str:
    """SpatialClock's time against LRU's, with the share of cache that 64 MB are of W3."""

    def less(clock_s: float, lru_s: float) -> str:
        return f"{1 - clock_s / lru_s:+.0%}".replace("-0%", "+0%").replace("-", "−").replace("%", "")

    published = results.published.devices
    rows = [["*W3, 64 MB*", *(less(published[d]["spatialclock"], published[d]["lru"]) for d in published), "", ""]]
    for trace in results.traces:
        frames = ends(results, trace)[3]
        for allocation in trace.allocations:
            row = [place(results, trace, allocation)]
            for device in published:
                seconds = elapsed_s(results, trace, allocation, frames, device)
                row.append(less(seconds["spatialclock"], seconds["lru"]))
            by_file, lru = (
                results.time(trace, allocation, policy, frames, "microSD").elapsed_s for policy in (BY_FILE, "lru")
            )
            row += [less(by_file, lru), f"{like_w3(results, trace, allocation, frames):+.2f}".replace("-", "−")]
            rows.append(row)
    head = [f"less time than LRU, % (cache: {results.published.share_of_w3(64):.0%})", *published]
    return markdown([*head, "by file, microSD", "ρ with W3's order"], rows)


def claim(results: Results) -> str:
    """§5.4 on conditions like W3's: fastest on microSD, ahead of FAB, with a lead that shrinks."""
    devices = list(results.published.devices)
    published = results.published.devices
    table1_s = results.published.elapsed_s()

    def less(seconds: dict[str, float], than: str) -> float:
        return 1 - seconds["spatialclock"] / seconds[than]

    w3 = [f"{100 * (1 - published[d]['spatialclock'] / published[d]['lru']):+.0f}" for d in devices]
    rows = [["*W3, 64 MB*", "1", "", "", f"{100 * less(table1_s, 'fab'):+.0f}", "", "", " > ".join(w3)]]
    holds = dict.fromkeys(["early", "late", "given"], (0, 0, 0, 0))
    for trace in results.traces:
        if trace.like != "W3":
            continue
        frames = ends(results, trace)[3]
        for allocation in trace.allocations:
            by_device = [elapsed_s(results, trace, allocation, frames, device) for device in devices]
            ranks = [1 + sum(s < one["spatialclock"] for s in one.values()) for one in by_device]
            below_lru = [100 * less(one, "lru") for one in by_device]
            shrinks = below_lru == sorted(below_lru, reverse=True)
            row = [place(results, trace, allocation), *map(str, ranks)]
            row += (signed(100 * less(one, "fab")) for one in by_device)
            signs = map(signed, below_lru)
            rows.append([*row, f"{', '.join(signs)}{': shrinks' if shrinks else ''}"])
            seen = (ranks[0] == 1, less(by_device[0], "fab") > 0, shrinks, 1)
            holds[allocation] = tuple(map(sum, zip(holds[allocation], seen)))
    for allocation, (first, ahead, shrinks, all_of_them) in holds.items():
        if all_of_them:
            name = {"early": "early", "late": "late", "given": "block trace"}[allocation]
            of = f"of {all_of_them}"
            rows.append([f"**holds, {name}**", f"{first} {of}", "", "", f"{ahead} {of}", "", "", f"{shrinks} {of}"])
    head = [f"SpatialClock (cache: {results.published.share_of_w3(64):.0%})", *(f"rank, {d}" for d in devices)]
    head += [*(f"below FAB, {d}, %" for d in devices), f"below LRU, {', '.join(devices)}, %"]
    return markdown(head, rows)


def times(results: Results) -> str:
    """Figures 6 to 8: seconds, and how far their order is that of Table 1 on microSD."""
    text = ""
    table1_s = results.published.elapsed_s()
    columns = [*results.policies, *READINGS_OF_SPATIALCLOCK[1:], BY_FILE, *results.beyond]
    for device in results.published.profiles:
        rows = []
        published = table1_s if device == "microSD" else results.published.devices[device]
        rows.append(["*W3, 64 MB*", *(f"{published[p]:.1f}" if p in published else "" for p in columns), ""])
        for trace in results.traces:
            for frames in dict.fromkeys(ends(results, trace)):
                for allocation in trace.allocations:
                    all_s = (results.time(trace, allocation, policy, frames, device).elapsed_s for policy in columns)
                    rho = f"{like_w3(results, trace, allocation, frames, device):+.2f}".replace("-", "−")
                    name = place(results, trace, allocation, frames)
                    rows.append([name, *(f"{one:,.1f}" for one in all_s), rho])
        head = [f"**{device}**, seconds", *map(short, map(results.name, columns)), "ρ with W3's order"]
        text += f"\n{markdown(head, rows)}"
    return text + "\n"


def short(name: str) -> str:
    return name.replace("SpatialClock:insert_ref=1", "set").replace("SpatialClock:order=file", "by file")


def drain(results: Results) -> str:
    """Seconds on the microSD card before the drain, and of the drain."""
    rows = []
    columns = results.policies + READINGS_OF_SPATIALCLOCK[1:]
    for trace in results.traces:
        for frames in dict.fromkeys(ends(results, trace)[1::2]):
            for allocation in trace.allocations:
                times = [results.time(trace, allocation, policy, frames, "microSD") for policy in columns]
                both = (
                    f"{time.evicting_us / 1e6:,.1f} + {(time.elapsed_us - time.evicting_us) / 1e6:,.1f}"
                    for time in times
                )
                rows.append([place(results, trace, allocation, frames), *both])
    return markdown(["microSD, seconds", *map(short, map(results.name, columns))], rows)


def reductions(results: Results) -> str:
    """Captions of Figures 6 to 8: SpatialClock's time against each scheme, worst to best."""
    rows = []
    devices = results.published.profiles
    for load in results.published.workloads:
        ranges = (results.published.reductions[device][load.name] for device in devices)
        row = (f"{least:+.1f} … {most:+.1f}".replace("-", "−") for least, most in ranges)
        rows.append([f"*{load.name}*", *row, *[""] * len(devices)])
    for trace in results.traces:
        sizes = [frames for frames in results.sizes(trace) if frames < trace.pages]
        for allocation in trace.allocations:
            row = [place(results, trace, allocation)]
            for reading in READINGS_OF_SPATIALCLOCK:
                for device in devices:
                    saved = []
                    for frames in sizes:
                        own = results.time(trace, allocation, reading, frames, device).elapsed_s
                        others = elapsed_s(results, trace, allocation, frames, device)
                        saved += [
                            1 - own / other for policy, other in others.items() if policy != "spatialclock" and other
                        ]
                    ends = (f"{saving:+.1%}".replace("-", "−").replace("%", "") for saving in (min(saved), max(saved)))
                    row.append(" … ".join(ends))
            rows.append(row)
    return markdown(["SpatialClock below the others, %", *devices, *(f"{device}, set" for device in devices)], rows)


def played(results: Results) -> str:
    """Seconds on a real target by play.sh, beside those of the model of the microSD card."""
    traces = {trace.name: trace for trace in results.traces}
    rounds: dict[tuple[str, str, str, int], list[Played]] = {}
    for row in results.played:
        rounds.setdefault((row.trace, row.allocation, row.policy, row.frames), []).append(row)
    rows = []
    for (name, allocation, policy, frames), plays in rounds.items():
        trace = traces[name]
        modelled = results.time(trace, allocation, policy, frames, "microSD")
        seconds = sorted(play.elapsed_us / 1e6 for play in plays)
        rows.append([
            f"{place(results, trace, allocation, frames)}, {results.name(policy)}", count(plays[0].requests),
            f"{seconds[len(seconds) // 2]:.3f}", f"{seconds[0]:.3f} … {seconds[-1]:.3f}", f"{modelled.elapsed_s:,.1f}",
        ])  # fmt: skip
    head = ["cell", "requests", "file, s: median", "least … most", "model of the microSD card, s"]
    return markdown(head, rows)


def anomaly(results: Results) -> str:
    """§5.5.4: FOR's time on the microSD card, and its share of non-sequential writes, by size."""
    rows = []
    if "for" not in results.policies:
        return "FOR was left out.\n"
    for trace in results.traces:
        papers, _ = sizes(trace, results.published)
        for allocation in trace.allocations:
            row = [place(results, trace, allocation)]
            before = None
            for frames in papers:
                cell = results.cell(trace, "for", frames, allocation)
                seconds = results.time(trace, allocation, "for", frames, "microSD").elapsed_s
                rises = " ↑" if before is not None and seconds > before else ""
                row.append(f"{seconds:,.1f}{rises} ({cell.nonsequential_share:.0%})")
                before = seconds
            rows.append(row)
    return markdown(["FOR on microSD: s (not sequential)", *(f"{mb} MB" for mb in SIZES_MB)], rows)


def saved(ours: float, lru: float) -> float:
    """Percent of LRU's time."""
    return 100 * (1 - ours / lru)


def alone_times(results: Results, trace: str, device: str) -> dict[str, float]:
    """Seconds by policy, with reads and writes alone."""
    profile = results.published.profiles[device]
    rows = results.alone.items()
    return {of: row.elapsed_us / 1e6 for (name, of, on), row in rows if (name, on) == (trace, profile)}


def alone(results: Results) -> str:
    rows = []
    for trace in dict.fromkeys(trace for trace, _, _ in results.alone):
        first = results.alone[trace, "spatialclock", results.published.profiles["microSD"]]
        of = {device: alone_times(results, trace, device) for device in results.published.profiles}
        leads = [f"{signed(-saved(times['spatialclock'], times['lru']))}" for times in of.values()]
        card = of["microSD"]
        rank = 1 + sum(other < card["spatialclock"] for other in card.values())
        rows.append([
            trace, count(first.device_writes), f"{first.drained / first.device_writes:.0%}", *leads,
            f"{rank} of {len(card)}", signed(-saved(card["spatialclock"], card["fab"])),
        ])  # fmt: skip
    head = "trace|pages written|drained|time against LRU, %: microSD|eMMC-1|eMMC-2|rank on microSD|against FAB on microSD, %"
    return markdown(head, rows)


def leads(results: Results, allocation: str, policy: str) -> dict[str, list[float]]:
    """By trace of files: percent below LRU's time on each device, at 64 MB's share of W3."""
    found = {}
    for trace in results.traces:
        if trace.space == "files" and trace.like == "W3":
            frames = sizes(trace, results.published)[1][-1]
            of = [
                [results.time(trace, allocation, one, frames, device).elapsed_s for one in (policy, "lru")]
                for device in results.published.profiles
            ]
            found[trace.name] = [saved(*pair) for pair in of]
    return found


def leads_by_reading(results: Results) -> dict[str, dict[str, list[float]]]:
    names = dict.fromkeys(trace for trace, _, _ in results.alone)
    profiles = results.published.profiles
    all_alone = {name: [alone_times(results, name, device) for device in profiles] for name in names}
    return {
        "A: removals seen, placed early, share of W3's cache": leads(results, "early", "spatialclock"),
        "B: the same, placed late": leads(results, "late", "spatialclock"),
        "C: as A, reference bit set on insertion": leads(results, "early", "spatialclock:insert_ref=1"),
        "D: reads and writes alone, placed early, 64 MB": {
            name: [saved(times["spatialclock"], times["lru"]) for times in of] for name, of in all_alone.items()
        },
    }


def verdict(results: Results) -> str:
    """Each claim of §5.4 under each reading."""
    rows = []
    published = [saved(of["spatialclock"], of["lru"]) for of in results.published.devices.values()]
    for n, device in enumerate(results.published.profiles):
        for reading, by_trace in leads_by_reading(results).items():
            found = [of[n] for of in by_trace.values()]
            holds = sum(one > 0 for one in found)
            rows.append([
                f"less time than LRU on {device}", f"−{published[n]:.0f}", reading,
                "yes" if 2 * holds > len(found) else "no",
                f"{signed(-median(found))} ({signed(-min(found))} … {signed(-max(found))})",
                f"{holds} of {len(found)}",
            ])  # fmt: skip
    for reading, by_trace in leads_by_reading(results).items():
        shrinks = sum(of[0] > of[-1] for of in by_trace.values())
        rows.append([
            "the lead shrinks from microSD to eMMC-2", "yes", reading,
            "yes" if 2 * shrinks > len(by_trace) else "no", "", f"{shrinks} of {len(by_trace)}",
        ])  # fmt: skip
    head = "claim|published, %|reading|direction|ours, %: median (least … most)|traces"
    table = markdown(head, rows, text=(0, 2, 3))
    early, late, _, of_alone = leads_by_reading(results).values()
    wins = {name: of[0] for name, of in of_alone.items() if of[0] > 0}
    losses = {name: of[0] for name, of in of_alone.items() if of[0] <= 0}

    def listed(some: dict[str, float]) -> str:
        return ", ".join(f"`{name}` {signed(-one)} %" for name, one in some.items()) or "none"

    text = (
        "**Conclusion.** Where pages have their places when they enter the order, as on the paper's ext3, SpatialClock "
        f"takes less time than LRU on the microSD card on {sum(of[0] > 0 for of in early.values())} of {len(early)} "
        f"traces, as published, and on {sum(of[0] > 0 for of in late.values())} of {len(late)} if pages get their "
        "places at write-back. On traces of the paper's form, reads and writes alone at 64 MB, it takes less on "
        f"{len(wins)} of {len(of_alone)} ({listed(wins)}) and more on {len(losses)} ({listed(losses)})."
    )
    return f"{table}\n{wrapped(text)}\n\n"


TABLES: dict[str, Callable[[Results], str]] = {
    table.__name__: table
    for table in (
        summary, claim, traces, table2, published, ours, spatialclock, order, scatter, late, readings, times, reductions, drain,
        played, anomaly, alone, verdict,
    )  # fmt: skip
}


def share(part: float, whole: float) -> str:
    return f"{count(part)} ({part / whole:.0%})" if whole else count(part)


def signed(percent: float) -> str:
    return signed_to(percent, 0)


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
