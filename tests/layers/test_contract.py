"""All layers in one table: gradients, PyTorch, equal bits. A public layer missing from the table fails."""

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from contract.every_layer import DRAWS, ENDS_MODELS
from slow_marks import slow_after

import minidl_c
from minidl import Sequential, layers
from minidl.testing import check_layer
from minidl_c import cpu

GEOMETRIES = 500
BATCHES = (1, 2, 3, 15, 16, 17, 33)

every_layer = pytest.mark.parametrize("name", sorted(DRAWS))


def seeded(name, number):
    return np.random.default_rng([number, *name.encode()])


def small(name, rng):
    """Returns a case small enough for finite differences."""
    while True:
        case = DRAWS[name](rng)
        if np.prod(case.in_shape) <= 200:
            return case


def randomized_model(case, rng, dtype):
    """Returns a model of this layer with random parameter values."""
    model = Sequential([case.layer], input_shape=case.in_shape, dtype=dtype)
    for param in model.params.values():
        param.value = rng.standard_normal(param.value.shape)
    return model


def test_no_layer_is_missing():
    assert set(DRAWS) | ENDS_MODELS == set(layers.__all__)


@every_layer
@pytest.mark.parametrize("number", slow_after(1, range(3)))
def test_keeps_the_contract(name, number):
    rng = seeded(name, number)
    case = small(name, rng)
    x = case.values(rng, (40, *case.in_shape)) if case.categories or case.limited else None
    x = x.astype(int) if case.categories else x
    check_layer(case.layer, case.in_shape, couples_examples=case.couples_examples, x=x)


def bits(model, x, dy, threads):
    network = model.network
    y, tape = network.forward(x, threads)
    dx = network.backward(tape, dy, want_dx=True)
    return [y.tobytes(), dx.tobytes(), *(param.grad.tobytes() for param in model.params.values())]


@every_layer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_number_of_threads_changes_no_bit(name, dtype):
    for number in range(10):
        rng = seeded(name, number)
        case = DRAWS[name](rng)
        model, n = randomized_model(case, rng, dtype), int(rng.choice([1, 16, 37, 300]))
        x, dy = case.values(rng, (n, *case.in_shape)), rng.standard_normal((n, *model.output_shape))
        x, dy = x.astype(dtype), dy.astype(dtype)
        alone = bits(model, x, dy, 1)
        for threads in (2, 3):
            assert bits(model, x, dy, threads) == alone, f"{case.layer!r} of {n} {case.in_shape}, {threads} threads"


def digest(name):
    """Returns a hash of everything that a layer computes from random inputs, in both dtypes."""
    hasher = hashlib.sha256()
    for number, dtype in ((number, dtype) for number in range(20) for dtype in ("float32", "float64")):
        rng = seeded(name, number)
        case = DRAWS[name](rng)
        model = randomized_model(case, rng, dtype)
        x, dy = case.values(rng, (17, *case.in_shape)), rng.standard_normal((17, *model.output_shape))
        for part in bits(model, x.astype(dtype), dy.astype(dtype), 1):
            hasher.update(part)
    return hasher.hexdigest()


@pytest.fixture(scope="module")
def digests_of():
    """Runs this file as a script and returns the digests of all layers under an instruction set; skips without it."""

    def run(isa):
        if isa not in cpu.supported() or not (Path(minidl_c.__file__).parent / isa / "build.json").is_file():
            pytest.skip(f"no {isa}: not built here, or not for this processor")
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "MINIDL_ISA": isa}
        command = [sys.executable, __file__]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        used, *digests = done.stdout.split()
        assert used == isa
        return dict(zip(sorted(DRAWS), digests, strict=True))

    return run


def test_instruction_sets_give_the_same_bits(digests_of):
    assert digests_of("v3") == digests_of("v4")


@every_layer
def test_a_second_backward_overwrites_the_first(name):
    """Gradients are written over those of the previous backward: kernels that accumulate must zero them first."""
    for number in range(10):
        rng = seeded(name, number)
        case = DRAWS[name](rng)
        model, n = randomized_model(case, rng, "float32"), int(rng.choice([1, 16, 37]))
        _, tape = model.network.forward(case.values(rng, (n, *case.in_shape)).astype("f4"), 1)
        dy, other = (rng.standard_normal((n, *model.output_shape)).astype("f4") for _ in range(2))
        result = []
        for gradient in (dy, other, dy):
            dx = model.network.backward(tape, gradient, want_dx=True)
            result.append([dx.tobytes(), *(param.grad.tobytes() for param in model.params.values())])
        assert result[0] == result[2], f"{case.layer!r} of {n} {case.in_shape}"


def run_torch(case, model, x, dy):
    """Returns y, dx and the gradients of the parameters, from PyTorch."""
    import torch

    leaf = torch.tensor(x, requires_grad=True)
    names = [name.partition(".")[2] for name in model.params]
    params = {n: torch.tensor(p.value, requires_grad=True) for n, p in zip(names, model.params.values(), strict=True)}
    y = case.torch(leaf, **params)
    y.backward(torch.tensor(dy).reshape(y.shape))
    return [t.detach().numpy() for t in (y, leaf.grad, *(p.grad for p in params.values()))]


@pytest.fixture(scope="module")
def one_torch_thread():
    """PyTorch's threads spin between small calls and slow the others down."""
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)


@every_layer
@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:.*images are:UserWarning")  # some random shapes look like channels last
def test_agrees_with_pytorch(name, one_torch_thread):
    if DRAWS[name](seeded(name, 0)).torch is None:
        pytest.skip("PyTorch has no such layer")
    for number in range(GEOMETRIES):
        rng = seeded(name, number)
        case = DRAWS[name](rng)
        model, n = randomized_model(case, rng, "float64"), int(rng.choice(BATCHES))
        n = max(n, case.layer.min_batch_size)
        x, dy = case.values(rng, (n, *case.in_shape)), rng.standard_normal((n, *model.output_shape))
        result = [model.forward(x, training=True), model.backward(dy), *(p.grad for p in model.params.values())]
        what = ["y", "dx", *(f"grad of {key}" for key in model.params)]
        for part, a, b in zip(what, result, run_torch(case, model, x, dy), strict=True):
            scale = max(float(np.abs(b).max(initial=0)), 1.0)
            np.testing.assert_allclose(
                a, b.reshape(a.shape), rtol=1e-10, atol=1e-12 * scale,
                err_msg=f"{part}: {case.layer!r} of {n} {case.in_shape}",
            )  # fmt: skip


if __name__ == "__main__":
    print(minidl_c.isa, *(digest(name) for name in sorted(DRAWS)), sep="\n")
