"""All callbacks in one interrupted and resumed fit, and the exports of `minidl.callbacks`."""

import numpy as np
import pytest
from interrupted_fits import FIT, StepCounter, X, Y, batchnorm_trainer, comparable, full_state, interrupt_and_complete

from minidl import callbacks
from minidl.callbacks import (
    CSVLogger,
    EarlyStopping,
    ExponentialMovingAverage,
    JSONLLogger,
    ReduceLROnPlateau,
    TimeLimit,
)

LONG = {"epochs": 8, "validation_split": 0.3}


@pytest.mark.parametrize("order", [1, -1])
def test_all_of_them_resumed_at_any_step_end_the_same(tmp_path, order):
    def together():
        made = [
            EarlyStopping(patience=6),
            ReduceLROnPlateau("loss", patience=0, factor=0.8),
            ExponentialMovingAverage(0.9, every_n_steps=2),
            CSVLogger(tmp_path / "log.csv", overwrite=True),
            JSONLLogger(tmp_path / "log.jsonl", overwrite=True),
            TimeLimit(1000),
            StepCounter(),
        ]
        return made[::order]

    uninterrupted, first = batchnorm_trainer(), together()
    uninterrupted.fit(X, Y, **FIT | LONG, callbacks=first)
    states = {type(c): comparable(c.state_dict()) for c in first if hasattr(c, "state_dict")}
    assert len(states) == 4
    for step in [1, 8, 9, 17, 30, 44, uninterrupted.step - 2]:
        trainer, again = interrupt_and_complete(batchnorm_trainer, step, together, tmp_path / "c", **LONG)
        assert full_state(trainer) == full_state(uninterrupted), step
        assert {type(c): comparable(c.state_dict()) for c in again if hasattr(c, "state_dict")} == states, step
        table = np.genfromtxt(tmp_path / "log.csv", delimiter=",", names=True)
        assert table["val_loss"].tolist() == uninterrupted.history["val_loss"]


def test_all_callbacks_are_exported():
    assert sorted(callbacks.__all__) == [name for name in sorted(vars(callbacks)) if name[0].isupper()]
