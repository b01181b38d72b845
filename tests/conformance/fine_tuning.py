"""Fine-tuning of imported nets beside PyTorch, on the same batches in float64: losses and weights.

    python tests/conformance/fine_tuning.py                      # MobileNetV2, EfficientNet-B0, ConvNeXt-T
    python tests/conformance/fine_tuning.py resnet18 --steps 100

A second run of PyTorch, whose weights are changed in their last bit, shows what rounding alone causes.
"""

import argparse
import copy
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import torchvision_nets

from minidl import Trainer
from minidl.onnx import import_model
from minidl.optimizers import SGD

NETS = ("mobilenet_v2", "efficientnet_b0", "convnext_tiny")
TOLERANCE = 1e-8
LR, MOMENTUM, BATCH, SIZE, CLASSES = 1e-3, 0.9, 16, 64, 1000


class TorchRun:
    """A net that PyTorch trains."""

    def __init__(self, net):
        self.net = net.train()
        self.optimizer = torch.optim.SGD(net.parameters(), LR, MOMENTUM)

    def step(self, images, labels):
        """Returns the loss before the step."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(torch.from_numpy(images)), torch.from_numpy(labels))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def arrays(self):
        """Returns parameters and running statistics by name, without the counters."""
        return {name: value.numpy() for name, value in self.net.state_dict().items() if value.is_floating_point()}


def matching_names(model, arrays):
    """Returns pairs of names of equal arrays in the model and in PyTorch, found by their values before training."""
    by_value = {np.ascontiguousarray(value).tobytes(): name for name, value in model.state_dict().items()}
    return [(by_value[np.ascontiguousarray(value).tobytes()], name) for name, value in arrays.items()]


def largest(ours, theirs, pairs):
    """Returns the largest difference of two sets of arrays."""
    return max(np.abs(ours[a].reshape(theirs[b].shape) - theirs[b]).max() for a, b in pairs)


def import_net(net, folder):
    """Returns the model of a net whose batch norms are not folded into its convolutions."""
    options = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    example = torch.zeros(2, 3, SIZE, SIZE, dtype=torch.float64)
    torchvision_nets.export(net, example, folder / "net.onnx", "torchscript", 17, **options)
    return import_model(folder / "net.onnx")


def check_net(name, steps, folder):
    """Prints the largest differences of one net; returns True if they are at most the tolerance."""
    net = torchvision_nets.without_randomness(torchvision_nets.draw(name, SIZE)).double()
    model = import_net(net, folder)
    other = copy.deepcopy(net)
    with torch.no_grad():
        for param in other.parameters():
            param.mul_(1 + torch.finfo(param.dtype).eps * torch.randn_like(param).sign())
    trainer, theirs, again = Trainer(model, "softmax_cross_entropy", SGD(LR, MOMENTUM)), TorchRun(net), TorchRun(other)
    pairs = matching_names(model, theirs.arrays())
    rng, losses = np.random.default_rng(0), []
    for _ in range(steps):
        batch = rng.standard_normal((BATCH, 3, SIZE, SIZE)), rng.integers(0, CLASSES, BATCH)
        losses.append((trainer.train_batch(*batch), theirs.step(*batch), again.step(*batch)))
    ours, expected, changed = np.array(losses).T
    loss, rounding = np.abs(ours - expected).max(), np.abs(changed - expected).max()
    weights = largest(model.state_dict(), theirs.arrays(), pairs)
    rounded = largest(again.arrays(), theirs.arrays(), [(name, name) for _, name in pairs])
    print(
        f"{name:16} {steps} steps, {len(pairs)} arrays: losses differ by {loss:.1e}, weights by {weights:.1e}; "
        f"by rounding alone {rounding:.1e} and {rounded:.1e}; loss {expected[0]:.3f} to {expected[-1]:.3f}",
        flush=True,
    )
    return max(loss, weights) <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="net", default=NETS, help=f"default: {', '.join(NETS)}")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        passed = [check_net(name, options.steps, Path(folder)) for name in options.nets]
    sys.exit(int(not all(passed)))


if __name__ == "__main__":
    main()
