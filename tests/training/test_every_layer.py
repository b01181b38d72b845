"""Each layer of the contract tables in training: gradients of single examples, interrupted and resumed fits."""

import numpy as np
import pytest
from contract.every_layer import DRAWS
from interrupted_fits import InterruptAfter

import minidl
from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Dense, Flatten
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

N, CLASSES, BATCH = 23, 3, 9
every_layer = pytest.mark.parametrize("name", sorted(DRAWS))


def make(name, number, dtype="float32"):
    """Returns a trainer of a random layer and a dense one, images and labels; the same each time."""
    rng = np.random.default_rng([number, *name.encode()])
    case = DRAWS[name](rng)
    model = Sequential([case.layer, Flatten(), Dense(CLASSES)], case.in_shape, seed=number, dtype=dtype)
    X, y = case.values(rng, (N, *case.in_shape)), rng.integers(0, CLASSES, N)
    return Trainer(model, "softmax_cross_entropy", SGD(0.01, momentum=0.9), ["accuracy"], seed=5), X, y


@every_layer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_examples_add_up_to_that_of_the_batch(name, dtype):
    """Both draw the same random numbers. Equal bits are tested with the kernels."""
    for number in range(3):
        trainer, X, y = make(name, number, dtype)
        trainer.step = 4
        if any(op.couples_examples for leaf in trainer.model.network.leaves for op in leaf.ops):
            with pytest.raises(ValueError, match=r"layer 0, .*: expected layers that see each example alone"):
                trainer.per_example_gradients(X, y)
            continue
        gradients = minidl.batch_sum(trainer.per_example_gradients(X, y))
        trainer.train_batch(X, y)
        for key, param in trainer.model.params.items():
            near = (1e-4 if dtype == "float32" else 1e-11) * max(np.abs(param.grad).max(), 1e-3)
            np.testing.assert_allclose(gradients[key] / N, param.grad, rtol=0, atol=near, err_msg=f"{number} {key}")


@every_layer
def test_steps_from_gradients_and_copies_have_the_same_bits(name):
    """With the random numbers of a forward by hand, which begin with those of the first step; 16 divides exactly."""
    (batch, X, y), (own, _, _) = make(name, 3), make(name, 3)
    X, y, batch.seed = X[:16], y[:16], own.model.seed
    for _ in range(2):
        batch.train_batch(X, y)
        scores = own.model.forward(X, training=True)
        own.backward_step(softmax_cross_entropy(scores, y)[1] / np.float32(16))
    target = make(name, 3)[0].model
    target.soft_update(own.model)
    expected = {key: value.tobytes() for key, value in batch.model.state_dict().items()}
    for model in (own.model, target):
        assert {key: value.tobytes() for key, value in model.state_dict().items()} == expected
        assert model.predict(X).tobytes() == batch.model.predict(X).tobytes()


def state(trainer, X):
    """Returns everything that a fit changes, as bytes."""
    history = {key: np.array(value).tobytes() for key, value in trainer.history.items() if key != "images_per_second"}
    weights = {key: value.tobytes() for key, value in trainer.model.state_dict().items()}
    return weights, history, trainer.step, trainer.epoch, trainer.model.predict(X).tobytes()


@every_layer
def test_an_interrupted_fit_is_resumed_with_the_same_bits(name, tmp_path):
    for number, step in ((0, 1), (1, 3)):
        trainer, X, y = make(name, number)
        fit = {"epochs": 2, "batch_size": BATCH, "verbose": 0, "validation_data": (X[:5], y[:5])}
        trainer.fit(X, y, **fit)
        interrupted, path = make(name, number)[0], tmp_path / f"{number}.ckpt"
        with pytest.raises(KeyboardInterrupt):
            interrupted.fit(X, y, **fit, callbacks=[Checkpoint(path, every_n_steps=1), InterruptAfter(step)])
        resumed = Trainer.resume(path, num_threads=3)
        assert resumed.step == step + 1
        resumed.fit(X, y, **fit)
        assert state(resumed, X) == state(trainer, X), number
