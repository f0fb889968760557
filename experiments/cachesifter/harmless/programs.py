"""Delete files of the caches of pip, npm, Cargo and others, run the program again, and compare.

Each program fills its cache with a run, on packages made here. Every trial starts with a copy of
that state. It deletes one file (a seeded sample), a random half or all of the files that the
profile drops, runs the program, and once more. Files that the profile does not drop are tried kind
by kind, so that the page shows why they stay. `during` fills the cache while each file that no
process has open is deleted a second after it was written.
"""

import argparse
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from datetime import date
from pathlib import Path
from statistics import median

import caches
from apps import processes
from common.pages import fill, markdown, wrapped
from kinds import DATABASE, NO_CACHE, ORDER, PINNED, ROOT, named, shell

HERE = Path(__file__).resolve().parent
# Requests of a few bytes more than the deleted ones are no cost.
SLACK_BYTES = 4096
HALVES = 3
EAGER_AGE_S = 1.0
EAGER_ROUNDS = 3

PARTS = [(re.compile(pattern), name) for pattern, name in (
    (r"[0-9a-f]{1,2}", "H"), (r"[0-9a-f]{20,}(?:-le64)?((?:-[ad]|\.body|\.png|\.cache-\d)?)", r"HASH\1"),
    (r"[0-9a-z]{20,}([RM])", r"HASH\1"), (r"[0-9a-v]", "H"), (r"127\.0\.0\.1-[0-9a-f]+", "REGISTRY"),
    (r"(npm-)?(package|part|wheel|source)-?\d.*?((?:-py3-none-any\.whl|\.deb|\.crate)?)", r"PACKAGE\3"),
    (r"(rustc|[0-9]{6,}).*", "N"), (r"data\.bin|lib\.rs|inner\.rs|index\.js|package\.json|Cargo\.toml", "SOURCE"))]


def kind_of(path):
    return re.sub(r"(H/)+", "H/", named(path, PARTS))


class Profile:
    """The rule of crates/files/src/sift/droppable.rs for one profile."""

    def __init__(self, name):
        text = (ROOT / f"crates/files/src/sift/profile/{name}.toml").read_text()
        self.about = tomllib.loads(text)
        directories = [at.rstrip("/") for at in self.about["directories"]]
        self._drop, self._pin = ([shell(f"{at}/{end}") for at in directories for end in self.about.get(key, [])]
                                 for key in ("drop", "pin"))

    def drops(self, path):
        name = path.rpartition("/")[2]
        some = lambda patterns, text: any(pattern.fullmatch(text) for pattern in patterns)
        return (some(self._drop, path) and not some(self._pin, path) and not some(NO_CACHE, path)
                and not DATABASE.fullmatch(name) and not some(PINNED, name))


class Bench:
    """One program with its filled cache."""

    def __init__(self, name, base, seed):
        self.name, self.random, self.state = name, random.Random(seed), base / "state"
        self.program = caches.ALL[name](base, seed)
        self.profile = Profile(self.program.profile) if self.program.profile else None
        self._copy(self.program.home, base / "empty")
        self.empty = base / "empty"
        for _ in range(3):
            self.expected = self.program.run()
        self._copy(self.program.home, self.state)
        controls = [self._trial([], self.state) for _ in range(3)]
        assert not any(trial["problems"] for trial in controls), controls
        self.control_bytes = max(trial["sent"] for trial in controls)
        self.control_s = median(trial["seconds"] for trial in controls)
        self.kept = set(self.files()) - set().union(*(trial["gone"] for trial in controls))

    @staticmethod
    def _copy(source, target):
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", source, target], check=True)

    def files(self):
        top = self.state / self.program.cache
        return sorted(str(at.relative_to(self.state)) for at in top.rglob("*") if at.is_file() and not at.is_symlink())

    def drops(self, path):
        return self.profile is not None and self.profile.drops(f"{self.program.root}/{path}")

    def _trial(self, paths, state, twice=False):
        home = self.program.home
        self._copy(state, home)
        deleted = sum((home / path).stat().st_size for path in paths)
        for path in paths:
            (home / path).unlink()
        before, began, problems = self.program.server.sent_bytes, time.monotonic(), []
        seconds = None
        for attempt in ("", "the run after: ") if twice else ("",):
            try:
                found = self.program.run()
                problems += [f"{attempt}{key} differs" for key in found if found[key] != self.expected[key]]
            except (caches.Failed, subprocess.TimeoutExpired) as error:
                problems.append(attempt + " ".join(str(error).split())[:300])
            if seconds is None:
                seconds = time.monotonic() - began
                sent = self.program.server.sent_bytes - before
        gone = [path for path in getattr(self, "kept", self.files()) if path not in paths and not (home / path).exists()]
        back = sum((home / path).exists() for path in paths)
        return {"deleted": deleted, "problems": problems, "sent": sent, "seconds": seconds, "gone": gone, "back": back}

    def judged(self, amount, paths, twice=False):
        trial = self._trial(paths, self.state, twice)
        again = max(0, trial["sent"] - self.control_bytes)
        verdict = "harmful" if trial["problems"] else "costly" if (
            again > trial["deleted"] + SLACK_BYTES or trial["gone"]) else "harmless"
        return {"amount": amount, "files": len(paths), "bytes": trial["deleted"], "again_bytes": again,
                "back": trial["back"], "gone": len(trial["gone"]), "seconds": round(trial["seconds"], 2),
                "verdict": verdict, "problems": trial["problems"], "kinds": sorted({kind_of(at) for at in paths})}

    def trials(self):
        """The trials in order."""
        files = self.files()
        drops = [path for path in files if self.drops(path)]
        for path in sorted(self.random.sample(drops, min(self.program.sample, len(drops)))):
            yield self.judged("one", [path])
        for _ in range(HALVES if len(drops) > 1 else 0):
            yield self.judged("half", sorted(self.random.sample(drops, len(drops) // 2)), True)
        if drops:
            yield self.judged("all", drops, True)
            for _ in range(EAGER_ROUNDS):
                yield self.during()
        for kind in sorted({kind_of(path) for path in files}):
            mine = [path for path in files if kind_of(path) == kind]
            if self.drops(mine[0]):
                yield self.judged("kind", mine, True)
            else:
                yield self.judged("pinned one", [self.random.choice(mine)])
                if len(mine) > 1:
                    yield self.judged("pinned all", mine)

    def during(self):
        """Fills an empty cache while its closed files are deleted."""
        self._copy(self.empty, self.program.home)
        end, deleted = threading.Event(), []
        watcher = threading.Thread(target=self._delete, args=(end, deleted))
        watcher.start()
        began, problems = time.monotonic(), []
        try:
            for _ in range(2):
                found = self.program.run()
                problems += [f"{key} differs" for key in found if found[key] != self.expected[key]]
        except (caches.Failed, subprocess.TimeoutExpired) as error:
            problems.append(" ".join(str(error).split())[:300])
        finally:
            end.set()
            watcher.join()
        return {"amount": "during", "files": len(deleted), "bytes": sum(deleted), "again_bytes": None, "back": None,
                "gone": 0, "seconds": round(time.monotonic() - began, 2), "kinds": [],
                "verdict": "harmful" if problems else "harmless", "problems": problems}

    def _delete(self, end, deleted):
        home = self.program.home
        while not end.wait(0.05):
            old = []
            for folder, _, names in os.walk(home / self.program.cache):
                for name in names:
                    path = Path(folder) / name
                    try:
                        about = path.stat()
                    except OSError:
                        continue
                    if time.time() - about.st_ctime > EAGER_AGE_S and self.drops(str(path.relative_to(home))):
                        old.append((path, about.st_size))
            held = {path for pid in processes.every() for path in processes.opened(pid)} if old else ()
            for path, size in old:
                if str(path) not in held:
                    path.unlink(missing_ok=True)
                    deleted.append(size)


def record(name, seed):
    """The trials of a program, or the reason why there are none."""
    with tempfile.TemporaryDirectory(prefix="caches-") as base:
        try:
            bench = Bench(name, Path(base), seed)
        except caches.Missing as missing:
            return {"program": name, "missing": str(missing)}
        try:
            entry = {"program": name, "profile": bench.program.profile, "version": bench.program.version(),
                     "date": str(date.today()), "seed": seed, "control_s": round(bench.control_s, 2),
                     "files": len(bench.files()), "trials": []}
            entry["droppable"] = sum(map(bench.drops, bench.files()))
            for trial in bench.trials():
                # Paths of a temporary directory differ from run to run.
                trial["problems"] = [at.replace(base, "BASE") for at in trial["problems"]]
                entry["trials"].append(trial)
                print(f"{name}: {trial['amount']}: {trial['verdict']} {', '.join(trial['kinds'])} "
                      f"{'; '.join(trial['problems'])[:160]}", file=sys.stderr, flush=True)
            return entry
        finally:
            bench.program.close()


def worst(trials):
    return max((trial["verdict"] for trial in trials), key=ORDER.index, default="–")


def table(entries):
    """The rows of what the profiles drop, then those of what they keep."""
    rows = []
    for entry in entries:
        if "missing" in entry or not entry["droppable"]:
            continue
        by = lambda amount: [trial for trial in entry["trials"] if trial["amount"] == amount]
        count = lambda amount: f"{worst(by(amount))} ({len(by(amount))})"
        eager = sum(trial["files"] for trial in by("during"))
        during = f"{worst(by('during'))} ({len(by('during'))}, {eager} files)" if eager else "no file was old enough"
        (whole,) = by("all")
        rows.append([entry["version"], f"{entry['droppable']} of {entry['files']}", f"{whole['bytes']:,}",
                     count("one"), count("half"), worst(by("all") + by("kind")), during, f"{whole['again_bytes']:,}",
                     f"{whole['back'] / whole['files']:.0%}", f"{whole['seconds']:.1f} s, else {entry['control_s']:.1f} s"])
    dropped = markdown("program|droppable files|bytes|one|half|all|during a run|fetched again|back|time", rows, range(10), True)
    rows = []
    for entry in entries:
        kinds = sorted({trial["kinds"][0] for trial in entry.get("trials", []) if trial["amount"].startswith("pinned")})
        for kind in kinds:
            mine = [trial for trial in entry["trials"] if trial["kinds"] == [kind]]
            one, rest = ([trial for trial in mine if trial["amount"] == f"pinned {word}"] for word in ("one", "all"))
            problem = next((trial["problems"][0] for trial in mine if trial["problems"]), "")
            if not problem and (gone := max(trial["gone"] for trial in mine)):
                problem = f"{gone} other files vanish"
            problem = problem.replace("|", "/")[:90]
            rows.append([entry["version"], f"`{kind}`", max(trial["files"] for trial in mine), worst(one), worst(rest),
                         problem])
    head = "program|file that stays|files|one is missing|all are missing|problem"
    return f"{dropped}\n{markdown(head, rows, range(6), True)}"


def facts(entries):
    """The end of a paragraph: how much was tried, and what was not."""
    run = [entry for entry in entries if "missing" not in entry]
    kernels = ", ".join(sorted({entry["kernel"] for entry in run}))
    days = sorted({entry["date"] for entry in run})
    text = (f"A trial is harmful if a run fails or its result differs: installed files, compiled objects, the printed "
            "text, the pixels drawn. It is costly if more is fetched than the deleted files had, or if other files of "
            "the cache vanish. *Back* is the share of the files that exist again after all were deleted and two runs. "
            "*Time* is that of one run without all of them, and with them; it is only a hint where the machine has "
            f"other work. {sum(len(entry['trials']) for entry in run):,} trials on Linux {kernels}, "
            f"{days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}, with seed "
            f"{', '.join(str(seed) for seed in sorted({entry['seed'] for entry in run}))}.")
    missing = [f"{entry['program']} was not run: {entry['missing']}." for entry in entries if "missing" in entry]
    return wrapped(" ".join([text, *missing])) + "\n"


def filled(page, entries):
    """A page with the places of this experiment."""
    return fill(page, {"programs_facts": facts, "programs": table}, entries, partly=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="*", help=f"some of {', '.join(caches.ALL)}; their records are replaced")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="write RESULTS.md from the records alone")
    args = parser.parse_args()
    out = HERE / "programs.json"
    by_name = {entry["program"]: entry for entry in json.loads(out.read_text())} if out.exists() else {}
    for name in () if args.report else args.program or caches.ALL:
        entry = record(name, args.seed) | {"kernel": platform.release().partition("-")[0]}
        known = json.loads(out.read_text()) if out.exists() else []
        by_name = {entry["program"]: entry for entry in known} | {name: entry}
        entries = [by_name[key] for key in caches.ALL if key in by_name]
        out.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
    by_name = {key: by_name[key] for key in caches.ALL if key in by_name}
    print(table(by_name.values()))
    results = HERE / "RESULTS.md"
    results.write_text(filled(results.read_text(), list(by_name.values())))


if __name__ == "__main__":
    main()
