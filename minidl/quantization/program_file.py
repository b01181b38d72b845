"""Programs as JSON and arrays, for files: the inverse of each other are `encode` and `decode`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from minidl.quantization import program as p
from minidl.utils.arrays import Array

KINDS: dict[str, type[p.Operation]] = {
    made.kind: made for made in (p.SumOfProducts, p.MaxPool, p.AveragePool, p.Add, p.Multiply, p.Lookup, p.Rearrange)
}
INPUT = "input"  # what the names of its arrays begin with; those of an operation begin with its index


def encode(program: p.Program) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns a program as JSON, and its arrays by name, such as "0.weights"."""
    arrays: dict[str, Array] = {}

    def plain(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays[name] = value
            return None
        if isinstance(value, Mapping):  # of whole numbers, which JSON does not have as keys
            return [[key, *numbers] for key, numbers in value.items()]
        return _listed(value)

    def members(name: str, made: Any) -> dict[str, Any]:
        encoded = {field.name: plain(f"{name}.{field.name}", getattr(made, field.name)) for field in fields(made)}
        return {key: value for key, value in encoded.items() if value is not None}

    values = [[*value.shape, value.quantization.scale, value.quantization.zero_point] for value in program.values]
    members(INPUT, program.input)
    operations = [{"kind": one.kind, **members(str(i), one)} for i, one in enumerate(program.operations)]
    return {"values": values, "operations": operations}, arrays


def decode(config: Any, arrays: Mapping[str, Array]) -> p.Program:
    """Returns the program that was encoded. Raises TypeError, ValueError or KeyError for others.

    Whether the operations fit together is what an IntegerNet checks.
    """
    values = tuple(
        p.Value((_int(c), _int(h), _int(w)), p.Quantization(float(scale), _int(zero)))
        for c, h, w, scale, zero in config["values"]
    )
    rest, operations = dict(arrays), list[p.Operation]()
    made = p.QuantizeInput(rest.pop(f"{INPUT}.factors"), rest.pop(f"{INPUT}.offsets"))
    for i, encoded in enumerate(config["operations"]):
        kind, *others = KINDS[encoded["kind"]], *(set(encoded) - {"kind"})
        arguments = {name: _tupled(encoded[name]) for name in others}
        for field in fields(kind):
            if field.name not in arguments:
                arguments[field.name] = rest.pop(f"{i}.{field.name}")
        if kind is p.AveragePool:
            arguments["factors"] = {divisor: (multiplier, shift) for divisor, multiplier, shift in arguments["factors"]}
        operations.append(kind(**arguments))
    if rest:
        raise ValueError(f"expected arrays of its operations only, got {sorted(rest)[:10]}")
    return p.Program(made, values, tuple(operations))


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    """Returns whole numbers, strings and lists of these with tuples for lists."""
    if isinstance(value, list):
        return tuple(_tupled(part) for part in value)
    return value if isinstance(value, str) else _int(value)


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r:.100}")
    return value
