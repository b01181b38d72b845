"""The hooks of callbacks, which are objects with the hooks they need.

    on_fit_begin(trainer)                    on_epoch_begin(trainer, epoch)
    on_step_end(trainer, step, loss)         on_epoch_end(trainer, epoch, logs)
    on_fit_end(trainer)                      on_terminate(trainer)
    on_save(trainer)

Epochs and steps are counted from 0 over the trainer's life; logs is the epoch's record. `trainer.should_stop = True`
ends the fit after the hook that sets it. A callback with on_step_end gets every step, or, if it has an attribute
`every_n_steps`, each n-th one (None: none at all): the steps between run in C without a pause. It may change that in a
hook. on_terminate comes between two steps, when SIGTERM asks the process to end. on_save comes behind on_step_end,
on_epoch_end, on_fit_end and on_terminate, when all callbacks have seen that step: the moment to save.

What a callback remembers goes into checkpoints if it has `state_dict()` and `load_state_dict(state)`; an empty state is
nothing to remember. At a resume it goes to the callback of the same class; several of one class are told apart by an
attribute `state_key`, or else by their order. A fit without a callback that the file remembers is refused, unless that
one had an attribute `rank_zero_only` that was true: training is the same without it. Where several processes train
together (distributed/mpi.py), callbacks run in each of them, but those that only watch in the first alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from minidl.utils.validation import check_int

State = tuple[str, Any, bool]  # of a callback: its key, what it remembers, whether a resume needs it
HOOKS = {  # and the arguments of each
    "on_fit_begin": ("trainer",),
    "on_epoch_begin": ("trainer", "epoch"),
    "on_step_end": ("trainer", "step", "loss"),
    "on_epoch_end": ("trainer", "epoch", "logs"),
    "on_fit_end": ("trainer",),
    "on_terminate": ("trainer",),
    "on_save": ("trainer",),
}


class CallbackList:
    """The hooks of some callbacks, called one after the other.

    watchers: False leaves out those that only watch. Raises TypeError for a callback without any hook, with a misspelt
    one, with one that does not take its arguments, or with half of what a state needs.
    """

    def __init__(self, callbacks: Iterable[Any], watchers: bool = True) -> None:
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks: expected a list of objects, got {callbacks!r}")
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            hooks = [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]
            wrong = sorted(set(hooks) - set(HOOKS))
            if wrong or not hooks or isinstance(callback, type):
                got = f"{type(callback).__name__} with {', '.join(wrong) or 'none of them'}"
                if isinstance(callback, type):
                    got = f"the class {callback.__name__}"
                raise TypeError(f"callbacks: expected objects with hooks from {', '.join(HOOKS)}, got {got}")
            for name in hooks:
                _check_arguments(type(callback).__name__, name, getattr(callback, name))
            if sum(callback is other for other in self.callbacks) > 1:
                raise ValueError(f"callbacks: expected each of them once, got {callback!r} twice")
            if hasattr(callback, "state_dict") != hasattr(callback, "load_state_dict"):
                expected = "state_dict() and load_state_dict(state), or neither"
                raise TypeError(f"callbacks: expected {expected}, {type(callback).__name__} has one of them")
            if getattr(callback, "every_n_steps", None) is not None:
                check_int(f"every_n_steps of {callback!r}", callback.every_n_steps)
        if not watchers:
            self.callbacks = [one for one in self.callbacks if not getattr(one, "rank_zero_only", False)]

    def steps_until_next(self, step: int) -> int | None:
        """How many steps, from this one on, may run until a callback wants to see one; None: as many as you like."""
        steps = [n - step % n for n in map(_every, self.callbacks) if n is not None]
        return min(steps, default=None)

    def step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Calls on_step_end, behind this step, of the callbacks that want to see it."""
        for callback in self.callbacks:
            n = _every(callback)
            if n is not None and (step + 1) % n == 0:
                callback.on_step_end(trainer, step, loss)

    def states(self) -> list[State]:
        """Key and state_dict() of each callback that has something to remember, and whether a resume needs it."""
        found = [
            (key, callback.state_dict(), not getattr(callback, "rank_zero_only", False))
            for key, callbacks in self._with_state().items()
            for callback in callbacks
        ]
        return [(key, state, needed) for key, state, needed in found if state]

    def missing(self, states: list[State]) -> str:
        """The keys in these states that a resume needs and no callback has."""
        given = self._with_state()
        return ", ".join(key for key, _, needed in states if not (given.get(key) and given[key].pop()) and needed)

    def load_states(self, states: list[State]) -> None:
        """Hands each callback what it remembered; new ones begin as they are. Raises ValueError if one refuses it."""
        given = self._with_state()
        for key, state, _ in states:
            if given.get(key):
                try:
                    given[key].pop(0).load_state_dict(state)
                except (TypeError, ValueError, LookupError, AttributeError) as error:
                    what = f"no {error}" if isinstance(error, KeyError) else str(error)
                    raise ValueError(f"callback {key}: cannot go on from what the checkpoint holds: {what}") from error

    def _with_state(self) -> dict[str, list[Any]]:
        """The callbacks that remember something, in their order, by key."""
        found: dict[str, list[Any]] = {}
        for callback in self.callbacks:
            if hasattr(callback, "state_dict"):
                found.setdefault(str(getattr(callback, "state_key", type(callback).__name__)), []).append(callback)
        return found

    def call(self, hook: str, *args: Any) -> None:
        """Calls the hook of every callback that has it, in order."""
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(*args)


def _check_arguments(owner: str, name: str, hook: Callable[..., Any]) -> None:
    """Raises TypeError for a hook that cannot be called with its arguments."""
    try:
        signature = inspect.signature(hook)
    except ValueError:  # of some functions in C nothing is known
        return
    try:
        signature.bind(*HOOKS[name])
    except TypeError:
        expected = f"{name}({', '.join(HOOKS[name])})"
        raise TypeError(f"callbacks: expected {expected} of {owner}, got {name}{signature}") from None


def _every(callback: Any) -> int | None:
    """Each how many steps a callback wants to see; None: none."""
    if getattr(callback, "on_step_end", None) is None:
        return None
    every: int | None = getattr(callback, "every_n_steps", 1)
    return every
