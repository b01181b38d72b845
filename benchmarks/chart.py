"""Draws the results of train_step.py: the speed of each side as a multiple of PyTorch's best mode.

python benchmarks/chart.py results.json chart.png

A point is the ratio of the medians, as in the table. Its bar spans the quartiles of the ratios of the single rounds, in
which all sides were measured in turn.
"""

import json
import statistics
import sys
from pathlib import Path

from nets import ALL_NETS

from minidl.plots.figures import BLUE, GREY, ORANGE, PAGE_WIDTH, PALE_BLUE, TEXT_POINTS, TITLE_POINTS

# Sides, their colours and markers; PyTorch's best mode is the line at 1.
SIDES = {
    "minidl fit": (BLUE, "o"),
    "minidl train_batch": (PALE_BLUE, "s"),
    "scikit-learn": (ORANGE, "^"),
    "JAX jit": (GREY, "D"),
}
COLUMNS, PANEL_HEIGHT = 3, 1.9  # inches
TICKS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32)


def draw(results, path):
    """Draws `results`, as written by train_step.py, into a PNG file; if it cannot, prints why and returns False."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("No chart: matplotlib is not installed.")
        return False
    compared = [m for m in results["measurements"] if m["pytorch_best"]]
    if not compared:
        print("No chart: PyTorch was not measured.")
        return False
    nets = list(dict.fromkeys(m["net"] for m in compared))
    rows = len(nets) // COLUMNS + 1  # a free cell for the legend
    figure = Figure((PAGE_WIDTH, rows * PANEL_HEIGHT), layout="constrained")
    cells = figure.subplots(rows, COLUMNS, sharey=True).flat
    for net, axes in zip(nets, cells, strict=False):
        draw_net([m for m in compared if m["net"] == net], axes)
    for axes in figure.axes[len(nets) :]:
        axes.set_axis_off()
    draw_legend(figure, compared, figure.axes[len(nets)])
    figure.savefig(path, dpi=150)
    return True


def draw_net(measurements, axes):
    """Draws the speeds of one net over the batch sizes, with a line for each side."""
    names = [name for name in SIDES if any(name in m["sides"] for m in measurements)]
    for k, name in enumerate(names):
        color, marker = SIDES[name]
        shift = 0.16 * (k - (len(names) - 1) / 2)
        found = [(i + shift, m) for i, m in enumerate(measurements) if name in m["sides"]]
        speeds = [m["sides"][name]["speed"] for _, m in found]
        places = [place for place, _ in found]
        axes.plot(places, speeds, color=color, linewidth=0.7)
        axes.plot(places, speeds, marker, color=color, markersize=3.5, label=name)
        for (place, m), speed in zip(found, speeds, strict=True):
            low, high = quartiles(m, name)
            axes.plot([place] * 2, [low, high], color=color, marker="_", linewidth=1.2, markersize=5)
            if k == 0:
                axes.text(place, 1.15 * max(high, speed), f"{speed:.1f}", ha="center", fontsize=TEXT_POINTS)
    axes.axhline(1, color="black", linewidth=0.8, label="PyTorch, best mode")
    axes.set_yscale("log", base=2)
    axes.set_yticks(TICKS, [f"{tick:g}×" for tick in TICKS])
    axes.margins(x=0.08, y=0.15)
    axes.set_xticks(range(len(measurements)), [f"{m['batch_size']}{'' if m['steady'] else '*'}" for m in measurements])
    axes.set_xlabel("batch size", fontsize=TEXT_POINTS)
    axes.set_title(ALL_NETS[measurements[0]["net"]].title, fontsize=TITLE_POINTS, loc="left")
    axes.tick_params(labelsize=TEXT_POINTS, length=2)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set(color=GREY, linewidth=0.4)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def quartiles(measurement, name):
    """Returns the quartiles of a side's speed over the rounds: the time of PyTorch's best mode divided by its own."""
    sides = measurement["sides"]
    pairs = zip(sides[measurement["pytorch_best"]]["rounds"], sides[name]["rounds"], strict=True)
    speeds = [torch / own for torch, own in pairs]
    low, _, high = statistics.quantiles(speeds, method="inclusive") if len(speeds) > 1 else 3 * speeds
    return low, high


def draw_legend(figure, measurements, axes):
    """Draws the legend of all panels of a figure into free axes."""
    from matplotlib.lines import Line2D

    figure.supylabel("speed of a training step, relative to PyTorch", fontsize=TEXT_POINTS)
    pairs = [zip(*panel.get_legend_handles_labels(), strict=True) for panel in figure.axes]
    handles = {label: line for pair in pairs for line, label in pair}
    if any(len(side["rounds"]) > 1 for m in measurements for side in m["sides"].values()):
        handles["quartiles of the rounds"] = Line2D([], [], color=GREY, marker="|", linewidth=1.2, markersize=5)
    if not all(m["steady"] for m in measurements):
        handles["* unsteady: the machine was busy"] = Line2D([], [], linestyle="none")
    axes.legend(handles.values(), handles.keys(), loc="center left", frameon=False, fontsize=TEXT_POINTS)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
