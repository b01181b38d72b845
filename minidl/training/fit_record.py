"""FitRecord: which fit of a trainer is running, was interrupted or came to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum

from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import FitState
from minidl.utils.hints import warn_caller

RESUME_HINT = ". Call fit with the same arguments to complete it, or set trainer.interrupted = None to begin another"


class Outcome(Enum):
    """What an exception makes of a fit."""

    NOT_STARTED = "a callback refused it: the fit before can still be completed"
    UNTOUCHED = "the model was built for it, and no step was made: the model is unbuilt again"
    COMPLETE = "a hook failed after the last step: nothing is left to complete"
    INTERRUPTED = "the next call with the same arguments completes it"


def outcome_of(error: BaseException, loop: FitLoop, first_step: int, was_unbuilt: bool) -> Outcome:
    """Returns what an exception makes of the fit that raised it; first_step: the trainer's step before it."""
    if not loop.callbacks_ready:
        return Outcome.NOT_STARTED
    if was_unbuilt and loop.trainer.step == first_step and isinstance(error, (TypeError, ValueError, OSError)):
        return Outcome.UNTOUCHED
    if isinstance(error, Exception) and loop.is_complete:
        return Outcome.COMPLETE
    return Outcome.INTERRUPTED


def _detached(loop: FitLoop, error: BaseException) -> bool:
    """Returns whether the data and callbacks of an interrupted fit could be read; if not, adds a note to the error.

    Its state would raise the same error each time, and so would every checkpoint.
    """
    try:
        loop.detach()
    except Exception as another:  # such as one from a lazy array, which may have interrupted the fit
        error.add_note(f"This fit cannot be completed, as its data or callbacks cannot be read: {another}")
        return False
    return True


class FitRecord:
    """What a trainer knows of its fits."""

    def __init__(self) -> None:
        self._loop: FitLoop | None = None  # the loop of the last fit, unless that came to its end
        self._resumed: FitState | None = None  # the state of a fit from a file
        self._final: FitState | None = None  # the state of the last fit, for a file, if it came to its end

    def clear(self) -> None:
        """Forgets all of it: the next call of fit begins another."""
        self._loop = self._resumed = self._final = None

    def resume(self, state: FitState | None) -> None:
        """Takes the state of a fit from a file."""
        self._resumed = state

    @property
    def running(self) -> FitLoop | None:
        """The loop of the fit that is running, or was interrupted."""
        return self._loop

    @property
    def validates(self) -> bool:
        """Whether the fit that is running has validation data."""
        return self._loop is not None and self._loop.config.validation is not None

    @property
    def may_add_numbers(self) -> bool:
        """Whether a callback of the fit that is running may add numbers to the record of an epoch."""
        return self._loop is not None and self._loop.callbacks.may_add_numbers

    def state(self, step: int) -> FitState | None:
        """Returns where the last fit stands; None after its end, and if the trainer has made steps since."""
        state = self._resumed if self._loop is None else self._loop.state()
        return state if state is not None and state.step == step else None

    def interrupted(self, step: int) -> FitState | None:
        """Returns the state of a fit that the next one completes."""
        state = self.state(step)
        return None if state is None or (state.is_complete and self._loop is None) else state

    def to_save(self, step: int) -> FitState | None:
        """Returns what a checkpoint holds: where the last fit stands, also after its end."""
        state = self.state(step) or self._final
        return state if state is not None and state.step == step else None

    @contextmanager
    def session(self, loop: FitLoop, was_unbuilt: bool) -> Iterator[None]:
        """Returns a context in which the loop runs: it continues the interrupted fit, or replaces it."""
        trainer: BaseTrainer = loop.trainer
        before, first_step = (self._loop, self._resumed), trainer.step
        state = self.state(first_step)
        self._enter(loop, state)
        try:
            with ExitStack() as stack:
                with trainer.comm.raise_together():
                    stack.enter_context(loop.callbacks.in_use())
                yield
        except BaseException as error:
            outcome = outcome_of(error, loop, first_step, was_unbuilt)
            if outcome is not Outcome.INTERRUPTED or not _detached(loop, error):
                self._loop = None
            if outcome is Outcome.NOT_STARTED:
                self._loop, self._resumed = before
            if was_unbuilt and outcome in (Outcome.NOT_STARTED, Outcome.UNTOUCHED):
                trainer.model.discard()
            raise
        self._loop = None  # first of all: final_state reads data again, which may fail
        self._final = loop.final_state()

    def _enter(self, loop: FitLoop, state: FitState | None) -> None:
        if state is not None:
            difference = loop.difference(state)
            if difference is None:
                if self._loop is None and not state.is_complete and (doubt := loop.doubt(state)):
                    warn_caller(doubt)
                loop.resume(state)
            elif self._loop is None and not state.is_complete:  # the state is from a file
                with loop.trainer.comm.raise_together():
                    raise ValueError(difference + RESUME_HINT)
            else:
                loop.announce(state, difference)
        self._loop, self._resumed, self._final = loop, None, None
