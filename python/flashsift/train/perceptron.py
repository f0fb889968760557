"""CacheSifter's perceptron (FAST '22, Section 5.1 and Table 4), by JAX and Optax.

Inputs, 512 tanh, 200 ReLU, 2 ReLU, 2 softmax; focal loss; SGD with a learning rate of 0.1 that
falls at milestones; weight decay 1e-4 (phase 1) or 1e-5 (phase 2); a sampler that draws both
classes equally often; batches of 200. The momentum is 0.9, not the paper's 0.5, with which 200,000
files need more than twice the epochs. The paper leaves open: the focal loss has gamma 2; weights
begin as in PyTorch; features are log1p, or as in the authors' kernel each row is divided by its
length (`transform="unit"`), then of mean 0 and deviation 1; the learning rate falls by
a factor of 10 after 1/2 and after 3/4 of the epochs.

Both units of the layer of 2 may be 0 for every file, and then no gradient reaches the layers below.
If the output is constant after an epoch in the first tenth, training begins again with other
weights.
"""

import dataclasses
import itertools
import json
import os

# One thread: sums in one order, so the same seed gives the same file.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

from . import modelfile

GAMMA = 2.0
BATCH = 200
RESTARTS = 5


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options that decide the result of a training."""

    sizes: tuple = (512, 200, 2)
    epochs: int = 64
    learning_rate: float = 0.1
    momentum: float = 0.9
    transform: str = "log1p"
    weight_decay: float = 1e-4
    seed: int = 0


def forward(params, rows):
    """Returns the two outputs before softmax."""
    now = rows
    for number, (weight, bias) in enumerate(params):
        now = now @ weight + bias
        if number == 0 and len(params) > 1:
            now = jnp.tanh(now)
        elif number < len(params) - 1:
            now = jax.nn.relu(now)
    return now


def focal_losses(params, rows, positive):
    """Returns the focal loss of each row."""
    logs = jax.nn.log_softmax(forward(params, rows))
    log = jnp.where(positive, logs[:, 1], logs[:, 0])
    return -((1 - jnp.exp(log)) ** GAMMA) * log


def begin(sizes, inputs, seed):
    """Returns weights drawn as PyTorch draws them."""
    rng = np.random.default_rng([seed, 2])
    widths = [inputs, *sizes, 2]
    params = []
    for width, out in itertools.pairwise(widths):
        bound = 1 / np.sqrt(width)
        weight = rng.uniform(-bound, bound, (width, out)).astype(np.float32)
        bias = rng.uniform(-bound, bound, out).astype(np.float32)
        params.append((jnp.asarray(weight), jnp.asarray(bias)))
    return params


class Sampler:
    """Draws the rows of an epoch: both classes equally often, or each row equally often."""

    def __init__(self, positive, settings):
        self.classes = [np.flatnonzero(~positive), np.flatnonzero(positive)]
        self.count = len(positive)
        self.settings = settings

    def epoch(self, epoch):
        """Returns indices [batches, BATCH]. They depend on the seed and the epoch alone."""
        rng = np.random.default_rng([self.settings.seed, 3, epoch])
        batches = max(1, self.count // BATCH)
        drawn = batches * BATCH
        side = rng.random(drawn) < 0.5
        both = [rows[rng.integers(len(rows), size=drawn)] for rows in self.classes]
        return np.where(side, both[1], both[0]).reshape(batches, BATCH)


def train(rows, positive, valid_rows, valid_positive, settings, checkpoint=None, quiet=False):
    """Returns a `modelfile.Perceptron` and the validation losses by epoch.

    The loss of validation weighs both classes equally, as the sampler does. `checkpoint`: a path
    that gets the state after each epoch; if it exists, training goes on from there.
    """
    ready = modelfile.transformed(rows, settings.transform)
    mean = ready.mean(axis=0, dtype=np.float64).astype(np.float32)
    deviation = ready.std(axis=0, dtype=np.float64)
    # A feature that never varies says nothing, and would be huge where it does vary.
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0).astype(np.float32)
    shape = modelfile.Perceptron(mean, scale, settings.transform, [])
    inputs, targets = jnp.asarray(shape.scaled(rows)), jnp.asarray(positive)
    valid_inputs, valid_targets = jnp.asarray(shape.scaled(valid_rows)), jnp.asarray(valid_positive)
    sampler = Sampler(positive, settings)
    batches = max(1, len(positive) // BATCH)
    milestones = [settings.epochs // 2 * batches, settings.epochs * 3 // 4 * batches]
    falls = {step: 0.1 for step in milestones if step}
    optimizer = optax.chain(
        optax.add_decayed_weights(settings.weight_decay),
        optax.sgd(
            optax.piecewise_constant_schedule(settings.learning_rate, falls),
            momentum=settings.momentum,
        ),
    )

    @jax.jit
    def run_epoch(params, state, indices):
        def step(carry, batch):
            params, state = carry
            grads = jax.grad(
                lambda params: focal_losses(params, inputs[batch], targets[batch]).mean()
            )(params)
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), indices)[0]

    @jax.jit
    def validate(params):
        losses = focal_losses(params, valid_inputs, valid_targets)
        means = [
            jnp.sum(jnp.where(side, losses, 0)) / jnp.maximum(side.sum(), 1)
            for side in (valid_targets, ~valid_targets)
        ]
        outputs = forward(params, valid_inputs)
        return (means[0] + means[1]) / 2, jnp.ptp(outputs[:, 1] - outputs[:, 0])

    params = begin(settings.sizes, rows.shape[1], settings.seed)
    run = {"epoch": 0, "losses": [], "restarts": 0, "best": None, "best_loss": np.inf}
    state = optimizer.init(params)
    if checkpoint is not None and os.path.exists(checkpoint):
        params, state, run = load(checkpoint, settings, params, state)
    bar = tqdm(
        total=settings.epochs, initial=run["epoch"], desc="training", unit="epoch",
        disable=quiet or None,
    )
    while run["epoch"] < settings.epochs:
        indices = jnp.asarray(sampler.epoch(run["epoch"]), dtype=jnp.int32)
        params, state = run_epoch(params, state, indices)
        loss, spread = map(float, validate(params))
        dead = not np.isfinite(loss) or spread < 1e-6
        if dead and run["epoch"] < max(1, settings.epochs // 10) and run["restarts"] < RESTARTS:
            run["restarts"] += 1
            seed = settings.seed + 1_000_003 * run["restarts"]
            params = begin(settings.sizes, rows.shape[1], seed)
            state = optimizer.init(params)
            run["epoch"] = 0
            run["losses"].clear()
            bar.reset()
            continue
        run["epoch"] += 1
        run["losses"].append(loss)
        if loss < run["best_loss"]:
            run["best_loss"], run["best"] = loss, [np.asarray(leaf) for leaf in leaves(params)]
        bar.set_postfix(loss=f"{loss:.5f}")
        bar.update()
        if checkpoint is not None:
            save(checkpoint, settings, params, state, run)
    bar.close()
    best = run["best"] if run["best"] is not None else [np.asarray(x) for x in leaves(params)]
    names = ["tanh"] + ["relu"] * (len(settings.sizes) - 1) + ["softmax"]
    names = names[-(len(settings.sizes) + 1) :]
    layers = [
        (best[2 * number], best[2 * number + 1], name) for number, name in enumerate(names)
    ]
    return dataclasses.replace(shape, layers=layers), run["losses"]


def leaves(tree):
    """Returns the arrays of a tree, in order."""
    return jax.tree_util.tree_leaves(tree)


def save(path, settings, params, state, run):
    """Writes the state after an epoch."""
    import io

    arrays = {f"leaf{number}": leaf for number, leaf in enumerate(leaves((params, state)))}
    arrays |= {f"best{number}": leaf for number, leaf in enumerate(run["best"] or [])}
    facts = {key: run[key] for key in ["epoch", "losses", "restarts", "best_loss"]}
    facts["settings"] = dataclasses.asdict(settings)
    data = io.BytesIO()
    np.savez(data, facts=json.dumps(facts), **arrays)
    modelfile.write(path, data.getvalue())


def load(path, settings, params, state):
    """Reads a state; it must be of a training with the same settings."""
    with np.load(path) as file:
        facts = json.loads(str(file["facts"]))
        if facts.pop("settings") != json.loads(json.dumps(dataclasses.asdict(settings))):
            raise ValueError(f"{path} is of a training with other settings; leave --resume out")
        structure = jax.tree_util.tree_structure((params, state))
        arrays = [jnp.asarray(file[f"leaf{n}"]) for n in range(structure.num_leaves)]
        best = [file[f"best{n}"] for n in range(len(leaves(params)))] if facts["losses"] else None
    params, state = jax.tree_util.tree_unflatten(structure, arrays)
    return params, state, {**facts, "best": best}
