"""Figures 3 to 5 of the paper for our traces, and the time by size of read-ahead."""

from common.drawing import Style, draw, panels
from common.traces import Trace
from simulate import DEVICES, OFF, PAPER, SHARES, SIZES_KIB
from tables import DEFAULT, Results

LENGTHS_KIB = [1, 4, 16, 64, 128, 256, 1024]
REQUESTS = {"reads": Style("read requests, %", "#0072b2")}
PREFETCHES = {
    "max": Style("of the maximum size, %", "#0072b2"),
    "asked": Style("used / asked, %", "#d55e00"),
    "evicted": Style("evicted / requested, %", "#888888", dashed=True),
}
MAXIMA = {
    "hits": Style("hits, %", "#0072b2"),
    "asked": Style("used / asked, %", "#d55e00"),
    "pages": Style("mean pages", "#888888", dashed=True),
}
STYLES = {"emmc-5.1": Style("eMMC 5.1", "#0072b2"), "ufs-3.1": Style("UFS 3.1", "#d55e00")}


def draw_all(results: Results) -> dict[str, str]:
    return {
        "figure3.svg": figure_3(results),
        "figure4.svg": figure_4(results),
        "figure5.svg": figure_5(results),
        "sizes.svg": sizes(results),
    }


def figure_3(results: Results) -> str:
    def curves(trace: Trace) -> dict:
        return {"reads": [results.read_share(trace, kib) for kib in LENGTHS_KIB]}

    shown = panels(results.traces, lambda _: LENGTHS_KIB, curves)
    return draw("Read requests that are no longer than this", "Length of requests in KiB.", REQUESTS, shown)


def figure_4(results: Results) -> str:
    def curves(trace: Trace) -> dict:
        cells = [results.cell(trace, PAPER[DEFAULT], share) for share in SHARES]
        return {
            "max": [100 * cell.at_max for cell in cells],
            "asked": [100 * cell.efficiency for cell in cells],
            "evicted": [100 * cell.eviction_ratio for cell in cells],
        }

    footer = "Size of the cache in percent of the peak live pages."
    shown = panels(results.traces, lambda _: SHARES, curves)
    return draw("The paper's read-ahead with a maximum of 32 pages", footer, PREFETCHES, shown)


def figure_5(results: Results) -> str:
    def curves(trace: Trace) -> dict:
        cells = [results.cell(trace, readahead) for readahead in PAPER.values()]
        return {
            "hits": [100 * cell.hit_ratio for cell in cells],
            "asked": [100 * cell.efficiency for cell in cells],
            "pages": [cell.mean_pages for cell in cells],
        }

    footer = "Maximum in pages. Cache: 10 % of the peak live pages."
    shown = panels(results.traces, lambda _: PAPER, curves)
    return draw("The paper's read-ahead with a smaller maximum", footer, MAXIMA, shown)


def sizes(results: Results) -> str:
    def times(trace: Trace, device: str) -> list[float]:
        plain = results.time(trace, OFF, device).elapsed_s
        return [100 * time / plain for time in results.elapsed_s(trace, device).values()]

    footer = "read_ahead_kb of Linux 6.1. Cache: 10 % of the peak live pages."
    shown = panels(results.traces, lambda _: SIZES_KIB, lambda trace: {of: times(trace, of) for of in DEVICES})
    return draw("Modelled time of reads and writes, % of that without read-ahead", footer, STYLES, shown)
