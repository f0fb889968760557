"""Precision, recall, accuracy and their curve.

Recall is TP / (TP + FN). CacheSifter's equation 2 has TN in its place, which is a misprint: its
text describes the positive files that are found.
"""

import numpy as np


def ratio(part, whole):
    """Returns a share; None if there is nothing to share."""
    return float(part) / float(whole) if whole else None


def at(positive, found):
    """Returns the measures of one decision on each file."""
    hits = int((positive & found).sum())
    return {
        "precision": ratio(hits, found.sum()),
        "recall": ratio(hits, positive.sum()),
        "accuracy": ratio((positive == found).sum(), len(positive)),
    }


def curve(positive, scores):
    """Returns (thresholds, precision, recall), from the highest threshold to the lowest."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    return scores[order][last], hits[last] / (last + 1), hits[last] / max(1, int(hits[-1]))


def average_precision(positive, scores):
    """Returns the area under the curve of precision over recall; None without a positive row."""
    if not positive.any():
        return None
    _, precision, recall = curve(positive, scores)
    return float(np.sum(np.diff(np.append(0, recall)) * precision))


def threshold(positive, scores, recall):
    """Returns the threshold with the best accuracy, or the highest one with this recall.

    It lies halfway between two scores, so that rounding changes no decision.
    """
    levels, precision, found = curve(positive, scores)
    if recall is None:
        count = np.round(found * positive.sum() / np.maximum(precision, 1e-12))
        count = np.where(found == 0, np.arange(1, len(levels) + 1), count)
        hits = found * positive.sum()
        right = hits + (len(positive) - positive.sum()) - (count - hits)
        nothing = len(positive) - positive.sum()
        if nothing >= right.max():
            return 1.0
        best = int(np.argmax(right))
    else:
        best = int(np.argmax(found >= recall))
    below = levels[best + 1] if best + 1 < len(levels) else 0.0
    return float(np.float32((float(levels[best]) + float(below)) / 2))
