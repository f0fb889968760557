"""Reads weights in the form of the kernel that CacheSifter's authors published.

Its C files have, for each stage N, arrays of integers, which are numbers times a million:
`w0_stageN[][inputs]` to `w3_stageN`, by outputs; `b0_stageN[]` to `b3_stageN[]`; `mean_stageN[]`
and `scale_stageN[]`. A row of features is divided by its length, the mean is subtracted, and the
result is divided by the scale. Layers are tanh, ReLU, ReLU, softmax.

Output 1 of stage 1 is a file that is not burn-after-reading, as in our phase 1. Output 1 of stage 2
is a file that stays in memory, so one that is Transient; our phase 2 has Long-living there, so the
outputs change places.
"""

import re

import numpy as np

from .modelfile import Perceptron

TIMES = 1e6
ARRAY = re.compile(r"\blong long (\w+)_stage(\d)\s*\[\d*\]\s*(?:\[(\d+)\])?\s*=\s*\{(.*?)\}\s*;", re.DOTALL)
ACTIVATIONS = ("tanh", "relu", "relu", "softmax")


def read(texts, phase):
    """Returns the `Perceptron` of a phase from the texts of C files.

    Raises ValueError that names the array which is missing or has another shape.
    """
    arrays = {}
    for text in texts:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        for name, stage, width, body in ARRAY.findall(text):
            if int(stage) != phase:
                continue
            if name in arrays:
                raise ValueError(f"{name}_stage{phase} is there twice: give one file for each stage")
            numbers = np.array([int(word) for word in re.findall(r"-?\d+", body)], dtype=np.float64)
            if width and (int(width) == 0 or len(numbers) % int(width)):
                raise ValueError(f"{name}_stage{phase} has {len(numbers)} numbers, not rows of {width}")
            arrays[name] = (numbers / TIMES).reshape(-1, int(width)) if width else numbers / TIMES

    def array(name, *shape):
        if name not in arrays:
            raise ValueError(f"the array {name}_stage{phase} is missing")
        if arrays[name].shape != shape:
            raise ValueError(f"{name}_stage{phase} has the shape {arrays[name].shape}, not {shape}")
        return arrays[name]

    inputs = len(arrays.get("mean", ()))
    mean, scale = array("mean", inputs), array("scale", inputs)
    if not 7 <= inputs:
        raise ValueError(f"mean_stage{phase} has {inputs} numbers: a window has a unit and 6 sums")
    # As there, a feature with the scale 0 cannot be used.
    scale = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    layers, width = [], inputs
    for number, activation in enumerate(ACTIVATIONS):
        out = len(arrays.get(f"b{number}", ()))
        bias, weight = array(f"b{number}", out), array(f"w{number}", out, width)
        if activation == "softmax" and phase == 2:
            bias, weight = bias[::-1], weight[::-1]
        layers.append((weight.T.astype(np.float32), bias.astype(np.float32), activation))
        width = out
    if width != 2:
        raise ValueError(f"b3_stage{phase} has {width} numbers, not 2")
    return Perceptron(mean.astype(np.float32), scale.astype(np.float32), "unit", layers)
