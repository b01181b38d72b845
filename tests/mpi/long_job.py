"""A training job of some seconds that saves checkpoints and resumes; in it the last rank can cause a failure."""

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

EPOCHS, STEPS = 3, 8  # epochs of a job, steps of an epoch
HELD = 20  # the step after which a job with a `release` file waits for it, so that a signal arrives before the end


class SlowSteps:
    """Slows down steps, so that a test can interfere; prints the rank's process id; fails as `fault` says.

    release: a file that step HELD waits for, or None.
    """

    def __init__(self, comm, fault, pause, release):
        self.comm, self.fault, self.pause, self.release = comm, fault, pause, release
        self.stopper = threading.Thread()

    def on_fit_begin(self, trainer):
        sys.stdout.write(f"rank {self.comm.rank} is {os.getpid()}\n")
        sys.stdout.flush()

    def on_step_end(self, trainer, step, loss):
        time.sleep(self.pause)
        while step == HELD and self.release is not None and not os.path.exists(self.release):
            time.sleep(0.01)
        if step == 13 and self.fault == "stop from a thread" and self.comm.rank == self.comm.size - 1:
            self.stopper.join()
        if step == 11 and self.comm.rank == self.comm.size - 1:
            if self.fault == "raise in a callback":
                raise ZeroDivisionError("something went wrong")
            if self.fault == "exit in a callback":
                raise SystemExit(3)
            if self.fault == "fail in a step":
                self.comm.alltoallv = no_memory
            if self.fault == "stop":
                trainer.should_stop = True
            if self.fault == "stop from a thread":  # as a signal handler does
                self.stopper = threading.Thread(target=setattr, args=(trainer, "should_stop", True))
                self.stopper.start()


def no_memory(*buffers):
    raise MemoryError("no room for what the others send")


def main(folder, fault="", pause="0", held=""):
    comm, file = (
        [MPI(), MPI()][0],
        os.path.join(folder, "last"),
    )  # the second communicator spans the same ranks: both end together
    X, y = images(30 * STEPS - 7)  # the last batch has 23 examples
    if os.path.exists(file):
        trainer = Trainer.resume(file, distributed=comm)
    else:
        model = Sequential(lenet(), (1, 28, 28), seed=0)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.02, momentum=0.9), ["accuracy"], distributed=comm)
    last = comm.rank == comm.size - 1
    if fault == "raise before" and last:
        raise ZeroDivisionError("something went wrong")
    if fault == "exit before" and last:
        sys.exit(5)
    if fault == "leave before" and last:
        return
    if fault == "ignore" and last:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    release = os.path.join(folder, "release") if held else None
    callbacks = [Checkpoint(file, every_n_steps=2), SlowSteps(comm, fault, float(pause), release)]
    try:
        trainer.fit(X, y, epochs=EPOCHS, batch_size=30, callbacks=callbacks, verbose=0)
    except MemoryError:  # the script continues on this rank, while the others wait in fit
        time.sleep(1000)
    if fault == "raise after" and last:
        raise ZeroDivisionError("something went wrong")
    found = hashlib.sha256(b"".join(value.tobytes() for value in trainer.model.state_dict().values()))
    found.update(repr([trainer.history[name] for name in ("loss", "accuracy")]).encode())
    sys.stdout.write(f"rank {comm.rank} has {found.hexdigest()} at {trainer.step}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
