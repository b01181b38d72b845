"""An installation with NumPy alone: it trains, predicts and exports to C; all else names the package that it needs."""

import os
import re
import subprocess
import sys

import pytest

MISSING = (
    *("sklearn", "scipy", "safetensors", "threadpoolctl", "tqdm"),  # dependencies, which pip's --no-deps leaves out
    *("matplotlib", "onnx", "PIL", "tensorboardX", "mpi4py"),
)

PREAMBLE = f"""
import sys, warnings
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import numpy as np
import minidl
from minidl import Layer, Sequential, Trainer
from minidl.layers import *
from minidl.optimizers import SGD
X, y = np.random.default_rng(0).normal(size=(60, 1, 8, 8)), np.arange(60) % 3
model = Sequential([Conv2D(4, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(3)])
trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), ["accuracy"])
"""


def run(code):
    """Returns what a program prints where these packages cannot be imported."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PREAMBLE + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_it_trains_predicts_and_exports(tmp_path):
    code = f"""
warnings.simplefilter("error")
trainer.fit(X, y, epochs=2, validation_data=(X, y), class_weight="balanced", callbacks=[
    minidl.callbacks.EarlyStopping(), minidl.callbacks.CSVLogger({str(tmp_path / "log.csv")!r}),
    minidl.callbacks.Receipt({str(tmp_path / "receipt.json")!r})])
print(trainer.predict(X).shape, trainer.predict_proba(X).shape, sorted(trainer.evaluate(X, y)))
minidl.export_c(model, {str(tmp_path / "net.c")!r})
model.save({str(tmp_path / "net.safetensors")!r})
trainer.save_checkpoint({str(tmp_path / "run.safetensors")!r})
print(minidl.show_config().packages.get("none", "runs"))
"""
    printed = run(code)
    assert "(60, 3) (60, 3) ['accuracy', 'loss']" in printed and printed.split()[-1] == "runs", printed
    assert {path.name for path in tmp_path.iterdir()} >= {"net.c", "net.safetensors", "run.safetensors", "receipt.json"}


CALLS = {
    "trainer.fit(X, y, verbose=2)": "verbose=2 needs tqdm: pip install tqdm",
    "trainer.fit(X, y, validation_split=0.2)": "validation_split needs scikit-learn: pip install scikit-learn",
    "trainer.fit(X, y, mixup=0.2)": "mixup needs scipy: pip install scipy",
    "trainer.fit(X, y, cutmix=1.0)": "cutmix needs scipy: pip install scipy",
    "import copy; copy.deepcopy(trainer)": (
        "reading a model or a checkpoint needs safetensors: pip install safetensors"
    ),
    "model.save('m'); Sequential.load('m')": (
        "reading a model or a checkpoint needs safetensors: pip install safetensors"
    ),
    "minidl.datasets.load_digits()": "load_digits needs scikit-learn: pip install scikit-learn",
    "minidl.estimators": "minidl.estimators needs scikit-learn: pip install scikit-learn",
    "from minidl.estimators import TabularClassifier": "minidl.estimators needs scikit-learn: pip install scikit-learn",
    "Trainer(Sequential([Flatten(), Dense(1)]), 'mean_squared_error', SGD(0.1), ['r2']).fit(X, y)": (
        "the metric r2 needs scikit-learn: pip install scikit-learn"
    ),
    "trainer.fit(X, y, verbose=0).plot()": 'a plot needs matplotlib: pip install "minidl[plot]"',
    "minidl.onnx.inspect('x.onnx')": 'minidl.onnx needs onnx: pip install "minidl[onnx]"',
    "minidl.callbacks.TensorBoard('x')": 'TensorBoard needs tensorboardX: pip install "minidl[tensorboard]"',
    "from minidl.distributed import MPI; MPI()": 'minidl.distributed needs mpi4py: pip install "minidl[mpi]"',
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """Returns what each call raises, and the number of steps that the trainer has made then."""
    folder = str(tmp_path_factory.mktemp("calls"))
    code = f"""
import os
os.chdir({folder!r})
trainer.fit(X, y, verbose=0)
for call in {list(CALLS)!r}:
    before = trainer.step
    try:
        exec(call)
        print("nothing raised")
    except ImportError as error:
        print(error)
    if "verbose=0" not in call:
        assert trainer.step == before, call
"""
    return dict(zip(CALLS, run(code).splitlines(), strict=True))


@pytest.mark.parametrize("call", CALLS)
def test_what_needs_more_names_it(call, errors):
    assert errors[call] == CALLS[call]


def test_a_missing_limit_of_threads_is_warned_of_once():
    code = """
class Twice(Layer):
    def forward(self, x, training): return 2 * x
    def backward(self, dy): return 2 * dy
trainer = Trainer(Sequential([Twice(), Flatten(), Dense(3)]), "softmax_cross_entropy", SGD(0.01))
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    trainer.fit(X, y, verbose=0)
    trainer.fit(X, y, verbose=0)
print(*(warning.message for warning in found), sep="\\n")
"""
    assert re.fullmatch(
        r"parts in Python use all threads .* needs threadpoolctl: pip install threadpoolctl\n", run(code)
    )
