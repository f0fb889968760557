"""Write RESULTS.md from runs.jsonl, simulated.jsonl and machine.json of a directory."""

import collections
import json
import math
import random
import sys
from functools import partial
from pathlib import Path
from statistics import median

from common.pages import MIB, fill, geometric, item, markdown, minus, wrapped
from common.rows import json_lines

HERE = Path(__file__).resolve().parent
KINDS = ("keep", "controller", "drop-all", "touch", "cachesifter")
ORDER = ("ext4", "tmpfs", *(f"{kind}-{mib}" for mib in (64, 16) for kind in KINDS))
SAMPLES = 2000
# The ceiling of mounts.
AGAIN = 0.1
PARTS = ("dropped", "created_again", "written", "refused", "held")
# More than noise of the file system's own blocks.
MORE = 1.02
LOADS = {
    "chromium": "Chromium, one person on a large web, three sessions",
    "chromium-days": "Chromium, with the profile of two days, three sessions (warm)",
    "chromium-people": "Chromium, four people on another web, nine sessions (judged)",
    "firefox": "Firefox, one person, three sessions (judged)",
    "firefox-days": "Firefox, with the profile of two days, three sessions (warm)",
    "feed": "a feed application with an image cache of 40 MiB (judged)",
    "pip": "pip, five installations from a local index",
    "punisher": "a cache of which every dropped file is fetched and written again at once",
    "pressure": "Chromium as above, in 640 MiB of RAM with its mount and a probe",
}


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
    return markdown(header, rows, tight=True)


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


def device_table(rows, _):
    cells = []
    for (load, arm), mine in groups(rows).items():
        keep = keep_of(arm)
        cells.append([f"{load}, `{arm}`", len(mine), f"{median(map(device, mine)) / MIB:.1f}",
                      ratio(pairs(rows, load, arm, "ext4", device), load) if arm != "ext4" else "1",
                      ratio(pairs(rows, load, arm, keep, device), load) if keep else ""])
    return table(["load, arm", "runs", "MiB to the device", "of ext4's", "of `keep`'s"], cells)


def price_table(rows, _):
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


def sifter_table(rows, _):
    cells = []
    for (load, arm), mine in groups(rows).items():
        if "sift" not in mine[0]:
            continue
        shares = [kept(row) for row in mine if kept(row) is not None]
        cells.append([f"{load}, `{arm}`", *(f"{median(counts(row)[part] for row in mine) / MIB:.1f}" for part in PARTS),
                      f"{100 * median(shares):.0f} %" if shares else "–",
                      f"{100 * median(row['sift']['again_share'] for row in mine):.1f} %",
                      f"{median(row['wall_s'] for row in mine):.0f} s"])
    return table(["load, arm", *(part.replace("_", " ") for part in PARTS), "kept from flash", "again", "active"], cells)


def daemon_table(rows, _):
    cells = []
    for (load, arm), mine in groups(rows).items():
        if "daemon_cpu_s" in mine[0]:
            cells.append([f"{load}, `{arm}`",
                          f"{median(100 * row['daemon_cpu_s'] / row['wall_s'] for row in mine):.1f}",
                          f"{median(row['daemon_cpu_s'] for row in mine):.2f}",
                          f"{max(row['daemon_rss_bytes'] for row in mine) / MIB:.1f}"])
    return table(["load, arm", "% of a core", "CPU s", "largest RSS, MiB"], cells)


def but(rows, *sifters):
    """The sifters of simulations, but these."""
    return [name for name in dict.fromkeys(row["sifter"] for row in rows) if name not in sifters]


def trace_of(trace, split):
    return f"{trace}{', test' if split == 'test' else ''}"


def kept_again(rows):
    """The means of both shares, in percent."""
    kept, again = (100 * sum(row[key] for row in rows) / len(rows) for key in ("kept_share", "fetched_again_share"))
    return f"{kept:.0f}/{again:.1f}"


def at_pace_table(rows):
    cells = []
    of = {(row["seed"], row["arm"]): row["device_bytes"] for row in rows}
    seeds = {row["seed"] for row in rows}
    for row in sorted(rows, key=lambda row: (row["seed"], ORDER.index(row["arm"]))):
        sift, seed = row.get("sift"), row["seed"]
        parts = [f"{counts(row)[part] / MIB:.1f}" for part in PARTS[:4]] if sift else [""] * 4
        cells.append([f"`{row['arm']}`" + (f", seed {seed}" if len(seeds) > 1 else ""),
                      f"{row['device_bytes'] / MIB:.1f}", f"{row['device_bytes'] / of[seed, 'ext4']:.2f}",
                      f"{row['device_bytes'] / of[seed, 'keep-16']:.2f}", f"{row['served_bytes'] / MIB:.1f}", *parts,
                      f"{100 * sift['again_share']:.1f} %" if sift else "", f"{row['wall_s'] / 60:.0f} min" if sift else ""])
    return table(["arm", "device, MiB", "of ext4's", "of `keep-16`", "served", "dropped", "created again", "written",
                  "refused", "again", "active"], cells)


def ceiled_table(rows):
    of = {(row["trace"], row["sifter"], row["budget_mib"], row["ceiling"]): row for row in rows}
    columns = sorted({(row["budget_mib"], row["sifter"]) for row in rows})
    cells = [[f"{trace_of(trace, split)}, {ceiling if ceiling == '10%' else 'none'}",
              *(kept_again([of[trace, sifter, mib, ceiling]]) for mib, sifter in columns)]
             for trace, split, ceiling in dict.fromkeys((row["trace"], row["split"], row["ceiling"]) for row in rows)]
    return table(["kept/again", *(f"`{sifter}-{mib}`" for mib, sifter in columns)], cells)


def mounted_table(rows):
    of = {(row["trace"], row["budget_mib"], row["sifter"]): row for row in rows}
    sifters = but(rows, "none", "keep")
    cells = []
    for trace, split, mib in dict.fromkeys((row["trace"], row["split"], row["budget_mib"]) for row in rows):
        keep = of[trace, mib, "keep"]
        ratios = [(row["device_bytes"] / device(keep), row) for row in (of[trace, mib, name] for name in sifters)]
        parts = [minus(f"{100 * (ratios[0][1][part] - keep[part]) / device(keep):+.0f}")
                 for part in ("other_bytes", "droppable_bytes", "own_bytes")]
        cells.append([f"{trace_of(trace, split)}, {mib}", f"{device(keep) / MIB:.0f}",
                      *(f"{ratio:.2f}/{100 * row['fetched_again_share']:.0f}" for ratio, row in ratios), *parts])
    return table(["RAM, MiB", "`keep`, MiB", *(f"`{name}`" for name in sifters), "others", "droppable", "own"], cells)


def mounted_sum_table(rows):
    of = {(row["trace"], row["budget_mib"], row["sifter"]): row for row in rows}
    sifters = but(rows, "none", "keep")
    cells = []
    for mib in sorted({row["budget_mib"] for row in rows}):
        for name in sifters:
            mine = [row for row in rows if (row["budget_mib"], row["sifter"]) == (mib, name)]
            ratios = [device(row) / device(of[row["trace"], mib, "keep"]) for row in mine]
            again = 100 * sum(row["fetched_again_share"] for row in mine) / len(mine)
            above = sum(ratio > 1.005 for ratio in ratios)
            cells.append([f"{mib} MiB, `{name}`", f"{geometric(ratios):.2f}", f"{max(ratios):.2f}", f"{above} of {len(mine)}",
                          f"{again:.1f} %"])
    return table(["RAM, sifter", "of `keep`, geometric mean", "most", "above 1.00", "again, mean"], cells)


def mean_of(ratios):
    """The geometric mean, the least and the most."""
    return f"{geometric(ratios):.2f} ({min(ratios):.2f}…{max(ratios):.2f})"


def warm_sum_table(rows):
    of, cells = {(row["seed"], row["arm"]): row for row in rows}, []
    for arm in sorted({row["arm"] for row in rows} - {"ext4"}, key=ORDER.index):
        mine = [row for row in rows if row["arm"] == arm]

        def ratio(key, other):
            return mean_of([row[key] / of[row["seed"], other][key] for row in mine])  # noqa: B023

        dropped, again = (sum(counts(row)[part] for row in mine if row.get("sift")) for part in PARTS[:2])
        cells.append([f"`{arm}`", len(mine), ratio("device_bytes", "ext4"), ratio("device_bytes", "keep-16"),
                      ratio("served_bytes", "ext4"), f"{100 * again / dropped:.0f} %" if dropped else ""])
    return table(["arm", "rounds", "device, of ext4's", "of `keep-16`", "served, of ext4's",
                  "created again, of dropped"], cells)


def warm_simulated_table(rows):
    of = {(row["budget_mib"], row["trace"], row["sifter"]): row for row in rows}
    sifters = but(rows, "keep")
    cells = []
    for mib in sorted({row["budget_mib"] for row in rows}):
        browsers = [trace for trace in dict.fromkeys(row["trace"] for row in rows) if "-days-" in trace]
        tests = {row["trace"] for row in rows if row["split"] == "test"}
        for name in [*browsers, None]:
            mine = [[of[mib, trace, sifter] for trace in ([name] if name else browsers)] for sifter in sifters]
            split = "test" if name in tests else ""
            cells.append([f"{mib} MiB, {trace_of(name or 'mean', split)}", *map(kept_again, mine)])
    return table(["kept/again", *(f"`{name}`" for name in sifters)], cells)


def probe_table(rows, _):
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
    over = [(load, arm) for (load, arm), mine in groups(rows).items() if "sift" in mine[0]
            and median(row["sift"]["again_share"] for row in mine) > AGAIN]
    lines.append(f"More than {100 * AGAIN:.0f} % was fetched again in the median run: {name(over)}.")
    idle = [(load, arm) for (load, arm), mine in groups(rows).items() if "sift" in mine[0]
            and not any(counts(row)["dropped"] for row in mine)]
    lines.append(f"The sifter dropped no file at all: {name(idle)}.")
    return lines


def less(values, name):
    """A ratio as a reduction in percent; nothing without pairs of runs."""
    return f"{100 * (1 - interval(values, name)[0]):.0f} %" if values else "–"


def paper_table(rows, _):
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


def short(rows, _):
    return "".join(map(item, found(rows)))


def loads(rows, _):
    used = {row["load"] for row in rows}
    return markdown(["load", ""], [[f"`{load}`", what] for load, what in LOADS.items() if load in used], (0, 1), tight=True)


def facts(rows, about):
    programs = sorted({row["program"] for row in rows} - {"a script"})
    text = (f"Linux {about['kernel']}, {about['cpus']} CPUs, {about['date']}, {about['minutes']:.0f} minutes, "
            f"{len(rows)} runs, order from seed {about['seed']}. {', '.join(programs)}. Other programs kept the "
            "processors busy.")
    return wrapped(text) + "\n"


def failures(failed):
    runs = (f"{row['load']}, `{row['arm']}`, seed {row['seed']}: {row['error'][:200]}" for row in failed)
    return "\nFailed runs:\n\n" + "".join(map(item, runs)) if failed else ""


def page(top):
    """The page with the results of a folder."""
    every = json_lines(top / "runs.jsonl")
    rows, failed = [row for row in every if "error" not in row], [row for row in every if "error" in row]
    about = json.loads((top / "machine.json").read_text())
    made = {
        table.__name__.removesuffix("_table"): partial(table, rows, about)
        for table in (facts, loads, short, device_table, paper_table, sifter_table, price_table, daemon_table, probe_table)
    }
    made |= {name: partial(at_pace_table, json_lines(top / f"{name}.jsonl")) for name in ("paced", "warm")}
    made["warm_sum"] = partial(warm_sum_table, json_lines(top / "warm.jsonl"))
    halves = json_lines(top / "warm-simulated.jsonl")
    made["warm_simulated"] = partial(warm_simulated_table, halves)
    made["warm_mounted_sum"] = partial(mounted_sum_table, [row for row in halves if row["sifter"] != "oracle"])
    made["ceiled"] = partial(ceiled_table, json_lines(top / "ceiling.jsonl"))
    mounted = json_lines(top / "mounted.jsonl")
    made |= {"mounted": partial(mounted_table, mounted), "mounted_sum": partial(mounted_sum_table, mounted)}
    made["simulated"] = partial(simulated_table, rows, json_lines(top / "simulated.jsonl"))
    return fill((HERE / "RESULTS.md").read_text(), made | {"failures": partial(failures, failed)})


def main():
    *options, top = sys.argv[1:]
    text = page(Path(top))
    if "--print" in options:
        print(text)
    else:
        (HERE / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main()
