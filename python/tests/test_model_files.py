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
