"""Figures as SVG: small multiples with curves or stacked bars over sizes, and their parts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10

PANEL_WIDTH, PANEL_HEIGHT = 270, 200
COLUMNS = 3
LEFT, TOP, RIGHT, BOTTOM = 52, 26, 10, 30  # around the plot inside a panel
STYLE = (
    "text{font:11px sans-serif;fill:#222}.title{font-weight:bold}.end{text-anchor:end}.middle{text-anchor:middle}"
    ".grid{stroke:#ddd}"
)


@dataclass(frozen=True)
class Style:
    name: str
    color: str
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    sizes: list[str]
    # By key of a style, one value a size.
    curves: dict[str, list[float]] = field(default_factory=dict)
    # One group of bars a size; a bar is its parts from the bottom up, by key of a style.
    bars: list[list[list[tuple[str, float]]]] = field(default_factory=list)


def panels(traces: Iterable, sizes: Callable, curves: Callable = lambda _: {}, bars: Callable = lambda _: []) -> list[Panel]:
    """A panel for each trace, by functions of it."""
    return [Panel(trace.name, [f"{size}" for size in sizes(trace)], curves(trace), bars(trace)) for trace in traces]


def draw(title: str, footer: str, styles: dict[str, Style], panels: list[Panel], logarithmic: bool = False) -> str:
    rows = ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * PANEL_WIDTH, 56 + rows * PANEL_HEIGHT + 22
    svg = [
        begin(width, height),
        f"<style>{STYLE}.curve{{fill:none;stroke-width:1.6}}.dashed{{stroke-dasharray:4 3}}</style>"
        + white(width, height),
        f'<text class="title" x="14" y="20">{escape(title)}</text>',
    ]
    x = 14
    for style in styles.values():
        dashed = " dashed" if style.dashed else ""
        svg.append(f'<path class="curve{dashed}" stroke="{style.color}" style="stroke-width:5" d="M{x},40h16"/>')
        svg.append(f'<text x="{x + 20}" y="44">{escape(style.name)}</text>')
        x += 34 + round(6.2 * len(style.name))
    svg += placed([_panel(panel, styles, logarithmic) for panel in panels], 56, PANEL_HEIGHT)
    svg.append(f'<text x="14" y="{height - 8}">{escape(footer)}</text>\n</svg>\n')
    return "\n".join(svg)


def begin(width: int, height: int) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'


def white(width: int, height: int) -> str:
    return f'<rect width="{width}" height="{height}" fill="#fff"/>'


def placed(panels: list[str], top: int, height: int) -> list[str]:
    """Panels of this height in columns."""
    return [
        f'<g transform="translate({n % COLUMNS * PANEL_WIDTH},{top + n // COLUMNS * height})">\n{panel}\n</g>'
        for n, panel in enumerate(panels)
    ]


def _panel(panel: Panel, styles: dict[str, Style], logarithmic: bool) -> str:
    bottom, right = PANEL_HEIGHT - BOTTOM, PANEL_WIDTH - RIGHT
    values = [value for curve in panel.curves.values() for value in curve]
    values += [sum(part for _, part in bar) for group in panel.bars for bar in group]
    if logarithmic:
        powers = range(floor(log10(min(values))), ceil(log10(max(values)) + 1e-9) + 1)
        ticks = [10.0**power for power in powers]
    else:
        ticks = ticks_of(0, max(values) or 1.0)

    def at(value: float) -> float:
        low, high = ticks[0], ticks[-1]
        share = log10(value / low) / log10(high / low) if logarithmic else (value - low) / (high - low)
        return bottom - share * (bottom - TOP)

    svg = [f'<text class="title" x="{LEFT}" y="16">{escape(panel.title)}</text>']
    for tick in ticks:
        svg.append(f'<path class="grid" d="M{LEFT},{at(tick):.1f}H{right}"/>')
        svg.append(f'<text class="end" x="{LEFT - 5}" y="{at(tick) + 3.5:.1f}">{tick:,g}</text>')
    step = (right - LEFT) / len(panel.sizes)
    for n, size in enumerate(panel.sizes):
        svg.append(f'<text class="middle" x="{LEFT + (n + 0.5) * step:.1f}" y="{bottom + 16}">{size}</text>')
    for name, curve in panel.curves.items():
        points = "L".join(f"{LEFT + (n + 0.5) * step:.1f},{at(value):.1f}" for n, value in enumerate(curve))
        dashed = " dashed" if styles[name].dashed else ""
        svg.append(f'<path class="curve{dashed}" stroke="{styles[name].color}" d="M{points}"/>')
    for n, group in enumerate(panel.bars):
        width = 0.84 * step / len(group)
        for m, bar in enumerate(group):
            base = 0.0
            for name, part in bar:
                if part:
                    x, y = LEFT + (n + 0.08) * step + m * width, at(base + part)
                    size = f'width="{0.88 * width:.1f}" height="{at(base) - y:.1f}"'
                    svg.append(f'<rect fill="{styles[name].color}" x="{x:.1f}" y="{y:.1f}" {size}/>')
                base += part
    return "\n".join(svg)


def ticks_of(least: float, most: float) -> list[float]:
    """About five round numbers that hold the range."""
    span = (most - least) or abs(most) or 1.0
    magnitude = 10 ** floor(log10(span / 4))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if span / (factor * magnitude) <= 5)
    first, last = floor(least / step + 1e-9), ceil(most / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]
