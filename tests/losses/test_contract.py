"""All losses in one table: gradients, PyTorch, equal bits, weights. A public loss missing from the table fails."""

import hashlib
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from contract.losses import DRAWS

import minidl_c
from minidl import Sequential, Trainer, losses
from minidl.layers import Dense, Reshape
from minidl.optimizers import SGD
from minidl.testing import check_loss
from minidl.training.steps import FusedSteps, SegmentedSteps
from minidl_c import cpu

CASES = 500
BATCHES = (1, 2, 3, 15, 16, 17, 33)

every_loss = pytest.mark.parametrize("name", sorted(DRAWS))
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def seeded(name, number):
    return np.random.default_rng([number, *name.encode()])


def draw_case(name, number, sizes=BATCHES):
    """Returns a case, its generator, and a batch size."""
    rng = seeded(name, number)
    return DRAWS[name](rng), rng, int(rng.choice(sizes))


def test_no_loss_is_missing():
    assert set(DRAWS) == set(losses.__all__) - {"NativeLoss"} == {cls.__name__ for cls in losses.CLASSES}


# ---- gradients
@every_loss
@pytest.mark.parametrize("number", range(10))
def test_keeps_the_contract(name, number):
    case, rng, n = draw_case(name, number)
    check_loss(case.loss, case.scores(rng, 1).shape[1:], case.targets(rng, n + 1), number)


@every_loss
def test_a_row_does_not_depend_on_the_others(name):
    case, rng, _ = draw_case(name, 0)
    scores, y = case.scores(rng, 20), case.targets(rng, 20)
    together = case.loss(scores, y)
    for rows in (slice(3, 4), slice(5, 20), slice(19, None, -2)):
        for alone, all_of_them in zip(case.loss(scores[rows], y[rows]), together, strict=True):
            assert alone.tobytes() == all_of_them[rows].tobytes()


@pytest.fixture(scope="module")
def one_torch_thread():
    """PyTorch's threads spin between small calls and slow the others down."""
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)


@every_loss
@pytest.mark.oracle
def test_agrees_with_pytorch(name, one_torch_thread):
    import torch

    for number in range(CASES):
        case, rng, n = draw_case(name, number)
        scores, y = case.scores(rng, n), case.targets(rng, n)
        leaf = torch.tensor(scores, requires_grad=True)
        theirs = case.torch(leaf, torch.tensor(y)).reshape(n, -1).mean(axis=1)
        theirs.sum().backward()
        for part, a, b in zip(("losses", "dscores"), case.loss(scores, y), (theirs.detach(), leaf.grad), strict=True):
            scale = max(float(b.abs().max()), 1.0)
            message = f"{part}: {case.loss!r} of {scores.shape}"
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-10, atol=1e-12 * scale, err_msg=message)


# ---- training
class InPython:
    """A loss without an op, whose steps run between kernels."""

    def __init__(self, loss):
        self.loss, self.ignore_index = loss, getattr(loss, "ignore_index", None)

    def __call__(self, scores, y):
        return self.loss(scores, y)


def make_trainer(case, dtype, loss=None, threads=None):
    layers = [Dense(math.prod(case.shape)), Reshape(case.shape)]
    model = Sequential(layers, input_shape=(5,), dtype=dtype)
    return Trainer(model, loss or case.loss, SGD(0.01, momentum=0.5), num_threads=threads)


def outcome(trainer, *result):
    """Returns weights, gradients and losses, as bytes."""
    params = trainer.model.params.values()
    return [(p.value.tobytes(), p.grad.tobytes()) for p in params], *result


@every_loss
@each_dtype
def test_number_of_threads_and_python_change_no_bit(name, dtype):
    """Inside the plan with any number of threads, and called from Python between forward and backward; shuffled."""
    for number in range(5):
        case, rng, n = draw_case(name, number, (1, 16, 37, 300))
        X, y, weights = rng.standard_normal((n, 5)), case.targets(rng, n), rng.uniform(0.1, 2, n)
        for sample_weight in (None, weights):
            result = []
            for threads, loss in ((1, case.loss), (2, case.loss), (3, case.loss), (1, InPython(case.loss))):
                trainer = make_trainer(case, dtype, loss, threads)
                assert type(trainer.steps()) is (FusedSteps if loss is case.loss else SegmentedSteps)
                history = trainer.fit(X, y, 3, batch_size=128, sample_weight=sample_weight, verbose=0)
                result.append(outcome(trainer, history["loss"]))
            assert all(other == result[0] for other in result), f"{case.loss} of {case.shape}, {n} examples"


@every_loss
@each_dtype
def test_weights_of_one_change_nothing_and_zeros_remove_rows(name, dtype):
    case, rng, _ = draw_case(name, 0)
    X, y, weights = rng.standard_normal((50, 5)), case.targets(rng, 50), rng.uniform(0.5, 2, 50)
    keep = rng.random(50) < 0.6

    def fitted(X, y, weights):
        trainer = make_trainer(case, dtype)
        loss = trainer.fit(X, y, 2, batch_size=16, sample_weight=weights, verbose=0)["loss"]
        return outcome(trainer, loss, trainer.evaluate(X, y, weights))

    assert fitted(X, y, None) == fitted(X, y, np.ones(50))
    assert fitted(X, y, weights * keep) == fitted(X[keep], y[keep], weights[keep])


@every_loss
def test_a_step_divides_once_by_the_number_of_examples_with_a_label(name):
    case, rng, _ = draw_case(name, 1)
    X, y, weights = rng.standard_normal((20, 5)), case.targets(rng, 20), rng.uniform(0.5, 2, 20)
    trainer, model = make_trainer(case, "float64"), make_trainer(case, "float64").model
    losses, dscores = case.loss(model.forward(X, training=True), y)
    labeled = np.reshape(y != getattr(case.loss, "ignore_index", None), (20, -1)).any(axis=1)
    model.backward(weights.reshape(-1, *[1] * len(case.shape)) * dscores)
    expected = (weights * losses)[labeled].sum() / weights[labeled].sum()
    assert trainer.train_batch(X, y, weights) == pytest.approx(expected, rel=1e-14)
    for ours, by_hand in zip(trainer.model.params.values(), model.params.values(), strict=True):
        assert ours.grad.tobytes() == (by_hand.grad / np.count_nonzero(labeled)).tobytes()


@every_loss
def test_a_checkpoint_restores_the_loss(name, tmp_path):
    case, rng, n = draw_case(name, 2)
    X, y = rng.standard_normal((n, 5)), case.targets(rng, n)
    trainer = make_trainer(case, "float32")
    trainer.train_batch(X, y)
    trainer.save_checkpoint(tmp_path / "run.safetensors")
    other = Trainer.resume(tmp_path / "run.safetensors")
    assert type(other.loss) is type(case.loss)
    assert vars(other.loss) == vars(case.loss)
    assert outcome(other, other.train_batch(X, y)) == outcome(trainer, trainer.train_batch(X, y))


# ---- instruction sets
def digest(name):
    """Returns a hash of losses and gradients of random inputs, in both dtypes."""
    hasher = hashlib.sha256()
    for number, dtype in ((number, dtype) for number in range(20) for dtype in ("float32", "float64")):
        case, rng, n = draw_case(name, number)
        for part in case.loss(case.scores(rng, n).astype(dtype), case.targets(rng, n)):
            hasher.update(part.tobytes())
    return hasher.hexdigest()


def test_instruction_sets_give_the_same_bits():
    result = []
    for isa in ("v3", "v4"):
        if isa not in cpu.supported() or not (Path(minidl_c.__file__).parent / isa / "build.json").is_file():
            pytest.skip(f"no {isa}: not built here, or not for this processor")
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "MINIDL_ISA": isa}
        command = [sys.executable, __file__]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        used, *digests = done.stdout.split()
        assert used == isa
        result.append(digests)
    assert result[0] == result[1]


if __name__ == "__main__":
    print(minidl_c.isa, *(digest(name) for name in sorted(DRAWS)), sep="\n")
