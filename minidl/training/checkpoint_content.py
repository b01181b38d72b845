"""The content of a checkpoint: a trainer and the state of its fit, as values and names.

A loss, metric, optimizer or learning rate is stored as the name of a function, or as the name of a class and its
constructor's arguments. Users pass their own functions and classes to `resume` by these names. optimizer_state.py
collects and restores the state of optimizers and schedules; saving/safetensors_file.py writes the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from minidl import losses, metrics, optimizers, schedules
from minidl.callbacks.callback_list import State
from minidl.engine.description import about
from minidl.engine.layer_list import OUR_LAYERS
from minidl.losses import output_losses
from minidl.saving.json_codec import decode, encode
from minidl.saving.object_codec import ObjectCodec, check_names, check_settings
from minidl.saving.object_codec import decode as decode_object
from minidl.saving.safetensors_file import Content, FileError
from minidl.sequential import Sequential
from minidl.training.base_trainer import BaseTrainer
from minidl.training.batch_feed import UNKNOWN, check_batches
from minidl.training.checked_attributes import history_of
from minidl.training.fit_state import ADDED, FitState
from minidl.training.history import History
from minidl.training.measurement import check_counts, is_counted
from minidl.training.optimizer_state import TensorCodec, get_state, set_state
from minidl.training.output_metrics import OutputMetric
from minidl.training.round_trip import RoundTrip
from minidl.utils.arrays import Array
from minidl.utils.hints import warn_caller
from minidl.utils.validation import check_int

Tensors = dict[str, Array]
Custom = Mapping[str, Any]
CLASSES: tuple[type, ...] = (
    *(*losses.CLASSES, *output_losses.CLASSES, *optimizers.CLASSES, *schedules.CLASSES),
    *(metrics.TopKAccuracy, OutputMetric),
)
OURS = {**losses.NAMES, **metrics.NAMES, **{made.__name__: made for made in CLASSES}}
KIND = "checkpoint"
LIMITS = ("clip_norm", "clip_value", "per_example_clip_norm")


# ---- a trainer as JSON and tensors


def pack(trainer: BaseTrainer, fit: FitState | None, custom_objects: dict[str, Any] | None = None) -> Content:
    """Returns configuration, tensors and `about` of a checkpoint; raises TypeError for what cannot be saved.

    custom_objects: a dict that takes the user's classes and functions, by their names in the configuration.
    """
    model, tensors = trainer.model, Tensors()
    living = [] if model.network is None else [model.network.parameters.values, model.network.parameters.grads]
    codec, objects, made = TensorCodec(tensors), ObjectCodec(OURS, custom_objects), trainer.optimizer
    arrays = codec.encode
    config: dict[str, Any] = {
        **run_config(trainer, objects, custom_objects),
        "remembered": encode(get_state(made), "optimizer", arrays),
        "updates": 0 if (update := trainer.steps().update) is None else update.steps,
        "skipped_steps": trainer.skipped_steps,
        "step": trainer.step,
        "epoch": trainer.epoch,
        "history": list(trainer.history),
        "fit": None,
        "callbacks": [],
    }
    if (run := getattr(trainer, "_run_id", None)) is not None:  # of Trainer.run_id
        config["run_id"] = run
    series = {name: _series(name, values) for name, values in trainer.history.items()}
    again = _restored_optimizer(config, tensors, objects.met, series)
    RoundTrip(living).compare(made, again, type(made).__name__)
    tensors.update({f"model/{name}": value for name, value in model.state_dict().items()})
    tensors.update({f"update/{name}": np.array(value, order="C") for name, value in _update(trainer).items()})
    tensors.update({f"history/{name}": values for name, values in series.items()})
    if fit is not None and (not fit.is_complete or fit.arguments["outputs"] == trainer.outputs):
        if fit.arguments["outputs"] != trainer.outputs:
            raise TypeError(
                "fit: cannot be saved: its model or metrics were replaced; set interrupted = None to discard the fit"
            )
        fields = {f.name: getattr(fit, f.name) for f in dataclasses.fields(fit) if f.name != "callbacks"}
        config["fit"] = encode(fields, "fit", arrays)
        config["callbacks"] = [
            [key, encode(state, f"callback {key}: what its state_dict() returns", codec.encode_array), needed]
            for key, state, needed in fit.callbacks
        ]
    return config, tensors, about(model)


def run_config(trainer: BaseTrainer, objects: ObjectCodec, custom_objects: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the arguments of a trainer and the configuration of its model; raises as `pack`."""
    return {
        "model": trainer.model.get_config(custom_objects),
        "loss": objects.encode(trainer.loss, "loss"),
        "metrics": objects.encode(list(trainer.metrics.values()), "metrics"),
        "optimizer": objects.encode(trainer.optimizer, "optimizer"),
        "seed": trainer.seed,
        "clip": {name: getattr(trainer, name) for name in LIMITS},
    }


def describe_trainer(trainer: BaseTrainer) -> tuple[dict[str, Any], Tensors]:
    """Returns what `pack` returns without a fit, or only the weights of a trainer that cannot be saved."""
    try:
        return pack(trainer, None, {})[:2]
    except TypeError:
        return {"model": {}}, {f"model/{name}": value for name, value in trainer.model.state_dict().items()}


def _series(name: str, values: list[float]) -> Array:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        integers = all(isinstance(value, (int, np.integer)) for value in values)
        series = np.array(values, np.int64 if values and integers else None)
        if series.ndim == 1 and series.dtype.kind in "biuf":
            return series if series.dtype == np.int64 else series.astype(np.float64)
    raise TypeError(f"history: expected a list of numbers for {name!r}, got {values!r:.100}")


def _restored_optimizer(config: dict[str, Any], tensors: Tensors, custom_objects: Custom, series: Tensors) -> Any:
    """Returns the optimizer that `resume` would make; raises TypeError for parts that it would refuse."""
    try:
        _history(series)
        again = parse_config(config, custom_objects)["optimizer"]
        _remember(again, config, TensorCodec(dict(tensors)).decode)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
        raise TypeError(f"cannot be saved: a resume would refuse it: {error}") from error
    return again


def _remember(optimizer: Any, config: Any, arrays: Callable[[str, Any], Any]) -> None:
    """Restores the state of an optimizer and of the objects in it."""
    set_state(optimizer, decode(config["remembered"], arrays), set(CLASSES))


def _update(trainer: BaseTrainer) -> Tensors:
    """Returns writable views of a native optimizer's state for each parameter: "velocity/0.weight"."""
    update, network = trainer.steps().update, trainer.model.network
    assert network is not None
    return {
        f"{name}/{param}": view
        for name, flat in (update.state.items() if update is not None else ())
        for param, view in network.parameters.named_views(flat).items()
    }


# ---- and back


@contextlib.contextmanager
def as_file_error(path: str, refused: str = "resume from this checkpoint") -> Iterator[None]:
    """A context that raises a FileError for every error in the content of a file, which cannot be used for this."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
        if isinstance(error, FileError):
            raise
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{path}: cannot {refused}: {what}") from error


def parse_config(config: Any, custom_objects: Custom) -> dict[str, Any]:
    """Returns the arguments of Trainer: loss, metrics, optimizer, seed and limits of the gradient."""
    found = {name: decode_object(config[name], OURS, custom_objects) for name in ("loss", "optimizer", "metrics")}
    return {**found, "seed": config["seed"], **{name: config["clip"][name] for name in LIMITS}}


def model_of(config: Any, tensors: Tensors, custom_objects: Custom, given: Sequential | None) -> Sequential:
    """Returns the checkpoint's model with its weights; or the given one, built, if it has the same layers."""
    expected = config["model"]
    layers = [] if given is not None else expected["layers"]
    check_names([config[name] for name in ("loss", "optimizer", "metrics")] + layers, OURS | OUR_LAYERS, custom_objects)
    if given is None:
        return Sequential.from_config(expected, states(tensors), custom_objects)
    if given.network is None:
        given.build(tuple(expected["input_shape"]))
    _check_same_model(expected, given.get_config())
    return given


def _check_same_model(expected: Any, config: Any) -> None:
    """Raises ValueError, naming the difference, if the configs of two models differ in more than settings."""
    if len(config["layers"]) != len(expected["layers"]):
        raise ValueError(
            f"model: expected the checkpoint's {len(expected['layers'])} layers, got {len(config['layers'])}"
        )
    for i, (saved, given) in enumerate(zip(expected["layers"], config["layers"], strict=True)):
        if _object(saved) != _object(given):
            wanted, got = _described(saved, given), _described(given, saved)
            raise ValueError(f"model: expected layer {i} of the checkpoint, {wanted}, got {got}")
    for name in sorted((expected.keys() | config.keys()) - {"layers", "lr_mult"}):
        if config.get(name) != expected.get(name):
            wanted, got = (f"{name} {one.get(name, 'at its default')}" for one in (expected, config))
            raise ValueError(f"model: expected that of the checkpoint, with {wanted}, got {got}")


def _object(layer: Any) -> tuple[str, Any]:
    """Returns the class and the arguments of an encoded layer, without its settings."""
    ((kind, (name, arguments, *_)),) = layer.items()
    return name if kind == "minidl" else f"{kind} {name}", arguments


def _described(layer: Any, other: Any) -> str:
    """Returns a layer as a call; if both are of one class, with only the arguments that differ."""
    (name, arguments), (other_name, others) = _object(layer), _object(other)
    differ = {key: value for key, value in arguments.items() if name != other_name or others.get(key) != value}
    return f"{name}({', '.join(f'{key}={value}' for key, value in differ.items())})"


def take_settings(model: Sequential, config: Any) -> None:
    """Sets `lr_mult` of a model, and the settings of its layers, as they were when the checkpoint was saved."""
    model.lr_mult = config["model"].get("lr_mult", 1.0)
    for layer, layer_config in zip(model.layers, config["model"]["layers"], strict=True):
        ((_, content),) = layer_config.items()
        settings = content[2] if isinstance(content, list) and len(content) > 2 else {}
        check_settings(settings)
        layer.take_settings(settings)


def states(tensors: Tensors) -> Tensors:
    """Returns the model's state_dict."""
    return {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}


def restore(trainer: BaseTrainer, config: Any, tensors: Tensors) -> FitState | None:
    """Restores a new trainer, except its model's state; returns the state of its fit."""
    rest = {name: array for name, array in tensors.items() if not name.startswith("model/")}  # each is used once
    arrays, optimizer = TensorCodec(rest).decode, trainer.optimizer
    _remember(optimizer, config, arrays)
    objects = ObjectCodec(OURS)
    decode_object(objects.encode(optimizer, "optimizer"), OURS, objects.met)  # a resumed trainer can be saved again
    if (update := trainer.steps().update) is not None:
        update.steps = check_int("updates", config["updates"], minimum=0)
    trainer.skipped_steps = config["skipped_steps"]
    for name, view in _update(trainer).items():
        saved = rest.pop(f"update/{name}")
        if saved.shape != view.shape or saved.dtype != view.dtype:
            raise ValueError(f"{name}: expected {view.dtype} {view.shape}, got {saved.dtype} {saved.shape}")
        view[...] = saved
    trainer.history = _history({name: rest.pop(f"history/{name}") for name in config["history"]})
    trainer.epoch = check_int("epoch", config["epoch"], minimum=0)
    trainer.step = check_int("step", config["step"], minimum=0)
    fields, callbacks = decode(config["fit"], arrays), _callbacks(config["callbacks"], arrays)
    if rest:
        raise ValueError(f"expected no more tensors, got {', '.join(sorted(rest))[:200]}")
    return None if fields is None else _fit_state(fields, callbacks, trainer)


def _history(series: Tensors) -> History:
    for name, values in series.items():
        if values.ndim != 1 or values.dtype not in (np.float64, np.int64):
            raise ValueError(f"history: expected numbers, got {values.dtype} {values.shape} for {name!r}")
    return history_of("history", {name: values.tolist() for name, values in series.items()})


def _callbacks(saved: Any, arrays: Callable[[str, Any], Any]) -> list[State]:
    """Returns the states of callbacks; raises ValueError for anything else."""
    if not isinstance(saved, list) or not all(
        isinstance(one, list) and [type(part) for part in one[::2]] == [str, bool] and len(one) == 3 for one in saved
    ):
        raise ValueError("callbacks: expected keys and states, got something else")
    return [(key, decode(state, arrays), needed) for key, state, needed in saved]


def _fit_state(fields: Any, callbacks: list[State], trainer: BaseTrainer) -> FitState | None:
    """Returns the fields as a FitState; raises an error for what cannot be the state of a fit of this trainer.

    None for one in the middle of an epoch whose metrics were not counted yet.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"fit: expected its state by name, got {type(fields).__name__}")
    if isinstance(batches := fields.get("batches"), dict) and "count" in batches:
        batches.setdefault("position", batches["count"])  # in files from before epochs went on where the last one ended
        fields["batches"] = UNKNOWN | batches
    if isinstance(arguments := fields.get("arguments"), dict) and "batches" not in arguments:
        fields["arguments"] = ADDED | arguments
    known = {field.name for field in dataclasses.fields(FitState)}
    if "counts" not in fields and fields.keys() <= known:  # in files from before metrics of labels counted
        fields |= {"counts": {}, "scores": fields.get("scores") if trainer.keeps_scores else None}
        fields["arguments"]["outputs"] = trainer.outputs
        if len(fields["losses"]) and any(map(is_counted, trainer.metrics.values())):
            warn_caller(
                "the fit in the checkpoint, of another version, cannot be completed: the trainer goes on from there"
            )
            return None
    fit, model = FitState(**fields, callbacks=callbacks), trainer.model
    for name in ("step", "epochs_done"):
        check_int(name, getattr(fit, name), minimum=0)
    check_int("epochs", fit.arguments["epochs"], minimum=0)
    if fit.arguments["batch_size"] is not None:
        check_int("batch_size", fit.arguments["batch_size"], minimum=0)
    if fit.arguments["outputs"] != trainer.outputs:
        raise ValueError(f"fit: expected {trainer.outputs}, got {fit.arguments['outputs']}")
    if fit.arguments["rows_hashed"] is not None:
        check_int("rows_hashed", fit.arguments["rows_hashed"])
    if type(fit.in_epoch) is not bool or type(fit.should_stop) is not bool:
        raise ValueError("fit: expected in_epoch and should_stop to be true or false, got something else")
    if fit.epochs_done > fit.arguments["epochs"] or (len(fit.losses) and not fit.in_epoch):
        raise ValueError(f"fit: expected an epoch of its {fit.arguments['epochs']}, got {fit}")
    if fit.step != trainer.step:
        raise ValueError(f"fit: expected its step to be {trainer.step}, got {fit.step}")
    seen = (len(fit.losses),)
    shape = trainer.network.out_shape
    arrays = [(fit.losses, seen), *([(fit.scores, (*seen, *shape))] if trainer.keeps_scores else [])]
    for array, shape in arrays:
        if array is None or array.dtype != model.dtype or array.shape != shape:
            raise ValueError(f"fit: expected {model.dtype} {shape}, got something else")
    counted = {name for name, metric in trainer.metrics.items() if is_counted(metric)}
    check_counts(fit.counts, counted if len(fit.losses) else set(fit.counts))
    if ("batches" in fit.arguments and fit.in_epoch) or fit.batches is not None:
        check_batches(fit.batches, len(fit.losses), trainer.keeps_scores)
    return fit
