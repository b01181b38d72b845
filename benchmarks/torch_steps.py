"""The training step in PyTorch, in each of the modes that might be the fastest."""

import itertools
import math

import torch
from nets import LR, MOMENTUM, torch_module
from sides import Prediction
from torch import nn


class TorchSteps:
    """Training steps on batches that are already in memory, scaled, in float32 and in the mode's layout.

    mode: "eager" or "compile", optionally followed by " channels_last". The optimizer is fused SGD.
    """

    def __init__(self, task, mode):
        torch.set_num_threads(task.threads)
        layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format
        model = torch_module(task.model()).to(memory_format=layout)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, fused=True)
        images = torch.from_numpy(task.scaled).to(memory_format=layout)
        self.batches = task.cut(images, torch.from_numpy(task.y))

        def loss_of(x, y):
            return nn.functional.cross_entropy(model(x), y)

        if mode.startswith("compile"):
            if "channels_last" not in mode:
                torch.compiler.reset()  # otherwise earlier batch sizes lead to dynamic shapes
            loss_of = torch.compile(loss_of, dynamic=False)
        self.loss_of = loss_of

    def step(self, x, y):
        """Runs one training step; returns the loss, a tensor."""
        self.optimizer.zero_grad()
        loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step_loss(self):
        return self.step(*self.batches[0]).item()

    def run(self, steps):
        """Runs `steps` training steps, cycling through the batches."""
        for x, y in itertools.islice(itertools.cycle(self.batches), steps):
            loss = self.step(x, y)
        if not math.isfinite(loss.item()):
            raise ArithmeticError("the loss is not finite")


class TorchPerExample:
    """Per-example gradients by torch.func, on the same batches in NCHW layout."""

    def __init__(self, task):
        torch.set_num_threads(task.threads)
        module = torch_module(task.model())
        self.params = {name: param.detach() for name, param in module.named_parameters()}
        self.batches = task.cut(torch.from_numpy(task.scaled), torch.from_numpy(task.y))

        def loss_of(params, x, y):
            scores = torch.func.functional_call(module, params, (x[None],))
            return nn.functional.cross_entropy(scores, y[None])

        self.gradients = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))

    def compute(self, x, y):
        return self.gradients(self.params, x, y)

    def run(self, steps):
        for x, y in itertools.islice(itertools.cycle(self.batches), steps):
            self.compute(x, y)


class TorchPredict(Prediction):
    """Predicts a batch per step, without gradients. mode: as for TorchSteps."""

    def __init__(self, model, images, threads, mode="eager"):
        torch.set_num_threads(threads)
        layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format
        self.module = torch_module(model).eval().to(memory_format=layout)
        self.images = torch.from_numpy(images).to(memory_format=layout)
        if mode.startswith("compile"):
            if "channels_last" not in mode:
                torch.compiler.reset()  # as in TorchSteps
            self.module = torch.compile(self.module, dynamic=False)

    def predict(self):
        """Returns the scores of the batch."""
        with torch.no_grad():
            return self.module(self.images).numpy()
