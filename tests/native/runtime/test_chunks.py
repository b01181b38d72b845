"""Predictions of dense models in chunks: the bits of tiles for any batch, and memory that does not grow with it."""

import subprocess
import sys

import numpy as np
import pytest
from blocked_models import Doubled

from minidl import Sequential
from minidl.layers import ELU, Conv2D, Dense, Dropout, Flatten, GroupNorm, ReLU, Rescale, Residual

MOST = 300
SIZES = (8, 15, 17, 31, 32, 33, 64, 65, 100, 255, MOST)


def plain():
    return (3, 10, 13), [Rescale(0.1), Flatten(), Dense(96), ReLU(), Dense(65), ELU(), Dense(7)]


def converted():
    """GroupNorm has no form for the blocked layout."""
    return (200,), [Dense(128), GroupNorm(4), ReLU(), Dense(128), Dropout(0.5), GroupNorm(2), Dense(32), ReLU()]


def branches():
    return (130,), [Residual(Dense(130), ReLU(), Dense(130)), ReLU(), Dense(48)]


def numpy_between():
    return (150,), [Dense(128), ReLU(), Doubled(), Dense(100), Doubled()]


def wide():
    """Threads share the channels of fewer than 32 examples each: together they read the weights once."""
    return (2048,), [Dense(2048), ReLU(), Dense(16)]


MODELS = (plain, converted, branches, numpy_between, wide)


def plans_of(model):
    return [segment.plan for segment in model.network.segments if hasattr(segment, "plan")]


def predicts_in_chunks(plan):
    return [form for form, _, _ in plan.schedules(64, 1)] == ["IN_CHUNKS"]


def built(make, dtype):
    """Returns a model that predicts in chunks, the same one in tiles, and examples."""
    shape, layers = make()
    chunks = Sequential(layers, input_shape=shape, dtype=dtype)
    tiles = Sequential(make()[1], input_shape=shape, dtype=dtype)
    for plan in plans_of(tiles):
        plan.blocked_limit = 0
    assert all(predicts_in_chunks(plan) for plan in plans_of(chunks))
    return chunks, tiles, np.random.default_rng(0).standard_normal((MOST, *shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", MODELS)
def test_any_batch_has_the_bits_of_tiles(make, dtype):
    chunks, tiles, x = built(make, dtype)
    expected = tiles.predict(x, num_threads=1)
    for n in SIZES:
        for threads in (1, 2, 3, 8):
            got = chunks.predict(x[:n], num_threads=threads)
            assert got.tobytes() == expected[:n].tobytes(), f"{n} examples on {threads} threads differ"
    for i in (0, 16, 31, 32, MOST - 1):
        assert chunks.predict(x[i : i + 1]).tobytes() == expected[i : i + 1].tobytes()
    assert chunks.predict(x[5:77], num_threads=2).tobytes() == expected[5:77].tobytes()


@pytest.mark.parametrize("kind", ["uint8", "float32", "float64"])
def test_rows_in_any_order_are_gathered(kind):
    chunks, tiles, _ = built(plain, "float32")
    rng = np.random.default_rng(0)
    x, rows = rng.integers(0, 256, (90, 390)).astype(kind), rng.integers(0, 90, 150)
    expected = tiles.predict(x.reshape(-1, 3, 10, 13))[rows]
    for threads in (1, 2, 3):
        y = np.full((150, 7), np.nan, "float32")
        chunks.network.segments[0].plan.predict(x, rows, chunks.network.parameters.values, y, threads)
        assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("make", MODELS)
def test_nothing_remains_of_the_prediction_before(make):
    """NaN in all weights leaves NaN in all memory, which the next prediction uses again."""
    chunks, tiles, x = built(make, "float32")
    state, expected = chunks.state_dict(), tiles.predict(x)
    for threads in (1, 2):
        for param in chunks.params.values():
            param.value[...] = np.nan
        assert np.isnan(chunks.predict(x, num_threads=threads)).all()
        chunks.load_state_dict(state)
        assert chunks.predict(x[:49], num_threads=threads).tobytes() == expected[:49].tobytes()


def test_only_models_of_mostly_dense_layers_without_empty_lanes_are_predicted_in_chunks():
    def chunks(*layers, shape):
        return predicts_in_chunks(Sequential(list(layers), input_shape=shape).network.segments[0].plan)

    assert chunks(Dense(256), ReLU(), Dense(10), shape=(784,))
    assert not chunks(Dense(17), ReLU(), Dense(17), shape=(300,))  # 15 of 32 lanes would be empty
    assert chunks(Conv2D(16, 3, padding=1), Flatten(), Dense(2048), shape=(16, 16, 16))
    assert not chunks(Conv2D(64, 3, padding=1), ReLU(), Conv2D(64, 3), Flatten(), Dense(10), shape=(3, 16, 16))


RUN = """
import resource
import numpy as np
from minidl import Sequential
from minidl.layers import Dense, ReLU

model = Sequential([Dense(512), ReLU(), Dense(512), ReLU(), Dense(16)], input_shape=(64,))
plan, param = model.network.segments[0].plan, model.network.parameters.values
assert plan.schedules(1000, 2)[0][0] == "IN_CHUNKS"
x, y = np.ones((30_000, 64), "uint8"), np.ones((30_000, 16), "float32")
def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
plan.predict(x[:1000], None, param, y[:1000], 2)
before = megabytes()
plan.predict(x, None, param, y, 2)
print(megabytes() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes")
def test_memory_does_not_grow_with_the_batch():
    """The values of all examples would take 130 MB."""
    run = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 10
