"""The LeNet-5 train step in PyTorch, in each of the modes that might be its fastest."""

import itertools
import math

import torch
from torch import nn


def lenet5(weights):
    """LeNet-5 with the parameters of minidl's `state_dict()`; index 0 stands in for its Rescale."""
    model = nn.Sequential(
        nn.Identity(),
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return model


class TorchSteps:
    """Train steps on batches that lie ready in memory, scaled, in float32 and in the mode's layout.

    `mode` is "eager" or "compile", with or without " channels_last"; the optimizer is fused SGD.
    """

    def __init__(self, mode, weights, X, y, batch_size, lr, momentum):
        layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format
        model = lenet5(weights).to(memory_format=layout)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, fused=True)
        images = torch.from_numpy(X).float().div(255).to(memory_format=layout)
        labels = torch.from_numpy(y)
        self.batches = list(zip(images.split(batch_size), labels.split(batch_size), strict=True))

        def loss_of(x, y):
            return nn.functional.cross_entropy(model(x), y)

        self.loss_of = torch.compile(loss_of) if mode.startswith("compile") else loss_of

    def step(self, x, y):
        """Do one train step; returns the loss, a tensor."""
        self.optimizer.zero_grad()
        loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, steps):
        """Do `steps` train steps, round and round through the batches."""
        for x, y in itertools.islice(itertools.cycle(self.batches), steps):
            loss = self.step(x, y)
        if not math.isfinite(loss.item()):
            raise ArithmeticError("the loss is not finite")
