"""FitLoop: the epochs of one fit, with callbacks, validation and history."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from minidl.callbacks.callback_list import CallbackList
from minidl.optimizers.base import rate_at
from minidl.training.base_trainer import BaseTrainer
from minidl.training.consistency import check_epoch, warnings_for
from minidl.training.epoch_numbers import end_epoch
from minidl.training.fit_state import FitConfig, FitState
from minidl.training.progress import Progress
from minidl.training.signals import Signals
from minidl.utils.errors import InputError, kind_of
from minidl.utils.hints import warn_caller
from minidl.utils.validation import Shape

ROWS_HASHED = 64  # rows of the data of a complete fit: hashing all of them would take as long as some of its steps


class FitLoop(ABC):
    """Runs the epochs of a fit. `config` never changes; every other attribute is progress.

    A subclass runs the steps of an epoch: on arrays (array_fit_loop.py) or on batches (batch_fit_loop.py).
    """

    def __init__(
        self,
        config: FitConfig,
        trainer: BaseTrainer,
        callbacks: CallbackList,
        progress: Progress,
        shape: Shape | None = None,
    ) -> None:
        self.config, self.trainer, self.callbacks, self.progress = config, trainer, callbacks, progress
        self._shape = shape  # of the examples of the fit, if they have one
        self.epochs_done = 0
        self.in_epoch = False
        self.seen = self.sized.nothing_seen()
        self._measured: list[str] = []  # the names of the losses and metrics of each epoch
        self.callbacks_ready = False  # whether all callbacks have begun
        self._should_stop = False  # the value of trainer.should_stop when the fit begins
        self._stopping = False  # whether to stop, the same in all processes
        self._restored = callbacks.carried  # the states of callbacks that do not hold them yet, or no longer
        self._arguments: dict[str, Any] | None = None

    @property
    def sized(self) -> BaseTrainer:
        """The trainer as it is now, for examples of the shape of this fit."""
        return self.trainer if self._shape is None else self.trainer.at(self._shape)

    # ---- for a subclass

    @abstractmethod
    def _open_epoch(self) -> None:
        """Begins an epoch, or the rest of one, and its progress."""

    @abstractmethod
    def _train(self, check: Callable[[], None]) -> None:
        """Does the steps of the epoch, unless one is to be the last; calls `check` after some of them."""

    @abstractmethod
    def _train_logs(self) -> dict[str, float]:
        """Returns loss and metrics of the epoch so far."""

    # ---- where it stands

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that decide on the weights: numbers as they are, arrays as hashes."""
        if self._arguments is None:
            self._arguments = self.config.describe(self.trainer.outputs)
        return self._arguments

    def detach(self) -> None:
        """Hashes the data and copies the callbacks' states: they may change before the state is asked for."""
        assert self.arguments
        if self._restored is None:
            self._restored = copy.deepcopy(self.callbacks.states())

    @property
    def is_complete(self) -> bool:
        """True if the fit is over: the same as `state().is_complete`, but cheaper, as `state()` hashes the data."""
        return not self.in_epoch and (self.trainer.should_stop or self.epochs_done >= self.config.epochs)

    def state(self) -> FitState:
        """Returns where the fit stands now."""
        return FitState(
            self.arguments,
            self.trainer.step,
            self.epochs_done,
            self.in_epoch,
            self.trainer.should_stop,
            self.seen.losses,
            self.seen.scores,
            self.seen.counts,
            self.callbacks.states() if self._restored is None else self._restored,
        )

    def final_state(self) -> FitState:
        """Returns the state of a complete fit for a file: few rows are hashed, and callbacks have no state."""
        arguments, seen = self.config.describe(self.trainer.outputs, ROWS_HASHED), self.sized.nothing_seen()
        step, stop = self.trainer.step, self.trainer.should_stop
        return FitState(arguments, step, self.epochs_done, False, stop, seen.losses, seen.scores, {}, [])

    def difference(self, state: FitState) -> str | None:
        """Returns how this call differs from the fit of the state, in words; None if it completes that fit."""
        hashed = state.arguments.get("rows_hashed")
        arguments = self.arguments if hashed is None else self.config.describe(self.trainer.outputs, hashed)
        for name, value in state.arguments.items():
            if arguments.get(name) != value:
                expected = _described(name, value, "the same data")
                got = _described(name, arguments.get(name), "other data (shape, dtype or numbers)")
                return f"{name}: expected {expected}, as in the fit that was interrupted, got {got}"
        missing = self.callbacks.missing(state.callbacks)
        if missing:
            return f"callbacks: expected {missing} as well, as in the fit that was interrupted"
        return None

    def doubt(self, state: FitState) -> str | None:
        """Returns what is not known of this call, which completes a fit from a file, in words; None: nothing."""
        return None

    def resume(self, state: FitState) -> None:
        """Continues from a state that fits this call."""
        self.epochs_done, self.in_epoch, self._should_stop = state.epochs_done, state.in_epoch, state.should_stop
        self.seen, self._restored = self.sized.nothing_seen(), state.callbacks
        self.seen.restore(state.losses, state.scores, state.counts)
        if state.is_complete:
            self.progress.note("nothing to do: the saved fit is complete")
        else:
            self.progress.note(f"completes the fit that was interrupted at step {state.step}")

    def announce(self, state: FitState, difference: str) -> None:
        """Prints that this fit does not continue that of the state."""
        if not state.is_complete:
            self.progress.note(f"discards the fit that was interrupted at step {state.step}: {difference}")
        elif self.config.epochs:
            self.progress.note(f"the saved fit is complete: trains {self.config.epochs} more epochs")

    # ---- running

    def begin(self) -> None:
        """Resets callbacks, calls on_fit_begin, and then gives them the states of an interrupted fit."""
        trainer = self.trainer
        trainer.should_stop = self._stopping = self._should_stop
        steps = self.sized.steps(in_parts=self.config.gradient_accumulation_steps > 1)
        network = self.sized.network
        size = self.config.step_size
        for warning in warnings_for(trainer.comm, steps, network, trainer.loss, size):
            self.progress.note(warning)
        with contextlib.ExitStack() as stack:
            with trainer.comm.raise_together():
                stack.enter_context(self.callbacks.beginning())
            self._call("on_fit_begin")
            if self._restored is not None:
                with trainer.comm.raise_together():
                    self.callbacks.load_states(self._restored)
                self._restored = None
        self.callbacks_ready = True

    def run(self, signals: Signals) -> None:
        """Trains what is left."""

        def terminate() -> None:
            self._call("on_terminate")
            self._call("on_save")

        def check() -> None:
            self._agree()
            signals.check(terminate, self.trainer.comm)

        try:
            while self.in_epoch or (self.epochs_done < self.config.epochs and not self._stopping):
                if not self.in_epoch:
                    self.in_epoch = True
                    self._call("on_epoch_begin", self.trainer.epoch)
                    if self._stopping:
                        self.in_epoch = False
                        break
                self._epoch(check)
        finally:
            self.progress.close()
        self._call("on_fit_end")
        self._warn_of_nan()
        for note in self.callbacks.closing_notes():
            self.progress.note(note)
        self._call("on_save")
        check()

    def _warn_of_nan(self) -> None:
        """Warns of losses and metrics that were NaN in each epoch of the fit: no callback saw them improve."""
        of_fit = {name: self.trainer.history.get(name, [])[-self.epochs_done :] for name in self._measured}
        names = [name for name, values in of_fit.items() if values and all(map(math.isnan, values))]
        if names and self.trainer.comm.rank == 0:
            got = f"got NaN in each of the {self.epochs_done} epochs of this fit, which never counts as an improvement"
            warn_caller(f"{', '.join(names)}: expected numbers, {got}")

    def _call(self, hook: str, *args: Any) -> None:
        """Calls a hook of all callbacks. What it raises, and whether to stop, is the same in all processes."""
        with self.trainer.comm.raise_together():
            self.callbacks.call(hook, self.trainer, *args)
        self._agree()

    def _agree(self) -> None:
        """Decides whether to stop: the same in all processes, whichever of them set `trainer.should_stop`, and when."""
        (stopping,) = self.trainer.comm.allreduce_max([bool(self.trainer.should_stop)])
        self.trainer.should_stop = self._stopping = bool(stopping)

    def _epoch(self, check: Callable[[], None]) -> None:
        trainer = self.trainer
        if not self.seen.count:  # callbacks may have replaced loss or metrics
            self.seen = self.sized.nothing_seen()
        self._open_epoch()
        before, began = self.seen.count, time.perf_counter()
        check()
        self._train(check)
        seconds = max(time.perf_counter() - began, 1e-9)
        with trainer.comm.raise_together():
            logs = self._train_logs()
        if self.config.validation is not None:
            sized = trainer.at(self.config.validation[0].examples.shape)
            try:
                values = sized.evaluate_rows(*self.config.validation, check, trainer.comm)
            except InputError as error:  # in rows on disk, which are checked as they are read
                if self.config.holds_out:
                    raise
                raise kind_of(error)(f"validation_data: {error}") from error
            logs.update({f"val_{name}": value for name, value in values.items()})
        self._measured = list(logs)
        logs["lr"] = rate_at(trainer.optimizer, max(trainer.step - 1, 0))
        logs["images_per_second"] = (self.seen.count - before) / seconds
        trainer.history.append_epoch(logs)
        trainer.epoch += 1
        self.epochs_done, self.in_epoch, self.seen = self.epochs_done + 1, False, self.sized.nothing_seen()
        self.progress.close()
        try:
            check_epoch(trainer.comm, logs["lr"], trainer.model)
            end_epoch(trainer, self.callbacks, trainer.epoch - 1, logs)
        finally:
            self.progress.end_epoch(logs)
        self._agree()
        self._call("on_save")
        check()


def _described(name: str, value: Any, data: str) -> str:
    """Returns an argument for an error message: `data` for an array, since its hash would say nothing."""
    if name in ("X", "y", "sample_weight", "validation_data"):  # hashes of shape, dtype and bytes
        return "none" if value is None else data
    return repr(value)
