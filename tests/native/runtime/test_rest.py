"""The examples after the full tiles, in the blocked layout: the same bits as in tiles, for any batch and threads."""

import numpy as np
import pytest
from c_export.models import randomize

from minidl import Sequential, Trainer
from minidl.layers import (
    AvgPool2D,
    BatchNorm2D,
    ColorJitter,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool2D,
    GroupNorm,
    LocalResponseNorm,
    MaxPool2D,
    Parallel,
    PixelUnshuffle,
    PReLU,
    ReLU,
    Rescale,
    Residual,
    Tanh,
)
from minidl.optimizers import SGD

CLASSES, STEPS, FORCED = 5, 3, 16


def convs():
    layers = [Rescale(0.5), Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(20, 3), ReLU()]
    return (1, 10, 10), [*layers, Flatten(), Dense(40), ReLU(), Dense(CLASSES)]


def norms():
    body = [Conv2D(16, 3, padding=1, use_bias=False), BatchNorm2D(affine=False), ReLU(), Dropout(0.3)]
    start = [ColorJitter(0.3, 0.2), Conv2D(16, 3, padding=1), BatchNorm2D(), ReLU()]
    return (3, 6, 6), [*start, Residual(*body), GlobalAvgPool2D(), Dense(CLASSES)]


def light():
    concat = Parallel([Conv2D(5, 1), Tanh()], [DepthwiseConv2D(3, padding=1), BatchNorm2D()], join="concat")
    end = [PReLU(), AvgPool2D(2), Flatten(), Dense(CLASSES)]
    return (4, 6, 6), [Conv2D(8, 3, padding=1), concat, Conv2D(16, 3, padding=1), *end]


def dense():
    return (37,), [Dense(33), Tanh(), Dropout(0.5), Dense(70), ReLU(), Dense(CLASSES)]


def converted():
    """Ops that get a tile of a chunk, and save something for backward, after ops whose memory lives as long."""
    start = [Conv2D(16, 3, padding=1), PixelUnshuffle(2), LocalResponseNorm(3), Conv2D(32, 3, padding=1), BatchNorm2D()]
    body = [GroupNorm(2, affine=False), Conv2D(32, 1), ReLU()]
    return (4, 8, 8), [*start, ReLU(), Residual(*body), Conv2D(32, 3, padding=1), Flatten(), Dense(CLASSES)]


NETS = (convs, norms, light, dense, converted)
BATCHES = (17, 24, 33, 40, 50, 65, 79, 130, 255)


class Steps:
    """Training steps of one net and batch from the same state, and a prediction."""

    def __init__(self, make, dtype, batch):
        shape, layers = make()
        rng = np.random.default_rng(batch)
        self.model = randomize(Sequential(layers, input_shape=shape, dtype=dtype, seed=1), rng)
        self.state = self.model.state_dict()
        n = STEPS * batch
        self.X = rng.standard_normal((n, *shape)).astype(dtype)
        self.y, self.weights = rng.integers(0, CLASSES, n), rng.uniform(0, 2, n)
        self.trainer = Trainer(self.model, "softmax_cross_entropy", SGD(0.01, momentum=0.9), clip_norm=1.0)
        self.plans = self.trainer.steps().plan, self.model.network.segments[0].plan
        self.batch = batch

    def run(self, limit, threads):
        """Returns losses, weights, statistics, gradients and scores as bytes."""
        for plan in self.plans:
            plan.blocked_limit = limit
        self.model.load_state_dict(self.state)
        self.trainer = Trainer(
            self.model, "softmax_cross_entropy", SGD(0.01, momentum=0.9), clip_norm=1.0, num_threads=threads
        )
        self.trainer.steps().plan.blocked_limit = limit
        options = {"batch_size": self.batch, "shuffle": False, "verbose": 0, "sample_weight": self.weights}
        losses = self.trainer.fit(self.X, self.y, **options)["loss"]
        arrays = [*self.model.state_dict().values(), *(p.grad for p in self.model.params.values())]
        arrays.append(self.model.predict(self.X[: self.batch], num_threads=threads))
        return repr(losses), b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", NETS)
def test_a_rest_has_the_bits_of_tiles_for_any_threads(make, dtype):
    rng = np.random.default_rng(NETS.index(make))
    for batch in BATCHES:
        steps = Steps(make, dtype, batch)
        want = steps.run(0, 1)
        for threads in (1, 2, *rng.integers(3, 41, 2)):
            assert steps.run(FORCED, int(threads)) == want, f"{batch} examples on {threads} threads"


def test_the_batches_of_the_test_above_have_a_rest():
    forms = {1: set(), 2: set(), 16: set()}
    for make in NETS:
        for batch in BATCHES:
            for threads, found in forms.items():
                steps = Steps(make, "float32", batch)
                for plan in steps.plans:
                    plan.blocked_limit = FORCED
                    found.add(tuple(form for form, _, _ in plan.schedules(batch, threads)))
    assert all(("IN_TILES", "IN_CHUNKS") in forms[threads] for threads in (1, 2)), forms
    assert ("IN_CHUNKS",) in forms[16]


def test_one_thread_computes_one_more_tile_and_the_other_the_rest_of_a_prediction():
    lenet = [Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5), ReLU(), MaxPool2D(2), Flatten(), Dense(120)]
    model = Sequential([*lenet, ReLU(), Dense(10)], input_shape=(1, 28, 28), seed=3)
    plan = model.network.segments[0].plan
    X = np.random.default_rng(0).standard_normal((54, 1, 28, 28)).astype(np.float32)
    rows = np.concatenate([model.predict(X[i : i + 1], num_threads=1) for i in range(len(X))])
    for n in (49, 51, 54):
        assert plan.schedules(n, 2) == [("IN_TILES", 48, 2), ("IN_CHUNKS", n - 48, 2)]
        assert model.predict(X[:n], num_threads=2).tobytes() == rows[:n].tobytes()


def test_tables_of_categories_have_a_rest():
    """An embedding has no sums, as a dense layer: each slot computes its gradient from the examples."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (50, 6)).astype(np.float32), rng.integers(0, CLASSES, 50)

    def digest(limit, threads):
        model = Sequential([Embedding(9, 20), Flatten(), Dense(CLASSES)], input_shape=(6,), seed=2)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), num_threads=threads)
        plan = trainer.steps().plan
        plan.blocked_limit = limit
        trainer.fit(X, y, batch_size=50, epochs=2, verbose=0)
        return [array.tobytes() for array in model.state_dict().values()]

    want = digest(0, 1)
    for threads in (1, 2, 5):
        assert digest(FORCED, threads) == want


@pytest.mark.parametrize("bad", [3, 20, 33])
def test_a_loss_that_is_not_finite_in_the_rest_stops_the_step(bad):
    steps = Steps(convs, "float32", 34)
    X = steps.X[:34].copy()
    X[bad] = 3e38
    for plan in steps.plans:
        plan.blocked_limit = FORCED
    before = [value.tobytes() for value in steps.model.state_dict().values()]
    with pytest.raises(FloatingPointError):
        steps.trainer.train_batch(X, steps.y[:34])
    assert [value.tobytes() for value in steps.model.state_dict().values()] == before


def test_the_memory_of_a_step_includes_its_rest():
    plan = Steps(norms, "float32", 33).plans[0]
    tiles, both = plan.step_bytes(32, 1), plan.step_bytes(33, 1)
    assert [form for form, _, _ in plan.schedules(33, 1)] == ["IN_TILES", "IN_CHUNKS"]
    assert both > tiles
