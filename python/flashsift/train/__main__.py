"""`flashsift train`: trains a model, measures it on files that it has not seen, and writes it."""

import argparse
import json
import os
import pathlib
import re
import sys
import time

# Before NumPy loads its library: one thread, one order of sums.
os.environ.setdefault("OMP_NUM_THREADS", "1")

EPILOG = """examples:
  flashsift train testdata/*.parquet -o bar.safetensors
  flashsift train testdata/*.parquet --split application --model all -o out/bar
  flashsift train testdata/*.parquet --labels reuse --model gbdt -o reuse.txt
  flashsift train --weights mlp_config_stage2.c --phase 2 -o theirs.safetensors

Docs: docs/train.md. The same seed and the same traces give the same model, byte for byte."""

MODELS = ["mlp", "gbdt", "forest", "linear", "logistic"]
UNITS = {1: 20, 2: 60}
# From large to small, as the paper searches: Section 5.1.
GRID = ["512,200,2", "256,100,2", "128,50,2", "64,25,2", "32,12,2", "16,8,2"]


def main(words=None):
    """Runs the command; returns its exit status."""
    args = parser().parse_args(words)
    try:
        from .data import Unusable
    except ImportError as error:
        return missing(error)
    from flashsift import FlashsiftError

    try:
        report = imported(args) if args.weights else run(args)
    except (Unusable, FlashsiftError, OSError, ValueError) as error:
        print(f"flashsift: error: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        return missing(error)
    except KeyboardInterrupt:
        print("flashsift: interrupted; --resume goes on from the last epoch", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps(report, indent=1))
    elif args.weights:
        print(", ".join(f"{key} {value}" for key, value in report.items()))
    else:
        show(report)
    return 0


def missing(error):
    """Prints how to install a package that is missing."""
    print(
        f"flashsift: error: {error}. Training needs packages of Python: "
        "python3 -m pip install './python[train]' in flashsift's sources",
        file=sys.stderr,
    )
    return 1


def parser():
    """Returns the parser of the command line."""
    it = argparse.ArgumentParser(
        prog="flashsift train",
        description="Train a model that decides which cache files deserve flash.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    it.add_argument("traces", nargs="*", metavar="TRACE", help="traces in any format, with times")
    it.add_argument("-o", "--output", required=True, metavar="MODEL", type=pathlib.Path)
    it.add_argument("--model", default="mlp", choices=[*MODELS, "all"], help="default: mlp")
    it.add_argument(
        "--labels", default="paper", choices=["paper", "reuse"],
        help="paper: active period (default); reuse: read again after it would have left RAM",
    )
    it.add_argument(
        "--phase", type=int, default=1, choices=[1, 2],
        help="1: BAR or not, after 20 s (default); 2: Transient or Long-living, after 60 s",
    )
    it.add_argument("--units", type=int, metavar="K", help="units of time; default 20 or 60")
    it.add_argument("--unit-ms", type=int, default=1000, metavar="MS", help="default: 1000")
    it.add_argument("--ram-mb", type=float, default=20, metavar="MB", help="for --labels reuse: 20")
    it.add_argument(
        "--split", default="random", choices=["random", "time", "application", "user"],
        help="which files are the test: random (default), the last ones, whole applications",
    )
    it.add_argument("--only-cache", action="store_true", help="only files in cache directories")
    it.add_argument(
        "--with-dead", action="store_true",
        help="also files that were deleted before the window ended, which no sifter categorises",
    )
    it.add_argument(
        "--recall", type=float, metavar="SHARE",
        help="threshold with this recall in validation, such as 0.95; default: best accuracy",
    )
    it.add_argument("--seed", type=int, default=0)
    it.add_argument(
        "--force", action="store_true", help="also on traces that are held apart for tests"
    )
    it.add_argument("--resume", action="store_true", help="go on with an interrupted training")
    it.add_argument("--epochs", type=int, default=64, help="of the perceptron; default: 64")
    it.add_argument(
        "--momentum", type=float, default=0.9, help="of the perceptron; default: 0.9; paper: 0.5"
    )
    it.add_argument(
        "--transform", default="log1p", choices=["log1p", "unit"],
        help="of the perceptron's inputs; unit: rows of length 1, as in the authors' kernel",
    )
    it.add_argument(
        "--weights", nargs="+", metavar="FILE.c", type=pathlib.Path,
        help="instead of traces: the weights of a phase in C, as in the authors' kernel",
    )
    it.add_argument("--threshold", type=float, default=0.5, help="for --weights; default: 0.5")
    it.add_argument("--sizes", default="512,200,2", help="hidden layers; default: 512,200,2")
    it.add_argument(
        "--grid", action="store_true",
        help="smaller and smaller perceptrons, until the accuracy in validation decreases",
    )
    it.add_argument(
        "--frontier", nargs="?", const="0.1,0.3,0.5,0.7,0.9", metavar="THRESHOLDS",
        help="run `flashsift compare --sift cachesifter` with the model at these thresholds",
    )
    it.add_argument(
        "--frontier-on", nargs="+", metavar="TRACE", help="traces for --frontier; default: all"
    )
    it.add_argument("--flashsift", default="flashsift", metavar="PROGRAM", help=argparse.SUPPRESS)
    it.add_argument("--json", action="store_true", help="print the report as JSON")
    it.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return it


def imported(args):
    """Writes the weights of the authors' kernel as a model; returns what it is."""
    from . import authors, modelfile

    if args.traces:
        raise ValueError("--weights takes no traces: nothing is trained")
    model = authors.read([path.read_text() for path in args.weights], args.phase)
    units = len(model.mean) - 6
    facts = modelfile.Facts(args.phase, units, args.unit_ms * 1000, args.threshold)
    modelfile.write(args.output, model.encode(facts))
    sizes = ",".join(str(len(bias)) for _, bias, _ in model.layers[:-1])
    return {"file": str(args.output), "phase": args.phase, "units": units, "sizes": sizes,
            "threshold": args.threshold}  # fmt: skip


def run(args):
    """Trains, measures and writes; returns the report."""
    from . import data

    if not args.traces:
        raise ValueError("a trace is missing; for finished weights there is --weights")
    if args.frontier and args.phase != 1:
        raise ValueError("--frontier is for models of phase 1: those of phase 2 need one before")

    units = args.units or UNITS[args.phase]
    rows = data.load(
        args.traces,
        phase=args.phase,
        labels=args.labels,
        units=units,
        unit_us=args.unit_ms * 1000,
        ram_bytes=int(args.ram_mb * 1e6),
        only_cache=args.only_cache,
        with_dead=args.with_dead,
        force=args.force,
        quiet=args.quiet,
    )
    chosen = data.split(rows, args.split, args.seed)
    parts = dict(zip(["train", "valid", "test"], map(rows.take, chosen), strict=True))
    models = MODELS if args.model == "all" else [args.model]
    report = {
        "phase": args.phase,
        "labels": args.labels,
        "split": args.split,
        "seed": args.seed,
        "units": units,
        "applications": rows.names,
        "tested_applications": [rows.names[n] for n in sorted(set(parts["test"].application))],
        "files": {name: len(part) for name, part in parts.items()},
        "positive": {name: int(part.positive.sum()) for name, part in parts.items()},
        "left_out": rows.left_out,
        "baselines": baselines(parts["test"].positive),
        "models": {},
    }
    for name in models:
        path = args.output
        if args.model == "all":
            ending = "txt" if name in ("gbdt", "forest") else "safetensors"
            path = path.with_name(f"{path.name}-{name}.{ending}")
        report["models"][name] = one(name, path, args, parts, units)
    finish(args, report)
    return report


def baselines(positive):
    """Returns the measures of the constant answers."""
    import numpy as np

    from . import metrics

    nothing = np.zeros(len(positive), dtype=bool)
    majority = ~nothing if positive.mean() > 0.5 else nothing
    return {
        "majority class": metrics.at(positive, majority),
        "all BAR": metrics.at(positive, nothing),
        "keep all": metrics.at(positive, ~nothing),
    }


def one(name, path, args, parts, units):
    """Trains one model, writes it, and returns what it reaches."""
    import numpy as np

    import flashsift

    from . import metrics, modelfile

    began = time.monotonic()
    train, valid, test = parts["train"], parts["valid"], parts["test"]
    extra = {}
    if name == "mlp":
        model, extra = perceptron(args, path, train, valid)
    else:
        from . import baselines as others

        fit = {
            "gbdt": lambda: others.boosted(
                train.features, train.positive, valid.features, valid.positive, args.seed
            ),
            "forest": lambda: others.forest(train.features, train.positive, args.seed),
            "linear": lambda: others.regression(train.features, train.positive, logistic=False),
            "logistic": lambda: others.regression(train.features, train.positive, logistic=True),
        }
        model = fit[name]()
    seconds = time.monotonic() - began
    scores = model.scores(valid.features)
    threshold = metrics.threshold(valid.positive, scores, args.recall)
    facts = modelfile.Facts(args.phase, units, args.unit_ms * 1000, threshold)
    encoded = model.encode(facts)
    # Measured is the file, by the code that the sifter runs.
    judge = flashsift.FileModel(encoded)
    ours = np.concatenate([valid.features, test.features])
    if (away := float(np.abs(judge.score(ours) - model.scores(ours)).max())) > 1e-5:
        raise ValueError(f"the model written scores differently from the one trained, by {away}")
    scores = judge.score(test.features)
    modelfile.write(path, encoded)
    checkpoint(path).unlink(missing_ok=True)
    found = scores >= np.float32(judge.threshold)
    levels, precision, recall = metrics.curve(test.positive, scores)
    step = max(1, len(levels) // 500)
    return {
        "file": str(path),
        "bytes": len(encoded),
        "seconds": round(seconds, 2),
        "threshold": float(judge.threshold),
        **metrics.at(test.positive, found),
        "average_precision": metrics.average_precision(test.positive, scores),
        "by_application": {
            parts["test"].names[n]: {
                "files": int((test.application == n).sum()),
                "positive": int(test.positive[test.application == n].sum()),
                **metrics.at(test.positive[test.application == n], found[test.application == n]),
            }
            for n in np.unique(test.application)
        },
        "curve": [
            [round(float(number), 6) for number in point]
            for point in zip(levels[::step], precision[::step], recall[::step], strict=True)
        ],
        **extra,
    }


def checkpoint(path):
    """Returns where an interrupted training of this model is kept."""
    return path.with_name(f"{path.name}.checkpoint")


def perceptron(args, path, train, valid):
    """Trains the perceptron; with --grid, the smallest that is as accurate as the larger ones."""
    from . import metrics
    from . import perceptron as mlp

    best, tried = None, []
    for sizes in GRID if args.grid else [args.sizes]:
        settings = mlp.Settings(
            sizes=tuple(int(size) for size in sizes.split(",")),
            epochs=args.epochs,
            momentum=args.momentum,
            transform=args.transform,
            weight_decay=1e-4 if args.phase == 1 else 1e-5,
            seed=args.seed,
        )
        kept = path.with_name(f"{path.name}.{sizes}.checkpoint") if args.grid else checkpoint(path)
        if not args.resume:
            kept.unlink(missing_ok=True)
        model, losses = mlp.train(
            train.features, train.positive, valid.features, valid.positive, settings, kept,
            args.quiet,
        )
        scores = model.scores(valid.features)
        level = metrics.threshold(valid.positive, scores, None)
        accuracy = metrics.at(valid.positive, scores >= level)["accuracy"]
        tried.append({"sizes": sizes, "accuracy": accuracy, "loss": min(losses, default=None)})
        if best is not None and accuracy < tried[-2]["accuracy"]:
            kept.unlink(missing_ok=True)
            break
        best = (model, {"sizes": sizes, "losses": losses})
        if args.grid:
            kept.unlink(missing_ok=True)
    model, extra = best
    return model, extra | ({"grid": tried} if args.grid else {})


def finish(args, report):
    """Runs the frontier, draws the curves, and writes the report."""
    from . import frontier, plots

    if args.frontier:
        thresholds = [float(text) for text in args.frontier.split(",")]
        for model in report["models"].values():
            traces = args.frontier_on or args.traces
            model["frontier"] = frontier.run(args.flashsift, traces, model["file"], thresholds)
    base = args.output.with_name(re.sub(r"\.(safetensors|txt)$", "", args.output.name))
    plots.curves(report, base.with_name(f"{base.name}.pr.svg"))
    if args.frontier:
        plots.frontiers(report, base.with_name(f"{base.name}.frontier.svg"))
    from .modelfile import write

    write(base.with_name(f"{base.name}.report.json"), json.dumps(report, indent=1).encode())


def show(report):
    """Prints the report as a table."""
    files, positive = report["files"], report["positive"]
    out = ", ".join(f"{count} {why}" for why, count in report["left_out"].items() if count)
    print(f"{sum(files.values())} files of {several(report['applications'])}")
    if out:
        print(f"left out: {out}")
    print(
        f"test: {files['test']} files, {positive['test']} positive, of "
        f"{several(report['tested_applications'])}; split by {report['split']}\n"
    )
    print(
        f"{'model':16}{'precision':>10}{'recall':>10}{'accuracy':>10}{'PR area':>10}{'KB':>8}{'s':>8}"
    )

    def number(value, digits=3):
        return "-" if value is None else f"{value:.{digits}f}"

    for name, line in [*report["models"].items(), *report["baselines"].items()]:
        size = number(line["bytes"] / 1000, 0) if "bytes" in line else ""
        area = number(line["average_precision"]) if "bytes" in line else ""
        print(
            f"{name:16}{number(line['precision']):>10}{number(line['recall']):>10}"
            f"{number(line['accuracy']):>10}{area:>10}{size:>8}{line.get('seconds', ''):>8}".rstrip()
        )


def several(names):
    """Returns the names, or their number if they do not fit on a line."""
    return ", ".join(names) if len(names) <= 6 else f"{len(names)} applications"


if __name__ == "__main__":
    sys.exit(main())
