"""Write RESULTS.md from cost.csv, clock.csv, proposals.json, kinds.json and ends.json."""

import json
import re
from pathlib import Path
from statistics import median

from common.pages import fill, item, markdown, minus, paragraphs
from common.rows import load_dicts
from stage import confident_median

HERE = Path(__file__).resolve().parent
PRESENT = 128
RATE = 20_000


def rows_of(name):
    return load_dicts(HERE / name)


def json_of(name):
    return json.loads((HERE / name).read_text())


def table(head, rows, left=1):
    return markdown(head, rows, range(left))


def interval(values, digits):
    middle, low, high = confident_median(values)
    return minus(f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")


def cost():
    rows = rows_of("cost.csv")
    at_rate, free = [], []
    for load in dict.fromkeys(row["load"] for row in rows):
        for watch in ("--live", "record --exact"):
            mine = [row for row in rows if (row["load"], row["watch"]) == (load, watch)]
            rated = [row for row in mine if row["rate"] != "0"]
            if not rated:
                continue
            share = [100 * float(row["watch_cpu_s"]) / float(row["seconds"]) for row in rated]
            apart = "–" if watch != "--live" else max(
                abs(int(row["device_pages"]) - int(row["demanded_pages"]) - int(row["ahead_pages"])) for row in mine)
            lost = sum(int(row["lost_records"]) for row in mine)
            at_rate.append([load, f"`{watch}`", f"{median(float(row['reads_s']) for row in rated):,.0f}",
                            f"{median(int(row['device_pages']) for row in rated):,.0f}", interval(share, 2),
                            apart, lost, len(rated)])
            pairs = []
            for row in mine:
                if row["rate"] == "0":
                    off = next(one for one in rows if one["watch"] == "" and one["rate"] == "0" and
                               (one["load"], one["round"]) == (load, row["round"]))
                    us = [1e6 * float(one["reader_cpu_s"]) / int(one["reads"]) for one in (off, row)]
                    pairs.append((us[0], us[1] - us[0]))
            if pairs:
                free.append([load, f"`{watch}`", f"{median(off for off, _ in pairs):.2f}",
                             interval([more for _, more in pairs], 2),
                             interval([more * RATE / 1e4 for _, more in pairs], 1), len(pairs)])
    return (table(["load", "watch", "reads/s", "pages from the device", "% of a core", "pages apart", "lost", "runs"],
                  at_rate, 2),
            table(["load", "watch", "µs a read without", "µs more", f"% of a core at {RATE:,} reads/s", "pairs"],
                  free, 2))


def by_size(name, rows):
    sizes = {}
    for row in rows:
        if row["workload"] == name:
            sizes.setdefault(int(row["kib"]), []).append(row)
    return sizes


def paired(sizes, one, other, key="seconds"):
    """Differences of the same rounds."""
    of = {row["round"]: float(row[key]) for row in sizes[other]}
    return [float(row[key]) - of[row["round"]] for row in sizes[one] if row["round"] in of]


def clock():
    rows = rows_of("clock.csv")
    times, counts, chosen, summary, anew = [], [], [], [], []
    proposals, fitted = json_of("proposals.json"), json_of("fitted.json")
    names = list(dict.fromkeys(row["workload"] for row in rows))
    together = {}
    for row in rows:
        key = (row["kib"], row["round"])
        one = together.setdefault(key, {"workload": "all", "kib": row["kib"], "round": row["round"], "seconds": 0})
        one["seconds"] += float(row["seconds"])
    rows += list(together.values())
    for name in [*names, "all"]:
        sizes = by_size(name, rows)
        times.append([name, *(interval([float(row["seconds"]) for row in sizes[kib]], 2) for kib in sorted(sizes))])
        if name != "all":
            for what, digits in (("requests", 0), ("bytes", 1)):
                scale = 1 << 20 if what == "bytes" else 1
                counts.append([name, "MiB" if what == "bytes" else what,
                               *(f"{median(float(row[what]) for row in sizes[kib]) / scale:,.{digits}f}"
                                 for kib in sorted(sizes))])
        middles = {kib: median(float(row["seconds"]) for row in sizes[kib]) for kib in sizes}
        best = min(middles, key=middles.get)
        # Sizes whose difference to the best in the same rounds is not certain.
        region = [kib for kib in sorted(sizes) if kib == best or confident_median(paired(sizes, kib, best))[1] <= 0]
        said, region_text = [], " ".join(map(str, region))
        measured = interval(paired(sizes, PRESENT, best), 2) if best != PRESENT else "0"
        certain = best != PRESENT and confident_median(paired(sizes, PRESENT, best))[1] > 0
        for kind in ("plain", "exact", "exact at 0", "live"):
            found = proposals.get(f"{name}, {kind}")
            if not found:
                continue
            found = found.get("readahead", found)
            by_kib = {size["kib"]: size for size in found["sizes"]}
            proposed = found.get("proposed_kib")
            predicted = [by_kib[PRESENT][key] - by_kib[best][key] for key in ("stall_s", "elapsed_s")]
            said.append((kind, "none" if proposed is None else f"{proposed} KiB"))
            chosen.append([name, kind, best, region_text, measured,
                           "none" if proposed is None else proposed,
                           f"{found['flat_kib'][0]} to {found['flat_kib'][1]}",
                           *(f"{value:.2f}".replace("-", "−") for value in predicted)])
            if other := fitted.get(f"{name}, {kind}"):
                by_kib = {size["kib"]: size for size in other["sizes"]}
                anew.append([name, kind, region_text, measured, other.get("proposed_kib", "none"),
                             f"{other['flat_kib'][0]} to {other['flat_kib'][1]}",
                             *(f"{by_kib[PRESENT][key] - by_kib[best][key]:.2f}".replace("-", "−")
                               for key in ("stall_s", "elapsed_s"))])
        summary.append((name, best, certain, measured, said, predicted_s(fitted.get(f"{name}, exact at 0"), best)))
    sizes = sorted({int(row["kib"]) for row in rows})
    return {
        "summary": summary, "anew": anew_table(anew), "fitted": fitted_times(),
        "times": table(["workload", *map(str, sizes)], times),
        "counts": table(["workload", "", *map(str, sizes)], counts, 2),
        "chosen": table(["workload", "recording", "best, KiB", "not certainly slower", "it saves, s", "proposed",
                         "flat", "predicted, stall s", "predicted, device s"], chosen, 2),
        "rounds": len({row["round"] for row in rows}), "models": models(rows, proposals, names),
    }


def predicted_s(found, best):
    """The smaller and the larger of the predicted savings: of waiting, and of the device's time."""
    if not found:
        return None
    by_kib = {size["kib"]: size for size in found["sizes"]}
    one, other = sorted(by_kib[PRESENT][key] - by_kib[best][key] for key in ("stall_s", "elapsed_s"))
    return f"{one:.2f} to {other:.2f}".replace("-", "−")


def anew_table(rows):
    return table(["workload", "recording", "not certainly slower", "best saves, s", "proposed", "flat",
                  "predicted, stall s", "predicted, device s"], rows, 2)


def fitted_times():
    times = []
    for name in ("card", "fitted"):
        text = (HERE / f"{name}.toml").read_text()
        times.append([float(re.search(rf"^{key} = ([0-9.]+)$", text, re.MULTILINE)[1]) for key in ("read_us", "transfer_us")])
    (card, card_page), (request, page) = times
    return f"{request:.0f} µs a request and {page:.0f} µs a page, where the profile has {card:.0f} and {card_page:.0f} µs"


def models(rows, proposals, names):
    """Requests and bytes of the model beside those of the device."""
    lines = []
    for name in names:
        sizes = by_size(name, rows)
        for kind in ("plain", "exact", "exact at 0"):
            found = {size["kib"]: size for size in proposals[f"{name}, {kind}"]["sizes"]}
            lines.append([name, kind, *(f"{found[kib]['read_requests'] / median(int(row['requests']) for row in sizes[kib]):.2f}"
                                        for kib in sorted(sizes))])
    return table(["workload", "recording", *map(str, sorted(sizes))], lines, 2)


def kinds():
    lines = []
    for name, found in json_of("kinds.json").items():
        said = [line.removeprefix("flashsift: ") for line in found.get("said", [])]
        if total := found.get("total"):
            counted = total["demanded_pages"] + total["ahead_pages"]
            more = found.get("propose", {})
            proposal = "; ".join(line.removeprefix("flashsift: ") for line in more.get("failed", [])) or (
                "proposes" if more else "–")
            lines.append([name.replace("/", ", "), f"{counted:,}", f"{found['device_pages']:,}",
                          found["lost_records"], proposal])
        else:
            lines.append([name.replace("/", ", "), "–", f"{found.get('device_pages', 0):,}", "–",
                          "refused: " + "; ".join(said) if said else found.get("refused", "")[:80]])
    return table(["kernel, file system", "pages counted", "pages the device read", "lost", "with `--propose`"], lines)


def ends(name="ends.json"):
    found = json_of(name)
    lines = []
    for number in dict.fromkeys(one["signal"] for one in found["ends"]):
        mine = [one for one in found["ends"] if one["signal"] == number]
        lines.append([number, len(mine), *(sum(one[key] > 0 for one in mine) for key in (
            "recorders_left", "instances_left", "folders_left"))])
    return table(["signal", "times", "recorder left", "tracing instance left", "folder left"], lines), found[
        "left_after_the_next_watch"]


def short(at_rate, measured):
    rows = rows_of("cost.csv")
    live = [row for row in rows if row["watch"] == "--live"]
    shares = {}
    for row in live:
        if row["rate"] != "0":
            shares.setdefault(row["load"], []).append(100 * float(row["watch_cpu_s"]) / float(row["seconds"]))
    costs = ", ".join(f"{median(values):.1f} % ({load})" for load, values in shares.items())
    lost = sum(int(row["lost_records"]) for row in live)
    apart = max(abs(int(row["device_pages"]) - int(row["demanded_pages"]) - int(row["ahead_pages"])) for row in live)
    pages = sum(int(row["device_pages"]) for row in live)
    items = [f"**Cost**: beside 20,000 reads a second `--live` takes {costs} of a core. It lost {lost} records. The "
             f"pages that it counts are those that the device read{f', within {apart} a run' if apart else ''}: "
             f"{pages:,} in all runs."]
    for name, best, certain, saves, by_recording, predicted in measured["summary"]:
        texts = {text for _, text in by_recording}
        proposals = texts.pop() if len(texts) == 1 else "; ".join(f"{kind}: {text}" for kind, text in by_recording)
        least = (f"{best} KiB takes the least time, and saves {saves} s over 128 KiB" if certain
                 else "no size takes less time than 128 KiB for certain")
        simulated = f" The simulation, with the device's times in these runs, says {predicted} s." if certain and predicted else ""
        items.append(f"**{name}**: {least}.{simulated} Proposed: {proposals}.")
    return "".join(map(item, items))


def tuned():
    """The table of `tune readahead --clock`."""
    rows = []
    for name, found in json_of("tuned.json").items():
        for size in found["sizes"]:
            is_present = size["kib"] == found["present_kib"]
            mark = " (proposed)" if size["kib"] == found["proposed_kib"] else " (now)" if is_present else ""
            present = next(one["seconds"] for one in found["sizes"] if one["kib"] == found["present_kib"])
            saves = [now - then for now, then in zip(present, size["seconds"])]
            middle = len(saves) // 2
            saved = [f"{sum(part) / len(part):.2f}" for part in (saves, saves[:middle], saves[middle:])]
            rows.append([name, f"{size['kib']}{mark}", f"{median(size['seconds']):.2f}",
                         *(["", ""] if is_present else [minus(f"{saved[0]} ({saved[1]}, {saved[2]})"),
                                                        f"{size['rounds_won']} of {len(size['seconds'])}"]), found["date"]])
    return table(["program", "maximum, KiB", "median, s", "saves, s (in both halves of the rounds)", "rounds won", "date"], rows, 2)


def machine():
    about = json_of("machine.json")
    return paragraphs(
        f"Linux {about['kernel']}, {about['cpus']} CPUs, {about['date']}. Other programs kept the processors busy, so "
        "runs that are compared alternate. Values are medians; intervals hold the median with at least 95 % "
        "probability (order statistics).")


def device(rounds):
    return paragraphs(
        "The device is a loop device over `slow.c`, a file of a FUSE mount that answers requests one after the other, "
        "each in 200 µs and 26.2 ms a MiB: 40 MB/s. (A control group's limit, `blkio.throttle`, works on a loop device "
        "too. It keeps the rate by letting bursts through, so a request has no time of its own.) `flashsift profile` "
        "measures it as `card.toml`. Each run begins with the file system mounted anew: nothing of it is cached. "
        f"{rounds} rounds; the order of sizes in each is random.")


def main():
    at_rate, free = cost()
    measured = clock()
    signals, after = ends()
    tables = {name: measured[name] for name in ("times", "counts", "chosen", "anew", "models")}
    tables |= {"at_rate": at_rate, "free": free, "kinds": kinds(), "ends": signals,
               "tuned": tuned()}
    texts = {
        "machine": machine(), "short": short(at_rate, measured), "device": device(measured["rounds"]),
        "fitted": paragraphs("The device's time in the runs (in which it had requests) fits "
                             f"{measured['fitted']}. With a profile of these times:"),
        "after": paragraphs("SIGKILL leaves the tracing instance of the watch itself, because a killed process cannot "
                            "remove it. It records until the next watch or recording removes it: after that, "
                            f"{after} were left."),
    }
    page = HERE / "RESULTS.md"
    page.write_text(fill(page.read_text(), {name: lambda text=text: text for name, text in (tables | texts).items()}))


main()
