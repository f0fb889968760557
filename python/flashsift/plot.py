"""Figures of comparisons for papers: `flashsift.plot.hit_ratio(cells).savefig("hits.pdf")`.

Each function takes the data frame of `compare` and returns a matplotlib figure of the width of a
column. Colours are those of Okabe and Ito, which colour-blind readers distinguish; lines differ in
markers and dashes, too. `save` writes a figure as PDF and SVG with text that can be searched.
"""

import io
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._native import FlashsiftError

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, without yellow, which is faint on paper.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h"]
DASHES: list[Any] = ["-", (0, (5, 1.5)), (0, (1, 1)), (0, (3, 1, 1, 1))]
STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    # Text stays text.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "flashsift",
}
COLUMN_INCHES = 3.5
PAGE_BYTES = 4096

Frame = "polars.DataFrame"


def hit_ratio(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws hits over the size of the cache, a line for each policy."""
    rows = [row | {"_y": 100 * row["hits"] / row["accesses"]} for row in once(cells)]
    return by_size(rows, "hits, % of accesses", title)


def misses(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws misses over the size of the cache: of requests, in caches of objects or curves."""
    need(cells, "miss_ratio", "the comparison is one of pages: see hit_ratio()")
    rows = [row | {"_y": 100 * row["miss_ratio"]} for row in once(cells, "miss_ratio")]
    return by_size(rows, "missed, % of requests", title)


def byte_misses(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws the bytes that miss over the size of a cache of objects."""
    need(cells, "byte_miss_ratio", "the comparison is not one of objects with sizes")
    rows = [row | {"_y": 100 * row["byte_miss_ratio"]} for row in once(cells)]
    return by_size(rows, "missed, % of bytes", title)


def writes(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws the data that reaches storage over the size of the cache."""
    need(cells, "device_writes", "the trace has no writes")
    rows = [row | {"_y": row["device_writes"] * PAGE_BYTES / 2**20} for row in once(cells)]
    return by_size(rows, "written to storage, MiB", title)


def reads(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws the data that is read from storage over the size of the cache."""
    rows = [row | {"_y": row["device_reads"] * PAGE_BYTES / 2**20} for row in once(cells)]
    return by_size(rows, "read from storage, MiB", title)


def elapsed(
    cells: "polars.DataFrame", device: str | None = None, title: str | None = None
) -> "Figure":
    """Draws the time on a device over the size of the cache."""
    rows = on_device(cells, device)
    return by_size([row | {"_y": row["elapsed_s"]} for row in rows], "time on the device, s", title)


def lifetime(
    cells: "polars.DataFrame", device: str | None = None, title: str | None = None
) -> "Figure":
    """Draws the years that a device lasts over the size of the cache."""
    column = "lifetime_years"
    need(cells, column, "no device of the comparison has a lifetime")
    rows = [row | {"_y": row[column]} for row in on_device(cells, device)]
    return by_size(rows, "lifetime, years", title)


def tradeoff(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws hits over writes, a point for each policy and size."""
    need(cells, "device_writes", "the trace has no writes")
    rows = once(cells)

    def paint(axes: "Axes") -> None:
        for number, (name, of) in enumerate(grouped(rows)):
            axes.plot(
                [row["device_writes"] * PAGE_BYTES / 2**20 for row in of],
                [100 * row["hits"] / row["accesses"] for row in of],
                label=name, **look(number),
            )
        axes.set(xlabel="written to storage, MiB", ylabel="hits, % of accesses")

    return draw(paint, title)


def sifters(cells: "polars.DataFrame", title: str | None = None) -> "Figure":
    """Draws what each sifter keeps from flash over what applications fetch again for it."""
    need(cells, "kept_share", "the comparison has no sifters")
    rows = [row for row in cells.to_dicts() if row["sifter"] != "none"]

    def paint(axes: "Axes") -> None:
        for number, (name, of) in enumerate(grouped(rows, "sifter")):
            axes.plot(
                [100 * row["fetched_again_share"] for row in of],
                [100 * row["kept_share"] for row in of],
                label=name, **look(number) | {"linestyle": "none"},
            )
        axes.set(xlabel="fetched again, % of droppable data", ylabel="kept from flash, %")

    return draw(paint, title)


def spread(
    values: dict[str, Iterable[float]], label: str, title: str | None = None
) -> "Figure":
    """Draws the distribution of a figure over traces, a box for each name."""
    names = list(values)

    def paint(axes: "Axes") -> None:
        boxes = axes.boxplot(
            [list(values[name]) for name in names], orientation="horizontal", widths=0.6,
            patch_artist=True, flierprops={"markersize": 2.5, "marker": "o"},
            medianprops={"color": "black"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor="#56B4E9", linewidth=0.8)
        axes.set_yticks(range(1, len(names) + 1), names)
        axes.invert_yaxis()
        axes.set(xlabel=label)

    return draw(paint, title, legend=False, height=0.9 + 0.2 * len(names))


def save(figure: "Figure", path: "str | pathlib.Path") -> list[pathlib.Path]:
    """Writes a figure as PDF and as SVG beside it; returns both paths."""
    base = pathlib.Path(path)
    written = []
    for ending, metadata in ((".pdf", {"CreationDate": None}), (".svg", {"Date": None})):
        written.append(base.with_name(base.name + ending))
        import matplotlib

        with matplotlib.rc_context(STYLE):
            figure.savefig(written[-1], metadata=metadata)
    return written


def svg(figure: "Figure") -> str:
    """Returns a figure as the text of an SVG element."""
    import matplotlib

    data = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(data, format="svg", metadata={"Date": None})
    text = data.getvalue()
    return text[text.index("<svg") :]


def once(cells: "polars.DataFrame", column: str = "hits") -> list[dict[str, Any]]:
    """Returns the rows of one device and one write-back: the others repeat their counts."""
    need(cells, column, "the frame is not of a comparison")
    rows = cells.to_dicts()
    first = rows[0]
    fixed = [key for key in ("device", "trace") if key in first]
    return [row for row in rows if all(row[key] == first[key] for key in fixed)]


def on_device(cells: "polars.DataFrame", device: str | None) -> list[dict[str, Any]]:
    need(cells, "device", "the comparison has no device")
    rows = cells.to_dicts()
    wanted = device or rows[0]["device"]
    chosen = [row for row in rows if row["device"] == wanted]
    if not chosen:
        raise FlashsiftError(f"the comparison has no device {wanted}")
    return chosen


def need(cells: "polars.DataFrame", column: str, without: str) -> None:
    if column not in cells.columns or cells.is_empty():
        raise FlashsiftError(f"{without}: there is no column {column}")


def grouped(
    rows: list[dict[str, Any]], key: str = "policy"
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Returns the rows by name, in the order of the frame."""
    several = len({row.get("writeback") for row in rows}) > 1
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        name = f"{row[key]}, {row['writeback']}" if several else row[key]
        groups.setdefault(name, []).append(row)
    return list(groups.items())


def look(number: int) -> dict[str, Any]:
    """Returns colour, marker and dashes of a line; no two of the first 77 lines look alike."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number // len(COLORS) % len(DASHES)],
    }


def by_size(rows: list[dict[str, Any]], label: str, title: str | None) -> "Figure":
    in_bytes = all(row.get("memory_bytes") for row in rows)

    def size(row: dict[str, Any]) -> float:
        return float(row["memory_bytes"] / 2**20 if in_bytes else row["frames"])

    def paint(axes: "Axes") -> None:
        for number, (name, of) in enumerate(grouped(rows)):
            of = sorted((row for row in of if row["_y"] is not None), key=size)
            # A curve has too many points for markers.
            marks = look(number) if len(of) <= 20 else look(number) | {"marker": None}
            axes.plot([size(row) for row in of], [row["_y"] for row in of], label=name, **marks)
        sizes = sorted({size(row) for row in rows})
        axes.set_xscale("log", base=2)
        if len(sizes) <= 10:
            axes.set_xticks(sizes, [f"{size:.4g}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set(xlabel="cache, MiB" if in_bytes else "cache, objects", ylabel=label)

    return draw(paint, title)


def draw(
    paint: Callable[["Axes"], None], title: str | None, legend: bool = True, height: float = 2.6
) -> "Figure":
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FlashsiftError(f"{error}; python3 -m pip install matplotlib") from error

    class Shown(Figure):
        """A figure that notebooks show."""

        def _repr_svg_(self) -> str:
            return svg(self)

    with matplotlib.rc_context(STYLE):
        figure = Shown(figsize=(COLUMN_INCHES, height), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        axes.grid(alpha=0.25, linewidth=0.5)
        if title:
            axes.set_title(title)
        names = axes.get_legend_handles_labels()[1]
        if legend and names:
            columns = min(3, len(names))
            lines = -(-len(names) // columns)
            figure.legend(loc="outside lower center", ncols=columns, frameon=False)
            figure.set_figheight(height + 0.16 * lines)
    return figure
