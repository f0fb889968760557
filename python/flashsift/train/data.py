"""Rows for training: from traces, with a label, split into three parts."""

import dataclasses
import pathlib

import numpy as np
from tqdm import tqdm

import flashsift


class Unusable(Exception):
    """The traces cannot be trained on as asked; the message says why."""


@dataclasses.dataclass
class Rows:
    """One row a file. `application`, `user`: numbers of groups; `names` has the applications'."""

    features: np.ndarray
    positive: np.ndarray
    size_bytes: np.ndarray
    application: np.ndarray
    user: np.ndarray
    born_us: np.ndarray
    names: list
    left_out: dict

    def __len__(self):
        return len(self.positive)

    def take(self, chosen):
        """Returns these rows."""
        columns = ["features", "positive", "size_bytes", "application", "user", "born_us"]
        return dataclasses.replace(self, **{key: getattr(self, key)[chosen] for key in columns})


def load(traces, *, phase, labels, units, unit_us, ram_bytes, only_cache, with_dead, force, quiet):
    """Reads the rows of one phase. Rows whose label is unknown are left out.

    A trace that is held apart for tests is refused, unless `force`.
    """
    tables, names = [], []
    left_out = {"outside caches": 0, "deleted before the window's end": 0, "label unknown": 0}
    for trace in tqdm(traces, desc="reading", unit="trace", disable=quiet or None):
        table = flashsift.examples(
            trace, units_first=units, units_second=units, unit_us=unit_us, ram_bytes=ram_bytes,
            force=force,
        )
        keep = np.ones(len(table["category"]), dtype=bool)

        def leave_out(why, rows, keep=keep):
            left_out[why] += int((keep & rows).sum())
            keep &= ~rows

        if only_cache:
            leave_out("outside caches", ~table["in_cache"])
        if not with_dead:
            leave_out("deleted before the window's end", ~table["outlived_first"])
        if labels == "reuse":
            leave_out("label unknown", table["reused"] < 0)
            positive = table["reused"] == 1
        elif phase == 1:
            positive = table["category"] > 0
        else:
            # The second phase separates Transient from Long-living: BAR files are neither.
            left_out.setdefault("BAR", 0)
            leave_out("BAR", table["category"] == 0)
            positive = table["category"] == 2
        application = len(names)
        names.append(pathlib.Path(trace).name.split(".")[0])
        tables.append(
            {
                "features": table["first"][keep],
                "positive": positive[keep],
                "size_bytes": table["max_size_bytes"][keep],
                "application": np.full(int(keep.sum()), application),
                "user": table["uid"][keep],
                "born_us": table["born_us"][keep],
            }
        )
    columns = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
    # Recordings of one application (desktop-1, desktop-2) are one group.
    groups = [name.rstrip("0123456789").rstrip("-") or name for name in names]
    unique = sorted(set(groups))
    number = np.array([unique.index(group) for group in groups])
    columns["application"] = number[columns["application"]]
    rows = Rows(**columns, names=unique, left_out=left_out)
    if len(rows) < 10 or rows.positive.all() or not rows.positive.any():
        raise Unusable(
            f"{len(rows)} files, {int(rows.positive.sum())} of them positive, are too few to train "
            "on: both classes and at least 10 files are needed; give more traces"
        )
    return rows


def split(rows, how, seed):
    """Returns the indices for training, validation and test: 72, 8 and 20 % of the rows.

    random: as in the paper. time: the last files of each application are the test. application,
    user: whole groups are the test. Validation rows are random ones of those for training.
    """
    rng = np.random.default_rng([seed, 1])
    count = len(rows)
    if how == "random":
        test = np.zeros(count, dtype=bool)
        test[rng.permutation(count)[: count // 5]] = True
    elif how == "time":
        test = np.zeros(count, dtype=bool)
        for application in np.unique(rows.application):
            mine = np.flatnonzero(rows.application == application)
            mine = mine[np.argsort(rows.born_us[mine], kind="stable")]
            test[mine[len(mine) - len(mine) // 5 :]] = True
    else:
        group = getattr(rows, how)
        found = rng.permutation(np.unique(group))
        if len(found) < 2:
            raise Unusable(f"a split by {how} needs at least two of them; the traces have one")
        test = np.zeros(count, dtype=bool)
        # At least one group on each side.
        for value in found[:-1]:
            if test.sum() * 5 >= count:
                break
            test |= group == value
    rest = rng.permutation(np.flatnonzero(~test))
    valid, train = np.split(rest, [max(1, len(rest) // 10)])
    for name, part in [("training", train), ("validation", valid)]:
        if rows.positive[part].all() or not rows.positive[part].any():
            raise Unusable(f"the rows for {name} have one class; give more traces or another split")
    return np.sort(train), np.sort(valid), np.flatnonzero(test)
