"""Figures are shown once, freed without closing, and leave pyplot and its settings alone."""

import gc
import pickle
import weakref

import pytest

pytest.importorskip("matplotlib")

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from minidl.plots.figures import count_label, figure_size, prepare_figure, text_width, truncate, wrap
from minidl.training.history import History

HISTORY = History(epoch=[0, 1], loss=[1.0, 0.5])


def test_a_new_figure_is_not_registered_with_pyplot_and_displays_itself():
    before, settings = plt.get_fignums(), dict(mpl.rcParams)
    figures = [HISTORY.plot() for _ in range(25)]  # pyplot warns about more than 20 open ones
    assert plt.get_fignums() == before and dict(mpl.rcParams) == settings
    assert figures[0]._repr_png_().startswith(b"\x89PNG")


def test_an_unreferenced_figure_is_freed():
    figure = HISTORY.plot()
    figure._repr_png_()
    gone = weakref.ref(figure)
    del figure
    gc.collect()
    assert gone() is None


def test_a_figure_can_be_pickled():
    again = pickle.loads(pickle.dumps(HISTORY.plot()))
    assert again.axes[0].lines[0].get_ydata().tolist() == [1.0, 0.5]
    assert again._repr_png_().startswith(b"\x89PNG")


def test_a_figure_of_pyplot_is_drawn_into():
    figure = plt.figure(figsize=(4, 3))
    try:
        assert HISTORY.plot(figure=figure) is figure
        assert type(figure.get_layout_engine()).__name__ == "ConstrainedLayoutEngine"
        assert figure.get_size_inches().tolist() == [4, 3]
    finally:
        plt.close(figure)


def test_a_layout_engine_is_kept():
    figure = Figure(layout="compressed")
    engine = figure.get_layout_engine()
    prepare_figure(figure, 1, 1)
    assert figure.get_layout_engine() is engine


def test_only_empty_figures_are_accepted():
    figure = Figure()
    axes = figure.add_subplot()
    with pytest.raises(TypeError, match="figure: expected a Figure or SubFigure of matplotlib, or None, got Axes"):
        figure_size(axes)
    with pytest.raises(ValueError, match="figure: expected an empty one"):
        HISTORY.plot(figure=figure)
    figure.clear()
    figure.subfigures(1, 2)
    with pytest.raises(ValueError, match="figure: expected an empty one"):
        figure_size(figure)


def test_figure_size_is_in_inches():
    figure = Figure((5, 4), dpi=200)
    assert figure_size(figure) == (5, 4)
    left, _ = figure.subfigures(1, 2)
    assert figure_size(left) == (pytest.approx(2.5), 4)
    assert figure_size(None) == (6.9, None)


def test_text_width_matches_the_renderer():
    figure = Figure(dpi=720)
    text = figure.text(0, 0, "Ankle boot: 98%", fontsize=7)
    assert text.get_window_extent().width / 720 == pytest.approx(text_width("Ankle boot: 98%"), rel=0.02)


def test_truncate():
    assert truncate("cat", 1) == "cat"
    assert truncate("two\n lines", 5) == "two lines"
    cut = truncate("a very long name of a class", 0.5)
    assert cut.endswith("…") and "a very long name".startswith(cut[:-1]) and 0.35 < text_width(cut) <= 0.5
    assert truncate("anything", 0.01) == "…"


def test_wrap_breaks_between_words():
    lines = wrap("weights of the first 40 of 128 filters", 1.0).split("\n")
    assert len(lines) > 1 and " ".join(lines) == "weights of the first 40 of 128 filters"
    assert all(text_width(line, 8) <= 1.0 for line in lines)
    assert wrap("unbreakablewords", 0.1) == "unbreakablewords"


def test_count_label():
    assert count_label(2, "filter", 2) == "2 filters" and count_label(1, "filter", 1) == "1 filter"
