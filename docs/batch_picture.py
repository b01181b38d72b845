"""Draws the picture of the start page, docs/images/batch.svg, and the card of links to the site, docs/_static/card.png.

Run it with: python docs/batch_picture.py (seconds; needs matplotlib). Three digits go forward and backward through a
small net, a row for each; the last column has the gradients of a filter, and their mean. minidl computes all numbers.
"""

from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.utils.arrays import Array

DOCS = Path(__file__).parent
SHOWN, CHANNEL = [42, 55, 23], 1  # examples of the test set, a channel of the convolution
TEXT, NOTE, LINE, FRAME = "#1f2328", "#57606a", "#8c959f", "#d0d7de"
BLUE, RED, ORANGE = "#2166ac", "#b2182b", "#e69f00"
INK = LinearSegmentedColormap.from_list("ink", ["#ffffff", TEXT])
VALUES = LinearSegmentedColormap.from_list("values", ["#f6f8fa", "#92c5de", BLUE])
SIGNED = matplotlib.colormaps["RdBu_r"]
FORWARD = ["image", "convolution,\nReLU", "max-pool", "scores"]
BACKWARD = ["of the\nscores", "of the pool’s\noutput", "of its input:\nat the maxima", "of the filter"]
WIDTH, HEIGHT, CELL, STEP = 760, 408, 60, 76  # points: the picture, a panel, from row to row
LEFT = [24, 112, 200, 288, 402, 490, 578, 676]  # of the columns
TOP = 90  # of the rows
SAID = [
    "A row is an example: rows never mix. Each maximum (orange) takes the",
    "gradient of its own window, in its own example.",
    "Only gradients of parameters are added, in one fixed order, and divided",
    "once. So the bits are the same for any number of threads.",
]


def compute() -> dict[str, Array]:
    """Returns what the net computes of the examples shown, by name; an array has a row for each."""
    data = load_digits()
    layers = [Rescale(1 / 16), Conv2D(4, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(10)]
    model = Sequential(layers, input_shape=(1, 8, 8), seed=0, dtype="float64")
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01, momentum=0.9))
    trainer.fit(data.X_train, data.y_train, epochs=1, verbose=0)
    X, y = data.X_test[SHOWN], data.y_test[SHOWN]
    maps, pooled = model[:3].predict(X), model[:4].predict(X)
    dscores = model.predict_proba(X) - np.eye(10)[y]
    return {
        "image": X[:, 0],
        "maps": maps[:, CHANNEL],
        "pooled": pooled[:, CHANNEL],
        "scores": model.predict(X),
        "dscores": dscores,
        "dpooled": backward(model[4:], pooled, dscores)[:, CHANNEL],
        "dmaps": backward(model[3:], maps, dscores)[:, CHANNEL],
        "grads": trainer.per_example_gradients(X, y)["1.weight"][:, CHANNEL, 0],
    }


def backward(model: Sequential, X: Array, dy: Array) -> Array:
    """Returns the gradient with respect to X."""
    model.forward(X, training=True)
    return model.backward(dy)


def draw(axes: Axes, title: tuple[str, str] | None = None) -> None:
    """Draws the picture into axes in points, with y downwards; a title replaces the explanation."""
    of = compute()
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0), xticks=[], yticks=[], frame_on=False)
    for first, last, colour, word in ((0, 3, BLUE, "forward"), (4, 7, RED, "backward: gradients")):
        arrow(axes, LEFT[first], LEFT[last] + CELL, 40, colour)
        axes.text(LEFT[first], 30, f"{word}, example by example", color=colour, fontsize=12, weight="bold")
    for left, name in zip(LEFT, FORWARD + BACKWARD, strict=True):
        axes.text(left + CELL / 2, 65, name, color=NOTE, fontsize=10, ha="center", va="center", linespacing=1.1)
    largest = {name: np.abs(values).max() for name, values in of.items()}
    for row in range(len(SHOWN)):
        top = TOP + row * STEP
        panel(axes, LEFT[0], top, of["image"][row], INK, 0, 16)
        panel(axes, LEFT[1], top, of["maps"][row], VALUES, 0, largest["maps"])
        panel(axes, LEFT[2], top, of["pooled"][row], VALUES, 0, largest["pooled"])
        bars(axes, LEFT[3], top, of["scores"][row], largest["scores"], BLUE, BLUE)
        bars(axes, LEFT[4], top, of["dscores"][row], largest["dscores"], RED, BLUE)
        panel(axes, LEFT[5], top, of["dpooled"][row], SIGNED, -largest["dpooled"], largest["dpooled"])
        panel(axes, LEFT[6], top, of["dmaps"][row], SIGNED, -largest["dmaps"], largest["dmaps"])
        panel(axes, LEFT[7], top, of["grads"][row], SIGNED, -largest["grads"], largest["grads"])
        for at in (1, 6):
            winners(axes, LEFT[at], top, of["maps"][row])
        for before, after in pairwise(LEFT):
            colour = BLUE if before < LEFT[3] else RED if before > LEFT[3] else NOTE
            arrow(axes, before + CELL + 6, after - 6, top + CELL / 2, colour)
        axes.text((LEFT[3] + CELL + LEFT[4]) / 2, top + CELL / 2 - 6, "loss", color=NOTE, fontsize=9, ha="center")
        if row:
            axes.text(LEFT[7] + CELL / 2, top - 8, "+", color=TEXT, fontsize=12, ha="center", va="center")
    summed(axes, of["grads"].mean(axis=0), largest["grads"])
    if title:
        axes.text(LEFT[0], 360, title[0], color=TEXT, fontsize=34, weight="bold", va="center")
        axes.text(LEFT[0], 390, title[1], color=NOTE, fontsize=14, va="center")
    else:
        for line, words in enumerate(SAID):
            axes.text(LEFT[0], 336 + 17 * line, words, color=TEXT, fontsize=10, va="center")


def summed(axes: Axes, mean: Array, largest: float) -> None:
    """Draws the mean of the last column, below it."""
    below = TOP + len(SHOWN) * STEP - 16
    axes.annotate(
        "",
        (LEFT[7] + CELL / 2, below + 24),
        (LEFT[7] + CELL / 2, below + 4),
        arrowprops={"arrowstyle": "->", "color": TEXT},
    )
    axes.text(LEFT[7] + CELL / 2 - 8, below + 14, f"÷ {len(SHOWN)}", color=TEXT, fontsize=10, ha="right", va="center")
    panel(axes, LEFT[7], below + 28, mean, SIGNED, -largest, largest, TEXT)
    axes.text(
        LEFT[7] - 10,
        below + 28 + CELL / 2,
        "the mean:\nfor one step",
        color=TEXT,
        fontsize=10,
        ha="right",
        va="center",
    )


def arrow(axes: Axes, start: float, end: float, y: float, colour: str) -> None:
    """Draws an arrow to the right."""
    axes.annotate(
        "", (end, y), (start, y), arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0}
    )


def panel(
    axes: Axes, left: float, top: float, values: Array, colours: Colormap, low: float, high: float, frame: str = LINE
) -> None:
    """Draws an array as a square of colours."""
    extent = (left, left + CELL, top + CELL, top)
    sharp = np.kron(values, np.ones((8, 8)))  # also where a viewer smooths images
    axes.imshow(sharp, cmap=colours, vmin=low, vmax=high, extent=extent, interpolation="none", aspect="auto")
    axes.add_patch(Rectangle((left, top), CELL, CELL, fill=False, edgecolor=frame, linewidth=0.8))
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))


def bars(axes: Axes, left: float, top: float, values: Array, largest: float, positive: str, negative: str) -> None:
    """Draws a vector as bars around a line."""
    axes.add_patch(Rectangle((left, top), CELL, CELL, facecolor="#ffffff", edgecolor=LINE, linewidth=0.8))
    width, middle = CELL / len(values), top + CELL / 2
    for i, value in enumerate(values):
        height = value / largest * (CELL / 2 - 3)
        box = (left + width * i + 1, middle - max(height, 0))
        axes.add_patch(Rectangle(box, width - 2, abs(height), color=positive if value > 0 else negative, linewidth=0))
    axes.plot([left + 1, left + CELL - 1], [middle, middle], color=LINE, linewidth=0.6)


def winners(axes: Axes, left: float, top: float, values: Array) -> None:
    """Frames the first maximum of each window of 2x2 pixels."""
    size = CELL / len(values)
    for row in range(0, len(values), 2):
        for column in range(0, len(values), 2):
            down, right = divmod(int(values[row : row + 2, column : column + 2].argmax()), 2)
            corner = left + (column + right) * size + 0.5, top + (row + down) * size + 0.5
            axes.add_patch(Rectangle(corner, size - 1, size - 1, fill=False, edgecolor=ORANGE, linewidth=1.1))


def main() -> None:
    """Writes both pictures."""
    matplotlib.rcParams |= {"svg.hashsalt": "batch", "svg.fonttype": "path", "font.family": "DejaVu Sans"}
    figure = Figure((WIDTH / 72, HEIGHT / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    edge = FancyBboxPatch((8, 8), WIDTH - 16, HEIGHT - 16, boxstyle="round,pad=7", fc="#ffffff", ec=FRAME, zorder=-1)
    axes.add_patch(edge)
    draw(axes)
    figure.savefig(DOCS / "images" / "batch.svg", metadata={"Date": None}, transparent=True)
    card = Figure((12, 6.3), facecolor="#ffffff")
    draw(card.add_axes((0.025, 0.02, 0.95, 0.97)), ("minidl", "A small deep learning framework for CPUs"))
    card.savefig(DOCS / "_static" / "card.png", dpi=100)


if __name__ == "__main__":
    main()
