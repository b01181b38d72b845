"""Steps of train_batch on all ranks, until Ctrl-C in one of rank 0: each prints its steps and a hash of its weights."""

import hashlib
import os
import signal
import sys

from mpi.nets import images, lenet

from minidl import Sequential, Trainer
from minidl.distributed import MPI
from minidl.optimizers import SGD

STEPS = 3


class Interrupted(Trainer):
    """Gets Ctrl-C within its last step on rank 0; between two calls it would act on that rank alone."""

    def run(self, batches):
        ran = super().run(batches)
        if self.comm.rank == 0 and self.step == STEPS:
            os.kill(os.getpid(), signal.SIGINT)
        return ran


def main():
    comm, (X, y), model = MPI(), images(32), Sequential(lenet(), (1, 28, 28), seed=0)
    trainer = Interrupted(model, "softmax_cross_entropy", SGD(0.02), distributed=comm)
    try:
        while True:
            trainer.train_batch(X, y)
    except KeyboardInterrupt:
        found = hashlib.sha256(b"".join(value.tobytes() for value in trainer.model.state_dict().values()))
        sys.stdout.write(f"rank {comm.rank} interrupted after {trainer.step} steps: {found.hexdigest()}\n")


if __name__ == "__main__":
    main()
