"""Callbacks: objects with the hooks they need.

    on_fit_begin(trainer)                    on_epoch_begin(trainer, epoch)
    on_step_end(trainer, step, loss)         on_epoch_end(trainer, epoch, logs)
    on_fit_end(trainer)

Epochs and steps are counted from 0 over the trainer's life; logs is the epoch's record. `trainer.stop = True` ends the
fit behind the hook that sets it. A callback with on_step_end gets every step, and so ends the chunks of steps in C.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HOOKS = ("on_fit_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_fit_end")


class Callbacks:
    """Some callbacks, called one after the other. Raises TypeError for one without any hook, or with a misspelt one."""

    def __init__(self, callbacks: Iterable[Any]) -> None:
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks: expected a list of objects, got {callbacks!r}")
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            hooks = [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]
            wrong = sorted(set(hooks) - set(HOOKS))
            if wrong or not hooks or isinstance(callback, type):
                got = (
                    f"{callback!r} with {wrong or 'none of them'}"
                    if not isinstance(callback, type)
                    else f"the class {callback!r}"
                )
                raise TypeError(f"callbacks: expected objects with hooks from {', '.join(HOOKS)}, got {got}")

    def wants(self, hook: str) -> bool:
        """Whether any callback has this hook."""
        return any(hasattr(callback, hook) for callback in self.callbacks)

    def call(self, hook: str, *args: Any) -> None:
        """Calls the hook of every callback that has it, in order."""
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(*args)
