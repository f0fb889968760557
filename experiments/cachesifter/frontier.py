#!/usr/bin/env python3
"""Prints the tables of RESULTS.md: what each sifter keeps from flash, and what is fetched again."""

import csv
import pathlib
import sys
import time

from common.pages import markdown
from common.program import parser, records, run
from common.rows import write_dicts

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Recordings with files that may be dropped, and the patterns of those outside of directories whose
# name contains `cache`. `test` are those on which nothing was tuned (`split` of their cards).
TRACES = {
    "browser": ("browser.parquet", [], ""),
    "feed": ("feed.parquet", ["*/images/*", "*/clips/*"], ""),
    "map": ("map.parquet", ["*/tiles/*"], ""),
    "video": ("video.parquet", ["*/buffer/*"], ""),
    "game": ("game.parquet", ["*/shaders/*"], ""),
    "browser-days-1": ("days/browser-days-1.parquet", [], "train"),
    "browser-days-2": ("days/browser-days-2.parquet", [], "tune"),
    "browser-days-3": ("days/browser-days-3.parquet", [], "test"),
    "browser-days-4": ("days/browser-days-4.parquet", [], "tune"),
    "browser-days-5": ("days/browser-days-5.parquet", [], "train"),
    "firefox-days-1": ("days/firefox-days-1.parquet", [], "test"),
    "desktop-1": ("days/desktop-1.parquet", [], "train"),
    "desktop-3": ("days/desktop-3.parquet", [], "test"),
    "browser-2": ("days/browser-2.parquet", [], "test"),
    "feed-2": ("days/feed-2.parquet", ["*/images/*", "*/clips/*"], "test"),
    "map-2": ("days/map-2.parquet", ["*/tiles/*"], "test"),
}

MEMORIES = ["8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB"]

SIFTERS = [
    "none:expire=600s",
    "tmpfs",
    "keep",
    "drop-all",
    "drop-all:order=fifo",
    "touch",
    "random:p=0.2",
    "s3-fifo",
    "reject-first",
    "lrb",
    "cachesifter",
    "cachesifter:checkstop=on",
    "controller",
    "oracle",
]

# With the model of `--model`: trees that predict reuse, trained on the split `train`.
THRESHOLDS = [0.3, 0.4, 0.6]

# Table 6 of CacheSifter varies K1 and MS; here every parameter of both sifters that are not rules.
VARIED = [
    "cachesifter:k1=10s",
    "cachesifter:k1=40s",
    "cachesifter:k2=120s",
    "cachesifter:t1=5s",
    "cachesifter:t1=40s",
    "cachesifter:e1=10s",
    "cachesifter:e1=80s",
    "cachesifter:t2=5s",
    "cachesifter:t2=80s",
    "cachesifter:ms=5",
    "cachesifter:ms=10",
    "cachesifter:ms=80",
    "cachesifter:w1=25",
    "cachesifter:w1=80",
    "cachesifter:w2=60",
    "cachesifter:s2=40",
    "cachesifter:shortage=moves",
    "controller:again=0.02",
    "controller:again=0.1",
    "controller:again=0.2",
    "controller:price=4",
    "controller:price=16",
    "controller:cap-mib=8",
    "controller:cold-mib=0",
    "controller:cold-mib=128",
    "controller:settle=1h",
    "controller:ghosts=1000",
]
VARIED_ON = ["browser", "feed", "map", "browser-days-3"]

CELLS = pathlib.Path(__file__).with_name("cells.csv")

FIELDS = [
    "trace", "split", "sifter", "memory_bytes", "sifter_bytes", "stock_bytes", "flash_bytes",
    "kept_share", "fetched_again_share", "later_kept_share", "later_fetched_again_share",
    "other_flash_bytes", "journal_writes", "metadata_writes", "device_reads", "device_writes",
    "elapsed_s", "kept_share_max",
]


def cells(program, name, sifters, memories, model=None):
    """Yields the records of `compare --json`. The model's path is left out of the names."""
    path, patterns, split = TRACES[name]
    words = ["compare", ROOT / "testdata" / path, "--metadata", "ext4", "--device", "emmc-5.1", "--json"]
    for option, values in [("--sift", sifters), ("--memory", memories), ("--droppable", patterns)]:
        for value in values:
            words += [option, value]
    for record in records(program, *words):
        sifter = record["sifter"].replace(f"model={model},", "")
        yield {"split": split} | record | {"trace": name, "sifter": sifter}


def size(number):
    return f"{number >> 20} MiB"


def percent(record, key):
    return f"{100 * record[key]:.1f}"


def table(rows):
    header, *rows = rows
    print(markdown(header, rows, tight=True), end="")


def frontier(found, traces, memory, keys):
    """Prints kept/again of each sifter on each trace."""
    here = [record for record in found if record["memory_bytes"] == memory]
    of = {(record["sifter"], record["trace"]): record for record in here}
    sifters = list(dict.fromkeys(record["sifter"] for record in here if record["sifter"] != "none"))
    rows = [["sifter", *traces]]
    for sifter in sifters:
        row = [f"`{sifter}`"]
        for trace in traces:
            record = of.get((sifter, trace))
            shown = "/".join(percent(record, key) for key in keys) if record else ""
            row.append(shown)
        rows.append(row)
    bounds = [of.get(("oracle", trace), {}) for trace in traces]
    if any(bound.get("kept_share_max") is not None for bound in bounds):
        rows.append(["upper bound", *(percent(bound, "kept_share_max") for bound in bounds)])
    table(rows)


def goals(records):
    """Prints what the controller reaches of the oracle, by memory."""
    of = {(r["sifter"], r["trace"], r["memory_bytes"]): r for r in records}
    memories = sorted({record["memory_bytes"] for record in records})
    rows = [["recording", "split", *map(size, memories)]]
    for name, (_, _, split) in TRACES.items():
        row = [name, split]
        for memory in memories:
            own, oracle = of.get(("controller", name, memory)), of.get(("oracle", name, memory))
            if own and oracle and oracle["kept_share"] > 0:
                share = 100 * own["kept_share"] / oracle["kept_share"]
                row.append(f"{share:.0f} / {percent(own, 'fetched_again_share')}")
            else:
                row.append("")
        if any(row[2:]):
            rows.append(row)
    table(rows)


def never_more(records):
    """Returns the cells in which more bytes reach flash than without a sifter."""
    stock = {
        (r["trace"], r["memory_bytes"]): r["flash_bytes"] + r["other_flash_bytes"]
        for r in records
        if r["sifter"] == "none"
    }
    for record in records:
        total = record["flash_bytes"] + record["other_flash_bytes"]
        if total > stock[record["trace"], record["memory_bytes"]]:
            yield record


def beside(record, base):
    """Yields all writes, those of the file system itself, and the time, as ratios."""
    for keys in [
        ["device_writes", "journal_writes", "metadata_writes"],
        ["journal_writes", "metadata_writes"],
        ["elapsed_s"],
    ]:
        whole = sum(base[key] for key in keys)
        yield f"{sum(record[key] for key in keys) / whole:.3f}" if whole else ""


def device(records, memory):
    """Prints writes and time of the whole device beside those without a sifter."""
    here = [record for record in records if record["memory_bytes"] == memory]
    stock = {record["trace"]: record for record in here if record["sifter"] == "none"}
    rows = [["recording", "sifter", "all writes", "journal, metadata", "time on eMMC"]]
    for record in here:
        if record["sifter"] in ("none", "tmpfs", "none:expire=600s"):
            continue
        base = stock[record["trace"]]
        rows.append([record["trace"], f"`{record['sifter']}`", *beside(record, base)])
    table(rows)


def with_earlier(found, varied, sifters):
    """The same with the other cells of cells.csv, in the order of a whole run."""
    def value(key, text):
        number = int if text.isdigit() else float
        return text if key in ("trace", "split", "sifter") else number(text) if text else None

    with open(CELLS, newline="") as file:
        rows = [{key: value(key, text) for key, text in row.items()} for row in csv.DictReader(file)]
    rows = [row for row in rows if row["sifter"].partition(":")[0] not in sifters]
    # Those of `lrb` with a model come last.
    order = ["none", *SIFTERS]
    place = lambda row: [*order, row["sifter"]].index(row["sifter"])  # noqa: E731
    plain = lambda row: row["sifter"] in order or row["sifter"].startswith("lrb:")  # noqa: E731
    by_trace = lambda row: (list(TRACES).index(row["trace"]), row["memory_bytes"])  # noqa: E731
    return (sorted([*found, *filter(plain, rows)], key=lambda row: (*by_trace(row), place(row))),
            sorted([*(row for row in rows if not plain(row)), *varied], key=by_trace))


def main():
    words = parser(__doc__)
    words.add_argument("--only", nargs="+", choices=TRACES, default=list(TRACES))
    words.add_argument("--sifters", nargs="+", help="simulate these anew; the cells of others stay")
    words.add_argument("--model", help="model of reuse, for lrb")
    args = words.parse_args()
    learned = [f"lrb:model={args.model},threshold={n}" for n in THRESHOLDS if args.model]
    def wanted(sifter):
        return not args.sifters or sifter.partition(":")[0] in args.sifters

    found, varied = [], []
    for name in args.only:
        begin = time.monotonic()
        chosen = list(filter(wanted, SIFTERS + learned))
        found += filter(lambda record: wanted(record["sifter"]), cells(args.flashsift, name, chosen, MEMORIES, args.model))
        if name in VARIED_ON:
            cells_here = cells(args.flashsift, name, filter(wanted, VARIED), ["32MiB"])
            varied += (record for record in cells_here if record["sifter"] != "none")
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if args.sifters:
        found, varied = with_earlier(found, varied, args.sifters)
    write_dicts(CELLS, FIELDS, found + varied)
    apps = [name for name in args.only if not TRACES[name][2]]
    days = [name for name in args.only if TRACES[name][2]]
    for memory in sorted({record["memory_bytes"] for record in found}):
        for names in (apps, days):
            if names:
                print(f"\n### {size(memory)}, kept/again %\n")
                keys = ["kept_share", "fetched_again_share"]
                frontier(found, names, memory, keys)
    print("\n### 32 MiB, second half, kept/again %\n")
    later = ["later_kept_share", "later_fetched_again_share"]
    frontier(found, apps, 32 << 20, later)
    print("\n### The controller: % of the oracle's saving / bytes fetched again in %\n")
    goals(found)
    print("\n### The whole device beside no sifter, 32 MiB\n")
    device(found, 32 << 20)
    print("\n### Parameters, 32 MiB, kept/again %\n")
    names = [name for name in VARIED_ON if name in args.only]
    if names:
        chosen = ("cachesifter", "controller")
        plain = [
            r for r in found
            if r["sifter"] in chosen and r["trace"] in names and r["memory_bytes"] == 32 << 20
        ]
        frontier(plain + varied, names, 32 << 20, ["kept_share", "fetched_again_share"])
    print("\n### More file data to flash than without a sifter\n")
    more = list(never_more(found + varied))
    for record in more:
        print(f"- {record['trace']}, {size(record['memory_bytes'])}: `{record['sifter']}`")
    if not more:
        print("None.")


if __name__ == "__main__":
    run(main)
