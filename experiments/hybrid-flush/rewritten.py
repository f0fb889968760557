"""Pages that a page cache over plain storage writes back more than once."""

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nvm_cells import Trace, output

sys.path.append(str(Path(__file__).resolve().parent.parent / "spatialclock"))
from cells import LAYOUTS, fio_requests  # noqa: E402


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
    with tempfile.TemporaryDirectory() as out:
        args = ["--frames", str(frames), "--writeback", "hf", "--layout", LAYOUTS["early"], "--merge", "off"]
        args += ["--policy", "lru", "--after-cache", out, "--after-cache-format", "fio-iolog-3", "--quiet"]
        output(program, "compare", path, *args)
        (log,) = Path(out).iterdir()
        writes: Counter[tuple[int, int]] = Counter()
        discards: Counter[int] = Counter()
        for operation, places in fio_requests(log):
            if operation == "trim":
                discards.update(places)
            elif operation == "write":
                writes.update((place, discards[place]) for place in places)
    return Rewritten(trace.name, frames, len(writes), sum(count > 1 for count in writes.values()))
