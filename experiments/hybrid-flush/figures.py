"""Figures 8 and 9 of the paper for our traces."""

from common.drawing import Style, draw, panels
from common.traces import Trace
from tables import DEVICE, FIXED, HYBRID, MEMORY, NVM, SHARE, STORAGE, Place, Results, buffers, paper_split

CURVES = {
    STORAGE: Style("Flush-storage", "#888888", dashed=True),
    NVM: Style("Flush-NVM", "#0072b2"),
    HYBRID: Style("hybrid flush", "#d55e00"),
}
PARTS = {
    "read": Style("storage read", "#56b4e9"),
    "write": Style("storage write", "#d55e00"),
    "nvm": Style("NVM", "#222222"),
}


def draw_all(results: Results) -> dict[str, str]:
    return {
        "figure8.svg": figure_8(results, SHARE),
        "figure8-64mib.svg": figure_8(results, FIXED),
        "figure9.svg": figure_9(results, False),
        "figure9-throughput.svg": figure_9(results, True),
    }


def figure_8(results: Results, dram: str) -> str:
    def curves(trace: Trace) -> dict:
        places = results.places(trace, dram)
        return {system: [results.cell(place, system).device_writes for place in places] for system in CURVES}

    title = f"Pages written to storage; DRAM: {dram}" + (" of the footprint" if dram == SHARE else "")
    return draw(title, "Size of the buffer in pages.", CURVES, panels(results.traces, buffers, curves))


def figure_9(results: Results, by_throughput: bool) -> str:
    def bar(place: Place, system: str) -> list:
        cell = results.cell(place, system)
        read_s, write_s = paper_split(cell) if by_throughput else (cell.storage_read_s, cell.storage_write_s)
        return [("read", 1e3 * read_s), ("write", 1e3 * write_s), ("nvm", 1e3 * cell.nvm_s(MEMORY))]

    def bars(trace: Trace) -> list:
        return [[bar(place, system) for system in CURVES] for place in results.places(trace, SHARE)]

    how = "bytes by greatest throughput" if by_throughput else f"modelled {DEVICE}"
    footer = "Size of the buffer in pages; bars: Flush-storage, Flush-NVM, hybrid flush. DRAM: 10 % of the footprint."
    return draw(f"Storage access time, ms ({how})", footer, PARTS, panels(results.traces, buffers, bars=bars))
