"""LeNet-5 in several processes
===============================

MPI starts the processes, and each trains on its part of every batch. The weights have the same bits as in one process.

Run it with: `mpiexec -n 2 python examples/distributed_mnist.py`. It learns MNIST or, without it, 8x8 digits.

Each process needs mpi4py, `pip install "minidl[mpi]"`, and the MPI whose mpiexec starts it. Without mpiexec there is
one process. The weights in the last line do not depend on the number of processes, not even if the job is interrupted
and continued with another number and `--resume`.
"""

import argparse
import contextlib
import hashlib
import sys

from mnist_lenet import load

from minidl import Trainer
from minidl.callbacks import Checkpoint
from minidl.distributed import MPI
from minidl.optimizers import SGD


def main():
    """Trains, tests and prints a hash of the weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, help="per process; default: its share of the machine's cores")
    parser.add_argument("--checkpoint", default="distributed.checkpoint", metavar="PATH", help="default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--digits", action="store_true", help="the embedded 8x8 digits, not MNIST")
    args = parser.parse_args()

    processes = MPI()
    with contextlib.redirect_stdout(sys.stdout if processes.rank == 0 else None):  # only rank 0 prints
        data, network, _ = load(args.digits)  # every process reads all data, and trains on its part of every batch
    if args.resume:
        trainer = Trainer.resume(args.checkpoint, num_threads=args.threads, distributed=processes)
    else:
        trainer = Trainer(
            network(seed=0),  # the same weights in all processes
            loss="softmax_cross_entropy",
            optimizer=SGD(0.05, momentum=0.9),
            metrics=["accuracy"],
            num_threads=args.threads,
            distributed=processes,
        )
    trainer.fit(
        data.X_train,
        data.y_train,
        epochs=args.epochs,
        batch_size=args.batch_size,
        validation_data=(data.X_test, data.y_test),
        callbacks=[Checkpoint(args.checkpoint, every_n_steps=100)],  # rank 0 writes it
    )
    if processes.rank == 0:
        weights = hashlib.sha256(b"".join(value.tobytes() for value in trainer.model.state_dict().values()))
        accuracy = trainer.history["val_accuracy"][-1]
        print(f"Test accuracy {accuracy:.2%} in {processes.size} processes, weights {weights.hexdigest()[:16]}")


if __name__ == "__main__":
    main()
