"""The six findings of the paper's abstract, and criteria for each to hold for a trace.

The criteria were fixed before any trace was examined.
"""

from collections.abc import Callable
from dataclasses import dataclass

from numbers_of import Numbers

TRUE, FALSE, UNCLEAR, CANNOT_SAY = "true", "false", "unclear", "–"


@dataclass(frozen=True)
class Finding:
    number: int
    claim: str  # the abstract's words
    criterion: str
    verdict: Callable[[Numbers], str]


def decide(is_true: bool, is_false: bool) -> str:
    return TRUE if is_true else FALSE if is_false else UNCLEAR


def hot_blocks(of: Numbers) -> str:
    limited = of.steady_pages_share <= 0.2
    return decide(limited and of.steady_accesses_share >= 0.2, of.steady_accesses_share < 0.05)


def skew(of: Numbers) -> str:
    return decide(of.top_20_percent_share >= 0.75, of.pages_for_80_percent_share >= 0.5)


def sqlite(of: Numbers) -> str:
    share = of.popular_of_sqlite_share
    return CANNOT_SAY if share is None else decide(share >= 0.6, share <= 0.4)


def writes(of: Numbers) -> str:
    shares = (of.write_share, of.write_request_share)
    return decide(min(shares) > 0.5, max(shares) < 0.5)


def frequency(of: Numbers) -> str:
    ahead = (of.frequent_ahead / of.sizes, of.lfu_ahead / of.sizes)
    return decide(min(ahead) >= 2 / 3, max(ahead) <= 1 / 3)


def syncs(of: Numbers) -> str:
    share = of.forced_share
    return CANNOT_SAY if share is None else decide(share >= 0.5, share < 0.2)


FINDINGS = [
    Finding(
        1,
        "There exist a limited number of hot blocks, which are accessed consistently during the entire execution of an "
        "application",
        "pages that are accessed in nine of ten of 16 to 32 equal parts of the trace: **true** if they are at most 20 % of the "
        "pages and take at least 20 % of the page accesses, **false** if they take less than 5 %",
        hot_blocks,
    ),
    Finding(
        2,
        "Block accesses in Android are highly biased such that the top 20% blocks account for 80% of total accesses",
        "**true** if the 20 % of the pages accessed most take at least 75 % of the page accesses, **false** if 80 % of the "
        "accesses need half of the pages, as the paper says of servers",
        skew,
    ),
    Finding(
        3,
        "Hot blocks of the top 100 rankings are mostly involved in SQLite",
        "**true** if at least 60 of the 100 pages accessed most are SQLite's, **false** if at most 40",
        sqlite,
    ),
    Finding(
        4,
        "Unlike desktop applications, file accesses in Android applications are write-intensive",
        "**true** if more than half of the page accesses and more than half of the requests are writes, **false** if less than "
        "half of both",
        writes,
    ),
    Finding(
        5,
        "In predicting future file accesses in Android applications, frequency is a better estimator than temporal locality",
        "at sizes of 4, 8, 16, … up to half of the pages: **true** if at two thirds of the sizes more re-accesses fall on the "
        "pages used most so far than on those used last, and at two thirds an LFU cache hits more often than LRU; **false** "
        "if both is so at no more than a third",
        frequency,
    ),
    Finding(
        6,
        "The effect of traditional buffer cache is limited in Android as file I/O in Android has a lot of synchronous writes, "
        "which incurs immediate storage flushing",
        "**true** if syncs and O_SYNC writes force out at least half of the page writes, however large the cache, **false** if "
        "less than a fifth",
        syncs,
    ),
]
