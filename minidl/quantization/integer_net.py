"""IntegerNet: a quantized net as a layer, whose ops are the operations of its program."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidl.layers.base import Layer
from minidl.quantization import program as p
from minidl.quantization.program import Int8
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_shape
from minidl_c.integer.convert import DequantizeOp, QuantizeOp
from minidl_c.integer.elements import AddOp, JoinOp, LookupOp, MultiplyOp, RearrangeOp
from minidl_c.integer.pools import AveragePoolOp, MaxPoolOp
from minidl_c.integer.sum_of_products import SumOfProductsOp
from minidl_c.op import Op, check_ints

Image = tuple[int, int, int]
WORD = 4  # channels that are stored together
MOST_PADDING = 2**20  # of a SumOfProductsOp


class IntegerNet(Layer):
    """Quantized net: the arithmetic of a `Program`, in 8-bit integers.

    The input is real, and so is the output: `scale * (q - zero_point)` of the last value, which one product in float32
    rounds. `Sequential([IntegerNet(program)], input_shape=...)` predicts as any model; other layers may stand before or
    after it. It has no parameters and no gradient: a fit of the model is refused.

    Parameters
    ----------
    program : Program
        The operations.
    output_shape : tuple of int or None, default None
        Shape of the output, of as many elements as the last value; None: its shape, or (c,) for a vector (c, 1, 1).

    Raises
    ------
    TypeError, ValueError
        In `build`, for operations that do not fit together or whose sums may exceed 32 bits, an input of another shape,
        and a dtype other than float32.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.quantization.integer_net import IntegerNet
    >>> from minidl.quantization.program import Lookup, Program, QuantizeInput, Quantization, Value
    >>> rounded = QuantizeInput(np.full(2, 4.0), np.full(2, 0.5))  # floor(4 x + 0.5): x in quarters
    >>> values = [Value((2, 1, 1), Quantization(scale, 0)) for scale in (0.25, 1.0)]
    >>> signs = Lookup("sign", (0,), np.sign(np.arange(-128, 128)).astype(np.int8))
    >>> net = IntegerNet(Program(rounded, tuple(values), (signs,)))
    >>> print(Sequential([net], input_shape=(2,)).predict([[0.3, -2.0], [0.1, 0.125]]))
    [[ 1. -1.]
     [ 0.  1.]]
    """

    not_saved = (
        "expected a layer in float, got one of integers: save the QuantizedModel itself, with other layers after the "
        "integers by quantize(..., float_layers=n)"
    )

    def __init__(self, program: p.Program, output_shape: Shape | None = None) -> None:
        self.program, self.output_shape = program, output_shape

    def build(self, in_shape: Shape) -> Shape:
        """See Layer.build."""
        program = self.program
        if not isinstance(program, p.Program):
            raise TypeError(f"program: expected a Program, got {program!r}")
        if len(program.values) != len(program.operations) + 1:
            count = len(program.operations)
            raise ValueError(f"program: expected {count + 1} values of {count} operations, got {len(program.values)}")
        if self.dtype != "float32":
            raise ValueError(f"dtype: expected 'float32', which the input and the scores have, got {self.dtype!r}")
        first, last = program.values[0].shape, program.values[-1]
        if in_shape[0] != first[0] or _without_ones(in_shape) != _without_ones(first):
            raise ValueError(f"expected an input of shape {first}, that of the program, got {in_shape}")
        lowering = _Lowering(program.values)
        lowering.add(QuantizeOp(first, program.input.factors, program.input.offsets))
        lowering.end_value()
        for operation in program.operations:
            try:
                lowering.operation(operation)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{operation.label}, {operation.kind}: {error}") from error
            lowering.end_value()
        lowering.add(DequantizeOp(last.shape, *_numbers(last), back=0))
        self.op, self.macs = tuple(lowering.ops), program.multiply_adds
        shape = self.output_shape
        if shape is None:
            return last.shape if last.shape[1:] != (1, 1) else last.shape[:1]
        shape = check_shape("output_shape", shape)
        if math.prod(shape) != math.prod(last.shape):
            raise ValueError(f"output_shape: expected as many elements as {last.shape}, got {shape}")
        return shape

    def __repr__(self) -> str:
        """The number of operations, instead of all their numbers."""
        return f"IntegerNet(<Program of {len(self.program.operations)} operations>)"

    def quantized(self, scores: Array) -> Int8:
        """Returns the int8 numbers of which the layer made its output.

        They are exact: a score is the product of a scale and a number below 256, to one rounding of float32.

        Parameters
        ----------
        scores : array of shape `(n, *out_shape)`
            What the layer, or a model that ends with it, returned.

        Returns
        -------
        array of shape `(n, *out_shape)`
            The numbers, int8.

        Raises
        ------
        TypeError, ValueError
            For scores that are no such numbers.
        """
        scale, zero_point = _numbers(self.program.values[-1])
        if not isinstance(scores, np.ndarray) or scores.dtype != np.float32:
            got = getattr(scores, "dtype", type(scores).__name__)
            raise TypeError(f"scores: expected an array of float32, got {got}")
        found = np.rint(scores / np.float64(np.float32(scale)))
        if not (np.float32(scale) * found.astype(np.float32) == scores).all():
            raise ValueError(f"scores: expected multiples of {scale}, that a model returned, got others")
        numbers = found + zero_point
        if numbers.min(initial=0) < p.LOW or numbers.max(initial=0) > p.HIGH:
            expected = f"expected those of numbers from {p.LOW} to {p.HIGH}"
            raise ValueError(f"scores: {expected}, got {numbers.min()} to {numbers.max()}")
        return numbers.astype(np.int8)


class _Lowering:
    """The ops of a program, which grow. An operation is one op, or has others before it."""

    def __init__(self, values: Sequence[p.Value]) -> None:
        self.values = values
        self.ops: list[Op] = []
        self.places: list[int] = []  # of each value so far: the number of ops when it was written

    def add(self, op: Op) -> None:
        self.ops.append(op)

    def end_value(self) -> None:
        """Says that the last op has written the next value."""
        self.places.append(len(self.ops))

    def back(self, value: int) -> int:
        """Returns how many values of ops before the last one a value of the program was written."""
        return len(self.ops) - self.places[value]

    def operation(self, o: p.Operation) -> None:
        """Adds the ops of an operation; raises TypeError or ValueError if it does not fit its inputs."""
        number = len(self.places)
        if not o.inputs or not all(0 <= k < number for k in o.inputs):
            raise ValueError(f"inputs: expected values from 0 to {number - 1}, got {o.inputs}")
        inputs, out = [self.values[k] for k in o.inputs], self.values[number]
        count = 2 if isinstance(o, p.Multiply) else len(inputs) if isinstance(o, (p.Add, p.Rearrange)) else 1
        if len(inputs) != count:
            raise ValueError(f"inputs: expected {count}, got {o.inputs}")
        match o:
            case p.SumOfProducts():
                self.sum_of_products(o, inputs[0], out)
            case p.MaxPool():
                self.add(MaxPoolOp(inputs[0].shape, o.rows, o.columns, o.steps, back=self.back(o.inputs[0])))
            case p.AveragePool():
                zeros = {"x_zero_point": inputs[0].quantization.zero_point, "zero_point": out.quantization.zero_point}
                counts = o.row_counts, o.column_counts, dict(o.factors)
                shape, back = inputs[0].shape, self.back(o.inputs[0])
                self.add(AveragePoolOp(shape, o.rows, o.columns, *counts, **zeros, back=back))
            case p.Add():
                self.sum(o, inputs, out)
            case p.Multiply():
                a, b = inputs
                zeros = {"a_zero_point": a.quantization.zero_point, "b_zero_point": b.quantization.zero_point}
                zeros["zero_point"] = out.quantization.zero_point
                first, second = map(self.back, o.inputs)
                factor = o.multiplier, o.shift
                self.add(MultiplyOp(a.shape, b.shape, *factor, **zeros, back=first, second_back=second))
            case p.Lookup():
                self.add(LookupOp(inputs[0].shape, o.table, back=self.back(o.inputs[0])))
            case p.Rearrange():
                self.rearrange(o, inputs, out)
            case _:
                raise TypeError(f"expected an operation of a Program, got {type(o).__name__}")
        if not isinstance(o, p.Rearrange):  # whose index has as many elements as its value
            channels = len(o.weights) if isinstance(o, p.SumOfProducts) else inputs[0].shape[0]
            if (made := (channels, *self.ops[-1].out_shape[1:])) != out.shape:
                raise ValueError(f"expected a value of shape {made}, that of the operation, got {out.shape}")

    def sum_of_products(self, o: p.SumOfProducts, x: p.Value, y: p.Value) -> None:
        """Adds a convolution. One of few channels gets an op before it that fills their words with neighbours."""
        zero_point, weights, back = x.quantization.zero_point, o.weights, self.back(o.inputs[0])
        shape = x.shape
        padding, dilation = check_ints("padding", o.padding, 4, 0), check_ints("dilation", o.dilation, 2, 1)
        if _wastes_words(o, x.shape) and o.weights.shape[2:] == shape[1:] and not any(padding):
            size = math.prod(shape)
            index, shape, weights = np.arange(size, dtype=np.int32), (size, 1, 1), o.weights.reshape(-1, size, 1, 1)
            self.add(RearrangeOp([x.shape], shape, index, zero_point=zero_point, back=back))
            back, dilation = 0, (1, 1)
        elif _wastes_words(o, x.shape):
            index, shape, weights = _neighbours(o, x.shape)
            self.add(RearrangeOp([x.shape], shape, index, zero_point=zero_point, back=back))
            back, padding, dilation = 0, (*padding[:2], 0, 0), (dilation[0], WORD // x.shape[0] * dilation[1])
        self.add(
            SumOfProductsOp(
                shape,
                weights,
                o.biases,
                o.multipliers,
                o.shifts,
                stride=o.stride,
                padding=padding,
                dilation=dilation,
                groups=o.groups,
                x_zero_point=zero_point,
                zero_point=y.quantization.zero_point,
                low=o.low,
                high=o.high,
                back=back,
            )
        )

    def sum(self, o: p.Add, inputs: Sequence[p.Value], out: p.Value) -> None:
        """Adds a sum, of more than two terms after they are joined."""
        if wrong := [x.shape for x in inputs if x.shape != out.shape]:
            raise ValueError(f"expected terms of shape {out.shape}, got {wrong[0]}")
        zeros = [x.quantization.zero_point for x in inputs]
        backs = {"back": self.back(o.inputs[0])}
        if len(inputs) == 2:
            backs["second_back"] = self.back(o.inputs[1])
        elif len(inputs) > 2:
            self.join(o.inputs)
            backs = {"back": 0}
        limits = {"zero_point": out.quantization.zero_point, "low": o.low, "high": o.high}
        self.add(AddOp(out.shape, list(o.multipliers), zeros, o.shift, **limits, **backs))

    def join(self, values: Sequence[int]) -> None:
        """Adds the ops that put the words of values one after the other."""
        shapes = [(-(-self.values[k].shape[0] // WORD), *self.values[k].shape[1:]) for k in values]
        first, first_place = shapes[0], self.places[values[0]]
        for k, shape in zip(values[1:], shapes[1:], strict=True):
            self.add(JoinOp(first, shape, back=self.back(k), first_back=len(self.ops) - first_place))
            first, first_place = self.ops[-1].out_shape, len(self.ops)

    def rearrange(self, o: p.Rearrange, inputs: Sequence[p.Value], out: p.Value) -> None:
        """Adds a copy. Several inputs are joined first, and that is all if their channels fill whole words."""
        if wrong := [x.quantization for x in inputs if x.quantization != out.quantization]:
            raise ValueError(f"expected inputs of {out.quantization}, got {wrong[0]}")
        shapes, back = [x.shape for x in inputs], self.back(o.inputs[0])
        if len(inputs) > 1:
            self.join(o.inputs)
            back = 0
            size = sum(map(math.prod, shapes))
            channels = sum(c for c, _, _ in shapes)
            fills_words = all(c % WORD == 0 for c, _, _ in shapes[:-1])
            stacked = all(shape[1:] == out.shape[1:] for shape in shapes) and channels == out.shape[0]
            if fills_words and stacked and np.array_equal(o.index, np.arange(size)):
                return
        self.add(RearrangeOp(shapes, out.shape, o.index, zero_point=out.quantization.zero_point, back=back))


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape[1:] if size != 1]


def _numbers(value: p.Value) -> tuple[float, int]:
    return value.quantization.scale, value.quantization.zero_point


def _wastes_words(o: p.SumOfProducts, shape: Image) -> bool:
    """Whether a word would hold less than half of the channels that it can, while the kernel has columns to fill it.

    Not for what a SumOfProductsOp refuses.
    """
    (c, _, w), (left, right) = shape, o.padding[2:]
    if not isinstance(o.weights, np.ndarray) or o.weights.ndim != 4 or o.weights.shape[1] != c:
        return False
    fits = (o.weights.shape[3] - 1) * o.dilation[1] < w + left + right and max(o.padding) <= MOST_PADDING
    return fits and o.groups == 1 and c * 2 <= WORD and o.weights.shape[3] > 1


def _neighbours(o: p.SumOfProducts, shape: Image) -> tuple[p.Int32, Image, Int8]:
    """Returns what puts pixels side by side into words: the index of a Rearrange, the shape of its value, the weights.

    Word w of a row has the channels of pixels w, w + dilation, ..., which were `parts` cells of the kernel.
    """
    (c, h, w), parts = shape, WORD // shape[0]
    left, right = o.padding[2:]
    reach = (o.weights.shape[3] - 1) * o.dilation[1] + 1
    width = max(w + left + right - reach + 1, 1)  # and the words of later cells
    cells = -(-o.weights.shape[3] // parts)
    width += (cells - 1) * parts * o.dilation[1]
    pixel = np.arange(width) - left + np.arange(parts)[:, None] * o.dilation[1]  # [part][word]
    inside = (pixel >= 0) & (pixel < w)
    rows = np.arange(c)[:, None] * h + np.arange(h)  # [channel][row]
    index = np.where(inside[:, None, None], rows[None, :, :, None] * w + pixel[:, None, None], -1)
    weights = np.zeros((*o.weights.shape[:3], cells * parts), np.int8)
    weights[..., : o.weights.shape[3]] = o.weights
    weights = weights.reshape(*weights.shape[:3], cells, parts).transpose(0, 4, 1, 2, 3)
    made = weights.reshape(len(weights), parts * c, *o.weights.shape[2:3], cells)
    return index.astype(np.int32).ravel(), (parts * c, h, width), np.ascontiguousarray(made)
