"""Draws the results of train_step.py: the speed of each side as a multiple of PyTorch's best mode.

python benchmarks/chart.py results.json chart.png
"""

import json
import sys
from pathlib import Path

from nets import ALL_NETS

# Sides and their colours; PyTorch's best mode is the line at 1.
COLOURS = {"minidl fit": "#1b6ca8", "minidl train_batch": "#8ab8d9", "scikit-learn": "#e09f3e", "JAX jit": "#7f9c6c"}


def draw(results, path):
    """Draws `results`, as written by train_step.py, into a PNG file; if it cannot, prints why and returns False."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("No chart: matplotlib is not installed.")
        return False
    compared = [m for m in results["measurements"] if m["pytorch_best"]]
    if not compared:
        print("No chart: PyTorch was not measured.")
        return False
    nets = list(dict.fromkeys(m["net"] for m in compared))
    figure = Figure(figsize=(4 * len(nets) + 0.5, 3.6), layout="constrained")
    for net, axes in zip(nets, figure.subplots(1, len(nets), squeeze=False)[0], strict=True):
        draw_net([m for m in compared if m["net"] == net], axes)
    handles = {label: bar for axes in figure.axes for bar, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
    if not all(m["steady"] for m in compared):
        figure.suptitle("* unsteady: the machine was busy", fontsize=8)
    figure.axes[0].set_ylabel("training speed relative to PyTorch")
    FigureCanvasAgg(figure).print_png(path)
    return True


def draw_net(measurements, axes):
    """Draws the bars of one net: one group per batch size, one bar per side."""
    names = [name for name in COLOURS if any(name in m["sides"] for m in measurements)]
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        positions = [i for i, m in enumerate(measurements) if name in m["sides"]]
        speeds = [measurements[i]["sides"][name]["speed"] for i in positions]
        left = [i + (k - (len(names) - 1) / 2) * width for i in positions]
        bars = axes.bar(left, speeds, width, label=name, color=COLOURS[name])
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.axhline(1, color="black", linewidth=1, label="PyTorch, best mode")
    ticks = [f"{m['batch_size']}{'' if m['steady'] else '*'}" for m in measurements]
    axes.set_xticks(range(len(measurements)), ticks)
    axes.set_xlabel("batch size")
    axes.set_title(ALL_NETS[measurements[0]["net"]].title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
