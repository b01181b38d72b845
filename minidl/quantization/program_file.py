"""Programs, and their noise, as JSON and arrays for files: `encode` and `decode` are the inverse of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from minidl.quantization import program as p
from minidl.quantization.noise import Noise
from minidl.utils.arrays import Array

KINDS: dict[str, type[p.Operation]] = {
    made.kind: made for made in (p.SumOfProducts, p.MaxPool, p.AveragePool, p.Add, p.Multiply, p.Lookup, p.Rearrange)
}
MOST_NUMBERS, MOST_IN_ALL = 2**26, 2**28  # of a value, and of all that operations read, for one example
INPUT = "input"  # what the names of its arrays begin with; those of an operation begin with its index


def encode(program: p.Program) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns a program as JSON, and its arrays by name, such as "0.weights". Raises ValueError as `check_size`."""
    check_size(program)
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
    """Returns the program that was encoded. Raises TypeError or ValueError for others.

    Whether the operations fit together is what an IntegerNet checks.
    """
    _check_keys("program", config, {"values", "operations"})
    values = tuple(
        p.Value((_int(c), _int(h), _int(w)), p.Quantization(_scale(scale), _int(zero)))
        for c, h, w, scale, zero in config["values"]
    )
    rest, operations = dict(arrays), list[p.Operation]()
    made = p.QuantizeInput(_taken(rest, f"{INPUT}.factors"), _taken(rest, f"{INPUT}.offsets"))
    for i, encoded in enumerate(config["operations"]):
        operations.append(_operation(i, encoded, rest))
    if rest:
        raise ValueError(f"expected arrays of its operations only, got {sorted(rest)[:10]}")
    program = p.Program(made, values, tuple(operations))
    check_size(program)
    return program


def _operation(i: int, encoded: Any, arrays: dict[str, Array]) -> p.Operation:
    """Returns operation i, and removes its arrays."""
    if not isinstance(encoded, dict) or not isinstance(encoded.get("kind"), str) or encoded["kind"] not in KINDS:
        raise ValueError(f"operation {i}: expected a kind of {', '.join(KINDS)}, got {encoded!r:.100}")
    kind = KINDS[encoded["kind"]]
    arguments = {name: tupled(value) for name, value in encoded.items() if name != "kind"}
    names = [field.name for field in fields(kind)]
    for name in names:
        if name not in arguments:
            arguments[name] = _taken(arrays, f"{i}.{name}")
    _check_keys(f"operation {i}", arguments, set(names))
    if not isinstance(arguments["label"], str) or not isinstance(arguments["inputs"], tuple):
        raise TypeError(f"operation {i}: expected a label and a list of inputs, got others")
    if kind is p.AveragePool:
        arguments["factors"] = {divisor: (multiplier, shift) for divisor, multiplier, shift in arguments["factors"]}
    return kind(**arguments)


def check_size(program: p.Program) -> None:
    """Raises ValueError for values so large that tables of their elements would take minutes or gigabytes."""
    total = 0
    for o in program.operations:
        for k in (k for k in o.inputs if k in range(len(program.values))):  # an IntegerNet refuses others
            c, h, w = program.values[k].shape
            if isinstance(o, p.SumOfProducts):
                top, bottom, left, right = o.padding
                h, w = h + top + bottom, w + left + right
            total += (size := c * h * w)
            if size > MOST_NUMBERS or total > MOST_IN_ALL:
                most = f"at most {MOST_NUMBERS} numbers in a value, with its padding, and {MOST_IN_ALL} in all"
                raise ValueError(f"{o.label}: expected {most}, got {c} * {h} * {w}, and {total}")


# ---- noise


def encode_noise(noise: Sequence[Noise]) -> tuple[list[Any], Array]:
    """Returns the noise of a program as JSON, and an array of its real numbers."""
    ratios = np.array([(one.snr, one.added, one.beyond) for one in noise], np.float64).reshape(-1, 3)
    return [[one.label, one.kind, one.weight_bytes] for one in noise], ratios


def decode_noise(config: Any, arrays: Mapping[str, Array]) -> tuple[Noise, ...]:
    """Returns the noise that was encoded. Raises TypeError or ValueError for others. arrays: one, without a name."""
    if list(arrays) != [""] or arrays[""].dtype != np.float64 or arrays[""].shape != (len(config), 3):
        raise ValueError(f"noise: expected an array of float64, of 3 numbers for each of {len(config)}, got others")
    found = []
    for (label, kind, size), (snr, added, beyond) in zip(config, arrays[""].tolist(), strict=True):
        if not isinstance(label, str) or not isinstance(kind, str):
            raise TypeError(f"noise: expected a label and a kind, got {label!r:.100}, {kind!r:.100}")
        found.append(Noise(label, kind, snr, added, beyond, _int(size)))
    return tuple(found)


# ---- parts


def _check_keys(name: str, config: Any, expected: set[str]) -> None:
    if not isinstance(config, dict) or set(config) != expected:
        got = sorted(config) if isinstance(config, dict) else type(config).__name__
        raise ValueError(f"{name}: expected {sorted(expected)}, got {got!r:.300}")


def _taken(arrays: dict[str, Array], name: str) -> Array:
    if name not in arrays:
        raise ValueError(f"expected the array {name!r}, got none")
    return arrays.pop(name)


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def tupled(value: Any) -> Any:
    """Returns whole numbers, strings and lists of these with tuples for lists."""
    if isinstance(value, list):
        return tuple(tupled(part) for part in value)
    return value if isinstance(value, str) else _int(value)


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r:.100}")
    return value


def _scale(value: Any) -> float:
    if type(value) is not float or not 0 < value < np.inf:
        raise ValueError(f"expected a positive real number as scale, got {value!r:.100}")
    return value
