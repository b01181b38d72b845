"""examples/cifar10_fast.py in PyTorch, and ResNet-18 in its usual recipe, for cifar10.py.

The net has the initial weights of minidl's, and the trainer's rates, momentum and loss. Batches are gathered from
bytes, augmented and scaled in each step, as in minidl.
"""

import copy
import math
import time
from collections import defaultdict

import numpy as np
import torch
from cifar10_parts import VIEWS, Progress, accuracies, accuracy, make
from nets import leaves, torch_module
from torch import nn

from minidl.engine.views import NAMES
from minidl.layers import Normalize

MODES = ["eager", "eager channels_last", "compile", "compile channels_last"]
PRODUCTS = torch.bfloat16  # of Newton and Schulz, as in torch.optim.Muon
PADDING, BATCH = 4, 128  # of ResNet-18's crops, and its batch size


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon for filters as well; a group's `lr` is multiplied as there."""

    def __init__(self, params, momentum, nesterov, ns_coefficients, eps, ns_steps):
        options = {"momentum": momentum, "nesterov": nesterov, "eps": eps}
        super().__init__(params, {"lr": 0.0, "ns_coefficients": ns_coefficients, "ns_steps": ns_steps, **options})

    @torch.no_grad()
    def step(self):
        """Makes a step of each parameter, whose first axis is that of the rows."""
        for group in self.param_groups:
            for param in group["params"]:
                velocity = self.state[param].setdefault("velocity", torch.zeros_like(param))
                velocity.mul_(group["momentum"]).add_(param.grad)
                u = param.grad.add(velocity, alpha=group["momentum"]) if group["nesterov"] else velocity
                eps = group["eps"] / (1 - group["momentum"])  # torch.optim.Muon averages gradients, and does not add
                u = orthogonalized(u.flatten(1), group["ns_coefficients"], group["ns_steps"], eps)
                scale = math.sqrt(max(1.0, u.shape[0] / u.shape[1]))
                param.add_(u.reshape(param.shape), alpha=-group["lr"] * scale)


def orthogonalized(u, coefficients, steps, eps):
    """Returns a matrix with the singular vectors of u and singular values of about 1, by Newton and Schulz."""
    a, b, c = coefficients
    x = u.T if u.shape[0] > u.shape[1] else u
    x = (x / x.norm().clamp(min=eps)).to(PRODUCTS)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if u.shape[0] > u.shape[1] else x).to(u.dtype)


class TorchTraining:
    """Steps of a net in a mode of MODES. Groups of the optimizers have `lr_mult`, a factor of the rate."""

    def __init__(self, net, make_optimizers, smoothing, mode):
        self.layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format
        self.net, self.mode = net.to(memory_format=self.layout), mode
        self.optimizers, self.initial = make_optimizers(net), copy.deepcopy(net.state_dict())

        def loss_of(x, y):
            return nn.functional.cross_entropy(net(x), y, label_smoothing=smoothing)

        if mode.startswith("compile"):
            torch.compiler.reset()
            loss_of = torch.compile(loss_of, dynamic=False)
        self.loss_of = loss_of

    def step(self, x, y, rate):
        """Makes a step on scaled images; returns the loss, a tensor."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["lr_mult"]
            optimizer.zero_grad()
        loss = self.loss_of(x.contiguous(memory_format=self.layout), y)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()

    def reset(self):
        """Takes all steps back."""
        self.net.load_state_dict(self.initial)
        for optimizer in self.optimizers:
            optimizer.state.clear()


def milliseconds(training, x, y, steps=3):
    """Returns the time of the fastest of some steps after two others, which compile; takes them back."""
    found = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        training.step(x, y, 0.0)
        found.append(1000 * (time.perf_counter() - begin))
    training.reset()
    return min(found[2:])


def measure_modes(start, modes, batch_size, seed=0):
    """Returns the milliseconds of a step in each mode; one that fails is left out, with a notice."""
    x, y = torch.randn(batch_size, 3, 32, 32), torch.arange(batch_size) % 10
    found = {}
    for mode in modes:
        try:
            found[mode] = milliseconds(start(mode), x, y)
        except Exception as error:
            print(f"  {mode} is skipped ({type(error).__name__}: {error})".splitlines()[0], flush=True)
    return found


# ---- images


def cut(X, rows, columns):
    """Returns images (n, c, h, w) of bytes with rows (n, h) and columns (n, w) of their own, in channels_last."""
    n = torch.arange(len(X))[:, None, None]
    return X.permute(0, 2, 3, 1)[n, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def places(n, size, shift):
    """Returns (n, size) indices, moved by up to `shift` pixels: of rows or of columns."""
    return torch.arange(size) + torch.randint(-shift, shift + 1, (n, 1))


def flipped(columns, is_flipped):
    return torch.where(is_flipped[:, None], columns.flip(1), columns)


def reflected(index, size):
    """Returns the indices of what a border that is reflected shows."""
    return size - 1 - (size - 1 - index.abs()).abs()


def augmented(X, is_flipped, shift):
    """Returns images of bytes, each moved by up to `shift` pixels with a reflected border, then flipped or not."""
    (n, _, *sizes) = X.shape
    rows, columns = (reflected(places(n, size, shift), size) for size in sizes)
    return cut(X, rows, flipped(columns, is_flipped))


def cut_out(x, side):
    """Returns scaled images with zeros in a box of each, whose centre is any of its pixels."""
    (n, _, *sizes) = x.shape
    distances = (torch.arange(size) - torch.randint(size, (n, 1)) + side // 2 for size in sizes)
    rows, columns = ((distance >= 0) & (distance < side) for distance in distances)
    return x.masked_fill((rows[:, :, None] & columns[:, None])[:, None], 0)


def scaling(model):
    """Returns a function that scales images as the net's Normalize does."""
    (layer,) = (leaf for leaf in leaves(model) if isinstance(leaf, Normalize))
    mean, std = (torch.tensor(of, dtype=torch.float32).reshape(1, -1, 1, 1) for of in (layer.mean, layer.std))
    return lambda x: (x.float() - mean) / std


# ---- the example's recipe


def start_example(model, trainer, mode):
    """Returns the training of minidl's net in PyTorch, from the same weights."""
    return TorchTraining(
        torch_module(model), lambda net: make_optimizers(net, model, trainer), trainer.loss.label_smoothing, mode
    )


def make_optimizers(net, model, trainer):
    """Returns Muon for the filters and SGD for the others, with the factors of minidl's rates."""
    muon, exclude = trainer.optimizer, set(trainer.optimizer.exclude)
    filters, others = defaultdict(list), defaultdict(list)
    for name, param in net.named_parameters():
        number, _, own = name.rpartition(".")
        factors = model.layers[int(number)].lr_mult
        factor = factors if isinstance(factors, float) else factors.get(own, 1.0)
        if param.ndim > 1 and exclude.isdisjoint({name, own}):
            filters[factor].append(param)
        else:
            others[factor].append(param)
    of_filters, of_others = (
        [{"params": params, "lr_mult": factor} for factor, params in groups.items()] for groups in (filters, others)
    )
    return [
        Muon(of_filters, muon.momentum, muon.nesterov, muon.ns_coefficients, muon.eps, muon.ns_steps),
        torch.optim.SGD(of_others, lr=0.0, momentum=muon.momentum, nesterov=muon.nesterov, fused=True),
    ]


def prepared(data, recipe, seed, threads):
    """Returns minidl's net and trainer, and images and labels of the training as tensors."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    X, y, *_, classes = data
    return *make(X, classes, recipe, seed, threads), torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))


def learn_torch(data, recipe, seed, threads, mode):
    """Trains the example's net in PyTorch; returns its line of the results. minidl computes the accuracies."""
    model, trainer, X, y = prepared(data, recipe, seed, threads)
    training, scale = start_example(model, trainer, mode), scaling(model)
    if mode.startswith("compile"):
        milliseconds(training, scale(X[: recipe.batch_size]), y[: recipe.batch_size], steps=1)

    def evaluate(measure):
        model.load_state_dict({name: value.numpy() for name, value in training.net.state_dict().items()})
        return measure(model)

    progress = Progress(lambda: evaluate(lambda model: accuracy(model.predict(data[2]), data[3])))
    progress.start()
    side, step = torch.rand(len(X)) < 0.5, 0  # flipped in the first epoch; the sides alternate
    for epoch in range(recipe.epochs):
        for rows in torch.randperm(len(X)).split(recipe.batch_size):
            batch = scale(augmented(X[rows], side[rows] ^ bool(epoch % 2), recipe.shift))
            training.step(cut_out(batch, recipe.cutout), y[rows], trainer.optimizer.lr(step))
            step += 1
        progress.on_epoch_end()
    progress.stop()
    return progress.row() | {"accuracy": evaluate(lambda model: accuracies(model, *data[2:4]))}


def step_of(model, trainer, X, y, recipe, threads, mode):
    """Returns a function that makes a step on one batch, of the first epoch."""
    torch.set_num_threads(threads)
    training, scale = start_example(model, trainer, mode), scaling(model)
    X, y, rate = torch.from_numpy(X), torch.from_numpy(y.astype(np.int64)), trainer.optimizer.lr(0)

    def step():
        batch = scale(augmented(X, torch.rand(len(X)) < 0.5, recipe.shift))
        training.step(cut_out(batch, recipe.cutout), y, rate)

    return step


# ---- ResNet-18


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.body = nn.Sequential(*normed(inputs, filters, 3, stride), nn.ReLU(), *normed(filters, filters, 3))
        self.shortcut = nn.Sequential(*normed(inputs, filters, 1, stride) if inputs != filters else ())

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def normed(inputs, filters, size, stride=1):
    return nn.Conv2d(inputs, filters, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(filters)


def resnet18(classes, width=64):
    """Returns ResNet-18 as it is usual for CIFAR-10: its first convolution is 3x3 with stride 1, without a pool."""
    widths = [width * 2**k for k in range(4)]
    blocks = [
        Block(inputs if k == 0 else filters, filters, stride if k == 0 else 1)
        for inputs, filters, stride in zip([width, *widths], widths, (1, 2, 2, 2), strict=False)
        for k in range(2)
    ]
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)
    return nn.Sequential(*normed(3, width, 3), nn.ReLU(), *blocks, *ends)


def start_resnet18(classes, mode):
    """Returns the training of ResNet-18, with the usual momentum and weight decay."""

    def optimizers(net):
        groups = [{"params": list(net.parameters()), "lr_mult": 1.0}]
        return [torch.optim.SGD(groups, lr=0.0, momentum=0.9, weight_decay=5e-4, fused=True)]

    return TorchTraining(resnet18(classes), optimizers, 0.0, mode)


def learn_resnet18(data, seed, threads, mode, seconds):
    """Trains ResNet-18 for some seconds, in which the rate follows a cosine; returns its line of the results."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    X, y = torch.from_numpy(data[0]), torch.from_numpy(data[1].astype(np.int64))
    (n, _, height, width), training = X.shape, start_resnet18(data[4], mode)
    mean, std = (torch.tensor(of(data[0], axis=(0, 2, 3), keepdims=True)).float() for of in (np.mean, np.std))
    milliseconds(training, torch.randn(BATCH, 3, height, width), y[:1].repeat(BATCH), steps=1)
    progress = Progress(lambda: accuracy(scores(training, (mean, std), data[2], None), data[3]))
    progress.start()
    order, steps, begin, passed = torch.randperm(n), 0, time.perf_counter(), 0.0
    while passed < seconds:
        rows, order = order[:BATCH], order[BATCH:]
        padded = nn.functional.pad(X[rows], (PADDING,) * 4)
        vertical, horizontal = (places(len(rows), size, PADDING) + PADDING for size in (height, width))
        batch = cut(padded, vertical, flipped(horizontal, torch.rand(len(rows)) < 0.5))
        rate = 0.1 * (1 + math.cos(math.pi * passed / seconds)) / 2
        training.step((batch.float() - mean) / std, y[rows], rate)
        order, steps = order if len(order) >= min(BATCH, n) else torch.randperm(n), steps + 1
        passed = time.perf_counter() - begin
    progress.on_epoch_end()
    progress.stop()
    found = {name: accuracy(scores(training, (mean, std), data[2], views), data[3]) for name, views in VIEWS.items()}
    return progress.row() | {"accuracy": found, "steps": steps}


@torch.no_grad()
def scores(training, statistics, X, views):
    """Returns the scores of a net of PyTorch, the mean over views as in minidl."""
    training.net.eval()
    (mean, std), total, weights = statistics, 0.0, 0
    for weight, view in NAMES[views](X) if views else [(1, X)]:
        images = torch.from_numpy(np.ascontiguousarray(view)).split(500)
        total += weight * torch.cat([training.net((part.float() - mean) / std) for part in images]).numpy()
        weights += weight
    return total / weights
