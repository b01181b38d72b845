"""Inspection of figures: their texts with positions, their images, and whether all text is readable."""

import itertools
import re

import numpy as np
from matplotlib.figure import Figure
from slow_marks import slow

NOTEBOOK, COLUMN = None, (3.3, 2.8)  # a new figure, and one column of a printed page
SIZES = (COLUMN, *slow([NOTEBOOK]))  # what fits a column nearly always fits a notebook


def figure_of(size):
    """Returns the `figure` argument for a size."""
    return None if size is None else Figure(size, dpi=300)


def all_axes(figure):
    """Returns the axes of a figure, including child axes."""
    return [one for axes in figure.axes for one in (axes, *axes.child_axes)]


def texts(figure):
    """Returns (text, size in points, box in pixels) of all visible text."""
    figure.figure.draw_without_rendering()  # computes the layout
    shown_texts = list(dict.fromkeys([*figure.texts, *([figure._suptitle] if figure._suptitle else [])]))
    for legend in figure.legends:
        shown_texts += legend.get_texts()
    for axes in all_axes(figure):
        shown_texts += [*axes.texts, axes.title, axes._left_title, axes._right_title]
        if axes.axison:
            for i, axis in enumerate((axes.xaxis, axes.yaxis)):
                low, high = sorted(axis.get_view_interval())
                ticks = [*axis.get_majorticklabels(), *axis.get_minorticklabels()]
                shown_texts += [axis.label, axis.offsetText, *(t for t in ticks if low <= t.get_position()[i] <= high)]
    shown = [text for text in shown_texts if text.get_visible() and text.get_text()]
    return [(text.get_text(), text.get_fontsize(), text.get_window_extent()) for text in shown]


def check_readable(figure):
    """Asserts that no text is smaller than 7 points, outside the figure or overlapping other text."""
    shown_texts, bounds = texts(figure), figure.bbox
    assert shown_texts
    slack = 0.01 * figure.dpi
    for text, size, box in shown_texts:
        assert size >= 7, text
        assert box.x0 >= bounds.x0 - slack and box.x1 <= bounds.x1 + slack, f"{text!r} leaves the figure"
        assert box.y0 >= bounds.y0 - slack and box.y1 <= bounds.y1 + slack, f"{text!r} leaves the figure"
    for (text, _, a), (other, _, b) in itertools.combinations(shown_texts, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(across, along) < slack, f"{text!r} and {other!r} overlap"


def images(figure):
    """Returns the image arrays of the figure's single axes, in order."""
    (axes,) = figure.axes
    return [np.asarray(image.get_array()) for image in axes.images]


def numbers(figure):
    """Returns the numeric tile labels, in order."""
    (axes,) = figure.axes
    return [int(text.get_text()) for text in axes.texts if re.fullmatch(r"\d+", text.get_text())]


def title(figure):
    """Returns the title of the figure's single axes on one line."""
    (axes,) = figure.axes
    return axes.get_title(loc="left").replace("\n", " ")
