"""One fit: its epochs, cut into chunks of steps, and where it stands between two of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidl.callbacks.callback_list import CallbackList, State
from minidl.optimizers.base import rate_at
from minidl.training.base_trainer import BaseTrainer
from minidl.training.consistency import check_epoch, warnings_for
from minidl.training.labeled_data import LabeledData
from minidl.training.progress import Progress
from minidl.training.signals import Signals
from minidl.utils.arrays import Array
from minidl.utils.data import Index, epoch_order

RESUME_HINT = ". Call fit with the same arguments to complete it, or set trainer.interrupted = None to begin another"
ROWS_HASHED = 64  # of data whose fit came to its end: all of them would take as long as some of its steps
CHUNK_SECONDS = 0.05  # how long steps may run in C before Python looks at signals and progress again


@dataclass(frozen=True, repr=False)
class FitState:
    """Where a fit stands between two steps, and what it was called with: all that is needed to complete it."""

    arguments: dict[str, Any]  # numbers and hashes: those of the call that completes it have to be the same
    step: int  # steps of the trainer, all its life
    finished: int  # epochs of this fit that are in the history
    begun: bool  # whether it is in the middle of the next one
    stop: bool
    losses: Array  # of the examples that this epoch has seen, in their order
    scores: Array | None  # their outputs, if there are metrics
    callbacks: list[State]  # of those that have something to remember

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return not self.begun and (self.stop or self.finished >= self.arguments["epochs"])

    def __repr__(self) -> str:
        return f"<fit at step {self.step}, {self.finished} of {self.arguments['epochs']} epochs done>"


@dataclass
class FitLoop:
    """What one call of fit works on and how far it has come."""

    learner: BaseTrainer
    data: LabeledData
    rows: Index  # to train on
    validation: tuple[LabeledData, Index] | None
    epochs: int
    batch_size: int
    accumulated: int  # batches of a step
    shuffle: bool
    validation_split: float
    hooks: CallbackList
    progress: Progress
    finished: int = 0
    begun: bool = False
    losses: list[Array] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)
    done: int = 0  # examples of this epoch
    stop: bool = False
    stops: bool = False  # as all processes know it
    started: bool = False  # whether all callbacks have begun
    _states: list[State] | None = None  # of callbacks, if they themselves may not know it
    _arguments: dict[str, Any] | None = None
    _planned: int = 1  # steps of the next chunk
    _kept: bool = False  # whether the trainer has seen examples of it

    @property
    def step_size(self) -> int:
        """The examples of a step: some micro-batches of batch_size."""
        return self.batch_size * self.accumulated

    # ---- the position

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that decide on the weights: numbers as they are, arrays as hashes."""
        if self._arguments is None:
            self._arguments = self._described(None)
        return self._arguments

    def _described(self, rows_hashed: int | None) -> dict[str, Any]:
        """The same; of arrays so many rows are hashed, None: all."""
        return {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "gradient_accumulation_steps": self.accumulated,
            "shuffle": self.shuffle,
            "validation_split": self.validation_split,
            "validation_data": self._validation_data(rows_hashed),
            **self.data.fingerprints(rows_hashed),
            "rows_hashed": rows_hashed,
            "outputs": self.learner.outputs,
        }

    def note_arguments(self) -> None:
        """Hashes the data now: the caller may write into it before he looks where the fit stands."""
        assert self.arguments

    def _validation_data(self, rows_hashed: int | None) -> str | None:
        """A hash of what was given to validate on; None: nothing, or rows held back."""
        if self.validation is None or self.validation[0] is self.data:
            return None
        return " ".join(value for value in self.validation[0].fingerprints(rows_hashed).values() if value is not None)

    def position(self) -> FitState:
        """Where the fit stands now."""
        learner, dtype = self.learner, self.learner.model.dtype
        scores = np.concatenate([np.empty((0, *learner.model.output_shape), dtype), *self.scores])
        return FitState(
            self.arguments,
            learner.step,
            self.finished,
            self.begun,
            learner.should_stop,
            np.concatenate([np.empty(0, dtype), *self.losses]),
            scores if learner.metrics else None,
            self.hooks.states() if self._states is None else self._states,
        )

    def ended(self) -> FitState:
        """Where it stands after its end, for a file: few rows are hashed, callbacks have nothing left to remember."""
        learner, none = self.learner, np.empty(0, self.learner.model.dtype)
        scores = np.empty((0, *learner.model.output_shape), none.dtype) if learner.metrics else None
        return FitState(
            self._described(ROWS_HASHED), learner.step, self.finished, False, learner.should_stop, none, scores, []
        )

    def difference(self, position: FitState) -> str | None:
        """What makes this call another one than that which was interrupted there, in words; None: nothing."""
        hashed = position.arguments.get("rows_hashed")
        arguments = self.arguments if hashed is None else self._described(hashed)
        for name, value in position.arguments.items():
            if arguments.get(name) != value:
                expected = _told(name, value, "the same data")
                got = _told(name, arguments.get(name), "other data (shape, dtype or numbers)")
                return f"{name}: expected {expected}, as in the fit that was interrupted, got {got}"
        missing = self.hooks.missing(position.callbacks)
        if missing:
            return f"callbacks: expected {missing} as well, as in the fit that was interrupted"
        return None

    def resume(self, position: FitState) -> None:
        """Makes this fit go on from a position that is not different."""
        self.finished, self.begun, self.done = position.finished, position.begun, len(position.losses)
        self.losses, self._states = [position.losses], position.callbacks
        self.scores = [] if position.scores is None else [position.scores]
        self.stop = position.stop
        if position.complete:
            self.progress.note("nothing is left to do: this fit had come to its end when it was saved")
        else:
            self.progress.note(f"completes the fit that was interrupted at step {position.step}")

    def keep(self, position: FitState) -> None:
        """Keeps what callbacks remembered there: another fit that could not begin may have made them forget it."""
        self._states = position.callbacks

    def leave(self, position: FitState, difference: str) -> None:
        """Says that this fit is another one."""
        if not position.complete:
            self.progress.note(f"gives up the fit that was interrupted at step {position.step}: {difference}")
        elif self.epochs:
            self.progress.note(f"the fit before had come to its end; {self.epochs} more epochs")

    # ---- running

    def call(self, hook: str, *args: Any) -> None:
        """Calls a hook of all callbacks. What it raises, and whether to stop, is the same in all processes."""
        with self.learner.comm.raise_together():
            self.hooks.call(hook, self.learner, *args)
        self.agree()

    def agree(self) -> None:
        """Finds whether somebody wants to stop: in all processes the same, whenever `trainer.should_stop` was set."""
        (stops,) = self.learner.comm.allreduce_max([bool(self.learner.should_stop)])
        self.learner.should_stop = self.stops = bool(stops)

    def begin(self) -> None:
        """Calls on_fit_begin, and then gives callbacks what they remembered when the fit was interrupted."""
        self.learner.should_stop = self.stops = self.stop
        comm = self.learner.comm
        steps, network = self.learner.steps(in_parts=self.accumulated > 1), self.learner.model.network
        assert network is not None
        for remark in warnings_for(comm, steps, network, self.learner.loss, self.learner.optimizer, self.step_size):
            self.progress.note(remark)
        self.call("on_fit_begin")
        if self._states is not None:
            with comm.raise_together():
                self.hooks.load_states(self._states)
            self._states = None
        self.started = True

    def run(self, signals: Signals) -> None:
        """Trains what is left."""

        def terminate() -> None:
            self.call("on_terminate")
            self.call("on_save")

        def check() -> None:
            self.agree()
            signals.check(terminate, self.learner.comm)

        try:
            while self.begun or (self.finished < self.epochs and not self.stops):
                if not self.begun:
                    self.begun = True
                    self.call("on_epoch_begin", self.learner.epoch)
                    if self.stops:
                        self.begun = False
                        break
                self._epoch(check)
        finally:
            self.progress.close()
        self.call("on_fit_end")
        self.call("on_save")
        check()

    def _epoch(self, check: Callable[[], None]) -> None:
        learner = self.learner
        order = self.rows[epoch_order(len(self.rows), learner.seed, learner.epoch, self.shuffle)]
        if not self._kept:
            learner.kept.keep_epoch(learner.sample_key, self.data, order, self.step_size)
            self._kept = True
        self.progress.begin_epoch(self.finished + 1, -(-len(order) // self.step_size), self.done // self.step_size)
        before, began = self.done, time.perf_counter()
        check()
        while self.done < len(order) and not self.stops:
            self._chunk(order)
            check()
        seconds = max(time.perf_counter() - began, 1e-9)
        with learner.comm.raise_together():
            logs = self._measured(order[: self.done])
        if self.validation is not None:
            found = learner.evaluate_rows(*self.validation, check, learner.comm)
            logs.update({f"val_{name}": value for name, value in found.items()})
        logs["lr"] = rate_at(learner.optimizer, max(learner.step - 1, 0))
        logs["images_per_second"] = (self.done - before) / seconds
        learner.append_history(logs)
        self.finished, self.begun = self.finished + 1, False
        self.losses, self.scores, self.done = [], [], 0
        self.progress.end_epoch(logs)
        check_epoch(learner.comm, logs["lr"], learner.model)
        self.call("on_epoch_end", learner.epoch - 1, logs)
        self.call("on_save")
        check()

    def _chunk(self, order: Index) -> None:
        """Some steps without Python between them; then the hooks that want to see the last one."""
        learner, left = self.learner, len(order) - self.done
        until = self.hooks.steps_until_next(learner.step)
        steps = max(1, min(self._planned, until or self._planned, left // self.step_size))
        steps, due = learner.comm.broadcast([steps, steps == until])  # it has all callbacks, and a clock of its own
        size = min(self.step_size, left)  # the last partial batch goes alone
        rows = order[self.done : self.done + steps * size]
        batch = learner.batches(self.data, rows, size, self.batch_size, learner.comm)
        before, began = learner.step, time.perf_counter()
        with learner.stepping():
            try:
                learner.run(batch)
            finally:  # also those that came before one that failed
                done = (learner.step - before) * size
                self.losses.append(batch.losses[:done])
                if batch.scores is not None:
                    self.scores.append(batch.scores[:done])
                self.done += done
        fitting = int(CHUNK_SECONDS * steps / max(time.perf_counter() - began, 1e-9))
        self._planned = max(1, min(fitting, 2 * self._planned))  # a last, small batch was quick: that says little
        self.progress.advance(steps)
        if due:
            loss = self.data.mean(batch.losses[-size:], rows[-size:])
            with learner.comm.raise_together():
                self.hooks.step_end(learner, learner.step - 1, loss)
            self.call("on_save")

    def _measured(self, seen: Index) -> dict[str, float]:
        """Loss and metrics of the epoch so far."""
        logs: dict[str, float] = {"epoch": self.learner.epoch, "loss": float("nan")}
        if len(seen):
            logs["loss"] = self.data.mean(np.concatenate(self.losses), seen)
            if self.learner.metrics:
                logs.update(self.learner.compute_metrics(self.data.targets[seen], np.concatenate(self.scores)))
        return logs


def _told(name: str, value: Any, data: str) -> str:
    """An argument in an error: the hash of an array would say nothing."""
    if name in ("X", "y", "sample_weight", "validation_data"):  # hashes, of shape, dtype and bytes
        return "none" if value is None else data
    return repr(value)
