"""Per-example gradients compared with PyTorch's `torch.func.vmap(torch.func.grad(loss))`, on the same weights."""

import numpy as np
import pytest
from oracles.test_tracks_torch import ResidualModule

from minidl import Sequential, Trainer
from minidl.layers import (
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    PReLU,
    ReLU,
    Rescale,
    Residual,
    SiLU,
)
from minidl.optimizers import SGD

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.oracle

EXAMPLES = 37  # two tiles and part of a third
CLOSE = {"float32": 1e-5, "float64": 1e-12}  # relative to a tensor's largest magnitude


class Scaled(nn.Module):
    """PyTorch's counterpart of Rescale."""

    def forward(self, x):
        return x / 255


def lenet5():
    """Returns LeNet-5 of examples/models.py, for 28x28 images."""
    ours = [
        Rescale(1 / 255),
        Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2),
        Conv2D(16, 5), ReLU(), MaxPool2D(2),
        Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10),
    ]  # fmt: skip
    theirs = [
        Scaled(),
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ]  # fmt: skip
    return ours, theirs, (1, 28, 28)


def convolutions():
    """Returns a net of grouped, strided, dilated, depthwise, transposed and residual convolutions."""
    ours = [
        Rescale(1 / 255),
        Conv2D(8, 3, stride=2, padding=1), PReLU(),
        Conv2D(12, 3, padding=2, dilation=2, groups=2, use_bias=False), PReLU(shared=True),
        DepthwiseConv2D(3, padding=1, depth_multiplier=2), SiLU(),
        ConvTranspose2D(6, 3, stride=2, padding=1, output_padding=1, groups=2), SiLU(),
        Residual(Conv2D(6, 3, padding=1), SiLU(), DepthwiseConv2D(3, padding=1, use_bias=False)),
        MaxPool2D(3, 2), Flatten(), Dense(10, use_bias=False),
    ]  # fmt: skip
    inner = nn.Conv2d(6, 6, 3, padding=1), nn.SiLU(), nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
    theirs = [
        Scaled(),
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.PReLU(8),
        nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=2, bias=False), nn.PReLU(),
        nn.Conv2d(12, 24, 3, padding=1, groups=12), nn.SiLU(),
        nn.ConvTranspose2d(24, 6, 3, stride=2, padding=1, output_padding=1, groups=2), nn.SiLU(),
        ResidualModule(*inner),
        nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(6 * 5 * 6, 10, bias=False),
    ]  # fmt: skip
    return ours, theirs, (3, 12, 14)


def norms():
    """Returns a net of normalizations that do not couple examples."""
    ours = [
        Rescale(1 / 255),
        Conv2D(8, 3, padding=1, use_bias=False), GroupNorm(4), ReLU(),
        Residual(Conv2D(8, 3, padding=1), GroupNorm(1), ReLU()), MaxPool2D(2),
        LayerNorm(), Flatten(), Dense(20), LayerNorm(), ReLU(), Dense(10),
    ]  # fmt: skip
    theirs = [
        Scaled(),
        nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.GroupNorm(4, 8), nn.ReLU(),
        ResidualModule(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(1, 8), nn.ReLU()), nn.MaxPool2d(2),
        nn.LayerNorm((8, 3, 4)), nn.Flatten(), nn.Linear(96, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 10),
    ]  # fmt: skip
    return ours, theirs, (2, 6, 8)


def per_example(module, X, y, weights):
    """Returns PyTorch's per-example gradients by parameter name."""

    def loss(params, x, label, weight):
        scores = torch.func.functional_call(module, params, (x[None],))
        return weight * nn.functional.cross_entropy(scores, label[None])

    params = {name: param.detach() for name, param in module.named_parameters()}
    dtype = next(iter(params.values())).dtype
    found = torch.func.vmap(torch.func.grad(loss), (None, 0, 0, 0))(
        params, torch.from_numpy(X).to(dtype), torch.from_numpy(y), torch.from_numpy(weights).to(dtype)
    )
    return {name: grads.numpy() for name, grads in found.items()}


def assert_close(ours, theirs, dtype):
    assert list(ours) == list(theirs)
    for name, expected in theirs.items():
        assert ours[name].shape == expected.shape and ours[name].dtype == expected.dtype == dtype
        assert np.abs(ours[name] - expected).max() <= CLOSE[dtype] * np.abs(expected).max(), name


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("net", [lenet5, convolutions, norms])
def test_per_example_gradients_match_pytorch(net, dtype, rng):
    layers, modules, shape = net()
    model, module = Sequential(layers, shape, dtype=dtype), nn.Sequential(*modules).to(getattr(torch, dtype))
    for param in model.params.values():
        param.value[...] += 0.1 * rng.standard_normal(param.value.shape)  # norms and biases differ from ones and zeros
    module.load_state_dict({name: torch.tensor(value) for name, value in model.state_dict().items()})
    X, y = rng.integers(0, 256, (EXAMPLES, *shape), dtype=np.uint8), rng.integers(0, 10, EXAMPLES)
    weights = rng.choice([0, 0.25, 1, 3], EXAMPLES)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))

    weighted = per_example(module, X, y, weights)
    lengths = {name: np.linalg.norm(g.reshape(EXAMPLES, -1), axis=1) for name, g in weighted.items()}
    assert_close(trainer.per_example_gradients(X, y), per_example(module, X, y, np.ones(EXAMPLES)), dtype)
    assert_close(trainer.per_example_gradients(X, y, sample_weight=weights), weighted, dtype)
    assert_close(trainer.per_example_gradients(X, y, reduce="norm", sample_weight=weights), lengths, dtype)
