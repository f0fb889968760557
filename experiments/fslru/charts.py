"""Figures 5 to 8 of the paper for our traces."""

from common.drawing import Panel, Style, draw
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
SIZES = [f"{percent}" for percent in PERCENTS]


def draw_all(results: Results) -> dict[str, str]:
    return {
        "figure5.svg": figure_5(results),
        "figure6.svg": figure_6(results),
        "figure7.svg": figure_7(results, PCM),
        "figure7-board.svg": figure_7(results, BOARD),
        "figure8.svg": figure_8(results),
    }


def figure_5(results: Results) -> str:
    panels = []
    for trace in results.traces:
        curves = {
            system: [100 * results.cell(trace, system, percent).hit_ratio for percent in PERCENTS] for system in CURVES
        }
        panels.append(Panel(trace.name, SIZES, curves))
    return draw("Hit ratio, %", FOOTER, CURVES, panels)


def figure_6(results: Results) -> str:
    panels = []
    for trace in results.traces:
        groups = []
        for percent in PERCENTS:
            cells = [results.cell(trace, system, percent) for system in CURVES]
            groups.append([
                [
                    ("read", cell.device_reads),
                    ("write", cell.device_writes - cell.sync_writes),
                    ("sync", cell.sync_writes),
                ]
                for cell in cells
            ])  # fmt: skip
        panels.append(Panel(trace.name, SIZES, bars=groups))
    return draw("Requests to storage, pages", BARS, REQUESTS, panels)


def figure_7(results: Results, profile: str) -> str:
    panels = []
    for trace in results.traces:
        groups = [
            [list(zip(PARTS, time_parts(results.cell(trace, system, percent), profile))) for system in CURVES]
            for percent in PERCENTS
        ]
        panels.append(Panel(trace.name, SIZES, bars=groups))
    return draw(f"Time of memory and storage, s (memory: {profile})", BARS, PARTS, panels)


def figure_8(results: Results) -> str:
    panels = []
    for trace in results.traces:
        curves = {}
        for reading in READINGS:
            value = energy(reading)
            for system in (FSLRU, NVLRU):
                curves[f"{system} {reading}"] = [
                    value(results.cell(trace, system, percent)) / value(results.cell(trace, LRU, percent))
                    for percent in PERCENTS
                ]
        panels.append(Panel(trace.name, SIZES, curves))
    return draw("Energy ÷ LRU's, in four readings of Table III", FOOTER, ENERGIES, panels, logarithmic=True)
