"""Numbers, tables and sentences as pages of results show them, and the places that they fill."""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log

PAGE_BYTES = 4096
MIB = 1 << 20
PLACE = re.compile(r"(<!-- (?:table|text): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, makers: Mapping[str, Callable[..., str]], *given: object, partly: bool = False) -> str:
    """The page with what its maker makes of `given` in every marked place; `partly`: in some."""
    places = {name for _, name, _ in PLACE.findall(page)}
    if differ := makers.keys() - places if partly else makers.keys() ^ places:
        raise RuntimeError(f"RESULTS.md and the tables differ in: {', '.join(sorted(differ))}")
    made = {name: make(*given) for name, make in makers.items()}
    return PLACE.sub(lambda found: found[1] + made[found[2]] + found[3] if found[2] in made else found[0], page)


def markdown(head: str | Sequence[str], rows: Iterable[Sequence], text: Iterable[int] = (0,), tight: bool = False) -> str:
    """Columns that are not `text` are numbers. `tight`: no blanks in the line below the head."""
    names, text = head.split("|") if isinstance(head, str) else head, set(text)
    sides = ["---" if n in text else "---:" for n in range(len(names))]
    lines = [f"| {' | '.join(map(str, line))} |\n" for line in (names, sides, *rows)]
    if tight:
        lines[1] = f"|{'|'.join(sides)}|\n"
    return "".join(lines)


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """Lines of at most 100 columns."""
    return textwrap.fill(
        text, 100, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def item(text: str) -> str:
    """An entry of a list."""
    return wrapped(text, "- ", "  ") + "\n"


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences, in which a number keeps its percent sign on its line."""
    items = "".join(item(one.replace(" %", "\0%")) for one in sentences)
    return f"\n{items}\n".replace("\0", " ")


def paragraphs(page: str) -> str:
    """Wraps paragraphs and items of lists; tables, headings and commands stay."""
    blocks = []
    for block in page.split("\n\n"):
        if not block.startswith(("|", "#", "    ")):
            items = [" ".join(one.split()) for one in re.split(r"\n(?=- |\d+\. )", block)]
            block = "\n".join(wrapped(one, rest=re.match(r"(?:(?:-|\d+\.) )?", one).end() * " ") for one in items)
        blocks.append(block)
    return "\n\n".join(blocks).rstrip() + "\n"


def listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def minus(text: str) -> str:
    """With true minus signs."""
    return text.replace("-", "−")


def signed(percent: float, digits: int = 1) -> str:
    """A change in percent."""
    text = f"{percent:+.{digits}f}"
    return "0" if float(text) == 0 else minus(text)


def geometric(ratios: Iterable[float]) -> float:
    """The geometric mean; a ratio of zero counts as next to nothing."""
    logs = [log(max(ratio, 1e-9)) for ratio in ratios]
    return exp(sum(logs) / len(logs))


def change(ours: float, theirs: float) -> float:
    """In percent; nothing from nothing is no change."""
    return 100 * (ours - theirs) / theirs if theirs else 0.0


def apart(predicted: float, counted: float) -> str:
    """The error of a prediction; nothing if there is nothing."""
    return minus(f"{100 * (predicted / counted - 1):+.1f} %") if counted else ""


def count(number: float | None, none: str = "") -> str:
    return none if number is None else f"{number:,.0f}"
