"""curves: losses, metrics and learning rates over the epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.callbacks.monitor import LOWER_IS_BETTER
from minidl.plots.figures import BLUE, GREY, SMALL, VERMILLION, figure_size, prepare_figure
from minidl.utils.arrays import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

Series = Mapping[str, Sequence[float]]

PANEL = (3.45, 2.3)  # inches: width of two panels or fewer, height
SHAPE = 4 / 3  # width by height of a panel, as far as possible
MAX_DOTS = 25  # epochs; more are drawn without dots
KINDS = (("", "training", BLUE, "-"), ("val_", "validation", VERMILLION, "--"))
BEST = "best validation"


def curves(history: Series, names: Sequence[str] | None, figure: Figure | SubFigure | None) -> Figure:
    """Returns the figure of `History.plot`."""
    panels = _panels(history, names)
    width, height = figure_size(figure)
    n = len(panels)
    columns = (n if n < 4 else 2 if n == 4 else 3) if height is None else _columns(n, width / height)
    rows = -(-n // columns)
    drawn: Figure = prepare_figure(figure, min(width, PANEL[0] * columns), 0.35 + PANEL[1] * rows)
    for i, name in enumerate(panels):
        axes = drawn.add_subplot(rows, columns, i + 1)
        _panel(axes, history, name)
        _style(axes, "learning rate" if name == "lr" else name.replace("_", " "))
    handles = {line.get_label(): line for axes in drawn.axes for line in axes.lines}
    labels = [label for label in (KINDS[0][1], KINDS[1][1], BEST) if label in handles]
    if len(labels) > 1:
        lines = [handles[label] for label in labels]
        drawn.legend(lines, labels, loc="outside upper center", ncols=3, columnspacing=1, frameon=False, fontsize=SMALL)
    return drawn


def _panels(history: Series, names: Sequence[str] | None) -> list[str]:
    """Returns the names of the panels. Raises TypeError or ValueError."""
    if len({len(values) for values in history.values()}) > 1:
        lengths = ", ".join(f"{len(values)} of {name}" for name, values in history.items())
        raise ValueError(f"history: expected lists with an entry for each epoch, got {lengths}")
    if not any(history.values()):
        raise ValueError("history: expected at least one epoch, got none: fit first")
    known = list(dict.fromkeys(name.removeprefix("val_") for name in history if name != "epoch"))
    if names is None:
        found = [name for name in known if name not in ("lr", "images_per_second")]
        return found + ["lr"] * (len(set(history.get("lr", ()))) > 1)
    if isinstance(names, str):
        raise TypeError(f"names: expected a list such as [{names!r}], got {names!r}")
    names = list(names)
    if not set(names) <= set(known) or not names:
        raise ValueError(f"names: expected some of {known}, got {list(names)}")
    return list(dict.fromkeys(names))


def _columns(panels: int, shape: float) -> int:
    """Returns the number of columns with well-shaped panels and few empty places; shape: width by height of all."""

    def distance(columns: int) -> float:
        rows = -(-panels // columns)
        return abs(math.log(shape / columns * rows / SHAPE)) + 0.2 * (rows * columns - panels)

    return min(range(1, panels + 1), key=distance)


def _panel(axes: Any, history: Series, name: str) -> None:
    """Draws the lines of one name, and a ring at the best validation value."""
    count = len(next(iter(history.values())))
    epochs = np.asarray(history.get("epoch", range(count)), np.int64) + 1
    for prefix, label, colour, style in KINDS:
        if prefix + name in history:
            values = _finite(history[prefix + name])
            label = "_" if name in ("lr", "images_per_second") else label
            (line,) = axes.plot(epochs, values, style, color=colour, linewidth=1.2, label=label)
            if dots := _dots(values):
                line.set(marker="o", markersize=2.5, markevery=dots)
    best = _best(name, _finite(history.get(f"val_{name}", ())))
    if best is not None:
        value = history[f"val_{name}"][best]
        ring = {"marker": "o", "markersize": 8, "markerfacecolor": "none", "markeredgecolor": "black"}
        axes.plot(epochs[best], value, linestyle="none", label=BEST, clip_on=False, **ring)
        axes.set_title(f"best {value:.4g}, epoch {epochs[best]}", fontsize=SMALL, color=GREY)
    if not any(np.isfinite(line.get_ydata()).any() for line in axes.lines):
        axes.text(0.5, 0.5, "no finite numbers", transform=axes.transAxes, ha="center", fontsize=SMALL, color=GREY)
    if name == "lr" and 0 < 10 * min(history["lr"]) <= max(history["lr"]):
        axes.set_yscale("log")
    _ticks(axes, int(epochs[0]), int(epochs[-1]))


def _best(name: str, values: Array) -> int | None:
    """Returns the index of the best validation value; None without one, or for a metric without a known direction."""
    if name not in LOWER_IS_BETTER or not np.isfinite(values).any():
        return None
    return int(np.nanargmin(values) if LOWER_IS_BETTER[name] else np.nanargmax(values))


def _finite(values: Sequence[float]) -> Array:
    array = np.array(values, np.float64)
    array[~np.isfinite(array)] = np.nan
    return array


def _dots(values: Array) -> list[int]:
    """Returns the indices of epochs with a dot: all of a few, else those without neighbours, which no line shows."""
    there = np.isfinite(values)
    padded = np.pad(there, 1)
    alone = there & ~padded[:-2] & ~padded[2:]
    return [int(place) for place in np.flatnonzero(there if len(values) <= MAX_DOTS else alone)]


def _ticks(axes: Any, first: int, last: int) -> None:
    """Sets ticks at the first epoch and at round ones, or at every other epoch."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True).tick_values(first, max(last, first + 1))
    margin = 0.04 * (last - first) or 0.5
    axes.set_xlim(first - margin, last + margin)
    rounded = sorted({max(int(tick), first) for tick in ticks if tick <= last})
    axes.set_xticks(range(first, last + 1, 2) if ticks[1] - ticks[0] == 2 else rounded)


def _style(axes: Any, name: str) -> None:
    """Sets labels and removes lines that are not needed."""
    axes.set_xlabel("epoch", fontsize=SMALL)
    axes.set_ylabel(name, fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    axes.yaxis.get_offset_text().set_fontsize(SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
