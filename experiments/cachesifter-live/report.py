"""Write RESULTS.md from runs.jsonl, simulated.jsonl and machine.json of a directory."""

import collections
import json
import math
import random
import sys
import textwrap
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
KINDS = ("keep", "controller", "drop-all", "touch", "cachesifter")
ORDER = ("ext4", "tmpfs", *(f"{kind}-{mib}" for mib in (64, 16) for kind in KINDS))
SAMPLES = 2000
PARTS = ("dropped", "created_again", "written", "held")
# More than noise of the file system's own blocks.
MORE = 1.02
LOADS = {
    "chromium": "Chromium, one person on a large web, three sessions",
    "chromium-at-pace": "Chromium, one person, three sessions in ten minutes, all arms at the same time",
    "chromium-people": "Chromium, four people on another web, nine sessions (judged)",
    "firefox": "Firefox, one person, three sessions (judged)",
    "feed": "a feed application with an image cache of 40 MiB (judged)",
    "pip": "pip, five installations from a local index",
    "punisher": "a cache of which every dropped file is fetched and written again at once",
    "pressure": "Chromium as above, in 640 MiB of RAM with its mount and a probe",
}
HEAD = """# Does sifting save flash on a live system?

Real programs run the same seeded sessions on ext4, on a tmpfs that is copied back, and on the mount
without and with sifters. This page counts the bytes that reach the block device, and the price.

    sudo experiments/cachesifter-live/run.sh             # all runs, and this page
    sudo experiments/cachesifter-live/run.sh --quick     # three minutes
    experiments/cachesifter-live/run.sh report           # this page alone

No phone was measured. The programs, sizes and file systems are those of a desktop, and the device
is a loop device over a file.

**The runs of 2026-11-24 do not answer the question for a sifter that acts.** At a person's pace a
guard that has gone since ("CheckStop" below) had suspended eight of ten sifting runs after 77 to
400 s. The controller was another one: its budget also held bytes that were only expected back.
[With a ceiling in place of the guard](#with-a-ceiling-in-place-of-the-guard), sifters are always
active.
"""
CEILING = """Since 2026-11-28 a mount has no guard that suspends a sifter, but a ceiling on the bytes fetched
again, 10 % of those that ext4 would write (`--fetch-again`). Every sifter was active for the whole
run. The ceiling only refuses single drops; *refused* is the part of *written* that a sifter would
have dropped.

    sudo experiments/cachesifter-live/run.sh ceiling

One round of `chromium-at-pace`, 30 minutes from an empty profile, all arms at the same time, while
other programs kept the processors busy. One round has no interval. *Again* is what the ceiling
counts: bytes fetched again, of those of cache files that ext4 would have written.
"""
CEILED_NOTES = """**On this cold profile sifting wrote more than `keep`, although nothing suspended it.** The ceiling
refused no drop of `controller`, which dropped 19 MiB; 4 MiB of them came back. Of the first 8 MiB
that `touch` dropped nine tenths came back. So its share went to 15 %, and the ceiling refused
nearly all of its later drops: it bounds the price of a sifter that does not know a cold cache, and
does not make it save. A probable reason is the RAM: beside a sifter all other files have 8 MiB
instead of 16, and leave it earlier. The mount of `controller` wrote back 78 MiB of files, that of
`keep` 73 MiB. No run on a warm profile was made.

`status` shows the counts in the table. The program of these runs had another limit on dropped bytes
that are outstanding, 1 GiB instead of 64 MiB; no arm dropped as much as either.
"""
CEILED = """In simulation, as mounted (`compare --as-mounted`), on every recording: bytes kept from flash and
bytes fetched again, both in % of the droppable bytes that are written without a sifter. *None* is
without the ceiling. The ceiling itself counts against the bytes that have left RAM. Files that were
dropped before the share reached it may still come back, so some shares are above 10 %.
"""
NOTES = """The mount writes back each file that a program syncs, and no sifter drops it. pip syncs every
file of its cache, so sifting cannot save anything there.

On the feed `keep` writes more than ext4: it has 16 MiB and ext4 the whole page cache, which
can hold an image until the feed deletes it.

At the pace of a person the mount alone, without a sifter, writes 0.6 to 0.7 of ext4's bytes, and
its daemon takes 0.1 % of a core. Sifting adds nothing there: half and more of the dropped bytes are
created again within the ten minutes, and CheckStop stops every sifter. The models of `cachesifter`
do not know this person: of what they drop, two thirds and more come back. It is the finding of
simulations (experiments/train), at the device.

The mount sends more write requests than ext4 where it sends fewer bytes: each file that leaves RAM
is written by itself. Requests were not counted in the runs of 2026-11-24.

The goal of at most 5 % longer page loads is missed by the mount itself, without any sifter, at a
rate of one page after the other. The controller hardly drops anything in sessions as short as
these, and CheckStop stops it where many of the few dropped files come back.
"""
PAPER = """The paper counts on two phones, on average over ten applications: write-backs of cache files and all
requests (Figure 9), the amount written (§6.1), the same for several sizes of its RAM on the Mate30
(Table 6), and files fetched again (Figure 12; its values are not in the text). All columns are
reductions but the last.

Ours: *cache files* are, of the bytes of droppable files that would be written without a sifter, the
share that is neither written nor still held; a file that is created again counts against it. The
other columns count at the block device, after unmount and sync. A negative reduction is more.

Figure 10, latency under memory pressure, has a section below. Figure 11 shows frames a second of an
application whose cache is sifted; page loads are the nearest here (see the price, below).
"""
DAEMON = """Think times are cut to a 200th, so the daemon's share of a core is that of a much busier person.
"""
HOW = """## How it was made

Each run has a fresh ext4 of 2 GiB on a loop device of its own, and an empty profile. The browser is
closed and started anew between sessions. Think times are divided by 200, so sessions take seconds.
ext4 then seldom reaches its delay of 30 s: it writes at the end, and nothing that was deleted. The
mount writes when its RAM is full. This favours ext4 over a slow day. CacheSifter judges a file when
it is 20 s old, so it hardly acts. `chromium-at-pace` has neither fault: a person's think times, and
all arms at the same time, as they need little of the processors; its times are those of a busy
machine. Arms alternate in a random order. Bytes are written sectors from before the mount
until after unmount, sync and unmount of ext4. For a tmpfs they include the copy at the end.

An arm is named by its sifter and its RAM in MiB (`--budget`), of which the sifter has half; `keep`
is the mount without a sifter. The models of `cachesifter` learned from recorded days of other
people (`run.sh` says which). The patterns are those of the checked profiles, at the directories of
the loads.

Ratios are geometric means over rounds with the same seed. In brackets is a bootstrap interval of
95 % over the rounds. With two or three rounds it is no more than the smallest and the largest.
Medians of an arm with fewer runs than another mix other seeds: compare the ratios.
"""


def pairs(rows, load, arm, base, value):
    """value(arm) / value(base), for each seed with both."""
    of = {(row["arm"], row["seed"]): row for row in rows if row["load"] == load}
    both = [(of[arm, seed], of[base, seed]) for name, seed in sorted(of) if name == arm and (base, seed) in of]
    return [value(left) / value(right) for left, right in both if value(right)]


def interval(values, name):
    """Geometric mean and its bootstrap interval."""
    logs, rng = [math.log(value) for value in values], random.Random(name)
    means = sorted(sum(rng.choices(logs, k=len(logs))) / len(logs) for _ in range(SAMPLES))
    low, high = means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES)]
    return math.exp(sum(logs) / len(logs)), math.exp(low), math.exp(high)


def ratio(values, name):
    if not values:
        return "–"
    middle, low, high = interval(values, name)
    return f"{middle:.2f} ({low:.2f}…{high:.2f})" if len(values) > 1 else f"{middle:.2f}"


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def table(header, rows):
    line = lambda cells: "| " + " | ".join(str(cell) for cell in cells) + " |\n"  # noqa: E731
    return line(header) + "|---|" + "---:|" * (len(header) - 1) + "\n" + "".join(map(line, rows))


def groups(rows):
    """(load, arm) -> rows, in the order of the tables."""
    found = collections.defaultdict(list)
    for row in rows:
        found[row["load"], row["arm"]].append(row)
    place = lambda key: (list(LOADS).index(key[0]), ORDER.index(key[1]))  # noqa: E731
    return {key: found[key] for key in sorted(found, key=place)}


def keep_of(arm):
    kind, _, mib = arm.rpartition("-")
    return f"keep-{mib}" if kind and kind != "keep" else None


def device(row):
    return row["device_bytes"]


def requests(row):
    """Requests that were written; runs before they were counted have none."""
    return row.get("device_requests")


def step(row):
    return median(row["steps"]) if row["steps"] else 0


def counts(row):
    return {name: part["bytes"] for name, part in row["sift"]["counts"].items()}


def kept(row):
    """Share that is kept from flash, of the droppable bytes that are written without a sifter."""
    sift = counts(row)
    net = sift["dropped"] - sift["created_again"]
    all_bytes = sift["written"] + sift["held"] + net
    return net / all_bytes if all_bytes > 0 else None


def device_table(rows):
    cells = []
    for (load, arm), mine in groups(rows).items():
        keep = keep_of(arm)
        cells.append([f"{load}, `{arm}`", len(mine), f"{median(map(device, mine)) / MIB:.1f}",
                      ratio(pairs(rows, load, arm, "ext4", device), load) if arm != "ext4" else "1",
                      ratio(pairs(rows, load, arm, keep, device), load) if keep else ""])
    return table(["load, arm", "runs", "MiB to the device", "of ext4's", "of `keep`'s"], cells)


def price_table(rows):
    cells = []
    for (load, arm), mine in groups(rows).items():
        base = {row["seed"]: row["served_bytes"] for row in rows if row["load"] == load and row["arm"] == "ext4"}
        beyond = [(row["served_bytes"] - base[row["seed"]]) / MIB for row in mine if row["seed"] in base]
        steps = [value for row in mine for value in row["steps"]]
        cells.append([f"{load}, `{arm}`", f"{median(row['served_bytes'] for row in mine) / MIB:.1f}",
                      f"{median(beyond):+.1f}" if beyond and arm != "ext4" else "",
                      f"{median(steps):.0f}", f"{quantile(steps, 0.95):.0f}",
                      ratio(pairs(rows, load, arm, "ext4", step), load) if arm != "ext4" else "1"])
    return table(["load, arm", "MiB served", "beyond ext4's", "step, median ms", "p95 ms", "median, of ext4's"], cells)


def sifter_table(rows):
    cells = []
    for (load, arm), mine in groups(rows).items():
        if "sift" not in mine[0]:
            continue
        shares = [kept(row) for row in mine if kept(row) is not None]
        stopped = sum(row["sift"].get("suspended_s") is not None for row in mine)
        cells.append([f"{load}, `{arm}`", *(f"{median(counts(row)[part] for row in mine) / MIB:.1f}" for part in PARTS),
                      f"{100 * median(shares):.0f} %" if shares else "–", f"{stopped} of {len(mine)}"])
    return table(["load, arm", "dropped", "created again", "written", "held", "kept from flash", "suspended"], cells)


def daemon_table(rows):
    cells = []
    for (load, arm), mine in groups(rows).items():
        if "daemon_cpu_s" in mine[0]:
            cells.append([f"{load}, `{arm}`",
                          f"{median(100 * row['daemon_cpu_s'] / row['wall_s'] for row in mine):.1f}",
                          f"{median(row['daemon_cpu_s'] for row in mine):.2f}",
                          f"{max(row['daemon_rss_bytes'] for row in mine) / MIB:.1f}"])
    return table(["load, arm", "% of a core", "CPU s", "largest RSS, MiB"], cells)


def ceiled_live_table(rows):
    cells = []
    base = next(row for row in rows if row["arm"] == "keep-16")
    for row in sorted(rows, key=lambda row: ORDER.index(row["arm"])):
        sift = row.get("sift")
        parts = [f"{counts(row)[part] / MIB:.1f}" for part in PARTS[:3]] if sift else [""] * 3
        cells.append([f"`{row['arm']}`", f"{row['device_bytes'] / MIB:.1f}",
                      f"{row['device_bytes'] / base['device_bytes']:.2f}", f"{row['served_bytes'] / MIB:.1f}", *parts,
                      f"{sift['counts']['refused']['bytes'] / MIB:.1f}" if sift else "",
                      f"{100 * sift['again_share']:.1f} %" if sift else "", f"{row['wall_s'] / 60:.0f} min" if sift else ""])
    return table(["arm", "device, MiB", "of `keep-16`", "served", "dropped", "created again", "written", "refused",
                  "again", "active"], cells)


def ceiled_table(rows):
    of = {(row["trace"], row["sifter"], row["budget_mib"], row["ceiling"]): row for row in rows}
    columns = sorted({(row["budget_mib"], row["sifter"]) for row in rows})

    def cell(row):
        return f"{100 * row['kept_share']:.0f}/{100 * row['fetched_again_share']:.1f}"

    cells = [[f"{trace}{', test' if split == 'test' else ''}, {ceiling if ceiling == '10%' else 'none'}",
              *(cell(of[trace, sifter, mib, ceiling]) for mib, sifter in columns)]
             for trace, split, ceiling in dict.fromkeys((row["trace"], row["split"], row["ceiling"]) for row in rows)]
    return table(["kept/again", *(f"`{sifter}-{mib}`" for mib, sifter in columns)], cells)


def probe_table(rows):
    cells = []
    for (load, arm), mine in groups(rows).items():
        if "probe" not in mine[0]:
            continue
        cell = [f"`{arm}`"]
        for name in ("read_us", "write_us"):
            times = [value for row in mine for value in row["probe"][name]]
            cell += [f"{median(times):.0f}", f"{quantile(times, 0.95):.0f}",
                     ratio(pairs(rows, load, arm, "ext4", lambda row, name=name: median(row["probe"][name])), name)
                     if arm != "ext4" else "1"]
        cells.append(cell)
    return table(["arm", "read, median µs", "p95", "of ext4's", "write, median µs", "p95", "of ext4's"], cells)


def simulated_table(rows, simulated):
    cells = []
    as_mounted = {(entry["load"], entry["budget_mib"], entry["record"]["sifter"]): entry["record"]["kept_share"]
                  for entry in simulated if entry["as_mounted"]}
    for entry in simulated:
        if entry["as_mounted"]:
            continue
        record, arm = entry["record"], f"{kind_of(entry['record'])}-{entry['budget_mib']}"
        mine = [row for row in rows if (row["load"], row["arm"], row["seed"]) == (entry["load"], arm, entry["seed"])]
        if not mine or "sift" not in mine[0] or kept(mine[0]) is None:
            continue
        live, alone = kept(mine[0]), record["kept_share"]
        expected = as_mounted[entry["load"], entry["budget_mib"], record["sifter"]]
        dry = entry.get("rehearsal") if arm == "controller-16" else None
        cells.append([f"{entry['load']}, `{arm}`",
                      f"{100 * dry['kept_bytes'] / max(1, dry['stock_bytes']):.1f}" if dry else "",
                      f"{100 * alone:.1f}", f"{100 * record['fetched_again_share']:.1f}",
                      f"{100 * expected:.1f}", f"{100 * live:.1f}",
                      f"{live / expected:.2f}" if expected > 0.005 else "–"])
    return table(["load, arm", "dry run: kept %", "alone: kept %", "alone: again %", "as mounted: kept %",
                  "live: kept %", "live of as mounted"], cells)


def kind_of(record):
    """The sifter without its parameters."""
    return record["sifter"].partition(":")[0]


def found(rows):
    """Sentences that follow from the numbers."""
    lines = []
    sifted = [(load, arm) for load, arm in groups(rows) if keep_of(arm)]
    judged = {key: pairs(rows, *key, keep_of(key[1]), device) for key in sifted}
    judged = {key: values for key, values in judged.items() if values}
    name = lambda keys: ", ".join(f"{load} `{arm}`" for load, arm in keys) or "none"  # noqa: E731
    lines.append("Sifting writes less than 0.98 of `keep`'s bytes in every round: "
                 + name(key for key, values in judged.items() if max(values) < 2 - MORE) + ".")
    lines.append(f"Sifting writes more than {MORE} of `keep`'s bytes in some round: "
                 + name(key for key, values in judged.items() if max(values) > MORE) + ".")
    keeps = {key: pairs(rows, *key, "ext4", device) for key in groups(rows) if key[1].startswith("keep")}
    lines.append(f"`keep` itself writes more than {MORE} of ext4's bytes: "
                 + name(key for key, values in keeps.items() if values and interval(values, "")[0] > MORE) + ".")
    slow = {(load, arm): pairs(rows, load, arm, "ext4", step) for load, arm in groups(rows)
            if arm != "ext4" and load not in ("punisher", "feed")}
    lines.append("The median page load or installation takes over 5 % longer than on ext4: "
                 + name(key for key, values in slow.items() if values and interval(values, "")[0] > 1.05) + ".")
    stopped = sorted({(row["load"], row["arm"]) for row in rows if row.get("sift", {}).get("suspended_s") is not None})
    lines.append(f"CheckStop suspended sifting in at least one run: {name(stopped)}.")
    idle = [(load, arm) for (load, arm), mine in groups(rows).items() if "sift" in mine[0]
            and not any(counts(row)["dropped"] for row in mine)]
    lines.append(f"The sifter dropped no file at all: {name(idle)}.")
    return lines


def less(values, name):
    """A ratio as a reduction in percent; nothing without pairs of runs."""
    return f"{100 * (1 - interval(values, name)[0]):.0f} %" if values else "–"


def paper_table(rows):
    """The paper's means beside each load. `keep` with the same RAM is the base of one column."""
    cells = [["paper: P9, high recall; accuracy", "62; 59.5 %", "29.7; 31.2 %", "53.2; 54.7 %", "", ""],
             ["paper: Mate30, high recall; accuracy", "88.3; 85.5 %", "47.7; 46.6 %", "", "", ""],
             ["paper: Table 6, MS 20; 10; 5 MB", "83; 72; 76 %", "55; 39; 34 %", "83; 73; 57 %", "", ""]]
    for (load, arm), mine in groups(rows).items():
        shares = [kept(row) for row in mine if "sift" in row and kept(row) is not None]
        if not shares:
            continue
        again = [share for row in mine if (share := again_share(row)) is not None]
        cells.append([f"{load}, `{arm}`", f"{100 * median(shares):.0f} %",
                      *(less(pairs(rows, load, arm, "ext4", what), load) for what in (requests, device)),
                      less(pairs(rows, load, arm, keep_of(arm), device), load),
                      f"{100 * median(again):.0f} %" if again else "–"])
    return table(["load, arm", "cache files", "write requests, of ext4's", "bytes written, of ext4's", "of `keep`'s",
                  "created again, of dropped"], cells)


def again_share(row):
    sift = counts(row)
    return sift["created_again"] / sift["dropped"] if sift["dropped"] else None


def bullets(lines):
    return "\n".join(textwrap.fill(line, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
                     for line in lines)


def page(top):
    def lines(name):
        return [json.loads(line) for line in (top / f"{name}.jsonl").read_text().splitlines()]

    every, simulated = lines("runs"), lines("simulated")
    if (top / "paced.jsonl").exists():
        every += lines("paced")
    rows, failed = [row for row in every if "error" not in row], [row for row in every if "error" in row]
    about = json.loads((top / "machine.json").read_text())
    programs = sorted({row["program"] for row in rows} - {"a script"})
    facts = (f"Linux {about['kernel']}, {about['cpus']} CPUs, {about['date']}, {about['minutes']:.0f} minutes, "
             f"{len(rows)} runs, order from seed {about['seed']}. " + ", ".join(programs) + ". Other programs kept the "
             "processors busy.")
    loads = table(["load", ""], [[f"`{load}`", what] for load, what in LOADS.items()
                                 if any(row["load"] == load for row in rows)]).replace("---:", "---")
    failures = bullets([f"{row['load']}, `{row['arm']}`, seed {row['seed']}: {row['error'][:200]}" for row in failed])
    ceiled = []
    if (top / "paced-ceiling.jsonl").exists():
        ceiled = ["## With a ceiling in place of the guard\n", CEILING,
                  ceiled_live_table(lines("paced-ceiling")), CEILED_NOTES, CEILED, ceiled_table(lines("ceiling"))]
    return "\n".join([
        HEAD, textwrap.fill(facts, 100, break_on_hyphens=False) + "\n", loads,
        "## In short\n", bullets(found(rows)) + "\n", NOTES,
        "## Bytes at the block device\n", device_table(rows),
        "## Cache files, beside the paper's\n",
        PAPER, paper_table(rows),
        "Medians in MiB, before unmount, at which the files that are still held are written.\n", sifter_table(rows),
        "## The price: bytes fetched again, and time\n",
        "The server counts. Two runs of one browser session differ by some bytes on their own. A step is a\n"
        "page load, a download of the feed, an installation, or a look at all files (`punisher`).\n",
        price_table(rows),
        "## The daemon\n", DAEMON, daemon_table(rows),
        "## 4 KiB under memory pressure\n",
        "A probe reads and writes at random places of a file of 512 MiB on the same ext4, outside of the\n"
        "mount, ten times a second; a write ends with fdatasync. Browser, daemon and probe share a cgroup of\n"
        "640 MiB; the bytes of the probe count at the device. The paper has 18.4 % and 25.5 % better\n"
        "performance of intensive writes. A loop device on a busy disk is no eMMC: read this as a\n"
        "comparison of arms alone.\n",
        probe_table(rows),
        "## Beside the simulation\n",
        "A dry run of `controller-16` with the first seed was recorded; `flashsift compare` simulates each\n"
        "sifter on its events with the same RAM. The live run has the same seed, but its own timing, and\n"
        "it reacts to drops. Alone, a sifter has its half of the RAM to itself, and no CheckStop. As\n"
        "mounted (`--as-mounted`), it has `keep` beside it and CheckStop above it, as in the mount.\n",
        simulated_table(rows, simulated),
        *ceiled, HOW, *(["Failed runs:\n", failures + "\n"] if failed else []),
    ]).rstrip() + "\n"


def main():
    *options, top = sys.argv[1:]
    text = page(Path(top))
    if "--print" in options:
        print(text)
    else:
        (Path(top) / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main()
