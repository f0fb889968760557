"""The Pareto front of time and hits as SVG."""

from html import escape
from math import ceil, floor, log2

from common.drawing import STYLE, begin, white
from simulate import DEVICES, FAST, HITTING, OFF
from tables import TESTED, Combination, Results

WIDTH, HEIGHT = 330, 330
LEFT, TOP, RIGHT, BOTTOM = 44, 60, 14, 44
COLORS = (
    ".all{fill:#bbb}.front{fill:none;stroke:#0072b2;stroke-width:1.5}.on{fill:#0072b2}.rival{fill:#d55e00}"
    ".chosen{fill:#009e73}"
)


def draw(results: Results) -> str:
    test = results.of_split(TESTED)
    panels = [
        f'<g transform="translate({n * WIDTH},0)">{panel(test, device, results.judged[0])}</g>'
        for n, device in enumerate(DEVICES)
    ]
    width = WIDTH * len(DEVICES)
    return "\n".join([
        begin(width, HEIGHT),
        f"<style>{STYLE}{COLORS}</style>{white(width, HEIGHT)}",
        '<text class="title" x="14" y="18">Time and hits of every policy with every size of clusters: '
        "means over the test cells</text>",
        '<text x="14" y="34">Blue: no other is faster and hits as often. Orange: the policies to beat, without '
        "clusters. Green: the chosen combination.</text>",
        *panels,
        "</svg>",
        "",
    ])  # fmt: skip


def panel(test: Results, device: str, chosen: Combination) -> str:
    points = {one: (log2(test.relative_time(one, device)), test.more_hits(one, device)) for one in test.combinations()}
    # A very slow or rarely hitting policy would press the others together.
    best_hits = max(hits for _, hits in points.values())
    shown = {one: at for one, at in points.items() if at[0] <= 1.6 and at[1] >= best_hits - 16}
    least_x, most_x = (side(x for x, _ in shown.values()) for side in (min, max))
    least_y, most_y = (side(y for _, y in shown.values()) for side in (min, max))
    least_x, most_x = floor(4 * least_x) / 4, ceil(4 * most_x + 0.01) / 4
    least_y, most_y = 2 * floor(least_y / 2), 2 * ceil(most_y / 2 + 0.01)

    def at(one: Combination) -> tuple[float, float]:
        x, y = points[one]
        return (
            LEFT + (x - least_x) / (most_x - least_x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - least_y) / (most_y - least_y) * (HEIGHT - TOP - BOTTOM),
        )

    svg = [f'<text class="title" x="{LEFT}" y="{TOP - 6}">{device}</text>']
    for step in range(round((most_y - least_y) / 2) + 1):
        y = HEIGHT - BOTTOM - step * 2 / (most_y - least_y) * (HEIGHT - TOP - BOTTOM)
        svg.append(f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>')
        svg.append(f'<text class="end" x="{LEFT - 5}" y="{y + 4:.1f}">{least_y + 2 * step:g}</text>')
    quarters = round(4 * (most_x - least_x))
    for step in range(0, quarters + 1, max(1, quarters // 5)):
        x = LEFT + step / quarters * (WIDTH - LEFT - RIGHT)
        svg.append(f'<path class="grid" d="M{x:.1f},{TOP}V{HEIGHT - BOTTOM}"/>')
        svg.append(f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}">{2 ** (least_x + step / 4):.2f}</text>')
    svg.append(f'<text class="middle" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 12}">time ÷ LRU\'s; up: hits, points</text>')
    for one in shown:
        svg.append(dot("all", *at(one), 2.5, one))
    front = [one for one in test.front(device) if one in shown]
    svg.append('<path class="front" d="M' + "L".join(f"{x:.1f},{y:.1f}" for x, y in map(at, front)) + '"/>')
    svg += [dot("on", *at(one), 3.5, one) for one in front]
    for rival in [*FAST, *HITTING]:
        if (rival, OFF) in shown:
            svg += labelled("rival", *at((rival, OFF)), (rival, OFF))
    if chosen in shown:
        svg += labelled("chosen", *at(chosen), chosen)
    return "\n".join(svg)


def dot(kind: str, x: float, y: float, radius: float, one: Combination) -> str:
    title = escape(" ".join(part for part in one if part != OFF))
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{title}</title></circle>'


def labelled(kind: str, x: float, y: float, one: Combination) -> list[str]:
    title = escape(" ".join(part for part in one if part != OFF))
    end = x > WIDTH * 0.6
    return [
        dot(kind, x, y, 4, one),
        f'<text class="{"end" if end else "begin"}" x="{x + (-6 if end else 6):.1f}" y="{y + 4:.1f}">{title}</text>',
    ]
