"""A U-Net with weights of classes and ignored pixels, and its steps, beside PyTorch."""

import sys
from pathlib import Path

import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Rescale
from minidl.losses import BinaryCrossEntropy, Dice, SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import segmentation

pytestmark = pytest.mark.oracle
STEPS, LEVELS = 50, 3


def forward(params, x):
    """The scores of the example's net, with the parameters in the order of the model."""
    from torch.nn import functional as F

    rest = iter(params)

    def block(x):
        return F.batch_norm(F.conv2d(x, next(rest), padding=1), None, None, next(rest), next(rest), True).relu()

    def unet(x, levels):
        if levels == 1:
            return block(block(x))
        x = block(x)
        below = F.interpolate(unet(F.max_pool2d(x, 2), levels - 1), scale_factor=2)
        return block(cat([x, below], dim=1))

    from torch import cat

    return F.conv2d(unet(x / 1000, LEVELS), next(rest), next(rest))


def softmax_loss(scores, y):
    """The mean over images of the sum of weight * loss over the labelled pixels, divided by their number."""
    from torch.nn import functional as F

    losses = F.cross_entropy(scores, y, scores.new_tensor([1.0, 5.0]), reduction="none", ignore_index=255)
    return (losses.sum((1, 2)) / (y != 255).sum((1, 2))).mean()


def binary_loss(scores, y):
    from torch.nn import functional as F

    known, t = y != 255, (y == 1).to(scores)
    losses = F.binary_cross_entropy_with_logits(scores[:, 0], t, reduction="none", pos_weight=scores.new_tensor([5.0]))
    return ((losses * known).sum((1, 2)) / known.sum((1, 2))).mean()


def dice_loss(scores, y):
    known = (y != 255)[:, None]
    p, t = scores.softmax(1) * known, (y[:, None] == scores.new_tensor([0, 1])[:, None, None]).to(scores) * known
    both, sums = (p * t).sum((2, 3)), (p + t).sum((2, 3))
    return (1 - (2 * both + 1) / (sums + 1)).mean()


@pytest.mark.parametrize(
    ("loss", "theirs", "channels"),
    [
        (SoftmaxCrossEntropy(weight=[1.0, 5.0], ignore_index=255), softmax_loss, 2),
        (BinaryCrossEntropy(pos_weight=5.0, ignore_index=255), binary_loss, 1),
        (Dice(ignore_index=255), dice_loss, 2),
    ],
    ids=["softmax", "binary", "dice"],
)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_fifty_steps_have_the_losses_of_pytorch(loss, theirs, channels, optimizer):
    import torch

    torch.set_num_threads(1)
    layers = [Rescale(1 / 1000), *segmentation.unet(4, LEVELS), Conv2D(channels, 1)]
    model = Sequential(layers, (1, 24, 32), dtype="float64")
    leaves = [torch.tensor(param.value.copy(), requires_grad=True) for param in model.params.values()]
    ours = SGD(0.05, momentum=0.9) if optimizer == "SGD" else Adam(0.003)
    other = torch.optim.SGD(leaves, 0.05, 0.9) if optimizer == "SGD" else torch.optim.Adam(leaves, 0.003)
    trainer = Trainer(model, loss, ours)
    for step in range(STEPS):
        X, y = segmentation.draw_cells(4, (24, 32), seed=step)
        other.zero_grad()
        expected = theirs(forward(leaves, torch.tensor(X.astype(float))), torch.tensor(y.astype(int)))
        expected.backward()
        other.step()
        assert trainer.train_batch(X, y) == pytest.approx(expected.item(), rel=1e-9), step
