"""A training that lasts some seconds, is saved, and goes on where it was; some rank may do something bad in it."""

import hashlib
import os
import signal
import sys
import threading
import time

from mpi.nets import images, lenet

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.distributed import MPI
from minidl.optimizers import SGD

EPOCHS, STEPS = 3, 8  # an epoch
HELD = 20  # after this step, a job that is disturbed from outside waits for the disturbance


class Slowly:
    """Makes steps last, so that others can interfere; says where its rank is; and perhaps does what `deed` says.

    release: a file that step HELD waits for, None: nothing.
    """

    def __init__(self, comm, deed, pause, release):
        self.comm, self.deed, self.pause, self.release = comm, deed, pause, release
        self.outside = threading.Thread()

    def on_fit_begin(self, trainer):
        sys.stdout.write(f"rank {self.comm.rank} is {os.getpid()}\n")
        sys.stdout.flush()

    def on_step_end(self, trainer, step, loss):
        time.sleep(self.pause)
        while step == HELD and self.release is not None and not os.path.exists(self.release):
            time.sleep(0.01)
        if step == 13 and self.deed == "stop from outside" and self.comm.rank == self.comm.size - 1:
            self.outside.join()
        if step == 11 and self.comm.rank == self.comm.size - 1:
            if self.deed == "raise in a callback":
                raise ZeroDivisionError("something went wrong")
            if self.deed == "exit in a callback":
                raise SystemExit(3)
            if self.deed == "fail in a step":
                self.comm.alltoallv = no_memory
            if self.deed == "stop":
                trainer.should_stop = True
            if self.deed == "stop from outside":  # as a signal handler does
                self.outside = threading.Thread(target=setattr, args=(trainer, "should_stop", True))
                self.outside.start()


def no_memory(*buffers):
    raise MemoryError("no room for what the others send")


def main(folder, deed="", pause="0", held=""):
    comm, file = [MPI(), MPI()][0], os.path.join(folder, "last")  # another job of the same ranks: they end together
    X, y = images(30 * STEPS - 7)  # the last batch has 23 examples
    if os.path.exists(file):
        trainer = Trainer.resume(file, distributed=comm)
    else:
        model = Sequential(lenet(), (1, 28, 28), seed=0)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.02, momentum=0.9), ["accuracy"], distributed=comm)
    last = comm.rank == comm.size - 1
    if deed == "raise before" and last:
        raise ZeroDivisionError("something went wrong")
    if deed == "exit before" and last:
        sys.exit(5)
    if deed == "leave before" and last:
        return
    if deed == "ignore" and last:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    release = os.path.join(folder, "release") if held else None
    callbacks = [Checkpoint(file, every_n_steps=2), Slowly(comm, deed, float(pause), release)]
    try:
        trainer.fit(X, y, epochs=EPOCHS, batch_size=30, callbacks=callbacks, verbose=0)
    except MemoryError:  # a script that goes on by itself, while others wait in fit
        time.sleep(1000)
    if deed == "raise after the fit" and last:
        raise ZeroDivisionError("something went wrong")
    found = hashlib.sha256(b"".join(value.tobytes() for value in trainer.model.state_dict().values()))
    found.update(repr([trainer.history[name] for name in ("loss", "accuracy")]).encode())
    sys.stdout.write(f"rank {comm.rank} has {found.hexdigest()} at {trainer.step}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
