"""TrainingCall: the argument of Plan.train."""

from dataclasses import dataclass
from typing import Any


@dataclass
class TrainingCall:
    """Some training steps: what they read (IN), overwrite (OUT) and change (IN and OUT). Plan.train checks all of it.

    m is the number of rows: those of `rows`, or all of x. Each step takes the next `batch` of them.
    """

    x: Any  # IN (n, in_size) uint8, float32 or float64
    rows: Any  # IN (m,) int64: which rows of x; None: all
    batch: int
    targets: Any  # IN, by row of x: int64 or uint8 labels (n,) or (n, n_labels), or numbers (n, n_target)
    weights: Any  # IN (n,), by row of x, or None
    losses: Any  # OUT (m,)
    scores: Any  # OUT (m, classes), or None
    divisors: Any  # IN (steps,) float64: of the sums of gradients
    lrs: Any  # IN (steps,) float64: the learning rates
    param: Any  # IN and OUT: the flat buffer
    grad: Any  # OUT: the divided gradient of the last step, after clipping (see clip.pyx)
    update: Any  # an Update, the optimizer; None: the parameters do not change
    num_threads: int | None
    seed: int  # of random numbers
    step_counter: Any  # IN and OUT (1,) int64: the number of completed steps; no signal comes between a step and it
    example_ids: Any = None  # IN (m,) int64: what the random numbers of each example depend on; None: `rows`
    clip_norm: float | None = None
    clip_value: float | None = None
    comm: Any = None  # the processes that run each batch together: see minidl/distributed/mpi.py
