"""Steps of train_batch on all ranks, until Ctrl-C on one of them: each prints its steps and a hash of its weights."""

import hashlib
import os
import sys

from mpi.nets import images, lenet

from minidl import Sequential, Trainer
from minidl.distributed import MPI
from minidl.optimizers import SGD


def main():
    comm, (X, y) = MPI(), images(32)
    trainer = Trainer(Sequential(lenet(), (1, 28, 28), seed=0), "softmax_cross_entropy", SGD(0.02), distributed=comm)
    trainer.train_batch(X, y)
    try:
        sys.stdout.write(f"rank {comm.rank} is {os.getpid()}\n")
        sys.stdout.flush()
        while True:
            trainer.train_batch(X, y)
    except KeyboardInterrupt:
        found = hashlib.sha256(b"".join(value.tobytes() for value in trainer.model.state_dict().values()))
        sys.stdout.write(f"rank {comm.rank} interrupted after {trainer.step} steps: {found.hexdigest()}\n")


if __name__ == "__main__":
    main()
