"""The hooks of callbacks. A callback is an object with any of these methods:

    on_fit_begin(trainer)                    on_epoch_begin(trainer, epoch)
    on_step_end(trainer, step, loss)         on_epoch_end(trainer, epoch, logs)
    on_fit_end(trainer)                      on_terminate(trainer)
    on_save(trainer)

Epochs and steps are counted from 0 over the trainer's life; logs is the epoch's record. `trainer.should_stop = True`
ends the fit after the hook that sets it. Numbers that on_epoch_end adds to logs belong to the record for the callbacks
that follow (training/epoch_numbers.py).

on_step_end is called after every step, or, if the callback has an attribute `every_n_steps`, after every n-th step
(None: never). The steps in between run in C without returning to Python. A hook may change `every_n_steps`.
on_terminate is called between two steps when SIGTERM asks the process to end. on_save follows on_step_end,
on_epoch_end, on_fit_end and on_terminate, after all callbacks have seen that step: the moment to save.

`state_dict()` and `load_state_dict(state)` of a callback are what it remembers of a fit. Each fit begins with the state
that the callback had when it first came into one, and an interrupted fit keeps its own until it is completed, whatever
the callback has done since. One object serves several fits, one after the other: a callback with a state or an
on_fit_begin is refused while another fit runs with it.

States are saved in checkpoints, unless they are empty. A resume passes each, after on_fit_begin, to the callback of the
same class. Several callbacks of one class are matched by an attribute
`state_key`, or else by their order. A resume without a callback whose state is in the file is an error, unless that
callback had a true attribute `rank_zero_only`: then training is the same without it. When several processes train
together (distributed/mpi.py), callbacks run in each of them, but those with `rank_zero_only` run on rank 0 only.

A string in an attribute `closing_note` is printed at the end of a fit, unless it is silent.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minidl.callbacks.checkpoint import Checkpoint
from minidl.utils.hints import class_hint
from minidl.utils.validation import check_int

State = tuple[str, Any, bool]  # of a callback: its key, its state_dict(), whether a resume needs it
HOOKS = {  # the arguments of each hook
    "on_fit_begin": ("trainer",),
    "on_epoch_begin": ("trainer", "epoch"),
    "on_step_end": ("trainer", "step", "loss"),
    "on_epoch_end": ("trainer", "epoch", "logs"),
    "on_fit_end": ("trainer",),
    "on_terminate": ("trainer",),
    "on_save": ("trainer",),
}
FIRST_STATE = "_state_before_fits"  # an attribute of a callback, so that its copies have it too
_running: set[int] = set()  # ids of the callbacks of all fits that run in this process
_lock = threading.Lock()


class CallbackList:
    """A list of callbacks whose hooks are called in order.

    watchers: False drops the callbacks with `rank_zero_only`. checkpoints: the paths of the Checkpoints, also of those
    dropped. may_add_numbers: whether one of them, or of those dropped, may add numbers to the record of an epoch, as
    minidl's own do not. carried: states that callbacks with these keys begin the fit with, as in a resume; None: none.

    Raises TypeError for a callback without any hook, with an unknown hook, with a hook of another signature, or with
    only one of state_dict and load_state_dict; ValueError for a callback that is listed twice.
    """

    def __init__(self, callbacks: Iterable[Any], watchers: bool = True) -> None:
        self.carried: list[State] | None = callbacks.carried if isinstance(callbacks, CallbackList) else None
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks: expected a list of objects, got {callbacks!r}{class_hint(callbacks)}")
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            hooks = [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]
            unknown = sorted(set(hooks) - set(HOOKS))
            if unknown or not hooks or isinstance(callback, type):
                got = f"{type(callback).__name__} with {', '.join(unknown) or 'none of them'}"
                if isinstance(callback, type):
                    got = f"{callback!r}{class_hint(callback)}"
                raise TypeError(f"callbacks: expected objects with hooks from {', '.join(HOOKS)}, got {got}")
            for name in hooks:
                _check_arguments(type(callback).__name__, name, getattr(callback, name))
            if sum(callback is other for other in self.callbacks) > 1:
                raise ValueError(f"callbacks: expected each of them once, got {callback!r} twice")
            if hasattr(callback, "state_dict") != hasattr(callback, "load_state_dict"):
                expected = "state_dict() and load_state_dict(state), or neither"
                raise TypeError(f"callbacks: expected {expected}, got {type(callback).__name__} with only one of them")
            if getattr(callback, "every_n_steps", None) is not None:
                check_int(f"every_n_steps of {callback!r}", callback.every_n_steps)
        self.may_add_numbers = any(
            hasattr(callback, "on_epoch_end") and type(callback).__module__.partition(".")[0] != "minidl"
            for callback in self.callbacks
        )
        self.checkpoints = [callback.path for callback in self.callbacks if isinstance(callback, Checkpoint)]
        if not watchers:
            self.callbacks = [c for c in self.callbacks if not getattr(c, "rank_zero_only", False)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.callbacks)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which a fit runs with these callbacks; raises RuntimeError if another one does."""
        own = {id(callback): callback for callback in self.callbacks if remembers(callback)}
        with _lock:
            for shared in own.keys() & _running:
                expected = "expected an object of its own for each fit that runs at the same time"
                raise RuntimeError(f"callbacks: {expected}, got {own[shared]!r}, which another fit is using")
            _running.update(own)
        try:
            yield
        finally:
            with _lock:
                _running.difference_update(own)

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """A context in which a fit begins: callbacks that earlier fits used have the state of before them.

        If the fit is refused in it, they have that of the last fit again.
        """
        last = []
        try:
            for callback in (one for callbacks in self._with_state().values() for one in callbacks):
                if hasattr(callback, FIRST_STATE):
                    attributes = dict(getattr(callback, "__dict__", {}))
                    last.append((callback, attributes, copy.deepcopy(callback.state_dict())))
                    callback.load_state_dict(copy.deepcopy(getattr(callback, FIRST_STATE)))
                else:  # a state that cannot be had yet, or not be kept, begins in its on_fit_begin
                    with contextlib.suppress(Exception):
                        object.__setattr__(callback, FIRST_STATE, copy.deepcopy(callback.state_dict()))
            yield
        except BaseException:
            for callback, attributes, state in last:
                _set_attributes(callback, attributes)  # also those that say which model the state is of
                try:
                    callback.load_state_dict(state)
                except Exception:  # of a copy, which has no model; the error that refuses the fit is the one to see
                    _set_attributes(callback, attributes)
            raise

    def groups(self) -> list[list[Any]]:
        """Returns the callbacks, cut before each that runs in all processes: as many groups in each of these."""
        groups: list[list[Any]] = [[]]
        for callback in self.callbacks:
            if not getattr(callback, "rank_zero_only", False):
                groups.append([])
            groups[-1].append(callback)
        return groups

    def steps_until_next(self, step: int) -> int | None:
        """Returns the number of steps, from this one on, until a callback must be called; None: no limit."""
        steps = [n - step % n for n in map(_every, self.callbacks) if n is not None]
        return min(steps, default=None)

    def step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Calls on_step_end of the callbacks that are due after this step."""
        for callback in self.callbacks:
            n = _every(callback)
            if n is not None and (step + 1) % n == 0:
                callback.on_step_end(trainer, step, loss)

    def states(self) -> list[State]:
        """Returns key and state_dict() of each callback with a non-empty state, and whether a resume needs it."""
        states = [
            (key, callback.state_dict(), not getattr(callback, "rank_zero_only", False))
            for key, callbacks in self._with_state().items()
            for callback in callbacks
        ]
        return [(key, state, needed) for key, state, needed in states if state]

    def missing(self, states: list[State]) -> str:
        """Returns the keys in these states that a resume needs but no callback has, separated by commas."""
        callbacks = self._with_state()
        return ", ".join(
            key for key, _, needed in states if not (callbacks.get(key) and callbacks[key].pop()) and needed
        )

    def load_states(self, states: list[State]) -> None:
        """Loads the callbacks' states; raises ValueError if one rejects its state. Others are not changed."""
        callbacks = self._with_state()
        for key, state, _ in states:
            if callbacks.get(key):
                try:
                    callbacks[key].pop(0).load_state_dict(state)
                except (TypeError, ValueError, LookupError, AttributeError) as error:
                    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                    raise ValueError(f"callback {key}: cannot load its state from the checkpoint: {reason}") from error

    def _with_state(self) -> dict[str, list[Any]]:
        """Returns the callbacks that have a state, in order, by key."""
        by_key: dict[str, list[Any]] = {}
        for callback in self.callbacks:
            if hasattr(callback, "state_dict"):
                by_key.setdefault(str(getattr(callback, "state_key", type(callback).__name__)), []).append(callback)
        return by_key

    def closing_notes(self) -> list[str]:
        """Returns what callbacks have to say at the end of a fit."""
        notes = (getattr(callback, "closing_note", None) for callback in self.callbacks)
        return [note for note in notes if isinstance(note, str)]

    def call(self, hook: str, *args: Any) -> None:
        """Calls this hook of every callback that has it, in order."""
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(*args)


def _check_arguments(owner: str, name: str, hook: Callable[..., Any]) -> None:
    """Raises TypeError unless a hook can be called with its arguments."""
    try:
        signature = inspect.signature(hook)
    except ValueError:  # some functions in C have no signature
        return
    try:
        signature.bind(*HOOKS[name])
    except TypeError:
        expected = f"{name}({', '.join(HOOKS[name])})"
        raise TypeError(f"callbacks: expected {expected} of {owner}, got {name}{signature}") from None


def _set_attributes(callback: Any, attributes: dict[str, Any]) -> None:
    """Gives a callback these attributes and no others; one with `__slots__` keeps its own."""
    if attributes:
        vars(callback).clear()
        vars(callback).update(attributes)


def remembers(callback: Any) -> bool:
    """Whether a callback keeps something of the fit that it is in."""
    return hasattr(callback, "state_dict") or getattr(callback, "on_fit_begin", None) is not None


def _every(callback: Any) -> int | None:
    """Returns the interval, in steps, of a callback's on_step_end; None: it is never called."""
    if getattr(callback, "on_step_end", None) is None:
        return None
    every: int | None = getattr(callback, "every_n_steps", 1)
    return every
