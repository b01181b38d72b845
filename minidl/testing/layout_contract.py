"""Checks that a layer with kernels computes the same bits in the blocked layout, that of few examples, as in tiles.

The layout is forced (`blocked_limit` of minidl_c/runtime/program.pyx), in the given shape and in one that is wide
enough for two blocks of 16 channels, the second one not full, and for threads to share the rows of an image. Before the
layer, a Scale makes its dx visible, as the gradient of a bias of each element; a Rescale by 1, with an offset of 1,
leaves numbers other than zero in the lanes after the last channel.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.lowering import plan_of
from minidl.engine.param_groups import param_groups
from minidl.layers.base import Layer
from minidl.layers.flatten import Flatten, Reshape
from minidl.layers.rescale import Rescale
from minidl.layers.scale import Scale
from minidl.losses.elementwise import MeanSquaredError
from minidl.sequential import Sequential
from minidl.testing.forked import death_of
from minidl.testing.layer_contract import THREADS, build, copied, fill, iter_leaves
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array
from minidl_c.runtime.training_call import TrainingCall

LANES = 16
CASES = ((1, 1), (1, 3), (3, 1), (2, 3), (9, 2))  # examples and threads: a thread has whole ones, or threads share one
WIDE = 19  # channels of a second block that is not full, where a multiple of the given number has none
ROWS = 6  # of an image, so that three threads share them: at least two for each

Results = dict[str, Array]


def check_layouts(name: str, layer: Layer, samples: Samples) -> None:
    """Checks the bits of predictions and training steps of few examples, forced into either layout."""
    whole = build(layer, samples.shape, "float64").layers[0]
    if whole.native:
        for part in (samples, *_wide_samples(layer, samples)):
            _check_shape(name, layer, part)
    elif samples.given is None:
        for leaf_name, leaf in iter_leaves(name, whole):
            if leaf.native:
                own = Samples(leaf.in_shape, samples.rng)
                for part in (own, *_wide_samples(leaf, own)):
                    _check_shape(leaf_name, leaf, part)


def _wide_samples(layer: Layer, samples: Samples) -> Iterator[Samples]:
    """Yields samples of a wider shape that the layer accepts, if there is one."""
    channels, *others = samples.shape
    has_two = channels > LANES and channels % LANES
    counts = [channels] if has_two else [channels * max(LANES // channels + 1, 1), WIDE]
    wide = [(count, *others) for count in sorted(counts, key=lambda count: count % LANES == 0)]
    if len(others) == 2 and others[0] < ROWS:
        wide = [(count, ROWS, others[1]) for count, *_ in wide] + wide
    for shape in wide:
        if shape == samples.shape:
            return
        try:
            with _without_warnings():
                build(layer, shape, "float64")
        except (TypeError, ValueError):  # the layer takes other shapes
            continue
        yield samples.resized(shape)
        return


def _check_shape(name: str, layer: Layer, samples: Samples) -> None:
    x = samples.many(max(n for n, _ in CASES))
    steps = [Steps(layer, x.astype(dtype), samples.integers) for dtype in ("float32", "float64")]
    if steps[0].has_params:
        steps += [Steps(layer, x.astype(one.dtype), samples.integers, True) for one in steps]
    where = f"{name}: in the blocked layout, for inputs of shape {samples.shape}"
    death = death_of(partial(_run_alone, steps))
    assert death is None, (
        f"{where}, its kernel kills the process ({death}): it accesses memory that it does not have (in backward, t.dx "
        "may be NULL), or does not survive NaN"
    )
    for step in steps:
        step.check(where)


def _run_alone(steps: list[Steps]) -> None:
    for step in steps:
        for n, threads in CASES:
            if threads == THREADS:
                step.all_results(n, threads, LANES)


class Steps:
    """Predictions and training steps of a layer, whose layout can be chosen.

    is_first: the layer comes first in the model, which thus needs no dx of it.
    """

    def __init__(self, layer: Layer, x: Array, integers: bool, is_first: bool = False) -> None:
        shape, self.dtype, self.is_first = x.shape[1:], x.dtype.name, is_first
        front: list[Layer] = [Flatten(), Scale(use_bias=True), Reshape(shape), Rescale(1.0, 1.0)]
        front = [] if is_first else front
        with _without_warnings():
            model = Sequential([*front, copied(layer)], input_shape=shape, dtype=self.dtype)
        fill(model.layers[-1])
        self.has_params = bool(model.layers[-1].params)
        self.least = model.layers[-1].min_batch_size
        self.parameters, self.out_shape = FlatParameters(model.layers, self.dtype), model.layers[-1].out_shape
        groups, loss = param_groups(model.layers), MeanSquaredError().op(self.out_shape, self.dtype)
        self.inference = plan_of(model.layers, self.parameters.offsets, groups)
        self.training = plan_of(model.layers, self.parameters.offsets, groups, loss)
        self.names = [
            f"the grad of {key!r}" for leaf in model.layers for child in leaf.leaves() for key in child.params
        ]
        if not is_first:  # the weight and the bias of the Scale
            self.names[:2] = ["dx times x", "dx"]
        self.shape, self.x = shape, (x if is_first else x - 1).reshape(len(x), -1)
        self.nan_x = self.x if integers else np.full_like(self.x, np.nan)
        self.targets = np.random.default_rng(2).standard_normal((len(x), int(np.prod(self.out_shape))))

    def check(self, where: str) -> None:
        """Raises AssertionError unless both layouts give the same bits. Compares nothing in what only tiles can do."""
        tiles = {n: self.all_results(n, THREADS, 0) for n, _ in CASES}
        for n, threads in CASES:
            for what, array in self.all_results(n, threads, LANES).items():
                expected = tiles[n][what]
                same = (array == expected) & (np.signbit(array) == np.signbit(expected))
                different = np.argwhere(~(same | np.isnan(array) & np.isnan(expected)))
                if len(different):
                    index = tuple(different[0].tolist())
                    raise AssertionError(
                        f"{where}, {self.dtype}, a batch of {max(n, self.least)} and {threads} threads: "
                        f"{what}{list(index)} is {array[index]!s}, but {expected[index]!s} in a tile "
                        f"({len(different)} of {array.size} elements differ)"
                    )

    def all_results(self, n: int, threads: int, limit: int) -> Results:
        """Returns the results of n examples, or as many as the layer needs.

        limit: LANES for the blocked layout, 0 for tiles. NaN goes through first, and stays in memory: it must have no
        effect.
        """
        n, results = max(n, self.least), {}
        for run, plan in ((self._predict, self.inference), (self._train, self.training)):
            if _force(plan, limit):
                run(n, threads, np.full_like(self.parameters.values, np.nan), self.nan_x)
            results.update(run(n, threads, self.parameters.values.copy(), self.x))
        return results

    def _predict(self, n: int, threads: int, values: Array, x: Array) -> Results:
        y = np.full((n, int(np.prod(self.out_shape))), 7, self.dtype)
        self.inference.predict(x[:n], None, values, y, threads)
        return {"in inference, the output": y.reshape(n, *self.out_shape)}

    def _train(self, n: int, threads: int, values: Array, x: Array) -> Results:
        targets, grad = self.targets[:n].astype(self.dtype), np.full_like(values, 7)
        losses, scores = np.empty(n, self.dtype), np.full_like(targets, 7)
        sizes = np.full(1, float(n)), np.zeros(1)
        given = x[:n], None, n, targets, None, losses, scores, *sizes, values, grad, None
        self.training.train(TrainingCall(*given, threads, 5, np.full(1, 9)))
        grads: list[Any] = self.parameters.views(grad)
        if not self.is_first:
            grads[:2] = [one.reshape(self.shape) for one in grads[:2]]
        results = dict(zip(self.names, grads, strict=True))
        return {"in training, the output": scores.reshape(n, *self.out_shape), **results, "the flat state": values}


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keeps silent about shapes that look like images with channels last: the wider ones are not the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _force(plan: Any, limit: int) -> bool:
    """Sets the layout; returns whether few examples have the blocked one."""
    try:
        plan.blocked_limit = limit
    except ValueError:  # only tiles: a kernel has parameters and no blocked form
        return False
    return limit > 0
