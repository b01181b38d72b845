"""Layers that change the shape of examples: Flatten, Reshape, Pad1D, Pad2D, Upsample2D, RandomCrop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.layers import Columns, Flatten, Pad1D, Pad2D, RandomCrop, Reshape, Upsample2D
from minidl.layers.base import Layer
from minidl.onnx.graph import ANY_BATCH
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import collapse, layer_sides
from minidl.utils.validation import Shape

PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # in ONNX's words


def write_flatten(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Flatten", x, axis=1)


def write_reshape(writer: NodeWriter, x: str) -> str:
    """Writes a Reshape to (0, *shape); 0 copies the batch size."""
    return writer.add_node("Reshape", x, writer.add_int_constant("shape", (0, *writer.out_shape)))


def reshape_to(reader: NodeReader, shape: Shape) -> list[LayerWithWeights]:
    """Returns the layers that reshape x; none if it has the shape already."""
    if shape == reader.shape:
        return []
    return [LayerWithWeights(Flatten() if len(shape) == 1 else Reshape(shape))]


def read_flatten(reader: NodeReader) -> list[LayerWithWeights]:
    if (axis := reader.normalize_axis(reader.attribute("axis", 1))) != 1 and (axis, reader.batch) != (0, 1):
        reader.refuse(f"expected axis=1, which keeps examples separate, got {axis}")
    return reshape_to(reader, (math.prod(reader.shape),))


def read_reshape(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a Reshape that keeps the batch first: as 0, -1, its size in the file, or the result of Shape."""
    sizes, size_of_example, same = (
        reader.size_list(1),
        math.prod(reader.shape),
        not reader.expect_attribute("allowzero", 0, 1),
    )
    first, rest = sizes[:1], list(sizes[1:])
    for i, size in enumerate(rest[: len(reader.shape)]):
        rest[i] = reader.shape[i] if same and size == 0 else size
    if rest.count(-1) == 1 and (known := -math.prod(rest)) > 0:
        rest[rest.index(-1)] = size_of_example // known
    keeps_batch = first in [(-1,), (ANY_BATCH,), (reader.batch,), *([(0,)] if same else [])]
    if not keeps_batch or sizes.count(-1) > 1 or not _holds(rest, size_of_example):
        reader.refuse(f"expected a shape that keeps examples of {reader.shape} separate, got {list(sizes)}")
    return reshape_to(reader, tuple(rest))


def read_merged_axes(reader: NodeReader) -> list[LayerWithWeights]:
    axis = reader.attribute("axis", 1)
    return reshape_to(
        reader, (*reader.shape[: axis - 1], reader.shape[axis - 1] * reader.shape[axis], *reader.shape[axis + 1 :])
    )


def _holds(shape: list[int], size_of_example: int) -> bool:
    return len(shape) > 0 and min(shape) > 0 and math.prod(shape) == size_of_example


def read_squeeze(reader: NodeReader) -> list[LayerWithWeights]:
    axes = reader.ints_or_attribute("axes", 1, since=13)
    removed = {reader.normalize_axis(axis) for axis in axes or (0,)}
    if any(axis == 0 or reader.shape[axis - 1] != 1 for axis in removed):
        reader.refuse(f"expected axes of size 1 after the batch, got {axes} of {reader.shape}")
    return reshape_to(reader, tuple(size for i, size in enumerate(reader.shape, 1) if i not in removed))


def read_unsqueeze(reader: NodeReader) -> list[LayerWithWeights]:
    axes = reader.ints_or_attribute("axes", 1, since=13) or ()
    shape, rank = list(reader.shape), len(reader.shape) + 1 + len(axes)
    new = sorted(axis % rank for axis in axes if -rank <= axis < rank)
    if len(new) != len(axes) or len(set(new)) != len(axes) or 0 in new:
        reader.refuse(f"expected new axes after the batch, got {axes} for {reader.shape}")
    for axis in new:
        shape.insert(axis - 1, 1)
    return reshape_to(reader, tuple(shape))


def write_pad(writer: NodeWriter, x: str) -> str:
    """Writes the pads of all axes."""
    sides = layer_sides(writer)
    pads = (0, 0, *sides[::2], 0, 0, *sides[1::2])
    constants = [writer.add_int_constant("pads", pads)]
    if writer["mode"] == "constant":
        constants.append(writer.add_constant("value", writer["value"]))
    return writer.add_node("Pad", x, *constants, mode=PAD_MODES[writer["mode"]])


def read_pad(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads pads of any axes after the batch; a negative one takes columns away."""
    mode = reader.expect_attribute("mode", *PAD_MODES.values())
    pads, rank = reader.int_list(1), len(reader.shape) + 1
    value = reader.float_scalar(2) if reader.has_input(2) else 0.0
    if not math.isfinite(value):
        reader.refuse(f"expected a finite value, or -inf before a MaxPool, up to half its window, got {value}")
    axes = [reader.normalize_axis(axis) for axis in (reader.int_list(3) if reader.has_input(3) else range(rank))]
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        reader.refuse(f"expected two pads for each of axes {axes}, got {list(pads)}")
    by_axis = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes) if pads[i] or pads[i + len(axes)]}
    if 0 in by_axis or (mode != "constant" and min(pads, default=0) < 0):
        reader.refuse(f"expected pads after the batch axis, of at least 0 unless constant, got {list(pads)}")
    layers, shape, sides = list[LayerWithWeights](), list(reader.shape), dict[int, tuple[int, int]]()
    for axis, (before, after) in by_axis.items():
        size = shape[axis - 1]
        if min(before, after) < 0:
            start, stop = max(-before, 0), size + min(after, 0)
            if start >= stop:
                reader.refuse(f"expected pads that leave some of {size} elements, got {before} and {after}")
            layers.append(LayerWithWeights(Columns(start, stop, 1, axis - 1)))
            shape[axis - 1] = stop - start
        if max(before, after) > 0:
            sides[axis] = max(before, 0), max(after, 0)
    name = {mode: word for word, mode in PAD_MODES.items()}[mode]
    return [*layers, *(LayerWithWeights(layer) for layer in _pads(shape, sides, value, name))]


def _pads(shape: list[int], sides: dict[int, tuple[int, int]], value: float, mode: str) -> list[Layer]:
    """Returns the layers for pads (before, after) of axes: one for images and signals, else one for each axis."""
    if len(shape) == 3 and sides.keys() <= {2, 3} and sides:
        return [Pad2D((*sides.get(2, (0, 0)), *sides.get(3, (0, 0))), value, mode)]
    if len(shape) == 2 and sides.keys() == {2}:
        return [Pad1D(sides[2], value, mode)]
    layers = list[Layer]()
    for axis, pair in sides.items():  # as the height of an image
        layers.append(Reshape((math.prod(shape[: axis - 1]), shape[axis - 1], math.prod(shape[axis:]))))
        shape[axis - 1] += sum(pair)
        layers += [Pad2D((*pair, 0, 0), value, mode), Reshape(tuple(shape))]
    return layers


def write_upsample(writer: NodeWriter, x: str) -> str:
    sizes = list(zip(writer.in_shape[1:], writer.out_shape[1:], strict=True))
    if writer["mode"] == "nearest":
        scales = [out / size for size, out in sizes]
        options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        given = None if writer["align_corners"] else writer["scale"]  # runtimes differ in fractional sizes there
        pair = given if isinstance(given, (tuple, list)) else (given, given)
        scales = [round_scale(size, out, scale) for (size, out), scale in zip(sizes, pair, strict=True)]
        transform = "align_corners" if writer["align_corners"] else "half_pixel"
        options = {"mode": "linear", "coordinate_transformation_mode": transform}
    return writer.add_node("Resize", x, "", writer.add_constant("scales", (1, 1, *scales), "float32"), **options)


def round_scale(size: int, out: int, scale: float | None) -> float:
    """Returns a scale, or that of a size, as float32; rounded up if the size of the output would become smaller.

    Runtimes multiply it by the size in float32 or in float64.
    """
    rounded = np.float32(out / size if scale is None else scale)
    return float(rounded if float(rounded) * size >= out else np.nextafter(rounded, np.float32(np.inf)))


def read_resize(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads the nearest-neighbour modes that repeat each pixel, by integer scales, and the linear modes of PyTorch."""
    mode = reader.expect_attribute("mode", "nearest", "linear")
    for name, supported in (("antialias", 0), ("keep_aspect_ratio_policy", "stretch"), ("exclude_outside", 0)):
        reader.expect_attribute(name, supported)
    for name, default in (("cubic_coeff_a", -0.75), ("extrapolation_value", 0.0)):
        reader.attribute(name, default)  # of other interpolation modes
    transform = reader.attribute("coordinate_transformation_mode", "half_pixel")
    nearest = reader.attribute("nearest_mode", "round_prefer_floor")
    if reader.has_input(1):
        reader.constant(1)  # region of interest of a mode that is refused
    if len(reader.shape) != 3:
        reader.refuse(f"expected images, got {reader.shape}")
    scales, sizes = _read_scales(reader)
    if len(scales) != 4 or list(scales[:2]) != [1, 1]:
        reader.refuse(f"expected integer scales for height and width, and 1 for the others, got {list(scales)}")
    if mode == "linear":
        return [LayerWithWeights(_read_linear(reader, transform, scales[2:], sizes))]
    rounds = transform in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel") and nearest.startswith("round_")
    if not rounds and (transform, nearest) != ("asymmetric", "floor"):
        reader.refuse(f"expected modes asymmetric and floor, or half_pixel and round_*, got {transform} and {nearest}")
    int_scales = [int(scale) for scale in scales[2:] if 1 <= scale <= 2**31 and scale == int(scale)]
    if len(int_scales) != 2:
        reader.refuse(f"expected integer scales for height and width, got {list(scales)}")
    return [LayerWithWeights(Upsample2D(collapse(int_scales)))]


def _read_linear(reader: NodeReader, transform: str, scales: Sequence[float], sizes: Sequence[int] | None) -> Layer:
    """Returns a bilinear layer with the scales, or with the sizes where the scales are their quotients."""
    image = reader.shape[1:]
    if not all(0 < scale < 2**31 for scale in scales):
        reader.refuse(f"expected positive scales, got {list(scales)}")
    out = sizes or [
        int(np.float32(size) * np.float32(scale)) for size, scale in zip(image, scales, strict=True)
    ]  # in float32, as onnxruntime and PyTorch
    shrinks = transform == "pytorch_half_pixel" and any(
        new == 1 < old for new, old in zip(out, image, strict=True)
    )  # to pixel 0, not to the centre
    if transform not in ("half_pixel", "pytorch_half_pixel", "align_corners") or shrinks or min(out) < 1:
        reader.refuse(f"expected linear in mode half_pixel or align_corners, got {transform} from {image} to {out}")
    options: dict[str, Any] = {"mode": "bilinear", "align_corners": transform == "align_corners"}
    quotients = [new / old for old, new in zip(image, out, strict=True)]
    same = [math.isclose(scale, of, rel_tol=2**-23) for scale, of in zip(scales, quotients, strict=True)]
    if sizes or all(same) or options["align_corners"]:
        return Upsample2D(size=collapse(out), **options)
    exact = [
        scale if math.floor(scale * size) == new else round_scale(size, new, None)
        for scale, size, new in zip(scales, image, out, strict=True)
    ]
    return Upsample2D(exact[0] if exact[0] == exact[1] else (exact[0], exact[1]), **options)


def _read_scales(reader: NodeReader) -> tuple[list[float], list[int] | None]:
    """Returns the scales of all axes; and height and width of the output, if the node has sizes."""
    axes = [reader.normalize_axis(axis) for axis in reader.attribute("axes", ())] or [0, 1, 2, 3]
    if reader.has_input(2) and (given := reader.constant(2)).size:
        scales = dict(zip(axes, (float(scale) for scale in given.reshape(-1)), strict=False))
        return [scales.get(axis, 1.0) for axis in range(4)] if given.size == len(axes) else list(scales.values()), None
    sizes = reader.size_list(3)
    if len(sizes) != len(axes):
        reader.refuse(f"expected sizes of images, got {list(sizes)}")
    kept = dict(zip(axes, sizes, strict=True))
    sizes = tuple(kept.get(axis, size) for axis, size in enumerate((reader.batch, *reader.shape)))
    if sizes[0] not in (ANY_BATCH, reader.batch):
        batch = "a batch of any size" if reader.batch == ANY_BATCH else f"the graph's batch of {reader.batch}"
        reader.refuse(
            f"expected sizes for {batch}, got {list(sizes)}, which always gives {sizes[0]}: "
            "export it with scales instead of sizes, or with a batch of 1"
        )
    return [1.0, *(new / old for new, old in zip(sizes[1:], reader.shape, strict=True))], list(sizes[2:])


def read_expand(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads the repetition of one number per channel, (c, 1, 1), over an image; and one to the same shape."""
    sizes = reader.size_list(1)
    batch, *given = (1,) * (len(reader.shape) + 1 - len(sizes)) + sizes
    if batch in (1, reader.batch) and len(given) == len(reader.shape):
        repeats = [new for new, old in zip(given, reader.shape, strict=True) if new not in (1, old)]
        if not repeats:
            return []
        if len(given) == 3 and reader.shape[1:] == (1, 1) and given[0] in (1, reader.shape[0]) and min(repeats) > 1:
            return [LayerWithWeights(Upsample2D(collapse(given[1:])))]
    return reader.refuse(f"expected {reader.shape}, or numbers per channel repeated over an image, got {list(sizes)}")


def write_crop(writer: NodeWriter, x: str) -> str:
    """Writes the crop of the centre, as in inference: a Pad if it exceeds the image, then a Slice."""
    before, after, starts = [0, 0], [0, 0], [0, 0]
    for axis, (size, out) in enumerate(zip(writer.in_shape[1:], writer.out_shape[1:], strict=True)):
        first = (size + out) // 2 - out
        before[axis], after[axis], starts[axis] = max(-first, 0), max(first + out - size, 0), max(first, 0)
    if any(before + after):
        pads = writer.add_int_constant("pads", (0, 0, *before, 0, 0, *after))
        x = writer.add_node("Pad", x, pads, mode=PAD_MODES[writer["mode"]])
    ends = [start + out for start, out in zip(starts, writer.out_shape[1:], strict=True)]
    return writer.add_node(
        "Slice",
        x,
        writer.add_int_constant("starts", starts),
        writer.add_int_constant("ends", ends),
        writer.add_int_constant("axes", (2, 3)),
    )


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    Flatten: write_flatten,
    Pad1D: write_pad,
    Pad2D: write_pad,
    RandomCrop: write_crop,
    Reshape: write_reshape,
    Upsample2D: write_upsample,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "Expand": read_expand,
    "Flatten": read_flatten,
    "Pad": read_pad,
    "Reshape": read_reshape,
    "Resize": read_resize,
    "Squeeze": read_squeeze,
    "Unsqueeze": read_unsqueeze,
}
