"""Bit-identical results for any threads, instruction set, batch neighbors and chunks, and for steps by hand."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minidl_c
from minidl import Sequential, Trainer
from minidl.layers import (
    GELU,
    BatchNorm1D,
    BatchNorm2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    Parallel,
    PReLU,
    ReLU,
    Rescale,
    Residual,
    RMSNorm,
    Scale,
    SiLU,
)
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Muon
from minidl_c import cpu

ROOT = Path(__file__).parents[1]
RNG = np.random.default_rng(5)
X = RNG.integers(0, 256, (600, 1, 12, 12)).astype(np.uint8)
Y = RNG.integers(0, 10, 600)
BATCHES = (1, 2, 15, 16, 17, 31, 33)
THREADS = (1, 2, 3, 8)
DTYPES = ("float32", "float64")


def make_net(dtype, rate=0.2):
    """Overlapping windows, strides, dilations and groups; with rate None, no random mask."""
    layers = [Rescale(1 / 255, -0.5), Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(3, 2, padding=1)]
    layers += [Conv2D(6, 3, padding=2, dilation=2), ReLU(), Dropout(rate)]
    layers += [Conv2D(8, 3, stride=2, dilation=(2, 1), groups=2, padding=1), ReLU(), Flatten()]
    layers += [Dense(40), ReLU(), Dropout(rate), Dense(10)]
    return Sequential(layers, input_shape=(1, 12, 12), dtype=dtype)


def blocks(dtype, rate=0.2):
    """Layers that normalize, over the batch and otherwise, and branches that fork and join."""
    body = [DepthwiseConv2D(3, padding=1), BatchNorm2D(), GELU(), Conv2D(6, 1, use_bias=False), GroupNorm(3)]
    layers = [Rescale(1 / 255, -0.5), Conv2D(6, 3, stride=2, padding=1, use_bias=False), BatchNorm2D(), ReLU()]
    layers += [Residual(LayerNorm(axis="channels"), Conv2D(6, 1), RMSNorm(axis="channels"), Scale(0.1, use_bias=True))]
    layers += [Residual(*body), Parallel([Conv2D(5, 1), PReLU()], MaxPool2D(3, 1, padding=1)), Flatten()]
    layers += [Dense(20), BatchNorm1D(), SiLU(), Dropout(rate), Dense(10)]
    return Sequential(layers, input_shape=(1, 12, 12), dtype=dtype)


def make_trainer(dtype, threads=None, rate=0.2, make=make_net, kind=SGD):
    optimizer = kind(lambda step: 0.1 / (1 + step), momentum=0.9, nesterov=True)
    return Trainer(make(dtype, rate), "softmax_cross_entropy", optimizer, num_threads=threads)


def digest(model, *more):
    """Returns one hash of weights, gradients, running statistics and all other state."""
    hasher = hashlib.sha256()
    for name, param in sorted(model.params.items()):
        for array in (param.value, param.grad):
            hasher.update(name.encode() + np.ascontiguousarray(array).tobytes())
    for array in (*model.state_dict().values(), *more):
        hasher.update(np.asarray(array).tobytes())
    return hasher.hexdigest()


PRINTED = [(dtype, make, SGD) for make in (make_net, blocks) for dtype in DTYPES]  # as a script
PRINTED += [(dtype, make_net, Muon) for dtype in DTYPES]


def train_100_steps(dtype, batch_size, threads=None, make=make_net, kind=SGD):
    """Trains on 600 rows for at least 100 steps, in whole epochs with a partial last batch."""
    trainer = make_trainer(dtype, threads, make=make, kind=kind)
    epochs = -(-100 // -(-len(X) // batch_size))
    history = trainer.fit(X, Y, epochs, batch_size=batch_size, verbose=0)
    assert trainer.step >= 100
    return digest(trainer.model, history["loss"], trainer.model.predict(X[:50], threads))


# ---- threads and instruction sets
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_size", [5, 64, 290])  # fewer tiles than threads, more, above 16
@pytest.mark.parametrize("make", [make_net, blocks])
def test_weights_do_not_depend_on_the_number_of_threads(make, batch_size, dtype):
    result = {threads: train_100_steps(dtype, batch_size, threads, make) for threads in THREADS}
    assert len(set(result.values())) == 1, result


def test_other_data_gives_other_bits():
    """The digests compared above are not constants."""
    assert train_100_steps("float32", 64) != train_100_steps("float32", 63)


@pytest.fixture(scope="module")
def digests_of():
    """Returns what this file prints as a script under an instruction set; skips if that is not available."""

    def run(isa):
        built = (Path(minidl_c.__file__).parent / isa / "build.json").is_file()
        if not built or isa not in cpu.supported():
            pytest.skip(f"no {isa}: not built here, or not for this processor")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONPATH": path, "MINIDL_ISA": isa, "OPENBLAS_CORETYPE": "Nehalem"},  # another BLAS
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        used, *digests = done.stdout.split()
        assert used == isa
        return digests

    return run


def test_v3_and_v4_give_the_same_weights(digests_of):
    assert digests_of("v3") == digests_of("v4")


def test_another_process_gives_the_same_weights(digests_of):
    assert digests_of(minidl_c.isa) == [train_100_steps(dtype, 64, None, *of) for dtype, *of in PRINTED]


# ---- neighbors in the batch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("make", [make_net, blocks])
def test_a_row_of_predict_does_not_depend_on_its_batch(make, dtype, threads):
    model = make(dtype)
    alone = [model.predict(X[i : i + 1], threads).tobytes() for i in range(max(BATCHES))]
    for n in BATCHES:
        together = model.predict(X[:n], threads)
        assert [row.tobytes() for row in together] == alone[:n], n
    shifted = model.predict(X[3 : max(BATCHES)], threads)  # other lanes, other tiles
    assert [row.tobytes() for row in shifted] == alone[3:]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_its_neighbors_values(dtype):
    model, x = make_net(dtype), X[:16].astype(dtype)
    before = model.predict(x)
    x[3] = 1e30
    after = model.predict(x)
    keep = np.arange(16) != 3
    assert after[keep].tobytes() == before[keep].tobytes()
    assert after[3].tobytes() != before[3].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_predict_is_equal_in_blocks_of_1024(dtype):
    model, x = make_net(dtype), np.tile(X, (4, 1, 1, 1))
    assert model.predict(x).tobytes() == model.predict(x[:600]).tobytes() * 4


# ---- training, forward and backward by hand, chunks
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("make", "n"), [*((make_net, n) for n in (*BATCHES, 290)), *((blocks, n) for n in (2, 33, 290))]
)
def test_by_hand_gives_the_gradients_of_train_batch(make, n, dtype):
    for threads in (1, 3):
        trainer, model = make_trainer(dtype, threads, make=make), make(dtype)
        scores = model.forward(X[:n], training=True)
        losses, dscores = softmax_cross_entropy(scores, Y[:n])
        model.backward(dscores)
        loss = trainer.train_batch(X[:n], Y[:n])
        assert loss == pytest.approx(losses.mean(dtype="f8"), rel=1e-14)
        for name, param in model.params.items():
            divided = param.grad / param.grad.dtype.type(n)
            assert divided.tobytes() == trainer.model.params[name].grad.tobytes(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [*BATCHES, 290])
def test_training_and_prediction_compute_the_same_scores(n, dtype):
    """Without random masks."""
    model = make_net(dtype, rate=0)
    assert model.predict(X[:n]).tobytes() == model.forward(X[:n], training=True).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_is_the_sum_over_its_examples(dtype):
    """To rounding: each example alone, added up in float64."""
    model, total = make_net(dtype, rate=0), {}
    for i in range(20):
        scores = model.forward(X[i : i + 1], training=True)
        model.backward(softmax_cross_entropy(scores, Y[i : i + 1])[1])
        for name, param in model.params.items():
            total[name] = total.get(name, 0) + param.grad.astype("f8")
    scores = model.forward(X[:20], training=True)
    model.backward(softmax_cross_entropy(scores, Y[:20])[1])
    for name, param in model.params.items():
        atol = 100 * np.finfo(dtype).eps * np.abs(total[name]).max()
        np.testing.assert_allclose(param.grad, total[name], rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fit_in_chunks_equals_train_batch_step_by_step(dtype):
    """Without random masks: in fit's X a row has another example id than in a batch."""
    chunked, stepped = make_trainer(dtype, rate=0), make_trainer(dtype, rate=0)
    history = chunked.fit(X, Y, epochs=2, batch_size=7, shuffle=False, verbose=0)
    for epoch in range(2):
        losses = [(stepped.train_batch(X[at : at + 7], Y[at : at + 7]), len(Y[at : at + 7])) for at in range(0, 600, 7)]
        mean = sum(loss * n for loss, n in losses) / 600
        assert history["loss"][epoch] == pytest.approx(mean, rel=1e-12)
    assert chunked.step == stepped.step == 2 * 86
    assert digest(chunked.model) == digest(stepped.model)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_fits_equal_one(dtype):
    """Velocity, learning rate and the order of the examples continue."""
    once, twice = make_trainer(dtype), make_trainer(dtype)
    once.fit(X, Y, epochs=3, verbose=0)
    twice.fit(X, Y, epochs=1, verbose=0)
    history = twice.fit(X, Y, epochs=2, verbose=0)
    assert digest(once.model, once.history["loss"]) == digest(twice.model, history["loss"])


# ---- few examples, which kernels compute one by one
def gradients_by_hand(model, x, dy):
    """Returns y, dx and all parameter gradients of a batch, by hand."""
    y = model.forward(x, training=True)
    dx = model.backward(dy)
    return [y, dx, *(param.grad.copy() for param in model.params.values())]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(12))
def test_small_batches_have_the_bits_of_a_tile(dtype, seed):
    """A batch of n, and the same n in a batch of 9 whose other gradients are zero: the sums over both are equal."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.choice([1, 2, 6, 16, 32])), int(rng.integers(5, 14)), int(rng.integers(5, 14)))
    groups = 2 if shape[0] % 2 == 0 and rng.random() < 0.3 else 1
    filters = groups * int(rng.choice([1, 3, 16, 17, 24]))
    kernel = tuple(int(k) for k in rng.integers(1, 5, 2))
    options = {"stride": int(rng.integers(1, 3)), "padding": int(rng.integers(0, 3)), "groups": groups}
    layers = [Conv2D(filters, kernel, **options), ReLU(), Flatten(), Dense(int(rng.choice([5, 16, 130, 300])))]
    model = Sequential(layers, input_shape=shape, dtype=dtype, seed=seed)
    for param in model.params.values():
        param.value = rng.standard_normal(param.value.shape)  # biases start at zero, which hides missing terms
    x = rng.standard_normal((9, *shape)).astype(dtype)
    dy = rng.standard_normal((9, *model.output_shape)).astype(dtype)
    for n in (1, 2, 3, 4, 5):
        few = gradients_by_hand(model, x[:n], dy[:n])
        y, dx, *grads = gradients_by_hand(model, x, np.where(np.arange(9)[:, None] < n, dy, 0))
        for a, b in zip(few, [y[:n], dx[:n], *grads], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{n} examples, {model!r} of {shape}")


if __name__ == "__main__":
    print(minidl_c.isa, *(train_100_steps(dtype, 64, None, *of) for dtype, *of in PRINTED))
