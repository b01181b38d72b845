"""Training on labels of positions, some of them ignored, and on probabilities."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, ReLU, Rescale
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD

X = np.random.default_rng(0).integers(0, 256, (90, 1, 8, 8)).astype("u1")
Y = (X[:, 0] > 100).astype("u1") + (X[:, 0] > 200)
Y[:, :2][X[:, 0, :2] < 50] = 255
Y[7] = 255


def make_trainer(loss, dtype="float32", threads=None, metrics=("accuracy",)):
    layers = [Rescale(1 / 255), Conv2D(8, 3, padding=1), ReLU(), Conv2D(3, 1)]
    return Trainer(
        Sequential(layers, (1, 8, 8), dtype=dtype), loss, SGD(0.5, momentum=0.9), metrics, num_threads=threads
    )


def weights(trainer):
    return [param.value.tobytes() for param in trainer.model.params.values()]


def test_a_net_learns_the_labels_of_pixels():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255))
    history = trainer.fit(X, Y, 20, batch_size=16, validation_split=0.1, verbose=0)
    assert history["accuracy"][-1] > 0.9 and history["val_accuracy"][-1] > 0.9
    predicted = trainer.model.predict(X).argmax(axis=1)
    assert trainer.evaluate(X, Y)["accuracy"] == (predicted == Y)[Y != 255].mean()
    assert trainer.report(X, Y) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3, 90])
def test_dtypes_of_labels_and_threads_change_no_bit(n, dtype):
    loss, result = SoftmaxCrossEntropy(ignore_index=255), []
    for y, threads in ((Y, 1), (Y, 2), (Y, 3), (Y.astype(int), 2), (Y.astype(">i2"), 2), (Y.astype("i4"), 8)):
        trainer = make_trainer(loss, dtype, threads)
        result.append((weights(trainer), trainer.fit(X[:n], y[:n], 3, batch_size=32, verbose=0)["loss"]))
    assert all(other == result[0] for other in result)


def test_an_example_without_labels_counts_with_a_loss_of_zero():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255))
    gradients = trainer.per_example_gradients(X[6:8], Y[6:8])
    assert all(each[0].any() and not each[1].any() for each in gradients.values())
    alone, both = trainer.evaluate(X[6:7], Y[6:7]), trainer.evaluate(X[6:8], Y[6:8])
    assert both["loss"] == pytest.approx(alone["loss"] / 2, rel=1e-6)
    assert both["accuracy"] == alone["accuracy"]


def test_weights_by_the_number_of_labels_give_the_mean_over_all_of_them():
    """As torch.nn.CrossEntropyLoss computes it."""
    counts = (Y != 255).sum(axis=(1, 2))
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255), "float64")
    scores = np.moveaxis(trainer.model.predict(X), 1, -1)[Y != 255]
    expected = SoftmaxCrossEntropy()(scores, Y[Y != 255])[0].mean()
    assert trainer.evaluate(X, Y, sample_weight=counts)["loss"] == pytest.approx(expected, rel=1e-12)


def test_class_weights_are_for_examples():
    with pytest.raises(TypeError, match=r"class_weight: expected .* \(90, 8, 8\): it weighs examples, not positions"):
        make_trainer(SoftmaxCrossEntropy(ignore_index=255)).fit(X, Y, class_weight="balanced", verbose=0)


def test_probabilities_train_as_labels_do():
    """One-hot rows give the bits of labels; accuracy compares with the most probable class."""
    y, result = (X[:, 0, 4, 4] > 100).astype(int) + (X[:, 0, 4, 4] > 200), []
    for targets in (y, np.eye(3)[y], np.eye(3, dtype=int)[y]):
        model = Sequential([Rescale(1 / 255), Flatten(), Dense(8), ReLU(), Dense(3)], (1, 8, 8))
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
        history = trainer.fit(X, targets, 5, batch_size=16, validation_data=(X, targets), verbose=0)
        result.append((weights(trainer), [history[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")]))
        trainer.report(X, targets)
    assert result[0] == result[1] == result[2]


def test_probabilities_of_pixels():
    masks = np.moveaxis(np.eye(3)[np.where(Y == 255, 0, Y)], -1, 1)
    one, other = make_trainer("softmax_cross_entropy"), make_trainer("softmax_cross_entropy")
    assert one.fit(X, masks, 3, verbose=0)["loss"] == other.fit(X, masks.argmax(axis=1), 3, verbose=0)["loss"]
    assert weights(one) == weights(other)
    blurred = make_trainer("softmax_cross_entropy", metrics=())
    assert blurred.fit(X, 0.5 * masks + 0.25, 3, verbose=0)["loss"][-1] > one.history["loss"][-1]
