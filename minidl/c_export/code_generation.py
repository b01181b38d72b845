"""Code generation: from layers to the statements of a program. Branches are computed in turn, then joined."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minidl.c_export.code_writer import CodeWriter, CProgram, Tensor
from minidl.c_export.identifiers import output_identifiers
from minidl.c_export.writers import WRITE_FUNCTIONS
from minidl.engine.layer_list import layer_name
from minidl.layers import Bidirectional, Block, Outputs, Parallel, Residual, SqueezeExcite
from minidl.layers.base import Layer
from minidl.layers.container import Container, child_path, title
from minidl.layers.fake_quantize import FakeQuantize, QuantizationAware
from minidl.layers.join import CONCAT
from minidl.quantization.integer_net import IntegerNet
from minidl.utils.errors import kind_of

CONTAINERS = (Bidirectional, Block, Parallel, Residual, SqueezeExcite)
CONVERTED = "minidl.quantization.convert(model)"
INTEGERS = {FakeQuantize: CONVERTED, QuantizationAware: CONVERTED, IntegerNet: "the QuantizedModel itself"}


def generate(layers: Sequence[Layer], name: str, transforms_in_c: bool) -> tuple[CProgram, Tensor, dict[str, Tensor]]:
    """Returns the program of built layers, its input and its outputs, by their names in C.

    name: the first part of all its names in C. transforms_in_c: whether it transforms Winograd's weights, once.

    Raises ValueError, naming the layer and its path, for a layer without C; TypeError or ValueError for what a layer's
    own `c_code` raises.
    """
    program = CProgram(name, layers[0].dtype, transforms_in_c=transforms_in_c)
    first = program.new_tensor(layers[0].in_shape)
    x = first
    for i, layer in enumerate(layers):
        if type(layer) is Outputs:
            names = output_identifiers(list(layer.branches), name)
            ends = _generate_ends(program, layer, str(i), layer_name(i, layer), x, names)
            return program, first, dict(zip(names, ends, strict=True))
        x = _generate_layer(program, layer, str(i), layer_name(i, layer), x)
    return program, first, {"scores": x}


def _generate_layer(program: CProgram, layer: Layer, path: str, label: str, x: Tensor) -> Tensor:
    """Adds the statements of a layer and of its children; returns its output. label: its name in errors."""
    if type(layer) in CONTAINERS:
        assert isinstance(layer, Container)
        y = _generate_branches(program, layer, path, label, x)
    else:
        y = _generate_leaf(program, layer, path, label, x)
    program.outputs.append((f"{path} {type(layer).__name__}", y))
    return y


def _generate_leaf(program: CProgram, layer: Layer, path: str, label: str, x: Tensor) -> Tensor:
    program.statements.append(f"{path}: {title(layer)}, {layer.in_shape} -> {layer.out_shape}")
    try:
        writer = CodeWriter(program, path, layer)
        if type(layer) in WRITE_FUNCTIONS:
            return WRITE_FUNCTIONS[type(layer)](writer, x)
        return _generate_custom(writer, layer, x)
    except (TypeError, ValueError) as error:
        raise kind_of(error)(f"{label}: {error}") from error


def _generate_ends(
    program: CProgram, layer: Container, path: str, label: str, x: Tensor, names: Sequence[str] | None = None
) -> list[Tensor]:
    """Adds the statements of all branches; returns their outputs. names: of the branches in C; None: their own."""
    ends = []
    for name, (branch, layers) in zip(names or layer.named_branches(), layer.named_branches().items(), strict=True):
        end = x
        for i, (child, child_label) in enumerate(zip(layers, layer.child_names(branch), strict=True)):
            end = _generate_layer(program, child, f"{path}.{child_path(name, i)}", f"{label}: {child_label}", end)
        ends.append(end)
    return ends


def _generate_branches(program: CProgram, layer: Container, path: str, label: str, x: Tensor) -> Tensor:
    ends, writer = _generate_ends(program, layer, path, label, x), CodeWriter(program, path, layer)
    if len(ends) == 1:
        return ends[0]
    program.statements.append(f"{path}: {title(layer)}, {layer.in_shape} -> {layer.out_shape}")
    if layer.join == CONCAT:
        return writer.concatenate(ends, layer.out_shape, layer.axis % len(layer.out_shape))
    joined, *others = ends
    for other in others:  # in the order of the plan: the first of two branches has branches itself
        joined = writer.join(layer.join, joined, other)
    return joined


def _generate_custom(writer: CodeWriter, layer: Layer, x: Tensor) -> Tensor:
    """Adds a function of the statements of a user's layer, whose arrays are in the order of its shapes; calls it."""
    if type(layer) in INTEGERS:
        raise ValueError(f"expected a layer in float, got one of integers: export {INTEGERS[type(layer)]}")
    write = getattr(layer, "c_code", None)
    if not callable(write):
        raise ValueError("expected one of minidl's layers, or one with a method c_code(writer), got one without it")
    try:
        body = write(writer)
    except Exception as error:
        error.add_note(f"raised by the method c_code of {layer!r}")
        raise
    if not isinstance(body, str):
        raise TypeError(f"c_code: expected the statements of C as a string, got {body!r:.100}")
    function = f"compute_{writer.identifier('layer')}"  # no constant begins like this
    lines = "\n".join(f"  {line}".rstrip() for line in body.strip("\n").splitlines() if line.strip())
    writer.declare(f"static void {function}(const real *x, real *y) {{\n{lines}\n}}")
    y = writer.call(function, writer.row_major(x), to=(math.prod(layer.out_shape),))
    return writer.channels_last(y, layer.out_shape)
