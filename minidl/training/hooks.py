"""The hooks of callbacks, which are objects with the hooks they need.

    on_fit_begin(trainer)                    on_epoch_begin(trainer, epoch)
    on_step_end(trainer, step, loss)         on_epoch_end(trainer, epoch, logs)
    on_fit_end(trainer)                      on_terminate(trainer)
    on_save(trainer)

Epochs and steps are counted from 0 over the trainer's life; logs is the epoch's record. `trainer.stop = True` ends the
fit behind the hook that sets it. A callback with on_step_end gets every step, or, if it has an attribute
`every_n_steps`, each n-th one (None: none at all): the steps between run in C without a pause. on_terminate comes
between two steps, when SIGTERM asks the process to end. on_save comes behind on_step_end, on_epoch_end, on_fit_end and
on_terminate, when all callbacks have seen that step: the moment to save.

What a callback remembers goes into checkpoints if it has `state_dict()` and `load_state_dict(state)`; an empty state is
nothing to remember. Callbacks of one class are told apart by their repr, or else by their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minidl.shapes import whole

HOOKS = ("on_fit_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_fit_end", "on_terminate", "on_save")


class Hooks:
    """The hooks of some callbacks, called one after the other.

    Raises TypeError for a callback without any hook, with a misspelt one, or with half of what a state needs.
    """

    def __init__(self, callbacks: Iterable[Any]) -> None:
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
            if hasattr(callback, "state_dict") != hasattr(callback, "load_state_dict"):
                expected = "state_dict() and load_state_dict(state), or neither"
                raise TypeError(f"callbacks: expected {expected}, {type(callback).__name__} has one of them")
            if getattr(callback, "every_n_steps", None) is not None:
                whole(f"every_n_steps of {callback!r}", callback.every_n_steps)

    def steps_until_next(self, step: int) -> int | None:
        """How many steps, from this one on, may run until a callback wants to see one; None: as many as you like."""
        steps = [n - step % n for n in map(_every, self.callbacks) if n is not None]
        return min(steps, default=None)

    def step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Calls on_step_end, behind this step, of the callbacks that want to see it, and then on_save of all."""
        for callback in self.callbacks:
            n = _every(callback)
            if n is not None and (step + 1) % n == 0:
                callback.on_step_end(trainer, step, loss)
        self.call("on_save", trainer)

    def states(self) -> list[tuple[str, Any]]:
        """The name and the state_dict() of each callback that has something to remember."""
        found = [(_name(callback), callback.state_dict()) for callback in self._with_state()]
        return [(name, state) for name, state in found if state]

    def missing(self, states: list[tuple[str, Any]]) -> str:
        """The names in these states that no callback has; those of one name are told apart by their order."""
        given = iter([_name(callback) for callback in self._with_state()])
        return ", ".join(name for name, _ in states if name not in given)

    def load_states(self, states: list[tuple[str, Any]]) -> None:
        """Hands each callback what it remembered; new ones begin as they are."""
        given = iter(self._with_state())
        for name, state in states:
            next(callback for callback in given if _name(callback) == name).load_state_dict(state)

    def _with_state(self) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, "state_dict")]

    def call(self, hook: str, *args: Any) -> None:
        """Calls the hook of every callback that has it, in order."""
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(*args)


def _name(callback: Any) -> str:
    """What a callback is called in a checkpoint: by its repr, if its class has one of its own."""
    return type(callback).__name__ if type(callback).__repr__ is object.__repr__ else repr(callback)


def _every(callback: Any) -> int | None:
    """Each how many steps a callback wants to see; None: none."""
    if not hasattr(callback, "on_step_end"):
        return None
    every: int | None = getattr(callback, "every_n_steps", 1)
    return every
