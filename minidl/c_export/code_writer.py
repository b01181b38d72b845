"""CodeWriter: what the write functions in writers/, and the method `c_code` of a user's layer, add statements with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidl.c_export import arena, tables
from minidl.layers.base import Layer
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_real

MAX_AXES = 8  # of `permute` in shapes.c
WIDTH = 140  # of a line


@dataclass(frozen=True)
class Tensor:
    """What a layer gets or returns, for one example. In memory its channels, the first axis, are the last one.

    storage: the number of its memory, which tensors that differ in their shapes alone share.
    """

    storage: int
    shape: Shape

    @property
    def channels(self) -> int:
        """The size of the first axis."""
        return self.shape[0]

    @property
    def pixels(self) -> int:
        """The product of the sizes of all other axes."""
        return math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_row_major(self) -> bool:
        """True if the order in memory is also that of the shape."""
        return 1 in (self.channels, self.pixels)


@dataclass
class Statement:
    """A statement of the function that computes all layers; each Tensor in `parts` becomes its address in the arena."""

    parts: list[str | Tensor]
    access: arena.Access


@dataclass
class CProgram:
    """Everything that layers add: statements, the sizes of memory, constants and functions."""

    name: str
    dtype: str
    sizes: list[int] = field(default_factory=list)  # of each storage
    statements: list[Statement | str] = field(default_factory=list)  # or the comment before those of a layer
    arrays: dict[str, Array] = field(default_factory=dict)  # float constants, by their names
    declarations: list[str] = field(default_factory=list)  # other constants, and functions
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)  # of each layer, by its path and class
    transforms_in_c: bool = False  # Winograd's weights, once; else when exported
    transforms: list[str] = field(default_factory=list)  # the statements that do so
    transformed: int = 0  # numbers that they compute

    def new_tensor(self, shape: Shape) -> Tensor:
        """Returns a tensor with memory of its own."""
        self.sizes.append(math.prod(shape))
        return Tensor(len(self.sizes) - 1, shape)

    def add(self, parts: list[str | Tensor], reads: Sequence[Tensor], writes: Sequence[Tensor], in_place: bool) -> None:
        """Adds a statement. in_place: whether what it writes may be in the memory of the first Tensor that it reads."""
        access = arena.Access(tuple(v.storage for v in reads), tuple(v.storage for v in writes), in_place)
        self.statements.append(Statement(parts, access))

    def call(
        self, function: str, arguments: Sequence[int | str | Tensor], to: Shape, in_place: bool, scratch: int
    ) -> Tensor:
        """Adds a call of a function whose last argument is its output, of the shape `to`; see CodeWriter.call."""
        y = self.new_tensor(to)
        outputs = [self.new_tensor((scratch,)), y] if scratch else [y]
        parts: list[str | Tensor] = [f"{function}("]
        for argument in (*arguments, *outputs):
            parts += [argument if isinstance(argument, Tensor) else str(argument), ", "]
        self.add([*parts[:-1], ");"], [a for a in arguments if isinstance(a, Tensor)], outputs, in_place)
        return y


class CodeWriter:
    """Adds the C of one layer to a program.

    A layer that is not minidl's is exported by its method `c_code(self, writer)`. It returns the statements, in C99,
    that compute the layer's inference for one example, from the array `x` to the array `y`, in the order of its
    shapes::

        def c_code(self, writer):  # y = x * sigmoid(beta * x), with a beta for each channel
            beta = writer.constant("beta", self.beta.value)
            pixels = writer.size // writer.in_shape[0]
            return f"EACH(i, {writer.size}) y[i] = flush(x[i] * real_sigmoid(flush({beta}[i / {pixels}] * x[i])));"

    `real` is float or double. The scores have the bits of `predict` if the statements have the roundings of `forward`:
    `flush(a + b)` is one rounding, `real_fma(a, b, c)` is that of `a * b + c`; `real_exp`, `real_expm1`, `real_log`,
    `real_log1p`, `real_sigmoid`, `real_tanh`, `real_sqrt` and the functions in minidl/c_export/c are those of minidl's
    own layers.

    `writer["name"]` is an argument of the layer's constructor, as of when the layer was built.

    Parameters
    ----------
    program : CProgram
        The program that the layer is added to. `export_c` makes it and the writer.
    path : str
        Path of the layer, such as "3.body.0".
    layer : Layer
        The layer, which is built.

    Attributes
    ----------
    in_shape, out_shape : tuple of int
        Shapes of one example.
    size : int
        Number of elements of an input.
    dtype : str
        Dtype of the model.
    arguments : dict
        Arguments of the layer's constructor.
    path : str
        Path of the layer.

    Notes
    -----
    The methods from `declare` on are for minidl's own layers, whose tensors are in memory with the channels last.

    Examples
    --------
    >>> import os, tempfile
    >>> from minidl import Layer, Sequential, export_c
    >>> class Twice(Layer):
    ...     def forward(self, x, training):
    ...         return 2 * x
    ...     def backward(self, dy):
    ...         return 2 * dy
    ...     def c_code(self, writer):
    ...         return f"EACH(i, {writer.size}) y[i] = flush(2 * x[i]);"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "twice.c")
    ...     export_c(Sequential([Twice()], input_shape=(3,)), path)
    ...     with open(path) as file:
    ...         print("EACH(i, 3) y[i] = flush(2 * x[i]);" in file.read())
    True
    """

    def __init__(self, program: CProgram, path: str, layer: Layer) -> None:
        self._program, self._layer = program, layer
        self.path, self.dtype = path, layer.dtype
        self.in_shape, self.out_shape = layer.in_shape, layer.out_shape
        self.size = math.prod(layer.in_shape)
        self.arguments: Mapping[str, Any] = layer.config()

    def __getitem__(self, name: str) -> Any:
        """Returns an argument of the layer's constructor, as of when the layer was built.

        Raises ValueError if it has none of this name.
        """
        if name not in self.arguments:
            raise ValueError(f"writer[{name!r}]: expected an argument of the layer, one of {list(self.arguments)}")
        return self.arguments[name]

    def identifier(self, name: str) -> str:
        """Returns a C name for something of this layer: "digits_3_body_0_weight".

        Parameters
        ----------
        name : str
            Last part of the name.

        Returns
        -------
        str
            The name.
        """
        return "_".join((self._program.name, *self.path.split("."), name))

    def constant(self, name: str, value: Any, flush: bool = True) -> str:
        """Adds a table of numbers in the model's dtype, in row-major order; returns its C name.

        Parameters
        ----------
        name : str
            Name of the table in the layer, such as "beta".
        value : number or array-like of numbers
            The numbers.
        flush : bool, default True
            Whether subnormal numbers become zeros, as kernels read them.

        Returns
        -------
        str
            The name of the table in C.

        Raises
        ------
        TypeError
            Unless the value is a number or an array of numbers.
        ValueError
            For a name that C does not allow, for a second table of one name, and for NaN and infinity.
        """
        if not isinstance(name, str) or not re.fullmatch(r"\w+", name, re.ASCII):
            raise ValueError(f"constant: expected a name of C, such as 'beta', got {name!r}")
        given, identifier = np.asarray(value), self.identifier(name)
        if given.dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected an array of numbers, got {value!r:.100}")
        if identifier in self._program.arrays:
            raise ValueError(f"constant {name!r}: expected a name that is not used yet in this layer")
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(given, self.dtype)
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: expected finite numbers in {self.dtype}, got NaN or infinity")
        self._program.arrays[identifier] = tables.flushed(array) if flush else array
        return identifier

    def param(self, name: str, axes: Sequence[int] | None = None, flush: bool = True) -> str:
        """Adds a parameter of the layer as a table; returns its C name.

        Parameters
        ----------
        name : str
            Name of the parameter.
        axes : sequence of int or None, default None
            Its axes in the order of the table; None: as they are.
        flush : bool, default True
            Whether subnormal numbers become zeros, as kernels read them.

        Returns
        -------
        str
            The name of the table in C, "0" without such a parameter.
        """
        if name not in self._layer.params:
            return "0"
        value = self._layer.params[name].value
        return self.constant(name, value if axes is None else value.transpose(axes), flush)

    def arrays(self) -> dict[str, Array]:
        """Returns the layer's parameters and buffers, by their names, without subnormal numbers.

        Returns
        -------
        dict of str to array
            Copies.
        """
        values = {**{name: param.value for name, param in self._layer.params.items()}, **self._layer.buffers}
        return {name: tables.flushed(value) for name, value in values.items()}

    @property
    def op(self) -> Any:
        """The layer's op, which knows what its kernel computes; None for a layer in NumPy."""
        return self._layer.op

    @property
    def kind(self) -> type[Layer]:
        """The class of the layer."""
        return type(self._layer)

    def number(self, value: float) -> str:
        """Returns a number in the model's dtype as an expression of C.

        Parameters
        ----------
        value : float
            The number.

        Returns
        -------
        str
            The expression.

        Raises
        ------
        TypeError
            Unless it is a real number.
        ValueError
            Unless it is finite in the dtype.
        """
        return tables.number(check_real("number", value, self.dtype), self.dtype)

    # ---- for minidl's own layers

    def declare(self, text: str) -> None:
        """Adds a constant that is no table of floats, or a function.

        Parameters
        ----------
        text : str
            The declaration in C.
        """
        self._program.declarations.append(text)

    @property
    def transforms_in_c(self) -> bool:
        """True if the file transforms weights, once; else tables have the transformed ones."""
        return self._program.transforms_in_c

    def transform(self, call: str, size: int) -> str:
        """Adds a call that is made once, before the first prediction; returns the address of what it computes.

        Parameters
        ----------
        call : str
            The call of C without its last argument, the address.
        size : int
            Numbers that it computes, a multiple of 16.

        Returns
        -------
        str
            The address in C.
        """
        address = f"transformed + {self._program.transformed}"
        self._program.transforms.append(f"{call}, {address});")
        self._program.transformed += size
        return address

    def call(
        self,
        function: str,
        *arguments: int | str | Tensor,
        to: Shape | None = None,
        in_place: bool = False,
        scratch: int = 0,
    ) -> Tensor:
        """Adds a call of a C function whose last argument is its output.

        Parameters
        ----------
        function : str
            Name of the function.
        *arguments : int, str or Tensor
            Its arguments before the output.
        to : tuple of int or None, default None
            Shape of the output; None: that of the layer.
        in_place : bool, default False
            Whether the output may be in the memory of the first Tensor among the arguments.
        scratch : int, default 0
            Numbers of memory that the function gets before its output.

        Returns
        -------
        Tensor
            The output.
        """
        shape = self.out_shape if to is None else to
        return self._program.call(function, arguments, shape, in_place, scratch)

    def each(self, x: Tensor, before: str, after: str = ")") -> Tensor:
        """Adds y[i] = before x[i] after, for all elements.

        Parameters
        ----------
        x : Tensor
            The input.
        before : str
            What comes before an element.
        after : str, default ")"
            What comes after it.

        Returns
        -------
        Tensor
            The output, which may be in the memory of x.
        """
        y = self._program.new_tensor(x.shape)
        self._program.add([f"EACH(i, {x.size}) (", y, f")[i] = {before}(", x, f")[i]{after};"], [x], [y], True)
        return y

    def join(self, join: str, a: Tensor, b: Tensor) -> Tensor:
        """Returns a + b, or another function of two values, element by element.

        Parameters
        ----------
        join : str
            The join of a container, except "concat".
        a, b : Tensor
            Values of shapes that are equal, or 1, along each axis.

        Returns
        -------
        Tensor
            The result.
        """
        if a.shape == b.shape:
            return self.call(f"{join}_all", a.size, a, b, to=a.shape, in_place=True)
        if join == "multiply" and a.channels == b.channels and 1 in (a.pixels, b.pixels):
            larger = a if a.pixels >= b.pixels else b
            return self.call(join, a.pixels, b.pixels, a.channels, a, b, to=larger.shape, in_place=a is larger)
        shape = tuple(map(max, a.shape, b.shape))
        table = [[*shape[1:], shape[0]], *(_steps(x, shape) for x in (a, b))]
        name = self.identifier(f"axes_{len(self._program.declarations)}")
        rows = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in table)
        self.declare(f"static const integer {name}[3][{len(shape)}] = {{{rows}}};")
        n = len(shape)
        return self.call(f"{join}_broadcast", n, f"{name}[0]", f"{name}[1]", f"{name}[2]", a, b, to=shape)

    def concatenate(self, tensors: Sequence[Tensor], shape: Shape, axis: int) -> Tensor:
        """Returns all tensors, one after the other along an axis.

        Parameters
        ----------
        tensors : sequence of Tensor
            The tensors.
        shape : tuple of int
            Shape of the result.
        axis : int
            Index of the axis in the shape.

        Returns
        -------
        Tensor
            The result.
        """
        y, start = self._program.new_tensor(shape), 0
        rows = math.prod(shape[1:] if axis == 0 else shape[1:axis])  # the channels are the last axis in memory
        columns = y.size // rows
        for x in tensors:
            n = x.size // rows
            self._program.add(
                [f"copy_columns({rows}, {n}, {n}, 0, ", x, f", {columns}, {start}, ", y, ");"], [x], [y], False
            )
            start += n
        return y

    def row_major(self, x: Tensor) -> Tensor:
        """Returns x as a vector of its elements in the order of its shape.

        Parameters
        ----------
        x : Tensor
            The tensor.

        Returns
        -------
        Tensor
            The vector.
        """
        shape = (x.size,)
        if x.is_row_major:
            return Tensor(x.storage, shape)
        return self.call("transpose", x.pixels, x.channels, x, to=shape)

    def channels_last(self, x: Tensor, shape: Shape) -> Tensor:
        """Returns a vector, whose elements are in the order of the shape, as a tensor of it.

        Parameters
        ----------
        x : Tensor
            The vector.
        shape : tuple of int
            Shape of the result.

        Returns
        -------
        Tensor
            The result.
        """
        if Tensor(x.storage, shape).is_row_major:
            return Tensor(x.storage, shape)
        return self.call("transpose", shape[0], math.prod(shape[1:]), x, to=shape)


def declare_places(
    writer: CodeWriter, sizes: Sequence[int], steps: Sequence[int], prefix: str = ""
) -> tuple[int | str, ...]:
    """Declares the sizes and steps of the axes of an array; returns their number and names, the arguments of `permute`.

    prefix: of the names. Raises ValueError for more than 8 axes, of which neighbours that can be walked through as one
    count once.
    """
    kept = list[tuple[int, int]]()
    for size, step in zip(sizes, steps, strict=True):
        if kept and kept[-1][1] == size * step:
            kept[-1] = (kept[-1][0] * size, step)
        elif size > 1:
            kept.append((size, step))
    if len(kept) > MAX_AXES:
        raise ValueError(f"{writer.path}: expected at most {MAX_AXES} axes, got {len(kept)}")
    names = list[str]()
    for name, numbers in zip((f"{prefix}sizes", f"{prefix}steps"), zip(*kept or [(1, 0)], strict=True), strict=True):
        names.append(writer.identifier(name))
        writer.declare(f"static const integer {names[-1]}[] = {{{', '.join(map(str, numbers))}}};")
    return max(len(kept), 1), *names


def _steps(x: Tensor, shape: Shape) -> list[int]:
    """Returns the numbers from one element of x to the next along each axis, channels last; 0 where x is broadcast."""
    steps, step = list[int](), 1
    for size, whole in zip((x.shape[0], *x.shape[:0:-1]), (shape[0], *shape[:0:-1]), strict=True):
        steps.insert(0, step if size == whole else 0)
        step *= size
    return steps


WriteFunction = Callable[[CodeWriter, Tensor], Tensor]  # (writer, input) -> output
