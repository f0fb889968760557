"""The paper's figures as SVG."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2, log10

from cells import Cell, Trace
from common.drawing import COLUMNS, PANEL_WIDTH, STYLE, begin, placed, ticks_of, white
from published import PAGES_PER_MB
from tables import Results, ends, of_other

# Okabe and Ito's colours, distinct for all kinds of colour vision, each with its own mark.
STYLES = {
    "lru": ("#000000", "M-3,-3h6v6h-6z"),
    "clock": ("#e69f00", "M-3.5,3h7l-3.5,-7z"),
    "linux2q": ("#56b4e9", "M-3.5,-3h7l-3.5,7z"),
    "cflru": ("#009e73", "M0,-4l4,4l-4,4l-4,-4z"),
    "lruwsr": ("#cc79a7", "M-4,-1h3v-3h2v3h3v2h-3v3h-2v-3h-3z"),
    "for": ("#d55e00", "M-3,-4l3,3l3,-3l1,1l-3,3l3,3l-1,1l-3,-3l-3,3l-1,-1l3,-3l-3,-3z"),
    "fab": ("#0072b2", "M-2,-4h4l2,4l-2,4h-4l-2,-4z"),
    "spatialclock": ("#a00000", "M0,-5l1.3,3.4l3.7,.2l-2.9,2.3l1,3.6l-3.1,-2l-3.1,2l1,-3.6l-2.9,-2.3l3.7,-.2z"),
    "spatialclock:insert_ref=1": ("#e0a0a0", ""),
    "belady": ("#999999", "M-3,-1h6v2h-6z"),
}
PANEL_HEIGHT = 210
LEFT, TOP, RIGHT, BOTTOM = 46, 26, 12, 34  # around the plot inside a panel


@dataclass(frozen=True)
class Panel:
    title: str
    curves: dict[str, list[tuple[float, float]]]  # by policy: cache size in MiB and value
    all_fits_mib: float | None = None


def draw(results: Results) -> dict[str, str]:
    """All figures by the name of their file."""
    with_bound = [*results.policies, "belady"]
    published = {
        policy: {mb: cells[policy] for mb, cells in results.published.table1.items()}
        for policy in results.published.table1[4]
    }

    def papers_panel(value: Callable) -> Panel:
        curves = {policy: [(mb, value(cell)) for mb, cell in row.items()] for policy, row in published.items()}
        return Panel("W3 of the paper (Table 1: two sizes)", curves)

    hits, cost = papers_panel(lambda cell: 100 * cell.hit_ratio), papers_panel(lambda cell: cell.cost_s)
    return {
        "figure4.svg": lines(
            results, "Hit ratio, %", [hits, *ours(results, with_bound, lambda cell: 100 * cell.hit_ratio)]
        ),
        "figure5.svg": lines(
            results, "100 µs a page read, 800 µs a page written: seconds",
            [cost, *ours(results, results.policies, lambda cell: cell.cost_s)],
        ),
        "figure9a.svg": bars(results),
        "figure9b.svg": lines(
            results, "Share of writes that are not sequential, %",
            ours(results, results.policies, lambda cell: 100 * cell.nonsequential_share),
        ),
    }  # fmt: skip


def ours(results: Results, policies: list[str], value: Callable[[Cell], float]) -> list[Panel]:
    panels = []
    for trace in results.traces:
        curves = {}
        for policy in policies:
            cells = (results.cell(trace, policy, frames) for frames in results.sizes(trace))
            curves[policy] = [(cell.memory_mib, value(cell)) for cell in cells]
        panels.append(Panel(trace.name, curves, trace.pages / PAGES_PER_MB))
    return panels


def lines(results: Results, title: str, panels: list[Panel]) -> str:
    policies = [policy for policy in STYLES if any(policy in panel.curves for panel in panels)]
    drawn = [_curves(panel) for panel in panels]
    footer = "Cache size in MiB. Grey: the whole trace fits."
    return _page(title, footer, _legend(results, policies), drawn)


def _curves(panel: Panel) -> str:
    points = [point for curve in panel.curves.values() for point in curve]
    least_x, most_x = log2(min(x for x, _ in points)) - 0.15, log2(max(x for x, _ in points)) + 0.15
    ticks = ticks_of(min(y for _, y in points), max(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        return _scale(log2(x), least_x, most_x, LEFT, PANEL_WIDTH - RIGHT), _scale(
            y, ticks[0], ticks[-1], PANEL_HEIGHT - BOTTOM, TOP
        )

    svg = []
    bottom, right = PANEL_HEIGHT - BOTTOM, PANEL_WIDTH - RIGHT
    if panel.all_fits_mib and log2(panel.all_fits_mib) < most_x:
        left = max(LEFT, at(panel.all_fits_mib, 0)[0])
        svg.append(f'<rect class="fits" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{bottom - TOP}"/>')
    for tick in ticks:
        y = at(1, tick)[1]
        svg.append(f'<path class="grid" d="M{LEFT},{y:.1f}H{right}"/>')
        svg.append(f'<text class="end" x="{LEFT - 5}" y="{y + 3.5:.1f}">{_label(tick, ticks)}</text>')
    for power in range(ceil(least_x), floor(most_x) + 1):
        x = at(2**power, 0)[0]
        svg.append(f'<path class="grid" d="M{x:.1f},{bottom}v4"/>')
        if power % 2 == 0:
            svg.append(f'<text class="middle" x="{x:.1f}" y="{bottom + 16}">{2.0**power:g}</text>')
    for policy in sorted(panel.curves, key=lambda policy: policy == "spatialclock"):
        color, _ = STYLES[policy]
        places = [at(x, y) for x, y in panel.curves[policy]]
        path = "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="4 3"' if policy == "belady" else ""
        svg.append(f'<path class="curve" stroke="{color}"{dash} d="M{path}"/>')
        svg += (f'<use href="#{policy}" x="{x:.1f}" y="{y:.1f}"/>' for x, y in places)
    return _titled(panel.title, svg)


def bars(results: Results) -> str:
    """Figure 9(a): by policy; bars at W3's share of 64 MB, a line at 64 MB."""
    panels = [_bars(results, trace) for trace in results.traces]
    footer = (
        f"Bar: a cache of {results.published.share_of_w3(64):.0%} of what the trace touches, as 64 MB are of W3. "
        "Black line: 64 MB."
    )
    return _page("Share of writes that are not sequential, %", footer, "", panels)


def _bars(results: Results, trace: Trace) -> str:
    at_64_mb, at_share = ends(results, trace)[1::2]
    shares = {
        policy: [100 * results.cell(trace, policy, frames).nonsequential_share for frames in (at_share, at_64_mb)]
        for policy in [*results.policies, "spatialclock:insert_ref=1"]
    }
    left, bottom = LEFT + 34, PANEL_HEIGHT - BOTTOM
    ticks = ticks_of(0, max(max(pair) for pair in shares.values()))

    def at(value: float) -> float:
        return _scale(value, 0, ticks[-1], left, PANEL_WIDTH - RIGHT)

    svg = []
    for tick in ticks:
        svg.append(f'<path class="grid" d="M{at(tick):.1f},{TOP}V{bottom}"/>')
        svg.append(f'<text class="middle" x="{at(tick):.1f}" y="{bottom + 14}">{tick:g}</text>')
    step = (bottom - TOP) / len(shares)
    for n, (policy, (share, share_64_mb)) in enumerate(shares.items()):
        y = TOP + n * step
        name = escape(results.name(policy)).replace("SpatialClock:insert_ref=1", "… with bit set")
        svg.append(f'<text class="end" x="{left - 5}" y="{y + step / 2 + 3.5:.1f}">{name}</text>')
        color = STYLES[policy][0]
        width = at(share) - left
        svg.append(f'<rect fill="{color}" x="{left}" y="{y + 3:.1f}" width="{width:.1f}" height="{step - 6:.1f}"/>')
        svg.append(f'<path class="line" d="M{at(share_64_mb) - 2:.1f},{y + 1:.1f}h4v{step - 2:.1f}h-4z"/>')
    return _titled(trace.name + of_other(trace), svg)


def _label(tick: float, ticks: list[float]) -> str:
    return f"{tick:.{max(0, ceil(-log10(ticks[1] - ticks[0])))}f}"


def _scale(value: float, least: float, most: float, to_least: float, to_most: float) -> float:
    return to_least + (value - least) / (most - least) * (to_most - to_least)


def _titled(title: str, svg: list[str]) -> str:
    return "\n".join([f'<text class="title" x="{LEFT}" y="16">{escape(title)}</text>', *svg])


def _legend(results: Results, policies: list[str]) -> str:
    svg = []
    for n, policy in enumerate(policies):
        x = 16 + n * 88
        name = "Belady (bound)" if policy == "belady" else results.name(policy)
        svg.append(f'<use href="#{policy}" x="{x}" y="42"/><text x="{x + 9}" y="46">{escape(name)}</text>')
    return "\n".join(svg)


def _page(title: str, footer: str, legend: str, panels: list[str]) -> str:
    head = 58 if legend else 30
    rows = ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * PANEL_WIDTH, head + rows * PANEL_HEIGHT + 22
    marks = "".join(f'<path id="{policy}" fill="{color}" d="{mark}"/>' for policy, (color, mark) in STYLES.items())
    svg = [
        begin(width, height),
        f"<style>{STYLE}.fits{{fill:#f0f0f0}}.curve{{fill:none;stroke-width:1.4}}.line{{fill:#000;stroke:#fff}}</style>",
        f"<defs>{marks}</defs>{white(width, height)}",
        f'<text class="title" x="16" y="20">{escape(title)}</text>',
        legend,
        *placed(panels, head, PANEL_HEIGHT),
        f'<text x="16" y="{height - 8}">{escape(footer)}</text>\n</svg>\n',
    ]
    return "\n".join(svg)
