"""Tables and sentences of RESULTS.md."""

from collections import Counter
from collections.abc import Callable
from functools import cached_property

from common.pages import geometric, item, markdown, minus
from simulate import AHEAD, DEVICES, FAST, HITTING, OFF, SHARES, SIZES, Cell, Recording

NEAR = 0.001  # of all accesses
TESTED = "test"
Combination = tuple[str, str]  # policy and clusters
Place = tuple[str, int, str]  # recording, frames, device
NAMES = {"spatialclock": "SpatialClock", "fab": "FAB", "mglru": "MGLRU", "arc": "ARC", "s3fifo": "S3-FIFO"}


class Results:
    """The cells of some recordings, and the combinations to be judged, the best one first."""

    def __init__(self, recordings: list[Recording], cells: list[Cell], judged: list[Combination]):
        self.recordings = recordings
        self.judged = judged
        # In order, so that the figure does not depend on which cells were run first.
        by_key = {(c.recording, c.frames, c.device, *c.combination): c for c in cells}
        self.cells = dict(sorted(by_key.items()))

    def cells_in_order(self) -> list[Cell]:
        return list(self.cells.values())

    def of_split(self, *splits: str) -> "Results":
        recordings = [one for one in self.recordings if one.split in splits]
        names = {one.name for one in recordings}
        return Results(recordings, [cell for cell in self.cells.values() if cell.recording in names], self.judged)

    @cached_property
    def places(self) -> list[Place]:
        return [
            (one.name, frames, device)
            for one in self.recordings
            for frames in dict.fromkeys(one.frames().values())
            for device in DEVICES
        ]

    def combinations(self) -> list[Combination]:
        """Those with a cell in every place."""
        count = Counter((policy, cluster) for *_, policy, cluster in self.cells)
        return [one for one, cells in count.items() if cells == len(self.places)]

    def is_faster(self, place: Place, one: Combination, clusters: list[str], stall: bool = False) -> bool:
        """Whether it is faster than each of FAST with each of `clusters`."""

        def time(combination: Combination) -> int:
            cell = self.cells[*place, *combination]
            return cell.stall_us if stall else cell.elapsed_us

        rivals = [(rival, cluster) for rival in FAST for cluster in clusters]
        return all(time(one) < time(rival) for rival in rivals if rival != one)

    def hits(self, place: Place, one: Combination, tolerance: float = 0) -> bool:
        """Whether it hits as often as each of HITTING without clusters."""
        ratio = self.cells[*place, *one].hit_ratio
        return all(ratio >= self.cells[*place, rival, OFF].hit_ratio - tolerance for rival in HITTING)

    def count(self, test: Callable[[Place], bool]) -> int:
        return sum(map(test, self.places))

    def both(self, one: Combination) -> int:
        return self.count(lambda place: self.is_faster(place, one, [OFF]) and self.hits(place, one))

    def relative_time(self, one: Combination, device: str | None = None) -> float:
        """Geometric mean over places of the time, divided by that of LRU without clusters."""
        places = [place for place in self.places if device in (None, place[2])]
        return geometric(
            self.cells[*place, *one].elapsed_us / max(1, self.cells[*place, "lru", OFF].elapsed_us) for place in places
        )

    def pairs(self, policy: str, cluster: str, device: str) -> list[tuple[Cell, Cell]]:
        """The cells with clusters, and those without."""
        places = [place for place in self.places if place[2] == device]
        return [(self.cells[*place, policy, cluster], self.cells[*place, policy, OFF]) for place in places]

    def ranked(self, combinations: list[Combination]) -> list[Combination]:
        """By the number of cells in which they are fast and hit; the faster ones win ties."""
        return sorted(combinations, key=lambda one: (-self.both(one), self.relative_time(one), one))

    def more_hits(self, one: Combination, device: str) -> float:
        """Mean over places of the hit ratio, in points above LRU's."""
        places = [place for place in self.places if place[2] == device]
        above = (
            self.cells[*place, *one].hit_ratio - self.cells[*place, "lru", OFF].hit_ratio for place in places
        )
        return 100 * sum(above) / len(places)

    def front(self, device: str) -> list[Combination]:
        """The combinations on the Pareto front of time and hits, as means over places, in order."""
        front, most = [], float("-inf")
        points = {one: (self.relative_time(one, device), -self.more_hits(one, device)) for one in self.combinations()}
        for one in sorted(points, key=points.__getitem__):
            if -points[one][1] > most:
                most = -points[one][1]
                front.append(one)
        return front


def name(one: Combination) -> str:
    policy, cluster = one
    return f"`{policy}`" if cluster == OFF else f"`{policy}` {cluster}"


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)"


def recordings(results: Results) -> str:
    rows = [
        [one.name, one.split, f"{one.live_pages * 4096 / 2**20:.1f}",
         *(f"{frames * 4096 / 2**20:.2f}" for frames in one.frames().values())]
        for one in sorted(results.recordings, key=lambda one: (one.split != TESTED, one.split, one.name))
    ]  # fmt: skip
    return markdown(["recording", "split", "peak live, MiB", *(f"{s:.0%}, MiB" for s in SHARES)], rows, text=(0, 1))


def verdict(results: Results) -> str:
    """The answer to the question, in sentences that follow from the cells."""
    test = results.of_split(TESTED)
    chosen = results.of_split("train", "tune")
    one, places = results.judged[0], len(test.places)
    both = test.both(one)
    fast, hitting = test.count(lambda p: test.is_faster(p, one, [OFF])), test.count(lambda p: test.hits(p, one))
    hindsight = test.ranked(test.combinations())[0]
    rivals = {
        rival: test.count(lambda place: test.cells[*place, *one].elapsed_us < test.cells[*place, rival, OFF].elapsed_us)
        for rival in FAST
    }
    most = 2 * both > places
    lines = [
        f"The best combination of the train and tune recordings is {name(one)}: it is faster than the three and hits "
        f"as often as the two in {share(chosen.both(one), len(chosen.places))} cells there.",
        f"On the test recordings ({', '.join(one.name for one in test.recordings)}) it is faster than all three in {share(fast, places)} cells, "
        f"hits at least as often as both in {share(hitting, places)}, and does both in {share(both, places)}. "
        "It is faster than " + ", ".join(f"{NAMES[rival]} in {count}" for rival, count in rivals.items()) + ".",
        f"**{'More' if most else 'Not more'} than half of the test cells: "
        + ("it becomes a preset" if most else "no preset, but the Pareto front below")
        + f".** The best one of the test cells in hindsight, {name(hindsight)}, does both in "
        f"{share(test.both(hindsight), places)}.",
    ]
    devices = []
    for device in DEVICES:
        ratios = {
            cluster: geometric(
                test.relative_time((policy, cluster), device) / test.relative_time((policy, OFF), device)
                for policy in COMPARED
            )
            for cluster in SIZES
        }
        best = min(ratios, key=ratios.__getitem__)
        devices.append(f"{percent(ratios[best])} on {device} ({best})")
    lines.append(
        "Clusters on eviction change the time of LRU, ARC, S3-FIFO and the three, as a mean and with the best size, by "
        + ", ".join(devices) + "."
    )  # fmt: skip
    changes = []
    for cluster in AHEAD:
        elapsed, stall = ahead_change(test, cluster, False), ahead_change(test, cluster, True)
        changes.append(f"{cluster.partition(',')[2]}: {percent(elapsed)} and {percent(stall)}")
    lines.append(
        "Ranges written ahead change elapsed time and stall against 128KiB on eviction, as means, by: "
        + "; ".join(changes) + "."
    )  # fmt: skip
    return "\n" + "".join(map(item, lines)) + "\n"


def percent(ratio: float) -> str:
    change = round(100 * (ratio - 1))
    return minus(f"{change:+} %") if change else "0 %"


def ahead_change(results: Results, cluster: str, stall: bool) -> float:
    ratios = []
    for place in results.places:
        for policy in COMPARED:
            with_it, without = results.cells[*place, policy, cluster], results.cells[*place, policy, "128KiB"]
            times = (with_it.stall_us, without.stall_us) if stall else (with_it.elapsed_us, without.elapsed_us)
            if min(times) > 0:
                ratios.append(times[0] / times[1])
    return geometric(ratios)


def judged(results: Results) -> str:
    """The chosen combinations on the test recordings, beside the best of them in hindsight."""
    chosen, test = results.of_split("train", "tune"), results.of_split(TESTED)
    rows = []
    rest = [one for one in test.ranked(test.combinations()) if one not in results.judged][:12]
    for one in [*results.judged, *rest]:
        counts = [
            test.count(lambda place: test.is_faster(place, one, [OFF])),
            test.count(lambda place: test.is_faster(place, one, [OFF, *SIZES])),
            test.count(lambda place: test.is_faster(place, one, [OFF], stall=True)),
            test.count(lambda place: test.hits(place, one)),
            test.count(lambda place: test.hits(place, one, NEAR)),
            test.both(one),
            test.count(lambda place: test.is_faster(place, one, [OFF]) and test.hits(place, one, NEAR)),
            test.count(lambda place: test.is_faster(place, one, [OFF, *SIZES]) and test.hits(place, one)),
        ]
        known = f"{chosen.both(one)}" if one in chosen.combinations() else ""
        rows.append([f"{'**chosen** ' if one in results.judged else ''}{name(one)}", known, *map(str, counts)])
    head = [f"of {len(test.places)} test cells", f"F, H of {len(chosen.places)} train and tune"]
    return markdown([*head, "F", "F+", "F by stall", "H", "H−", "F, H", "F, H−", "F+, H"], rows)


def by_place(results: Results) -> str:
    """Where the first chosen combination is fast (F) and hits (H)."""
    test = results.of_split(TESTED)
    one = results.judged[0]
    rows = []
    for recording in test.recordings:
        row = [recording.name]
        for device in DEVICES:
            marks = []
            for frames in recording.frames().values():
                place = (recording.name, frames, device)
                fast, hits = test.is_faster(place, one, [OFF]), test.hits(place, one)
                marks.append("F, H" if fast and hits else "F" if fast else "H" if hits else "–")
            row.append("; ".join(marks))
        rows.append(row)
    shares = ", ".join(f"{s:.0%}" for s in SHARES)
    return markdown([f"{name(one)} at {shares}", *DEVICES], rows, text=tuple(range(len(DEVICES) + 1)))


COMPARED = ["lru", *HITTING, *FAST]


def by_policy(head: str, ways: dict[str, tuple[str, str]], value: Callable[[str, str, str], str]) -> str:
    """A row for each device and way to write clusters, by name, with a value of each policy."""
    rows = [[name, *(value(policy, *way) for policy in COMPARED)] for name, way in ways.items()]
    return markdown([head, *COMPARED], rows)


WAYS = {f"{device}, {cluster}": (cluster, device) for device in DEVICES for cluster in (*SIZES, *AHEAD)}


def effect(results: Results) -> str:
    """Time with clusters as a share of that without: geometric mean of the test places."""
    test = results.of_split(TESTED)

    def ratio(policy: str, cluster: str, device: str) -> str:
        return f"{test.relative_time((policy, cluster), device) / test.relative_time((policy, OFF), device):.2f}"

    return by_policy("time ÷ time without clusters", WAYS, ratio)


def stall(results: Results) -> str:
    """The same of the stall, over the places in which something stalls."""
    test = results.of_split(TESTED)

    def ratio(policy: str, cluster: str, device: str) -> str:
        pairs = [(with_it.stall_us, without.stall_us) for with_it, without in test.pairs(policy, cluster, device)]
        ratios = [with_it / without for with_it, without in pairs if with_it and without]
        return f"{geometric(ratios):.2f}" if ratios else ""

    return by_policy("stall ÷ stall without clusters", WAYS, ratio)


def writes(results: Results) -> str:
    """Pages written, and requests, as shares of those without clusters."""
    test = results.of_split(TESTED)

    def ratios(policy: str, cluster: str, device: str) -> str:
        pairs = test.pairs(policy, cluster, device)
        pages = geometric(a.device_writes / max(1, b.device_writes) for a, b in pairs)
        requests = geometric(a.device_write_requests / max(1, b.device_write_requests) for a, b in pairs)
        return f"{pages:.2f} ({requests:.2f})"

    ways = {cluster: (cluster, DEVICES[0]) for cluster in (*SIZES, *AHEAD)}
    return by_policy("pages written (requests) ÷ those without clusters", ways, ratios)


def front(results: Results) -> str:
    """The Pareto front of time and hits as means over the test places."""
    test = results.of_split(TESTED)
    rows = []
    for device in DEVICES:
        shown = [
            f"{name(one)} {test.relative_time(one, device):.2f}, " + f"{test.more_hits(one, device):+.2f}".replace("-", "−")
            for one in test.front(device)
        ]
        rows.append([device, "; ".join(shown)])
    return markdown(["device", "time ÷ LRU's, hits in points above LRU's; the fastest first"], rows, text=(0, 1))


ALL: dict[str, Callable[[Results], str]] = {
    table.__name__: table
    for table in (recordings, verdict, judged, by_place, effect, stall, writes, front)
}
