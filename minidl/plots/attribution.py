"""Attributions: which pixels, times of a signal, or positions of a feature map, the score of a class depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.engine.input_gradient import inference_network, input_gradient
from minidl.engine.layer_paths import layer_paths, resolve_path
from minidl.layers.base import Layer
from minidl.layers.parallel import Block
from minidl.plots.figures import count_label
from minidl.plots.models import compute_outputs, is_convolution, layer_title
from minidl.plots.pictures import as_signals
from minidl.plots.pixels import encode_labels, is_of_pixels, name_classes, predicted_labels
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource, Index
from minidl.utils.optional import needs
from minidl.utils.validation import Shape

Chain = list[tuple[str, Layer]]  # the layers that all data pass through, with their paths, in order


@dataclass(frozen=True)
class ChosenClasses:
    """A class for each example. dscores (n, *outputs): the gradient of its score w.r.t. the outputs of the model."""

    title: str
    names: list[str]
    dscores: Array


def choose_classes(model: Any, network: Sequential, x: Array, y: ArrayLike | None, n: int) -> ChosenClasses:
    """Returns the classes y of the first examples x of n, or those predicted (None); raises TypeError or ValueError.

    For a single score s, class 1 has the score s, and class 0 has -s. The score of a class of pixels is the sum of its
    scores at the pixels that are predicted as it. model: the network, or an estimator of it.
    """
    outputs, *positions = network.output_shape
    if positions and y is None:
        expected = f"expected a class, such as y=1, for a model with outputs {network.output_shape}"
        raise ValueError(f"y: {expected}, whose pixels have classes of their own, got None")
    classes = np.asarray(getattr(model, "classes_", np.arange(max(outputs, 2))))
    if classes.shape != (max(outputs, 2),):
        raise ValueError(f"model: expected a classifier with one label per example, got classes_ {classes.tolist()}")
    if y is None:
        scores, title = network.predict(x), "the predicted class"
        chosen: Index = predicted_labels(scores)
    elif np.ndim(y) == 0:
        chosen, title = encode_labels(np.full(len(x), y), classes, len(x)), f"class {y}"
    else:
        chosen, title = encode_labels(y, classes, n)[: len(x)], "the given class"
    dscores = np.zeros((len(x), outputs), network.dtype)
    if outputs == 1:
        dscores[:, 0] = 2 * chosen - 1
    else:
        dscores[np.arange(len(x)), chosen] = 1
    labels = name_classes(None, classes, None if hasattr(model, "classes_") else network)
    names = [" ".join(labels[k].split()) for k in chosen]
    if positions:
        ones = [1] * len(positions)
        where = predicted_labels(network.predict(x)) == chosen.reshape(-1, *ones)
        dscores = dscores.reshape(-1, outputs, *ones) * where[:, np.newaxis]
        counts = where.reshape(len(x), -1).sum(axis=1).tolist()
        noun = "pixel" if len(positions) > 1 else "time"
        names = [f"{name}, {count_label(count, noun)}" for name, count in zip(names, counts, strict=True)]
    return ChosenClasses(title, names, dscores)


def compute_saliency(network: Sequential, x: Array, dscores: Array, shape: Shape) -> Array:
    """Returns the saliency maps of examples of a shape, absolute gradients: of images the largest of the channels.

    Those of images are (n, h, w), those of signals (n, channels, length).
    """
    gradient = as_signals(np.abs(network.input_gradient(x, dscores=dscores)).reshape(-1, *shape))
    return gradient if gradient.ndim == 3 else np.asarray(gradient.max(axis=1))


def compute_grad_cam(network: Sequential, chain: Chain, x: Array, dscores: Array) -> NDArray[np.float64]:
    """Returns the class activation maps of the last layer of a chain: relu(sum over k of a_k A_k).

    A_k is channel k of its outputs, a_k the mean over the positions of the gradient of the score w.r.t. A_k. Maps are
    (n, h, w), or (n, length) of signals.
    """
    built = network.network
    assert built is not None
    after = main_chain(network.layers)[len(chain) :]
    names = [f"layer {layer_title(name, layer)}" for name, layer in after]
    with network.usage.reading("grad_cam"):
        outputs = compute_outputs(network, tuple(layer for _, layer in chain), x)
        gradient = dscores  # at the outputs of the model
        if after:
            rest = inference_network("grad_cam", [layer for _, layer in after], names, built.parameters)
            source = ArraySource(outputs, outputs.shape[1:], network.dtype, "layer: its outputs")
            gradient = input_gradient(rest, source, lambda scores, here: dscores[here], None)
    weights = gradient.mean(axis=tuple(range(2, gradient.ndim)), dtype=np.float64)
    return np.maximum(np.einsum("nc,nc...->n...", weights, outputs.astype(np.float64)), 0)


def resize(maps: NDArray[np.float64], size: Shape) -> NDArray[np.float64]:
    """Returns maps (n, *old) in another size, interpolated linearly; pixels are areas, as in most image programs."""
    with needs("scipy", "a class activation map"):
        from scipy.ndimage import zoom  # not before it is needed

    factors = (1, *(new / old for new, old in zip(size, maps.shape[1:], strict=True)))
    return np.asarray(zoom(maps, factors, order=1, mode="nearest", grid_mode=True))


def main_chain(layers: Sequence[Layer]) -> Chain:
    """Returns the layers that all data pass through, with their paths: a Block is replaced by its layers."""
    return list(_iterate_chain(layers, ""))


def _iterate_chain(layers: Sequence[Layer], prefix: str) -> Iterator[tuple[str, Layer]]:
    for i, layer in enumerate(layers):
        if isinstance(layer, Block):
            yield from _iterate_chain(layer.layers, f"{prefix}{i}.")
        else:
            yield f"{prefix}{i}", layer


def chain_to(network: Sequential, layer: int | str | None) -> Chain:
    """Returns the layers up to one whose outputs are images, or signals as the inputs. Raises TypeError or ValueError.

    layer: an index or a path; None: the last convolution, with the layers after it that keep the shape of its outputs;
    for outputs of pixels, the last one before that of the scores.
    """
    chain = main_chain(network.layers)
    of_pixels = is_of_pixels(network.output_shape)
    last = _last_convolution(chain, of_pixels) if layer is None else _position(network, chain, layer)
    name, found = chain[last]
    if len(found.out_shape) != len(network.input_shape):
        kind = "images (channels, height, width)" if len(network.input_shape) == 3 else "signals (channels, length)"
        got = f"{layer_title(name, found)} with outputs {found.out_shape}"
        raise ValueError(f"layer: expected one whose outputs are {kind}, as the inputs of the model, got {got}")
    return chain[: last + 1]


def _position(network: Sequential, chain: Chain, layer: int | str) -> int:
    """Returns the index in the chain of a layer, or of the last one in a Block."""
    paths = layer_paths(network.layers)
    name = resolve_path(paths, layer)
    inside = [i for i, (path, _) in enumerate(chain) if path == name or path.startswith(f"{name}.")]
    if not inside:
        container = next(path for path, _ in chain if name.startswith(f"{path}."))
        got = f"{layer_title(name, paths[name][-1])}, which is in a branch of {container}"
        raise ValueError(f"layer: expected one that all data pass through, such as {container!r}, got {got}")
    return inside[-1]


def _last_convolution(chain: Chain, of_pixels: bool) -> int:
    found = [i for i, (_, layer) in enumerate(chain) if any(map(is_convolution, layer.leaves()))]
    end = found.pop() if of_pixels and found else len(chain)
    if not found:
        lacking = "convolution before that of its scores" if of_pixels else "convolution"
        raise ValueError(f"layer: expected an index or a path, since the model has no {lacking}, got None")
    last = found[-1]
    while last + 1 < end and chain[last + 1][1].out_shape == chain[last][1].out_shape:
        last += 1
    return last
