"""Metrics of labels: of one for each example or pixel, or of several independent ones."""

from __future__ import annotations

import numpy as np

from minidl.metrics.counts import (
    Counting,
    Counts,
    by_class,
    by_class_or_label,
    by_label,
    by_row,
    f1_of,
    fraction_of_rows,
    fraction_right,
    iou_of,
    macro,
    of_label_1,
    of_regions,
    one_label,
    precision_of,
    recall_of,
)
from minidl.utils.arrays import Array
from minidl.utils.constructors import constructor_repr, readonly_argument
from minidl.utils.validation import check_int

ACCURACY = Counting(by_class, fraction_right)
PRECISION = Counting(by_class, of_label_1(precision_of))
RECALL = Counting(by_class, of_label_1(recall_of))
F1 = Counting(by_class, of_label_1(f1_of))
PRECISION_MACRO = Counting(by_class_or_label, macro(precision_of))
RECALL_MACRO = Counting(by_class_or_label, macro(recall_of))
F1_MACRO = Counting(by_class_or_label, macro(f1_of))
IOU = Counting(by_class_or_label, of_regions(iou_of))
DICE = Counting(by_class_or_label, of_regions(f1_of))
BINARY_ACCURACY = Counting(by_label, fraction_right)
SUBSET_ACCURACY = Counting(by_row, fraction_of_rows)


def accuracy(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of examples (or pixels) whose label is predicted.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels, from 0. With a single score, 0 or 1.
    scores : array-like of shape (n, classes) or (n, classes, h, w)
        Outputs of a model. The predicted label is that of the highest score, the first of equal ones; 1 for a single
        score above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss, for all metrics of minidl.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import accuracy
    >>> accuracy([0, 1], [[2.0, 1.0], [3.0, 0.0]])
    0.5
    """
    return ACCURACY.of("accuracy", y, scores, ignore_index)


class TopKAccuracy:
    """The fraction of examples (or pixels) whose label has one of the k highest scores; k=1 is `accuracy`.

    Of equal scores, the first is the higher one. The history calls it "top_5_accuracy" (for k=5), which is also a name
    for `TopKAccuracy(5)`. It is a function of `y` and `scores`, whose shapes are those of `accuracy`, with at least two
    classes.

    Parameters
    ----------
    k : int, default 5
        Number of scores.

    Raises
    ------
    TypeError, ValueError
        If k is not an integer of at least 1; in a call, if shapes or labels are invalid.

    Examples
    --------
    >>> from minidl.metrics import TopKAccuracy
    >>> TopKAccuracy(2)([1, 2], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    0.5
    """

    def __init__(self, k: int = 5) -> None:
        self._k = check_int("k", k)

    k = readonly_argument("k")

    @property
    def name(self) -> str:
        """Its name in the history, such as "top_5_accuracy"."""
        return f"top_{self.k}_accuracy"

    def __repr__(self) -> str:
        return constructor_repr(self)

    @property
    def counting(self) -> Counting:
        """How it is made of counts: (2,), of right labels and all."""
        return Counting(self._count, fraction_of_rows)

    def __call__(self, y: Array, scores: Array, ignore_index: int | None = None) -> float:
        """Returns the metric; raises ValueError for labels outside the classes."""
        return self.counting.of(self.name, y, scores, ignore_index)

    def _count(self, name: str, y: Array, scores: Array, ignore_index: int | None) -> Counts:
        labels, _, _ = one_label(name, y, scores)
        scores = np.moveaxis(np.asarray(scores), 1, -1)
        scores = scores.reshape(-1, scores.shape[-1])
        if ignore_index is not None:
            scores, labels = scores[labels != ignore_index], labels[labels != ignore_index]
        classes = scores.shape[1]
        if classes < 2 or not np.isin(labels, np.arange(classes)).all():
            got = "a single score" if classes < 2 else "other labels"
            raise ValueError(f"{name}: expected scores of at least two classes, and labels of them, got {got}")
        columns = labels.astype(np.int64)[:, np.newaxis]
        own = np.take_along_axis(scores, columns, axis=1)
        before = (scores > own) | ((scores == own) & (np.arange(classes) < columns))
        right = (before.sum(axis=1) < self.k) & ~np.isnan(own[:, 0])
        return np.array([right.sum(), len(labels)], np.int64)


def precision(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of right ones among the predictions of label 1, of two.

    It is sklearn.metrics.precision_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1), (n, 2), (n, 1, h, w) or (n, 2, h, w)
        Outputs of a model: a single score, above 0 for label 1, or one for each label.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1, and 0 if label 1 is never predicted; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import precision
    >>> round(precision([0, 0, 1, 1], [[-1.0], [1.0], [1.0], [1.0]]), 3)
    0.667
    """
    return PRECISION.of("precision", y, scores, ignore_index)


def recall(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of the examples of label 1, of two, that are predicted.

    It is sklearn.metrics.recall_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1), (n, 2), (n, 1, h, w) or (n, 2, h, w)
        Outputs of a model: a single score, above 0 for label 1, or one for each label.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1, and 0 if there is no label 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import recall
    >>> recall([0, 0, 1, 1], [[-1.0], [1.0], [1.0], [1.0]])
    1.0
    """
    return RECALL.of("recall", y, scores, ignore_index)


def f1(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the harmonic mean of precision and recall of label 1, of two.

    It is sklearn.metrics.f1_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1), (n, 2), (n, 1, h, w) or (n, 2, h, w)
        Outputs of a model: a single score, above 0 for label 1, or one for each label.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1, and 0 if both are 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import f1
    >>> round(f1([0, 0, 1, 1], [[-1.0], [1.0], [1.0], [1.0]]), 3)
    0.8
    """
    return F1.of("f1", y, scores, ignore_index)


def precision_macro(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the precision of each label, averaged over the labels in `y` or predicted, or over independent labels.

    It is sklearn.metrics.precision_score with `average="macro"`. A label counts as 0 where its precision is not
    defined.

    Parameters
    ----------
    y : array-like of shape (n,), (n, h, w) or (n, labels)
        One label for each example or pixel; or 0 and 1 for each of several independent labels, in the shape of
        `scores`.
    scores : array-like of shape (n, classes), (n, classes, h, w) or (n, labels)
        Outputs of a model: the highest score predicts the label. An independent label is predicted if its score is
        above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.metrics import precision_macro
    >>> round(precision_macro([0, 0, 1, 2], np.eye(3)[[0, 1, 1, 2]]), 3)
    0.833
    """
    return PRECISION_MACRO.of("precision_macro", y, scores, ignore_index)


def recall_macro(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the recall of each label, averaged over the labels in `y` or predicted, or over independent labels.

    It is sklearn.metrics.recall_score with `average="macro"`. A label counts as 0 where its recall is not defined.

    Parameters
    ----------
    y : array-like of shape (n,), (n, h, w) or (n, labels)
        One label for each example or pixel; or 0 and 1 for each of several independent labels, in the shape of
        `scores`.
    scores : array-like of shape (n, classes), (n, classes, h, w) or (n, labels)
        Outputs of a model: the highest score predicts the label. An independent label is predicted if its score is
        above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.metrics import recall_macro
    >>> round(recall_macro([0, 0, 1, 2], np.eye(3)[[0, 1, 1, 2]]), 3)
    0.833
    """
    return RECALL_MACRO.of("recall_macro", y, scores, ignore_index)


def f1_macro(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the F1 of each label, averaged over the labels in `y` or predicted, or over independent labels.

    It is sklearn.metrics.f1_score with `average="macro"`. A label counts as 0 where its F1 is not defined.

    Parameters
    ----------
    y : array-like of shape (n,), (n, h, w) or (n, labels)
        One label for each example or pixel; or 0 and 1 for each of several independent labels, in the shape of
        `scores`.
    scores : array-like of shape (n, classes), (n, classes, h, w) or (n, labels)
        Outputs of a model: the highest score predicts the label. An independent label is predicted if its score is
        above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.metrics import f1_macro
    >>> round(f1_macro([0, 0, 1, 2], np.eye(3)[[0, 1, 1, 2]]), 3)
    0.778
    """
    return F1_MACRO.of("f1_macro", y, scores, ignore_index)


def iou(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the intersection over union (Jaccard index) of regions, averaged over the classes in `y` or predicted.

    Pixels of all images are counted together. It is sklearn.metrics.jaccard_score with `average="macro"`, of all
    pixels. Of a single score, or of independent labels, it is that of the label 1 (the foreground).

    Parameters
    ----------
    y : array-like of shape (n, h, w), or of the shape of `scores`
        One label for each pixel; or 0 and 1 for each score.
    scores : array-like of shape (n, classes, h, w)
        Outputs of a model: the highest score predicts the label; a single or an independent one, label 1 above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN if there is no class to average over, as without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    Of two images of two pixels, a single score for each:

    >>> from minidl.metrics import iou
    >>> iou([[0, 1], [1, 1]], [[[-1.0, 2.0]], [[3.0, -1.0]]])
    0.6666666666666666
    """
    return IOU.of("iou", y, scores, ignore_index)


def dice(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the Dice coefficient of regions, `2 |A and B| / (|A| + |B|)`, averaged as `iou`.

    It is the F1 of the pixels of a class. With several classes it is `f1_macro`, except that classes that are neither
    in `y` nor predicted are always left out; of a single score it is `f1`.

    Parameters
    ----------
    y : array-like of shape (n, h, w), or of the shape of `scores`
        One label for each pixel; or 0 and 1 for each score.
    scores : array-like of shape (n, classes, h, w)
        Outputs of a model: the highest score predicts the label; a single or an independent one, label 1 above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN if there is no class to average over, as without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import dice
    >>> dice([[0, 1], [1, 1]], [[[-1.0, 2.0]], [[3.0, -1.0]]])
    0.8
    """
    return DICE.of("dice", y, scores, ignore_index)


def binary_accuracy(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of right labels, all rows together, as in Keras.

    Parameters
    ----------
    y : array-like of the shape of `scores`
        0 or 1 for each score.
    scores : array-like of shape (n, labels), or with more axes
        Outputs of a model. A label is predicted if its score is above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import binary_accuracy
    >>> binary_accuracy([[1, 0], [1, 1]], [[2.0, -1.0], [3.0, -4.0]])
    0.75
    """
    return BINARY_ACCURACY.of("binary_accuracy", y, scores, ignore_index)


def subset_accuracy(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of rows with all labels right, as in scikit-learn.

    Parameters
    ----------
    y : array-like of the shape of `scores`
        0 or 1 for each score.
    scores : array-like of shape (n, labels), or with more axes
        Outputs of a model. A label is predicted if its score is above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import subset_accuracy
    >>> subset_accuracy([[1, 0], [1, 1]], [[2.0, -1.0], [3.0, -4.0]])
    0.5
    """
    return SUBSET_ACCURACY.of("subset_accuracy", y, scores, ignore_index)
