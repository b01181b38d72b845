"""Times steps of the U-Net of examples/segmentation.py beside PyTorch, and compares what both learn.

README.md in this folder describes the method.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import machine, positive, print_machine, write_json

ROOT = Path(__file__).parents[1]
SIDES = ["minidl", "eager", "eager channels_last"]
SEEDS, EPOCHS, BATCH, CROP = 3, 25, 8, 64


def minidl_step(batch, size, threads):
    """Returns a function that makes a step, on images of the generator."""
    import segmentation

    from minidl import Sequential, Trainer
    from minidl.layers import Conv2D, Normalize
    from minidl.losses import SoftmaxCrossEntropy
    from minidl.optimizers import Adam

    X, y = segmentation.draw_cells(batch, (size, size), seed=0)
    model = Sequential([Normalize(400.0, 200.0), *segmentation.unet(), Conv2D(2, 1)], X.shape[1:])
    loss = SoftmaxCrossEntropy(weight=[1.0, 5.0], ignore_index=segmentation.IGNORED)
    trainer = Trainer(model, loss, Adam(0.001), num_threads=threads)
    X = X.astype(np.float32)
    return lambda: trainer.train_batch(X, y)


def torch_net(filters=12, levels=3):
    """Returns the example's net as a module of PyTorch."""
    import torch
    from torch import nn

    def block(inputs, filters):
        return [nn.Conv2d(inputs, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]

    class Skip(nn.Module):
        def __init__(self, below):
            super().__init__()
            self.below = below

        def forward(self, x):
            return torch.cat([x, self.below(x)], dim=1)

    def unet(inputs, filters, levels):
        if levels == 1:
            return [*block(inputs, filters), *block(filters, filters)], filters
        inner, width = unet(filters, 2 * filters, levels - 1)
        below = nn.Sequential(nn.MaxPool2d(2), *inner, nn.Upsample(scale_factor=2))
        return [*block(inputs, filters), Skip(below), *block(filters + width, filters)], filters

    layers, width = unet(1, filters, levels)
    net = nn.Sequential(*layers, nn.Conv2d(width, 2, 1))
    for module in net.modules():  # as minidl begins
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return net


def torch_loss(scores, y):
    """Returns the loss as minidl divides it."""
    from torch.nn import functional

    weight = scores.new_tensor([1.0, 5.0])
    losses = functional.cross_entropy(scores, y, weight, reduction="none", ignore_index=255)
    return (losses.sum((1, 2)) / (y != 255).sum((1, 2)).clamp(min=1)).mean()


def torch_step(batch, size, threads, mode):
    """Returns a function that makes a step in PyTorch."""
    import segmentation
    import torch

    torch.set_num_threads(threads)
    layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format
    X, y = segmentation.draw_cells(batch, (size, size), seed=0)
    x = torch.tensor((X.astype(np.float32) - 400) / 200).to(memory_format=layout)
    target, net = torch.tensor(y.astype(np.int64)), torch_net().to(memory_format=layout)
    optimizer = torch.optim.Adam(net.parameters(), 0.001, fused=True)

    def step():
        optimizer.zero_grad()
        torch_loss(net(x), target).backward()
        optimizer.step()

    return step


def child(side, batch, size, threads):
    """Makes as many steps as each line of the input says; prints the seconds of one, and the most memory so far."""
    step = minidl_step(batch, size, threads) if side == "minidl" else torch_step(batch, size, threads, side)
    step()
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            step()
        seconds = (time.perf_counter() - began) / int(line)
        print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]), flush=True)


def time_cell(sides, batch, size, threads, rounds, seconds):
    """Returns the median seconds of a step, and the most memory, of each side; their rounds take turns."""
    command = [sys.executable, __file__, "--child", "", str(batch), str(size), str(threads)]
    children = {}
    for side in sides:
        command[3] = side
        children[side] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    steps, times, memory = dict.fromkeys(sides, 1), {side: [] for side in sides}, {}
    for number in range(rounds + 1):
        for side in sides[:: 1 if number % 2 else -1]:
            one = children[side]
            print(steps[side], file=one.stdin, flush=True)
            took, memory[side] = json.loads(one.stdout.readline())
            if number:  # the first one is to choose the number of steps
                times[side].append(took)
            else:
                steps[side] = max(1, int(seconds / took))
    for one in children.values():
        one.stdin.close()
        one.wait()
    return {side: [statistics.median(times[side]), memory[side]] for side in sides}


def iou(labels, predicted):
    """Returns the IoU of both classes, averaged, of all labelled pixels."""
    known, both = labels != 255, []
    for label in (0, 1):
        a, b = (labels == label) & known, (predicted == label) & known
        both.append((a & b).sum() / (a | b).sum())
    return float(np.mean(both))


def learn_minidl(seed, test):
    """Returns the IoU on test images after the example's training, without augmentation but the random crop."""
    import segmentation

    from minidl import Sequential, Trainer
    from minidl.layers import Conv2D, Normalize
    from minidl.losses import SoftmaxCrossEntropy
    from minidl.optimizers import Adam

    layers = [Normalize(400.0, 200.0), *segmentation.unet(), Conv2D(2, 1)]
    model = Sequential(layers, (1, None, None), seed=seed)
    loss = SoftmaxCrossEntropy(weight=[1.0, 5.0], ignore_index=255)
    Trainer(model, loss, Adam(0.005), seed=seed).fit(crops(seed), epochs=EPOCHS, verbose=0)
    return iou(test[1], model.predict(test[0]).argmax(axis=1))


def learn_torch(seed, test):
    """The same in PyTorch, on the same crops in the same order."""
    import torch

    torch.manual_seed(seed)
    net = torch_net()
    optimizer = torch.optim.Adam(net.parameters(), 0.005)
    for _ in range(EPOCHS):
        for X, y in crops(seed):
            optimizer.zero_grad()
            scaled = torch.tensor((X.astype(np.float32) - 400) / 200)
            torch_loss(net(scaled), torch.tensor(y.astype(np.int64))).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        scores = net(torch.tensor((test[0].astype(np.float32) - 400) / 200))
    return iou(test[1], scores.argmax(dim=1).numpy())


def crops(seed):
    """Returns batches of crops of the example's images."""
    import segmentation

    rng = np.random.default_rng(seed)
    X, y = segmentation.draw_cells(60, (96, 128), seed=10 + seed)
    places = [(rng.integers(0, 96 - CROP + 1), rng.integers(0, 128 - CROP + 1)) for _ in X]
    parts = [
        (x[:, a : a + CROP, b : b + CROP], m[a : a + CROP, b : b + CROP])
        for x, m, (a, b) in zip(X, y, places, strict=True)
    ]
    return [tuple(map(np.stack, zip(*parts[k : k + BATCH], strict=True))) for k in range(0, len(parts), BATCH)]


def compare_learning():
    """Prints the IoU of three seeds, of both; returns them."""
    import segmentation

    test = segmentation.draw_cells(30, (96, 128), seed=1000)
    found = {
        "minidl": [learn_minidl(s, test) for s in range(SEEDS)],
        "PyTorch": [learn_torch(s, test) for s in range(SEEDS)],
    }
    for name, values in found.items():
        print(f"IoU of {name:8} {' '.join(f'{value:.4f}' for value in values)}")
    return found


def main():
    """Measures all cells, prints them, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", nargs="+", type=positive, default=[4, 16])
    parser.add_argument(
        "--sizes", nargs="+", type=positive, default=[128, 256], help="height and width, multiples of 4"
    )
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, 2])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a side in a round, about")
    parser.add_argument("--learning", action="store_true", help="also compare what both learn (some minutes)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "examples"))
    if args.child:
        side, *numbers = args.child
        child(side, *map(int, numbers))
        return
    results = {"machine": machine(), "steps": {}}
    print_machine(results["machine"])
    print("\nmilliseconds of a step, and MB:  " + "  ".join(f"{side:>22}" for side in args.sides))
    for threads in args.threads:
        for size in args.sizes:
            for batch in args.batches:
                found = time_cell(args.sides, batch, size, threads, args.rounds, args.seconds)
                results["steps"][f"{batch} of {size}, {threads} threads"] = found
                cells = "  ".join(f"{1000 * took:14.1f} {memory / 1e6:7.0f}" for took, memory in found.values())
                print(f"{batch:3} of {size} x {size}, {threads} threads {cells}", flush=True)
    if args.learning:
        results["iou"] = compare_learning()
    write_json(args.json, results)


if __name__ == "__main__":
    main()
