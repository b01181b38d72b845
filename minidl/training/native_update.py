"""Which optimizers have an `update` for flat parameters, and which of these run inside a plan."""

from __future__ import annotations

import inspect
from typing import Any, TypeGuard

from minidl.engine.network import Network
from minidl.utils.overrides import speaks_for
from minidl_c.optimizers.update import Update


def has_update(optimizer: object) -> bool:
    """Whether an optimizer has `update(size, dtype)`, or also with `named_views`; another method may have that name."""
    return speaks_for(optimizer, "update", "step") and _arguments_of(optimizer) in (
        ["size", "dtype"],
        ["size", "dtype", "named_views"],
    )


def _arguments_of(optimizer: Any) -> list[str]:
    return list(inspect.signature(optimizer.update).parameters)


def new_update(optimizer: Any, network: Network) -> Update | None:
    """Returns a new state of an optimizer for the parameters of a network; None: the optimizer has only `step`."""
    if not has_update(optimizer):
        return None
    parameters = network.parameters
    views = [parameters.named_views] if "named_views" in _arguments_of(optimizer) else []
    update: Update = optimizer.update(parameters.values.size, network.dtype, *views)
    return update


def is_native(update: Update | None) -> TypeGuard[Update]:
    """Whether an update runs inside a plan, and not in Python."""
    return update is not None and type(update).apply is Update.apply
