"""99 % on MNIST in a few seconds
=================================

LeNet-5 in four epochs, imports and loading included.

Run it with: `python examples/mnist_fast.py` (`--seed N` for other weights). The first load of MNIST takes up to a
minute.
"""

import time

BEGIN = time.perf_counter()  # before the imports, which are part of the time

import argparse  # noqa: E402
import math  # noqa: E402

from mnist_lenet import one_cycle  # noqa: E402
from models import lenet5  # noqa: E402

from minidl import Trainer  # noqa: E402
from minidl.datasets import DatasetUnavailable, load_mnist  # noqa: E402
from minidl.optimizers import SGD  # noqa: E402

EPOCHS, BATCH_SIZE, PEAK = 4, 64, 0.08


def main():
    """Loads, trains, tests; prints the accuracy and the time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed

    try:
        data = load_mnist()
    except DatasetUnavailable as error:
        raise SystemExit(f"{error}") from None
    model = lenet5(seed=seed)
    rate = one_cycle(PEAK, EPOCHS * math.ceil(len(data.X_train) / BATCH_SIZE))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(rate, momentum=0.9, nesterov=True), ["accuracy"], seed)
    trainer.fit(data.X_train, data.y_train, epochs=EPOCHS, batch_size=BATCH_SIZE)
    accuracy = trainer.evaluate(data.X_test, data.y_test)["accuracy"]
    print(f"test accuracy {accuracy:.2%}, {time.perf_counter() - BEGIN:.2f} s")


if __name__ == "__main__":
    main()
