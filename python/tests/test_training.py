"""Training on the recorded traces: labels, splits, the same result again, and a resumed one."""

import json
import os
import pathlib

import numpy as np
import pytest

import flashsift
from flashsift.train import __main__ as command
from flashsift.train import data, metrics, modelfile, perceptron

TESTDATA = pathlib.Path(__file__).parents[2] / "testdata"
TRACES = [str(TESTDATA / f"{name}.parquet") for name in ["browser", "feed", "messenger"]]
LOADED = {
    "phase": 1, "labels": "paper", "units": 20, "unit_us": 1_000_000, "ram_bytes": 20_000_000,
    "only_cache": False, "with_dead": True, "force": False, "quiet": True,
}


@pytest.fixture(scope="module")
def rows():
    return data.load(TRACES, **LOADED)


def test_features_are_the_papers_values():
    table = flashsift.examples(TRACES[0])
    first, second = table["first"], table["second"]
    assert first.shape[1] == 26 and second.shape[1] == 66
    assert flashsift.feature_names(20)[20:22] == ["read_bytes", "reads"]
    # The sums of the units are the bytes read and written.
    np.testing.assert_allclose(first[:, :20].sum(1), first[:, 20] + first[:, 22], rtol=1e-5)
    # The second window begins with the first.
    np.testing.assert_array_equal(first[:, :20], second[:, :20])
    assert np.isfinite(second).all() and (second >= 0).all()
    active_s = table["active_us"] / 1e6
    expected = np.where(active_s < 30, 0, np.where(active_s <= 90, 1, 2))
    np.testing.assert_array_equal(table["category"], expected)
    assert len(table["names"]) == len(first)


def test_a_trace_that_is_none_is_refused_in_the_words_of_the_command_line(tmp_path):
    with pytest.raises(flashsift.FlashsiftError, match="there is no such file"):
        flashsift.examples(tmp_path / "missing")
    with pytest.raises(flashsift.FlashsiftError, match="do not fit"):
        flashsift.examples(TRACES[0], units_first=61)


@pytest.mark.parametrize("how", ["random", "time", "application"])
def test_splits_are_disjoint_and_complete(rows, how):
    parts = data.split(rows, how, 3)
    assert sorted(np.concatenate(parts)) == list(range(len(rows)))
    train, valid, test = parts
    if how == "application":
        seen = set(rows.application[np.concatenate([train, valid])])
        assert not seen & set(rows.application[test])
    if how == "time":
        for number in np.unique(rows.application):
            before = rows.born_us[train][rows.application[train] == number].max()
            after = rows.born_us[test][rows.application[test] == number].min()
            assert before <= after
    again = data.split(rows, how, 3)
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


def test_recall_is_of_the_positive_files():
    positive = np.array([True, True, True, True, False, False])
    found = np.array([True, False, False, False, True, False])
    expected = {"precision": 1 / 2, "recall": 1 / 4, "accuracy": 2 / 6}
    assert metrics.at(positive, found) == expected
    assert metrics.at(positive & False, found & False)["recall"] is None


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_and_curves_equal_the_naive_ones(seed):
    rng = np.random.default_rng(seed)
    positive = rng.random(60) < 0.3
    positive[0] = True
    scores = np.round(rng.random(60) * 0.7 + positive * 0.2, 1)
    levels, precision, recall = metrics.curve(positive, scores)
    for level, p, r in zip(levels, precision, recall, strict=True):
        measured = metrics.at(positive, scores >= level)
        assert measured["precision"] == pytest.approx(p) and measured["recall"] == pytest.approx(r)
    best = max(metrics.at(positive, scores >= level)["accuracy"] for level in [*levels, 2])
    chosen = metrics.threshold(positive, scores, None)
    assert metrics.at(positive, scores >= chosen)["accuracy"] == pytest.approx(best)
    chosen = metrics.threshold(positive, scores, 0.9)
    assert metrics.at(positive, scores >= chosen)["recall"] >= 0.9


def test_the_same_seed_gives_the_same_file(tmp_path):
    words = [*TRACES, "--seed", "5", "--epochs", "3", "--sizes", "32,12,2", "-q", "--with-dead"]
    for model in ["mlp", "gbdt", "forest", "linear", "logistic"]:
        written = []
        for run in "ab":
            path = tmp_path / run / f"{model}.model"
            path.parent.mkdir(exist_ok=True)
            assert command.main([*words, "--model", model, "-o", str(path)]) == 0
            written.append(path.read_bytes())
            report = json.loads((path.parent / f"{model}.model.report.json").read_text())
            assert report["models"][model]["bytes"] == len(written[-1]) < 1_000_000
            assert set(report["baselines"]) == {"majority class", "all BAR", "keep all"}
        assert written[0] == written[1], model
        pictures = [(tmp_path / run / f"{model}.model.pr.svg").read_bytes() for run in "ab"]
        assert pictures[0] == pictures[1]


def test_a_resumed_training_gives_the_file_of_an_uninterrupted_one(tmp_path, rows):
    train, valid, _ = data.split(rows, "random", 0)
    settings = perceptron.Settings(sizes=(16, 8, 2), epochs=4, seed=1)
    given = (rows.features[train], rows.positive[train], rows.features[valid], rows.positive[valid])
    whole, losses = perceptron.train(*given, settings, quiet=True)
    kept = tmp_path / "kept"

    class Interrupted(Exception):
        pass

    saved = perceptron.save

    def save_and_stop(*args):
        saved(*args)
        if args[-1]["epoch"] == 2:
            raise Interrupted

    perceptron.save = save_and_stop
    try:
        with pytest.raises(Interrupted):
            perceptron.train(*given, settings, kept, quiet=True)
    finally:
        perceptron.save = saved
    resumed, again = perceptron.train(*given, settings, kept, quiet=True)
    assert losses == again
    facts = modelfile.Facts(1, 20, 1_000_000, 0.5)
    assert whole.encode(facts) == resumed.encode(facts)
    with pytest.raises(ValueError, match="other settings"):
        perceptron.train(
            *given, perceptron.Settings(sizes=(16, 8, 2), epochs=5, seed=1), kept, quiet=True
        )


def test_traces_that_cannot_be_trained_on_are_refused(tmp_path, capsys):
    words = ["-o", str(tmp_path / "m"), "-q"]
    assert command.main([TRACES[0], "--split", "application", *words]) == 1
    assert "at least two" in capsys.readouterr().err
    assert command.main([str(tmp_path / "none"), *words]) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif("FLASHSIFT" not in os.environ, reason="FLASHSIFT: the program to run")
def test_a_models_frontier_is_that_of_compare(tmp_path):
    path = tmp_path / "m.safetensors"
    words = [*TRACES, "--model", "logistic", "-q", "-o", str(path), "--frontier", "0.01,0.99"]
    words += ["--frontier-on", TRACES[0], "--flashsift", os.environ["FLASHSIFT"]]
    assert command.main(words) == 0
    report = json.loads((tmp_path / "m.report.json").read_text())
    keeping, dropping = report["models"]["logistic"]["frontier"]
    assert dropping["kept_from_flash_bytes"] >= keeping["kept_from_flash_bytes"]
    assert dropping["fetched_again_bytes"] >= keeping["fetched_again_bytes"] >= 0
    assert (tmp_path / "m.frontier.svg").exists()
