"""Factors of the learning rate or of the weight decay: a number for all parameters of a layer, or numbers by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from minidl.utils.validation import check_non_negative

Factors = float | Mapping[str, float]  # a parameter that is not named has a factor of 1


def check_factors(argument: str, factors: Any, names: Collection[str] | None) -> Factors:
    """Returns factors, without those of 1, or the one of all; raises TypeError or ValueError naming the argument.

    names: those of the layer's parameters; None: not known yet.

    >>> check_factors("lr_mult", {"weight": 1, "bias": 64}, ["weight", "bias"])
    {'bias': 64.0}
    """
    if not isinstance(factors, Mapping):
        try:
            return check_non_negative(argument, factors, "float32")
        except TypeError:
            expected = "expected a number, or a dict from names of parameters to numbers"
            raise TypeError(f"{argument}: {expected}, got {factors!r:.100}") from None
    check_names(argument, factors, names)
    found = {name: check_non_negative(f"{argument}[{name!r}]", one, "float32") for name, one in factors.items()}
    if names and len(all_equal := set(by_name(found, names).values())) == 1:
        return all_equal.pop()
    return {name: factor for name, factor in found.items() if factor != 1} or 1.0


def check_names(argument: str, factors: Mapping[str, Any], names: Collection[str] | None) -> None:
    """Raises TypeError or ValueError for factors of something else than these parameters."""
    for name in factors:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: expected names of parameters, got {name!r:.100}")
        if names is not None and name not in names:
            known = ", ".join(names) or "no parameters"
            raise ValueError(f"{argument}: expected names from {known}, got {name!r:.100}")


def by_name(factors: Factors, names: Collection[str]) -> dict[str, float]:
    """Returns the factor of each of these parameters."""
    return {name: factors.get(name, 1.0) if isinstance(factors, Mapping) else factors for name in names}


def scaled(outer: Factors, factors: Factors, names: Collection[str]) -> Factors:
    """Returns the products of the factor of a container and those of these parameters; a number if they are equal."""
    assert not isinstance(outer, Mapping)
    if not isinstance(factors, Mapping):
        return outer * factors
    products = {name: outer * factor for name, factor in by_name(factors, names).items()}
    return products if len(different := set(products.values())) > 1 else different.pop()


def copied(factors: Factors) -> Factors:
    """Returns factors that change nothing if they are changed."""
    return dict(factors) if isinstance(factors, Mapping) else factors
