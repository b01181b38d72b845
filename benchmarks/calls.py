"""One call at a time: microseconds of a step inside `fit`, `train_batch`, `backward_step`, `predict` and other calls.

Beside them, PyTorch and onnxruntime.

README.md in this folder describes the method.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from measure import Side, alternate, limit_threads, machine, positive, print_machine, settle, spread, write_json
from nets import NETS, Net, torch_module
from sides import MinidlPredict, OnnxruntimePredict

import minidl.onnx
from minidl import Trainer
from minidl.layers import Dense, ReLU
from minidl.optimizers import Adam

CONTROL = Net("MLP 8-64-64-1", lambda: [Dense(64), ReLU(), Dense(64), ReLU(), Dense(1)], (8,))
CASES = {"control": CONTROL, "mlp": NETS["mlp"], "lenet": NETS["lenet"]}
LR, IN_FIT = 0.001, 200  # steps of an epoch


class Work:
    """A net, `IN_FIT` batches of float32 and their targets; the first batch is that of single calls."""

    def __init__(self, net, batch_size, threads):
        rng = np.random.default_rng(0)
        self.net, self.batch_size, self.threads, n = net, batch_size, threads, batch_size * IN_FIT
        self.X = rng.random((n, *net.image), dtype=np.float32)
        one = net is CONTROL
        self.y = rng.random((n, 1), dtype=np.float32) if one else rng.integers(0, 10, n)
        self.loss = "mean_squared_error" if one else "softmax_cross_entropy"
        self.x, self.target = self.X[:batch_size], self.y[:batch_size]

    def trainer(self):
        return Trainer(self.net.model(), self.loss, Adam(LR), num_threads=self.threads)


def in_fit(work):
    """Returns a function that makes steps inside `fit`: whole epochs of IN_FIT steps."""
    trainer = work.trainer()

    def run(steps):
        trainer.fit(work.X, work.y, epochs=-(-steps // IN_FIT), batch_size=work.batch_size, verbose=0)

    return run


def calls(call, *arguments):
    """Returns a function that makes calls one after the other."""

    def run(steps):
        for _ in range(steps):
            call(*arguments)

    return run


def own_step(work):
    """Returns a function that makes steps from gradients of one's own objective, which cost nothing here."""
    trainer, dscores = work.trainer(), np.full((work.batch_size, *work.net.model().output_shape), 0.01, np.float32)

    def step():
        trainer.model.forward(work.x, training=True)
        trainer.backward_step(dscores)

    return step


def torch_step(work):
    """Returns a function that makes steps in PyTorch: eager, with the fused Adam, on tensors."""
    import torch

    torch.set_num_threads(work.threads)
    module = torch_module(work.net.model())
    optimizer = torch.optim.Adam(module.parameters(), lr=LR, fused=True)
    function = torch.nn.functional.mse_loss if work.net is CONTROL else torch.nn.functional.cross_entropy
    x, y = torch.from_numpy(work.x), torch.from_numpy(work.target)

    def step():
        optimizer.zero_grad()
        loss = function(module(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def onnxruntime_side(work, model):
    """Returns the side of the exported model."""
    with tempfile.TemporaryDirectory() as folder:
        minidl.onnx.export(model, Path(folder) / "model.onnx")
        theirs = OnnxruntimePredict(Path(folder) / "model.onnx", work.x, work.threads)
    assert np.allclose(theirs.predict(), MinidlPredict(model, work.x).predict(), 1e-3, 1e-4)
    return Side("onnxruntime", theirs.run)


def sides_of(work, peers):
    """Returns the sides of training and prediction, those of PyTorch and onnxruntime last."""
    trainer, model = work.trainer(), work.net.model()
    ours = calls(trainer.train_batch, work.x, work.target)
    sides = [Side("fit, a step", in_fit(work)), Side("train_batch", ours)]
    sides.append(Side("train_batch, float64", calls(trainer.train_batch, work.x.astype("float64"), work.target)))
    sides.append(Side("forward, backward_step", calls(own_step(work))))
    sides.append(Side("evaluate", calls(trainer.evaluate, work.x, work.target)))
    sides.append(Side("soft_update", calls(work.net.model().soft_update, model, 0.01)))
    bytes_of_x = (255 * work.x).astype("uint8")
    for name, x in {"predict": work.x, "predict, uint8": bytes_of_x, "predict, a list": work.x.tolist()}.items():
        sides.append(Side(name, calls(model.predict, x, work.threads)))
    if peers:
        sides += [Side("PyTorch, a step", calls(torch_step(work))), onnxruntime_side(work, model)]
    return sides


def measure(case, batch_size, threads, args):
    """Measures one net, batch size and number of threads; returns the entry for the file."""
    limit_threads(threads)
    work = Work(CASES[case], batch_size, threads)
    sides = sides_of(work, args.peers)
    settle(sides, args.steps, args.seconds)
    sides[0].steps = -(-sides[0].steps // IN_FIT) * IN_FIT  # whole epochs
    alternate(sides, args.rounds)
    print(f"\n{work.net.title}, batch {batch_size}, {threads} thread(s)\n{'':24}{'us':>10}{'fastest':>10}", flush=True)
    for side in sides:
        print(f"{side.name:24}{1000 * side.median:10.1f}{1000 * min(side.rounds):10.1f}", flush=True)
    times = {side.name: spread(side.rounds) for side in sides}
    return {"net": case, "batch_size": batch_size, "threads": threads, "milliseconds": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 32])
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, 2])
    parser.add_argument("--rounds", type=positive, default=11)
    parser.add_argument("--steps", type=positive, default=2000, help="most calls of a side in a round")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a side in a round")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="without PyTorch and onnxruntime")
    parser.add_argument("--json", help="the file for the results")
    args = parser.parse_args()
    results = {"machine": machine(), "calls": []}
    print_machine(results["machine"])
    for case in args.nets:
        for batch_size in args.batch_sizes:
            for threads in args.threads:
                results["calls"].append(measure(case, batch_size, threads, args))
                write_json(args.json, results)


if __name__ == "__main__":
    main()
