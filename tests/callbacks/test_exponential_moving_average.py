"""ExponentialMovingAverage: the averages, how they are used, and their state after a resume."""

import copy

import numpy as np
import pytest
from interrupted_fits import (
    FIT,
    InterruptAfter,
    X,
    Y,
    batchnorm_trainer,
    comparable,
    full_state,
    interrupt_and_complete,
    interrupt_fit,
    native_trainer,
    python_trainer,
)

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, EarlyStopping, ExponentialMovingAverage
from minidl.layers import Scale
from minidl.optimizers import SGD


class StateRecorder:
    """Records the model's state after each step."""

    def __init__(self):
        self.after_steps = []

    def on_step_end(self, trainer, step, loss):
        self.after_steps.append(trainer.model.state_dict())


def by_hand(states, decay, params, warmup=True):
    """The same formula, tensor by tensor, in each tensor's dtype."""
    average = {name: value.copy() for name, value in states[0].items()}
    for n, state in enumerate(states[1:], 1):
        now = min(decay, (1 + n) / (10 + n)) if warmup else decay
        for name, value in state.items():
            average[name] += value.dtype.type(1 - now) * (value - average[name])
    return {name: value if name in params else states[-1][name] for name, value in average.items()}


@pytest.mark.parametrize("make", [native_trainer, batchnorm_trainer, python_trainer], ids=lambda make: make.__name__)
@pytest.mark.parametrize(("decay", "every"), [(0.9, 1), (0.999, 1), (0.0, 1), (0.7, 5)])
@pytest.mark.parametrize(("dtype", "warmup"), [("float32", True), ("float64", False)])
def test_it_matches_the_formula(make, decay, every, dtype, warmup):
    trainer, average, states = make(dtype), ExponentialMovingAverage(decay, every, warmup=warmup), StateRecorder()
    trainer.fit(X, Y, **FIT, callbacks=[average, states])
    expected = by_hand(states.after_steps[every - 1 :: every], decay, trainer.model.params, warmup)
    assert comparable(average.averages) == comparable({name: expected[name] for name in average.averages})
    assert average.averages.keys() == trainer.model.state_dict().keys()
    assert all(np.array_equal(value, expected[name]) for name, value in trainer.model.state_dict().items())


@pytest.mark.parametrize(("start", "every"), [(1, 1), (2, 1), (13, 1), (14, 5), (15, 5), (52, 1)])
def test_it_averages_the_last_part(start, every):
    """From the first multiple of every_n_steps on; before it, there is no average."""
    average, states = ExponentialMovingAverage(0.9, every, start_step=start), StateRecorder()
    trainer, counter = batchnorm_trainer(), Counter(average)
    trainer.fit(X, Y, **FIT, callbacks=[average, states, counter])
    averaged = [n for n in range(1, trainer.step + 1) if n >= start and n % every == 0]
    expected = by_hand([states.after_steps[n - 1] for n in averaged], 0.9, trainer.model.params)
    assert comparable(average.averages) == comparable({name: expected[name] for name in average.averages})
    assert all(np.array_equal(value, expected[name]) for name, value in trainer.model.state_dict().items())
    assert counter.steps_without == averaged[0] - 1


class Counter:
    """Counts the steps after which there is no average."""

    def __init__(self, average):
        self.average, self.steps_without = average, 0

    def on_step_end(self, trainer, step, loss):
        self.steps_without += self.average.state_dict()["averages"] is None


def test_the_steps_of_earlier_fits_count():
    trainer, average, states = batchnorm_trainer(), ExponentialMovingAverage(0.9, start_step=60), StateRecorder()
    trainer.fit(X, Y, **FIT, callbacks=[average])
    assert average.state_dict()["averages"] is None and trainer.step == 52
    trainer.fit(X, Y, **FIT, callbacks=[average, states])
    expected = by_hand(states.after_steps[60 - 52 - 1 :], 0.9, trainer.model.params)
    assert comparable(average.averages) == comparable({name: expected[name] for name in average.averages})


@pytest.mark.oracle
def test_it_matches_torch():
    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    trainer, average, states = (
        batchnorm_trainer("float64"),
        ExponentialMovingAverage(0.9, 1, False, False),
        StateRecorder(),
    )
    trainer.fit(X, Y, **FIT, callbacks=[average, states])
    layers = {"0": torch.nn.Conv2d(1, 4, 3), "1": torch.nn.BatchNorm2d(4), "4": torch.nn.Linear(64, 3)}
    theirs = torch.nn.ModuleDict(layers)
    averaged = AveragedModel(theirs.double(), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for state in states.after_steps:
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        theirs.load_state_dict({**theirs.state_dict(), **tensors})
        averaged.update_parameters(theirs)
    for name, value in average.averages.items():
        np.testing.assert_allclose(value, averaged.module.state_dict()[name].numpy(), rtol=1e-12, err_msg=name)


def test_by_default_it_forgets_the_first_weights():
    """A weight that rises by 1 in each step, whose average stays close: with a constant decay it lags by 368."""
    values = []
    for warmup in (True, False):
        model = Sequential([Scale()], (1,))
        average = ExponentialMovingAverage(apply=False, warmup=warmup)
        trainer = Trainer(model, lambda scores, y: (-scores[:, 0], -np.ones_like(scores)), SGD(1.0))
        trainer.fit(np.ones((1, 1)), np.zeros(1), epochs=460, callbacks=[average], verbose=0)
        values.append(float(trainer.model.params["0.weight"].value[0] - average.averages["0.weight"][0]))
    assert values[0] < 50 and 365 < values[1] < 371


def test_a_state_of_an_earlier_version_keeps_its_constant_decay(tmp_path):
    """Its file has no number of updates."""
    trainer, average, states = batchnorm_trainer(), ExponentialMovingAverage(0.9), StateRecorder()
    steady = ExponentialMovingAverage(0.9, warmup=False)
    interrupt_fit(trainer, 20, callbacks=[steady, Checkpoint(tmp_path / "c", every_n_steps=1)])
    resumed = Trainer.resume(tmp_path / "c")
    ((_, state, _),) = [one for one in resumed.interrupted.callbacks if "Average" in one[0]]
    assert state.pop("updates") == 20
    resumed.fit(X, Y, **FIT, callbacks=[average])
    batchnorm_trainer().fit(X, Y, **FIT, callbacks=[states, steady])
    assert comparable(average.averages) == comparable(steady.averages)


def test_steps_do_not_use_it_and_apply_is_optional():
    plain, trainer, average = batchnorm_trainer(), batchnorm_trainer(), ExponentialMovingAverage(0.9, apply=False)
    plain.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT, callbacks=[average])
    assert full_state(trainer) == full_state(plain)
    trainer.model.load_state_dict(average.averages)  # by hand
    applied = batchnorm_trainer()
    applied.fit(X, Y, **FIT, callbacks=[ExponentialMovingAverage(0.9)])
    assert full_state(trainer) == full_state(applied) != full_state(plain)


def test_it_can_be_evaluated_after_each_epoch():
    class Evaluator:
        def __init__(self, model, average):
            self.copy, self.average, self.scores = copy.deepcopy(model), average, []

        def on_epoch_end(self, trainer, epoch, logs):
            self.copy.load_state_dict(self.average.averages)
            self.scores.append(self.copy.predict(X))

    trainer, average = batchnorm_trainer(), ExponentialMovingAverage(0.9)
    measures = Evaluator(trainer.model, average)
    trainer.fit(X, Y, **FIT, callbacks=[average, measures])
    assert np.array_equal(measures.scores[-1], trainer.model.predict(X))


def test_averages_are_copies():
    average = ExponentialMovingAverage()
    with pytest.raises(ValueError, match="averages: expected a fit with an averaged step"):
        assert average.averages
    batchnorm_trainer().fit(X, Y, **FIT, callbacks=[average])
    before = comparable(average.averages)
    for array in average.averages.values():
        array[...] = 0
    assert comparable(average.averages) == before


@pytest.mark.parametrize("arguments", [{"every_n_steps": 1000}, {"start_step": 53}], ids=str)
def test_without_a_step_there_is_no_average(arguments):
    trainer, plain, average = batchnorm_trainer(), batchnorm_trainer(), ExponentialMovingAverage(**arguments)
    for each, callbacks in ((trainer, [average]), (plain, [])):
        each.fit(X, Y, **FIT, callbacks=callbacks)
    assert full_state(trainer) == full_state(plain)
    trainer.fit(X, Y, **FIT | {"epochs": 0}, callbacks=[ExponentialMovingAverage()])
    assert full_state(trainer) == full_state(plain)


def test_a_second_fit_starts_from_scratch():
    trainer, average, states = batchnorm_trainer(), ExponentialMovingAverage(0.9), StateRecorder()
    trainer.fit(X, Y, **FIT, callbacks=[average])
    trainer.fit(X, Y, **FIT | {"epochs": 1}, callbacks=[average, states])
    expected = by_hand(states.after_steps, 0.9, trainer.model.params)
    assert comparable(average.averages) == comparable({name: expected[name] for name in average.averages})


def test_an_exception_leaves_the_models_own_weights():
    trainer, plain = batchnorm_trainer(), interrupt_fit(batchnorm_trainer(), 20)
    interrupt_fit(trainer, 20, callbacks=[ExponentialMovingAverage(0.5)])
    assert full_state(trainer) == full_state(plain)


@pytest.mark.parametrize("make", [native_trainer, batchnorm_trainer, python_trainer], ids=lambda make: make.__name__)
@pytest.mark.parametrize(("every", "start"), [(1, 0), (5, 0), (1, 13), (5, 27)])
def test_resuming_at_any_step_has_the_same_result(tmp_path, make, every, start):
    def callbacks():
        return [ExponentialMovingAverage(0.9, every, start_step=start)]

    (average,), uninterrupted = callbacks(), make()
    uninterrupted.fit(X, Y, **FIT, callbacks=[average])
    for step in [0, 3, 4, 11, 12, 13, *range(14, uninterrupted.step, 5), uninterrupted.step - 1]:
        trainer, (again,) = interrupt_and_complete(make, step, callbacks, tmp_path / "c")
        assert full_state(trainer) == full_state(uninterrupted), step
        assert comparable(again.averages) == comparable(average.averages)


def test_a_file_from_the_end_holds_the_averages_and_a_resume_averages_once(tmp_path):
    trainer, path = batchnorm_trainer(), tmp_path / "c"
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path), ExponentialMovingAverage(0.9)])
    resumed = Trainer.resume(path)
    assert comparable(resumed.model.state_dict()) == comparable(trainer.model.state_dict())
    resumed.fit(X, Y, **FIT, callbacks=[ExponentialMovingAverage(0.9)])
    assert full_state(resumed) == full_state(trainer)


def test_in_one_process_the_same_object_continues():
    uninterrupted, trainer, average = batchnorm_trainer(), batchnorm_trainer(), ExponentialMovingAverage(0.9)
    uninterrupted.fit(X, Y, **FIT, callbacks=[ExponentialMovingAverage(0.9)])
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **FIT, callbacks=[average, InterruptAfter(20)])
    trainer.fit(X, Y, **FIT, callbacks=[average])
    assert full_state(trainer) == full_state(uninterrupted)


@pytest.mark.parametrize("other", [[], [0.8], [0.9, 2], [0.9, 1, True, True, 2]], ids=str)
@pytest.mark.parametrize(("start", "named"), [(0, "0.9, 1"), (9, "0.9, 1, start_step=9")])
def test_resuming_without_it_or_with_another_one_is_refused(tmp_path, other, start, named):
    average, path = ExponentialMovingAverage(0.9, start_step=start), tmp_path / "c"
    interrupt_fit(batchnorm_trainer(), 3, callbacks=[average, Checkpoint(path, every_n_steps=1)])
    callbacks = [ExponentialMovingAverage(*other)] if other else []
    with pytest.raises(ValueError, match=rf"callbacks: expected ExponentialMovingAverage\({named}\) as well"):
        Trainer.resume(path).fit(X, Y, **FIT, callbacks=callbacks)


def test_with_early_stopping_the_last_one_wins():
    for order in (1, -1):
        trainer, average, early = batchnorm_trainer(), ExponentialMovingAverage(0.9), EarlyStopping("loss", patience=99)
        trainer.fit(X, Y, **FIT, callbacks=[average, early][::order])
        is_average = comparable(trainer.model.state_dict()) == comparable(
            {name: average.averages[name] for name in trainer.model.state_dict()}
        )
        assert is_average == (order == -1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"decay": 1.0}, ValueError, r"decay: expected a number in \[0, 1\), got 1.0"),
        ({"decay": "x"}, TypeError, "decay: expected a number"),
        ({"every_n_steps": 0}, ValueError, "every_n_steps: expected at least 1"),
        ({"apply": 1}, TypeError, "apply: expected True or False"),
        ({"warmup": 1}, TypeError, "warmup: expected True or False"),
        ({"start_step": -1}, ValueError, "start_step: expected at least 0"),
        ({"start_step": 1.5}, TypeError, "start_step: expected an int"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        ExponentialMovingAverage(**arguments)


def test_repr():
    expected = "ExponentialMovingAverage(0.999, every_n_steps=1, apply=True, warmup=True, start_step=0)"
    assert repr(ExponentialMovingAverage()) == expected
