"""Figures 5 to 8 of the paper for our traces."""

from collections.abc import Callable

from common.drawing import Panel, Style, draw, panels
from common.nvm import Cell
from common.traces import Trace
from evaluation import BOARD, FSLRU, LRU, NAMES, NVLRU, PCM, PERCENTS, READINGS, Results, energy, time_parts

CURVES = {
    LRU: Style("LRU", "#888888", dashed=True),
    NVLRU: Style("NVLRU", "#0072b2"),
    FSLRU: Style("FSLRU", "#d55e00"),
}
REQUESTS = {
    "read": Style("read", "#56b4e9"),
    "write": Style("write", "#e69f00"),
    "sync": Style("sync write", "#a00000"),
}
PARTS = {"dram": Style("DRAM", "#009e73"), "nvm": Style("NVM", "#222222"), "nand": Style("NAND", "#d55e00")}
ENERGIES = {
    f"{system} {reading}": Style(
        NAMES[system] + (f", {name}" if system == FSLRU else ""), color, dashed=system == NVLRU
    )
    for (reading, name), color in zip(READINGS.items(), ("#222222", "#d55e00", "#0072b2", "#009e73"))
    for system in (FSLRU, NVLRU)
}
FOOTER = "Size of the cache in percent of the footprint."
BARS = f"{FOOTER} Bars: LRU, NVLRU, FSLRU."


def draw_all(results: Results) -> dict[str, str]:
    return {
        "figure5.svg": figure_5(results),
        "figure6.svg": figure_6(results),
        "figure7.svg": figure_7(results, PCM),
        "figure7-board.svg": figure_7(results, BOARD),
        "figure8.svg": figure_8(results),
    }


def shown(results: Results, curve: Callable | None = None, bar: Callable | None = None) -> list[Panel]:
    """Panels with a curve for each system, or a bar, by functions of a cell."""
    def cells(trace: Trace, system: str) -> list[Cell]:
        return [results.cell(trace, system, percent) for percent in PERCENTS]

    if bar is None:
        return panels(results.traces, lambda _: PERCENTS, lambda trace: {
            system: list(map(curve, cells(trace, system))) for system in CURVES})
    return panels(results.traces, lambda _: PERCENTS, bars=lambda trace: [
        list(map(bar, group)) for group in zip(*(cells(trace, system) for system in CURVES))])


def figure_5(results: Results) -> str:
    return draw("Hit ratio, %", FOOTER, CURVES, shown(results, lambda cell: 100 * cell.hit_ratio))


def figure_6(results: Results) -> str:
    def bar(cell: Cell) -> list:
        written = cell.device_writes - cell.sync_writes
        return [("read", cell.device_reads), ("write", written), ("sync", cell.sync_writes)]

    return draw("Requests to storage, pages", BARS, REQUESTS, shown(results, bar=bar))


def figure_7(results: Results, profile: str) -> str:
    bars = shown(results, bar=lambda cell: list(zip(PARTS, time_parts(cell, profile))))
    return draw(f"Time of memory and storage, s (memory: {profile})", BARS, PARTS, bars)


def figure_8(results: Results) -> str:
    def curves(trace: Trace) -> dict:
        return {
            f"{system} {reading}": [
                energy(reading)(results.cell(trace, system, percent)) / energy(reading)(results.cell(trace, LRU, percent))
                for percent in PERCENTS
            ]
            for reading in READINGS
            for system in (FSLRU, NVLRU)
        }

    ratios = panels(results.traces, lambda _: PERCENTS, curves)
    return draw("Energy ÷ LRU's, in four readings of Table III", FOOTER, ENERGIES, ratios, logarithmic=True)
