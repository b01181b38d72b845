"""Fits that cannot use all ranks, and one that can: they print their notices."""

import sys

from mpi.nets import Noise, images

from minidl import Sequential, Trainer
from minidl.distributed import MPI
from minidl.layers import Dense, Flatten, Rescale
from minidl.optimizers import SGD, Muon


class Observer:
    rank_zero_only = True

    def on_fit_begin(self, trainer):
        sys.stdout.write("observing\n")


class Participant:
    def on_fit_begin(self, trainer):
        sys.stdout.write("participating\n")


def main(folder):
    comm, (X, y) = MPI(), images(64)
    for layers, size, distributed in (([Noise()], 64, comm), ([], 20, comm), ([], 64, None), ([], 64, comm)):
        model = Sequential([Rescale(1 / 255), Flatten(), *layers, Dense(10)], (1, 28, 28), seed=0)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), distributed=distributed)
        callbacks = [Observer(), Participant()] if distributed and size == 64 and not layers else []
        trainer.fit(X, y, batch_size=size, callbacks=callbacks)
    trainer.save_checkpoint(f"{folder}/rank {comm.rank}")
    Trainer(model, "softmax_cross_entropy", Muon(0.1), distributed=comm).fit(X, y)


if __name__ == "__main__":
    main(sys.argv[1])
