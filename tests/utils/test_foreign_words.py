"""Names of Keras and PyTorch that users look for: each import, attribute or string gets the answer that fits."""

import copy

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import ColorJitter, Cutout, Dense, Dropout2D, GroupNorm, Pad2D, Reshape, Sigmoid, Upsample2D
from minidl.layers.parallel import Parallel
from minidl.optimizers import SGD
from minidl.schedules import Exponential
from minidl.utils.foreign_words import LAYERS
from minidl.utils.hints import plain

LAYER_NAMES = {
    "Normalization": "use Normalize.from_data(X)",
    "RandomTranslation": "use RandomShift(",
    "GLU": "join='multiply'",
    "Unflatten": "use Reshape(",
    "SpatialDropout1D": "use Dropout2D(",
    "SpatialDropout2D": "use Dropout2D(",
    "DropPath": "use StochasticDepth(",
    "RandomErasing": "use Cutout(",
    "MixUp": "use trainer.fit(X, y, mixup=",
    "CutMix": "use trainer.fit(X, y, cutmix=",
    "RandomBrightness": "use ColorJitter(brightness=",
    "RandomContrast": "use ColorJitter(contrast=",
    "RandomHorizontalFlip": "use RandomFlip(",
    "RandomRotation90": "use RandomRotate90(",
    "D4": "use RandomRotate90() and RandomFlip()",
    "Multiply": "join='multiply'",
    "ZeroPadding1D": "use padding=",
    "ZeroPadding2D": "Pad2D(",
    "RNN": "use SimpleRNN(units), LSTM(units) or GRU(units)",
    "LSTMCell": "use LSTM(units), which computes all steps",
    "TimeDistributed": "use Conv1D(units, 1)",
    "Masking": "no masks of steps",
    "MultiHeadAttention": "no attention; derive a class",
    "MultiheadAttention": "no attention; derive a class",
    "Lambda": "derive a class",
    "InstanceNorm2D": "use GroupNorm(",
    "InstanceNorm2d": "use GroupNorm(",
    "UpSampling1D": "Upsample2D(",
    "Resizing": "use Upsample2D(size=",
    "Conv3D": "no layers of volumes; derive a class",
}
SCHEDULE_NAMES = {
    "StepLR": "use minidl.schedules.Step",
    "CosineAnnealingLR": "use minidl.schedules.Cosine",
    "Triangular": "use minidl.schedules.OneCycle(max_lr, total_steps, anneal_strategy='linear')",
    "CyclicLR": "anneal_strategy='linear'), or for several cycles a function",
    "ExponentialDecay": "use minidl.schedules.Exponential(",
    "Cosin": "did you mean 'Cosine'?",
}


def model():
    return Sequential([Dense(3)], input_shape=(4,))


def trainer():
    return Trainer(model(), "softmax_cross_entropy", SGD(0.1))


@pytest.mark.parametrize(
    ("module", "name", "answer"),
    [("layers", *pair) for pair in LAYER_NAMES.items()]
    + [("schedules", *pair) for pair in SCHEDULE_NAMES.items()]
    + [("optimizers", *pair) for pair in list(SCHEDULE_NAMES.items())[:3]],
)
def test_an_import_is_answered(module, name, answer):
    with pytest.raises(ImportError) as raised:
        exec(f"from minidl.{module} import {name}", {})
    assert answer in str(raised.value)


@pytest.mark.parametrize(
    ("thing", "name", "answer"),
    [
        (model, "pop", "use model[:-1]"),
        (model, "freeze", "use model.trainable = False"),
        (model, "clone", "use copy.deepcopy(model)"),
        (model, "half", "computes in float32"),
        (trainer, "score", "use trainer.evaluate(X, y)"),
    ],
)
def test_an_attribute_is_answered(thing, name, answer):
    with pytest.raises(AttributeError) as raised:
        getattr(thing(), name)
    assert answer in str(raised.value)


def test_one_hot_rows_are_targets_of_the_loss_that_stands_for_categorical_cross_entropy():
    with pytest.raises(ValueError, match=r"use 'softmax_cross_entropy'.*; y may be one-hot rows or labels$"):
        Trainer(model(), "categorical_crossentropy", SGD(0.1))
    X, y = np.random.default_rng(0).normal(size=(6, 4)), np.array([0, 1, 2] * 2)
    assert trainer().evaluate(X, np.eye(3)[y])["loss"] == pytest.approx(trainer().evaluate(X, y)["loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("layers", "shape", "out_shape"),
    [
        ([Dropout2D(0.2)], (3, 8), (3, 8)),
        ([Parallel(Dense(5), [Dense(5), Sigmoid()], join="multiply")], (4,), (5,)),
        ([Reshape((3, 1, 8)), Upsample2D((1, 2)), Reshape((3, 16))], (3, 8), (3, 16)),
        ([Reshape((3, 1, 8)), Pad2D((0, 1)), Reshape((3, 10))], (3, 8), (3, 10)),
        ([Upsample2D(size=(5, 6), mode="bilinear")], (3, 8, 8), (3, 5, 6)),
        ([GroupNorm(3)], (3, 8, 8), (3, 8, 8)),
        ([Cutout(3, rate=0.5), ColorJitter(brightness=0.2), ColorJitter(contrast=0.2)], (3, 8, 8), (3, 8, 8)),
    ],
)
def test_an_equivalent_of_several_layers_has_the_shape(layers, shape, out_shape):
    assert Sequential(layers, input_shape=shape).output_shape == out_shape


def test_other_equivalents_compute_what_they_stand_for():
    two = Sequential([Dense(5), Dense(3)], input_shape=(4,))
    assert len(two[:-1]) == 1
    assert np.array_equal(copy.deepcopy(two).predict(np.eye(4)), two.predict(np.eye(4)))
    assert Exponential(0.1, 0.5 ** (1 / 100))(100) == pytest.approx(0.05)  # decay_rate 0.5, decay_steps 100


def test_no_answer_about_layers_is_found_by_similarity_alone():
    assert {plain(name) for name in LAYER_NAMES} <= set(LAYERS)
