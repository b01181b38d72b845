"""Gradients w.r.t. the input in inference mode compared with PyTorch's autograd, on the same weights."""

import numpy as np
import pytest
from oracles.test_tracks_torch import ResidualModule

from minidl import Sequential, Trainer
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Residual, Tanh
from minidl.optimizers import SGD

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.oracle

SHAPE, EXAMPLES = (3, 12, 14), 37


def make_pair():
    """Returns a trained float64 model with dropout and batch norm, and the same one in PyTorch."""
    ours = [
        Conv2D(8, 3, padding=1), BatchNorm2D(), ReLU(),
        Residual(Conv2D(8, 3, padding=1), BatchNorm2D(), Tanh()), MaxPool2D(2), Conv2D(6, 3), ReLU(),
        Flatten(), Dropout(0.5), Dense(30), Tanh(), Dense(5),
    ]  # fmt: skip
    inner = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Tanh()
    theirs = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        ResidualModule(*inner), nn.MaxPool2d(2), nn.Conv2d(8, 6, 3), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(6 * 4 * 5, 30), nn.Tanh(), nn.Linear(30, 5),
    )  # fmt: skip
    model, rng = Sequential(ours, SHAPE, dtype="float64"), np.random.default_rng(0)
    X, y = rng.standard_normal((EXAMPLES, *SHAPE)), rng.integers(0, 5, EXAMPLES)
    Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(X, y, epochs=2, verbose=0)
    theirs.double().eval()
    state = {name: torch.tensor(array) for name, array in model.state_dict().items()}
    for name, tensor in theirs.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            tensor.copy_(state[name])
    return model, theirs, X, y


def gradient_of(module, X, value):
    """Returns PyTorch's gradient w.r.t. X of the sum of value(scores)."""
    x = torch.tensor(X, requires_grad=True)
    value(module(x)).sum().backward()
    return x.grad.numpy()


def check(found, expected):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


def test_input_gradients():
    model, module, X, y = make_pair()
    labels, rows = torch.tensor(y), torch.arange(EXAMPLES)
    check(
        model.input_gradient(X, y, "softmax_cross_entropy"),
        gradient_of(module, X, lambda scores: nn.functional.cross_entropy(scores, labels, reduction="none")),
    )
    check(model.input_gradient(X, y), gradient_of(module, X, lambda scores: scores[rows, labels]))
    check(model.input_gradient(X, 3), gradient_of(module, X, lambda scores: scores[:, 3]))
    check(model.input_gradient(X), gradient_of(module, X, lambda scores: scores.max(dim=1).values))
    dscores = np.random.default_rng(1).standard_normal((EXAMPLES, 5))
    check(
        model.input_gradient(X, dscores=dscores),
        gradient_of(module, X, lambda scores: scores * torch.tensor(dscores)),
    )


def test_saliency_and_grad_cam():
    """The maps that plots.saliency and plots.grad_cam draw, with their formulas in PyTorch."""
    pytest.importorskip("matplotlib")
    from minidl.plots.attribution import chain_to, compute_grad_cam, compute_saliency, resize

    model, module, X, y = make_pair()
    chosen, rows = np.eye(5)[y], torch.arange(EXAMPLES)
    gradient = gradient_of(module, X, lambda scores: scores[rows, torch.tensor(y)])
    check(compute_saliency(model, X, chosen, SHAPE), np.abs(gradient).max(axis=1))
    for layer, last in ((2, 3), (3, 4), (None, 7)):  # the default is the last convolution and its activation
        features = module[:last](torch.tensor(X)).detach().requires_grad_()
        (module[last:](features) * torch.tensor(chosen)).sum().backward()
        weights = features.grad.mean(dim=(2, 3), keepdim=True)
        expected = torch.relu((weights * features.detach()).sum(dim=1, keepdim=True))
        maps = compute_grad_cam(model, chain_to(model, layer), X, chosen)
        check(maps, expected[:, 0].numpy())
        resized = nn.functional.interpolate(expected, SHAPE[1:], mode="bilinear", align_corners=False)
        check(resize(maps, SHAPE[1:]), resized[:, 0].numpy())
