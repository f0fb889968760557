"""Tables and sentences on replays: measured seconds beside the formula's."""

from dataclasses import dataclass
from statistics import median

from common.pages import bullets, count, markdown
from evaluation import BOARD, FSLRU, LRU, NAMES, NVLRU, Results, time_parts

BATCHED = "fslru:batch=32"
REPLAYED = {**NAMES, BATCHED: "FSLRU, `batch=32`"}
PERCENT = 50


@dataclass(frozen=True)
class Replay:
    """Seconds of one replay."""

    trace: str
    sha256: str
    system: str
    frames: int
    round: int
    requests: int
    flushes: int
    elapsed_s: float
    flush_s: float
    memory_s: float  # in accesses to memory
    memory_formula_s: float  # latencies times lines


@dataclass(frozen=True)
class Measured:
    """Replays beside the simulated cells."""

    results: Results
    replays: list[Replay]

    def traces(self) -> list[str]:
        """Those whose recording has not changed since."""
        same = {(trace.name, trace.sha256) for trace in self.results.traces}
        known = {one.trace for one in self.replays if (one.trace, one.sha256) in same}
        return [trace.name for trace in self.results.traces if trace.name in known]

    def rounds(self, trace: str, system: str) -> list[Replay]:
        return [one for one in self.replays if (one.trace, one.system) == (trace, system)]

    def seconds(self, trace: str, system: str) -> float:
        return median(one.elapsed_s for one in self.rounds(trace, system))

    def without_flushes(self, trace: str, system: str) -> float:
        return median(one.elapsed_s - one.flush_s for one in self.rounds(trace, system))

    def formula(self, trace: str, system: str) -> float:
        return sum(self.parts(trace, system))

    def parts(self, trace: str, system: str) -> tuple[float, float]:
        """Storage, and memory."""
        found = next(one for one in self.results.traces if one.name == trace)
        dram, nvm, storage = time_parts(self.results.cell(found, system, PERCENT), BOARD)
        return storage, dram + nvm

    def ratios(self, trace: str, than: str, system: str) -> tuple[float, float, float]:
        """How many times as long another system takes: measured, without FLUSHes, formula."""
        ways = (self.seconds, self.without_flushes, self.formula)
        measured, without, formula = (way(trace, than) / way(trace, system) for way in ways)
        return measured, without, formula

    def as_requested(self, trace: str, than: str, system: str) -> bool:
        """Whether the system that sends fewer requests, FLUSHes among them, is the faster one."""
        theirs, ours = (self.rounds(trace, name)[0].requests for name in (than, system))
        return (theirs > ours) == (self.seconds(trace, than) > self.seconds(trace, system))

    def apart(self, trace: str, one: str, other: str) -> bool:
        """Whether all rounds of the two systems order them alike."""
        ours, theirs = ([each.elapsed_s for each in self.rounds(trace, system)] for system in (one, other))
        return max(ours) < min(theirs) or max(theirs) < min(ours)


def seconds(measured: Measured) -> str:
    rows = []
    for trace in measured.traces():
        for system, name in REPLAYED.items():
            rounds = measured.rounds(trace, system)
            all_s = [one.elapsed_s for one in rounds]
            flush_s, memory_s = median(one.flush_s for one in rounds), median(one.memory_s for one in rounds)
            storage, memory = measured.parts(trace, system)
            rows.append([
                f"**{trace}**" if system == LRU else "", name, count(rounds[0].requests), count(rounds[0].flushes),
                f"**{median(all_s):,.2f}** ({min(all_s):,.2f} … {max(all_s):,.2f})", f"{flush_s:,.2f}",
                f"{memory_s:,.2f}", f"**{storage + memory:,.2f}**", f"{memory:,.2f}",
            ])  # fmt: skip
    head = "50 %|system|requests|of them FLUSHes|measured, s|FLUSHes|memory|formula, s|memory"
    return markdown(head, rows, text=(0, 1))


def ratios(measured: Measured) -> str:
    rows = []
    for trace in measured.traces():
        row = [trace]
        for than, system in COMPARED:
            row += [f"{ratio:,.2f}" for ratio in measured.ratios(trace, than, system)]
        rows.append(row)
    head = "times as long, measured / without FLUSHes / formula"
    for than, system in COMPARED:
        head += f"|{REPLAYED[than]} ÷ {REPLAYED[system]}||"
    return markdown(head, rows)


COMPARED = [(LRU, FSLRU), (NVLRU, FSLRU), (LRU, BATCHED)]


def sentences(measured: Measured) -> str:
    traces = measured.traces()

    def wins(than: str, system: str, way: int) -> str:
        found = [measured.ratios(trace, than, system)[way] for trace in traces]
        return f"{sum(ratio > 1 for ratio in found)} of {len(found)}"

    def agree(than: str, system: str, way: int) -> str:
        found = [measured.ratios(trace, than, system) for trace in traces]
        return f"{sum((one[way] > 1) == (one[2] > 1) for one in found)} of {len(found)}"

    def apart(than: str, system: str) -> str:
        return f"{sum(measured.apart(trace, system, than) for trace in traces)} of {len(traces)}"

    lost = [trace for trace in traces if measured.ratios(trace, LRU, FSLRU)[0] < 1]
    requested = sum(measured.as_requested(trace, LRU, FSLRU) for trace in traces)
    shares = [median(one.flush_s / one.elapsed_s for one in measured.rounds(trace, FSLRU)) for trace in traces]
    spreads = [
        max(one.elapsed_s for one in rounds) / min(one.elapsed_s for one in rounds)
        for rounds in (measured.rounds(trace, system) for trace in traces for system in REPLAYED)
    ]
    excess = [
        one.memory_s / one.memory_formula_s for one in measured.replays if one.trace in traces and one.memory_formula_s
    ]
    slower = f" It is slower on {', '.join(f'`{trace}`' for trace in lost)}." if lost else ""
    return bullets([
        f"**Against LRU.** Measured, FSLRU is faster on {wins(LRU, FSLRU, 0)} traces; by the formula on "
        f"{wins(LRU, FSLRU, 2)}.{slower} Both name the same system as the faster one on {agree(LRU, FSLRU, 0)}. All "
        f"rounds agree on the order on {apart(LRU, FSLRU)}.",
        "**The formula counts pages; the device takes time by request.** LRU's syncs write neighbouring pages as one "
        "request, and FSLRU sends each page alone with a FLUSH behind it. Of LRU and FSLRU, the one that sends fewer "
        f"requests, FLUSHes included, is the faster one on {requested} of {len(traces)}. FLUSHes take "
        f"{100 * median(shares):.0f} % of FSLRU's time (median over traces; {100 * min(shares):.0f} to "
        f"{100 * max(shares):.0f} %). With `batch=32`, which evicts 32 pages together before one FLUSH, FSLRU is faster "
        f"than LRU on {wins(LRU, BATCHED, 0)}.",
        f"**Against NVLRU.** Measured, FSLRU is faster on {wins(NVLRU, FSLRU, 0)} traces; by the formula on "
        f"{wins(NVLRU, FSLRU, 2)}. Both name the same system on {agree(NVLRU, FSLRU, 0)}. All rounds agree on the "
        f"order on {apart(NVLRU, FSLRU)}.",
        f"**Memory.** A delayed access takes at least its latency. All of them took {median(excess):.2f} times the "
        f"formula's time (median over replays; at most {max(excess):.2f} times): reading the counter takes time, and "
        "other processes ran on the machine.",
        f"**Noise.** The slowest round of a system takes {median(spreads):.2f} times as long as its fastest (median; at "
        f"most {max(spreads):.2f} times).",
    ])  # fmt: skip


TABLES = {"replay_text": sentences, "replay_seconds": seconds, "replay_ratios": ratios}
