"""Recurrent layers."""

from __future__ import annotations

import numpy as np

from minidl.c_export.code_writer import CodeWriter, Tensor
from minidl.layers import GRU, LSTM, SimpleRNN
from minidl.utils.arrays import Array


def _steps(writer: CodeWriter) -> tuple[int, ...]:
    """Returns the first arguments of all functions: inputs, units, length, whether all steps are returned, reverse."""
    inputs, length = writer.in_shape
    return inputs, writer["units"], length, int(writer["return_sequences"]), int(writer["reverse"])


def _gates(writer: CodeWriter, name: str, weights: Array, *biases: Array) -> tuple[str, str]:
    """Adds the weights (gates * units, inputs) and the sum of the biases of some gates; returns the names of both."""
    weight = writer.constant(f"weight_{name}", weights.T)
    return weight, writer.constant(f"bias_{name}", np.sum(biases, axis=0, dtype=writer.dtype)) if biases else "0"


def _all_gates(writer: CodeWriter) -> tuple[str, str]:
    weight_ih, weight_hh, *biases = writer.arrays().values()
    return _gates(writer, "gates", np.hstack([weight_ih, weight_hh]), *biases)


def write_simple_rnn(writer: CodeWriter, x: Tensor) -> Tensor:
    relu, scratch = int(writer["nonlinearity"] == "relu"), x.channels + 2 * writer["units"]
    return writer.call("simple_rnn", *_steps(writer), relu, x, *_all_gates(writer), scratch=scratch)


def write_lstm(writer: CodeWriter, x: Tensor) -> Tensor:
    return writer.call("lstm", *_steps(writer), x, *_all_gates(writer), scratch=x.channels + 6 * writer["units"])


def write_gru(writer: CodeWriter, x: Tensor) -> Tensor:
    arrays, units = list(writer.arrays().values()), writer["units"]
    (of_x, of_h, *first), (n_of_x, n_of_h, *last) = ([a[: 2 * units] for a in arrays], [a[2 * units :] for a in arrays])
    gates = _gates(writer, "gates", np.hstack([of_x, of_h]), *first)
    if not writer["reset_after"]:
        n = _gates(writer, "n", np.hstack([n_of_x, n_of_h]), *last)
        return writer.call("gru_reset_before", *_steps(writer), x, *gates, *n, scratch=2 * x.channels + 5 * units)
    of_both = (*_gates(writer, "n_of_x", n_of_x, *last[:1]), *_gates(writer, "n_of_h", n_of_h, *last[1:]))
    return writer.call("gru", *_steps(writer), x, *gates, *of_both, scratch=x.channels + 5 * units)


WRITE = {GRU: write_gru, LSTM: write_lstm, SimpleRNN: write_simple_rnn}
