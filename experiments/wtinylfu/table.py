"""table.py FLASHSIFT ZIPF SAMPLE…: hits and writes of W-TinyLFU by sample period."""

import glob
import sys

from common.pages import markdown
from common.program import records

BASE = "10"


def cells(flashsift, samples, trace, options):
    """By size: hits in per cent and pages written, for each sample and LRU."""
    names = [*(f"wtinylfu:sample={sample}" for sample in samples), "lru"]
    cells = []
    # One at a time, since a default is not repeated in a policy's printed name.
    for name in names:
        found = records(flashsift, "compare", "--json", "--writeback", "evict", "--policy", name, *options, trace)
        cells.append([
            (100 * cell["hits"] / cell["accesses"], cell.get("device_writes", 0)) for cell in found if "hits" in cell
        ])  # fmt: skip
    return dict(zip([*samples, "lru"], cells, strict=True))


def main():
    flashsift, zipf, *samples = sys.argv[1:]
    names = [*samples, "lru"]
    traces = sorted(glob.glob("testdata/*.parquet") + glob.glob("testdata/days/*.parquet"))
    hits = {name: [] for name in names}
    writes = {name: [] for name in names}
    for trace in traces:
        for name, found in cells(flashsift, samples, trace, []).items():
            hits[name] += [hit for hit, _ in found]
            writes[name] += [written for _, written in found]
    # Cells in which some sample decides at all.
    count = len(hits[BASE])
    print(f"{len(traces)} recordings, {count} cells\n")
    rows, total = [], sum(writes[BASE])
    for name in names:
        pairs = list(zip(hits[name], hits[BASE], strict=True))
        more = sum(one > other for one, other in pairs)
        fewer = sum(one < other for one, other in pairs)
        mean = sum(hits[name]) / count
        share = sum(writes[name]) / total
        rows.append([name, f"{mean:.2f}", more, fewer, f"{share:.3f}"])
    head = f"sample|hits %, mean|cells with more hits than {BASE}|with fewer|pages written"
    print(markdown(head, rows, tight=True))
    on_zipf = cells(flashsift, samples, zipf, ["--object-cache", "--frames", "100000"])
    rows = [[name, f"{found[0][0]:.2f}"] for name, found in on_zipf.items()]
    print(markdown("sample|hits % on Zipf's law", rows, tight=True), end="")


main()
