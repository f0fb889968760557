"""Models as Python scores them, beside the same files as Rust scores them: equal to 1e-5."""

import json

import numpy as np
import pytest
from safetensors.numpy import load as load_safetensors

import flashsift
from flashsift.train import baselines, modelfile, perceptron

FACTS = modelfile.Facts(phase=1, units=20, unit_us=1_000_000, threshold=0.3)


def rows(count, seed, width=26):
    """Rows as files have them: many zeros, sizes of many magnitudes."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0, 22, (count, width)))
    return np.where(rng.random((count, width)) < 0.6, 0, sizes).astype(np.float32)


def labels(table, seed):
    rng = np.random.default_rng(seed)
    return np.log1p(table[:, 0]) + rng.normal(0, 3, len(table)) > np.log1p(table[:, 20])


@pytest.mark.parametrize("sizes", [(512, 200, 2), (32, 12, 2), (7,)])
@pytest.mark.parametrize("seed", range(3))
def test_perceptrons_score_alike_in_jax_numpy_and_rust(sizes, seed):
    table = rows(300, seed)
    settings = perceptron.Settings(sizes=sizes, epochs=2, seed=seed)
    model, _ = perceptron.train(
        table[:200], labels(table, seed)[:200], table[200:], labels(table, seed)[200:], settings,
        quiet=True,
    )
    # Weights as large as a long training makes them.
    rng = np.random.default_rng(seed)
    model.layers = [
        ((2 * w + rng.normal(0, 0.2, w.shape)).astype(np.float32), b + np.float32(0.1), name)
        for w, b, name in model.layers
    ]
    encoded = model.encode(FACTS)
    native = flashsift.FileModel(encoded)
    facts = (native.phase, native.units, native.unit_us, native.kind)
    assert facts == (1, 20, 1_000_000, "perceptron")
    assert np.float32(native.threshold) == np.float32(0.3)
    scores = native.score(table)
    params = [(weight, bias) for weight, bias, _ in model.layers]
    logits = perceptron.forward(params, model.scaled(table))
    jax_scores = 1 / (1 + np.exp(np.asarray(logits[:, 0] - logits[:, 1], dtype=np.float64)))
    np.testing.assert_allclose(scores, jax_scores, atol=1e-5, rtol=0)
    np.testing.assert_allclose(scores, model.scores(table), atol=1e-5, rtol=0)
    one_by_one = [native.score(table[at : at + 1])[0] for at in range(20)]
    np.testing.assert_allclose(scores[:20], one_by_one, atol=1e-5, rtol=0)
    tensors = load_safetensors(encoded)
    np.testing.assert_array_equal(tensors["layer.0.weight"], model.layers[0][0])


@pytest.mark.parametrize("kind", ["gbdt", "forest"])
@pytest.mark.parametrize("seed", range(3))
def test_trees_score_alike_in_lightgbm_and_rust(kind, seed):
    import lightgbm

    table = rows(2000, seed)
    truth = labels(table, seed)
    if kind == "gbdt":
        model = baselines.boosted(table[:1500], truth[:1500], table[1500:], truth[1500:], seed)
    else:
        model = baselines.forest(table, truth, seed)
    encoded = model.encode(FACTS)
    native = flashsift.FileModel(encoded)
    assert native.kind == "trees"
    others = np.concatenate([table, rows(3000, seed + 100)])
    np.testing.assert_allclose(native.score(others), model.scores(others), atol=1e-5, rtol=0)
    # LightGBM reads the file with the line of facts.
    theirs = lightgbm.Booster(model_str=encoded.decode())
    np.testing.assert_array_equal(theirs.predict(others), model.scores(others))


@pytest.mark.parametrize("logistic", [False, True])
def test_regressions_score_alike_in_numpy_and_rust(logistic):
    table = rows(2000, 1)
    model = baselines.regression(table, labels(table, 1), logistic)
    scores = flashsift.FileModel(model.encode(FACTS)).score(table)
    np.testing.assert_allclose(scores, model.scores(table), atol=1e-5, rtol=0)
    assert scores.min() >= 0 and scores.max() <= 1 and np.ptp(scores) > 0.1


def test_damaged_and_foreign_models_are_refused():
    model = baselines.regression(rows(100, 1), labels(rows(100, 1), 1), True)
    good = model.encode(FACTS)
    flashsift.FileModel(good)
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(flashsift.FlashsiftError):
            flashsift.FileModel(bytes(bad))
    model.layers[0][1][0] = np.nan
    with pytest.raises(flashsift.FlashsiftError, match="not finite"):
        flashsift.FileModel(model.encode(FACTS))
    for text in [b"", b"tree\n", b"PK\x03\x04", json.dumps({}).encode()]:
        with pytest.raises(flashsift.FlashsiftError):
            flashsift.FileModel(text)


def test_rows_of_another_width_are_refused():
    model = baselines.regression(rows(100, 1), labels(rows(100, 1), 1), True)
    native = flashsift.FileModel(model.encode(FACTS))
    with pytest.raises(flashsift.FlashsiftError, match="the model takes 26"):
        native.score(np.zeros((1, 25), dtype=np.float32))
    assert native.score(np.zeros((0, 26), dtype=np.float32)).shape == (0,)


def in_c(model, phase):
    """A model as the authors write it: integers, a million for 1."""

    def text(name, array):
        width = f"[{array.shape[1]}]" if array.ndim == 2 else ""
        rows = array.reshape(len(array), -1)
        body = ",\n".join("{" + ",".join(str(round(1e6 * float(n))) for n in row) + "}" for row in rows)
        body = body if width else body.replace("{", "").replace("}", "")
        return f"const long long {name}_stage{phase}[]{width} = {{\n{body}\n}}; // a comment\n"

    parts = [text("mean", model.mean), text("scale", 1 / model.scale)]
    for number, (weight, bias, _) in enumerate(model.layers):
        turned = slice(None, None, -1 if phase == 2 and number == 3 else None)
        parts += [text(f"w{number}", weight.T[turned]), text(f"b{number}", bias[turned])]
    return "#include <x.h>\n" + "".join(parts)


@pytest.mark.parametrize("phase", [1, 2])
def test_weights_of_the_authors_are_read(phase, tmp_path):
    """Hand-made weights score alike in the kernel's arithmetic, NumPy and Rust."""
    from flashsift.train.__main__ import main

    width = {1: 26, 2: 66}[phase]
    rng = np.random.default_rng(phase)
    layers, inputs = [], width
    for out, name in zip((8, 6, 2, 2), ("tanh", "relu", "relu", "softmax"), strict=True):
        weight = rng.normal(0, 0.5, (inputs, out)).astype(np.float32)
        layers.append((weight, rng.normal(0, 0.5, out).astype(np.float32), name))
        inputs = out
    mean = rng.uniform(0, 0.3, width).astype(np.float32)
    scale = rng.uniform(1, 5, width).astype(np.float32)
    made = modelfile.Perceptron(mean, scale, "unit", layers)
    source, path = tmp_path / "weights.c", tmp_path / "theirs.safetensors"
    source.write_text(in_c(made, phase))
    words = ["--weights", str(source), "--phase", str(phase), "-o", str(path), "--threshold", "0.38"]
    assert main(words) == 0
    native = flashsift.FileModel(path.read_bytes())
    assert (native.phase, native.units) == (phase, width - 6)
    assert np.float32(native.threshold) == np.float32(0.38)
    table = rows(200, phase, width)
    table[0] = 0
    # Integers of a millionth round.
    np.testing.assert_allclose(native.score(table), made.scores(table), atol=1e-4, rtol=0)
    # Without one array, and with one that is too short.
    for old, new in [("b2_stage", "c2_stage"), ("mean_stage", "old_stage"), ("[8]", "[7]")]:
        source.write_text(in_c(made, phase).replace(old, new))
        assert main(words) == 1
    assert main(["-o", str(path)]) == 1
    assert main([*words, "trace.parquet"]) == 1


def test_rows_of_length_one_are_trained_and_scored_alike():
    table = rows(300, 5)
    table[7] = 0
    settings = perceptron.Settings(sizes=(16, 4), epochs=2, transform="unit", momentum=0.5)
    model, _ = perceptron.train(
        table[:200], labels(table, 5)[:200], table[200:], labels(table, 5)[200:], settings, quiet=True
    )
    lengths = np.linalg.norm(modelfile.transformed(table, "unit").astype(np.float64), axis=1)
    np.testing.assert_allclose(np.delete(lengths, 7), 1, rtol=1e-5)
    scores = flashsift.FileModel(model.encode(FACTS)).score(table)
    np.testing.assert_allclose(scores, model.scores(table), atol=1e-5, rtol=0)
