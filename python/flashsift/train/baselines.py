"""The models beside the perceptron: boosted trees, a random forest, linear and logistic regression.

All take seconds. Trees get the features as they are; regressions get them as the perceptron does.
"""

import numpy as np

from . import modelfile

# Small enough that a file costs less than 0.3 µs.
TREES = 50
LEAVES = 8


def boosted(rows, positive, valid_rows, valid_positive, seed):
    """Returns trees of LightGBM that stop when the validation's loss rises."""
    import lightgbm

    data = lightgbm.Dataset(rows, positive.astype(np.float32))
    valid = lightgbm.Dataset(valid_rows, valid_positive.astype(np.float32), reference=data)
    settings = common(seed) | {"learning_rate": 0.15, "num_leaves": LEAVES}
    stop = lightgbm.early_stopping(10, verbose=False)
    booster = lightgbm.train(settings, data, TREES, valid_sets=[valid], callbacks=[stop])
    # Only the trees up to the best round are part of the text.
    return modelfile.Trees(
        lightgbm.Booster(model_str=booster.model_to_string(num_iteration=booster.best_iteration))
    )


def forest(rows, positive, seed):
    """Returns a random forest of LightGBM."""
    import lightgbm

    settings = common(seed) | {
        "boosting": "rf",
        "num_leaves": LEAVES,
        "bagging_freq": 1,
        "bagging_fraction": 0.63,
        "feature_fraction": 0.6,
    }
    data = lightgbm.Dataset(rows, positive.astype(np.float32))
    return modelfile.Trees(lightgbm.train(settings, data, TREES))


def common(seed):
    """Returns the settings of both: one thread and one order, so that a seed gives one file."""
    return {
        "objective": "binary",
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "min_data_in_leaf": 5,
        "verbosity": -1,
    }


def regression(rows, positive, logistic):
    """Returns a linear regression of the label, clamped to 0…1, or a logistic one."""
    from sklearn.linear_model import LogisticRegression, Ridge

    logs = np.log1p(rows.astype(np.float64))
    deviation = logs.std(axis=0)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)
    model = modelfile.Perceptron(
        logs.mean(axis=0).astype(np.float32), scale.astype(np.float32), "log1p", []
    )
    inputs = model.scaled(rows)
    fitted = LogisticRegression(max_iter=1000) if logistic else Ridge(alpha=1.0)
    fitted.fit(inputs, positive if logistic else positive.astype(np.float64))
    weight = np.asarray(fitted.coef_, dtype=np.float32).reshape(-1, 1)
    bias = np.asarray(fitted.intercept_, dtype=np.float32).reshape(1)
    model.layers.append((weight, bias, "sigmoid" if logistic else "clamp"))
    return model
