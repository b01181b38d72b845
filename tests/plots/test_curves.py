"""history.plot(): the lines that are drawn, and their legibility."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from figure_checks import SIZES, check_readable, figure_of, texts
from matplotlib.figure import Figure

from minidl.training.history import History

NAN = float("nan")


def make_history(epochs, metrics=("accuracy",), validation=True, lr=lambda epoch: 0.1):
    rng, t = np.random.default_rng(0), np.arange(epochs)
    history = History(epoch=t.tolist())
    for prefix in ("", "val_") if validation else ("",):
        history[f"{prefix}loss"] = (2 * np.exp(-t / 5) + 0.01 * t * (prefix != "") + rng.random(epochs) / 20).tolist()
        for i, name in enumerate(metrics):
            history[prefix + name] = (1 - np.exp(-(t + 1) / (3 + i)) - rng.random(epochs) / 20).tolist()
    history["lr"] = [lr(epoch) for epoch in range(epochs)]
    history["images_per_second"] = (1e5 + 1e4 * rng.random(epochs)).tolist()
    return history


def axes_by_name(figure):
    return {axes.get_ylabel(): axes for axes in figure.axes}


def lines_by_label(axes):
    return {line.get_label(): line for line in axes.lines}


def test_lines_show_the_history():
    h = make_history(12)
    figure = h.plot()
    assert list(axes_by_name(figure)) == ["loss", "accuracy"]
    for name, axes in axes_by_name(figure).items():
        assert axes.get_xlabel() == "epoch"
        lines = lines_by_label(axes)
        for prefix, label in (("", "training"), ("val_", "validation")):
            assert lines[label].get_xdata().tolist() == list(range(1, 13))
            assert lines[label].get_ydata().tolist() == h[prefix + name]
        assert len({(line.get_color(), line.get_linestyle()) for line in lines.values()}) == 3
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["training", "validation", "best validation"]


def test_the_best_validation_is_marked():
    h = make_history(40)
    for name, best in (("loss", np.argmin), ("accuracy", np.argmax)):
        axes = axes_by_name(h.plot())[name]
        place = best(h[f"val_{name}"])
        (x,), (y,) = lines_by_label(axes)["best validation"].get_data()
        assert (x, y) == (place + 1, h[f"val_{name}"][place])
        assert axes.get_title() == f"best {y:.4g}, epoch {x}"


def test_an_unknown_metric_has_no_best():
    figure = make_history(5, ["gini"]).plot(["gini"])
    assert set(lines_by_label(figure.axes[0])) == {"training", "validation"} and not figure.axes[0].get_title()


def test_without_validation_one_line_needs_no_legend():
    figure = make_history(5, validation=False).plot()
    assert [set(lines_by_label(axes)) for axes in figure.axes] == [{"training"}] * 2
    assert not figure.legends


@pytest.mark.parametrize(
    ("lr", "drawn", "scale"),
    [
        (lambda epoch: 0.1, False, None),
        (lambda epoch: 0.1 - 0.01 * epoch, True, "linear"),
        (lambda epoch: 0.5**epoch, True, "log"),
        (lambda epoch: 0.0 if epoch == 5 else 0.1**epoch, True, "linear"),  # a log scale would omit 0
    ],
)
def test_the_learning_rate_is_drawn_if_it_varies(lr, drawn, scale):
    found = axes_by_name(make_history(6, lr=lr).plot())
    assert ("learning rate" in found) == drawn
    if drawn:
        assert found["learning rate"].get_yscale() == scale
        assert found["learning rate"].lines[0].get_ydata().tolist() == [lr(epoch) for epoch in range(6)]


def test_chosen_panels():
    figure = make_history(5, ["accuracy", "f1"]).plot(["lr", "f1", "images_per_second"])
    assert list(axes_by_name(figure)) == ["learning rate", "f1", "images per second"]


def test_names_may_be_a_generator():
    assert len(make_history(2).plot(name for name in ["loss", "lr"]).axes) == 2


def test_gaps_stay_gaps_and_isolated_epochs_get_a_dot():
    h = make_history(40)
    for place in (0, 10, 12, 39):
        h["loss"][place] = (NAN, float("inf"))[place % 4 == 0]
    line = lines_by_label(axes_by_name(h.plot())["loss"])["training"]
    assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == [0, 10, 12, 39]
    assert line.get_marker() == "o" and line.get_markevery() == [11]
    assert lines_by_label(axes_by_name(h.plot())["accuracy"])["training"].get_marker() == "None"


def test_a_metric_without_finite_values():
    h = make_history(3)
    h["loss"] = h["val_loss"] = [NAN] * 3
    axes = axes_by_name(h.plot())["loss"]
    assert [text.get_text() for text in axes.texts] == ["no finite values"]
    assert not axes.get_title()


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 12, 25, 60, 200, 1000])
def test_ticks_are_whole_epochs_from_the_first(epochs):
    axes = axes_by_name(make_history(epochs).plot())["loss"]
    ticks = axes.get_xticks()
    assert ticks[0] == 1 and ticks[-1] <= epochs and len(ticks) >= min(epochs, 3)
    assert all(tick == int(tick) for tick in ticks)
    low, high = axes.get_xlim()
    assert low < 1 and high > epochs


def test_epochs_of_a_second_fit_continue_the_count():
    h = History(epoch=[7, 8], loss=[1.0, 0.5])
    assert h.plot().axes[0].lines[0].get_xdata().tolist() == [8, 9]


CASES = {
    "one epoch": make_history(1),
    "ten": make_history(10),
    "two hundred": make_history(200, lr=lambda epoch: 0.1 * 0.97**epoch),
    "no validation": make_history(12, validation=False),
    "tiny losses": History(epoch=[0, 1, 2], loss=[1e-9, 2e-9, 3e-9], val_loss=[1e12, 2e12, 3e12]),
    "three": make_history(30, ("accuracy", "f1")),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_nothing_overlaps(case, size):
    figure = figure_of(size)
    drawn = CASES[case].plot(figure=figure)
    assert figure is None or drawn is figure
    check_readable(drawn)


@pytest.mark.parametrize("metrics", [4, 7, 12])
def test_many_metrics_are_laid_out_in_rows(metrics):
    names = ["accuracy", *(f"mean_of_something_{i}" for i in range(1, metrics))]
    figure = make_history(30, names, lr=lambda epoch: 0.1 / (1 + epoch)).plot()
    check_readable(figure)
    assert len(figure.axes) == metrics + 2 and figure.get_size_inches()[0] <= 6.9
    assert len({axes.get_position().x0 for axes in figure.axes}) == 3


def test_a_subfigure_is_drawn_into():
    whole = Figure((6.9, 6), layout="constrained")
    upper, lower = whole.subfigures(2, 1)
    assert make_history(5).plot(figure=upper) is upper
    make_history(5).plot(["loss"], figure=lower)
    assert len(upper.axes) == 2 and len(lower.axes) == 1
    check_readable(whole)
    assert len(texts(upper)) > 8


@pytest.mark.parametrize(
    ("monitor", "lower_is_better", "best"),
    [("val_accuracy", None, np.argmax), ("val_gini", True, np.argmin), ("gini", False, np.argmax)],
)
def test_the_rings_mark_the_best_epoch_of_a_monitor(monitor, lower_is_better, best):
    h = make_history(12, ["accuracy", "gini"], lr=lambda epoch: 0.5**epoch)
    h["gini"][7], h[monitor][3] = NAN, NAN
    place = best(np.nan_to_num(h[monitor], nan=0 if best is np.argmax else 9))
    figure = h.plot(monitor=monitor, lower_is_better=lower_is_better)
    split = monitor.rpartition("_")[0] and "val_"
    for name in ("loss", "accuracy", "gini"):
        axes, value = axes_by_name(figure)[name], h[split + name][place]
        (x,), (y,) = lines_by_label(axes)[f"best {monitor}"].get_data()
        assert (x, y) == (place + 1, value)
        assert axes.get_title() == f"{'best ' * (split + name == monitor)}{value:.4g}, epoch {x}"
    assert not axes_by_name(figure)["learning rate"].get_title()
    assert [text.get_text() for text in figure.legends[0].get_texts()][2] == f"best {monitor}"
    check_readable(figure)


def test_a_monitor_of_an_output():
    h = make_history(5, ["policy_loss", "policy_accuracy"])
    figure = h.plot(monitor="val_policy_accuracy")
    (x,), _ = lines_by_label(axes_by_name(figure)["loss"])["best val_policy_accuracy"].get_data()
    assert x == np.argmax(h["val_policy_accuracy"]) + 1


@pytest.mark.parametrize(
    ("monitor", "lower_is_better", "message"),
    [
        (
            "val_gini",
            None,
            "monitor: expected one of loss, .*, got 'val_gini'; for your own metric, set lower_is_better",
        ),
        (
            "my_accuracy",
            None,
            "monitor: expected one of loss, .*, got 'my_accuracy'.*; for your own metric, set lower_is",
        ),
        ("val_f1", None, r"monitor: expected one of \['loss', 'gini', .*\], got 'val_f1'"),
        ("lr", True, r"monitor: expected one of \['loss', 'gini', .*\], got 'lr'"),
        (3, None, "monitor: expected a name such as 'val_accuracy', got 3"),
        ("val_gini", "yes", "lower_is_better: expected True or False"),
        (None, True, "lower_is_better: expected None without a monitor, got True"),
    ],
)
def test_invalid_monitors_are_refused(monitor, lower_is_better, message):
    figure, h = Figure(), make_history(4, ["gini", "my_accuracy"])
    with pytest.raises((TypeError, ValueError), match=message):
        h.plot(None, figure, monitor, lower_is_better)
    assert not figure.axes


def test_a_monitor_without_finite_values_has_no_ring():
    h = make_history(3)
    h["val_loss"] = [NAN] * 3
    assert not any("best" in axes.get_title() for axes in h.plot(monitor="val_loss").axes)


@pytest.mark.parametrize(
    ("broken", "names", "message"),
    [
        (History(), None, "at least one epoch, got none: fit first"),
        (History(epoch=[], loss=[]), None, "at least one epoch, got none"),
        (History(epoch=[0], loss=[1.0, 2.0]), None, "an entry for each epoch, got 1 of epoch, 2 of loss"),
        (make_history(2), ["f1"], r"names: expected some of \['loss', 'accuracy', 'lr', .*\], got \['f1'\]"),
        (make_history(2), ["epoch"], "names: expected some of"),
        (make_history(2), [], "names: expected some of"),
        (make_history(2), "loss", r"names: expected a list such as \['loss'\]"),
    ],
)
def test_invalid_arguments_are_refused(broken, names, message):
    figure = Figure()
    with pytest.raises((TypeError, ValueError), match=message):
        broken.plot(names, figure)
    assert not figure.axes
