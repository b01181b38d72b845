"""Operators with and without attributes, in both orders of inputs, with NumPy implementations of ONNX's specification.

Nothing here needs the onnx package. Values are chosen such that each default matters: variances as small as epsilon,
square weights, overlapping windows.
"""

import math
from functools import partial

import numpy as np
from onnx_models.operator_case import IMAGE, VECTOR, Case, integers, normal, per_channel, positive

LARGEST = float(np.finfo("float64").max)


# ---- activations


def elu(alpha):
    return lambda x: np.where(x < 0, alpha * (np.exp(np.minimum(x, 0)) - 1), x)


def leaky(alpha):
    return lambda x, *slope: np.where(x < 0, (slope[0] if slope else alpha) * x, x)


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / 2**0.5))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def softmax(x, axis=1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x, axis=1):
    return np.log(softmax(x, axis))


def softplus(x):
    return np.log(1 + np.exp(x))


def where_positive(function):
    return lambda x: np.where(x > 0, function(np.abs(x)), np.nan)


def shrink(lambd, bias):
    return lambda x: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def clip(low, high):
    return lambda x, *bounds: np.clip(x, low, high)


LOW, HIGH = np.array(-0.5), np.array(0.75)
FARTHEST = np.array(np.finfo("float32").max)  # written by some exporters for no bound
ACTIVATIONS = {
    "Celu": Case("Celu", elu(1)),
    "Celu alpha": Case(
        "Celu", lambda x: np.where(x < 0, 0.4 * (np.exp(np.minimum(x, 0) / 0.4) - 1), x), attributes={"alpha": 0.4}
    ),
    "Clip": Case("Clip", clip(-0.5, 0.75), (LOW, HIGH)),
    "Clip min": Case("Clip", clip(-0.5, None), (LOW,)),
    "Clip max": Case("Clip", clip(None, 0.75), (None, HIGH)),
    "Clip min 0": Case("Clip", clip(0, None), (np.array(0.0), FARTHEST)),
    "Clip of one number": Case("Clip", clip(-0.5, 6), (np.array([-0.5]), np.array([6.0])), scale=4.0),
    "Clip 6": Case("Clip", clip(0, 6), (np.array(0.0), np.array(6.0)), scale=4.0),
    "Abs": Case("Abs", np.abs),
    "Exp": Case("Exp", np.exp),
    "Log": Case("Log", where_positive(np.log)),
    "Sqrt": Case("Sqrt", where_positive(np.sqrt)),
    "Reciprocal": Case("Reciprocal", lambda x: 1 / x),
    "HardSigmoid": Case("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), scale=3.0),
    "HardSigmoid all": Case(
        "HardSigmoid", lambda x: np.clip(x / 6 + 0.25, 0, 1), attributes={"alpha": 1 / 6, "beta": 0.25}, scale=3.0
    ),
    "LogSoftmax": Case("LogSoftmax", log_softmax, shape=VECTOR),
    "LogSoftmax of channels": Case("LogSoftmax", log_softmax, attributes={"axis": 1}),
    "LogSoftmax of columns": Case("LogSoftmax", lambda x: log_softmax(x, 3)),
    "LogSoftmax before 13": Case("LogSoftmax", lambda x: log_softmax(x, (1, 2, 3)), opset=11),
    "LogSoftmax of images before 13": Case(
        "LogSoftmax", lambda x: log_softmax(x, (2, 3)), attributes={"axis": -2}, opset=12
    ),
    "Mish": Case("Mish", lambda x: x * np.tanh(softplus(x))),
    "Neg": Case("Neg", np.negative),
    "Selu": Case("Selu", lambda x: 1.0507009873554805 * elu(1.6732632423543772)(x)),
    "Selu all": Case("Selu", lambda x: 1.5 * elu(0.5)(x), attributes={"alpha": 0.5, "gamma": 1.5}),
    "Shrink": Case("Shrink", shrink(0.5, 0)),
    "Shrink all": Case("Shrink", shrink(0.25, 0.25), attributes={"lambd": 0.25, "bias": 0.25}),
    "Softplus": Case("Softplus", softplus),
    "Softsign": Case("Softsign", lambda x: x / (1 + np.abs(x))),
    "ThresholdedRelu": Case("ThresholdedRelu", lambda x: np.where(x > 1, x, 0)),
    "ThresholdedRelu alpha": Case("ThresholdedRelu", lambda x: np.where(x > 0.25, x, 0), attributes={"alpha": 0.25}),
    "Elu": Case("Elu", elu(1)),
    "Elu alpha": Case("Elu", elu(0.4), attributes={"alpha": 0.4}),
    "LeakyRelu": Case("LeakyRelu", leaky(0.01)),
    "LeakyRelu alpha": Case("LeakyRelu", leaky(0.3), attributes={"alpha": 0.3}),
    "PRelu": Case("PRelu", leaky(None), (positive(4, 1, 1),)),
    "Gelu": Case("Gelu", gelu),
    "Gelu none": Case("Gelu", gelu, attributes={"approximate": "none"}),
    "Gelu tanh": Case("Gelu", gelu_tanh, attributes={"approximate": "tanh"}),
    "HardSwish": Case("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), scale=3.0),
    "Swish": Case("Swish", lambda x: x / (1 + np.exp(-x)), opset=24),
    "Softmax": Case("Softmax", softmax, shape=VECTOR),
    "Softmax of channels": Case("Softmax", softmax, attributes={"axis": 1}),
    "Softmax of columns": Case("Softmax", lambda x: softmax(x, 3)),
    "Softmax of rows": Case("Softmax", lambda x: softmax(x, 2), attributes={"axis": 2}),
    "Softmax of images before 13": Case("Softmax", lambda x: softmax(x, (1, 2, 3)), opset=11),
    "Softmax before 13": Case("Softmax", softmax, shape=(6, 1, 1), opset=11),
}

# ---- norms


def batch_norm(eps):
    def expected(x, w, b, spatial_mean, var):
        w, b, spatial_mean, var = (per_channel(one, x) for one in (w, b, spatial_mean, var))
        return w * (x - spatial_mean) / np.sqrt(var + eps) + b

    return expected


def group_norm(groups, eps):
    def expected(x, w, b):
        rows = x.reshape(len(x), groups or x.shape[1], -1)
        rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + eps)
        return per_channel(w, x) * rows.reshape(x.shape) + per_channel(b, x)

    return expected


def layer_norm(eps):
    def expected(x, w, b=0):
        axes = tuple(range(-w.ndim, 0))
        return w * (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps) + b

    return expected


def rms_norm(eps):
    def expected(x, w):
        return w * x / np.sqrt((x**2).mean(tuple(range(-w.ndim, 0)), keepdims=True) + eps)

    return expected


STATISTICS = (normal(4), normal(4, 1)[:, 0], normal(1, 4)[0], 1e-5 * positive(4))
AFFINE, SMALL = (normal(4), normal(4, 1)[:, 0]), 3e-3


def local_response_norm(size, alpha=1e-4, beta=0.75, bias=1.0):
    def expected(x):
        padded = np.pad(x**2, [(0, 0), (size // 2, size // 2), *[(0, 0)] * (x.ndim - 2)])
        sums = sum(padded[:, i : i + x.shape[1]] for i in range(size))
        return x / (bias + alpha / size * sums) ** beta

    return expected


NORMS = {
    "LRN": Case("LRN", local_response_norm(3), (), {"size": 3}, scale=30.0),
    "LRN all": Case(
        "LRN", local_response_norm(5, 0.5, 0.25, 2.0), (), {"size": 5, "alpha": 0.5, "beta": 0.25, "bias": 2.0}
    ),
    "BatchNormalization": Case("BatchNormalization", batch_norm(1e-5), STATISTICS),
    "BatchNormalization 11": Case("BatchNormalization", batch_norm(1e-5), STATISTICS, opset=11),
    "BatchNormalization of vectors": Case("BatchNormalization", batch_norm(1e-5), STATISTICS, shape=(4,)),
    "BatchNormalization epsilon": Case("BatchNormalization", batch_norm(1e-3), STATISTICS, {"epsilon": 1e-3}),
    "InstanceNormalization": Case("InstanceNormalization", group_norm(0, 1e-5), AFFINE, scale=SMALL),
    "InstanceNormalization epsilon": Case("InstanceNormalization", group_norm(0, 0.1), AFFINE, {"epsilon": 0.1}),
    "GroupNormalization": Case("GroupNormalization", group_norm(2, 1e-5), AFFINE, {"num_groups": 2}, scale=SMALL),
    "GroupNormalization epsilon": Case(
        "GroupNormalization", group_norm(2, 0.1), AFFINE, {"num_groups": 2, "epsilon": 0.1}
    ),
    "LayerNormalization": Case("LayerNormalization", layer_norm(1e-5), (normal(6),), shape=VECTOR, scale=SMALL),
    "LayerNormalization bias": Case(
        "LayerNormalization", layer_norm(1e-5), (normal(6), normal(6, 1)[:, 0]), shape=VECTOR, scale=SMALL
    ),
    "LayerNormalization epsilon": Case(
        "LayerNormalization", layer_norm(0.1), (normal(*IMAGE),), {"axis": 1, "epsilon": 0.1}
    ),
    "LayerNormalization of rows": Case("LayerNormalization", layer_norm(1e-5), (normal(7), normal(7, 1)[:, 0])),
    "LayerNormalization of channels": Case("LayerNormalization", layer_norm(1e-5), (normal(6, 7),), {"axis": 2}),
    "RMSNormalization of rows": Case("RMSNormalization", rms_norm(1e-5), (normal(7),), opset=23),
    "RMSNormalization": Case("RMSNormalization", rms_norm(1e-5), (normal(6),), shape=VECTOR, scale=SMALL, opset=23),
    "RMSNormalization epsilon": Case(
        "RMSNormalization", rms_norm(0.1), (normal(*IMAGE),), {"axis": 1, "epsilon": 0.1}, opset=23
    ),
}

# ---- windows


def windows(x, kernel, strides, pads, dilations=(1, 1), fill=0.0):
    """Returns a view of each window: (n, c, oh, ow, kh, kw)."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
    return views[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def conv(strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1):
    def expected(x, w, b=None):
        parts = zip(np.split(x, group, 1), np.split(w, group), strict=True)
        ys = [np.einsum("nchwij,kcij->nkhw", windows(a, v.shape[2:], strides, pads, dilations), v) for a, v in parts]
        return np.concatenate(ys, 1) + (0 if b is None else per_channel(b, x))

    return expected


def conv_transpose(strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, extra=(0, 0)):
    def expected(x, w, b=None):
        (n, _, *size), (_, filters, *kernel) = x.shape, w.shape
        full = [
            (a - 1) * s + d * (k - 1) + 1 + e
            for a, s, d, k, e in zip(size, strides, dilations, kernel, extra, strict=True)
        ]
        y = np.zeros((n, group * filters, *full))
        for i, j in np.ndindex(*kernel):
            parts = zip(np.split(x, group, 1), np.split(w, group), strict=True)
            contribution = np.concatenate([np.einsum("nchw,ck->nkhw", a, v[:, :, i, j]) for a, v in parts], 1)
            top, left = i * dilations[0], j * dilations[1]
            y[:, :, top :: strides[0], left :: strides[1]][:, :, : size[0], : size[1]] += contribution
        y = y[:, :, pads[0] : full[0] - pads[2], pads[1] : full[1] - pads[3]]
        return y + (0 if b is None else per_channel(b, x))

    return expected


def max_pool(strides=(1, 1), pads=(0, 0, 0, 0)):
    return lambda x: windows(x, (3, 2), strides, pads, fill=-np.inf).max((4, 5))


def average_pool(strides=(1, 1), pads=(0, 0, 0, 0), counts=False):
    def expected(x):
        cells = windows(np.ones_like(x), (3, 2), strides, pads, fill=float(counts)).sum((4, 5))
        return windows(x, (3, 2), strides, pads).sum((4, 5)) / cells

    return expected


WEIGHT, TRANSPOSED, KERNEL = (normal(3, 4, 3, 3),), (normal(4, 3, 3, 2),), {"kernel_shape": [3, 2]}
STRIDE_2 = {"kernel_shape": [3, 3], "strides": [2, 2]}
ALL_ATTRIBUTES = {"strides": [2, 3], "pads": [1, 0, 1, 0], "dilations": [1, 2]}
STRIDES_AND_PADS = {"strides": [2, 1], "pads": [1, 0, 1, 0]}
UNEVEN_STRIDES = {**KERNEL, "strides": [2, 2]}
WINDOWS = {
    "Conv": Case("Conv", conv(), WEIGHT),
    "Conv bias": Case("Conv", conv(), (*WEIGHT, normal(3))),
    "Conv strides": Case("Conv", conv(strides=(2, 1)), WEIGHT, {"strides": [2, 1]}),
    "Conv pads": Case("Conv", conv(pads=(1, 0, 2, 3)), WEIGHT, {"pads": [1, 0, 2, 3]}),
    "Conv dilations": Case("Conv", conv(dilations=(2, 1)), WEIGHT, {"dilations": [2, 1]}),
    "Conv group": Case("Conv", conv(group=2), (normal(6, 2, 3, 3),), {"group": 2}),
    "Conv of each channel": Case("Conv", conv(group=4), (normal(8, 1, 3, 3),), {"group": 4}),
    "Conv all": Case("Conv", conv((2, 3), (1, 0, 1, 0), (1, 2)), WEIGHT, ALL_ATTRIBUTES),
    "Conv VALID": Case("Conv", conv(), WEIGHT, {"auto_pad": "VALID", "kernel_shape": [3, 3]}),
    "Conv SAME_UPPER": Case("Conv", conv((2, 2), (0, 1, 1, 1)), WEIGHT, {"auto_pad": "SAME_UPPER", **STRIDE_2}),
    "Conv SAME_LOWER": Case("Conv", conv((2, 2), (1, 1, 0, 1)), WEIGHT, {"auto_pad": "SAME_LOWER", **STRIDE_2}),
    "ConvTranspose": Case("ConvTranspose", conv_transpose(), TRANSPOSED),
    "ConvTranspose bias": Case("ConvTranspose", conv_transpose(), (*TRANSPOSED, normal(3))),
    "ConvTranspose strides": Case("ConvTranspose", conv_transpose((2, 1)), TRANSPOSED, {"strides": [2, 1]}),
    "ConvTranspose pads": Case("ConvTranspose", conv_transpose(pads=(1, 0, 1, 0)), TRANSPOSED, {"pads": [1, 0, 1, 0]}),
    "ConvTranspose dilations": Case(
        "ConvTranspose", conv_transpose(dilations=(1, 3)), TRANSPOSED, {"dilations": [1, 3]}
    ),
    "ConvTranspose group": Case("ConvTranspose", conv_transpose(group=2), TRANSPOSED, {"group": 2}),
    "ConvTranspose output_padding": Case(
        "ConvTranspose", conv_transpose((2, 3), extra=(1, 2)), TRANSPOSED, {"strides": [2, 3], "output_padding": [1, 2]}
    ),
    "MaxPool": Case("MaxPool", max_pool(), (), KERNEL),
    "MaxPool strides and pads": Case("MaxPool", max_pool((2, 1), (1, 0, 1, 0)), (), {**KERNEL, **STRIDES_AND_PADS}),
    "MaxPool ceil_mode": Case("MaxPool", max_pool((2, 2), (0, 0, 1, 1)), (), {**UNEVEN_STRIDES, "ceil_mode": 1}),
    "MaxPool ceil_mode without a window in the end padding": Case(
        "MaxPool",
        max_pool((2, 4), (1, 1, 2, 1)),
        (),
        {**KERNEL, "strides": [2, 4], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        opset=22,
    ),
    "MaxPool no ceil_mode": Case("MaxPool", max_pool((2, 2)), (), UNEVEN_STRIDES),
    "AveragePool": Case("AveragePool", average_pool(), (), KERNEL),
    "AveragePool pads": Case("AveragePool", average_pool((2, 1), (1, 0, 1, 0)), (), {**KERNEL, **STRIDES_AND_PADS}),
    "AveragePool pads that count": Case(
        "AveragePool",
        average_pool((2, 1), (1, 0, 1, 0), True),
        (),
        {**KERNEL, **STRIDES_AND_PADS, "count_include_pad": 1},
    ),
    "AveragePool ceil_mode": Case(
        "AveragePool", average_pool((2, 2), (0, 0, 1, 1)), (), {**UNEVEN_STRIDES, "ceil_mode": 1}
    ),
    "AveragePool no ceil_mode": Case("AveragePool", average_pool((2, 2)), (), UNEVEN_STRIDES),
}

# ---- matrices, arithmetic


def gemm(x, w, b=0):
    return x @ w + b


NUMBER, CHANNELS = normal(1), positive(4, 1, 1)


def depth_to_space(x, crd=False):
    """As torch.nn.PixelShuffle, or with the block before the channels: blocks of 2x2."""
    n, c, h, w = x.shape
    if not crd:
        x = x.reshape(n, 4, c // 4, h, w).swapaxes(1, 2)
    return x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)


def space_to_depth(x):
    return np.concatenate([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=1)


ARITHMETIC = {
    "Gemm": Case("Gemm", gemm, (normal(6, 6),), shape=VECTOR),
    "Gemm bias": Case("Gemm", gemm, (normal(6, 6), normal(6)), shape=VECTOR),
    "Gemm one bias": Case("Gemm", gemm, (normal(6, 6), NUMBER), shape=VECTOR),
    "Gemm transB": Case("Gemm", lambda x, w: x @ w.T, (normal(6, 6),), {"transB": 1}, shape=VECTOR),
    "Gemm all": Case(
        "Gemm", gemm, (normal(6, 6), normal(6)), {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}, shape=VECTOR
    ),
    "Gemm alpha, beta": Case(
        "Gemm",
        lambda x, w, b: 0.5 * (x @ w) + 2.0 * b,
        (normal(6, 6), normal(6)),
        {"alpha": 0.5, "beta": 2.0},
        shape=VECTOR,
    ),
    "Slice": Case("Slice", lambda x, *_: x[:, 1:3], (integers(1), integers(3), integers(1))),
    "Slice from the end": Case("Slice", lambda x, *_: x[:, -3:], (integers(-3), integers(2**62), integers(-3))),
    "Slice of two axes": Case("Slice", lambda x, *_: x[:, 1:4], (integers(0, 1), integers(99, 4), integers(3, 1))),
    "Slice of rows": Case("Slice", lambda x, *_: x[:, :, 2:5], (integers(2), integers(5), integers(2))),
    "Slice of rows and columns": Case(
        "Slice", lambda x, *_: x[:, :, 1:, :-1], (integers(0, 1, 0), integers(2**31 - 1, 99, -1), integers(0, 2, 3))
    ),
    "Slice in steps": Case(
        "Slice", lambda x, *_: x[:, :, 1::2, ::3], (integers(1, 0), integers(6, 99), integers(2, 3), integers(2, 3))
    ),
    "Slice backwards": Case(
        "Slice",
        lambda x, *_: x[:, ::-2, 4:1:-1],
        (integers(-1, 4), integers(-(2**63), -5), integers(1, 2), integers(-2, -1)),
    ),
    "DepthToSpace": Case("DepthToSpace", depth_to_space, (), {"blocksize": 2}, shape=(8, 2, 3)),
    "DepthToSpace CRD": Case(
        "DepthToSpace", partial(depth_to_space, crd=True), (), {"blocksize": 2, "mode": "CRD"}, shape=(8, 2, 3)
    ),
    "SpaceToDepth": Case("SpaceToDepth", space_to_depth, (), {"blocksize": 2}, shape=(3, 4, 6)),
    "Slice steps": Case("Slice", lambda x, *_: x[:, 2:], (integers(2), integers(9), integers(1), integers(1))),
    "Transpose": Case("Transpose", lambda x: x.transpose(0, 2, 3, 1), (), {"perm": [0, 2, 3, 1]}),
    "Transpose of rows": Case("Transpose", lambda x: x.transpose(0, 1, 3, 2), (), {"perm": [0, 1, 3, 2]}),
    "MatMul": Case("MatMul", gemm, (normal(6, 6),), shape=VECTOR),
    "MatMul of rows": Case("MatMul", np.matmul, (normal(7, 5),)),
    "Max": Case("Max", np.maximum, (LOW,)),
    "Max of numbers": Case("Max", lambda a, x, b: np.maximum(x, 0.75), (LOW, HIGH), x_index=1),
    "Min": Case("Min", np.minimum, (HIGH,)),
    "Pow": Case("Pow", np.power, (np.array(2.0),)),
    "Pow integer": Case("Pow", np.power, (integers(3),)),
    "Pow negative": Case("Pow", lambda x, n: 1 / x**4, (np.array(-4.0),)),
    "Mul of features": Case("Mul", np.multiply, (normal(6),), shape=VECTOR),
} | {
    f"{op} {what}, x is input {x_index}": Case(op, expected, (array,), x_index=x_index)
    for op, expected, positions in (
        ("Add", np.add, (0, 1)),
        ("Mul", np.multiply, (0, 1)),
        ("Sub", np.subtract, (0, 1)),
        ("Div", np.divide, (0, 1)),
    )
    for what, array in (
        ("a number", np.abs(NUMBER)),
        ("channels", CHANNELS),
        ("negative channels", -CHANNELS),
        ("all axes", CHANNELS[None]),
        ("elements", positive(1, 4, 6, 7)),
        ("columns", -positive(7)),
        ("rows", positive(6, 1)),
    )
    for x_index in positions
}

# ---- shapes


def repeat_pixels(x, roi, scales):
    return x.repeat(int(scales[2]), 2).repeat(int(scales[3]), 3)


def pad_with(value):
    return lambda x, pads, *rest: np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 3)), constant_values=value)


def numpy_pad(**options):
    def expected(x, pads, *rest):
        return np.pad(x, np.reshape(pads, (2, -1)).T, **options)

    return expected


def spatial_mean(keeps):
    return lambda x, axes: x.mean((2, 3), keepdims=keeps)


PADS, AXES = integers(0, 0, 1, 0, 0, 0, 2, 3), integers(2, 3)
SHAPES = {
    "Flatten": Case("Flatten", lambda x: x.reshape(len(x), -1)),
    "Flatten with a negative axis": Case("Flatten", lambda x: x.reshape(len(x), -1), (), {"axis": -3}),
    "Reshape": Case("Reshape", lambda x, shape: x.reshape(5, 4, 42), (integers(0, 0, -1),)),
    "Pad": Case("Pad", pad_with(0.0), (PADS,)),
    "Pad value": Case("Pad", pad_with(0.5), (PADS, np.array(0.5))),
    "Pad reflect": Case("Pad", numpy_pad(mode="reflect"), (PADS,), {"mode": "reflect"}),
    "Pad edge": Case("Pad", numpy_pad(mode="edge"), (integers(0, 0, 9, 1, 0, 0, 8, 0),), {"mode": "edge"}),
    "Pad wrap": Case("Pad", numpy_pad(mode="wrap"), (PADS,), {"mode": "wrap"}),
    "Pad of a signal": Case(
        "Pad", numpy_pad(mode="reflect"), (integers(0, 0, 1, 0, 0, 3),), {"mode": "reflect"}, (4, 6)
    ),
    "Pad of a vector": Case("Pad", numpy_pad(mode="edge"), (integers(0, 1, 0, 3),), {"mode": "edge"}, VECTOR),
    "Pad of channels": Case("Pad", numpy_pad(), (integers(0, 1, 0, 2, 0, 2, 1, 0),)),
    "Pad axes": Case("Pad", pad_with(0.0), (integers(0, 1, 3, 2), None, integers(3, 2))),
    "Resize": Case("Resize", repeat_pixels, (None, np.array([1, 1, 2, 3.0]))),
    "Resize floor": Case(
        "Resize",
        repeat_pixels,
        (None, np.array([1, 1, 2, 3.0])),
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "Expand": Case("Expand", lambda x, shape: x.repeat(3, 2).repeat(2, 3), (integers(1, 1, 3, 2),), shape=(4, 1, 1)),
    "ReduceSum": Case("ReduceSum", lambda x, axes: x.sum(1, keepdims=True), (integers(1),)),
    "ReduceSum keepdims": Case("ReduceSum", lambda x, axes: x.sum(1), (integers(-3),), {"keepdims": 0}),
    "ReduceMean": Case("ReduceMean", spatial_mean(True), (AXES,)),
    "ReduceMean keepdims": Case("ReduceMean", spatial_mean(False), (AXES,), {"keepdims": 0}),
    "ReduceMean of channels": Case("ReduceMean", lambda x: x.mean(1, keepdims=True), (), {"axes": [1]}, opset=17),
    "ReduceMin": Case("ReduceMin", lambda x, axes: x.min((1, 3), keepdims=True), (integers(3, -3),)),
    "ReduceL1": Case("ReduceL1", lambda x, axes: np.abs(x).sum(2), (integers(2),), {"keepdims": 0}),
    "ReduceL2": Case("ReduceL2", lambda x: (x**2).sum(1, keepdims=True) ** 0.5, (), {"axes": [1]}, opset=13),
    "ReduceLogSum": Case("ReduceLogSum", lambda x, axes: where_positive(np.log)(x), (integers(1),), shape=(1,)),
    "ReduceSumSquare": Case(
        "ReduceSumSquare", lambda x, axes: (x**2).sum((1, 2, 3), keepdims=True), (integers(1, 2, 3),)
    ),
    "ReduceMax": Case("ReduceMax", lambda x, axes: x.max((2, 3), keepdims=True), (AXES,)),
    "GlobalAveragePool": Case("GlobalAveragePool", lambda x: x.mean((2, 3), keepdims=True)),
    "GlobalMaxPool": Case("GlobalMaxPool", lambda x: x.max((2, 3), keepdims=True)),
    "Squeeze": Case("Squeeze", lambda x, axes: x.reshape(5, 6), (integers(2, -1),), shape=(6, 1, 1)),
    "Unsqueeze": Case("Unsqueeze", lambda x, axes: x.reshape(5, 1, 6, 1), (integers(1, -1),), shape=VECTOR),
}

CASES = ACTIVATIONS | NORMS | WINDOWS | ARITHMETIC | SHAPES
