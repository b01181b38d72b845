"""Runs benchmarks/cifar10.py on a few small images. Asserts no speed."""

import json
import sys
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest
from benchmark_programs import FOLDER, all_positive

SMALL = ["--shapes", "--images", 40, "--minutes", 2, "--epochs", 2, "--seeds", 1, "--threads", 2, "--modes", "eager"]
SMALL += ["--set", "filters=[16,16]", "batch_size=20"]
PARTS = ["muon", "alternating", "flip", "shift", "smoothing", "silu", "winograd"]


@contextmanager
def programs(monkeypatch):
    """Makes the folder's modules importable, and forgets them and the examples that they import."""
    monkeypatch.syspath_prepend(str(FOLDER))
    known = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - known:
            if name.startswith("cifar10") or name in ("models", "nets"):
                del sys.modules[name]


@pytest.mark.slow
def test_cifar10(run, start, tmp_path):
    """Runs are not repeated. ResNet-18 needs a run of minidl, whose time it gets."""
    file, sides = tmp_path / "r.jsonl", ["--sides", "minidl", *(["torch"] if find_spec("torch") else [])]
    output, _ = run("cifar10.py", "--results", file, *SMALL, *sides, "--without", "flip")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["side"], row["part"]) for row in rows] == [
        ("minidl", None),
        ("minidl", "flip"),
        *[("torch", None)] * (len(sides) - 2),
    ]
    for row in rows:
        assert all_positive([row["seconds"], row["cpu"], row["memory"]]) and len(row["by_epoch"]) == 2
        assert set(row["accuracy"]) == {"plain", "flip", "flip+shift"}
    assert "recipe 2" in output and "without flip" in output and "2 epochs" in output
    weights = [row["weights"] for row in rows if row["side"] == "minidl"]
    assert len(set(weights)) == 2
    output, _ = run("cifar10.py", "--results", file, *SMALL, *sides, "--without", "flip")
    assert len(file.read_text().splitlines()) == len(rows) and "seed 0" not in output
    output, _ = run("cifar10.py", "--results", file, *SMALL, "--sides", "minidl", "--threads", 1)
    assert json.loads(file.read_text().splitlines()[-1])["weights"] == weights[0]  # on one thread
    alone = start("cifar10.py", "--results", tmp_path / "alone.jsonl", *SMALL, "--sides", "resnet18")
    assert alone.returncode == 0 and "seed 0: needs the run of minidl" in alone.stderr


@pytest.mark.slow
def test_cifar10_steps(run, tmp_path):
    small = ["--rounds", 1, "--seconds", 0.01, "--sides", "minidl", "--steps"]
    output, _ = run("cifar10.py", "--results", tmp_path / "r.jsonl", *SMALL, *small)
    (row,) = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert set(row["sides"]) == {"minidl"} and len(row["stages"]) == 1 + 4 + 1
    assert all_positive([row["sides"]["minidl"]["milliseconds"], row["sides"]["minidl"]["memory"]])
    macs = [2 * 9 * 3 * 16 * 32**2] + [3 * 9 * 16 * 16 * size**2 for size in (16, 16, 8)]
    assert [stage["multiply_adds"] for stage in row["stages"].values()] == [0, *macs, 0]
    assert "stages on one thread" in output


def test_each_part_of_cifar10_is_left_out(monkeypatch):
    with programs(monkeypatch):
        import cifar10_parts as parts

        assert parts.PARTS == PARTS
        recipe = parts.replace(parts.fast.SHORT, filters=(16,), epochs=1)
        X = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32)).astype(np.uint8)

        def described(part):
            model, trainer = parts.make(X, 10, recipe, 0, 1, part)
            factors = [str(layer.lr_mult) for layer in model.layers]
            return [*map(repr, model.layers[1:]), *factors, repr(trainer.loss), repr(trainer.optimizer)]

        whole, changed = described(None), {}
        for part in PARTS:
            less = described(part)
            changed[part] = sum(a != b for a, b in zip(whole, less, strict=True))
        # Muon: also the factors of two biases and the last layer
        assert changed == {"muon": 4, "silu": 2, "winograd": 2} | dict.fromkeys(
            ("alternating", "flip", "shift", "smoothing"), 1
        )


@pytest.mark.oracle
def test_cifar10_next_to_pytorch(monkeypatch):
    """A step on the same batch, without augmentation, has the same loss and the same weights, to rounding."""
    torch = pytest.importorskip("torch")
    with programs(monkeypatch):
        import cifar10_parts as parts
        import cifar10_torch as other

        monkeypatch.setattr(other, "PRODUCTS", torch.float32)
        rng = np.random.default_rng(0)
        X = rng.integers(0, 256, (40, 3, 32, 32)).cumsum(axis=3).astype(np.uint8)
        y = rng.integers(0, 10, 40)
        recipe = parts.replace(parts.fast.SHORT, epochs=2, batch_size=20)
        monkeypatch.setattr(parts.fast, "RandomFlip", lambda **options: parts.layers.RandomFlip(horizontal=False))
        for mode in ("eager", "eager channels_last"):
            model, trainer = parts.make(X, 10, recipe, 0, 1, "shift")
            training = other.start_example(model, trainer, mode)
            before, scale = model.state_dict(), other.scaling(model)
            steps, losses = [], []
            for step in range(2):
                rows = slice(20 * step, 20 * step + 20)
                steps.append((scale(torch.from_numpy(X[rows])), torch.from_numpy(y[rows]), trainer.optimizer.lr(step)))
                losses.append(training.step(*steps[-1]).item())
                assert trainer.train_batch(X[rows], y[rows]) == pytest.approx(losses[-1], rel=1e-4)
            after = model.state_dict()
            for name, value in training.net.state_dict().items():
                moved = np.abs(after[name] - before[name]).max()
                assert moved > 0
                # Newton-Schulz enlarges the rounding errors of directions with small gradients
                np.testing.assert_allclose(value.numpy(), after[name], atol=1e-2 * moved + 1e-6, err_msg=name)
            training.reset()
            for name, value in training.net.state_dict().items():
                np.testing.assert_array_equal(value.numpy(), before[name])
            again = [training.step(*one).item() for one in [*steps, *steps]]  # the velocity counts from the third
            training.reset()
            assert [training.step(*one).item() for one in [*steps, *steps]] == pytest.approx(again, rel=1e-3)


@pytest.mark.oracle
def test_muon_of_cifar10_next_to_pytorch(monkeypatch):
    """torch.optim.Muon takes matrices only."""
    torch = pytest.importorskip("torch")
    with programs(monkeypatch):
        import cifar10_torch as other

        torch.manual_seed(0)
        for shape in ((6, 20), (20, 6)):
            ours, theirs = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))
            options = {"momentum": 0.6, "nesterov": True, "ns_coefficients": (3.4445, -4.775, 2.0315), "ns_steps": 3}
            own = other.Muon([ours], eps=1e-7, **options)
            expected = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0, eps=1e-7, **options)
            own.param_groups[0]["lr"] = 0.1
            for _ in range(3):
                ours.grad = torch.randn(shape)
                theirs.grad = ours.grad.clone()
                own.step()
                expected.step()
            assert (ours - theirs).norm() < 0.02 * theirs.norm()


@pytest.mark.oracle
def test_augmentation_of_cifar10_in_pytorch(monkeypatch):
    """Each image is one of the 25 shifts of np.pad's reflection, flipped as asked for."""
    torch = pytest.importorskip("torch")
    with programs(monkeypatch):
        import cifar10_torch as other

        torch.manual_seed(0)
        X = np.random.default_rng(0).integers(0, 256, (200, 3, 8, 9)).astype(np.uint8)
        padded, found = np.pad(X, ((0, 0), (0, 0), (2, 2), (2, 2)), "reflect"), set()
        flip = torch.rand(len(X)) < 0.5
        for k, image in enumerate(other.augmented(torch.from_numpy(X), flip, 2).numpy()):
            image = image[..., ::-1] if flip[k] else image
            places = [(i, j) for i in range(5) for j in range(5) if (padded[k, :, i : i + 8, j : j + 9] == image).all()]
            assert len(places) == 1
            found.update(places)
        assert len(found) == 25


@pytest.mark.oracle
def test_boxes_of_cifar10_in_pytorch(monkeypatch):
    """A box lies around any pixel, of even or odd side, and is the same in all channels; no side: no box."""
    torch = pytest.importorskip("torch")
    with programs(monkeypatch):
        import cifar10_torch as other

        torch.manual_seed(0)
        for side in (0, 3, 4):
            found = set()
            for image in other.cut_out(torch.ones(400, 2, 8, 9), side).numpy():
                places = {(i, j): np.ones((8, 9)) for i in range(8) for j in range(9)}
                for (i, j), box in places.items():
                    box[max(i - side // 2, 0) : i - side // 2 + side, max(j - side // 2, 0) : j - side // 2 + side] = 0
                assert (image[0] == image[1]).all()
                found.update(place for place, box in places.items() if (image[0] == box).all())
            assert len(found) == 72
