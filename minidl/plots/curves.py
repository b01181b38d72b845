"""curves: loss, metrics and learning rate over the epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.callbacks.monitor import LOWER_IS_BETTER, Monitor, known_measure
from minidl.plots.figures import BLUE, GREY, RED, TEXT_POINTS, figure_size, prepare_figure
from minidl.utils.arrays import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

Series = Mapping[str, Sequence[float]]

PANEL_SIZE = (3.45, 2.3)  # inches: width of two panels or fewer, height
PANEL_RATIO = 4 / 3  # preferred width / height of a panel
MAX_DOTTED = 25  # epochs, up to which each value gets a dot
SPLITS = (("", "training", BLUE, "-"), ("val_", "validation", RED, "--"))
RATES = ("lr", "images_per_second")  # without training and validation
BEST_LABEL = "best validation"


def curves(
    history: Series,
    names: Sequence[str] | None,
    figure: Figure | SubFigure | None,
    monitor: str | None = None,
    lower_is_better: bool | None = None,
) -> Figure:
    """Draws the figure that `History.plot` describes."""
    panels = _choose_panels(history, names)
    chosen = _monitored_epoch(history, monitor, lower_is_better)
    best_label = BEST_LABEL if monitor is None else f"best {monitor}"
    split = "val_" if monitor is None or monitor.startswith("val_") else ""
    width, height = figure_size(figure)
    n = len(panels)
    columns = (n if n < 4 else 2 if n == 4 else 3) if height is None else _choose_columns(n, width / height)
    rows = -(-n // columns)
    result: Figure = prepare_figure(figure, min(width, PANEL_SIZE[0] * columns), 0.35 + PANEL_SIZE[1] * rows)
    for i, name in enumerate(panels):
        axes = result.add_subplot(rows, columns, i + 1)
        best = _best_epoch(history, f"val_{name}") if monitor is None else chosen
        ringed = split + name if split + name in history else name
        _draw_panel(axes, history, name, None if name in RATES else best, ringed, best_label)
        _style_axes(axes, "learning rate" if name == "lr" else name.replace("_", " "))
    handles = {line.get_label(): line for axes in result.axes for line in axes.lines}
    labels = [label for label in (SPLITS[0][1], SPLITS[1][1], best_label) if label in handles]
    if len(labels) > 1:
        lines = [handles[label] for label in labels]
        result.legend(
            lines, labels, loc="outside upper center", ncols=3, columnspacing=1, frameon=False, fontsize=TEXT_POINTS
        )
    return result


def _choose_panels(history: Series, names: Sequence[str] | None) -> list[str]:
    """Returns the names of the panels; raises TypeError or ValueError for unknown names or an empty history."""
    if len({len(values) for values in history.values()}) > 1:
        lengths = ", ".join(f"{len(values)} of {name}" for name, values in history.items())
        raise ValueError(f"history: expected lists with an entry for each epoch, got {lengths}")
    if not any(history.values()):
        raise ValueError("history: expected at least one epoch, got none: fit first")
    known = list(dict.fromkeys(name.removeprefix("val_") for name in history if name != "epoch"))
    if names is None:
        selected = [name for name in known if name not in RATES]
        return selected + ["lr"] * (len(set(history.get("lr", ()))) > 1)
    if isinstance(names, str):
        raise TypeError(f"names: expected a list such as [{names!r}], got {names!r}")
    names = list(names)
    if not set(names) <= set(known) or not names:
        raise ValueError(f"names: expected some of {known}, got {list(names)}")
    return list(dict.fromkeys(names))


def _choose_columns(n_panels: int, ratio: float) -> int:
    """Returns the number of columns for well-shaped panels and few empty cells. ratio: width / height of all."""

    def distance(columns: int) -> float:
        rows = -(-n_panels // columns)
        return abs(math.log(ratio / columns * rows / PANEL_RATIO)) + 0.2 * (rows * columns - n_panels)

    return min(range(1, n_panels + 1), key=distance)


def _draw_panel(axes: Any, history: Series, name: str, best: int | None, ringed: str, best_label: str) -> None:
    """Draws the lines of one metric, and a ring at the best epoch on one of them."""
    n_epochs = len(next(iter(history.values())))
    epochs = np.asarray(history.get("epoch", range(n_epochs)), np.int64) + 1
    for prefix, label, colour, style in SPLITS:
        if prefix + name in history:
            values = _mask_infinite(history[prefix + name])
            label = "_" if name in RATES else label
            (line,) = axes.plot(epochs, values, style, color=colour, linewidth=1.2, label=label)
            if dots := _dotted_epochs(values):
                line.set(marker="o", markersize=2.5, markevery=dots)
    if best is not None and math.isfinite(value := history[ringed][best]):
        ring = {"marker": "o", "markersize": 8, "markerfacecolor": "none", "markeredgecolor": "black"}
        axes.plot(epochs[best], value, linestyle="none", label=best_label, clip_on=False, **ring)
        word = "best " if best_label in (BEST_LABEL, f"best {ringed}") else ""
        axes.set_title(f"{word}{value:.4g}, epoch {epochs[best]}", fontsize=TEXT_POINTS, color=GREY)
    if not any(np.isfinite(line.get_ydata()).any() for line in axes.lines):
        axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", fontsize=TEXT_POINTS, color=GREY)
    if name == "lr" and 0 < 10 * min(history["lr"]) <= max(history["lr"]):
        axes.set_yscale("log")
    _set_ticks(axes, int(epochs[0]), int(epochs[-1]))


def _monitored_epoch(history: Series, monitor: str | None, lower_is_better: bool | None) -> int | None:
    """Returns the index of the best epoch of a monitored name; None without one, and without finite values."""
    if monitor is None:
        if lower_is_better is not None:
            raise ValueError(f"lower_is_better: expected None without a monitor, got {lower_is_better!r}")
        return None
    watched = Monitor(monitor, lower_is_better)
    measures = [name for name in history if name not in ("epoch", *RATES)]
    watched.check_name(measures, [name.removesuffix("_loss") for name in measures if name.endswith("_loss")])
    return _extreme(history[monitor], watched.lower_is_better)


def _best_epoch(history: Series, name: str) -> int | None:
    """Returns the index of the best value of a name; None without finite values or a known direction."""
    output, known = known_measure(name) or ("", "")
    if not known or name not in history or (output and f"{output}_loss" not in history):
        return None
    return _extreme(history[name], LOWER_IS_BETTER[known])


def _extreme(values: Sequence[float], lowest: bool) -> int | None:
    """Returns the index of the lowest, or else the highest, of the finite values; None without one."""
    finite = _mask_infinite(values)
    if not np.isfinite(finite).any():
        return None
    return int(np.nanargmin(finite) if lowest else np.nanargmax(finite))


def _mask_infinite(values: Sequence[float]) -> Array:
    """Returns float64 values with NaN for infinities, which matplotlib leaves out."""
    array = np.array(values, np.float64)
    array[~np.isfinite(array)] = np.nan
    return array


def _dotted_epochs(values: Array) -> list[int]:
    """Returns the indices of epochs with a dot: all of a few; else those without finite neighbours, hence no line."""
    finite = np.isfinite(values)
    padded = np.pad(finite, 1)
    isolated = finite & ~padded[:-2] & ~padded[2:]
    return [int(index) for index in np.flatnonzero(finite if len(values) <= MAX_DOTTED else isolated)]


def _set_ticks(axes: Any, first: int, last: int) -> None:
    """Sets ticks at the first epoch and at round ones, or at every other epoch."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True).tick_values(first, max(last, first + 1))
    margin = 0.04 * (last - first) or 0.5
    axes.set_xlim(first - margin, last + margin)
    rounded = sorted({max(int(tick), first) for tick in ticks if tick <= last})
    axes.set_xticks(range(first, last + 1, 2) if ticks[1] - ticks[0] == 2 else rounded)


def _style_axes(axes: Any, name: str) -> None:
    """Labels the axes, and keeps frame and grid light."""
    axes.set_xlabel("epoch", fontsize=TEXT_POINTS)
    axes.set_ylabel(name, fontsize=TEXT_POINTS)
    axes.tick_params(labelsize=TEXT_POINTS, length=2, which="both")
    axes.yaxis.get_offset_text().set_fontsize(TEXT_POINTS)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.6)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
