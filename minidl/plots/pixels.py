"""Labels of examples and of pixels, and what a net for segmentation predicts for them, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.engine.probabilities import link_of
from minidl.losses.label_loss import check_ignored
from minidl.sequential import Sequential
from minidl.utils.arrays import REAL, Array, as_array, check_array
from minidl.utils.data import ArraySource, Index
from minidl.utils.validation import Shape

IGNORED = -1  # in place of a label that is left out
CHUNK = 2**22  # scores that are computed at a time


@dataclass(frozen=True)
class Pixels:
    """Examples of a net with outputs (classes, *positions), and their labels; a single score stands for two classes."""

    network: Sequential
    examples: ArraySource
    given: Array | None  # the labels (n, *positions), as they were passed
    ignore_index: int | None

    @classmethod
    def of(cls, network: Sequential, X: ArrayLike, y: ArrayLike | None, ignore_index: int | None) -> Pixels:
        """Checks shapes; raises TypeError or ValueError."""
        link_of("model", network.layers, network.output_shape[:1], None)  # refuses outputs that are not scores
        examples = ArraySource(X, network.input_shape, network.dtype)
        if not len(examples):
            raise ValueError("X: expected at least one example, got none")
        given = None if y is None else as_array(y, "y")
        shape = (len(examples), *network.output_shape[1:])
        if given is not None and network.output_shape[0] == 1 and given.shape == (len(examples), *network.output_shape):
            given = given[:, 0]
        if given is not None and given.shape != shape:
            raise ValueError(f"y: expected one label per pixel, shape {shape}, got {given.shape}")
        return cls(network, examples, given, check_ignored(ignore_index))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return max(2, int(self.network.output_shape[0]))

    def chunks(self) -> Iterator[Index]:
        """Yields the rows of all examples, a few at a time."""
        step = max(1, CHUNK // math.prod(self.network.output_shape))
        for start in range(0, len(self.examples), step):
            yield np.arange(start, min(start + step, len(self.examples)))

    def scores(self, rows: Index) -> Array:
        """Returns the scores (m, *output_shape) of some examples."""
        return self.network.predict(self.examples.gather_copy(rows))

    def labels(self, rows: Index) -> Index:
        """Returns the labels (m, *positions) of some examples, IGNORED where left out; raises ValueError for others."""
        assert self.given is not None
        labels = np.asarray(self.given[rows])
        counts = np.ones(labels.shape, bool) if self.ignore_index is None else labels != self.ignore_index
        known = (labels >= 0) & (labels < self.classes) & (labels == np.floor(labels))
        if not (known | ~counts).all():
            got = labels[counts & ~known].flat[0]
            hint = "" if self.ignore_index is not None else f": ignore_index={got} leaves out the pixels of that label"
            if got == 255 and np.isin(self.given, (0, 255)).all():
                hint = ": a mask of 0 and 255? perhaps y // 255"
            raise ValueError(f"y: expected labels from 0 to {self.classes - 1}, got {got}{hint}")
        return np.where(counts, labels.astype(np.int64), IGNORED)


def predicted_labels(scores: Array) -> NDArray[Any]:
    """Returns the label of each example or pixel: that of the highest score, or whether a single one is above 0."""
    return scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)


def count_pairs(labels: Array, predicted: Array, classes: int) -> NDArray[np.int64]:
    """Returns how often each class (row) is predicted as each other (column); labels below 0 do not count."""
    known = labels >= 0
    pairs = labels[known] * classes + predicted[known]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def count_pixels(pixels: Pixels) -> NDArray[np.int64]:
    """Returns the counts of `count_pairs` for the pixels of all examples."""
    classes, total = pixels.classes, np.zeros((pixels.classes, pixels.classes), np.int64)
    for rows in pixels.chunks():
        total += count_pairs(pixels.labels(rows), predicted_labels(pixels.scores(rows)), classes)
    return total


def is_of_pixels(shape: Shape) -> bool:
    """True for outputs with positions: (classes, h, w), or (classes, length)."""
    return len(shape) > 1


def name_classes(class_names: Sequence[str] | None, classes: Array, network: Sequential | None = None) -> list[str]:
    """Returns a name for each class, on one line: those of the network, or else its label, without names.

    Raises TypeError or ValueError for names that are not a list of as many names.
    """
    if class_names is None and network is not None:
        class_names = network.classes  # type: ignore[assignment]  # ints, too
    if class_names is None:
        return [str(label) for label in classes]
    if isinstance(class_names, str) or not isinstance(class_names, (Sequence, np.ndarray)):
        raise TypeError(f"class_names: expected a list of names, got {class_names!r}")
    if len(class_names) != len(classes):
        raise ValueError(f"class_names: expected {len(classes)} names, got {len(class_names)}")
    return [" ".join(str(name).split()) for name in class_names]


def encode_labels(y: ArrayLike, classes: Array, n: int, ignore_index: int | None = None) -> Array:
    """Returns the class index of each label, IGNORED for one that is left out; raises TypeError or ValueError."""
    labels = as_array(y, "y") if classes.dtype.kind in REAL else check_array(y, "y")
    labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
    if labels.shape != (n,):
        raise ValueError(f"y: expected {n} labels, one for each example of X, got shape {labels.shape}")
    class_index = {label: i for i, label in enumerate(classes.tolist())}
    if ignore_index is not None:
        class_index[ignore_index] = IGNORED
    if unknown := [label for label in labels.tolist() if label not in class_index]:
        raise ValueError(f"y: expected labels of the classes {classes.tolist()}, got {unknown[0]!r}")
    return np.array([class_index[label] for label in labels.tolist()], np.int64)
