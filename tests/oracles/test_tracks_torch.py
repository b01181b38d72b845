"""Training compared with PyTorch's: the same net, initial weights and batches, step for step in float64.

`cd tests; python -m oracles.test_tracks_torch` prints the differences after some steps.
"""

import itertools

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, GlobalAvgPool2D, MaxPool2D, ReLU, Residual
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.oracle

IMAGE, BATCH, CHECKED = (1, 8, 8), 32, (1, 10, 50, 100, 200, 500)
OPTIMIZERS = {
    SGD: {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    RMSprop: {"lr": 0.001},
    Adam: {"lr": 0.001},
    AdamW: {"lr": 0.001, "weight_decay": 0.05},
    Adagrad: {"lr": 0.01},
}


class ResidualModule(nn.Module):
    """PyTorch's counterpart of Residual, with the same parameter names."""

    def __init__(self, *body):
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x):
        return x + self.body(x)


def lenet():
    """Returns LeNet-5 for 8x8 images, in minidl and in PyTorch."""
    ours = [
        Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2),
        Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2),
        Flatten(), Dense(48), ReLU(), Dense(32), ReLU(), Dense(10),
    ]  # fmt: skip
    theirs = [
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10),
    ]  # fmt: skip
    return ours, theirs


def mlp():
    ours = [Flatten(), Dense(64), ReLU(), Dense(32), ReLU(), Dense(10)]
    theirs = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)]
    return ours, theirs


def resnet():
    """Returns a net with batch norm and a residual block, in minidl and in PyTorch."""
    ours = [
        Conv2D(8, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(),
        Residual(Conv2D(8, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), Conv2D(8, 3, padding=1)),
        ReLU(), MaxPool2D(2), Conv2D(16, 3, stride=2, padding=1, use_bias=False), BatchNorm2D(), ReLU(),
        GlobalAvgPool2D(), Dense(10),
    ]  # fmt: skip
    theirs = [
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        ResidualModule(
            nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
        ),
        nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(16, 10),
    ]  # fmt: skip
    return ours, theirs


NETS = (lenet, mlp, resnet)


def max_difference(model, module):
    """Returns the largest difference of any tensor, relative to the largest magnitude in that tensor."""
    ours, theirs = model.state_dict(), {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(ours[name] - b).max() / np.abs(b).max()) for name, b in theirs.items())


def drift(net, kind):
    """Trains both; returns their differences after each of CHECKED steps, and PyTorch's last loss."""
    (ours, theirs), arguments = net(), OPTIMIZERS[kind]
    model, module = Sequential(ours, input_shape=IMAGE, dtype="float64"), nn.Sequential(*theirs).double()
    module.load_state_dict({name: torch.tensor(value) for name, value in model.state_dict().items()})
    trainer = Trainer(model, "softmax_cross_entropy", kind(**arguments))
    optimizer = getattr(torch.optim, kind.__name__)(module.parameters(), **arguments)
    data, rng, found = load_digits(), np.random.default_rng(0), {}
    for step in range(1, CHECKED[-1] + 1):
        rows = rng.choice(len(data.X_train), BATCH, replace=False)
        images, labels = data.X_train[rows] / 16.0, data.y_train[rows]
        trainer.train_batch(images, labels)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(torch.from_numpy(images)), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        if step in CHECKED:
            found[step] = max_difference(model, module)
    return found, loss.item()


def row(net, kind, found):
    return f"{net.__name__:8}{kind.__name__:10}" + "".join(f"{found[step]:10.1e}" for step in CHECKED)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Limits PyTorch to one thread: its idle threads spin between small calls."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_training_matches_pytorch(net, kind):
    """The two differ only by rounding errors, which grow exponentially if steps are large: hence two bounds."""
    found, loss = drift(net, kind)
    print(row(net, kind, found))
    assert found[50] <= 1e-9
    assert found[500] <= 1e-3
    assert loss < 0.5  # training converges


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(" " * 18 + "".join(f"{step:10}" for step in CHECKED))
    for net, kind in itertools.product(NETS, OPTIMIZERS):
        print(row(net, kind, drift(net, kind)[0]))
