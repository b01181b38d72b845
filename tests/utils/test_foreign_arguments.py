"""Arguments of Keras, PyTorch and scikit-learn: each call is refused with the answer that fits its class or method."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import ReduceLROnPlateau, TensorBoard
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Conv2D,
    Dense,
    Embedding,
    GroupNorm,
    LayerNorm,
    LeakyReLU,
    MaxPool2D,
    OneHot,
    Pad2D,
    PReLU,
    RandomCrop,
    RandomShift,
    RMSNorm,
    SqueezeExcite,
    Upsample2D,
)
from minidl.optimizers import SGD, Adam

X, Y = np.zeros((4, 4)), np.zeros(4, int)


def model():
    return Sequential([Dense(3)], input_shape=(4,))


def trainer(**options):
    return Trainer(model(), "softmax_cross_entropy", SGD(0.1), **options)


def batches():
    yield X, Y


CALLS = [
    (lambda: trainer().fit(X, Y, learning_rate=1), "use lr= of the optimizer, such as SGD(0.1)"),
    (lambda: trainer().fit(X, Y, lr=1), "use lr= of the optimizer, such as SGD(0.1)"),
    (lambda: Adam(learning_rate=1), "use lr="),
    (lambda: trainer(learning_rate=1), "use lr= of the optimizer, such as SGD(0.1)"),
    (lambda: trainer(callbacks=[]), "use trainer.fit(X, y, callbacks=...)"),
    (lambda: trainer(max_epochs=3), "use trainer.fit(X, y, epochs=...)"),
    (lambda: trainer(batch_size=3), "use trainer.fit(X, y, batch_size=...)"),
    (lambda: trainer().fit(X, Y, max_epochs=3), "use epochs="),
    (lambda: trainer().fit(X, Y, cutmix_alpha=1.0), "use cutmix="),
    (
        lambda: trainer().fit(X, Y, switch_prob=0.3),
        "leave it out: with both mixup= and cutmix=, each has half of the steps",
    ),
    (lambda: trainer(cutmix=1.0), "use trainer.fit(X, y, cutmix=...)"),
    (lambda: trainer().predict(X, batch_size=3), "leave it out: X is read in parts that fit into little memory"),
    (lambda: trainer().predict(X, verbose=0), "leave it out: only fit prints"),
    (lambda: trainer().predict_proba(X, verbose=0), "leave it out: only fit prints"),
    (lambda: model().predict(X, verbose=0), "leave it out: only fit prints"),
    (lambda: model().predict_proba(X, verbose=0), "leave it out: only fit prints"),
    (lambda: Embedding(input_dim=8, output_dim=2), "use categories="),
    (lambda: Embedding(8, output_dim=2), "use dim="),
    (lambda: Embedding(num_embeddings=8, embedding_dim=2), "use categories="),
    (lambda: Embedding(8, embedding_dim=2), "use dim="),
    (lambda: Embedding(8, 2, padding_idx=0), "leave it out: the vector of each category is trained"),
    (lambda: OneHot(num_classes=3), "use categories="),
    (lambda: OneHot(num_tokens=3), "use categories="),
    (lambda: Dense(8, input_dim=2), "use Sequential(layers, input_shape=...)"),
    (lambda: MaxPool2D(kernel_size=2), "use pool_size="),
    (lambda: Conv2D(8, pool_size=2), "use kernel_size="),
    (lambda: LeakyReLU(alpha=0.1), "use negative_slope="),
    (lambda: Upsample2D(2, interpolation="nearest"), "use mode=, 'nearest' or 'bilinear'"),
    (lambda: RandomCrop(32, padding=4, padding_mode="reflect"), "use mode="),
    (lambda: RandomShift(4, padding_mode="reflect"), "use mode="),
    (lambda: RandomShift(4, fill_mode="reflect"), "use mode=, 'constant', 'reflect', 'replicate' or 'circular'"),
    (lambda: Pad2D(4, padding_mode="reflect"), "use mode="),
    (lambda: SqueezeExcite(reduction=4), "use squeeze_channels=, the number of channels divided by it"),
    (lambda: Dense(8, name="first"), "leave it out: a layer of a model is found by its index, model[0]"),
    (lambda: TensorBoard(log_dir="runs"), "use folder="),
    (lambda: ReduceLROnPlateau(min_delta=0.1), "use threshold=, a fraction of the best value"),
]
OF_ESTIMATORS = {
    "max_iter": "use epochs=",
    "hidden_layer_sizes": "use model=, a list of layers such as",
    "learning_rate_init": "use lr=",
    "learning_rate": "use lr=, a number or a schedule",
    "layers": "use model=, a list of layers such as",
    "mixup": "leave it out: use Trainer(",
    "cutmix": "leave it out: use Trainer(",
    "solver": "use optimizer=",
    "alpha": "use optimizer=Adam(weight_decay=alpha / batch_size)",
}


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_an_unknown_argument_is_answered(number):
    call, answer = CALLS[number]
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value).endswith(f"=; {answer}")


@pytest.mark.parametrize("cls", [SequentialClassifier, SequentialRegressor])
@pytest.mark.parametrize("name", OF_ESTIMATORS)
def test_an_unknown_argument_of_an_estimator_is_answered(cls, name):
    with pytest.raises(TypeError, match=f"^{cls.__name__}: expected arguments from model, ") as raised:
        cls(**{name: 3})
    assert f"got {name}=; {OF_ESTIMATORS[name]}" in str(raised.value)


def test_a_derived_class_gets_the_answers_of_its_base():
    class Own(Trainer):
        pass

    with pytest.raises(TypeError, match=r"^Own: expected .*; use trainer.fit\(X, y, epochs=...\)$"):
        Own(model(), "huber", SGD(0.1), max_epochs=3)


@pytest.mark.parametrize("cls", [BatchNorm1D, BatchNorm2D, LayerNorm, RMSNorm, PReLU, GroupNorm])
def test_sizes_of_inputs_are_inferred(cls):
    sizes = (8, 16) if cls is GroupNorm else (16,)
    with pytest.raises(TypeError, match=rf"; leave the sizes of inputs out: they are inferred, {cls.__name__}\("):
        cls(*sizes)


def test_the_number_of_inputs_of_a_dense_layer_is_inferred():
    with pytest.raises(TypeError, match=r"use_bias: .*, got 10; the number of inputs is inferred: Dense\(10\)$"):
        Sequential([Dense(784, 10)], input_shape=(784,))


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 23}])
def test_a_generator_function_is_not_its_batches(options):
    with pytest.raises(TypeError, match=r"^X: expected .*, got the function batches: call it, batches\(\)$"):
        trainer().fit(batches, verbose=0, **options)
    trainer().fit(batches(), verbose=0)
