"""Write results.json and RESULTS.md from the trials.

Trials of one file are compared with the undisturbed ones of the same file, browser, seed and mode.
"""

import argparse
import collections
import hashlib
import json
import re
from pathlib import Path
from statistics import median

import programs
from common.pages import fill, item, markdown, wrapped
from common.rows import json_lines, write_json
from kinds import ORDER, RULE, compared, dropped_by_rule, verdict, worst

HERE = Path(__file__).resolve().parent
EMPTY = hashlib.sha256(b"").hexdigest()
AMOUNTS = ("one", "third", "all")
BROWSERS = ("chromium", "firefox")
MODES = {"between": "between runs", "running": "while it runs"}


def trials_of(paths):
    return [trial | {"file": path.name} for path in paths for trial in json_lines(path)]


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
        # A browser writes the same files anew at each start, in both modes.
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
    never, absent = collections.Counter(), collections.Counter()
    for trial in trials:
        if trial["amount"] == "none":
            for kind, (there_open, there) in trial["open"].items():
                held[trial["browser"], kind][0] += there_open
                held[trial["browser"], kind][1] += there
        elif not trial["phases"]:
            (never if trial["held"] else absent)[trial["browser"], trial["kind"]] += 1
    entries = []
    for (browser, kind), mine in sorted(by_kind.items()):
        entry = {"browser": browser, "kind": kind, "rule": rule_of(browser, kind), "trials": len(mine),
                 "seeds": len({trial["seed"] for trial in mine}), "files": median(trial["files"] for trial in mine)}
        everything = [trial for trial in mine if trial["amount"] == "all" and trial["mode"] == "between"]
        entry["bytes"] = median(trial["bytes"] for trial in everything) if everything else None
        there_open, there = held[browser, kind]
        entry["open"] = round(there_open / there, 3) if there else None
        entry["held_trials"], entry["absent_trials"] = never[browser, kind], absent[browser, kind]
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
        entry["problems"] = dict(collections.Counter(
            text for trial in mine for text in plain(trial["difference"]["problems"])).most_common(8))
        entry["others"] = dict(collections.Counter(
            url for trial in mine for url in sorted(set(trial["difference"]["others"]))).most_common(8))
        for name in ("gone", "remade"):
            entry[name] = dict(sum((collections.Counter(trial["difference"][name]) for trial in mine),
                                   collections.Counter()))
        entries.append(entry)
    return entries


def plain(problems):
    """The problems of one trial in words, each once."""
    times = collections.Counter()
    for problem in problems:
        found = re.fullmatch(r"([a-z ]+): (\S+): (.*?) is (.*)", problem, re.S)
        if not found:
            times[problem[:120]] += 1
            continue
        phase, place, name, value = found.groups()
        if name == "lost":
            for lost in sorted(set(re.findall(r'(?:\[|, )"([^":]+)', value))):
                times[f"{lost} lost in the {phase}"] += 1
        elif EMPTY in value:
            times[f"{place} gets empty files in the {phase}"] += 1
        else:
            times[f"{place}: {name[:40]} is wrong in the {phase}"] += 1
    # The application is visited twice in each phase.
    return [text + (", at the first visit only" if count == 1 and " lost in " in text else "")
            for text, count in times.items()]


def counted(verdicts):
    return {word: verdicts.count(word) for word in ORDER if word in verdicts}


def rule_of(browser, kind):
    """Returns what the product's rule says. All kinds but those of STORED lie in caches."""
    if kind == RULE or kind.startswith("stored: "):
        return None
    place = {"chromium": ".cache/browser/Default", "firefox": ".cache/mozilla/firefox/person"}[browser]
    return "drops" if dropped_by_rule(f"{place}/{kind}") else "pins"


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
    return markdown(head, rows, range(len(head)), tight=True).rstrip()


def kinds_table(entries):
    rows = []
    for entry in entries:
        running = words(entry["verdicts"]["running"])
        if not entry["verdicts"]["running"]:
            running = "held open" if entry["held_trials"] else "not there" if entry["absent_trials"] else "–"
        rows.append([f"`{entry['kind']}`" if entry["rule"] else entry["kind"], f"{entry['files']:.0f}",
                     entry["seeds"], size(entry["bytes"]), entry["rule"] or "–",
                     "–" if entry["open"] is None else f"{100 * entry['open']:.0f} %",
                     words(entry["verdicts"]["between"]), running,
                     size(entry["own_bytes"]), size(entry["other_bytes"]),
                     "–" if entry["back"] is None else f"{100 * entry['back']:.0f} %",
                     "–" if entry["start"] is None else f"{entry['start']:.2f}"])
    return table(["kind", "files", "seeds", "bytes", "rule", "open", "deleted between runs", "deleted while it runs",
                  "own again", "other again", "back", "start"], rows)


def disagreements(entries):
    for entry in entries:
        if entry["rule"] == "drops" and entry["verdict"] != "harmless":
            yield entry
        if entry["rule"] == "pins" and entry["verdict"] == "harmless":
            yield entry


def details(entries, word):
    """A line for each kind with this verdict: what was seen, in how many trials."""
    for entry in entries:
        if entry["verdict"] != word:
            continue
        seen = [f"{text} ({count})" for text, count in list(entry["problems"].items())[:5]]
        if entry["others"] and word == "costly":
            seen.append("others fetched: " + ", ".join(f"{url} ({n})" for url, n in list(entry["others"].items())[:4]))
        seen += [f"{verb}: {kind} ({count})" for name, verb in (("gone", "gone"), ("remade", "made anew"))
                 for kind, count in entry[name].items()]
        trials = f"{entry['trials']} trial{'s' * (entry['trials'] > 1)}"
        yield f"{entry['browser']}, `{entry['kind']}`, {trials}: {'; '.join(seen)}."


def rule_table(entries, *_):
    rows = [[entry["browser"], f"`{entry['kind']}`", entry["rule"], entry["verdict"], size(entry["bytes"]),
             "always" if entry["open"] == 1 else "no" if not entry["open"] else "at times"]
            for entry in disagreements(entries)]
    return table(["browser", "kind", "the rule", "verdict", "bytes", "open"], rows) + "\n" if rows else "None.\n"


def facts(entries, trials, machine):
    controls = [trial for trial in trials if trial["amount"] == "none"]
    failing = sum(any(phase["problems"] for phase in trial["phases"]) for trial in controls)
    count = len(trials) - len(controls)
    text = (f"{machine['chromium']}; {machine['firefox']}; both headless, on Linux {machine['kernel']} with "
            f"{machine['cpus']} processors, {machine['date']}. {count:,} trials of up to "
            f"{max(entry['seeds'] for entry in entries)} seeds, and {len(controls):,} undisturbed runs between them, "
            f"of which {failing} had a problem. No phone was measured. {machine.get('note', '')}").strip()
    return wrapped(text) + "\n"


def browsers(entries, *_):
    """The sections of both."""
    by_verdict = collections.Counter((entry["browser"], entry["verdict"]) for entry in entries if entry["rule"])
    parts = []
    for browser in BROWSERS:
        mine = [entry for entry in entries if entry["browser"] == browser]
        numbers = ", ".join(f"{by_verdict[browser, word]} {word}" for word in ORDER)
        parts += [f"## {browser.capitalize()}", wrapped(f"Kinds in caches: {numbers}."), kinds_table(mine)]
        for word in reversed(ORDER[1:]):
            if lines := "".join(map(item, details(mine, word))).rstrip():
                parts += [f"### {word.capitalize()}", lines]
    return "\n\n".join(parts) + "\n"


def thumbnails(entries, *_):
    found = next((entry for entry in entries if entry["kind"].startswith("thumbnails/")), None)
    cost = (f"if {size(found['bytes'])} bytes of them are missing, Firefox fetches "
            f"{size(found['other_bytes'])} bytes of whole pages in the background to draw them again"
            if found else "Firefox made none")
    return item(f"**Thumbnails of Firefox**: {cost}. The rule dropped them before; now it does not.")


def indexes(entries, *_):
    pinned = sum(entry["bytes"] or 0 for entry in entries if entry["rule"] == "pins" and
                 entry["verdict"] == "harmless" and entry["kind"].endswith(("/index", "the-real-index")))
    return item("**Indexes of simple caches** (`index`, `the-real-index`) and of `cache2` are harmless: the entries are "
                "served without them. Chromium writes them again; Firefox had not at the end of a trial. They stay "
                "pinned, because an `index` of block files has the same name, and because all of them together have "
                f"{pinned:,.0f} bytes.")


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
        return
    machine = json.loads((HERE / "machine.json").read_text())
    write_json(HERE / "results.json", {"machine": machine, "kinds": entries})
    makers = {"facts": facts, "browsers": browsers, "rule": rule_table, "thumbnails": thumbnails, "indexes": indexes}
    page = fill((HERE / "RESULTS.md").read_text(), makers, entries, trials, machine, partly=True)
    (HERE / "RESULTS.md").write_text(programs.filled(page, json.loads((HERE / "programs.json").read_text())))


if __name__ == "__main__":
    main()
