"""Memory of one fit, measured in a separate process that footprint.py starts. Linux only: it reads /proc/self.

python benchmarks/fit_memory.py {minidl,torch} {lenet,cnn,...} [--batch-size 64] [--steps 200]
python benchmarks/fit_memory.py {norms,gradients,...} {lenet,cnn,mlp} [--batch-size 64] [--steps 200]
python benchmarks/fit_memory.py flat {lenet,cnn,...} [--batch-size 16] [--steps 10000]

Prints a line of JSON, in kilobytes. `getrusage` is not used: its high-water mark starts at that of the parent process.
"""

import argparse
import json
from pathlib import Path

from measure import usable_cores
from nets import NETS, make_trainer
from per_example import SIDES
from sides import MODES, MinidlTrainBatch, Task


def read_status(name):
    """Returns a field of /proc/self/status in kB: VmRSS is the resident memory, VmHWM its peak since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise KeyError(name)


def measure_peak(mode, net, batch_size, steps):
    """Returns the peak memory of `steps` steps beyond imports and images, model and optimizer included."""
    if mode.startswith("PyTorch"):
        import torch  # noqa: F401 - counts as imports
    imports = read_status("VmRSS")
    task = Task(net, batch_size, steps, usable_cores())
    if mode.startswith("PyTorch"):
        task.scaled  # noqa: B018 - counts as images
    before = read_status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    (MODES | SIDES)[mode](task).run(steps)
    found = {"imports": imports, "images": before - imports, "fit": read_status("VmHWM") - before}
    if mode == "minidl fit":
        summary = task.model().summary(batch_size)
        found["summary"] = (summary.training_bytes + summary.parameter_bytes) // 1024  # with the momentum
    return found


class Recorder:
    """A callback that records the resident memory after each epoch."""

    def __init__(self):
        self.seen = []

    def on_epoch_end(self, trainer, epoch, logs):
        self.seen.append(read_status("VmRSS"))


def measure_growth(net, batch_size, steps, parts=10):
    """Returns the growth of memory between a tenth of the steps and all of them, in `fit` and in `train_batch`."""
    task = Task(net, batch_size, steps // parts, usable_cores())
    recorder = Recorder()
    make_trainer(task.model()).fit(task.X, task.y, epochs=parts, batch_size=batch_size, callbacks=[recorder], verbose=0)
    side, seen = MinidlTrainBatch(task), []
    for _ in range(parts):
        side.run(steps // parts)
        seen.append(read_status("VmRSS"))
    return {"steps": steps, "fit": recorder.seen[-1] - recorder.seen[0], "train_batch": seen[-1] - seen[0]}


def main():
    """Measures one quantity and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["minidl", "torch", "flat", *SIDES])
    parser.add_argument("net", choices=NETS)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    net = NETS[args.net]
    if args.what == "flat":
        found = measure_growth(net, args.batch_size, args.steps)
    else:
        mode = {"minidl": "minidl fit", "torch": "PyTorch eager"}.get(args.what, args.what)
        found = measure_peak(mode, net, args.batch_size, args.steps)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
