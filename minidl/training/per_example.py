"""Trainer.per_example_gradients: the gradients of single examples of a training step, or their norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.layer_list import copy_layers
from minidl.engine.layer_paths import layer_paths, resolve_path
from minidl.engine.network import Network
from minidl.engine.param_groups import ParamGroup, param_groups
from minidl.engine.per_example import GradRequest, check_no_coupling, grad_requests
from minidl.engine.pixel_targets import at_rest
from minidl.layers.container import title
from minidl.layers.param import Param
from minidl.sequential import Sequential
from minidl.training.base_trainer import BaseTrainer
from minidl.training.labeled_data import LabeledData
from minidl.training.moved_targets import with_moved_targets
from minidl.training.per_example_steps import fill
from minidl.utils.arrays import Array
from minidl.utils.validation import check_bool, check_choice


def chosen(model: Sequential, trained: dict[str, Param], layers: Any) -> dict[str, Param]:
    """Returns the trained parameters of these layers; None: of all. Raises TypeError or ValueError."""
    if not trained:
        raise ValueError("model: expected parameters that are trained, it has none, or all are frozen")
    if layers is None:
        return trained
    found = layer_paths(model.layers)
    names: list[str] = []
    places = list(layers) if np.iterable(layers) and not isinstance(layers, (str, bytes)) else [layers]
    if not places:
        raise ValueError("layers: expected at least one index or path, or None for all, got none")
    for place in places:
        name = resolve_path(found, place, "layers")
        inside = [one for one in trained if one.startswith(f"{name}.")]
        if not inside:
            expected = "layers with parameters that are trained"
            raise ValueError(f"layers: expected {expected}, got {name} {title(found[name][-1])}")
        names += inside
    return {name: param for name, param in trained.items() if name in names}


def per_example_gradients(
    trainer: BaseTrainer,
    X: ArrayLike,
    y: Any,
    layers: Any,
    reduce: str | None,
    sample_weight: ArrayLike | None,
    training: bool,
) -> dict[str, Array]:
    """Returns what Trainer.per_example_gradients does."""
    check_choice("reduce", reduce, None, "norm")
    model, as_in_training = trainer.model, check_bool("training", training)
    with model.unbuilt_on_error():
        data = LabeledData.from_arrays(model, trainer.loss, X, y, sample_weight).for_steps()
        network, everything = trainer.network, model.params
        if not as_in_training:
            network, everything = _in_inference(network, model)
        else:
            trainer.check_targets(data)
        check_no_coupling(network)
        params = chosen(model, network.trained_params(everything), layers)
    trainer.check_between_steps("per_example_gradients")
    with model.usage.writing("per_example_gradients"):
        wanted = grad_requests(network, params.values(), len(data.active_rows), reduce == "norm")
        batch = trainer.batches(data, data.active_rows, len(data.active_rows))
        if as_in_training:
            batch = with_moved_targets(batch, network, trainer.loss, trainer.seed, trainer.num_threads)
        else:
            batch = replace(batch, targets=at_rest(network, trainer.loss, batch.targets, trainer.num_threads))
        fill(network, trainer.loss, batch, wanted, trainer.seed, trainer.num_threads)
    return {name: _shown(one, data) for name, one in zip(params, wanted, strict=True)}


def _in_inference(network: Network, model: Sequential) -> tuple[Network, dict[str, Param]]:
    """Returns a copy of the network that computes as in inference, and its parameters by name."""
    names = {id(param): name for name, param in model.params.items()}
    try:
        (layers,) = copy_layers(network.layers)
    except Exception as error:
        raise TypeError(f"per_example_gradients: expected layers that can be copied: {error}") from error
    given, copies = ([p for layer in chain for p in layer.params.values()] for chain in (network.layers, layers))
    groups = param_groups(layers, ParamGroup(inference=True))
    twin = Network(layers, network.names, FlatParameters(layers, network.dtype), groups)
    return twin, {names[id(param)]: copy for param, copy in zip(given, copies, strict=True)}


def _shown(one: GradRequest, data: LabeledData) -> Array:
    """Returns the gradients of all examples, also of weight 0, in the parameter's shape, or their norms."""
    values = np.sqrt(one.squares).astype(one.param.value.dtype) if one.squares is not None else one.grads
    assert values is not None
    if len(data.active_rows) < len(data.examples):
        active, values = values, np.zeros((len(data.examples), *values.shape[1:]), values.dtype)
        values[data.active_rows] = active
    return values if one.squares is not None else one.shaped(values)
