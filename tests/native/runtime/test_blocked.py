"""Predictions of few examples, in the blocked layout, have the bits of tiles: each layer, whole models, any threads."""

import numpy as np
import pytest
from blocked_layers import blocked_cases
from blocked_models import FULL, MODELS, built, plain
from c_export.models import randomize
from contract.every_layer import DRAWS, PREDICTED_IN_TILES
from slow_marks import slow_after

from minidl import Sequential
from minidl.initializers import he_uniform
from minidl.layers import BatchNorm2D, Conv2D, Dense, ReLU

DTYPES = ("float32", "float64")


def check_rows(predict, x, sizes, threads, about):
    """Checks the first rows of x, in batches of these sizes, against their bits in full tiles."""
    full = predict(x, 1)
    for n in sizes:
        for count in threads:
            got = predict(x[:n], count)
            assert got.tobytes() == full[:n].tobytes(), f"{about}: {n} examples on {count} threads differ"


@pytest.mark.parametrize("dtype", slow_after(1, DTYPES))
@pytest.mark.parametrize("seed", slow_after(1, range(4)))
@pytest.mark.filterwarnings("ignore:.*images are:UserWarning")  # some random shapes look like channels last
def test_each_layer_has_the_bits_of_a_tile(seed, dtype):
    compared = set()
    for name, case in blocked_cases(seed):
        layer, rng = case.layer, np.random.default_rng(seed)
        model = randomize(Sequential([layer], case.in_shape, dtype=dtype), rng)
        plan = model.network.segments[0].plan
        limit = plan.blocked_limit
        if not limit:
            continue
        x = case.values(rng, (FULL, *case.in_shape)).astype(dtype)

        def predict(x, threads, model=model, plan=plan, limit=limit):
            plan.blocked_limit = limit if len(x) < FULL else 0
            return model.predict(x, threads)

        check_rows(predict, x, {1, limit}, (1, 2, 3), f"{layer!r} of {case.in_shape}")
        compared.add(name)
    assert set(DRAWS) - compared == PREDICTED_IN_TILES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MODELS)
def test_any_number_of_examples_has_the_same_bits(make, dtype):
    model, x = built(make, dtype)
    assert model.network.segments[0].plan.blocked_limit

    def predict(x, threads):
        return model.predict(x, num_threads=threads)

    check_rows(predict, x[:FULL], (1, 2, 3, 4, 7), (1, 2, 3, 8), make.__name__)
    check_rows(predict, x[:FULL], range(1, 33), (2,), make.__name__)
    assert predict(x, 2)[FULL:].tobytes() == predict(x[FULL:], 1).tobytes()  # after two full tiles


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("make", "in_shape"),
    [
        (lambda: Conv2D(70, 1), (300, 5, 5)),  # passes over the channels; strips of several widths; a part of a vector
        (lambda: Conv2D(96, 1, groups=3), (396, 6, 6)),
        (lambda: Conv2D(37, 1), (21, 7, 7)),
        (lambda: Conv2D(1030, 1), (300, 2, 2)),  # few pixels: each pass prefetches the next one
        (lambda: Conv2D(120, 3), (40, 5, 5)),
        (lambda: Dense(520), (515,)),
    ],
)
def test_sums_in_passes_have_the_same_bits(make, in_shape, dtype):
    layer = make()
    model = Sequential([layer], in_shape, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((FULL, *in_shape)).astype(dtype)
    plan = model.network.segments[0].plan

    def predict(x, threads):
        plan.blocked_limit = 15 if len(x) < FULL else 0
        return model.predict(x, num_threads=threads)

    check_rows(predict, x, (1, 3), (1, 2, 5), repr(layer))
    if getattr(layer, "kernel_size", 1) == 1:
        groups = getattr(layer, "groups", 1)
        weights = np.split(layer.params["weight"].value.reshape(layer.out_shape[0], -1), groups)
        parts = zip(np.split(x, groups, axis=1), weights, strict=True)
        expected = np.concatenate([np.einsum("nc...,kc->nk...", part, weight) for part, weight in parts], axis=1)
        np.testing.assert_allclose(predict(x, 1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["uint8", "float32", "float64"])
def test_all_kinds_of_numbers_are_gathered(kind):
    model, _ = built(plain, "float32")
    x = np.random.default_rng(0).integers(0, 256, (FULL, 2, 9, 10)).astype(kind)
    check_rows(lambda x, threads: model.predict(x, num_threads=threads), x, (1, 2, 5), (1, 2), kind)


@pytest.mark.parametrize("make", MODELS)
def test_what_the_lanes_after_the_last_channel_hold_has_no_effect(make):
    """NaN in all weights and inputs leaves NaN in every lane of the memory, which the next prediction uses again."""
    model, x = built(make, "float32")
    state, expected = model.state_dict(), model.predict(x[:2])
    assert np.isfinite(expected).all()
    for threads in (1, 2):
        for param in model.params.values():
            param.value[...] = np.nan
        assert np.isnan(model.predict(x[:2], num_threads=threads)).any()
        model.load_state_dict(state)
        for n in (1, 2):
            assert model.predict(x[:n], num_threads=threads).tobytes() == expected[:n].tobytes()


@pytest.mark.parametrize("make", MODELS)
def test_the_next_prediction_uses_weights_that_were_written_in_place(make):
    model, x = built(make, "float32")
    other, _ = built(make, "float32", seed=1)
    model.predict(x[:1])
    for name, param in model.params.items():
        param.value[...] = other.params[name].value
    model.load_state_dict(model.state_dict() | {k: v for k, v in other.state_dict().items() if "running" in k})
    assert model.predict(x[:1]).tobytes() == other.predict(x[:1]).tobytes()


def test_wide_models_are_predicted_blocked_and_narrow_ones_in_tiles():
    def limit(*layers, shape=(16, 8, 8)):
        return Sequential(list(layers), input_shape=shape).network.segments[0].plan.blocked_limit

    assert limit(Conv2D(64, 3), BatchNorm2D(), ReLU(), Conv2D(64, 3)) >= 12
    assert limit(Conv2D(4, 3)) < 4
    assert limit(Dense(256), ReLU(), Dense(256), shape=(256,)) >= 12  # all examples together read the weights once


def test_a_weight_initializer_sees_the_shape_of_pytorch():
    shapes = []

    def init(rng, shape):
        shapes.append(shape)
        return he_uniform(rng, shape)

    model = Sequential([Conv2D(5, (3, 2), kernel_initializer=init)], input_shape=(4, 6, 6))
    assert shapes == [(5, 4, 3, 2)]
    assert model.params["0.weight"].value.shape == (5, 4, 3, 2)
    assert model.params["0.weight"].value.transpose(1, 2, 3, 0).flags.c_contiguous  # as the kernel reads it
