"""What makes probabilities of a model's scores: a softmax or a sigmoid, as the attribute `applies` of the loss says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from minidl.engine.layer_list import last_leaf
from minidl.engine.network import Network
from minidl.engine.state import tensors
from minidl.layers.base import Layer
from minidl.layers.embedding import CATEGORIES_HINT, Embedding
from minidl.layers.outputs import Outputs, check_output
from minidl.losses import Loss
from minidl.utils.arrays import Array, as_floats
from minidl.utils.data import numbered
from minidl.utils.errors import InputError
from minidl.utils.validation import Shape
from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.softmax import SoftmaxOp
from minidl_c.runtime.plan import Plan


def one_output(name: str, network: Network, output: str | None) -> tuple[Sequence[Layer], Shape]:
    """Returns the layers at the end of one output, and its shape; output: its name, of several, else None.

    Raises ValueError, beginning with `name`, for another one.
    """
    last, outputs = network.layers[-1], network.outputs
    check_output(name, outputs, output)
    if output is None or outputs is None or not isinstance(last, Outputs):
        return network.layers, network.out_shape
    return [*network.layers[:-1], *last.branches[output]], outputs.shapes[output]


def link_of(name: str, layers: Sequence[Layer], outputs: Shape, loss: Loss | None) -> str:
    """Returns "Softmax" or "Sigmoid", the layer that makes probabilities of these outputs.

    It is what the loss applies. Without a loss, a softmax is assumed, or a sigmoid for a single score; "" for outputs
    of a Softmax, which are probabilities. Raises ValueError, beginning with `name`, for other losses, and for outputs
    that are not scores (classes,).
    """
    if loss is not None:
        link = getattr(loss, "applies", None)
        if link not in ("Softmax", "Sigmoid"):
            expected = (
                'expected a loss such as softmax_cross_entropy, or with an attribute applies = "Softmax" or "Sigmoid"'
            )
            raise ValueError(f"{name}: {expected}, got {loss!r}, whose applies is {link!r}")
    elif (last := last_leaf(layers)).output_kind == "other":  # functions of probabilities, or of labels
        raise ValueError(f"{name}: expected a model without a {type(last).__name__} at its end, got one")
    else:
        link = "" if last.output_kind == "probabilities" else "Sigmoid" if outputs[0] == 1 else "Softmax"
    if len(outputs) != 1:
        made = f"Sequential([{link}()], model.output_shape, dtype=model.dtype).predict(model.predict(X))"
        remedy = f"for each position: {made if link else 'model.predict(X)'}"
        if name == "softmax" and link:  # of an export
            remedy = f"export Sequential([model, {link}()], model.input_shape)"
        raise ValueError(f"{name}: expected a model with outputs (classes,), got {outputs}; {remedy}")
    if outputs == (1,) and link != "Sigmoid":
        raise ValueError(f"{name}: expected at least two scores for a softmax, got outputs {outputs}")
    return str(link)


def predicted_probabilities(scores: Array, link: str, network: Network) -> Array:
    """Returns the `probabilities` of what a network predicted; raises as `check_defined`."""
    result = probabilities(scores, link)
    check_defined(result, network, "probabilities")
    return result


def probabilities(scores: Array, link: str) -> Array:
    """Returns the probabilities (n, classes) of outputs (n, classes), in their dtype.

    link: what `link_of` returned. A single score s counts as scores 0 and s of a softmax: 1 - sigmoid(s), sigmoid(s).
    """
    scores = as_floats(scores, "scores")
    if scores.ndim != 2:
        raise ValueError(f"scores: expected shape (n, classes), got {scores.shape}")
    if not link:
        return scores
    if scores.shape[1] == 1:
        scores, link = np.pad(scores, ((0, 0), (1, 0))), "Softmax"
    out = np.empty_like(scores)
    _plan_of(link, scores.shape[1:], scores.dtype.name).predict(scores, None, np.empty(0, scores.dtype), out, 1)
    return out


def check_defined(values: Array, network: Network, what: str) -> None:
    """Raises InputError, naming the rows, for NaN among the scores or probabilities of finite X.

    Raises ValueError instead if parameters of the model are not finite: every X would be refused.
    """
    if not (undefined := np.isnan(values).any(axis=1)).any():
        return
    for name, array in tensors(network.layers).items():
        if not np.isfinite(array).all():
            raise ValueError(f"model: expected finite parameters, got NaN or infinity in {name!r}")
    overflow = f"a layer overflows {network.dtype}, or has no number for them"
    hint = overflow if network.name_of(Embedding) is None else CATEGORIES_HINT
    raise InputError(f"X: expected rows with {what}, got NaN for {numbered(np.flatnonzero(undefined))}: {hint}")


@lru_cache(16)
def _plan_of(link: str, shape: Shape, dtype: str) -> Plan:
    """Returns the plan of a softmax or a sigmoid, for any thread: making one takes longer than running it."""
    op = SoftmaxOp(shape, dtype) if link == "Softmax" else ActivationOp(shape, "sigmoid", dtype=dtype)
    return Plan([op], [0])
