"""Write results.json and RESULTS.md from the trials.

Trials of one file are compared with the undisturbed ones of the same file, browser, seed and mode.
"""

import argparse
import collections
import json
import lzma
from pathlib import Path
from statistics import median

from kinds import ORDER, compared, dropped_by_rule, verdict, worst

HERE = Path(__file__).resolve().parent
RULE = "every file that the rule drops"
AMOUNTS = ("one", "third", "all")
MODES = {"between": "between runs", "running": "while it runs"}


def trials_of(paths):
    found = []
    for path in paths:
        opened = lzma.open(path, "rt") if path.suffix == ".xz" else open(path)
        with opened as file:
            found += [json.loads(line) | {"file": path.name} for line in file]
    return found


def judged(trials):
    """All trials but the undisturbed ones, each with its difference and verdict."""
    controls = collections.defaultdict(list)
    for trial in trials:
        if trial["amount"] == "none":
            controls[trial["file"], trial["browser"], trial["seed"]].append(trial)
    results = []
    for trial in trials:
        if trial["amount"] == "none" or not trial["phases"]:
            continue
        same = controls[trial["file"], trial["browser"], trial["seed"]]
        mode = [one for one in same if one["mode"] == trial["mode"]]
        difference = compared(trial, mode)
        # What a browser writes anew at its start does not depend on the mode.
        names = compared(trial, same)
        difference |= {"gone": names["gone"], "remade": names["remade"]}
        usual = [phase["startup_s"] for one in mode for phase in one["phases"] if phase["startup_s"]]
        mine = [phase["startup_s"] for phase in trial["phases"] if phase["startup_s"]]
        difference["start"] = median(mine) / median(usual) if mine and usual else None
        results.append(trial | {"difference": difference, "verdict": verdict(difference)})
    return results


def summaries(trials):
    """One entry for each kind of each browser."""
    by_kind = collections.defaultdict(list)
    for trial in judged(trials):
        by_kind[trial["browser"], trial["kind"]].append(trial)
    held = collections.defaultdict(lambda: [0, 0])
    never = collections.Counter()
    for trial in trials:
        if trial["amount"] == "none":
            for kind, (there_open, there) in trial["open"].items():
                held[trial["browser"], kind][0] += there_open
                held[trial["browser"], kind][1] += there
        elif not trial["phases"]:
            never[trial["browser"], trial["kind"]] += 1
    entries = []
    for (browser, kind), mine in sorted(by_kind.items()):
        entry = {"browser": browser, "kind": kind, "rule": rule_of(kind), "trials": len(mine),
                 "seeds": len({trial["seed"] for trial in mine}), "files": median(trial["files"] for trial in mine)}
        everything = [trial for trial in mine if trial["amount"] == "all" and trial["mode"] == "between"]
        entry["bytes"] = median(trial["bytes"] for trial in everything) if everything else None
        there_open, there = held[browser, kind]
        entry["open"] = round(there_open / there, 3) if there else None
        entry["held_trials"] = never[browser, kind]
        entry["verdict"] = worst(trial["verdict"] for trial in mine)
        entry["verdicts"] = {
            mode: {amount: counted([trial["verdict"] for trial in mine
                                    if (trial["mode"], trial["amount"]) == (mode, amount)])
                   for amount in AMOUNTS if any((t["mode"], t["amount"]) == (mode, amount) for t in mine)}
            for mode in MODES}
        differences = [trial["difference"] for trial in everything]
        for name in ("own_bytes", "other_bytes", "own_requests", "other_requests"):
            entry[name] = median(one[name] for one in differences) if differences else None
        deleted = sum(trial["deleted"] for trial in mine)
        entry["back"] = round(sum(trial["back"] for trial in mine) / deleted, 3) if deleted else None
        starts = [trial["difference"]["start"] for trial in mine if trial["difference"]["start"]]
        entry["start"] = round(median(starts), 2) if starts else None
        for name in ("problems", "others"):
            seen = collections.Counter(text for trial in mine for text in trial["difference"][name])
            entry[name] = dict(seen.most_common(8))
        for name in ("gone", "remade"):
            entry[name] = dict(sum((collections.Counter(trial["difference"][name]) for trial in mine),
                                   collections.Counter()))
        entries.append(entry)
    return entries


def counted(verdicts):
    return {word: verdicts.count(word) for word in ORDER if word in verdicts}


def rule_of(kind):
    """What the product's rule says. All kinds but those of STORED lie in caches."""
    if kind == RULE or kind.startswith("stored: "):
        return None
    return "drops" if dropped_by_rule(f".cache/{kind}") else "pins"


def words(verdicts):
    """`harmless`, or what each amount gave."""
    if not verdicts:
        return "–"
    said = {amount: "/".join(f"{word} {count}" if len(counts) > 1 else word for word, count in counts.items())
            for amount, counts in verdicts.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{amount}: {word}" for amount, word in said.items())


def size(number):
    if number is None:
        return "–"
    return f"{number:,.0f}" if number < 1000 else f"{number / 1000:,.0f} K"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def kinds_table(entries):
    rows = []
    for entry in entries:
        running = words(entry["verdicts"]["running"])
        if not entry["verdicts"]["running"]:
            running = "held open" if entry["held_trials"] else "–"
        rows.append([f"`{entry['kind']}`" if entry["rule"] else entry["kind"], f"{entry['files']:.0f}",
                     size(entry["bytes"]), entry["rule"] or "–",
                     "–" if entry["open"] is None else f"{100 * entry['open']:.0f} %",
                     words(entry["verdicts"]["between"]), running,
                     size(entry["own_bytes"]), size(entry["other_bytes"]),
                     "–" if entry["back"] is None else f"{100 * entry['back']:.0f} %",
                     "–" if entry["start"] is None else f"{entry['start']:.2f}"])
    return table(["kind", "files", "bytes", "rule", "open", "deleted between runs", "deleted while it runs",
                  "own again", "other again", "back", "start"], rows)


def disagreements(entries):
    for entry in entries:
        if entry["rule"] == "drops" and entry["verdict"] != "harmless":
            yield entry
        if entry["rule"] == "pins" and entry["verdict"] == "harmless":
            yield entry


def details(entries, word):
    lines = []
    for entry in entries:
        if entry["verdict"] != word:
            continue
        parts = [f"{text} ({count}×)" for text, count in list(entry["problems"].items())[:4]]
        if not parts and entry["others"]:
            parts.append("others fetched: " + ", ".join(f"{url} ({count}×)"
                                                       for url, count in list(entry["others"].items())[:4]))
        parts += [f"{name}: {kind} ({count}×)" for name in ("gone", "remade") for kind, count in entry[name].items()]
        lines.append(f"{entry['browser']}: {entry['kind']}: " + "; ".join(parts))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=Path, nargs="+")
    parser.add_argument("--print", action="store_true", help="print tables and details, write nothing")
    args = parser.parse_args()
    trials = trials_of(args.trials)
    entries = summaries(trials)
    if args.print:
        for browser in dict.fromkeys(entry["browser"] for entry in entries):
            print(kinds_table([entry for entry in entries if entry["browser"] == browser]), "\n")
        for word in ORDER[1:]:
            print(word, *details(entries, word), sep="\n  ")
        print("disagreements", *(f"{e['browser']}: {e['kind']}: rule {e['rule']}, {e['verdict']}"
                                 for e in disagreements(entries)), sep="\n  ")
        controls = [trial for trial in trials if trial["amount"] == "none"]
        print(len(controls), "undisturbed, with problems:",
              sum(bool(phase["problems"]) for trial in controls for phase in trial["phases"]))


if __name__ == "__main__":
    main()
