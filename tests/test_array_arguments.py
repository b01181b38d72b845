"""Odd arrays for every array argument of minidl: each is refused without a trace or gives the result of its values."""

import contextlib
import importlib
import inspect
import io
import pkgutil
import sys
from unittest import mock

import numpy as np
import pytest
from odd_arrays import ALWAYS, KINDS, NEVER, plain
from receipts import verified
from subprocess_cases import Cases

import minidl
from minidl import Param, Sequential, Trainer, metrics, plots
from minidl.engine.probabilities import probabilities
from minidl.initializers import whitening
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, PiecewiseLinearEncoding, ReLU, Rescale
from minidl.losses import Pinball, check_targets, checked_loss, huber, poisson, softmax_cross_entropy
from minidl.losses.native import as_float_targets
from minidl.metrics import TopKAccuracy, accuracy
from minidl.optimizers import SGD
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import as_array, as_dtype, as_floats, check_array
from minidl.utils.data import ArraySource, as_numbers
from minidl.utils.weights import as_weights, times_class_weights

REFUSALS = (TypeError, ValueError, MemoryError, FloatingPointError)
RNG = np.random.default_rng(0)
SHAPE = (1, 6, 6)
X, Y, WEIGHTS = RNG.integers(0, 2, (20, *SHAPE)).astype("f4"), np.arange(20) % 3, np.arange(1.0, 21)
Y[0] = 1  # one that exists among labels that an odd array makes equal
PIXELS, PIXEL_MODEL = X[:, 0].astype(int), Sequential([Conv2D(2, 3, padding=1)], SHAPE)
SCORES = RNG.integers(0, 2, (20, 3)).astype("f4")
summary = mock.patch("minidl.training.pace.SECONDS", 0.0)(lambda trainer, X, y: trainer.summary(X, y).rows)


def make_trainer(loss="softmax_cross_entropy"):
    layers = [Rescale(1 / 16), Conv2D(3, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(3)]
    model = Sequential(layers, input_shape=SHAPE)
    trainer = Trainer(model, loss, SGD(0.1, momentum=0.9), ["accuracy"], num_threads=1)
    trainer.train_batch(X, Y)
    return trainer


def state(trainer):
    """Returns everything a trainer holds: weights, gradients, velocity, counters, history."""
    params = trainer.model.params.values()
    arrays = [(p.value.tobytes(), p.grad.tobytes()) for p in params]
    velocity = trainer.steps().update.state["velocity"].tobytes()
    return arrays, velocity, trainer.step, trainer.epoch, {k: v for k, v in trainer.history.items() if "_per_" not in k}


def on_trainer(do):
    """Makes an entry that changes a trainer; its outcome is the return value and the trainer's new state."""

    def call(trainer, value):
        returned = do(trainer, value)
        return returned, state(trainer)

    return call


def without_trainer(do):
    """Makes an entry that needs no trainer."""
    return lambda trainer, value: do(value)


def fit(trainer, X=X, y=Y, **options):
    trainer.fit(X, y, batch_size=8, verbose=0, **options)


def report(trainer, X, y):
    with contextlib.redirect_stdout(io.StringIO()):
        return [str(finding) for finding in trainer.report(X, y)]


def backward(trainer, dy):
    trainer.model.forward(X, training=True)
    return trainer.model.backward(dy)


def backward_step(trainer, dscores):
    trainer.model.forward(X, training=True)
    trainer.backward_step(dscores)


def labeled(trainer, *arrays):
    return LabeledData.from_arrays(trainer.model, trainer.loss, *arrays)


def assign(trainer, name, value):
    setattr(trainer.model.params["5.weight"], name, value)


def load(trainer, value):
    trainer.model.load_state_dict(trainer.model.state_dict() | {"5.weight": value})


def step(value):
    param = Param(np.ones((3, 4), "f4"))
    param.grad = value
    optimizer = SGD(0.5, momentum=0.5)
    optimizer.step({"w": param}, 0.5)
    return param.value


def loss_returning(what):
    """Returns a user's loss that returns odd losses or odd gradients."""

    def call(trainer, value):
        losses, dscores = np.ones(20, "f4"), np.ones((20, 3), "f4")
        pair = (value, dscores) if what == "losses" else (losses, value)
        return checked_loss(lambda scores, y: pair, SCORES, Y)

    return call


def examples(X):
    e = ArraySource(X, SHAPE, "float32")
    return e.gather_copy(np.arange(len(e))[::2]), e.chunk(1, 5), len(e)


def read(X):
    e = ArraySource(X, SHAPE, "float32")
    x, rows, _ = e.gather(np.arange(len(e))[::-3])
    return x[rows].astype("f4")


def plotted(draw, name):
    """Returns an entry for a plot: its images and texts. Needs matplotlib."""

    def call(trainer, value):
        panels = draw(trainer.model, **{"X": X, "y": Y, name: value}).axes
        images = [np.ma.filled(image.get_array().astype("f8"), np.nan) for axes in panels for image in axes.images]
        lines = [line.get_xydata() for axes in panels for line in axes.lines]
        return images, lines, [text.get_text() for axes in panels for text in axes.texts]

    return on_trainer(call)


def saliency(model, X, y):
    return plots.saliency(model, X, 1)


def grad_cam(model, X, y):
    return plots.grad_cam(model, X, 1)


def metric_entries(name, metric, y, scores):
    """Returns the entries of a metric's two arguments."""
    name = f"{metric.__module__.rpartition('.')[2]}.{name}"
    return {
        f"{name}:y": (y, without_trainer(lambda v: metric(v, scores))),
        f"{name}:scores": (scores, without_trainer(lambda v: metric(y, v))),
    }


OF_TWO_LABELS = (metrics.precision, metrics.recall, metrics.f1, metrics.roc_auc, metrics.average_precision)
OF_LABELS = (metrics.precision_macro, metrics.recall_macro, metrics.f1_macro, metrics.iou, metrics.dice)
OF_NUMBERS = (
    *(metrics.binary_accuracy, metrics.subset_accuracy),
    *(metrics.mae, metrics.mse, metrics.rmse, metrics.r2),
)
W = RNG.integers(0, 2, (3, 12)).astype("f4")
GRAD = RNG.integers(0, 2, (3, 4)).astype("f4")
# By function and argument: a valid array, and a call with (trainer, array).
ENTRIES = {
    "base_model.BaseModel.predict:X": (X, on_trainer(lambda t, v: t.model.predict(v))),
    "base_model.BaseModel.predict_proba:X": (X, on_trainer(lambda t, v: t.model.predict_proba(v))),
    "base_model.BaseModel.forward:X": (X, on_trainer(lambda t, v: t.model.forward(v, training=True))),
    "base_model.BaseModel.backward:dy": (SCORES, on_trainer(backward)),
    "trainer.Trainer.backward_step:dscores": (SCORES, on_trainer(backward_step)),
    "base_model.BaseModel.input_gradient:X": (X, on_trainer(lambda t, v: t.model.input_gradient(v, 1))),
    "base_model.BaseModel.input_gradient:y": (
        Y, on_trainer(lambda t, v: t.model.input_gradient(X, v, "softmax_cross_entropy"))),
    "base_model.BaseModel.input_gradient:dscores": (
        SCORES, on_trainer(lambda t, v: t.model.input_gradient(X, dscores=v))),
    "sequential.Sequential.load_state_dict:state": (W, on_trainer(load)),
    "trainer.Trainer.fit:X": (X, on_trainer(lambda t, v: fit(t, v))),
    "trainer.Trainer.fit:y": (Y, on_trainer(lambda t, v: fit(t, X, v))),
    "trainer.Trainer.fit:sample_weight": (WEIGHTS, on_trainer(lambda t, v: fit(t, sample_weight=v))),
    "trainer.Trainer.fit:validation_data": (X, on_trainer(lambda t, v: fit(t, validation_data=(v, Y)))),
    "trainer.Trainer.fit:validation_data, y": (Y, on_trainer(lambda t, v: fit(t, validation_data=(X, v)))),
    "trainer.Trainer.fit:validation_data, sample_weight": (
        WEIGHTS, on_trainer(lambda t, v: fit(t, validation_data=(X, Y, v)))),
    "base_trainer.BaseTrainer.predict:X": (X, on_trainer(lambda t, v: t.predict(v))),
    "base_trainer.BaseTrainer.predict_proba:X": (X, on_trainer(lambda t, v: t.predict_proba(v))),
    "trainer.Trainer.summary:X": (X, on_trainer(lambda t, v: summary(t, v, Y))),
    "trainer.Trainer.summary:y": (Y, on_trainer(lambda t, v: summary(t, X, v))),
    "trainer.Trainer.report:X": (X, on_trainer(lambda t, v: report(t, v, Y))),
    "trainer.Trainer.report:y": (Y, on_trainer(lambda t, v: report(t, X, v))),
    "trainer.Trainer.per_example_gradients:X": (X, on_trainer(lambda t, v: t.per_example_gradients(v, Y))),
    "trainer.Trainer.per_example_gradients:y": (Y, on_trainer(lambda t, v: t.per_example_gradients(X, v))),
    "trainer.Trainer.per_example_gradients:sample_weight": (
        WEIGHTS, on_trainer(lambda t, v: t.per_example_gradients(X, Y, sample_weight=v))),
    "batch_sum.batch_sum:g": (SCORES, without_trainer(minidl.batch_sum)),
    "batch_sum.batch_sum:g, dict": (SCORES, without_trainer(lambda v: minidl.batch_sum({"w": v})["w"])),
    "base_trainer.BaseTrainer.train_batch:X": (X, on_trainer(lambda t, v: t.train_batch(v, Y))),
    "base_trainer.BaseTrainer.train_batch:y": (Y, on_trainer(lambda t, v: t.train_batch(X, v))),
    "base_trainer.BaseTrainer.train_batch:sample_weight": (WEIGHTS, on_trainer(lambda t, v: t.train_batch(X, Y, v))),
    "base_trainer.BaseTrainer.evaluate:X": (X, on_trainer(lambda t, v: t.evaluate(v, Y))),
    "base_trainer.BaseTrainer.evaluate:y": (Y, on_trainer(lambda t, v: t.evaluate(X, v))),
    "base_trainer.BaseTrainer.evaluate:sample_weight": (WEIGHTS, on_trainer(lambda t, v: t.evaluate(X, Y, v))),
    "labeled_data.LabeledData.from_arrays:X": (X, on_trainer(lambda t, v: labeled(t, v, Y).active_rows)),
    "labeled_data.LabeledData.from_arrays:y": (Y, on_trainer(lambda t, v: labeled(t, X, v).targets)),
    "labeled_data.LabeledData.from_arrays:sample_weight": (
        WEIGHTS, on_trainer(lambda t, v: labeled(t, X, Y, v).weights)),
    "param.Param.value:value": (W, on_trainer(lambda t, v: assign(t, "value", v))),
    "param.Param.grad:grad": (W, on_trainer(lambda t, v: assign(t, "grad", v))),
    "param.Param.__init__:value": (W, without_trainer(lambda v: Param(v).value)),
    "native.NativeLoss.__call__:scores": (SCORES, without_trainer(lambda v: softmax_cross_entropy(v, Y))),
    "native.NativeLoss.__call__:scores, numbers": (SCORES, without_trainer(lambda v: huber(v, SCORES))),
    "native.NativeLoss.__call__:y": (Y, without_trainer(lambda v: softmax_cross_entropy(SCORES, v))),
    "native.NativeLoss.__call__:y, numbers": (SCORES, without_trainer(lambda v: huber(SCORES, v))),
    "native.NativeLoss.targets:y": (SCORES, without_trainer(lambda v: huber.targets(v, (3,), "float32"))),
    "native.as_float_targets:y": (SCORES, without_trainer(lambda v: as_float_targets(v, (3,), "float64"))),
    "label_loss.LabelLoss.targets:y, numbers": (
        abs(SCORES), without_trainer(lambda v: softmax_cross_entropy.targets(v, (3,), "float32"))),
    "cross_entropy.SoftmaxCrossEntropy.targets:y": (
        Y, without_trainer(lambda v: softmax_cross_entropy.targets(v, (3,), "float32"))),
    "elementwise.BinaryCrossEntropy.targets:y": (
        SCORES, without_trainer(lambda v: minidl.losses.binary_cross_entropy.targets(v, (3,), "float32"))),
    "elementwise.Pinball.targets:y": (
        SCORES[:, 0], without_trainer(lambda v: Pinball([0.1, 0.9]).targets(v, (2,), "float32"))),
    "elementwise.Poisson.targets:y": (SCORES, without_trainer(lambda v: poisson.targets(v, (3,), "float32"))),
    "losses.check_targets:y": (
        Y, without_trainer(lambda v: check_targets(softmax_cross_entropy, v, 20, (3,), "float32"))),
    "losses.checked_loss:losses": (SCORES[:, 0], loss_returning("losses")),
    "losses.checked_loss:dscores": (SCORES, loss_returning("dscores")),
    "probabilities.probabilities:scores": (SCORES, without_trainer(lambda v: probabilities(v, "Softmax"))),
    **metric_entries("accuracy", accuracy, Y, SCORES),
    **metric_entries("TopKAccuracy.__call__", TopKAccuracy(2), Y, SCORES),
    **{k: v for f in OF_TWO_LABELS for k, v in metric_entries(f.__name__, f, Y % 2, SCORES[:, :2]).items()},
    **{k: v for f in OF_LABELS for k, v in metric_entries(f.__name__, f, Y, SCORES).items()},
    **{k: v for f in OF_NUMBERS for k, v in metric_entries(f.__name__, f, SCORES, SCORES[::-1].copy()).items()},
    "base.Optimizer.step:params": (GRAD, without_trainer(step)),
    "data.ArraySource.__init__:X": (X, without_trainer(examples)),
    "data.ArraySource.__init__:X, read": (X, without_trainer(read)),
    "data.as_numbers:X": (X, without_trainer(lambda v: as_numbers(v, "X"))),
    "weights.as_weights:weights": (WEIGHTS, without_trainer(lambda v: as_weights(v, 20))),
    "weights.times_class_weights:y": (Y, without_trainer(lambda v: times_class_weights(None, "balanced", v, (3,)))),
    "activations.feature_maps:X": (X, plotted(lambda model, X, y: plots.feature_maps(model, X), "X")),
    "masks.masks:X": (X, plotted(lambda model, X, y: plots.masks(PIXEL_MODEL, X), "X")),
    "masks.masks:y": (PIXELS, plotted(lambda model, X, y: plots.masks(PIXEL_MODEL, X, y), "y")),
    "predictions.misclassified:X": (X, plotted(plots.misclassified, "X")),
    "predictions.misclassified:y": (Y, plotted(plots.misclassified, "y")),
    "predictions.confusion_matrix:X": (X, plotted(plots.confusion_matrix, "X")),
    "predictions.confusion_matrix:y": (Y, plotted(plots.confusion_matrix, "y")),
    "calibration.calibration_curve:X": (X, plotted(plots.calibration_curve, "X")),
    "calibration.calibration_curve:y": (Y, plotted(plots.calibration_curve, "y")),
    "routing.pool_routing:X": (X, plotted(plots.pool_routing, "X")),
    "routing.pool_routing:y": (Y, plotted(plots.pool_routing, "y")),
    "saliency.saliency:X": (X, plotted(saliency, "X")),
    "saliency.saliency:y": (Y, plotted(plots.saliency, "y")),
    "saliency.grad_cam:X": (X, plotted(grad_cam, "X")),
    "saliency.grad_cam:y": (Y, plotted(plots.grad_cam, "y")),
    "piecewise_linear_encoding.PiecewiseLinearEncoding.from_data:X": (
        X[:, 0, 0].copy(), without_trainer(lambda v: PiecewiseLinearEncoding.from_data(v, 4).config())),
    "initializers.whitening:X": (X, without_trainer(lambda v: whitening(v).filters)),
    "arrays.as_array:value": (W, without_trainer(lambda v: as_array(v, "w"))),
    "arrays.as_floats:value": (W, without_trainer(lambda v: as_floats(v, "w"))),
    "arrays.as_dtype:array": (W, without_trainer(lambda v: as_dtype(as_array(v, "w"), "float64", "w"))),
}  # fmt: skip
# These receive what one of the above has checked, or accept any array without a mask.
ENTRIES |= {  # with a receipt of the fit
    f"trainer.Trainer.verify:{name}": (
        value,
        on_trainer(lambda t, v, k=name: verified(t, **{"X": X, "y": Y, k: (v, Y) if k[0] == "v" else v})),
    )
    for name, value in (("X", X), ("y", Y), ("sample_weight", WEIGHTS), ("validation_data", X))
}

INSIDE = (
    *(
        "backward_step",
        "config",
        "description",
        "flat_parameters",
        "input_gradient",
        "layer_paths",
        "layer_list",
        "lowering",
        "manual",
        "network",
        "pixel_targets",
        "receipt",  # with verification: Trainer.receipt, Trainer.verify
        "verification",
        "segments",
    ),
    *("state", "summary", "param_groups", "per_example", "constructors", "factors", "validation", "sparse"),
    *("checkpoint_content", "checked_attributes", "consistency", "diagnosis", "array_fit_loop", "batch_feed"),
    *("batch_fit_loop", "fit_arguments", "fit_loop", "fit_record", "fit_state", "mixing", "optimizer_state"),
    *("progress", "pace", "measurement", "output_losses", "output_metrics", "per_example_steps", "sample_buffer"),
    *("seen_examples", "signals", "round_trip", "step_cache", "steps", "targets_on_disk"),
    *("class_weights", "counts", "decoding", "evaluation", "sizes", "initializers", "windows", "native_update"),
    *("baseline", "curves", "findings", "instrument", "probe", "report", "symptoms"),
    *("attribution", "figures", "image_grid", "models", "panels", "pictures", "pixels", "receptive_fields"),
)
INSIDE_PACKAGES = (  # have tests of their own, such as tests/estimators/test_inputs.py
    *("minidl.c_export", "minidl.callbacks", "minidl.distributed", "minidl.estimators", "minidl.layers"),
    *("minidl.onnx", "minidl.quantization", "minidl.saving", "minidl.testing"),
)
INSIDE_TOO = {
    *(f"repeated_steps.RepeatedSteps.run:{name}" for name in ("trainer", "X", "y", "sample_weight")),
    *(f"repeated_steps.RepeatedSteps.remember:{name}" for name in ("trainer", "X", "y")),
    "data.is_plain_batch:X", "data.is_memory_map:array", "network.Network.reads:X",
    "arrays.as_plain:value", "text.shorten:value", "arrays.check_array:value", "arrays.check_unmasked:value",
    "arrays.memory_order:array",
    "arrays.with_memory_order:flat", "data.ArraySource.gather:rows", "data.ArraySource.gather_copy:rows",
    "param.Param.move:value", "labeled_data.LabeledData.example_ids:rows",
    "param.Param.move:grads", "losses.checked_loss:scores",
    "losses.checked_loss:targets", "labeled_data.LabeledData.mean:losses", "labeled_data.LabeledData.mean:rows",
    "labeled_data.LabeledData.__init__:targets", "labeled_data.LabeledData.__init__:weights",
    "labeled_data.LabeledData.__init__:active_rows", "sparse.SparseRows.__init__:matrix",
    "sparse.is_sparse:X", "base_trainer.BaseTrainer.__init__:optimizer", "base.Optimizer.step:lr",
    "hashes.arrays_hash:arrays", "data.fingerprint:array", "data.fingerprint:rows", "data.numbered:rows",
    "probabilities.predicted_probabilities:scores", "probabilities.check_defined:values",
    "base_trainer.BaseTrainer.batches:rows", "base_trainer.BaseTrainer.evaluate_rows:rows",
    "data.shape_of_examples:X", "label_loss.check_ignored:ignore_index",
    "labeled_data.LabeledData.loss_weights:rows", "weights.of_labeled:labeled",
    "base_trainer.BaseTrainer.scores_of:rows", "base_trainer.BaseTrainer.scores_of:examples",
    *(f"finite_differences.Function.__init__:{name}" for name in ("values", "gradient", "dy", "output")),
    "predictions.Classifier.predict_proba:X", "predictions.net_of_pixels:X",
    *(f"predictions.predictions_of:{name}" for name in ("X", "y")),
    *(f"masks.Shown.__init__:{name}" for name in ("images", "labels", "predicted")),
    *(f"predictions.Predictions.__init__:{name}" for name in ("labels", "predicted", "probabilities")),
    "flat_parameters.FlatParameters.views:flat", "sequential.Sequential.from_config:state",
    "labeled_data.LabeledData.__init__:examples", "labeled_data.LabeledData.to_validate:given",
    *(f"weights.{name}" for name in (
        "times_class_weights:class_weight", "times_class_weights:weights", "product:weights", "product:of_classes",
        "balanced_weights:y", "balanced_weights:weights", "mean_weight:weights", "weighted_mean:losses",
        "weighted_mean:weights", "step_factors:weights",
    )),
    *(f"labeled_data.LabeledData.{name}" for name in (
        "__init__:labeled", "__init__:step_weights", "__init__:exact_targets", "for_steps:rows",
        "reported_targets:rows",
    )),
    "labeled_data.from_one_hot:rows", "labeled_data.labeled_rows:targets", "data.ArraySource.lost:rows",
    "data.largest_magnitude:array", "label_loss.LabelLoss.as_labels:array",
    "losses.check_rows:y", "losses.rows_of:y", "data.ArraySource.check_rows:rows",
    "sparse.SparseRows.stored_values:rows",
    *(f"{cls}.{name}:targets" for cls in ("native.NativeLoss", "label_loss.LabelLoss")
      for name in ("labels", "numbers")),
    "lazy.is_lazy:X", "lazy.check_complete:X", "arrays.has_buffer:value",
    *(f"many_fits.fit_many:{name}" for name in ("X", "y", "fit_arguments")),  # passed on to Trainer.fit
    "labeled_data.LabeledData.from_tuple:given", "labeled_data.LabeledData.from_batch:given",
    "lazy.LazyRows.__init__:array",
    "sequential.Sequential.build_from:state",
    "base_model.BaseModel.classes:classes", "sequential.Sequential.save:classes",  # tests/engine/test_description.py
    "arrays.copy_into:target", "arrays.copy_into:source", "arrays.is_zeros_view:array",
}  # fmt: skip
ANY_SIZE = (  # no other argument determines the number of rows
    "activations.feature_maps:X", "masks.masks:X", "saliency.saliency:X", "saliency.grad_cam:X",
    "piecewise_linear_encoding.PiecewiseLinearEncoding.from_data:X",
    "arrays.as_array:value", "data.as_numbers:X", "weights.times_class_weights:y",
    "cross_entropy.SoftmaxCrossEntropy.targets:y", "label_loss.LabelLoss.targets:y, numbers",
    "native.as_float_targets:y", "native.NativeLoss.targets:y", "elementwise.BinaryCrossEntropy.targets:y",
    "elementwise.Pinball.targets:y", "elementwise.Poisson.targets:y", "batch_sum.batch_sum:g",
    "batch_sum.batch_sum:g, dict",
)  # fmt: skip
CASES = Cases()
EXPECTED = {}  # the outcome of contiguous arrays, by entry, dtype, shape and numbers


def outcome(call, value):
    """Returns the result of a call, or the error that refused the value without a trace."""
    trainer = make_trainer()
    before = state(trainer)
    try:
        return call(trainer, value)
    except REFUSALS as error:
        assert str(error)
        assert state(trainer) == before, f"refused, but the trainer changed: {error}"
        return error


def equal(a, b, exact):
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(equal(x, y, exact) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key], exact) for key in a)
    if isinstance(a, np.ndarray):
        a, b, tolerance = a.astype("f8"), b.astype("f8"), 0 if exact else 1e-6
        return a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, equal_nan=True)
    return a == b or (a != a and b != b)


def expected_outcome(entry, numbers):
    """Returns the outcome of the numbers of an odd array; many odd arrays hold the same numbers."""
    key = entry, numbers.dtype.str, numbers.shape, numbers.tobytes()
    if key not in EXPECTED:
        EXPECTED[key] = outcome(ENTRIES[entry][1], numbers)
    return EXPECTED[key]


def check_kind(entry, kind):
    if kind == "huge" and entry in ANY_SIZE:
        return
    right, call = ENTRIES[entry]
    odd = KINDS[kind](right)
    numbers = None if kind in NEVER else plain(odd, right.dtype)
    result = outcome(call, odd)
    if isinstance(result, Exception):
        assert kind not in ALWAYS or entry == "param.Param.__init__:value", f"{kind} was refused: {result}"
        return
    optional = entry.endswith(("sample_weight", "dscores", "masks:y", "saliency:y", "grad_cam:y"))
    assert numbers is not None or (kind == "None" and optional), f"{kind} was accepted"
    if numbers is not None:
        expected = expected_outcome(entry, numbers)
        assert not isinstance(expected, Exception), f"{kind} was accepted, its values are not: {expected}"
        assert equal(result, expected, kind in ALWAYS), f"{kind}: a different result"


def add_case(entry):
    def case():
        for kind in KINDS:
            check_kind(entry, kind)

    case.__name__ = entry.replace(" ", "_")
    CASES.add(case)


for entry in ENTRIES:
    add_case(entry)


PLOTS = [name for name in CASES if name.startswith(("activations.", "masks.", "predictions.", "routing.", "saliency."))]
OTHERS = [name for name in CASES if name not in PLOTS]


@pytest.fixture(scope="module")
def results():
    return CASES.run(__file__, OTHERS)


@pytest.fixture(scope="module")
def results_of_plots():
    pytest.importorskip("matplotlib")
    return CASES.run(__file__, PLOTS)


@pytest.mark.parametrize("name", OTHERS)
def test_odd_arrays(name, results):
    assert results[name] == "ok"


@pytest.mark.parametrize("name", PLOTS)
def test_masked_arrays_in_plots(name):
    pytest.importorskip("matplotlib")
    check_kind(name, "masked")


@pytest.mark.slow
@pytest.mark.parametrize("name", PLOTS)
def test_odd_arrays_in_plots(name, results_of_plots):
    assert results_of_plots[name] == "ok"


def test_targets_of_a_custom_loss_may_be_anything_but_masked():
    for targets in (Y.astype(str), Y.astype(object), Y.astype(complex)):
        assert check_array(targets, "y") is targets
    trainer = make_trainer(lambda scores, y: softmax_cross_entropy(scores, np.asarray(y).astype(int)))
    with pytest.raises(TypeError, match="y: expected an array without a mask"):
        trainer.train_batch(X, np.ma.masked_array(Y))


def array_arguments():
    """Yields module.function:argument for all public arguments of minidl annotated as arrays or as anything."""
    for info in pkgutil.walk_packages(minidl.__path__, "minidl."):
        short = info.name.rpartition(".")[2]
        if short in (*INSIDE, "__main__") or info.name.startswith(INSIDE_PACKAGES):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name[0] == "_" or getattr(value, "__module__", None) != module.__name__:
                continue
            functions = {name: value} if inspect.isfunction(value) else {}
            if inspect.isclass(value):
                open_to_all = [k for k in vars(value) if k[0] != "_" or k in ("__init__", "__call__")]
                functions = {f"{name}.{k}": vars(value)[k] for k in open_to_all}
            for qualified, f in functions.items():
                f = f.fset if isinstance(f, property) else getattr(f, "__func__", f)
                if inspect.isfunction(f):
                    for argument in inspect.signature(f).parameters.values():
                        kind = str(argument.annotation)
                        if "Array" in kind or "Param]" in kind or kind in ("Any", "Index"):
                            yield f"{short}.{qualified}:{argument.name}"


def test_every_array_argument_is_covered():
    covered = {entry.split(",")[0] for entry in ENTRIES} | INSIDE_TOO
    assert set(array_arguments()) - covered == set()


if __name__ == "__main__":
    CASES.main(sys.argv[1:])
