"""The numbers of a trace from flashsift that the six findings need."""

from dataclasses import dataclass, fields
from pathlib import Path

from common.program import records


@dataclass(frozen=True)
class Numbers:
    """One trace. Shares are of 1; values that the trace does not have are None."""

    trace: str
    own: bool  # recorded by this project
    format: str
    duration_us: int | None
    read_requests: int
    write_requests: int
    page_reads: int
    page_writes: int
    pages: int
    # 1: over time
    windows: int
    steady_pages_share: float
    steady_accesses_share: float
    # 2: skew
    top_20_percent_share: float
    pages_for_80_percent_share: float
    # 3: SQLite
    popular_of_sqlite_share: float | None
    sqlite_accesses_share: float | None
    # 5: re-accesses. Sizes: powers of two from 4 to half of the pages.
    recent_2_share: float  # of the re-accesses, on the 2 pages used last
    frequent_2_share: float
    recent_tenth_share: float  # on the last size that is at most a tenth of the pages
    frequent_tenth_share: float
    sizes: int
    frequent_ahead: int  # sizes at which more fall on the most used
    bins: int  # of ranks from 3 on, by powers of two
    frequent_ahead_in_bins: int  # in which more fall on those most used, each bin by itself
    lfu_ahead: int  # sizes at which an LFU cache hits more often than LRU
    lru_tenth: float  # hit ratios
    lfu_tenth: float
    # 6: syncs
    syncs: int | None
    forced_share: float | None
    # With a cache that holds everything: page writes that reach storage or are dirty at the end.
    written_share: float  # without write-back before the end
    written_by_sync_share: float | None  # if a sync writes its file's pages
    written_by_sync_all_share: float | None  # if any sync writes all
    written_as_hf_share: float | None  # if any sync, and every five seconds, writes all
    read_hits_of_all: float | None

    def __post_init__(self) -> None:
        # Rounded as in numbers.csv, so that runs with and without a trace write the same.
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), float):
                object.__setattr__(self, field.name, round(value, 6))

    @property
    def write_share(self) -> float:
        return self.page_writes / (self.page_reads + self.page_writes)

    @property
    def write_request_share(self) -> float:
        return self.write_requests / (self.read_requests + self.write_requests)


def numbers(program: Path, path: Path, own: bool) -> Numbers | str:
    """The numbers of the trace in a file, or the reason why it is left out."""
    try:
        (said,) = records(program, "describe", path, "--json")
    except RuntimeError as error:
        if "no trace format recognises" in str(error):
            return "no trace"
        raise
    if said["side"] != "before":
        return "an after-cache trace: a cache has already taken the hits out of it"
    operations = {row["operation"]: row for row in said["mix"]["operations"]}
    if "writes" not in operations:
        return "it does not tell reads from writes"
    reads, writes = operations["reads"], operations["writes"]
    pages = said["footprint"]["touched"][0]["touched"]
    skew = said["skew"]["skew"][0]
    sqlite = said.get("sqlite")
    syncs = said.get("sync_distance")
    everything = _cells(program, path, ["lru"], [pages], "--writeback", "evict")["lru", pages]
    written: dict[str, float | None] = dict.fromkeys(["sync", "sync-all", "hf"])
    if syncs and "duration_us" in said:
        for mode in written:
            cell = _cells(program, path, ["lru"], [pages], "--writeback", mode)["lru", pages]
            written[mode] = _written(cell)
    return Numbers(
        trace=path.name.split(".")[0],
        own=own,
        format=said["format"],
        duration_us=said.get("duration_us"),
        read_requests=reads["requests"],
        write_requests=writes["requests"],
        page_reads=reads["page_accesses"],
        page_writes=writes["page_accesses"],
        pages=pages,
        windows=said["over_time"]["windows"],
        steady_pages_share=said["over_time"]["steady_pages_share"],
        steady_accesses_share=said["over_time"]["steady_page_accesses_share"],
        top_20_percent_share=skew["top_20_percent_share"],
        pages_for_80_percent_share=skew["pages_for_80_percent_share"],
        popular_of_sqlite_share=sqlite and sqlite["popular_pages_of_sqlite_share"],
        sqlite_accesses_share=sqlite
        and next(row["page_accesses_share"] for row in sqlite["kinds"] if row["kind"] == "sqlite"),
        **_again(program, path, said["reaccess"], pages),
        syncs=syncs and said["mix"]["syncs"] + said["mix"]["sync_alls"],
        forced_share=syncs and syncs["forced_pages_share"],
        written_share=_written(everything),
        written_by_sync_share=written["sync"],
        written_by_sync_all_share=written["sync-all"],
        written_as_hf_share=written["hf"],
        read_hits_of_all=everything["read_hits"] / reads["page_accesses"] if reads["page_accesses"] else None,
    )


def _again(program: Path, path: Path, reaccess: dict, pages: int) -> dict:
    all_again = reaccess["reaccesses"]
    bins = [rank for rank in reaccess["ranks"] if rank["most_rank"] > 2]
    recent, frequent, shares = 0, 0.0, {}
    for rank in reaccess["ranks"]:
        recent += rank["by_recency"]
        frequent += rank["by_frequency"]
        shares[rank["most_rank"]] = (recent / all_again, frequent / all_again)
    sizes = [size for size in shares if 4 <= size <= pages / 2]
    tenth = max(size for size in sizes if size <= pages / 10)
    cells = _cells(program, path, ["lru", "lfu"], sizes, "--writeback", "evict")

    def hit_ratio(policy: str, size: int) -> float:
        cell = cells[policy, size]
        return cell["hits"] / cell["accesses"]

    return {
        "recent_2_share": shares[2][0],
        "frequent_2_share": shares[2][1],
        "recent_tenth_share": shares[tenth][0],
        "frequent_tenth_share": shares[tenth][1],
        "sizes": len(sizes),
        "frequent_ahead": sum(shares[size][1] > shares[size][0] for size in sizes),
        "bins": len(bins),
        "frequent_ahead_in_bins": sum(rank["by_frequency"] > rank["by_recency"] for rank in bins),
        "lfu_ahead": sum(hit_ratio("lfu", size) > hit_ratio("lru", size) for size in sizes),
        "lru_tenth": hit_ratio("lru", tenth),
        "lfu_tenth": hit_ratio("lfu", tenth),
    }


def _cells(program: Path, path: Path, policies: list[str], frames: list[int], *args: str) -> dict[tuple[str, int], dict]:
    sizes = ",".join(map(str, frames))
    cells = records(program, "compare", path, "--json", "--policy", ",".join(policies), "--frames", sizes, *args)
    return {(cell["policy"], cell["frames"]): cell for cell in cells}


def _written(cell: dict) -> float:
    return (cell["device_writes"] + cell["dirty_left"]) / cell["write_accesses"]
