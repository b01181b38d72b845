"""NumPy reference of quantized nets: each operation of minidl.quantization.program, written as its formula."""

import itertools

import numpy as np

from minidl.quantization import program as p


def quantize_input(made, x):
    """Returns int8 (n, c, h, w) of real x."""
    factors, offsets = (of[:, None, None] for of in (made.factors, made.offsets))
    return np.clip(np.floor(x.astype(np.float64) * factors + offsets), p.LOW, p.HIGH).astype(np.int8)


def rescale(sums, multiplier, shift):
    """Returns floor((sums * multiplier + 2**(shift - 1)) / 2**shift), by Python's whole numbers."""
    sums, multiplier, shift = (np.asarray(of).astype(object) for of in (sums, multiplier, shift))
    return (sums * multiplier + 2 ** (shift - 1)) // 2**shift


def clipped(rescaled, zero_point, low=p.LOW, high=p.HIGH):
    return np.clip(rescaled + zero_point, low, high).astype(np.int8)


def run(program, q):
    """Returns the int8 values (n, c, h, w) of all operations, after the quantized input q."""
    values = [q]
    for number, operation in enumerate(program.operations, 1):
        inputs = [values[k] for k in operation.inputs]
        zeros = [program.values[k].quantization.zero_point for k in operation.inputs]
        out = program.values[number]
        y = FUNCTIONS[type(operation)](operation, inputs, zeros, out)
        assert y.shape == (len(q), *out.shape), (operation.label, y.shape, out.shape)
        values.append(y)
    return values


def sum_of_products(o, inputs, zeros, out):
    (x,), (zero,) = inputs, zeros
    n, c, h, w = x.shape
    top, bottom, left, right = o.padding
    outputs, per_group, kh, kw = o.weights.shape
    padded = np.zeros((n, c, h + top + bottom, w + left + right), np.int64)
    padded[:, :, top : top + h, left : left + w] = x.astype(np.int64) - zero
    _, oh, ow = out.shape
    sums = np.zeros((n, outputs, oh, ow), np.int64) + o.biases[:, None, None]
    for i, j in itertools.product(range(kh), range(kw)):
        rows, columns = i * o.dilation[0], j * o.dilation[1]
        taps = padded[:, :, rows :: o.stride[0], columns :: o.stride[1]][:, :, :oh, :ow]
        for k in range(outputs):
            first = k // (outputs // o.groups) * per_group
            sums[:, k] += np.einsum(
                "nchw,c->nhw", taps[:, first : first + per_group], o.weights[k, :, i, j].astype(int)
            )
    assert np.abs(sums).max(initial=0) <= p.SUM_LIMIT
    factors = (of[:, None, None] for of in (o.multipliers, o.shifts))
    return clipped(rescale(sums, *factors), out.quantization.zero_point, o.low, o.high)


def max_pool(o, inputs, zeros, out):
    return _windows(o, inputs[0], o.steps, lambda window, i, j: window.max(axis=(2, 3)))


def average_pool(o, inputs, zeros, out):
    def average(window, i, j):
        sums = (window.astype(np.int64) - zeros[0]).sum(axis=(2, 3))
        factors = o.factors[o.row_counts[i] * o.column_counts[j]]
        return clipped(rescale(sums, *factors), out.quantization.zero_point)

    return _windows(o, inputs[0], (1, 1), average)


def _windows(o, x, steps, function):
    y = np.empty((*x.shape[:2], len(o.rows), len(o.columns)), np.int8)
    for (i, (h0, h1)), (j, (w0, w1)) in itertools.product(enumerate(o.rows), enumerate(o.columns)):
        y[:, :, i, j] = function(x[:, :, h0 : h1 : steps[0], w0 : w1 : steps[1]], i, j)
    return y


def add(o, inputs, zeros, out):
    sums = sum((x.astype(np.int64) - zero) * m for x, zero, m in zip(inputs, zeros, o.multipliers, strict=True))
    assert np.abs(sums).max(initial=0) <= p.SUM_LIMIT - 2 ** (o.shift - 1)
    return clipped(rescale(sums, 1, o.shift), out.quantization.zero_point, o.low, o.high)


def multiply(o, inputs, zeros, out):
    a, b = (x.astype(np.int64) - zero for x, zero in zip(inputs, zeros, strict=True))
    return clipped(rescale(a * b, o.multiplier, o.shift), out.quantization.zero_point)


def lookup(o, inputs, zeros, out):
    return o.table[inputs[0].astype(int) + 128]


def rearrange(o, inputs, zeros, out):
    flat = np.concatenate([x.reshape(len(x), -1) for x in inputs], axis=1)
    fill = np.full((len(flat), 1), out.quantization.zero_point, np.int8)
    return np.concatenate([flat, fill], axis=1)[:, o.index].reshape(len(flat), *out.shape)


FUNCTIONS = {
    p.SumOfProducts: sum_of_products,
    p.MaxPool: max_pool,
    p.AveragePool: average_pool,
    p.Add: add,
    p.Multiply: multiply,
    p.Lookup: lookup,
    p.Rearrange: rearrange,
}
