"""Targets with numbers or labels for each pixel: they move with the pixels that layers move.

A layer with `moves_pixels` draws its move for a seed, a step and an example's row alone, so the move can be made again
for the targets: by the same op, with channels of theirs. Labels are those of the nearest pixel, and outside the image
the ignored one; images move as the input does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.losses import Loss, check_targets
from minidl.losses.output_losses import OutputLosses
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape
from minidl_c.runtime.single_op import forward_batch


class Mover(NamedTuple):
    """A layer that moves pixels, its name in errors, and whether only some of several branches pass through it."""

    layer: Layer
    name: str
    in_branch: bool


class Draw(NamedTuple):
    """What the random numbers of some examples of a step depend on; part: their micro-batch, for layers in NumPy."""

    seed: int
    step: int
    ids: Index
    part: int = 0


def movers_of(network: Network) -> list[Mover]:
    """Returns the layers that move pixels, in order."""
    if not network.moves_pixels:  # each step asks several times
        return []
    pairs = zip(network.layers, network.names, strict=True)
    return [mover for layer, name in pairs for mover in _movers(layer, name, False)]


def _movers(layer: Layer, name: str, in_branch: bool) -> Iterator[Mover]:
    if isinstance(layer, Container):
        in_branch = in_branch or len(layer.named_branches()) > 1
        for path, child in layer.named_children():
            yield from _movers(child, f"{name}: {path}, {type(child).__name__}", in_branch)
    elif layer.moves_pixels:
        yield Mover(layer, name, in_branch)


# ---- what can be moved


def target_shape(network: Network) -> Shape:
    """Returns the shape of outputs that targets are given for: those of images that no RandomCrop has cropped."""
    out_shape = network.out_shape
    shape = out_shape
    for layer, _, in_branch in reversed(movers_of(network)):
        if in_branch or len(shape) < 2 or _size_of(shape) != layer.out_shape[1:]:
            return out_shape
        shape = (*shape[:-2], *layer.in_shape[1:]) if len(shape) > 2 else (shape[0], layer.in_shape[2])
    return shape


def _size_of(shape: Shape) -> Shape:
    """Returns height and width of images (c, h, w), or of signals (c, length)."""
    return shape[-2:] if len(shape) > 2 else (1, shape[-1])


def check_sized_targets(network: Network, loss: Loss, y: Any, n: int, dtype: str | None = None) -> Array:
    """Returns y as the loss takes it for n examples; raises TypeError or ValueError, naming a layer that crops them.

    dtype: of numbers; None: that of the network.
    """
    shape, out_shape = target_shape(network), network.out_shape
    try:
        return check_targets(loss, y, n, shape, dtype or network.dtype)
    except ValueError as error:
        if shape == out_shape:
            raise
        crop = next(name for layer, name, _ in movers_of(network) if _crops(layer))
        raise ValueError(f"{error}; {crop}, cuts targets as it cuts the images") from error


def _crops(layer: Layer) -> bool:
    return layer.in_shape[1:] != layer.out_shape[1:]


def _chain(network: Network, loss: Any, targets: Array) -> list[Mover]:
    """Returns the layers that move these targets, in order; none if the targets have no pixels.

    Raises TypeError or ValueError, naming the layer, if they cannot be moved as the images are, and if they are those
    of one of several outputs.
    """
    movers = movers_of(network)
    if not movers or not isinstance(loss, OutputLosses):
        return _movers_of_targets(movers, loss, targets, network.out_shape)
    for name, own in loss.split(targets[:1]).items():
        try:
            has_pixels = bool(_movers_of_targets(movers, loss.losses[name], own, loss.layout.shapes[name]))
        except (TypeError, ValueError):  # of pixels that could not move with the images either
            has_pixels = True
        if has_pixels:
            expected = (
                f"expected targets without pixels for each of several outputs, got shape {own.shape[1:]} for {name!r}"
            )
            raise ValueError(f"{movers[0].name}: {expected}; move examples and targets before the fit")
    return []


def _movers_of_targets(movers: list[Mover], loss: Any, targets: Array, out_shape: Shape) -> list[Mover]:
    """Returns the layers that move the targets of outputs of this shape; raises as `_chain`."""
    shape = targets.shape[1:]
    size: Shape | None = None
    if len(out_shape) == 1 and getattr(loss, "applies", "") == "Softmax":  # one-hot rows, of any length
        return []
    for i, (layer, name, in_branch) in enumerate(movers):
        image, got = layer.in_shape, f"got shape ({', '.join(map(str, ('n', *shape)))})"
        problem = ""
        if i == 0:
            size = _size_as(shape, image, targets.dtype.kind in "iub")
            problem = "" if size is not None else _problem(shape, image, out_shape)
            if size is None and not problem:
                return []
        elif size != image[1:]:
            problem = f"expected the size of its input, {image[1]} x {image[2]}, as that of the layers before it"
        if in_branch:
            problem = "expected targets without pixels for a layer that moves pixels in one branch of several"
        if problem:
            raise ValueError(f"{name}: {problem}, {got}; put it first, or move examples and targets before the fit")
        size = layer.out_shape[1:]
    _check_cropped(movers, out_shape)
    if movers and targets.dtype.kind not in "iubf":
        raise TypeError(f"{movers[0].name}: expected targets that are real numbers, got dtype {targets.dtype}")
    return movers


def _check_cropped(movers: Sequence[Mover], out_shape: Shape) -> None:
    """Raises ValueError, naming a layer that crops, unless outputs have the size of targets that it has cropped."""
    crops = [mover for mover in movers if _crops(mover.layer)]
    size, outputs = movers[-1].layer.out_shape[1:] if crops else None, _size_of(out_shape)
    if size is not None and size != outputs:
        expected = f"expected outputs of {size[0]} x {size[1]}, the size of the targets that it crops"
        raise ValueError(f"{crops[-1].name}: {expected}, got {outputs[0]} x {outputs[1]}")


def _size_as(shape: Shape, image: Shape, labels: bool) -> Shape | None:
    """Returns height and width of targets, of this shape without the batch axis, if they are those of an image."""
    size = image[1:]
    if shape[-2:] == size:
        return size
    is_signal = size[0] == 1 and shape[-1:] == size[1:]
    return size if is_signal and (len(shape) == 2 or labels) else None


def _problem(shape: Shape, image: Shape, out_shape: Shape) -> str:
    """Returns what is wrong with targets that stand for pixels, but have not the size of this image; else ""."""
    height, width = image[1:]
    if 1 <= len(shape) <= 2 and shape[-1] > 1 and shape[-1] in (height * width, np.prod(image)):
        reshape = f"Reshape(({np.prod(out_shape) // (height * width)}, {height}, {width})) as the last layer"
        return f"expected targets with height and width, which it can move, as those of a model with {reshape}"
    is_grid = len(shape) > 2 or (len(out_shape) == 3 and shape == out_shape[1:])
    is_series = height == 1 and len(out_shape) == 2 and shape[-1:] == out_shape[1:]
    if (is_grid and np.prod(shape[-2:]) > 1) or (is_series and shape[-1] > 1):
        return f"expected targets of the size of its input, {height} x {width}"
    return ""


def check_movable(network: Network, loss: Any, targets: Any, rows: Index) -> None:
    """Raises TypeError or ValueError, naming the layer, if a layer moves pixels whose targets cannot be moved.

    rows: those of the targets that are looked at, if there is such a layer.
    """
    if not network.moves_pixels:
        return
    targets = targets[rows]
    movers = _chain(network, loss, targets)
    outside = [mover for mover in movers if mover.layer.shows_outside]
    ignored = getattr(loss, "ignore_index", None)
    if movers and ignored is not None and targets.dtype.kind == "f" and not _are_labels(loss, targets, ignored):
        expected = f"expected masks of 0, 1 and ignore_index={ignored}, which it can move, got other numbers"
        raise ValueError(f"{movers[0].name}: {expected}; move examples and targets before the fit")
    if not outside or ignored is not None:
        return
    if targets.dtype.kind == "f" and not _are_labels(loss, targets):
        _check_fill(outside, loss, network)
    else:
        wrong = f"a loss that can ignore labels, got {loss!r}"
        why = "pixels from outside the image have no label"
        kind = type(loss).__name__ if hasattr(loss, "ignore_index") else "SoftmaxCrossEntropy"
        remedy = f"take labels or masks, and {kind}(ignore_index=255), which leaves these out"
        raise ValueError(f"{outside[0].name}: expected {wrong}: {why}; {remedy}")


def _check_fill(outside: Sequence[Mover], loss: Any, network: Network) -> None:
    """Raises ValueError if the loss does not take the values that pixels from outside have."""
    for layer, name, _ in outside:
        try:
            value = np.full((1, *target_shape(network)), getattr(layer, "value", 0.0))
            check_targets(loss, value, 1, value.shape[1:], network.dtype)
        except ValueError as error:
            raise ValueError(f"{name}: its value, for pixels from outside the image, is no target: {error}") from error


def _are_labels(loss: Any, targets: Array, ignored: int | None = None) -> bool:
    """Whether numbers are labels, as masks of 0.0, 1.0 and the ignored one are, and one-hot rows; others are images."""
    if not getattr(loss, "classes", False):
        return False
    if _is_mask(targets, ignored).all():
        return True
    return hasattr(loss, "labels") and loss.labels(targets[:1], targets.shape[1:]).dtype.kind != "f"


def _is_mask(targets: Array, ignored: int | None = None) -> Array:
    """Returns for each example whether all of its numbers are 0, 1 or the ignored one."""
    binary = (targets == 0) | (targets == 1) | (targets == (0 if ignored is None else ignored))
    return np.asarray(binary.reshape(len(targets), -1).all(axis=1))


# ---- moving


def moves(network: Network, loss: Any, targets: Array) -> bool:
    """Whether a training step moves these targets; raises as `moved`."""
    return bool(_chain(network, loss, targets))


def moved(network: Network, loss: Any, targets: Array, draw: Draw, num_threads: int | None = None) -> Array:
    """Returns targets, moved as these examples are in training; themselves if nothing moves them.

    Raises TypeError or ValueError, naming the layer, if that is impossible.
    """
    movers = _chain(network, loss, targets)
    return _through(movers, loss, targets, draw, num_threads) if movers else targets


def at_rest(network: Network, loss: Any, targets: Array, num_threads: int | None = None) -> Array:
    """Returns targets of what is seen in inference: of a RandomCrop the centre; themselves without one."""
    movers = [one for one in movers_of(network) if not one.in_branch and _crops(one.layer)]
    if not movers or _size_as(targets.shape[1:], movers[0].layer.in_shape, targets.dtype.kind in "iub") is None:
        return targets
    _check_cropped(movers, network.out_shape)
    return _through(movers, loss, targets, None, num_threads)


def _through(movers: Sequence[Mover], loss: Any, y: Array, draw: Draw | None, num_threads: int | None) -> Array:
    """Returns targets as they are after these layers; draw: None in inference."""
    shape, (height, width) = y.shape[1:], movers[0].layer.in_shape[1:]
    lead = shape[:-2] if shape[-2:] == (height, width) else shape[:-1]  # of a signal, whose height of 1 may be missing
    tail = movers[-1].layer.out_shape[1:] if len(shape) - len(lead) == 2 else movers[-1].layer.out_shape[2:]
    channels = int(np.prod(lead))

    def run(values: Array, nearest: bool, rows: Index) -> Array:
        images = np.ascontiguousarray(values).reshape(len(values), channels, height, width)
        for layer, name, _ in movers:
            images = _forward(layer, name, images, nearest, draw, rows, num_threads)
        return images.reshape(len(images), *lead, *tail)

    ignored = getattr(loss, "ignore_index", None)
    if y.dtype.kind in "iub" or ignored is not None:
        return _moved_labels(y, ignored, movers[0].name, run)
    numbers = y if y.dtype in (np.float32, np.float64) else y.astype(np.float64)
    may_be_masks = getattr(loss, "classes", False) and not any(mover.layer.shows_outside for mover in movers)
    masks = _is_mask(numbers) if may_be_masks else np.zeros(len(y), bool)
    out = np.empty((len(y), *lead, *tail), y.dtype)
    for nearest in (False, True):
        rows = np.flatnonzero(masks == nearest)
        if len(rows):
            out[rows] = run(numbers[rows], nearest, rows)
    return out


def _moved_labels(y: Array, ignored: int | None, name: str, run: Any) -> Array:
    """Returns labels after `run`, for which 0 stands for pixels from outside and for ignored ones."""
    known = np.ones(y.shape, bool) if ignored is None else y != ignored
    least = float(y.min(initial=0, where=known))
    codes = run(np.where(known, y.astype(np.float64) - (least - 1), 0.0), True, np.arange(len(y)))
    if not (codes == np.rint(codes)).all():
        raise ValueError(f"{name}: expected labels of pixels to be copied by the layers that move pixels, got others")
    if ignored is None:
        if not codes.all():
            raise ValueError(f"{name}: expected labels for all pixels, got some from outside; take ignore_index=")
        return np.asarray((codes + (least - 1)).astype(y.dtype))
    fits = y.dtype.kind == "f" or np.can_cast(np.min_scalar_type(ignored), y.dtype)
    kind = y.dtype if fits else np.dtype(np.int64)
    return np.where(codes == 0, kind.type(ignored), (codes + (least - 1)).astype(kind))


def _forward(
    layer: Layer, name: str, x: Array, nearest: bool, draw: Draw | None, rows: Index, num_threads: int | None
) -> Array:
    """Returns images x (n, c, h, w) after one layer; rows: their positions among the examples of the draw."""
    if layer.native:
        op = layer.target_op(x.shape[1], x.dtype.name, nearest)
        out = np.empty((len(x), *op.out_shape), x.dtype)
        chance = {} if draw is None else {"seed": draw.seed, "step": draw.step, "example_ids": draw.ids[rows]}
        forward_batch(op, x, out, num_threads=num_threads, training=draw is not None, **chance)
        return out
    full = np.zeros((len(x) if draw is None else len(draw.ids), *x.shape[1:]), x.dtype)
    full[rows] = x  # a layer in NumPy draws for all of a micro-batch
    full.flags.writeable = False
    if draw is not None:
        layer.begin_step(draw.step, draw.seed, draw.part)
    result = layer.forward(full, draw is not None)
    expected = (len(full), x.shape[1], *layer.out_shape[1:])
    if not isinstance(result, np.ndarray) or result.shape != expected:
        got = getattr(result, "shape", type(result).__name__)
        raise ValueError(f"{name}: expected forward to return targets of shape {expected}, got {got}")
    return np.ascontiguousarray(result[rows], x.dtype)
