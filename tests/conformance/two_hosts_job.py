"""A fit, or steps of train_batch, over ranks: python two_hosts_job.py CHECKPOINT TIMEOUT WARNING fit|batches|alone.

Writes what a rank prints to stderr, with the time, to CHECKPOINT.RANK, and the hash of the weights to stdout.
"""

import hashlib
import sys
import time

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.datasets import load_digits
from minidl.distributed import MPI, waiting
from minidl.layers import Dense, ReLU, Rescale
from minidl.optimizers import SGD

BATCH, EPOCHS = 64, 12  # 23 steps an epoch
PAUSE = 0.02  # seconds of a step, so that a fault comes in the middle


class Log:
    """What is written to stderr, with the time."""

    def __init__(self, path):
        self.file, self.stderr = open(path, "w"), sys.stderr  # noqa: SIM115

    def write(self, text):
        self.file.write(f"{time.time():.2f} {text}")
        self.file.flush()
        self.stderr.write(text)

    def flush(self):
        self.stderr.flush()


class Pace:
    """Makes steps slow; says where it is."""

    def on_step_end(self, trainer, step, loss):
        time.sleep(PAUSE)
        if step % 20 == 0:
            sys.stdout.write(f"step {step}\n")
            sys.stdout.flush()


def main(path, timeout, warning, mode):
    comm = None if mode == "alone" else MPI(timeout=float(timeout))
    waiting.WARNING_SECONDS = float(warning)
    if comm is not None:
        sys.stderr = Log(f"{path}.{comm.rank}")
    data = load_digits()
    X, y = data.X_train, data.y_train
    if mode == "alone":
        trainer = Trainer.resume(path)
    else:
        model = Sequential([Rescale(1 / 16), Dense(64), ReLU(), Dense(10)], (X[0].size,), seed=0)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.9), distributed=comm)
    X = X.reshape(len(X), -1)
    if mode == "batches":
        while True:
            trainer.train_batch(X[:BATCH], y[:BATCH])
            Pace().on_step_end(trainer, trainer.step, 0.0)
    callbacks = [Checkpoint(path, every_n_steps=10), *([] if comm is None else [Pace()])]
    trainer.fit(X, y, epochs=EPOCHS, batch_size=BATCH, verbose=0, callbacks=callbacks)
    if comm is None or comm.rank == 0:
        weights = hashlib.sha256(b"".join(value.tobytes() for value in trainer.model.state_dict().values()))
        sys.stdout.write(f"weights {weights.hexdigest()[:16]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
