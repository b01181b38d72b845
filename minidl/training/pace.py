"""Trainer.summary: a copy of a trainer makes the first steps of a fit, which say how long an epoch will take."""

from __future__ import annotations

import copy
import math
import statistics
import time
from dataclasses import replace
from typing import Any

from minidl.callbacks.callback_list import CallbackList
from minidl.engine.summary import Summary
from minidl.training.array_fit_loop import ArrayFitLoop
from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_arguments import FitArguments, make_loop
from minidl.training.progress import Progress
from minidl.training.report.probe import shared_methods
from minidl.training.signals import Signals
from minidl.utils.validation import check_int
from minidl_c.runtime.threads import get_num_threads

SECONDS = 1.0  # that are measured, after the first step
MOST_EPOCHS = 10**6  # in them, of few examples
INTERVAL = 0.05  # seconds between two looks at the clock, as those of fit: more often, they would slow small steps


class Stopwatch:
    """A callback that measures the steps of a fit, and ends it after about a second."""

    def __init__(self) -> None:
        self.every_n_steps, self._end = 1, math.inf
        self.paces: list[float] = []  # the seconds of a step in each interval

    def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
        """Begins an interval."""
        self._step, self._last = trainer.step, time.perf_counter()
        trainer.should_stop = self._last >= self._end

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Ends an interval."""
        now = time.perf_counter()
        if not self.paces:
            self._end = now + SECONDS
        self.paces.append((now - self._last) / (trainer.step - self._step))
        if now - self._last < INTERVAL:
            self.every_n_steps *= 2
        self._step, self._last = trainer.step, now
        trainer.should_stop = now >= self._end

    @property
    def pace(self) -> float:
        """The median of the seconds of a step, without the first one, which plans and gets memory, if others follow."""
        return statistics.median(self.paces[1:] or self.paces)


def summary_of_epoch(trainer: BaseTrainer, X: Any, y: Any, batch_size: int, examples: int | None) -> Summary:
    """Returns what Trainer.summary returns."""
    trainer.check_between_steps("summary")
    if y is None:
        raise TypeError("y: expected the targets of X, got None")
    count = None if examples is None else check_int("examples", examples)
    with trainer.model.usage.reading("summary"):
        copied = _copy_of(trainer)
    watch = Stopwatch()
    given = FitArguments(X=X, y=y, epochs=MOST_EPOCHS, batch_size=batch_size)
    loop = make_loop(copied, given, CallbackList([watch]), Progress(0, MOST_EPOCHS))
    assert isinstance(loop, ArrayFitLoop)
    with copied.model.usage.training("summary"), Signals() as signals:
        loop.begin()
        try:
            loop.run(signals)
        except FloatingPointError:
            if not watch.paces:
                raise
    size, rows = loop.config.step_size, len(loop.config.rows)
    table = loop.sized.model.summary(size, trainer.num_threads)
    num_threads = get_num_threads() if trainer.num_threads is None else trainer.num_threads
    examples = rows if count is None else count
    seconds = watch.pace * examples / min(size, rows)
    return replace(table, epoch_seconds=seconds, examples=examples, num_threads=num_threads)


def _copy_of(trainer: BaseTrainer) -> BaseTrainer:
    """Returns a trainer with copies of model, loss and optimizer, without metrics; raises TypeError without copies."""
    parts = trainer.model, trainer.loss, trainer.optimizer
    try:
        copies = copy.deepcopy(parts, {id(one): one for one in shared_methods(trainer)})
    except Exception as error:
        raise TypeError(f"summary: expected layers, loss and optimizer that can be copied: {error}") from error
    limits = trainer.clip_norm, trainer.clip_value, trainer.per_example_clip_norm
    return BaseTrainer(*copies, (), trainer.seed, trainer.num_threads, *limits)
