"""Trial, a random call of a kernel with its expected results, and the distributions that trials are drawn from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import reference as ref

from minidl_c.runtime.single_op import backward_batch, forward_batch
from minidl_c.runtime.threads import set_thread_choice

set_thread_choice(False)  # predictions use all threads that they are asked to
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38, 1e-40, -1e-45)


@dataclass
class Trial:
    """`calls` calls of a kernel. `run` gets arrays by name; `oracle` yields name, exact values and allowed error."""

    about: str
    dtype: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, tuple[int, ...]]
    run: Callable[[SimpleNamespace, int], None]
    calls: int
    oracle: Callable[[], Iterator[tuple[str, np.ndarray, np.ndarray | float]]] | None = None


def alone(trial: Trial) -> SimpleNamespace:
    """Returns the trial's arrays, each in separate memory."""
    arrays = {name: values.copy() for name, values in trial.inputs.items()}
    return SimpleNamespace(**arrays, **{n: np.full(s, 7, trial.dtype) for n, s in trial.outputs.items()})


# ---- values --------------------------------------------------------------------------------------
def draw_values(rng, shapes):
    """Draws arrays, exact in float32; returns (kind, arrays), kind: "whole" (exact sums), "normal" or "special"."""
    kind = str(rng.choice(["whole", "normal", "special"]))
    if kind == "whole":
        return kind, [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    values = [rng.standard_normal(shape, "f4") for shape in shapes]
    if kind == "special":
        values = [np.where(rng.random(v.shape) < 0.1, rng.choice(SPECIAL, v.shape), v).astype("f4") for v in values]
    return kind, values


def named(names, values, dtype):
    return {name: value.astype(dtype) for name, value in zip(names.split(), values, strict=True)}


def draw_dtype(rng):
    return str(rng.choice(["float32", "float64"]))


def within_rounding(names, results, terms, dtype, kind):
    """Yields name, exact values and allowed error for sums of `terms` terms; results: (exact values, of |x|, ...)."""
    for name, exact, magnitude, count in zip(names.split(), *results, terms, strict=True):
        yield name, exact, 0 if kind == "whole" else ref.rounding(count, dtype) * magnitude


def small_batch(rng, case):
    return replace(case, batch=int(rng.integers(0, 41))) if rng.random() < 0.5 else case


def sizes(rng):
    """Draws the number of examples and of elements per example."""
    return int(rng.integers(0, 41)), int(rng.integers(1, 40))


def both_ways(op, a, threads):
    """Runs forward and backward of an op without parameters."""
    forward_batch(op, a.x, a.y, num_threads=threads)
    backward_batch(op, a.dy, a.x, a.dx, num_threads=threads)
