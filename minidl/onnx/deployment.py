"""What an exported file adds to a model: a softmax or sigmoid of the scores, names of the classes, and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from minidl.engine.description import MAX_TEXT, check_classes, check_one_output
from minidl.engine.layer_list import from_spec, to_spec
from minidl.engine.probabilities import link_of
from minidl.layers import Dense, Sigmoid, Softmax
from minidl.sequential import Sequential

CLASS_NAMES_KEY = "class_names"  # metadata entry: a JSON list of strings, or of ints
USER_KEY = "metadata"  # metadata entry: `model.metadata`, a JSON object


def model_of(source: Any) -> Sequential:
    """Returns the model of a Sequential, a Trainer or a fitted estimator; raises TypeError for other objects.

    Raises scikit-learn's NotFittedError for an estimator that is not fitted.
    """
    if isinstance(source, Sequential):
        return source
    # Trainer and estimators are not imported: they build on this package, and estimators on scikit-learn
    model = source.model_ if hasattr(type(source), "model_") else getattr(source, "model", None)
    if not isinstance(model, Sequential):
        expected = "a Sequential, a Trainer or a fitted estimator"
        raise TypeError(f"model: expected {expected}, got {type(source).__name__}{_hint(source)}")
    return model


def _hint(source: Any) -> str:
    """Returns what to export of an estimator of scikit-learn that has others inside; an empty string for others."""
    if hasattr(type(source), "named_steps"):
        return ": export its last step, pipeline[-1]; the other steps are not in the file"
    if hasattr(source, "best_estimator_"):
        return ": export its best_estimator_"
    if hasattr(source, "regressor_"):
        scaled = "it predicts scaled targets, which a Rescale after its model_ turns back"
        return f": export its regressor_, or the last step of it; {scaled}: see docs/how-to/signals-and-tables.md"
    return ""


def with_probabilities(source: Any, model: Sequential) -> Sequential:
    """Returns the model of `source` with a Softmax or Sigmoid at its end, which predicts what `predict_proba` returns.

    A single score s becomes the scores 0 and s before a Softmax. Raises ValueError where `predict_proba` does.
    """
    check_one_output("softmax", model.output_names)
    if hasattr(source, "estimators_"):  # the mean of several networks, of probabilities if it predicts some
        if not hasattr(source, "predict_proba"):
            raise ValueError(f"softmax: expected a classifier, got {type(source).__name__}")
        return model
    loss = getattr(getattr(source, "trainer_", source), "loss", None)
    link = link_of("softmax", model.layers, model.output_shape, loss)
    if not link:
        return model
    layers, state = from_spec(to_spec(model.layers)), model.state_dict()
    if model.output_shape == (1,):
        state[f"{len(layers)}.weight"] = np.array([[0], [1]], model.dtype)
        layers, link = (*layers, Dense(2, use_bias=False)), "Softmax"
    longer = Sequential([*layers, Softmax() if link == "Softmax" else Sigmoid()], None, model.seed, model.dtype)
    longer.build_from(model.input_shape, state)
    return longer


def class_names_of(source: Any, given: Any, model: Sequential) -> tuple[str | int, ...]:
    """Returns the names of the classes: the given ones, else the labels of a classifier, else `classes` of the model.

    Raises TypeError unless the given ones are strings; ValueError unless there is one for each output (two for a single
    score), for equal ones, and for strings that UTF-8 cannot hold.
    """
    if given is None and not hasattr(type(source), "classes_"):
        return model.classes or ()
    if given is None:
        given = [str(label) for label in source.classes_.tolist()]
    return check_classes("class_names", given, model.output_shape, model.output_names, (str,))


def metadata_of(source: Any, class_names: Any, model: Sequential) -> dict[str, str]:
    """Returns the entries of a file's metadata: the names of the classes, and what the user says of the model."""
    said = {CLASS_NAMES_KEY: list(class_names_of(source, class_names, model)), USER_KEY: dict(model.metadata)}
    return {key: json.dumps(value, ensure_ascii=False) for key, value in said.items() if value}


def take_metadata(model: Sequential, metadata: Mapping[str, str], same_outputs: bool) -> None:
    """Sets classes and metadata of a model as a file says, which may be of another program: if the attributes allow.

    same_outputs: whether the outputs of the model are those of the file, which the names are of.
    """
    for name, key in (("metadata", USER_KEY), *([("classes", CLASS_NAMES_KEY)] if same_outputs else [])):
        if key in metadata and len(metadata[key]) <= MAX_TEXT:
            with suppress(TypeError, ValueError, RecursionError):
                setattr(model, name, json.loads(metadata[key]))
