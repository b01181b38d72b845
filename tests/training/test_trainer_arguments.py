"""Mistakes that a trainer refuses before the first step, and edge cases of its arguments."""

import os
import re
import signal

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.initializers import ones
from minidl.layers import (
    AvgPool2D,
    BatchNorm1D,
    Block,
    Conv2D,
    Dense,
    LayerNorm,
    MaxPool2D,
    RandomFlip,
    Residual,
    Sigmoid,
    Softmax,
)
from minidl.losses import Huber, SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam, RMSprop

RNG = np.random.default_rng(2)
X = RNG.standard_normal((40, 4)).astype("f4")


def test_a_built_in_metric_that_does_not_fit():
    model = Sequential([Dense(1)])
    trainer = Trainer(model, "mean_squared_error", SGD(0.01), ["accuracy"])
    with pytest.raises(ValueError, match="accuracy: expected labels 0 and 1"):
        trainer.fit(X, RNG.standard_normal(40))
    assert trainer.step == 0 and model.network is None and trainer.interrupted is None


class Interrupt:
    """Raises Ctrl-C once, at the end of the last epoch."""

    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == 2 and not hasattr(self, "done"):
            self.done = True
            os.kill(os.getpid(), signal.SIGINT)


def test_a_fit_interrupted_after_its_last_step_is_completed():
    model = Sequential([Dense(3)], (4,))
    trainer, ended = Trainer(model, "softmax_cross_entropy", SGD(0.1)), []

    class EndRecorder:
        def on_fit_end(self, trainer):
            ended.append(trainer.step)

    fit = {"epochs": 3, "verbose": 0, "callbacks": [EarlyStopping("loss", patience=9), Interrupt(), EndRecorder()]}
    y = RNG.integers(0, 3, 40)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, y, **fit)
    assert trainer.interrupted is not None and ended == []
    assert len(trainer.fit(X, y, **fit)["epoch"]) == 3
    assert ended == [3] and trainer.interrupted is None
    assert len(trainer.fit(X, y, **fit)["epoch"]) == 6


def test_a_callback_may_be_in_the_list_only_once():
    early, trainer = EarlyStopping("loss"), Trainer(Sequential([Dense(3)], (4,)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(ValueError, match=r"callbacks: expected each of them once, got .*EarlyStopping"):
        trainer.fit(X, RNG.integers(0, 3, 40), callbacks=[early, early])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Sequential([RandomFlip(horizontal="no")], (1, 4, 4)), "horizontal"),
        (lambda: Sequential([BatchNorm1D(affine="no")], (4,)), "affine"),
        (lambda: Sequential([LayerNorm(affine=1)], (4,)), "affine"),
        (lambda: Sequential([MaxPool2D(2, ceil_mode="no")], (1, 4, 4)), "ceil_mode"),
        (lambda: Sequential([AvgPool2D(2, count_include_pad=None)], (1, 4, 4)), "count_include_pad"),
        (lambda: SGD(0.1, 0.9, nesterov="no"), "nesterov"),
        (lambda: RMSprop(centered="no"), "centered"),
        (lambda: Adam(amsgrad="no"), "amsgrad"),
    ],
)
def test_flags_must_be_bool(make, name):
    with pytest.raises(TypeError, match=f"{name}: expected True or False"):
        make()


def test_shuffle_must_be_bool():
    trainer = Trainer(Sequential([Dense(3)], (4,)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(TypeError, match="shuffle: expected True or False, got 'no'"):
        trainer.fit(X, RNG.integers(0, 3, 40), shuffle="no")


def test_arguments_of_a_loss_are_kept_and_shown():
    shown = "SoftmaxCrossEntropy(label_smoothing=0.1, ignore_index=None, weight=None)"
    for loss, name, expected_repr in (
        (Huber(2.0), "delta", "Huber(delta=2.0)"),
        (SoftmaxCrossEntropy(0.1), "label_smoothing", shown),
    ):
        assert repr(loss) == expected_repr
        with pytest.raises(AttributeError):
            setattr(loss, name, 0.5)


def test_a_delta_that_underflows_in_float32_is_refused():
    with pytest.raises(ValueError, match=r"delta: expected a number of at least 1.175e-38, got 1e-40"):
        Huber(1e-40)


@pytest.mark.parametrize(("last", "loss"), [(Softmax, "softmax_cross_entropy"), (Sigmoid, "binary_cross_entropy")])
def test_a_last_layer_that_repeats_the_loss_is_refused(last, loss):
    for layer in (last(), Block(Dense(3), last())):
        with pytest.raises(ValueError, match=rf"^loss: .*applies a {last.__name__} itself: leave out"):
            Trainer(Sequential([Dense(3), layer]), loss, SGD(0.1))
    Trainer(Sequential([Dense(3), Sigmoid()]), "mean_squared_error", SGD(0.1))


def test_freezing_a_whole_model():
    model = Sequential([Dense(3), Residual(Dense(3))], (4,))
    assert model.trainable
    model.trainable = False
    assert not model.trainable and not any(layer.trainable for layer in model.layers)
    outer = Sequential([model, Dense(2)], (4,))
    assert list(outer.network.trained_params(outer.params)) == ["1.weight", "1.bias"]
    with pytest.raises(TypeError, match="trainable: expected True or False"):
        model.trainable = "no"


def test_probabilities_of_a_single_score():
    model = Sequential([Dense(1)], (4,), dtype="float64")
    x = X[:5].astype("f8")
    one = 1 / (1 + np.exp(-model.predict(x)[:, 0]))
    np.testing.assert_allclose(model.predict_proba(x), np.stack([1 - one, one], axis=1), rtol=1e-12)


class InConstructor(Layer):
    def __init__(self):
        self.gain = self.param("gain", (1,), ones)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sequential(Dense(3)), "layers: expected a list of them, Sequential"),
        (lambda: BatchNorm1D(16), "positional"),
        (lambda: Sequential([Conv2D(3, 3)], (28, 28)), r"X\[:, np.newaxis\] has one channel"),
        (InConstructor, "param: call it in build"),
        (lambda: EarlyStopping("val_acc"), "monitor: expected one of .*val_accuracy.*, got 'val_acc'"),
    ],
)
def test_common_mistakes(make, message):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        make()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros((2, 1), int), "y.ravel()"),
        (np.zeros((2, 4)), "shape (n,)"),
    ],
)
def test_labels_of_the_wrong_shape(y, message):
    trainer = Trainer(Sequential([Dense(3)], (4,)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.train_batch(X[:2], y)


def test_images_without_a_channel_axis():
    with pytest.raises(ValueError, match=r"for one channel, X\[:, np.newaxis\]"):
        Sequential([Conv2D(3, 3)], (1, 4, 4)).predict(np.zeros((5, 4, 4)))
