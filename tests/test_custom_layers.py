"""Custom layers, in NumPy and with a kernel, are saved, resumed and reproduced without any code of their own for it."""

import os
import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import minidl
from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, MaxPool2D, Residual
from minidl.layers import SiLU as OurSiLU
from minidl.optimizers import Adam
from minidl.testing import check_layer

EXAMPLES = Path(__file__).parents[1] / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(minidl.__file__).parents[1])}
RNG = np.random.default_rng(0)
X, Y = RNG.random((90, 2, 8, 8)), RNG.integers(0, 4, 90)
FIT = {"epochs": 3, "batch_size": 20, "verbose": 0}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A clean folder with the files of examples/custom_kernel, built as its README.md says."""
    folder = tmp_path_factory.mktemp("elsewhere") / "kernel"
    shutil.copytree(EXAMPLES / "custom_kernel", folder, ignore=shutil.ignore_patterns("*.c", "*.so", "build"))
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    environment = {**ENVIRONMENT, "CFLAGS": "-Wall"}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning" not in built.stdout + built.stderr
    assert "performance hint" not in built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def native(kernel):
    sys.path.insert(0, str(kernel))
    try:
        return import_module("train")
    finally:
        sys.path.remove(str(kernel))


@pytest.fixture(params=["NumPy", "kernel"])
def layer(request):
    """The class of a custom layer."""
    if request.param == "kernel":
        return request.getfixturevalue("native").SiLU
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


# ---- the kernel
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 4, 5)], ids=str)
def test_the_kernel_passes_the_check(native, shape):
    check_layer(native.SiLU(), shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 16, 17, 33])
def test_the_kernel_matches_the_built_in_one(native, dtype, n, rng):
    x = rng.normal(0, 4, (n, 3, 4, 5)).astype(dtype)
    result = []
    for layer in (native.SiLU(), OurSiLU()):
        model = Sequential([layer], x.shape[1:], dtype=dtype)
        result.append((model.forward(x, training=True), model.backward(np.cos(x))))
    np.testing.assert_array_equal(*[y for y, _ in result])
    np.testing.assert_allclose(*[dx for _, dx in result], rtol=1e-5, atol=1e-6)


def test_lenet5_with_it_is_a_single_plan(native):
    assert native.net(native.SiLU).network.native


def test_its_program_trains(kernel):
    command = [sys.executable, "-W", "error", "train.py"]
    done = subprocess.run(command, cwd=kernel, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "its gradients are right" in done.stdout
    assert float(done.stdout.split()[-1].removesuffix("%")) > 97
