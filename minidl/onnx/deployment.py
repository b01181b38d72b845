"""What an exported file adds to a model: a softmax or sigmoid of the scores, and the names of the classes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from minidl.engine.layer_list import from_spec, to_spec
from minidl.engine.probabilities import link_of
from minidl.layers import Dense, Sigmoid, Softmax
from minidl.sequential import Sequential

CLASS_NAMES_KEY = "class_names"  # metadata entry: a JSON list of strings


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
    _check_one_output("softmax", model)
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


def _check_one_output(argument: str, model: Sequential) -> None:
    """Raises ValueError for a model of several outputs."""
    if model.output_names:
        several, first = ", ".join(model.output_names), model.output_names[0]
        raise ValueError(f"{argument}: expected a model of one output, got {several}; write model[{first!r}]")


def class_names_of(source: Any, given: Any, model: Sequential) -> dict[str, str]:
    """Returns the metadata of class names: the given ones, else the labels of a classifier, else none.

    Raises TypeError unless they are strings; ValueError unless there is one for each output (two for a single score),
    and for strings that UTF-8 cannot hold.
    """
    if given is None:
        if not hasattr(type(source), "classes_"):
            return {}
        given = [str(label) for label in source.classes_.tolist()]
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [None]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"class_names: expected a list of strings, got {given!r}")
    for name in names:
        try:
            str(name).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"class_names: expected strings that UTF-8 can hold, got {name!r}") from error
    _check_one_output("class_names", model)
    outputs = model.output_shape[0]
    expected = 2 if outputs == 1 else outputs
    if len(names) != expected:
        raise ValueError(f"class_names: expected {expected} names, for outputs {model.output_shape}, got {len(names)}")
    return {CLASS_NAMES_KEY: json.dumps(names, ensure_ascii=False)}
