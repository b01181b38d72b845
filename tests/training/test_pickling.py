"""A pickled or copied Trainer: a checkpoint together with everything needed to resume from it."""

import copy
import pickle

import numpy as np
import pytest
from interrupted_fits import FIT, MAKERS, WEIGHTS, X, Y, batchnorm_trainer, full_state, interrupt_fit

from minidl import Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.layers import Dense, ReLU
from minidl.optimizers import SGD, Adam
from minidl.saving.safetensors_file import FileError

WAYS = [lambda trainer: pickle.loads(pickle.dumps(trainer)), copy.deepcopy, copy.copy]


@pytest.mark.parametrize("way", WAYS, ids=["pickle", "deepcopy", "copy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", [*MAKERS.values(), batchnorm_trainer], ids=[*MAKERS, "batchnorm_trainer"])
def test_a_copy_trains_on_with_the_same_bits(make, dtype, way):
    trainer = make(dtype)
    trainer.fit(X, Y, sample_weight=WEIGHTS, **FIT)
    copied = way(trainer)
    assert full_state(copied) == full_state(trainer)
    before = full_state(trainer)
    copied.fit(X, Y, **{**FIT, "epochs": 2})
    assert full_state(trainer) == before  # nothing is shared
    trainer.fit(X, Y, **{**FIT, "epochs": 2})
    assert full_state(copied) == full_state(trainer)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_interrupted_fit_is_completed_by_the_copy(make):
    uninterrupted = make()
    uninterrupted.fit(X, Y, **FIT)
    copied = pickle.loads(pickle.dumps(interrupt_fit(make(), 20)))
    assert copied.interrupted is not None and copied.step == 21
    copied.fit(X, Y, **FIT)
    assert full_state(copied) == full_state(uninterrupted)


def test_a_copy_made_during_a_fit():
    class CopyingCallback:
        def __init__(self):
            self.copies = []

        def on_epoch_end(self, trainer, epoch, logs):
            self.copies.append(copy.deepcopy(trainer))

    trainer, copies = batchnorm_trainer(), CopyingCallback()
    trainer.fit(X, Y, **FIT, callbacks=[copies])
    assert [len(one.history["loss"]) for one in copies.copies] == [1, 2, 3, 4]
    copies.copies[1].fit(X, Y, **FIT)
    assert full_state(copies.copies[1]) == full_state(trainer)


def test_callbacks_of_the_completed_fit_have_their_state():
    uninterrupted, copied = (batchnorm_trainer() for _ in range(2))
    rule = lambda: [EarlyStopping("loss", patience=1)]  # noqa: E731
    uninterrupted.fit(X, Y, **{**FIT, "epochs": 9}, callbacks=rule())
    copied = copy.deepcopy(interrupt_fit(copied, 20, epochs=9, callbacks=rule()))
    copied.fit(X, Y, **{**FIT, "epochs": 9}, callbacks=rule())
    assert full_state(copied) == full_state(uninterrupted)


@pytest.mark.parametrize("way", WAYS, ids=["pickle", "deepcopy", "copy"])
def test_a_trainer_with_an_unbuilt_model(way):
    def make():
        model = Sequential([Dense(5), ReLU(), Dense(3)], seed=4)
        return Trainer(model, "softmax_cross_entropy", Adam(0.01), ["accuracy"], 8, 2, 1.0, 0.5, 0.25)

    trainer, copied = make(), way(make())
    assert (copied.num_threads, copied.seed) == (2, 8)
    assert (copied.clip_norm, copied.clip_value, copied.per_example_clip_norm) == (1.0, 0.5, 0.25)
    assert copied.model.network is None and list(copied.metrics) == ["accuracy"]
    for one in (trainer, copied):
        one.fit(X.reshape(90, 36), Y, **FIT)
    result, expected = ({k: v.tobytes() for k, v in one.model.state_dict().items()} for one in (copied, trainer))
    assert result == expected


def test_settings_of_trainer_and_layers_are_copied():
    trainer = batchnorm_trainer()
    trainer.model.layers[0].trainable, trainer.model.layers[4].lr_mult = False, 0.5
    trainer.num_threads, trainer.clip_norm = 2, 3.0
    trainer.fit(X, Y, **FIT)
    copied = copy.deepcopy(trainer)
    assert (copied.num_threads, copied.clip_norm, copied.clip_value) == (2, 3.0, None)
    assert not copied.model.layers[0].trainable and copied.model.layers[4].lr_mult == 0.5


def test_a_trainer_subclass_is_preserved():
    trainer = CustomTrainer(Sequential([Dense(3)], (36,)), "softmax_cross_entropy", SGD(0.1))
    assert type(pickle.loads(pickle.dumps(trainer))) is CustomTrainer
    unbuilt = CustomTrainer(Sequential([Dense(3)]), "softmax_cross_entropy", SGD(0.1))
    assert type(copy.deepcopy(unbuilt)) is CustomTrainer


class CustomTrainer(Trainer):
    """A user's subclass."""


def test_what_no_checkpoint_can_hold_is_refused():
    class Local:
        lr = 0.1

        def __init__(self, hidden):
            self._kept = hidden

        def step(self, params, lr):
            pass

    trainer = Trainer(Sequential([Dense(3)], (36,)), "softmax_cross_entropy", Local(object()))
    with pytest.raises(TypeError, match="optimizer: cannot be saved"):
        copy.deepcopy(trainer)


def test_pickling_within_a_step_is_refused():
    class Curious:
        lr, error = 0.1, None

        def step(self, params, lr):
            try:
                pickle.dumps(trainer)
            except RuntimeError as error:
                self.error = str(error)

    trainer = Trainer(Sequential([Dense(3)], (36,)), "softmax_cross_entropy", Curious())
    trainer.train_batch(X.reshape(90, 36), Y)
    assert trainer.optimizer.error.startswith("pickle: a step is being done")


def test_a_damaged_checkpoint_in_a_pickle_is_detected():
    content = pickle.dumps(batchnorm_trainer())
    weights = batchnorm_trainer().model.state_dict()["0.weight"].tobytes()
    place = content.index(weights) + 5
    with pytest.raises(FileError, match=r"tensor 'model/0.weight': expected the bytes that were written"):
        pickle.loads(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def test_functions_of_one_name_are_distinguished():
    """In a file they are not: there the user has to say which is which."""
    one, other, third = (lambda rng, shape: np.full(shape, 0.25)), (lambda step: 0.5), (lambda y, scores: 3.0)
    trainer = Trainer(Sequential([Dense(3, kernel_initializer=one)], (36,)), "huber", SGD(other), [third])
    copied = copy.deepcopy(trainer)
    assert copied.model.layers[0].kernel_initializer is one and copied.optimizer.lr is other
    assert copied.metrics == {"<lambda>": third}
    with pytest.raises(ValueError, match="expected one '<lambda>', got two"):
        trainer.check_savable()
