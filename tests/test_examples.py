"""Every example runs, with settings that take seconds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minidl import Sequential
from minidl.datasets import load_digits

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUN = """
import runpy, socket, sys

import minidl

def fail(*args, **kwargs):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

socket.getaddrinfo = fail
most, *sys.argv = sys.argv[1:]
fit = minidl.Trainer.fit
minidl.Trainer.fit = lambda trainer, *args, epochs, **options: fit(
    trainer, *args, epochs=min(epochs, int(most)), **options
)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def started(name, *args, home, epochs=99):
    """An example in a fresh installation: no data but in `home`, no network; a fit's epochs limited."""
    script = str(ROOT / "examples" / name)
    path = os.pathsep.join([str(ROOT), str(ROOT / "examples")])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(epochs), script, *args],
        env={**os.environ, "PYTHONPATH": path, "SCIKIT_LEARN_DATA": str(home)},
        cwd=home,  # what it saves goes there
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run(*args, **options):
    """What an example prints."""
    done = started(*args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy_in(said):
    return float(re.search(r"Test accuracy ([\d.]+)%", said)[1])


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES} == {"custom_layer.py", "mnist_fast.py", "mnist_lenet.py"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_says_how_to_run_it(path):
    assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")


def test_mnist_lenet_on_digits(tmp_path):
    said = run("mnist_lenet.py", "--digits", "--epochs", "2", "--threads", "2", home=tmp_path)
    lines = re.findall(r"^epoch (\d)/2 .*loss .*accuracy .*val_accuracy .*images", said, re.M)
    assert lines == ["1", "2"]
    assert accuracy_in(said) > 60
    table = re.findall(r"^ +\d(?: +(?:\d+|\.)){10}$", said, re.M)
    assert len(table) == 10
    counts = [[int(c.replace(".", "0")) for c in row.split()[1:]] for row in table]
    assert sum(map(sum, counts)) == 355  # every test digit once
    right = sum(counts[i][i] for i in range(10))
    assert abs(100 * right / 355 - accuracy_in(said)) < 0.01
    assert "read as" in said
    saved = tmp_path / "lenet5.safetensors"
    assert f"The model is in {saved.name}" in said
    data = load_digits()
    predicted = Sequential.load(saved).predict(data.X_test).argmax(axis=1)
    assert abs(100 * (predicted == data.y_test).mean() - accuracy_in(said)) < 0.01


def test_mnist_lenet_out_of_reach_says_so_and_learns_digits(tmp_path):
    path = tmp_path / "elsewhere.safetensors"
    said = run("mnist_lenet.py", "--epochs", "1", "--save", str(path), home=tmp_path)
    assert "MNIST is out of reach" in said and f"The model is in {path}" in said and path.exists()
    assert "epoch 1/1" in said


@pytest.mark.slow
def test_mnist_lenet_reaches_97_percent_of_digits(tmp_path):
    assert accuracy_in(run("mnist_lenet.py", "--digits", home=tmp_path)) >= 97


def test_custom_layer(tmp_path):
    said = run("custom_layer.py", home=tmp_path, epochs=2)
    assert "gradients are right" in said
    assert accuracy_in(said) > 60


def test_mnist_fast_out_of_reach_says_so(tmp_path):
    done = started("mnist_fast.py", home=tmp_path)
    assert done.returncode == 1 and "MNIST is not in" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_mnist_fast_learns_what_it_promises():
    home = Path(os.environ.get("SCIKIT_LEARN_DATA") or Path("~/scikit_learn_data").expanduser())
    if not (home / "openml").exists() and not (home / "minidl" / "mnist_784.npz").exists():
        pytest.skip("no MNIST here")
    said = run("mnist_fast.py", home=home)
    assert float(re.search(r"test accuracy ([\d.]+)%, [\d.]+ s$", said, re.M)[1]) >= 99.0
