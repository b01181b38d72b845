"""Weights to PyTorch and back
==============================

A `state_dict` has the same names and layouts in minidl and in PyTorch, so nothing has to be converted.

Run it with: `python examples/from_torch.py` (needs PyTorch)

The same net is defined twice. minidl trains it on the digits; PyTorch loads the weights, predicts the same scores and
continues training; minidl loads the weights again.
"""

import sys

import numpy as np

from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, MaxPool2D, ReLU, Residual
from minidl.optimizers import SGD


def make_net():
    """Returns the net in minidl."""
    return Sequential(
        [
            Conv2D(16, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(),
            Residual(Conv2D(16, 3, padding=1), ReLU(), Conv2D(16, 3, padding=1)),
            MaxPool2D(2), Flatten(),
            Dense(64), ReLU(),
            Dense(10),
        ],
        input_shape=(1, 8, 8),
    )  # fmt: skip


def make_torch_net():
    """Returns the same net in PyTorch: layers at the same positions have the same names."""
    from torch import nn

    class Residual(nn.Module):
        """Residual block; the layers are named `body`, as in minidl."""

        def __init__(self, *layers):
            super().__init__()
            self.body = nn.Sequential(*layers)

        def forward(self, x):
            return self.body(x) + x

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Residual(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)),
        nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(),
        nn.Linear(64, 10),
    )  # fmt: skip


def copy_to_torch(model, module):
    """Copies the weights of a model into a module."""
    import torch

    module.load_state_dict({name: torch.tensor(array) for name, array in model.state_dict().items()})


def copy_from_torch(module, model):
    """Copies the weights of a module into a model."""
    model.load_state_dict({name: tensor.numpy() for name, tensor in module.state_dict().items()})


def predict_in_torch(module, X):
    """Returns PyTorch's predictions."""
    import torch

    module.eval()
    with torch.no_grad():
        return module(torch.tensor(X)).numpy()


def train_in_torch(module, X, y, steps=20):
    """Trains for some steps in PyTorch."""
    import torch

    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    for start in range(0, 64 * steps, 64):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            module(torch.tensor(X[start : start + 64])), torch.tensor(y[start : start + 64], dtype=torch.int64)
        )
        loss.backward()
        optimizer.step()


def main():
    """Trains in minidl, moves the weights, trains in PyTorch, moves them back."""
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is not installed: pip install torch")
    torch.manual_seed(0)
    data = load_digits()
    X, X_test = (X.astype(np.float32) / 16 for X in (data.X_train, data.X_test))

    model, module = make_net(), make_torch_net()
    Trainer(model, "softmax_cross_entropy", SGD(0.02, momentum=0.9)).fit(X, data.y_train, epochs=3, verbose=0)
    copy_to_torch(model, module)
    found, expected = predict_in_torch(module, X_test), model.predict(X_test)
    print(f"PyTorch with minidl's weights: scores differ by at most {np.abs(found - expected).max():.1e}")

    train_in_torch(module, X, data.y_train)
    copy_from_torch(module, model)
    found, expected = model.predict(X_test), predict_in_torch(module, X_test)
    print(f"minidl with PyTorch's weights: scores differ by at most {np.abs(found - expected).max():.1e}")
    state = module.state_dict()
    same = all(np.array_equal(state[name].numpy(), array) for name, array in model.state_dict().items())
    print(f"The weights are the same, to the last bit: {same}")
    print(f"Test accuracy {(found.argmax(axis=1) == data.y_test).mean():.2%}")


if __name__ == "__main__":
    main()
