"""examples/mnist_fast.py in PyTorch: the same net, initial weights, schedule, batch size and number of epochs.

accuracy.py starts it. The images are scaled once and shuffled once per epoch, in memory, without a DataLoader.
"""

import time

BEGIN = time.perf_counter()  # before the imports, which are part of the measurement

import argparse  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from mnist_fast import BATCH_SIZE, EPOCHS, PEAK  # noqa: E402
from mnist_lenet import one_cycle  # noqa: E402
from models import lenet5  # noqa: E402
from nets import torch_module  # noqa: E402
from torch import nn  # noqa: E402

from minidl.datasets import load_mnist  # noqa: E402


def scale_images(X):
    """Returns scaled images in the layout that is fastest for this net and batch size."""
    return torch.from_numpy(X.astype(np.float32) / 255).to(memory_format=torch.channels_last)


def main():
    """Loads, trains, tests; prints the accuracy and the time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    torch.manual_seed(seed)
    data = load_mnist()
    X, y = scale_images(data.X_train), torch.from_numpy(data.y_train.astype(np.int64))
    model = torch_module(lenet5(seed=seed)).to(memory_format=torch.channels_last)
    rate = one_cycle(PEAK, EPOCHS * math.ceil(len(X) / BATCH_SIZE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True)
    step = 0
    for _ in range(EPOCHS):
        order = torch.randperm(len(X))
        for xb, yb in zip(X[order].split(BATCH_SIZE), y[order].split(BATCH_SIZE), strict=True):
            optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            step += 1
    with torch.no_grad():
        guesses = model(scale_images(data.X_test)).argmax(1).numpy()
    print(f"test accuracy {(guesses == data.y_test).mean():.2%}, {time.perf_counter() - BEGIN:.2f} s")


if __name__ == "__main__":
    main()
