"""Quantized nets beside their float nets, for the tests: each operation, and the whole."""

import numpy as np
import reference_integer as reference

from minidl.layers import Conv1D, Conv2D, Dense, DepthwiseConv1D, DepthwiseConv2D
from minidl.quantization import program as p
from minidl.quantization.graph import evaluate
from minidl.quantization.quantizing import converted
from minidl.quantization.ranges import dequantized


def on_grid(model):
    """Rounds the weights of each filter to 255 numbers between its largest and its negative, which int8 can hold."""
    products = (Conv1D, Conv2D, Dense, DepthwiseConv1D, DepthwiseConv2D)
    for leaf in (leaf for layer in model.layers for leaf in layer.leaves() if isinstance(leaf, products)):
        weight = leaf.params["weight"].value
        flat = weight.reshape(len(weight), -1)
        step = np.abs(flat).max(axis=1, keepdims=True) / 127
        step[step == 0] = 1
        weight[...] = (np.rint(flat / step) * step).reshape(weight.shape)
    return model


def input_on_grid(rng, shape, scale=2.0**-5, zero_point=-30):
    """Draws numbers (n, ...) that their own range quantizes without an error."""
    q = rng.integers(-128, 128, shape)
    q.flat[0], q.flat[-1] = -128, 127
    return scale * (q - zero_point)


def integers_of(program, X):
    """Returns all int8 values of a program for examples X, by the reference."""
    shape = program.values[0].shape
    return reference.run(program, reference.quantize_input(program.input, np.reshape(X, (-1, *shape))))


def outputs_of(quantized, X):
    """Returns the real outputs (n, size)."""
    made = quantized.program.values[-1].quantization
    return dequantized(integers_of(quantized.program, X)[-1], made).reshape(len(X), -1)


def check_operations(model, X):
    """Quantizes a model, and compares each operation with its layers' float function of the same integers.

    An operation may differ by half a step of its output, and by the rounding of its factors. The graph must compute
    what the model does.
    """
    quantized = converted(on_grid(model), X, "minmax", len(model) - 1)
    program, nodes = quantized.program, quantized.nodes
    floats = evaluate(nodes, np.reshape(X, (-1, *nodes[0].shape)).astype(model.dtype))
    last = floats[nodes[-1]].reshape(len(X), -1)
    np.testing.assert_allclose(last, model.predict(X).reshape(len(X), -1), rtol=1e-5, atol=1e-6)
    values = [dequantized(q, v.quantization) for q, v in zip(integers_of(program, X), program.values, strict=True)]
    for node in nodes[1:]:
        k = quantized.places[node]
        inputs = [values[quantized.places[x]].astype(model.dtype) for x in node.inputs]
        with np.errstate(all="ignore"):
            expected = node.evaluate(*inputs).reshape(values[k].shape).astype(np.float64)
        made = program.values[k].quantization
        low, high = dequantized(np.array([-128, 127]), made)
        error = np.abs(np.clip(np.nan_to_num(expected), low, high) - values[k])
        assert (error <= made.scale / 2 + tolerance(program, k)).all(), (node.label, error.max() / made.scale)
    return quantized


def tolerance(program, k):
    """Returns what the rounding of an operation's biases and factors may add to half a step."""
    operation, made = program.operations[k - 1], program.values[k].quantization
    if isinstance(operation, p.SumOfProducts):
        with np.errstate(all="ignore"):
            step = operation.multipliers / 2.0**operation.shifts * made.scale  # of a sum, in each channel
        return (0.51 * step + 1e-4 * made.scale)[:, None, None]
    return 1e-3 * made.scale


def kinds_of(quantized):
    """Returns the kinds of the operations, in order."""
    return [operation.kind for operation in quantized.program.operations]
