"""Numbers, tables and sentences as RESULTS.md shows them."""

from collections.abc import Iterable
from textwrap import fill


def markdown(head: str, rows: list[list[str]], text: tuple[int, ...] = (0,)) -> str:
    """Columns that are not `text` are numbers."""
    names = head.split("|")
    lines = [names, ["---" if n in text else "---:" for n in range(len(names))], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences, in which a number keeps its percent sign on its line."""
    wrapped = (
        fill(
            one.replace(" %", "\0%"), 100, initial_indent="- ", subsequent_indent="  ",
            break_on_hyphens=False, break_long_words=False,
        ).replace("\0", " ")
        for one in sentences
    )  # fmt: skip
    return "\n" + "\n".join(wrapped) + "\n\n"


def listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def signed(percent: float, digits: int = 1) -> str:
    """A change in percent, with a true minus sign."""
    text = f"{percent:+.{digits}f}"
    return ("0" if float(text) == 0 else text).replace("-", "−")


def change(ours: float, theirs: float) -> float:
    """In percent; nothing from nothing is no change."""
    return 100 * (ours - theirs) / theirs if theirs else 0.0


def count(number: float) -> str:
    return f"{number:,.0f}"
