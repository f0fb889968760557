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
from common.pages import item, markdown, paragraphs, wrapped
from common.rows import json_lines, write_json
from kinds import ORDER, compared, dropped_by_rule, verdict, worst

HERE = Path(__file__).resolve().parent
RULE = "every file that the rule drops"
EMPTY = hashlib.sha256(b"").hexdigest()
AMOUNTS = ("one", "third", "all")
BROWSERS = ("chromium", "firefox")
MODES = {"between": "between runs", "running": "while it runs"}

TITLE = """# Which cache files of real browsers may go without harm?

A sifter drops cache files, so that flash never sees them. This page shows what real Chromium and
Firefox do when single files of their profiles are missing, kind by kind.

    experiments/cachesifter/harmless/run.sh"""
HOW = """## How it was made

{facts}

The pages come from a server on 127.0.0.1 with a seeded site: documents, images, scripts, styles, a
font, a WebAssembly module and ranges of a large file, all cacheable for a year. The server counts
requests and bytes by URL. A web application has a service worker and has stored known content that
no server has: cookies, localStorage, IndexedDB, a private file and CacheStorage. Each page computes
the SHA-256 of its resources. One page is visited only at the beginning; the history has to know it
at the end.

Three sessions fill a profile. Each trial starts with a copy of it. The trial deletes one file, a
third or all files of one kind (few files: one or all; a single file: all), and visits the same
pages again.

- *Between runs*: the browser is closed while the files are deleted, and is started once.
- *While it runs*: the browser visits all pages, then the files are deleted that no process of it
  has open or mapped, then a new tab visits all pages, and once more after a restart.

| verdict | when |
|---|---|
| harmful | content is lost or wrong, a page fails, the browser crashes |
| costly | other bytes than those of the deleted files are fetched, or other cache files are lost or made anew |
| harmless | all else: at most the deleted files' own bytes are fetched again |

The verdict of a kind is that of its worst trial. Each trial is compared with the undisturbed runs
of the same seed: a request counts only beyond those. Compiled code of a script that is fetched
again is not a loss of its own.

In the tables, *open* is how often a file of the kind was open or mapped, over samples after each
page; a live sifter never drops an open file. *held open*, *not there*: no file could be deleted
while the browser ran. *own again* and *other again* are bytes fetched again
after all files of the kind were deleted between runs (median). *back* is the share of deleted files
that exist at the end. *start* is the time from the start of the browser to its first answer,
divided by that of the undisturbed runs. It is only a hint where the machine has other work.
`stored` rows are no caches. They show that the experiment sees a loss. A kind with fewer *seeds*
did not exist in the profiles of the others."""
RULE_TEXT = """## The rule of the product

`core/src/sift/droppable.rs` decides by names. Kinds on which the rule and the verdict differ (those
that it dropped before this experiment and does not now are in the next section):"""
CONCLUSIONS = """## What follows for the rule

- **Files of the HTTP caches** (`Cache/Cache_Data`, `Code Cache`, `cache2/entries`) are what a sifter
  may drop: their bytes are fetched again, compiled code is made again, and nothing else changes. No
  sample saw one of them open.
- **Scripts of service workers** (Chromium's `Service Worker/ScriptCache`): if one is missing,
  Chromium forgets the service worker until the page registers it again. An application that should
  work without a network does not. The rule dropped them before this experiment; now it does not.
- **`cache/morgue` of Firefox** holds CacheStorage and the scripts of service workers. Firefox serves
  a missing file as an empty one while it runs, and what the application stored is lost. The rule
  dropped these files before this experiment; now it does not.
- **Thumbnails of Firefox**: {thumbnails}. The rule dropped them before; now it does not.
- **Caches of block files** (GPU caches) are made anew without their index or a block file. They are
  pinned, and always open.
- **Indexes of simple caches** (`index`, `the-real-index`) and of `cache2` are harmless: the entries
  are served without them. Chromium writes them again; Firefox had not at the end of a trial. They
  stay pinned, because an `index` of block files has the same name, and because all of them together
  have {pinned} bytes.
- **Logs of LevelDB**: without `Local Storage/leveldb/N.log` alone, localStorage is lost. No such log
  lay in a cache directory here, but the rule would have dropped one. Now it pins `0?????.log`, as it
  pins LevelDB's other files.
- **SQLite** in caches is harmless for shaders (`GPUPersistentCache`) and harmful for Firefox's
  `caches.sqlite`. The rule pins all of them: a name does not tell them apart, and they are open.
- **Start-up caches of Firefox** are made again. The three large ones in use
  (`scriptCache-current.bin`, `scriptCache-child-current.bin`, `startupCache.8.little`) are always
  open; the previous generation is not.

## Limits

The server still has all content at the same addresses. A resource that its server has replaced is
not regenerable; no trial looks at that. Deletions while a browser runs come at one moment, between
two visits. Shaders come from SwiftShader, and Firefox had no WebGL, so it has no shader cache here.
Firefox's lists of unsafe pages were not downloaded. On Linux, Chromium keeps pages in its simple
cache; other systems may have block files, and jump lists."""


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
            url for trial in mine for url in set(trial["difference"]["others"])).most_common(8))
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
            for lost in set(re.findall(r'(?:\[|, )"([^":]+)', value)):
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


def rule_table(entries):
    rows = [[entry["browser"], f"`{entry['kind']}`", entry["rule"], entry["verdict"], size(entry["bytes"]),
             "always" if entry["open"] == 1 else "no" if not entry["open"] else "at times"]
            for entry in disagreements(entries)]
    return table(["browser", "kind", "the rule", "verdict", "bytes", "open"], rows) if rows else "None."


def page(entries, trials, machine):
    controls = [trial for trial in trials if trial["amount"] == "none"]
    failing = sum(any(phase["problems"] for phase in trial["phases"]) for trial in controls)
    count = len(trials) - len(controls)
    by_verdict = collections.Counter((entry["browser"], entry["verdict"]) for entry in entries if entry["rule"])
    facts = (f"{machine['chromium']}; {machine['firefox']}; both headless, on Linux {machine['kernel']} with "
             f"{machine['cpus']} processors, {machine['date']}. {count:,} trials of up to "
             f"{max(entry['seeds'] for entry in entries)} seeds, and {len(controls):,} undisturbed runs between them, "
             f"of which {failing} had a problem. No phone was measured. {machine.get('note', '')}").strip()
    parts = [TITLE, HOW.format(facts=wrapped(facts))]
    for browser in BROWSERS:
        mine = [entry for entry in entries if entry["browser"] == browser]
        numbers = ", ".join(f"{by_verdict[browser, word]} {word}" for word in ORDER)
        parts.append(f"## {browser.capitalize()}\n\n" + wrapped(f"Kinds in caches: {numbers}.") + "\n\n"
                     + kinds_table(mine))
        for word in reversed(ORDER[1:]):
            lines = list(details(mine, word))
            if lines:
                parts.append(f"### {word.capitalize()}\n\n" + "".join(map(item, lines)).rstrip())
    thumbnails = next((entry for entry in entries if entry["kind"].startswith("thumbnails/")), None)
    cost = (f"if {size(thumbnails['bytes'])} bytes of them are missing, Firefox fetches "
            f"{size(thumbnails['other_bytes'])} bytes of whole pages in the background to draw them again"
            if thumbnails else "Firefox made none")
    pinned = sum(entry["bytes"] or 0 for entry in entries if entry["rule"] == "pins" and
                 entry["verdict"] == "harmless" and entry["kind"].endswith(("/index", "the-real-index")))
    parts += [RULE_TEXT, rule_table(entries),
              paragraphs(CONCLUSIONS.format(thumbnails=cost, pinned=f"{pinned:,.0f}")).rstrip()]
    if (records := HERE / "programs.json").exists():
        parts.append(programs.section(json.loads(records.read_text())).rstrip("\n"))
    return "\n\n".join(parts) + "\n"


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
    (HERE / "RESULTS.md").write_text(page(entries, trials, machine))


if __name__ == "__main__":
    main()
