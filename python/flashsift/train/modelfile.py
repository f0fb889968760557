"""Model files: what `crates/files/src/sift/model` reads.

Both writers are deterministic: the same model gives the same bytes.
"""

import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from flashsift import SCHEMA


def transformed(rows, transform):
    """Returns rows before they are standardised. `unit`: each row divided by its length."""
    if transform == "log1p":
        return np.log1p(rows)
    if transform == "unit":
        lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
        return np.where(lengths > 0, rows / np.maximum(lengths, 1), rows).astype(np.float32)
    return rows


@dataclasses.dataclass(frozen=True)
class Facts:
    """The use of a model: phase, window, threshold."""

    phase: int
    units: int
    unit_us: int
    threshold: float

    def texts(self):
        """Returns the facts as the file holds them."""
        return {
            "schema": str(SCHEMA),
            "phase": str(self.phase),
            "units": str(self.units),
            "unit_us": str(self.unit_us),
            # The digits that give the same 32-bit number again.
            "threshold": str(np.float32(self.threshold)),
        }


@dataclasses.dataclass
class Perceptron:
    """Layers over scaled features. `layers`: (weight [inputs, outputs], bias, activation)."""

    mean: np.ndarray
    scale: np.ndarray
    transform: str
    layers: list

    def scaled(self, rows):
        """Returns the inputs of the first layer."""
        rows = transformed(rows, self.transform)
        return ((rows - self.mean) * self.scale).astype(np.float32)

    def scores(self, rows):
        """Returns the probability of the positive class, by NumPy."""
        now = self.scaled(rows)
        for weight, bias, activation in self.layers:
            now = now @ weight + bias
            if activation == "tanh":
                now = np.tanh(now)
            elif activation == "relu":
                now = np.maximum(now, 0)
        if activation == "softmax":
            return 1 / (1 + np.exp(now[:, 0] - now[:, 1]))
        if activation == "sigmoid":
            return 1 / (1 + np.exp(-now[:, 0]))
        return np.clip(now[:, 0], 0, 1)

    def encode(self, facts):
        """Returns the safetensors."""
        texts = facts.texts()
        texts["transform"] = self.transform
        texts["activations"] = ",".join(activation for _, _, activation in self.layers)
        tensors = {"mean": self.mean, "scale": self.scale}
        for number, (weight, bias, _) in enumerate(self.layers):
            tensors[f"layer.{number}.weight"] = weight
            tensors[f"layer.{number}.bias"] = bias
        digest = hashlib.sha256(facts_text(texts))
        header, data = {}, b""
        for name, tensor in sorted(tensors.items()):
            raw = np.ascontiguousarray(tensor, dtype="<f4").tobytes()
            digest.update(f"{name}\0".encode())
            digest.update("".join(f"{size}\0" for size in tensor.shape).encode())
            digest.update(raw)
            offsets = [len(data), len(data) + len(raw)]
            header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": offsets}
            data += raw
        texts["sha256"] = digest.hexdigest()
        text = json.dumps({"__metadata__": texts, **header}).encode()
        # Tensors begin at a multiple of 8 bytes.
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + data


@dataclasses.dataclass
class Trees:
    """A booster of LightGBM."""

    booster: object

    def scores(self, rows):
        """Returns the probability of the positive class, by LightGBM."""
        return self.booster.predict(rows)

    def encode(self, facts):
        """Returns LightGBM's text with a line of facts, which LightGBM ignores."""
        # The importances and parameters after the trees are for people.
        text = self.booster.model_to_string().encode()
        texts = facts.texts()
        texts["sha256"] = hashlib.sha256(text + facts_text(texts)).hexdigest()
        line = b"flashsift=" + json.dumps(texts).encode() + b"\n"
        head, version, rest = text.partition(b"version=v4\n")
        if not version:
            raise ValueError("this LightGBM does not write version v4 of its text")
        return head + version + line + rest


def facts_text(texts):
    """Returns the facts as the hash takes them."""
    return "".join(f"{key}\0{value}\0" for key, value in sorted(texts.items())).encode()


def write(path, data):
    """Writes a file that appears whole or not at all."""
    path = pathlib.Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
