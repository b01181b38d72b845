"""A built model as segments: runs of layers with kernels become plans, with layers in NumPy between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.param_groups import ParamGroup, Ranges, overrides_settings, param_groups, settings_of
from minidl.engine.segments import CheckedSegment, NativeSegment, NumpySegment, ParamGroups, Segment, trains
from minidl.engine.state import tensors
from minidl.layers.base import Layer
from minidl.layers.columns import Columns
from minidl.layers.container import Container, named_leaves
from minidl.layers.fake_quantize import QuantizationAware
from minidl.layers.join import join_gradients, join_outputs
from minidl.layers.outputs import OutputLayout, Outputs
from minidl.layers.param import Param
from minidl.utils.arrays import Array, memory_order
from minidl.utils.data import ArraySource, Index, is_plain_batch
from minidl.utils.factors import by_name
from minidl.utils.threadpool import one_blas_thread
from minidl.utils.validation import Shape

Predict = Callable[[Array, int | None], Array]
CHUNK = 1024  # examples that predict processes at a time with NumPy layers or data that must be converted


class BranchSegment:
    """A container with a layer in NumPy: each branch is a network, and their outputs are joined in NumPy."""

    def __init__(self, container: Container, name: str, parameters: FlatParameters, trained: ParamGroups) -> None:
        self.container, self.name = container, name
        self.in_shape, self.out_shape = container.in_shape, container.out_shape
        self.trains = trains([container], trained)
        self.networks = [
            Network(branch, [f"{name}: {child}" for child in container.child_names(key)], parameters, trained)
            for key, branch in container.named_branches().items()
        ]

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """See Segment."""
        x = np.asarray(x, self.container.dtype)
        return join_outputs(
            self.container.join, [network.predict(x, num_threads) for network in self.networks], self.container.axis
        )

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """See Segment."""
        x = np.asarray(x, self.container.dtype)
        results = [network.forward(x, num_threads, seed, step, example_ids, part) for network in self.networks]
        outputs, tapes = [y for y, _ in results], [tape for _, tape in results]
        return join_outputs(self.container.join, outputs, self.container.axis), (outputs, tapes)

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """See Segment. The gradients of the branches are added in their order."""
        outputs, tapes = context
        shares = join_gradients(self.container.join, dy, outputs, self.container.axis)
        total: Array | None = None
        for network, tape, share in zip(self.networks, tapes, shares, strict=True):
            dx = network.backward(tape, share, want_dx)
            total = dx if total is None or dx is None else total + dx
        return total if want_dx else None

    def release(self, context: Any) -> None:
        """See Segment."""
        for network, tape in zip(self.networks, context[1], strict=True):
            network.release(tape)


class QuantizedSegment(BranchSegment):
    """Layers that are trained with rounded weights, and predict by integers: see QuantizationAware."""

    def __init__(self, layer: QuantizationAware, name: str, parameters: FlatParameters, trained: ParamGroups) -> None:
        from minidl.quantization.aware import IntegerForm, RoundedParameters

        self.rounded = RoundedParameters(parameters, layer)
        super().__init__(layer, name, self.rounded, trained)
        self.integers = IntegerForm(layer, self.networks[0], parameters)

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """See Segment."""
        return self.integers.network().predict(x, num_threads)

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """See Segment."""
        self.rounded.refresh()
        return super().forward(x, num_threads, seed, step, example_ids, part)


def segment_of(layer: Layer, name: str, parameters: FlatParameters, trained: ParamGroups) -> Segment:
    """Returns one layer as a segment of its own."""
    if layer.native:
        return NativeSegment([layer], parameters, trained)
    if isinstance(layer, QuantizationAware):
        return QuantizedSegment(layer, name, parameters, trained)
    if isinstance(layer, Container):
        return BranchSegment(layer, name, parameters, trained)
    return (CheckedSegment if trained[id(layer)].inference else NumpySegment)(layer, name, trained)


def takes_missing(layers: Sequence[Layer]) -> bool:
    """Whether NaN in the input is a missing value for the first of these layers, or in a branch of it."""
    first = next((layer for layer in layers if not isinstance(layer, Columns)), None)
    if isinstance(first, Container):
        return any(map(takes_missing, first.named_branches().values()))
    return first is not None and first.takes_missing


class Network:
    """The segments of a model. Values go from one to the next as NCHW arrays in the model's dtype.

    names: the layers' names in errors. trained: the parameter group of each layer; None: the groups follow from the
    settings of the layers and the model's `lr_mult`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        names: Sequence[str],
        parameters: FlatParameters,
        trained: ParamGroups | None = None,
        lr_mult: float = 1.0,
    ) -> None:
        self.layers, self.names, self.lr_mult = list(layers), list(names), lr_mult
        self.parameters, self.dtype = parameters, parameters.dtype
        self.has_own_settings = any(overrides_settings(leaf) for leaf in self.leaves)
        self._version = None if trained is not None else (Layer.settings_version(), lr_mult)
        self._settings = None if trained is not None else (settings_of(layers), lr_mult)
        self._cut(param_groups(layers, ParamGroup(lr_scale=lr_mult)) if trained is None else trained)

    def refresh(self) -> None:
        """Cuts the model again if layers were frozen or thawed since, or their rates changed."""
        version = Layer.settings_version(), self.lr_mult
        if version == self._version and not self.has_own_settings:  # each step asks several times
            return
        settings, self._version = (settings_of(self.layers), self.lr_mult), version
        if settings == self._settings:
            return
        self._settings, trained = settings, param_groups(self.layers, ParamGroup(lr_scale=self.lr_mult))
        if trained != self.trained:
            self._cut(trained)

    def _cut(self, trained: ParamGroups) -> None:
        """Cuts the model into segments."""
        segments: list[Segment] = []
        for native, run in itertools.groupby(zip(self.layers, self.names, strict=True), lambda pair: pair[0].native):
            if native:
                segments.append(NativeSegment([layer for layer, _ in run], self.parameters, trained))
            else:
                segments += [segment_of(layer, name, self.parameters, trained) for layer, name in run]
        self.segments, self.trained = segments, trained
        self._blas = nullcontext() if self.native else one_blas_thread
        self._is_one_plan = self.native and self.outputs is None
        for leaf in self.leaves:
            if trained[id(leaf)].frozen:
                self.parameters.clear(leaf)

    @cached_property
    def leaves(self) -> list[Layer]:
        """All layers that are not containers, in order."""
        return [leaf for leaf, _ in self.named]

    @cached_property
    def moves_pixels(self) -> bool:
        """Whether a layer moves pixels in training."""
        return any(leaf.moves_pixels for leaf in self.leaves)

    @cached_property
    def named(self) -> list[tuple[Layer, str]]:
        """The leaves, each with its name in errors."""
        named = zip(self.layers, self.names, strict=True)
        return [pair for layer, name in named for pair in named_leaves(layer, name)]

    @cached_property
    def kinds(self) -> list[tuple[type[Layer], list[tuple[str, Shape, str, tuple[int, ...]]]]]:
        """The class of each leaf, with name, shape, dtype and memory order of its parameters and buffers."""
        found = []
        for leaf in self.leaves:
            arrays = {name: param.value for name, param in leaf.params.items()} | leaf.buffers
            tensors = [(name, one.shape, str(one.dtype), memory_order(one)) for name, one in arrays.items()]
            found.append((type(leaf), tensors))
        return found

    @cached_property
    def state_names(self) -> list[str]:
        """The names of parameters and buffers, as in `state_dict`."""
        return list(tensors(self.layers))

    def name_of(self, kind: type[Layer]) -> str | None:
        """Returns the name, as errors have it, of the first layer of a class that is no container; None: none."""
        return next((name for leaf, name in self.named if isinstance(leaf, kind)), None)

    def ranges(self, trained: ParamGroups) -> Ranges:
        """Returns the ranges of the flat buffers that a step changes, and how: parameters alike are one range."""
        found: list[tuple[int, int, float, float, int]] = []
        for leaf in self.leaves:
            group, end = trained[id(leaf)], self.parameters.offsets[id(leaf)]
            lr, decay = by_name(group.lr_scale, leaf.params), by_name(group.decay_scale, leaf.params)
            for name, param in leaf.params.items() if not group.frozen else ():
                start, end, how = end, end + param.value.size, (lr[name], decay[name], group.skipped_steps)
                if found and found[-1][1:] == (start, *how):
                    start = found.pop()[0]
                found.append((start, end, *how))
        return Ranges(found)

    def trained_params(self, params: Mapping[str, Param]) -> dict[str, Param]:
        """Returns those of a model's parameters, by name, that a step changes."""
        trained = {id(p) for leaf in self.leaves if not self.trained[id(leaf)].frozen for p in leaf.params.values()}
        return {name: param for name, param in params.items() if id(param) in trained}

    @property
    def couples_examples(self) -> bool:
        """Whether a batch may give other results than its parts one by one: batch statistics, or a layer in NumPy."""
        ops = ((op, self.trained[id(leaf)].frozen) for leaf in self.leaves for op in leaf.ops)
        return not all(leaf.native for leaf in self.leaves) or any(
            op.couples_examples and not frozen for op, frozen in ops
        )

    @property
    def out_shape(self) -> Shape:
        """The shape of one example's output; of several outputs, that of the vector of all."""
        return self.layers[-1].out_shape

    @property
    def outputs(self) -> OutputLayout | None:
        """Where several outputs lie in that vector; None: there is one."""
        last = self.layers[-1]
        return last.layout if isinstance(last, Outputs) else None

    def keeping(self, names: Collection[str]) -> Network:
        """Returns a network of the same layers that computes only some of several outputs; itself for all of them."""
        last = self.layers[-1]
        if not isinstance(last, Outputs) or set(names) == set(last.branches):
            return self
        layers = [*self.layers[:-1], last.keep(list(names))]
        return Network(layers, self.names, self.parameters, lr_mult=self.lr_mult)

    @property
    def native(self) -> bool:
        """Whether the whole model is one plan."""
        return len(self.segments) == 1 and isinstance(self.segments[0], NativeSegment)

    def check_gradients(self) -> None:
        """Raises ValueError if a layer has no gradient."""
        for leaf, name in self.named:
            if not all(op.has_backward for op in leaf.ops):
                raise ValueError(f"{name}: expected a layer with a gradient; it computes predictions only")

    def check_batch(self, n: int) -> None:
        """Raises ValueError if a batch of n examples is too small to train a layer with, or one has no gradient."""
        self.check_gradients()
        for leaf, name in self.named:
            if 0 < n < leaf.min_batch_size and not self.trained[id(leaf)].frozen:
                minimum = f"at least {leaf.min_batch_size} examples in every batch of training"
                raise ValueError(f"{name}: expected {minimum}, got one of {n}: choose another batch_size")

    @cached_property
    def takes_missing(self) -> bool:
        """Whether X may hold NaN."""
        return takes_missing(self.layers)

    def reads(self, X: Any) -> TypeGuard[Array]:
        """Whether X is a batch that a single plan reads as it is, and predicts at a time."""
        return self._is_one_plan and is_plain_batch(X, self.layers[0].in_shape, self.dtype, CHUNK)

    def predict(self, x: Array, num_threads: int | None = None) -> Array:
        """Returns the outputs for x (n, ...), which may be uint8, float32 or float64; keeps nothing."""
        with self._blas:
            for segment in self.segments:
                x = segment.predict(x, num_threads)
        return x

    def predict_all(self, examples: ArraySource, num_threads: int | None, predict: Predict | None = None) -> Array:
        """Returns the outputs for all examples, chunk by chunk. predict: what is called instead of `self.predict`."""
        predict = predict or self.predict
        n, shape = len(examples), self.layers[0].in_shape
        if self.native and n <= min(CHUNK, examples.chunk_size):
            return predict(examples.chunk(0, n).reshape(n, *shape), num_threads)
        out = np.empty((n, *self.out_shape), self.dtype)
        for here, block in examples.chunks(CHUNK):
            out[here] = predict(block.reshape(-1, *shape), num_threads)
        return out

    def forward(
        self,
        x: Array,
        num_threads: int | None = None,
        seed: int = 0,
        step: int = 0,
        example_ids: Index | None = None,
        part: int = 0,
    ) -> tuple[Array, list[Any]]:
        """Returns the outputs for x as in training, and the tape: the context of each segment, for `backward`.

        example_ids: indices in the data, which random masks of kernels depend on; None: 0 to len(x) - 1.
        part: the index of this micro-batch in the step, which random numbers in NumPy depend on.
        """
        tape = []
        with self._blas:
            for segment in self.segments:
                x, context = segment.forward(x, num_threads, seed, step, example_ids, part)
                tape.append(context)
        if self.segments and isinstance(self.segments[-1], NumpySegment):
            x = x.copy()  # a layer in NumPy may keep what it returns, and this one goes to the user
        return x, tape

    def release(self, tape: list[Any]) -> None:
        """Releases the memory of a tape."""
        for segment, context in zip(self.segments, tape, strict=True):
            segment.release(context)

    def backward(self, tape: list[Any], dy: Array, want_dx: bool) -> Array | None:
        """Returns dx for the gradient dy of the outputs; writes plain sums of gradients to `parameters.grads`."""
        wanted = want_dx
        below = []  # for each segment: whether anything before it needs a gradient
        for segment in self.segments:
            below.append(wanted)
            wanted = wanted or segment.trains
        with self._blas:
            for segment, context, needs_dx in reversed(list(zip(self.segments, tape, below, strict=True))):
                if not needs_dx and not segment.trains:
                    return None
                dx = segment.backward(context, dy, needs_dx)
                if dx is None:
                    return None
                dy = dx
        return dy
