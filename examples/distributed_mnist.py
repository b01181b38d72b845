"""LeNet-5 learns MNIST in several processes, with the bits of one: 8x8 digits where MNIST is out of reach.

Run it with: mpiexec -n 2 python examples/distributed_mnist.py

Each process needs mpi4py, pip install "minidl[mpi]", and the MPI whose mpiexec starts it. Without mpiexec it is one
process. Whatever the number, the last line is the same; so it is if the job is broken off and started again with
another number of processes and --resume.
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
    """Train, test, and print a hash of the weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, help="of each process; default: its share of the machine's cores")
    parser.add_argument("--checkpoint", default="distributed.checkpoint", metavar="PATH", help="default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="go on where the checkpoint is")
    parser.add_argument("--digits", action="store_true", help="the embedded 8x8 digits, not MNIST")
    args = parser.parse_args()

    processes = MPI()
    with contextlib.redirect_stdout(sys.stdout if processes.rank == 0 else None):  # one of them says what it reads
        data, network, _ = load(args.digits)  # each reads all, and trains on its share of every batch
    if args.resume:
        trainer = Trainer.resume(args.checkpoint, num_threads=args.threads, distributed=processes)
    else:
        trainer = Trainer(
            network(seed=0),  # the same weights in all of them
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
