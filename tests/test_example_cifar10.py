"""The examples of CIFAR-10 and Fashion-MNIST, on small data sets in the format of their compact copies."""

import itertools
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from example_runs import ROOT, accuracy_in, run, start_example

from minidl.datasets import openml

FEW = {"cifar_10": (200, 40), "fashion-mnist": (150, 30)}  # training and test images, instead of thousands


def small_data_sets(patch):
    for name in ("_CIFAR10", "_FASHION_MNIST"):
        source = getattr(openml, name)
        n_train, n_test = FEW[source.name.lower()]
        patch.setattr(openml, name, replace(source, n_train=n_train, n_test=n_test))


def write_copy(home, name, shape):
    rng, n = np.random.default_rng(0), sum(FEW[name.lower()])
    (home / "minidl_data").mkdir()
    X, y = rng.integers(0, 256, (n, *shape), dtype=np.uint8), rng.integers(0, 10, n).astype(np.uint8)
    np.savez(home / "minidl_data" / f"{name.lower()}.npz", name=np.array(name), X=X, y=y)


@pytest.mark.parametrize(
    ("data", "name", "shape", "parameters"),
    [("cifar10", "CIFAR_10", (3, 32, 32), 272_474), ("fashion_mnist", "Fashion-MNIST", (1, 28, 28), 272_186)],
)
def test_cifar10_on_a_small_data_set(tmp_path, data, name, shape, parameters):
    write_copy(tmp_path, name, shape)
    output = run("cifar10.py", "--data", data, "--epochs", "2", home=tmp_path, before=small_data_sets)
    assert f"resnet20: {parameters:,} parameters" in output
    assert re.findall(r"^epoch (\d)/2 .*loss .*accuracy .*images", output, re.M) == ["1", "2"]
    right = accuracy_in(output) / 100 * FEW[name.lower()][1]
    assert abs(right - round(right)) < 0.01  # over all test images


@pytest.mark.slow
@pytest.mark.parametrize("net", ["lenet5", "mnist_cnn", "vgg_bn", "mobilenet"])
def test_cifar10_trains_other_nets(tmp_path, net):
    output = run("cifar10.py", "--net", net, "--short", "--data", "synthetic", home=tmp_path, epochs=1)
    assert output.startswith(f"{net}: ")
    assert accuracy_in(output) >= 0


def test_cifar10_without_network_says_so(tmp_path):
    done = start_example("cifar10.py", home=tmp_path)
    assert done.returncode == 1 and "CIFAR-10 is not in" in done.stderr and "--data synthetic" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_cifar10_learns_the_drawn_shapes(tmp_path):
    assert accuracy_in(run("cifar10.py", "--short", home=tmp_path)) >= 95


def test_drawn_shapes_vary_and_are_reproducible():
    sys.path.insert(0, str(ROOT / "examples"))
    import cifar10

    u, v = np.meshgrid(*[np.linspace(-1.4, 1.4, 57)] * 2)
    inside = [shape(u, v) for shape in cifar10.SHAPES]
    for i, shape in enumerate(inside):
        assert 0.1 < shape.mean() < 0.9
        assert all((shape != other).mean() > 0.05 for other in inside[:i])
    X, y = cifar10.draw_shapes(50, seed=3)
    assert X.shape == (50, 3, 32, 32) and X.dtype == np.uint8 and set(y) <= set(range(10))
    assert np.array_equal(X, cifar10.draw_shapes(50, seed=3)[0])


def test_cifar10_fast_on_a_small_data_set(tmp_path):
    """The recipe has one result on any number of threads, and one epoch of two begins it."""
    write_copy(tmp_path, "CIFAR_10", (3, 32, 32))
    outputs = [
        run("cifar10_fast.py", "--threads", n, home=tmp_path, epochs=2, before=small_data_sets) for n in ("1", "2")
    ]
    hashes = {re.search(r"SHA-256 of the weights: ([0-9a-f]{16})$", output, re.M)[1] for output in outputs}
    assert len(hashes) == 1
    assert re.findall(r"^(?:epoch (\d)/2 .*|\d:\d\d minutes to go)$", outputs[0], re.M) == ["1", "", "2"]
    assert 0 <= accuracy_in(outputs[0]) <= 100
    assert (tmp_path / "cifar10_fast.png").stat().st_size > 10_000


@pytest.mark.slow
def test_cifar10_fast_goes_on_from_its_checkpoint(tmp_path):
    """A run that ends after an epoch, and the one after it, have the result of one run."""

    def killed(patch):
        patch.setattr("minidl.callbacks.Checkpoint.on_epoch_end", save_and_exit)

    def save_and_exit(checkpoint, trainer, epoch, logs):
        trainer.save_checkpoint(checkpoint.path)
        raise SystemExit("killed")

    command = ("cifar10_fast.py", "--shapes", "--checkpoint")
    assert start_example(*command, tmp_path / "a", home=tmp_path, epochs=2, before=killed).returncode == 1
    rest, whole = (run(*command, tmp_path / name, home=tmp_path, epochs=2) for name in "ab")
    assert "epoch 1/2" not in rest and "epoch 2/2" in rest
    assert re.search("SHA-256.*", rest)[0] == re.search("SHA-256.*", whole)[0]


@pytest.mark.slow
def test_cifar10_fast_learns_the_drawn_shapes(tmp_path):
    assert accuracy_in(run("cifar10_fast.py", "--shapes", home=tmp_path)) >= 98


def test_cifar10_fast_on_a_folder(tmp_path):
    from PIL import Image

    for part, name, i in itertools.product(("train", "test"), ("cat", "dog"), range(2)):
        folder = tmp_path / "images" / part / name
        folder.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((32, 32), 50 + 20 * i).convert("RGB").save(folder / f"{i}.png")
    output = run("cifar10_fast.py", "--folder", str(tmp_path / "images"), home=tmp_path, epochs=1)
    assert accuracy_in(output) in (0, 25, 50, 75, 100)
    (tmp_path / "images" / "test" / "cat").rename(tmp_path / "images" / "test" / "eel")
    done = start_example("cifar10_fast.py", "--folder", str(tmp_path / "images"), home=tmp_path, epochs=1)
    assert done.returncode == 1 and "expected the same classes in train and test, got cat, dog and" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--picture", "none/a.png"), "--picture: expected an existing folder to write into, got none"),
        (("--shapes", "--folder", "images"), "argument --folder: not allowed with argument --shapes"),
    ],
)
def test_cifar10_fast_refuses_arguments_before_it_trains(tmp_path, arguments, message):
    done = start_example("cifar10_fast.py", *arguments, home=tmp_path)
    assert done.returncode == 2 and message in done.stderr


def test_cifar10_fast_without_network_says_so(tmp_path):
    done = start_example("cifar10_fast.py", home=tmp_path)
    assert done.returncode == 1 and "CIFAR-10 is not in" in done.stderr and "--folder takes image" in done.stderr
    assert "Traceback" not in done.stderr
