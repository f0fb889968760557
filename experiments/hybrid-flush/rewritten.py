"""Pages that a page cache over plain storage writes back more than once."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from common.traces import LAYOUTS, Trace, after_cache


@dataclass(frozen=True)
class Rewritten:
    """Pages of one trace that are written back."""

    trace: str
    frames: int
    pages: int
    more_than_once: int


def count_rewritten(program: Path, path: Path, trace: Trace, frames: int) -> Rewritten:
    """Counts them in the requests of the cell.

    A place that is discarded and written again holds another page.
    """
    args = ["--frames", str(frames), "--writeback", "hf", "--layout", LAYOUTS["early"], "--merge", "off"]
    writes: Counter[tuple[int, int]] = Counter()
    discards: Counter[int] = Counter()
    for operation, places in after_cache(program, path, *args, "--policy", "lru"):
        if operation == "trim":
            discards.update(places)
        elif operation == "write":
            writes.update((place, discards[place]) for place in places)
    return Rewritten(trace.name, frames, len(writes), sum(count > 1 for count in writes.values()))
