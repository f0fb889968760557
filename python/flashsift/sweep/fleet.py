"""The report on a fleet of traces: distributions, the best policies, differences, outliers.

Each trace counts once, whatever its length. A difference is paired: of two policies on the same
trace, and its interval is that of a bootstrap over traces. Policies and sifters that know the rest
of the trace stand behind the others and are never the best: no machine can run them.
"""

import csv
import html
import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from .. import plot
from .._binary import run
from .plan import Item, trace_id
from .store import Store

QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]
RESAMPLES = 2000
SEED = 1
# Values that differ by less share the first place.
TIE = 1e-12
OUTLIERS = 5
TRACES_MIN = 6
FENCE = 1.5
PAGE_BYTES = 4096


STYLE = (
    "<style>body{font:15px/1.45 system-ui,sans-serif;max-width:68em;margin:2em auto;"
    "padding:0 1em;color:#222}table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}code{font-size:12px}"
    "h3{margin-top:2em}svg{max-width:100%;height:auto}"
    ".table{overflow-x:auto;background:linear-gradient(to left,#aaa,transparent) right/.5em 100% "
    "no-repeat scroll}.table table{background:#fff}code{overflow-wrap:anywhere}</style>"
)


@dataclass(frozen=True)
class Question:
    """A figure by which policies are compared."""

    key: str
    words: str
    unit: str
    more_is_better: bool
    by_device: bool
    value: pl.Expr
    needs: tuple[str, ...]
    kind: str = "cells"
    name: str = "policy"
    # A difference is relative to the reference, or in the unit itself.
    relative: bool = True


QUESTIONS = [
    Question(
        "hits", "Which policy hits most often?", "% of accesses", True, False,
        100 * pl.col("hits") / pl.col("accesses"), ("hits", "accesses"), relative=False,
    ),
    Question(
        "writes", "Which policy writes least to flash?", "MiB, with pages still dirty", False,
        False,
        (pl.col("device_writes") + pl.col("dirty_left") + pl.col("nvm_left").fill_null(0))
        * PAGE_BYTES / 2**20,
        ("device_writes", "dirty_left"),
    ),
    Question(
        "time", "Under which policy does the device need least time?", "s", False, True,
        pl.col("elapsed_s"), ("elapsed_s",),
    ),
    Question(
        "lifetime", "Under which policy does the device last longest?", "years", True, True,
        pl.col("lifetime_years"), ("lifetime_years",),
    ),
    Question(
        "kept", "Which sifter keeps most from flash?", "% of droppable data", True, False,
        100 * pl.col("kept_share"), ("kept_share",), "sifters", "sifter", False,
    ),
]


def report(
    store: Store, items: Sequence[Item], args: Namespace, failures: list[tuple[str, str]]
) -> None:
    """Writes the report, and prints a summary or, with --json, all of it."""
    groups, offline = grouping(args.groups), offline_policies()
    answers = [
        answer
        for question in QUESTIONS
        for answer in answered(
            question, store.read(question.kind, items), args.reference, groups, offline
        )
    ]
    whole = {
        "schema": 1,
        "traces": len({trace_id(item.facts) for item in items}),
        "results": len(items),
        "failures": [{"path": path, "why": why} for path, why in failures],
        "answers": answers,
    }
    text = json.dumps(whole, indent=1)
    (store.directory / "report.json").write_text(text, encoding="utf-8")
    html_text = page(whole, store, args.figures)
    (store.directory / "report.html").write_text(html_text, encoding="utf-8")
    if args.json:
        print(text)
    else:
        show(whole, store)


def offline_policies() -> frozenset[str]:
    """Returns the policies that know the rest of the trace."""
    policies = (json.loads(line) for line in run(["list", "policies", "--json"]).splitlines())
    return frozenset(one["policy"] for one in policies if one["kind"] != "online")


def grouping(path: str | None) -> dict[str, str] | None:
    """Reads the file of --groups: the group of each trace, by its name."""
    if path is None:
        return None
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not {"trace", "group"} <= set(reader.fieldnames or []):
            raise ValueError(f"{path}: it has no columns trace and group")
        return {row["trace"]: row["group"] for row in reader}


def group_of(trace: str, groups: dict[str, str] | None) -> str:
    """Returns the group of a trace; by default, its name without ending and numbers."""
    if groups is not None:
        return groups.get(trace, "(none)")
    return re.sub(r"[-_.]?\d+$", "", trace.split(".")[0]) or trace


def answered(
    question: Question, frame: pl.DataFrame, reference: str, groups: dict[str, str] | None,
    offline: frozenset[str],
) -> Iterable[dict[str, Any]]:
    """Answers a question for each size, mode of write-back and device."""
    if frame.is_empty() or any(frame[need].is_null().all() for need in question.needs):
        return
    fixed = ["writeback"] if "writeback" in frame.columns else []
    frame = frame.with_columns(value=question.value, size=sizes(frame))
    if question.by_device:
        fixed.append("device")
    elif "device" in frame.columns:
        frame = frame.unique(
            ["path", question.name, "size", *fixed], keep="first", maintain_order=True
        )
    frame = frame.filter(pl.col("value").is_not_null() & pl.col("value").is_finite())
    if "offline" in frame.columns:
        offline = frozenset(frame.filter(pl.col("offline"))[question.name])
    for values, part in frame.group_by(["size", *fixed], maintain_order=True):
        where = dict(zip(["size", *fixed], values, strict=True))
        yield answer(question, part, where, reference, groups, offline)


def sizes(frame: pl.DataFrame) -> pl.Expr:
    """Returns the size as it is comparable among traces.

    That is the memory, if all traces have the same sizes, and otherwise the rank: the largest size
    of each trace is the largest power of two below the size of all its pages.
    """
    size = "memory_bytes" if frame["memory_bytes"].is_not_null().all() else "frames"
    of_each = frame.group_by("path").agg(pl.col(size).unique().sort())[size].to_list()
    if all(one == of_each[0] for one in of_each):
        unit = 2**20 if size == "memory_bytes" else 1
        word = "MiB" if size == "memory_bytes" else "objects"
        return (pl.col(size) / unit).map_elements(
            lambda number: f"{number:g} {word}", return_dtype=pl.String
        )
    rank = pl.col(size).rank("dense", descending=True).over("path").cast(pl.Int64)
    return pl.format("size {} of each trace, from the largest", rank)


def answer(
    question: Question, frame: pl.DataFrame, where: dict[str, Any], reference: str,
    groups: dict[str, str] | None, offline: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Answers a question under one condition."""
    table = frame.pivot(question.name, index="path", values="value", aggregate_function="first")
    names = [name for name in table.columns if name != "path"]
    reference = reference if reference in names else names[0]
    # Pairs need each policy on each trace.
    whole = table.drop_nulls()
    values = {name: whole[name].to_numpy().astype(float) for name in names}
    # A name may have parameters behind it.
    knows = {name: name.split(":")[0] in offline or name in offline for name in names}
    online = [name for name in names if not knows[name]] or names
    columns = np.array([values[name] for name in online])
    best = columns.max(0) if question.more_is_better else columns.min(0)
    paths = whole["path"].to_list()
    traces = dict(frame.select("path", "trace").iter_rows())
    of_group: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        of_group.setdefault(group_of(traces[path], groups), []).append(number)
    rng = np.random.default_rng(SEED)
    draws = rng.integers(0, max(1, len(paths)), (RESAMPLES, len(paths)))
    rows: list[dict[str, Any]] = []
    for name in names:
        own = values[name]
        away = difference(own, values[reference], question.relative)
        rows.append({
            question.name: name,
            "offline": knows[name],
            "mean": mean(own),
            "quantiles": {str(q): quantile(own, q) for q in QUANTILES},
            "best_share": 0.0 if name not in online else mean(
                np.abs(own - best) <= TIE * np.maximum(1, np.abs(best))
            ),
            "difference": None if name == reference else interval(away, draws),
            "groups": {
                group: mean(own[members]) for group, members in sorted(of_group.items())
            },
        })
    sign = -1 if question.more_is_better else 1
    rows.sort(key=lambda row: (row["offline"], sign * float(row["mean"])))
    return {
        "question": question.key,
        "words": question.words,
        "unit": question.unit,
        **where,
        "traces": len(paths),
        "left_out": len(table) - len(whole),
        "reference": reference,
        "difference_unit": "share of the reference" if question.relative else question.unit,
        "names": rows,
        "outliers": outliers(question, frame, values, reference, paths, where),
        "values": {name: [round(float(v), 6) for v in values[name]] for name in names},
    }


def difference(own: Any, reference: Any, relative: bool) -> Any:
    """Returns the paired differences; relative ones are 0 where both are 0."""
    if not relative:
        return own - reference
    with np.errstate(divide="ignore", invalid="ignore"):
        away = (own - reference) / reference
    return np.where(own == reference, 0.0, away)


def interval(away: Any, draws: Any) -> dict[str, float | None] | None:
    """Returns the mean of paired differences with its bootstrap interval of 95 %.

    Fewer than `TRACES_MIN` traces say nothing about others, so that they have no interval.
    """
    finite = np.isfinite(away)
    if not finite.any():
        return None
    away = np.where(finite, away, np.nan)
    if len(away) < TRACES_MIN:
        return {"mean": float(np.nanmean(away)), "low": None, "high": None}
    means = np.nanmean(away[draws], axis=1)
    low, high = np.nanquantile(means, [0.025, 0.975])
    return {"mean": float(np.nanmean(away)), "low": float(low), "high": float(high)}


def mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def quantile(values: Any, at: float) -> float:
    return float(np.quantile(values, at)) if len(values) else 0.0


def outliers(
    question: Question, frame: pl.DataFrame, values: dict[str, Any], reference: str,
    paths: list[str], where: dict[str, Any],
) -> list[dict[str, Any]]:
    """Returns the traces on which a policy differs from the reference as on no other traces.

    They lie beyond the quartiles by more than 1.5 times the distance between these.
    """
    found: list[dict[str, Any]] = []
    for name, own in values.items():
        away = difference(own, values[reference], question.relative)
        if name == reference or len(away) < 4 or not np.isfinite(away).all():
            continue
        low, high = np.quantile(away, [0.25, 0.75])
        beyond = np.maximum(low - away, away - high) - FENCE * (high - low)
        scale = max(high - low, 1e-9)
        for number in np.flatnonzero(beyond > 1e-9):
            found.append({
                "distance": float(beyond[number] / scale),
                "path": paths[number],
                question.name: name,
                "difference": float(away[number]),
                "command": command(question, frame, paths[number], [reference, name], where),
            })
    found.sort(key=lambda one: -one["distance"])
    kept: list[dict[str, Any]] = []
    for one in found:
        if len(kept) < OUTLIERS and all(one["path"] != other["path"] for other in kept):
            kept.append(one)
    return kept


def command(
    question: Question, frame: pl.DataFrame, path: str, names: list[str], where: dict[str, Any]
) -> str:
    """Returns the command that shows a trace under two policies."""
    row = frame.filter((pl.col("path") == path) & (pl.col(question.name) == names[1])).to_dicts()[0]
    words = ["flashsift", "compare", path]
    if question.kind == "sifters":
        words += ["--sift", names[1], "--memory", str(row["memory_bytes"])]
        return shlex.join(words)
    # A system stands behind its policy: `lru hybrid-flush`.
    policies = dict.fromkeys(name.split(" ")[0] for name in names if name.split(" ")[0])
    if row["system"] and row["system"] != "plain" and row["system"] != "storage":
        systems = [row["system"]]
        words += ["--system", ",".join(systems)]
        policies.pop(row["system"], None)
    words += ["--policy", ",".join(policies)]
    size = ["--memory", str(row["memory_bytes"])] if row["memory_bytes"] else []
    words += size or ["--object-cache", "--frames", str(row["frames"])]
    if "writeback" in where:
        words += ["--writeback", where["writeback"]]
    if "device" in where:
        words += ["--device", where["device"]]
    return shlex.join(words)


def several(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def heading(answer: dict[str, Any]) -> str:
    """Returns the conditions of an answer."""
    words = [answer["size"]]
    if "writeback" in answer:
        words.append(f"--writeback {answer['writeback']}")
    if "device" in answer:
        words.append(f"on {answer['device']}")
    return ", ".join(words)


def shown_difference(answer: dict[str, Any], away: dict[str, float | None] | None) -> str:
    """Returns a difference with its interval, in percent where it is relative."""
    if away is None:
        return ""
    share = answer["difference_unit"].startswith("share")
    scale, unit = (100, " %") if share else (1, "")
    known = (away[key] for key in ("mean", "low", "high"))
    values = [scale * value for value in known if value is not None]
    within = f" [{values[1]:+.2f}, {values[2]:+.2f}]" if len(values) > 1 else ""
    return f"{values[0]:+.2f}{unit}{within}"


def show(whole: dict[str, Any], store: Store) -> None:
    """Prints the best of each question."""
    print(f"{several(whole['traces'], 'trace')}, {several(whole['results'], 'result')}\n")
    last = None
    for answer in whole["answers"]:
        if answer["words"] != last:
            last = answer["words"]
            print(f"{last} ({answer['unit']})")
        first = answer["names"][0]
        online = [row for row in answer["names"] if not row["offline"]]
        if len(online) > 1 and all(row["best_share"] == 1 for row in online):
            print(f"  {heading(answer)}: all alike: mean {first['mean']:.4g}")
            continue
        name = first.get("policy") or first.get("sifter")
        away = shown_difference(answer, first["difference"])
        beside = f"; to {answer['reference']}: {away}" if away else ""
        print(
            f"  {heading(answer)}: {name}: mean {first['mean']:.4g}, best on "
            f"{100 * first['best_share']:.0f} % of {several(answer['traces'], 'trace')}{beside}"
        )
    found = [one for answer in whole["answers"] for one in answer["outliers"]]
    if found:
        found.sort(key=lambda one: -one["distance"])
        print("\nOutliers:")
        for one in found[:OUTLIERS]:
            print(f"  {one['command']}")
    print(f"\n{store.directory / 'report.html'}")


def page(whole: dict[str, Any], store: Store, figures: bool) -> str:
    """Returns the report as a page that fetches nothing. `figures`: also write each as a file."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>flashsift sweep</title>",
        STYLE,
        f"<h1>{several(whole['traces'], 'trace')}</h1>",
    ]
    if whole["failures"]:
        parts.append("<h2>Failures</h2><ul>")
        for one in whole["failures"]:
            parts.append(f"<li><code>{html.escape(one['path'])}</code>: {html.escape(one['why'])}")
        parts.append("</ul>")
    last = None
    for number, answer in enumerate(whole["answers"]):
        if answer["words"] != last:
            last = answer["words"]
            parts.append(f"<h2>{html.escape(last)}</h2>")
        parts.append(f"<h3>{html.escape(heading(answer))}</h3>")
        figure = plot.spread(
            {name: answer["values"][name] for name in ordered(answer)}, answer["unit"]
        )
        if figures:
            (store.directory / "figures").mkdir(exist_ok=True)
            base = f"{number:03}-{answer['question']}"
            plot.save(figure, store.directory / "figures" / base)
        parts.append(plot.svg(figure))
        parts.append(table(answer))
        if answer["outliers"]:
            parts.append("<p>Outliers:<ul>")
            for one in answer["outliers"]:
                parts.append(f"<li><code>{html.escape(one['command'])}</code>")
            parts.append("</ul>")
    return "\n".join(parts) + "\n"


def ordered(answer: dict[str, Any]) -> list[str]:
    return [row.get("policy") or row["sifter"] for row in answer["names"]]


def table(answer: dict[str, Any]) -> str:
    """Returns the figures of an answer as a table."""
    groups = sorted(answer["names"][0]["groups"])
    titles = ["", "mean", *[f"{100 * q:g} %" for q in QUANTILES], "best on"]
    titles += [f"to {answer['reference']} [95 %]", *(groups if len(groups) <= 12 else [])]
    cells = ["<div class=table><table><tr>" + "".join(f"<th>{html.escape(title)}" for title in titles)]
    for row in answer["names"]:
        name = row.get("policy") or row["sifter"]
        line = [f"{name} (offline)" if row["offline"] else name, f"{row['mean']:.4g}"]
        line += [f"{row['quantiles'][str(q)]:.4g}" for q in QUANTILES]
        best = "" if row["offline"] else f"{100 * row['best_share']:.0f} %"
        line += [best, shown_difference(answer, row["difference"])]
        line += [f"{row['groups'][group]:.4g}" for group in groups] if len(groups) <= 12 else []
        cells.append("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in line))
    return "".join(cells) + "</table></div>"
