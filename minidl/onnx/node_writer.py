"""NodeWriter: what the write functions in operators/, and the method `onnx` of a user's layer, add nodes with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.layers.container import title
from minidl.onnx.graph import Node
from minidl.utils.arrays import Array
from minidl.utils.validation import check_choice

CONSTANT_DTYPES = ("float32", "float64", "int8", "int32", "int64", "uint8", "bool")


def round_to_float32(value: float) -> float:
    """Rounds a number to float32; infinity if it is too large."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


class NodeWriter:
    """Adds the nodes of one layer to a graph, named after its path: "3.body.0.Conv".

    A layer that is not minidl's is exported by its method `onnx(self, writer, x)`. It adds the nodes that compute its
    inference from the value of name x, and returns the name of its output::

        def onnx(self, writer, x):  # y = x * sigmoid(beta * x), with a beta for each channel
            scaled = writer.add_node("Mul", x, writer.column("beta"))
            return writer.add_node("Mul", x, writer.add_node("Sigmoid", scaled))

    `writer["name"]` is an argument of the layer's constructor, as of when the layer was built.

    Parameters
    ----------
    nodes : list of Node
        The nodes of the graph so far, to which those of the layer are appended. `export` makes it and the writer.
    path : str
        Path of the layer, such as "3.body.0".
    layer : Layer
        The layer, which is built.

    Attributes
    ----------
    in_shape, out_shape : tuple of int
        Shapes of one example, without the batch axis, which comes first in the graph.
    dtype : str
        Dtype of the graph.
    arguments : dict
        Arguments of the layer's constructor.
    path : str
        Path of the layer.

    Examples
    --------
    The nodes of y = (x + 1)²:

    >>> from minidl import Sequential
    >>> from minidl.layers import ReLU
    >>> from minidl.onnx import NodeWriter
    >>> nodes, model = [], Sequential([ReLU()], input_shape=(3,))
    >>> writer = NodeWriter(nodes, "0", model.layers[0])
    >>> total = writer.add_node("Add", "x", writer.add_constant("one", 1))
    >>> writer.add_node("Mul", total, total)
    '0.Mul'
    >>> [(node.op, node.inputs) for node in nodes]
    [('Constant', []), ('Add', ['x', '0.one']), ('Mul', ['0.Add', '0.Add'])]
    """

    def __init__(self, nodes: list[Node], path: str, layer: Layer) -> None:
        self._nodes, self._layer, self._doc = nodes, layer, title(layer)
        self.path, self.dtype = path, layer.dtype
        self.in_shape, self.out_shape = layer.in_shape, layer.out_shape
        self.arguments: Mapping[str, Any] = layer.config()
        self._counts = Counter[str]()  # nodes so far, by operator

    def __getitem__(self, name: str) -> Any:
        """Returns an argument of the layer's constructor, as of when the layer was built.

        Raises ValueError if it has none of this name.
        """
        if name not in self.arguments:
            raise ValueError(f"writer[{name!r}]: expected an argument of the layer, one of {list(self.arguments)}")
        return self.arguments[name]

    def part(self, name: str, doc: str) -> NodeWriter:
        """Returns a writer of the same layer, whose nodes have names of their own, such as "3.body.0.name.Conv".

        Parameters
        ----------
        name : str
            A name that is unique in the layer.
        doc : str
            What the nodes compute, for their documentation in the file.

        Returns
        -------
        NodeWriter
            It adds nodes to the same graph.
        """
        part = copy(self)
        part.path, part._doc, part._counts = f"{self.path}.{name}", doc, Counter()
        return part

    @property
    def op(self) -> Any:
        """The layer's op, which knows what its kernel computes; None for a layer in NumPy."""
        return self._layer.op

    def add_node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node of ONNX's operator `op` with one output.

        A second node of one operator is named "0.Mul_2".

        Parameters
        ----------
        op : str
            Name of the operator.
        *inputs : str
            Names of values; "" omits an optional one.
        **attributes : number, str, list of these, or array
            Attributes of the operator.

        Returns
        -------
        str
            The name of the output.

        Raises
        ------
        TypeError
            For inputs that are not strings and attributes that are None.
        ValueError
            For a float that ONNX cannot hold.
        """
        for value in inputs:
            if not isinstance(value, str):
                raise TypeError(f"inputs: expected names of values, got {value!r}")
        self._counts[op] += 1
        name = f"{self.path}.{op}" if self._counts[op] == 1 else f"{self.path}.{op}_{self._counts[op]}"
        for key, value in attributes.items():
            if value is None:
                raise TypeError(f"{key}: expected a number, a string, a list of these or an array, got None")
            for number in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(number, float) and not math.isclose(round_to_float32(number), number, rel_tol=1e-6):
                    raise ValueError(
                        f"{key}: expected a number that float32 can hold (ONNX attributes are float32), got {number}"
                    )
        self._nodes.append(Node(op, name, list(inputs), [name], attributes, self._doc))
        return name

    def param_name(self, name: str) -> str:
        """Returns the name of a parameter or buffer in the graph.

        Parameters
        ----------
        name : str
            Its name in the layer.

        Returns
        -------
        str
            Such as "0.weight"; "" if the layer does not have it.
        """
        return f"{self.path}.{name}" if name in self._layer.params or name in self._layer.buffers else ""

    def column(self, name: str, axes: Sequence[int] = (0,)) -> str:
        """Returns a parameter (channels,) as (channels, 1, ...), which broadcasts along x's channels.

        Parameters
        ----------
        name : str
            Its name in the layer.
        axes : sequence of int, default (0,)
            The axes of an example, in their order, whose sizes the parameter has; 0 is the channels.

        Returns
        -------
        str
            The name of the value.
        """
        param, rank = self.param_name(name), len(self.in_shape)
        added = [axis - axes[0] for axis in range(axes[0], rank) if axis not in axes]
        if not added:
            return param
        return self.add_node("Unsqueeze", param, self.add_int_constant(f"{name}_axes", added))

    def add_constant(self, name: str, value: Any, dtype: str | None = None) -> str:
        """Adds a constant.

        Parameters
        ----------
        name : str
            A name that is unique in the layer.
        value : number or array-like of numbers
            The numbers.
        dtype : str or None, default None
            "float32", "float64", "int8", "int32", "int64", "uint8" or "bool"; None: the model's.

        Returns
        -------
        str
            The name of the value.

        Raises
        ------
        TypeError
            Unless the value is a number or an array of numbers.
        ValueError
            If the dtype is none of these, or cannot hold the value.
        """
        dtype = check_choice("dtype", dtype or self.dtype, *CONSTANT_DTYPES)
        given = np.asarray(value)
        if given.dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected a number or an array of numbers, got {value!r:.100}")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            array: Array = given.astype(dtype)
        held = np.isfinite(array) >= np.isfinite(given) if array.dtype.kind == "f" else array == given
        if not held.all():
            raise ValueError(f"{name}: expected numbers that {dtype} can hold, got {given[~held][0]}")
        path = f"{self.path}.{name}"
        self._nodes.append(Node("Constant", path, [], [path], {"value": array}))
        return path

    def add_int_constant(self, name: str, values: Any) -> str:
        """Adds a constant of int64, such as a shape or axes.

        Parameters
        ----------
        name : str
            A name that is unique in the layer.
        values : int or array-like of int
            The numbers.

        Returns
        -------
        str
            The name of the value.
        """
        return self.add_constant(name, values, "int64")


WriteFunction = Callable[[NodeWriter, str], str]  # (writer, name of the input) -> name of the output
