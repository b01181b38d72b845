"""What fit prints: one plain line per epoch, and a bar only on a terminal."""

import contextlib
import io
import re
import sys

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Dense
from minidl.optimizers import SGD

X, Y = np.zeros((20, 3)), np.arange(20) % 2


def fit(**options):
    model = Sequential([Dense(2)], input_shape=(3,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.5), ["accuracy"])
    return trainer.fit(X, Y, **{"epochs": 2, "batch_size": 8} | options)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def fit_on_a_terminal(monkeypatch):
    """Returns a function that calls fit with a terminal as stderr and returns what was written, even if fit raised."""

    def run(**options):
        terminal = Terminal()
        with monkeypatch.context() as patch, contextlib.suppress(StopFit):
            patch.setattr(sys, "stderr", terminal)
            fit(**options)
        return terminal.getvalue()

    return run


class StopFit(Exception):
    pass


@pytest.mark.parametrize("verbose", [None, 1])
def test_without_a_terminal_one_line_per_epoch(verbose, capsys):
    history = fit(verbose=verbose, validation_data=(X, Y))
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert len(lines) == 2
    for i, line in enumerate(lines):
        head, *facts = line.split("  ")
        assert head == f"epoch {i + 1}/2"
        *facts, speed = facts
        values = dict(fact.split() for fact in facts)
        assert ["epoch", *values, "images_per_second"] == list(history)
        assert values["loss"] == f"{history['loss'][i]:.4f}"
        assert values["val_accuracy"] == f"{history['val_accuracy'][i]:.4f}"
        assert values["lr"] == "0.5"
        assert re.fullmatch(r"[\d,]+ images/s", speed)


def test_counts_the_epochs_of_this_fit(capsys):
    model = Sequential([Dense(2)], input_shape=(3,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.5))
    trainer.fit(X, Y, epochs=1, verbose=0)
    trainer.fit(X, Y, epochs=1, verbose=1)
    assert capsys.readouterr().out.startswith("epoch 1/1 ")


def test_verbose_0_is_silent(capsys, fit_on_a_terminal):
    assert fit_on_a_terminal(verbose=0) == ""
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verbose", [None, 2])
def test_a_terminal_gets_a_bar_and_the_lines(verbose, capsys, fit_on_a_terminal):
    shown = fit_on_a_terminal(verbose=verbose)
    assert "epoch 1/2" in shown and "\r" in shown
    assert "/3 [" in shown  # 20 examples in batches of 8: three steps
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_verbose_1_prints_lines_on_a_terminal_too(capsys, fit_on_a_terminal):
    assert fit_on_a_terminal(verbose=1) == ""
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_bar_is_removed_on_an_error(fit_on_a_terminal):
    class Stop:
        def on_step_end(self, trainer, step, loss):
            raise StopFit

    shown = fit_on_a_terminal(verbose=2, callbacks=[Stop()])
    assert "epoch 1/2" in shown
    assert shown.endswith("\r")


@pytest.mark.parametrize("verbose", [3, -1, "yes", 0.5])
def test_other_levels_are_refused(verbose):
    with pytest.raises(ValueError, match="verbose: expected None, 0, 1 or 2, got"):
        fit(verbose=verbose)
