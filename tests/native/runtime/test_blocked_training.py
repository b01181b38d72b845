"""Training of few examples, in the blocked layout, has the bits of tiles: each layer, whole models, any threads."""

import contextlib

import numpy as np
import pytest
from blocked_layers import blocked_cases
from blocked_models import MODELS, built
from c_export.models import randomize
from contract.every_layer import DRAWS, TRAINED_IN_TILES
from slow_marks import slow_after

from minidl import Sequential, Trainer
from minidl.layers import (
    BatchNorm2D,
    ColorJitter,
    Conv2D,
    ConvTranspose2D,
    Cutout,
    Dense,
    DepthwiseConv2D,
    Dropout2D,
    Flatten,
    GaussianNoise,
    GlobalAvgPool2D,
    GroupNorm,
    MaxPool2D,
    Pad2D,
    Parallel,
    RandomRotation,
    RandomShift,
    RandomZoom,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    Scale,
    Sigmoid,
    SqueezeExcite,
    StochasticDepth,
    Upsample2D,
)
from minidl.optimizers import SGD, Adam

DTYPES = ("float32", "float64")
MOST = 16  # examples of a tile


# ---- each layer


class Step:
    """Training steps of one layer, without a loss in Python; a Scale before it sees the gradient of its input."""

    def __init__(self, case, dtype, seed):
        rng = np.random.default_rng(seed)
        seen = [] if case.categories else [Scale(use_bias=True)]
        layers = [*seen, case.layer, Flatten(), Dense(3)]
        self.model = randomize(Sequential(layers, case.in_shape, seed=seed, dtype=dtype), rng)
        for param in [*self.model.params.values()][: 2 * case.limited]:  # those of the Scale
            param.value = np.abs(param.value)
        self.state = self.model.state_dict()
        self.nan = {name: np.full_like(value, np.nan) for name, value in self.state.items()}
        self.x = case.values(rng, (MOST, *case.in_shape)).astype(dtype)
        self.y, self.weights = rng.integers(0, 3, MOST), rng.uniform(0, 2, MOST)
        self.trainer = Trainer(self.model, "softmax_cross_entropy", SGD(1e-3))
        self.plan = self.trainer.steps().plan

    def run(self, n, threads, limit, state=None):
        """Returns the loss, gradients and the next state, as bytes, of a step of n examples."""
        self.model.load_state_dict(self.state if state is None else state)
        self.plan.blocked_limit, self.trainer.num_threads, self.trainer.step = limit, threads, 9
        loss = self.trainer.train_batch(self.x[:n], self.y[:n], sample_weight=self.weights[:n])
        arrays = [*(p.grad for p in self.model.params.values()), *self.model.state_dict().values()]
        return np.float64(loss).tobytes(), [array.tobytes() for array in arrays]


@pytest.mark.parametrize("dtype", slow_after(1, DTYPES))
@pytest.mark.parametrize("seed", slow_after(1, range(4)))
@pytest.mark.filterwarnings("ignore:.*images are:UserWarning")  # some random shapes look like channels last
def test_each_layer_has_the_bits_of_a_tile(seed, dtype):
    """Steps with NaN in all parameters leave it in every lane of the memory that the next step uses again."""
    compared = set()
    for k, (name, case) in enumerate(blocked_cases(seed)):
        step = Step(case, dtype, seed)
        try:
            step.plan.blocked_limit = MOST
        except ValueError:
            continue
        for n in (2 + k % 8, MOST if k % 2 else max(1, case.layer.min_batch_size)):
            tiles = step.run(n, 1, 0)
            with contextlib.suppress(FloatingPointError):
                step.run(n, 2, MOST, step.nan)
            about = f"{case.layer!r} of {case.in_shape}: {n} examples on {1 + k % 3} threads differ"
            assert step.run(n, 1 + k % 3, MOST) == tiles, about
        compared.add(name)
    assert set(DRAWS) - compared == TRAINED_IN_TILES


# ---- models


def squeeze():
    """Branches of equal and unequal channels, whose gradients meet again."""
    wide = Parallel([Conv2D(16, 1), ReLU()], [Conv2D(32, 3, padding=1), BatchNorm2D()], join="concat")
    body = [BatchNorm2D(), ReLU(), Conv2D(48, 3, padding=1), Dropout2D(0.2), StochasticDepth(0.1)]
    return (3, 8, 9), [Conv2D(16, 3, padding=1), wide, Residual(*body), MaxPool2D(2), GlobalAvgPool2D(), Dense(5)]


def augmented():
    return (1, 10, 10), [
        RandomShift(2),
        Cutout(3, rate=0.5),
        ColorJitter(0.3, 0.3),
        RandomRotation(20),
        RandomZoom(0.2),
        GaussianNoise(0.1),
        Conv2D(18, 3, stride=2, padding=1),
        BatchNorm2D(),
        Sigmoid(),
        Flatten(),
        Dense(4),
    ]


def light():
    block = [Conv2D(40, 1), BatchNorm2D(), ReLU(), DepthwiseConv2D(3, padding=1), BatchNorm2D(), ReLU(), Conv2D(24, 1)]
    end = [DepthwiseConv2D(3, stride=2, use_bias=False), Flatten(), Dense(7)]
    return (3, 8, 8), [Conv2D(24, 3, stride=2, padding=1), Conv2D(24, 3, padding=1), Residual(*block), *end]


def strided_branches():
    """The first branch ends with fewer pixels than it began with, or with more."""
    fewer = Parallel([Conv2D(16, 3, stride=2, padding=1)], [MaxPool2D(2)], join="concat")
    more = Parallel([Upsample2D(2), Conv2D(32, 1)], [Upsample2D(2)], join="concat")
    return (3, 16, 16), [Conv2D(32, 3, padding=1), fewer, more, Conv2D(4, 3), Flatten(), Dense(3)]


def shared_memory():
    """Threads that share the channels run three ops backward without meeting, in memory of their own."""
    return (3, 10, 10), [Conv2D(32, 3), Pad2D(1), DepthwiseConv2D(3), MaxPool2D(2), Upsample2D(2), Flatten(), Dense(5)]


def reshaped_rows():
    """A Reshape leaves the channels and changes the rows, which threads share."""
    ops = [Conv2D(16, 3, padding=1), ReLU(), Reshape((16, -1)), ReLU(), Rescale(0.5), Reshape((16, 4, 16)), ReLU()]
    return (3, 8, 8), [*ops, Conv2D(16, 1), Flatten(), Dense(3)]


def many_pixels():
    """More pixels than a run of a sum: see pixel_sums.h."""
    body = [Conv2D(18, 1), BatchNorm2D(), SqueezeExcite(3), DepthwiseConv2D(3, padding=1), Scale(0.5, use_bias=True)]
    return (3, 18, 19), [Conv2D(18, 3, padding=1), Residual(*body), GlobalAvgPool2D(), Dense(2)]


IN_TILES = ("mixed", "mobile", "numpy_between")
TRAINED = [
    make
    for make in (*MODELS, squeeze, augmented, light, strided_branches, shared_memory, reshaped_rows, many_pixels)
    if make.__name__ not in IN_TILES
]


def fitted(make, n, threads, limit, dtype="float32", optimizer=None, frozen=(), options=None, **fit):
    """Trains batches of n examples, and one that is smaller; returns the bytes of the model's state, and the losses."""
    model, x = built(make, dtype)
    for k in frozen:
        model.layers[k].trainable = False
    y = np.random.default_rng(1).standard_normal((len(x), *model.output_shape)).astype(dtype)
    optimizer = optimizer or SGD(1e-4, momentum=0.9)
    trainer = Trainer(model, "mean_squared_error", optimizer, num_threads=threads, **options or {})
    trainer.steps().plan.blocked_limit = limit
    rows = np.arange(4 * n + n // 2) % len(x)
    history = trainer.fit(x[rows], y[rows], epochs=2, batch_size=n, verbose=0, **fit)
    return [value.tobytes() for value in model.state_dict().values()], history["loss"]


@pytest.mark.parametrize("dtype", slow_after(1, DTYPES))
@pytest.mark.parametrize("make", TRAINED)
def test_any_number_of_examples_and_threads_trains_the_same_bits(make, dtype):
    for n in (1, 2, 5, 13, MOST):
        tiles = fitted(make, n, 1, 0, dtype)
        assert np.isfinite(tiles[1]).all()
        for threads in (1, 2, 3) if n < 3 else (2, 8):
            assert fitted(make, n, threads, MOST, dtype) == tiles, f"{n} examples on {threads} threads differ"


@pytest.mark.parametrize("make", TRAINED)
@pytest.mark.parametrize("option", ["adam", "frozen", "weights", "clipped"])
def test_options_of_a_trainer_change_the_same_bits(option, make):
    weights = np.random.default_rng(2).uniform(0, 2, 4 * 5 + 2)

    def run(threads, limit):
        optimizer = Adam(1e-4) if option == "adam" else SGD(1e-4, momentum=0.9)
        options = {"clip_norm": 0.1} if option == "clipped" else {}
        fit = {"sample_weight": weights} if option == "weights" else {}
        return fitted(make, 5, threads, limit, "float32", optimizer, (0,) if option == "frozen" else (), options, **fit)

    assert run(2, MOST) == run(1, 0)


def trainer_of(model):
    return Trainer(model, "softmax_cross_entropy", SGD(0.1))


def plan_of(*layers, shape):
    return trainer_of(Sequential(list(layers), input_shape=shape)).steps().plan


def test_models_with_parameters_outside_the_layout_are_trained_in_tiles():
    for layer in (GroupNorm(2), ConvTranspose2D(8, 3), DepthwiseConv2D(3, depth_multiplier=2), Conv2D(6, 3, groups=2)):
        model = Sequential([Conv2D(32, 3), layer, Flatten(), Dense(3)], input_shape=(3, 9, 9))
        trainer = trainer_of(model)
        plan = trainer.steps().plan
        assert plan.blocked_limit == 0
        with pytest.raises(ValueError, match="blocked_limit: expected a number from 0 to 0, got 1"):
            plan.blocked_limit = 1
        trainer.fit(np.ones((3, 3, 9, 9), "f4"), np.arange(3), batch_size=1, verbose=0)


def test_wide_models_are_trained_blocked_and_narrow_ones_in_tiles():
    def limit(*layers, shape=(16, 8, 8)):
        return plan_of(*layers, Flatten(), Dense(3), shape=shape).blocked_limit

    assert limit(Conv2D(64, 3), BatchNorm2D(), ReLU(), Conv2D(64, 3)) >= 12
    assert limit(Conv2D(4, 3), Conv2D(4, 3)) < 4
    assert 4 <= limit(Flatten(), Dense(256), ReLU(), Dense(256), shape=(1, 16, 16)) < MOST


def test_steps_of_few_examples_need_little_memory():
    """The blocked layout takes memory for each example, a tile for 16."""
    plan = plan_of(Conv2D(64, 3), ReLU(), Conv2D(64, 3, algorithm="direct"), Flatten(), Dense(3), shape=(3, 32, 32))
    one = plan.step_bytes(1)
    plan.blocked_limit = 0
    assert one < plan.step_bytes(1) / 6
