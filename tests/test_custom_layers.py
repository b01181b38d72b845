"""Custom layers, in NumPy and with a kernel, are saved, resumed and reproduced without any code of their own for it."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import minidl
from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import BatchNorm2D, Columns, Conv2D, Dense, Flatten, MaxPool2D, Parallel, Residual
from minidl.layers import SiLU as OurSiLU
from minidl.optimizers import Adam
from minidl.testing import check_layer

EXAMPLES = Path(__file__).parents[1] / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(minidl.__file__).parents[1])}
RNG = np.random.default_rng(0)
X, Y = RNG.random((90, 2, 8, 8)), RNG.integers(0, 4, 90)
FIT = {"epochs": 3, "batch_size": 20, "verbose": 0}


@pytest.fixture(scope="module")
def kernel(made_once):
    """A clean folder with the files of examples/custom_kernel, built as its README.md says."""

    def build(folder):
        shutil.copytree(EXAMPLES / "custom_kernel", folder, ignore=shutil.ignore_patterns("*.c", "*.so", "build"))
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        environment = {**ENVIRONMENT, "CFLAGS": "-Wall"}
        built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
        assert "warning" not in built.stdout + built.stderr
        assert "performance hint" not in built.stdout + built.stderr

    return made_once("custom_kernel", build)


@pytest.fixture(scope="module")
def native(kernel):
    sys.path.insert(0, str(kernel))
    try:
        return import_module("train")
    finally:
        sys.path.remove(str(kernel))


@pytest.fixture(params=["NumPy", "SiLU", "ChannelSwish"])
def layer(request):
    """The class of a custom layer: one in NumPy, or one with a kernel."""
    if request.param != "NumPy":
        return getattr(request.getfixturevalue("native"), request.param)
    return runpy.run_path(str(EXAMPLES / "custom_layer.py"))["Scale"]


def trainer(layer, threads=2):
    body = [Conv2D(4, 3, padding=1), BatchNorm2D(), layer()]
    tail = [MaxPool2D(2), layer(), Flatten(), Dense(4)]
    model = Sequential([Conv2D(4, 1), layer(), Residual(*body, shortcut=layer()), *tail], X.shape[1:])
    return Trainer(model, "softmax_cross_entropy", Adam(0.01), ["accuracy"], num_threads=threads)


def weights(model):
    return b"".join(array.tobytes() for array in model.state_dict().values())


class Interrupt:
    def on_step_end(self, trainer, step, loss):
        if step == 7:
            raise KeyboardInterrupt


def test_runs_are_reproducible_for_any_number_of_threads(layer):
    result = set()
    for threads in (1, 2, 3):
        one = trainer(layer, threads)
        one.fit(X, Y, **FIT)
        result.add(weights(one.model))
    assert len(result) == 1


def test_an_interrupted_and_resumed_run_has_the_same_end(layer, tmp_path):
    uninterrupted = trainer(layer)
    uninterrupted.fit(X, Y, **FIT)
    path, broken = tmp_path / "run.safetensors", trainer(layer)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(X, Y, callbacks=[Checkpoint(path, every_n_steps=3), Interrupt()], **FIT)
    resumed = Trainer.resume(path, custom_objects={layer.__name__: layer})
    assert resumed.step == 6
    resumed.num_threads = 1
    history = resumed.fit(X, Y, **FIT)
    assert weights(resumed.model) == weights(uninterrupted.model)
    assert history["loss"] == uninterrupted.history["loss"]


def test_a_model_is_saved_and_loaded(layer, tmp_path):
    model = trainer(layer).model
    model.save(tmp_path / "model.safetensors")
    same = Sequential.load(tmp_path / "model.safetensors", custom_objects={layer.__name__: layer})
    assert np.array_equal(same.predict(X), model.predict(X))
    with pytest.raises(ValueError, match=f"custom.*{layer.__name__}|{layer.__name__}.*custom"):
        Sequential.load(tmp_path / "model.safetensors")


# ---- the kernels
KERNELS = ("SiLU", "ChannelSwish")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(1,), (7,), (33,), (3, 4, 5), (20, 3, 3)], ids=str)
def test_the_kernel_passes_the_check(native, name, shape):
    check_layer(getattr(native, name)(), shape)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 16, 17, 33])
def test_the_kernel_matches_the_built_in_one(native, name, dtype, n, rng):
    """With a beta of 1, Swish is SiLU."""
    x = rng.normal(0, 4, (n, 3, 4, 5)).astype(dtype)
    result = []
    for layer in (getattr(native, name)(), OurSiLU()):
        model = Sequential([layer], x.shape[1:], dtype=dtype)
        result.append((model.forward(x, training=True), model.backward(np.cos(x))))
    np.testing.assert_array_equal(*[y for y, _ in result])
    np.testing.assert_allclose(*[dx for _, dx in result], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (3, 4, 5), (18, 3, 2)], ids=str)
def test_channel_swish_is_its_formula(native, shape, rng):
    """In float64; the gradients by complex steps, exact to rounding."""
    n, beta = 35, rng.normal(0, 2, shape[0])
    x, dy = rng.normal(0, 3, (2, n, *shape))
    wide = (-1, *[1] * (len(shape) - 1))

    def swish(x, beta):
        return x / (1 + np.exp(-beta.reshape(wide) * x))

    model = Sequential([native.ChannelSwish()], shape, dtype="float64")
    model.params["0.beta"].value[...] = beta
    y, dx = model.forward(x, training=True), model.backward(dy)
    slopes = [(dy * swish(x, beta + 1e-30j * d)).sum().imag / 1e-30 for d in np.eye(len(beta))]
    np.testing.assert_allclose(y, swish(x, beta), 1e-14, 1e-14)
    np.testing.assert_allclose(dx, dy * swish(x + 1e-30j, beta).imag / 1e-30, 1e-12, 1e-12)
    np.testing.assert_allclose(model.params["0.beta"].grad, slopes, 1e-12, 1e-12)


def swish_fit(native, n, threads, limit, dtype):
    """Returns weights and losses of a net with ChannelSwish; up to `limit` examples train in the blocked layout."""
    front = [Conv2D(20, 3, padding=1), native.ChannelSwish(), MaxPool2D(2), Flatten()]
    model = Sequential([*front, Dense(24), native.ChannelSwish(), Dense(4)], X.shape[1:], dtype=dtype)
    one = Trainer(model, "softmax_cross_entropy", Adam(0.01), num_threads=threads)
    one.steps().plan.blocked_limit = limit
    return weights(model), one.fit(X, Y, epochs=2, batch_size=n, verbose=0)["loss"], weights(model)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 3, 16, 40])
def test_channel_swish_trains_the_same_bits_in_both_layouts(native, n, dtype):
    before, losses, after = swish_fit(native, n, 1, 0, dtype)
    assert before != after and losses[1] < losses[0]
    for threads in (1, 2, 3, 8):
        for limit in (0, 16):
            assert swish_fit(native, n, threads, limit, dtype) == (before, losses, after)


def test_channel_swish_has_per_example_gradients(native):
    model = Sequential([Conv2D(20, 3), native.ChannelSwish(), Flatten(), Dense(4)], X.shape[1:])
    one = Trainer(model, "softmax_cross_entropy", Adam(0.01), num_threads=2)
    rows = one.per_example_gradients(X[:40], Y[:40])["1.beta"]
    assert np.array_equal(rows[17], one.per_example_gradients(X[17:18], Y[17:18])["1.beta"][0])
    one.train_batch(X[:40], Y[:40])
    assert np.array_equal(minidl.batch_sum(rows) / np.float32(40), model.params["1.beta"].grad)


@pytest.mark.parametrize("name", KERNELS)
def test_lenet5_with_it_is_a_single_plan(native, name):
    assert native.net(getattr(native, name)).network.native


def test_its_program_trains(kernel):
    command = [sys.executable, "-W", "error", "train.py"]
    done = subprocess.run(command, cwd=kernel, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("its gradients are right") == 2
    accuracies = re.findall(r"^Test accuracy ([\d.]+)%$", done.stdout, re.M)
    assert len(accuracies) == 2 and min(map(float, accuracies)) > 97


class Zeros(Layer):
    """Zeros for missing values."""

    takes_missing = True

    def forward(self, x, training):
        return np.nan_to_num(x)

    def backward(self, dy):
        return dy


def test_a_layer_at_the_beginning_may_take_missing_values():
    """Or at that of a branch; NaN for any other layer is refused, and so is infinity."""
    rows, filled = np.array([[1, np.nan], [0.5, 2]]), [[1, 0], [0.5, 2]]
    for layers in ([Zeros()], [Parallel([Columns(0, 1)], [Columns(1), Zeros()])]):
        model = Sequential(layers, input_shape=(2,))
        assert model.predict(rows).tolist() == model.forward(rows, training=True).tolist() == filled
        with pytest.raises(minidl.InputError, match=r"X: expected finite values or NaN, got infinity"):
            model.predict(np.where(np.isnan(rows), -np.inf, rows))
    model = Sequential([Zeros(), Dense(1)], input_shape=(2,))
    assert np.isfinite(Trainer(model, "mean_squared_error", Adam()).fit(rows, [0, 1], epochs=1, verbose=0)["loss"][0])
    for layers in ([Dense(2)], [Dense(2), Zeros()], [Residual(Dense(2))]):
        with pytest.raises(minidl.InputError, match=r"X: expected finite values, got NaN or infinity"):
            Sequential(layers, input_shape=(2,)).predict(rows)
