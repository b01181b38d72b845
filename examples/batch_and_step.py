"""The optimizer's step, and why it uses a batch
================================================

The last two claims of `max_pool_batch.py`, each one computed: what an optimizer does with the mean gradient of a batch,
and how fast that mean gets more accurate with the size of the batch.

Run it with: `python examples/batch_and_step.py`

The formula of each optimizer is written in NumPy and compared with minidl's own. The digits are embedded, so nothing is
downloaded. All numbers are float64.
"""

import copy
import inspect
from types import SimpleNamespace

import numpy as np

from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.losses import Huber
from minidl.optimizers import SGD, Adagrad, Adam, RMSprop

N = 100


def train_net(pool):
    """Trains a net with this pool for one epoch on the digits; returns its trainer and the data."""
    data = load_digits()
    layers = [Rescale(1 / 16), Conv2D(8, 3, padding=1), ReLU(), pool, Flatten(), Dense(10)]
    model = Sequential(layers, input_shape=(1, 8, 8), seed=0, dtype="float64")
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9))
    trainer.fit(data.X_train, data.y_train, epochs=1, verbose=0)
    return trainer, data


def prepare():
    """Returns the net, 100 digits that it was not trained on, and 1,024 that it was."""
    trainer, data = train_net(MaxPool2D(2))
    X, y = data.X_test[:N], data.y_test[:N]  # (100, 1, 8, 8), (100,)
    many = data.X_train[:1024], data.y_train[:1024]
    return SimpleNamespace(trainer=trainer, model=trainer.model, X=X, y=y, many=many, batches=shuffle_batches)


def shuffle_batches(n):
    """Returns the indices of five epochs of 1,024 shuffled examples in batches of n: (5120 / n, n)."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.permutation(1024).reshape(-1, n) for _ in range(5)])


# ---- the formulas: the new w from w, the mean gradient g and the state m, which starts empty


def sgd(w, g, m):
    return w - 0.1 * g


def momentum(w, g, m):
    m["v"] = 0.9 * m.get("v", 0) + g
    return w - 0.1 * m["v"]


def adagrad(w, g, m):
    m["s"] = m.get("s", 0) + g**2
    return w - 0.1 * g / (np.sqrt(m["s"]) + 1e-10)


def rmsprop(w, g, m):
    m["s"] = 0.99 * m.get("s", 0) + 0.01 * g**2
    return w - 0.01 * g / (np.sqrt(m["s"]) + 1e-8)


def adam(w, g, m):
    m["t"] = m.get("t", 0) + 1
    m["v"] = 0.9 * m.get("v", 0) + 0.1 * g
    m["s"] = 0.999 * m.get("s", 0) + 0.001 * g**2
    return w - 0.1 * m["v"] / (1 - 0.9 ** m["t"]) / (np.sqrt(m["s"] / (1 - 0.999 ** m["t"])) + 1e-8)


OPTIMIZERS = {
    "SGD": (sgd, SGD(0.1)),
    "SGD with momentum": (momentum, SGD(0.1, momentum=0.9)),
    "Adagrad": (adagrad, Adagrad(0.1)),
    "RMSprop": (rmsprop, RMSprop(0.01)),
    "Adam": (adam, Adam(0.1)),
}


# ---- the claims: one function each, stated by its docstring


def the_step_takes_the_mean(b):
    """(h) The step takes the mean gradient and moves the weights. It sees no examples and no layers. Two steps with the
    two images by hand, and three with the digits.
    """
    for name, (formula, optimizer) in OPTIMIZERS.items():
        trainer, weights, losses, w, memory = make_hand_trainer(optimizer), [1.0], [], 1.0, {}
        for _ in range(2):
            losses.append(trainer.train_batch(*IMAGES))  # the mean loss before the step
            weights.append(trainer.model.params["2.weight"].value.item())
            w = formula(w, ((w * 1 + 1) * 1 + (w * 4 - 5) * 4) / 2, memory)  # mean of e m: m = 1, t = -1; m = 4, t = 5
        moves = " -> ".join(f"{weight:.4f}" for weight in weights)
        check(abs(weights[-1] - w) < 1e-14, f"{name}: w = {moves}")
    check(losses[1] < losses[0], f"each first step takes the mean loss from {losses[0]:.4f} to {losses[1]:.4f}")
    for name, (formula, optimizer) in OPTIMIZERS.items():
        trainer, memory = Trainer(copy.deepcopy(b.model), "softmax_cross_entropy", copy.deepcopy(optimizer)), {}
        w = flatten(trainer.model.state_dict())
        for _ in range(3):
            gradients = trainer.per_example_gradients(b.X, b.y)
            w = formula(w, flatten({key: each.mean(axis=0) for key, each in gradients.items()}), memory)
            trainer.train_batch(b.X, b.y)
        check_equal(f"{name}, {w.size:,} weights after 3 steps with {N} digits", flatten(trainer.model.state_dict()), w)


def a_batch_is_a_better_guess(b):
    """(i) Why a batch: its mean is a guess at the mean of all data, and the variance of that guess falls with 1 / n.
    (In an epoch no digit comes twice, which makes it smaller by the factor (N - n) / (N - 1).)
    """
    gradients = b.trainer.per_example_gradients(*b.many)
    each = np.concatenate([g.reshape(len(g), -1) for g in gradients.values()], axis=1)  # (1024, 1370)
    true, total = each.mean(axis=0), len(each)
    single = ((each - true) ** 2).sum(axis=1).mean()  # the variance of one example's gradient, of all weights together
    check(single > true @ true, f"{total:,} digits: the mean gradient has the squared length {true @ true:.2f}")
    for n in (1, 4, 16, 64):
        means = np.array([each[batch].mean(axis=0) for batch in b.batches(n)])
        variance = ((means - true) ** 2).sum(axis=1).mean()
        expected = single / n * (total - n) / (total - 1)
        cosine = (means @ true / np.linalg.norm(means, axis=1) / np.linalg.norm(true)).mean()
        holds = abs(variance / expected - 1) < 0.1
        check(holds, f"batches of {n}: variance {variance:.2f}, expected {expected:.2f}; mean cosine {cosine:.2f}")
    example, once = count_multiply_adds(b.model), 2 * each.shape[1]
    arithmetic = f"{example:,} multiply-adds an example, and {once:,} for the step itself"
    grows = (64 * example + once) / (example + once)
    check(grows < 64, f"{arithmetic}: with 64 examples {grows:.0f} times as many as with 1")


# ---- helpers

IMAGES = np.array([[[[0, 1], [-1, 0]]], [[[4, 2], [1, 0]]]]), np.array([[-1], [5]])


def make_hand_trainer(optimizer):
    """Returns a trainer for the two images by hand, with the loss (s - t)^2 / 2: Huber's, for errors up to delta."""
    layers = [MaxPool2D(2), Flatten(), Dense(1, use_bias=False, kernel_initializer=ones)]
    model = Sequential(layers, input_shape=(1, 2, 2), dtype="float64")
    return Trainer(model, Huber(delta=10), copy.deepcopy(optimizer))


def count_multiply_adds(model):
    """Returns the multiply-adds of an example: y and dW of each layer, and dx of all layers except the first."""
    convolution, dense = 8 * 9 * 8 * 8, 10 * 8 * 4 * 4
    assert model.summary().macs == convolution + dense
    return 2 * convolution + 3 * dense


def flatten(arrays):
    """Returns several arrays as one vector."""
    return np.concatenate([array.ravel() for array in arrays.values()])


checked = []


def check(holds, claim):
    """Prints a claim with its numbers; raises AssertionError if it is false."""
    if not holds:
        raise AssertionError(claim)
    checked.append(claim)
    print(f"  - {claim}")


def relative_error(found, true):
    """Returns the relative error in the L2 norm: the length of the difference divided by the true length."""
    return np.linalg.norm(found - true) / np.linalg.norm(true)


def check_equal(what, found, true, within=1e-13):
    """Checks that `found` equals `true` up to rounding (or up to the error of finite differences)."""
    check(relative_error(found, true) < within, f"{what}: right to {relative_error(found, true):.0e}")


def walk(claims, b):
    """Checks the claims in order."""
    for claim in claims:
        print(inspect.getdoc(claim))
        claim(b)
        print()
    print(f"All {len(checked)} assertions passed.")


if __name__ == "__main__":
    walk([the_step_takes_the_mean, a_batch_is_a_better_guess], prepare())
