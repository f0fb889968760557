"""Markdown tables between the markers of RESULTS.md."""

import tomllib
from collections.abc import Callable
from pathlib import Path

from common.pages import count as counted
from common.pages import markdown, wrapped
from findings import FINDINGS
from numbers_of import Numbers

HERE = Path(__file__).parent


def criteria(_: list[Numbers]) -> str:
    texts = (f"{finding.number}. “{finding.claim}.” — {finding.criterion}; else unclear." for finding in FINDINGS)
    return "".join(wrapped(text, rest="   ") + "\n" for text in texts)


def verdicts(rows: list[Numbers]) -> str:
    """One verdict for each trace and finding, and their numbers."""
    lines = [[row.trace, *(finding.verdict(row) for finding in FINDINGS)] for row in rows]
    holds = []
    for n in range(1, len(FINDINGS) + 1):
        said = [line[n] for line in lines if line[n] != "–"]
        holds.append(f"**{said.count('true')} of {len(said)}**")
    head = "trace|1 hot blocks|2 skew|3 SQLite|4 writes|5 frequency|6 syncs"
    return markdown(head, [*lines, ["**true**", *holds]], text=tuple(range(7)))


def mix(rows: list[Numbers]) -> str:
    """Table 1."""
    lines = []
    for load in tomllib.loads((HERE / "published.toml").read_text())["traces"]:
        reads, writes = load["reads"], load["writes"]
        lines.append([f"*{load['name']}*", "", count(reads), count(writes), share(writes / (reads + writes)), ""])
    for row in rows:
        time = "no times" if row.duration_us is None else f"{row.duration_us / 60e6:.0f} min"
        write_requests = share(row.write_request_share)
        lines.append([
            row.trace, f"{row.format}, {time}", count(row.page_reads), count(row.page_writes), share(row.write_share),
            write_requests,
        ])  # fmt: skip
    return markdown("trace|kind|block or page reads|writes|writes|of the requests", lines, text=(0, 1))


def hot(rows: list[Numbers]) -> str:
    """Findings 1 to 3."""
    lines = [["*published*", "", "“limited”", "", "≈ 80 % (Farmstory 40 %)", "(servers: 50–60 %)", "mostly (Farmstory: none)", ""]]
    for row in rows:
        lines.append([
            row.trace, count(row.pages), share(row.steady_pages_share), share(row.steady_accesses_share),
            share(row.top_20_percent_share), share(row.pages_for_80_percent_share), share(row.popular_of_sqlite_share),
            share(row.sqlite_accesses_share),
        ])  # fmt: skip
    head = "trace|pages|steady pages|accesses to them|top 20 % take|80 % fall on|SQLite's of the top 100|of all accesses"
    return markdown(head, lines)


def again(rows: list[Numbers]) -> str:
    """Finding 5."""
    lines = []
    for row in rows:
        lines.append([
            row.trace, f"{share(row.recent_2_share)} / {share(row.frequent_2_share)}",
            f"{share(row.recent_tenth_share)} / {share(row.frequent_tenth_share)}",
            f"{row.frequent_ahead} of {row.sizes}", f"{row.frequent_ahead_in_bins} of {row.bins}", f"{share(row.lru_tenth)} / {share(row.lfu_tenth)}",
            f"{row.lfu_ahead} of {row.sizes}",
        ])  # fmt: skip
    head = "trace|ranks 1, 2: last / most used|up to a tenth of the pages|most used ahead at|ahead in bins of ranks|hits LRU / LFU there|LFU ahead at"
    return markdown(head, lines)


def synced(rows: list[Numbers]) -> str:
    """Finding 6."""
    lines = []
    for row in rows:
        lines.append([
            row.trace, count(row.syncs), share(row.forced_share), share(row.written_share), share(row.written_by_sync_share),
            share(row.written_by_sync_all_share), share(row.written_as_hf_share), share(row.read_hits_of_all),
        ])  # fmt: skip
    head = (
        "trace|syncs|page writes forced out|with a cache of everything: nothing writes back|a sync writes its file|"
        "any sync writes all|and so do every 5 s|page reads served"
    )
    return markdown(head, lines)


TABLES: dict[str, Callable[[list[Numbers]], str]] = {
    table.__name__: table for table in (criteria, verdicts, mix, hot, again, synced)
}


def count(number: int | None) -> str:
    return counted(number, "–")


def share(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0%}" if value in (0, 1) or 0.0995 <= value < 0.995 else f"{value:.1%}"
