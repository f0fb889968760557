#!/usr/bin/env python3
"""Prints the tables of PAPER.md: CacheSifter's tables and figures beside those of the recordings.

It needs `flashsift.train` (docs/train.md) and pyarrow.
"""

import fnmatch
import pathlib
import resource
import sys

import flashsift
import numpy as np
from common.program import output, parser, run
from flashsift.train import data, metrics, perceptron
from frontier import ROOT, TRACES, cells, table

# A recording of each application; game creates no file that may be dropped while it plays.
APPS = [name for name in TRACES if name != "game"]
FIGURES = pathlib.Path(__file__).with_name("figures")
# The paper's momentum, and epochs as in experiments/train.
SETTINGS = {"epochs": 12, "momentum": 0.5}
UNIT_US = 1_000_000


def path_of(name):
    return ROOT / "testdata" / TRACES[name][0]


def is_cache(name, patterns):
    """Returns whether a file is one of a cache: as `--droppable` decides, and databases too."""
    directory = name.rpartition("/")[0]
    return "cache" in directory.lower() or any(fnmatch.fnmatch(name, p) for p in patterns)


def percent(share):
    return "-" if share is None else f"{100 * share:.1f}"


# The events.


class Writes:
    """Requests of one recording by kind of file, and the accesses of cache files."""

    def __init__(self, name):
        import pyarrow.parquet

        patterns = TRACES[name][1]
        columns = ["at_us", "action", "file", "len", "name"]
        events = pyarrow.parquet.read_table(path_of(name), columns=columns)
        columns = [events[column].to_pylist() for column in columns]
        # Writes, bytes: of files of caches, and of all.
        self.cache, self.all = np.zeros(2), np.zeros(2)
        named, self.accesses = {}, {}
        for at_us, action, file, length, path in zip(*columns, strict=True):
            if action in ("create", "bind") and path and file not in named:
                named[file] = is_cache(path, patterns)
            elif action in ("read", "write") and length > 0:
                cache = named.get(file, False)
                if action == "write":
                    self.all += [1, length]
                    self.cache += [cache, length * cache]
                if cache:
                    self.accesses.setdefault(file, []).append(at_us)


def figure_1(writes, stock):
    rows, every = [["recording", "writes", "bytes written", "bytes that reach flash"]], []
    rows.append(["paper, mean", "", "64", ""])
    for name, found in writes.items():
        none = stock[name]
        reached = none["flash_bytes"] + none["other_flash_bytes"]
        shares = [*(found.cache / found.all), none["flash_bytes"] / reached]
        rows.append([name, *map(percent, shares)])
        every.append(shares)
    rows.append(["mean", *map(percent, np.mean(every, axis=0))])
    table(rows)


def figure_2(writes):
    rows = [[
        "recording", "files accessed", "share of the top 10, %", "within 100 s, %",
        "active < 30 s", "to 90 s", "> 90 s",
    ]]
    tops = {}
    for name, found in writes.items():
        times = sorted(found.accesses.values(), key=len, reverse=True)
        top = [np.array(each) - each[0] for each in times[:10]]
        tops[name] = top
        count = sum(map(len, top))
        soon = sum(int((each <= 100 * UNIT_US).sum()) for each in top)
        active = [each[-1] / UNIT_US for each in top]
        rows.append([
            name, str(len(times)), percent(count / sum(map(len, times))), percent(soon / count),
            str(sum(a < 30 for a in active)), str(sum(30 <= a <= 90 for a in active)),
            str(sum(a > 90 for a in active)),
        ])
    table(rows)
    draw_2(tops)


def draw_2(tops):
    plot, axes = canvas(len(tops), "Accesses of the ten cache files that are accessed most")
    for axis, (name, top) in zip(axes.flat, tops.items()):
        for rank, times in enumerate(top):
            bins = np.bincount((times[times < 100 * UNIT_US] // (5 * UNIT_US)).astype(int), minlength=20)
            shown = np.flatnonzero(bins)
            axis.scatter(shown * 5 + 2.5, np.full(len(shown), rank + 1), s=6 * np.sqrt(bins[shown]))
        axis.set(title=name, xlim=(0, 100), ylim=(0, 11))
    save(plot, "figure2.png", "s since the first access", "file")


# The files.


class Files:
    """The cache files that a recording creates, with their features and labels."""

    def __init__(self, name, units=(20, 60), unit_us=UNIT_US):
        found = flashsift.examples(
            path_of(name), units_first=units[0], units_second=units[1], unit_us=unit_us,
            # Figures describe all recordings. Models that are simulated learn from `train` alone.
            ram_bytes=16_000_000, force=True,
        )
        names, patterns = found.pop("names"), TRACES[name][1]
        by_pattern = [any(fnmatch.fnmatch(path, p) for p in patterns) for path in names]
        keep = found["in_cache"] | np.array(by_pattern, dtype=bool)
        self.columns = {key: column[keep] for key, column in found.items()}
        self.name = name

    def __getitem__(self, key):
        return self.columns[key]


def figure_6(files):
    rows = [[
        "recording", "files", "BAR", "Transient", "Long-living", "BAR, bytes",
        "BAR read again after RAM of 16 MB",
    ]]
    every = {"paper": ["", "93", "", "< 5", "", ""]}
    for name, of in files.items():
        category, sizes = of["category"], of["max_size_bytes"].astype(float)
        shares = [(category == n).mean() for n in range(3)]
        by_bytes = sizes[category == 0].sum() / max(1, sizes.sum())
        known = (category == 0) & (of["reused"] >= 0)
        again = (of["reused"][known] == 1).mean() if known.any() else None
        every[name] = [str(len(category)), *map(percent, [*shares, by_bytes, again])]
    table(rows + [[name, *row] for name, row in every.items()])
    draw_6(files)


def draw_6(files):
    plot, axes = canvas(1, "Active period of cache files")
    for name, of in files.items():
        active_s = np.sort(of["active_us"] / UNIT_US)
        # At most 100 points a line.
        at = np.linspace(0, len(active_s) - 1, min(100, len(active_s))).astype(int)
        axes.flat[0].step(np.maximum(active_s[at], 0.1), (at + 1) / len(active_s), label=name)
    axes.flat[0].set(xscale="log", ylim=(0, 1))
    for limit in (30, 90):
        axes.flat[0].axvline(limit, color="grey", linewidth=0.5)
    axes.flat[0].legend(fontsize=6)
    save(plot, "figure6.svg", "s", "share of the files")


def figure_8(files):
    rows = [["recording", "most in 60 s, MB", "mean, MB", "Transient and Long-living, most, MB"]]
    rows.append(["paper", "21", "", ""])
    for name, of in files.items():
        born, sizes = of["born_us"].astype(np.int64), of["second"][:, -2].astype(float)
        order = np.argsort(born, kind="stable")
        born, sizes, lives = born[order], sizes[order], (of["category"] > 0)[order]
        most = []
        for counted in (sizes, sizes * lives):
            sums = np.concatenate([[0], np.cumsum(counted)])
            ends = np.searchsorted(born, born + 60 * UNIT_US)
            most.append((sums[ends] - sums[:-1]).max(initial=0) / 1e6)
        minutes = max(1, (born[-1] - born[0]) / (60 * UNIT_US)) if len(born) else 1
        rows.append([name, f"{most[0]:.1f}", f"{sizes.sum() / 1e6 / minutes:.2f}", f"{most[1]:.1f}"])
    table(rows)


# The models.


def pooled(files, phase, window):
    """Returns features, positive, and the number of the recording, of files that a model sees."""
    parts = []
    for number, of in enumerate(files.values()):
        keep = of[f"outlived_{window}"].astype(bool)
        if phase == 2:
            keep &= of["category"] > 0
        positive = of["category"][keep] > (0 if phase == 1 else 1)
        parts.append((of[window][keep], positive, np.full(int(keep.sum()), number)))
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def trained(features, positive, groups, phase, seed=0, **others):
    """Trains the paper's perceptron; returns its scores and labels of validation and test."""
    rows = data.Rows(
        features=features, positive=positive, size_bytes=groups, application=groups, user=groups,
        born_us=groups, names=[], left_out={},
    )
    train, valid, test = data.split(rows, "random", seed)
    settings = perceptron.Settings(
        **SETTINGS | others, weight_decay=1e-4 if phase == 1 else 1e-5, seed=seed
    )
    model, _ = perceptron.train(
        features[train], positive[train], features[valid], positive[valid], settings, quiet=True
    )
    return (model.scores(features[valid]), positive[valid]), (
        model.scores(features[test]), positive[test], groups[test],
    )


def judged(valid, test, recall):
    """Returns recall and accuracy in the test, with the threshold that validation gives."""
    level = metrics.threshold(valid[1], valid[0], recall)
    found = metrics.at(test[1], test[0] >= level)
    return found["recall"], found["accuracy"]


def false_positives(test, recall):
    """Returns the share of negative files above the threshold with this recall in the test."""
    level = np.quantile(test[0][test[1]], 1 - recall)
    return (test[0][~test[1]] >= level).mean()


# Table 3: total time in s, unit in s, units; recall and accuracy of both models.
TABLE_3 = [
    (1, 0.01, 100, (0.92, 0.56), (0.45, 0.89)),
    (1, 0.05, 20, (0.82, 0.56), (0.0, 0.90)),
    (5, 0.25, 20, (0.89, 0.56), (0.0, 0.90)),
    (10, 0.5, 20, (0.88, 0.59), (0.0, 0.90)),
    (20, 1, 20, (0.80, 0.65), (0.56, 0.86)),
    (40, 1, 40, (0.94, 0.85), (0.94, 0.85)),
    (60, 1, 60, (0.95, 0.88), (0.95, 0.88)),
    (80, 1, 80, (0.94, 0.89), (0.94, 0.89)),
]


def table_3(progress):
    """Prints Table 3. Returns the test of the window of 20 s, for Figure 7."""
    rows = [[
        "window", "paper: high recall", "ours at that recall", "paper: high accuracy",
        "ours, best accuracy", "ours: majority class", "false positives at that recall", "AUC",
        "AUC, authors' transform", "files in the test",
    ]]
    kept = None
    for total, unit, units, high_recall, high_accuracy in TABLE_3:
        phase = 1 if total <= 20 else 2
        window = "first" if phase == 1 else "second"
        pair = (units, units)
        files = {name: Files(name, pair, round(unit * UNIT_US)) for name in APPS}
        rows_of_all = pooled(files, phase, window)
        valid, test = trained(*rows_of_all, phase)
        _, theirs = trained(*rows_of_all, phase, transform="unit")
        shown = [judged(valid, test, recall) for recall in (high_recall[0], None)]
        share = test[1].mean()
        two = [f"{a:.2f} / {b:.2f}" for a, b in (high_recall, shown[0], high_accuracy, shown[1])]
        rows.append([
            f"{total} s, {units} units", *two, f"{max(share, 1 - share):.2f}",
            f"{false_positives(test, high_recall[0]):.2f}", f"{area(test[1], test[0]):.2f}",
            f"{area(theirs[1], theirs[0]):.2f}", str(len(test[1])),
        ])
        if total == 20:
            kept = (valid, test)
        progress(f"table 3, {total} s")
    table(rows)
    return kept


def area(positive, scores):
    """Returns the area under the ROC curve; None for a single class."""
    if positive.all() or not positive.any():
        return None
    values, first = np.unique(scores, return_inverse=True)
    counts = np.bincount(first, minlength=len(values))
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[first]
    hits = positive.sum()
    return (ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * (~positive).sum())


def figure_7(kept):
    valid, test = kept
    levels = {
        "high recall": metrics.threshold(valid[1], valid[0], 0.8),
        "high accuracy": metrics.threshold(valid[1], valid[0], None),
    }
    rows = [[
        "recording", "files", "majority class", "AUC", "high recall: recall / accuracy",
        "high accuracy: recall / accuracy",
    ]]
    for number, name in [*enumerate(APPS), (None, "all")]:
        mine = np.ones(len(test[1]), dtype=bool) if number is None else test[2] == number
        positive, scores = test[1][mine], test[0][mine]
        if not len(positive):
            continue
        auc, share = area(positive, scores), positive.mean()
        two = []
        for level in levels.values():
            found = metrics.at(positive, scores >= level)
            recall = "-" if found["recall"] is None else f"{found['recall']:.2f}"
            two.append(f"{recall} / {found['accuracy']:.2f}")
        rows.append([
            name, str(len(positive)), f"{max(share, 1 - share):.2f}",
            "-" if auc is None else f"{auc:.2f}", *two,
        ])
    table(rows)


# The simulation.

# Trained on the recordings of the split `train`; 96 MiB of memory, so that MS is 20 MiB.
MEMORY = "96MiB"
MODELS = {
    "high recall": ["--phase", "1", "--recall", "0.8"],
    "high accuracy": ["--phase", "1"],
    "phase 2": ["--phase", "2"],
}


def models(program, out):
    """Trains the models of the simulation. Returns their files."""
    files = {}
    traces = [str(path_of(name)) for name in APPS if TRACES[name][2] == "train"]
    for name, options in MODELS.items():
        files[name] = str(out / f"{name.replace(' ', '-')}.safetensors")
        training = ["--only-cache", "--epochs", "12", "--momentum", "0.5", "-q", "-o", files[name]]
        output(program, "train", *traces, *options, *training)
    return files


VARIANTS = ["high recall", "high accuracy"]


def simulate(program, files, progress):
    """Returns the records by recording and variant; `stock` is the one without a sifter."""
    sifters = {
        (variant, check): f"cachesifter:model={files[variant]},model2={files['phase 2']}{check}"
        for variant in VARIANTS
        for check in ("", ",checkstop=on")
    }
    found = {}
    for name in APPS:
        records = list(cells(program, name, [*sifters.values()], [MEMORY]))
        found[name] = {"stock": records[0]} | dict(zip(sifters, records[1:], strict=True))
        progress(f"simulation, {name}")
    return found


def saved(record, stock, keys):
    """Returns the share that is saved of the sum of these."""
    whole = sum(stock[key] for key in keys)
    return 1 - sum(record[key] for key in keys) / whole if whole else None


WRITTEN = ["device_writes", "journal_writes", "metadata_writes"]


def figure_9(found):
    rows = [[
        "recording", "split", "sifter", "cache writes saved, %", "fetched again, %",
        "all writes saved, %", "all I/O saved, %", "lifetime, %",
    ]]
    rows += [
        ["paper, P9", "", "high recall", "62", "", "53.2", "29.7", "+113.7"],
        ["paper, P9", "", "high accuracy", "59.5", "", "54.7", "31.2", "+120.8"],
        ["paper, Mate 30", "", "high recall", "88.3", "", "", "47.7", ""],
        ["paper, Mate 30", "", "high accuracy", "85.5", "", "", "46.6", ""],
    ]
    every = {}
    for name, records in found.items():
        stock = records["stock"]
        for (variant, check), record in [item for item in records.items() if item[0] != "stock"]:
            written = saved(record, stock, WRITTEN)
            both = saved(record, stock, [*WRITTEN, "device_reads"])
            sifter = variant + (", CheckStop" if check else "")
            shares = [record["kept_share"], record["fetched_again_share"], written, both]
            every.setdefault(sifter, []).append(shares)
            rows.append([name, TRACES[name][2], sifter, *map(percent, shares), lifetime(written)])
    for sifter, shares in every.items():
        mean = np.mean(shares, axis=0)
        rows.append(["mean", "", sifter, *map(percent, mean), lifetime(mean[2])])
    table(rows)


def lifetime(saved_share):
    """Returns how much longer flash lives by equation 3, in percent."""
    return f"{100 * (1 / (1 - saved_share) - 1):+.1f}"


def table_8(found):
    rows = [["recording", *(f"peak RAM, {variant}, MB" for variant in VARIANTS)]]
    for name, records in found.items():
        peaks = [records[variant, ""]["ram_bytes_peak"] / 1e6 for variant in VARIANTS]
        rows.append([name, *(f"{peak:.1f}" for peak in peaks)])
    table(rows)


def figure_12(files, models, found):
    """The bounds from the mistakes of the models, and what is fetched again in simulation."""
    read = {name: flashsift.FileModel(pathlib.Path(path).read_bytes()) for name, path in models.items()}
    rows = [[
        "recording", "split", "model", "lower bound, %", "upper bound, %",
        "fetched again of the files dropped, %", "of the bytes dropped, %",
    ]]
    for name, of in files.items():
        alive = of["outlived_first"].astype(bool)
        category = of["category"][alive]
        if not len(category):
            continue
        passes = read["phase 2"].score(of["second"][alive]) < read["phase 2"].threshold
        for variant in VARIANTS:
            burns = read[variant].score(of["first"][alive]) < read[variant].threshold
            lower = (burns & (category > 0)).mean()
            upper = lower + (~burns & passes & (category == 2)).mean()
            record = found[name][variant, ""]
            dropped = record["dropped_files"], record["dropped_bytes"]
            again = record["fetched_again_files"], record["fetched_again_bytes"]
            real = [a / d if d else None for a, d in zip(again, dropped, strict=True)]
            rows.append([name, TRACES[name][2], variant, *map(percent, [lower, upper, *real])])
    table(rows)


# Overhead.

SLICE_US = 10 * UNIT_US
ROUNDS = 3


def cpu_s(program, name, sifter):
    """Returns the processor time of a simulation, s: the least of a few."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        list(cells(program, name, [sifter], [MEMORY]))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def section_6_3(program, writes, files, trained_models):
    """CPU time and memory of the models: `cachesifter` beside a sifter that decides without one."""
    rows = [[
        "recording", "files", "10 s with accesses", "CPU, ms in 10 s", "most files in 10 s",
        "not yet categorised, mean KB", "most, MB",
    ], ["paper", "", "", "84", "", "492", ""]]
    sifter = f"cachesifter:model={trained_models['high recall']},model2={trained_models['phase 2']}"
    for name, found in writes.items():
        times = np.concatenate([np.array(each) for each in found.accesses.values()]) // SLICE_US
        slices = len(np.unique(times))
        more_s = cpu_s(program, name, sifter) - cpu_s(program, name, "drop-all")
        born, sizes = files[name]["born_us"].astype(np.int64), files[name]["second"][:, -2].astype(float)
        order = np.argsort(born, kind="stable")
        born, sums = born[order], np.concatenate([[0], np.cumsum(sizes[order])])
        most_files = np.unique(born // SLICE_US, return_counts=True)[1].max(initial=0)
        # Of the files of the last 20 s, at the end of each slice with accesses.
        ends = (np.unique(times) + 1) * SLICE_US
        young = sums[np.searchsorted(born, ends)] - sums[np.searchsorted(born, ends - 20 * UNIT_US)]
        rows.append([
            name, str(len(born)), str(slices), f"{1000 * more_s / slices:.2f}", str(most_files),
            f"{young.mean() / 1000:.0f}", f"{young.max() / 1e6:.1f}",
        ])
    table(rows)
    sizes = [pathlib.Path(trained_models[name]).stat().st_size / 1e6 for name in ("high recall", "phase 2")]
    print(f"\nModels: {sizes[0]:.2f} and {sizes[1]:.2f} MB (paper: 0.89 and 1.13 MB).")


# Drawing.


def canvas(count, title):
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams |= {"svg.hashsalt": "flashsift", "svg.fonttype": "none"}
    import matplotlib.pyplot as plt

    columns = min(4, count)
    lines = -(-count // columns)
    size = (2.2 * columns, 1.9 * lines) if count > 1 else (6, 4)
    plot, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    for axis in axes.flat:
        axis.tick_params(labelsize=6)
        axis.title.set_size(7)
    plot.suptitle(title, fontsize=9)
    return plot, axes


def save(plot, name, x, y):
    plot.supxlabel(x, fontsize=8)
    plot.supylabel(y, fontsize=8)
    FIGURES.mkdir(exist_ok=True)
    # No date or version: the same figures are the same files.
    nothing = {"Date": None} if name.endswith("svg") else {"Software": None}
    plot.savefig(FIGURES / name, metadata=nothing, dpi=110)


def main():
    words = parser(__doc__)
    words.add_argument("--out", type=pathlib.Path, required=True, help="directory for models")
    args = words.parse_args()

    def progress(text):
        print(text, file=sys.stderr)

    args.out.mkdir(parents=True, exist_ok=True)
    writes = {name: Writes(name) for name in APPS}
    files = {name: Files(name) for name in APPS}
    trained_models = models(args.flashsift, args.out)
    progress("models")
    found = simulate(args.flashsift, trained_models, progress)
    stock = {name: records["stock"] for name, records in found.items()}
    print("\n### Figure 1: writes of cache files, % of all\n")
    figure_1(writes, stock)
    print("\n### Figure 2: the ten cache files that are accessed most\n")
    figure_2(writes)
    print("\n### Figure 6: active period of cache files, % of the files\n")
    figure_6(files)
    print("\n### Figure 8: cache files produced within 60 s\n")
    figure_8(files)
    print("\n### Figure 9: writes saved\n")
    figure_9(found)
    print("\n### Figure 12: files fetched again\n")
    figure_12(files, trained_models, found)
    print("\n### Table 8: memory\n")
    table_8(found)
    print("\n### Section 6.3: CPU time and memory\n")
    section_6_3(args.flashsift, writes, files, trained_models)
    print("\n### Table 3: recall / accuracy by features\n")
    kept = table_3(progress)
    print("\n### Figure 7: recall / accuracy by application, window of 20 s\n")
    figure_7(kept)


if __name__ == "__main__":
    run(main)
