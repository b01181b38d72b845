"""ONNX's nodes computed by minidl: for each op type, a function from a node with its inputs to its outputs.

An input of ONNX may be a weight here. Axes before the one that an op works on become the batch; one-dimensional images
become images of height 1; padding that a layer does not support becomes a Pad2D before it. An attribute that no
function reads is an error, so nothing is silently ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from oracles.onnx_recurrent import recurrent

from minidl import Sequential, Trainer, layers
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Adagrad, Adam

Arrays = list[np.ndarray]


@dataclass
class Node:
    """One node: attributes, inputs (None if omitted), the shape of its first output, and the number of outputs."""

    op: str
    opset: int
    attributes: dict[str, Any]
    inputs: list[Any]
    shape: tuple[int, ...]
    outputs: int

    def __call__(self, attribute, default=None):
        """Returns an attribute and marks it as read."""
        return self.attributes.pop(attribute, default)

    def input(self, place):
        """Returns an input, or None if it is omitted."""
        return self.inputs[place] if place < len(self.inputs) else None


def outputs(node: Node) -> Arrays:
    """Returns the outputs that minidl can compute. Raises an exception if it does not support the node."""
    if node.op not in OPS:
        raise NotImplementedError(f"no layer, loss or optimizer for {node.op}")
    found = OPS[node.op](node)
    if node.attributes:
        raise NotImplementedError(f"{node.op} with {sorted(node.attributes)}")
    return found


def model_of(chain, x, **state):
    """Returns a model of these layers for x; state: parameters and buffers of the last layer, None if absent."""
    model = Sequential(chain, input_shape=x.shape[1:], dtype=x.dtype.name)
    model.load_state_dict({f"{len(chain) - 1}.{name}": value for name, value in state.items() if value is not None})
    return model


def run(chain, x, **state):
    """Returns the output of these layers for x, in inference."""
    return model_of(chain, x, **state).predict(x)


def examples(x, axis):
    """Returns x with all axes before `axis` merged into the batch."""
    axis %= x.ndim
    return x.reshape(int(np.prod(x.shape[:axis])), *x.shape[axis:])


# ---- windows over images


def image(x):
    """Returns (n, c, w) as images of height 1, and (n, c, h, w) unchanged."""
    return x[:, :, None] if x.ndim == 3 else x


def both(numbers, default):
    """Returns one number per dimension, with `default` for a missing height."""
    return (default,) * (2 - len(numbers)) + tuple(numbers)


def windows(node, x, kernel):
    """Returns (stride, dilation, (top, bottom, left, right)) of windows of this size over x."""
    stride, dilation = both(node("strides", ()), 1), both(node("dilations", ()), 1)
    auto, pads = node("auto_pad", "NOTSET"), node("pads", ())
    if not auto.startswith("SAME"):
        half = len(pads) // 2
        (top, left), (bottom, right) = both(pads[:half], 0), both(pads[half:], 0)
        return stride, dilation, (top, bottom, left, right)
    sides = []
    for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        sides += [total // 2, total - total // 2][:: 1 if auto == "SAME_UPPER" else -1]
    return stride, dilation, tuple(sides)


def padded(sides, kernel, value=0.0):
    """Returns (layers before, padding of the layer): a Pad2D if the layer does not support the padding."""
    top, bottom, left, right = sides
    if (top, left) == (bottom, right) and 2 * top <= kernel[0] and 2 * left <= kernel[1]:
        return [], (top, left)
    return [layers.Pad2D(sides, value)], 0


def conv(node):
    x, w, bias = image(node.input(0)), image(node.input(1)), node.input(2)
    kernel = both(node("kernel_shape", w.shape[2:]), 1)
    stride, dilation, sides = windows(node, x, kernel)
    front, padding = padded(sides, kernel)
    layer = layers.Conv2D(len(w), kernel, stride, padding, dilation, node("group", 1), use_bias=bias is not None)
    return [run([*front, layer], x, weight=w, bias=bias).reshape(node.shape)]


def conv_transpose(node):
    """node.shape determines the total cropping; what the end loses more than the start is cropped here."""
    x, w, bias = image(node.input(0)), image(node.input(1)), node.input(2)
    kernel, group = both(node("kernel_shape", w.shape[2:]), 1), node("group", 1)
    extra, out = both(node("output_padding", ()), 0), both(node.shape[2:], 1)
    stride, dilation, _ = windows(node, x, kernel)
    node("output_shape")
    sizes = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(x.shape[2:], stride, dilation, kernel, strict=True)]
    cuts = [size + e - o for size, e, o in zip(sizes, extra, out, strict=True)]
    padding = tuple(max(cut, 0) // 2 for cut in cuts)
    extra = tuple(e - min(cut, 0) for e, cut in zip(extra, cuts, strict=True))
    filters, use_bias = w.shape[1] * group, bias is not None
    layer = layers.ConvTranspose2D(filters, kernel, stride, padding, extra, dilation, group, use_bias)
    return [run([layer], x, weight=w, bias=bias)[:, :, : out[0], : out[1]].reshape(node.shape)]


def pool_windows(node, x):
    """Returns (kernel, stride, sides, ceil_mode, dilation) of a pooling node."""
    kernel = both(node("kernel_shape"), 1)
    stride, dilation, sides = windows(node, x, kernel)
    return kernel, stride, sides, bool(node("ceil_mode", 0)), dilation


def max_pool(node):
    """The second output, the indices of the maxima, is where the gradient goes."""
    x = image(node.input(0))
    x = x if x.dtype.kind == "f" else x.astype("f4")
    kernel, stride, sides, *options = pool_windows(node, x)
    front, padding = padded(sides, kernel, float(np.finfo(x.dtype).min))
    pool, by_columns = layers.MaxPool2D(kernel, stride, padding, *options), node("storage_order", 0)
    model = model_of([*front, pool], x)
    y = model.predict(x).reshape(node.shape)
    return [y, indices_of_maxima(model, x, by_columns).reshape(node.shape)] if node.outputs == 2 else [y]


def indices_of_maxima(model, x, by_columns):
    """Returns, for each output of the single example, the row- or column-major index that its gradient goes to."""
    size = int(np.prod(model.output_shape))
    model.forward(np.repeat(x, size, axis=0), training=True)
    dx = model.backward(np.eye(size).reshape(size, *model.output_shape))
    channel, row, column = np.unravel_index(dx.reshape(size, -1).argmax(1), x.shape[1:])
    height, width = x.shape[2:]
    return channel * height * width + (column * height + row if by_columns else row * width + column)


def average_pool(node):
    """Unsupported padding that is not counted: divides the padded mean by the fraction of each window inside x."""
    x = image(node.input(0))
    kernel, stride, sides, ceil, dilation = pool_windows(node, x)
    counts = bool(node("count_include_pad", 0))
    front, padding = padded(sides, kernel)
    y = run([*front, layers.AvgPool2D(kernel, stride, padding, ceil, counts, dilation)], x)
    if front and not counts:
        inside = layers.AvgPool2D(kernel, stride, 0, ceil, dilation=dilation)
        y /= run([layers.Pad2D(sides), inside], np.ones_like(x))
    return [y.reshape(node.shape)]


def global_pool(layer):
    return lambda node: [run([layer(), layers.Reshape((node.shape[1], 1, 1))], node.input(0))]


def pad(node):
    x, pads, value, axes = (node.input(place) for place in range(4))
    if node("mode", "constant") != "constant":
        raise NotImplementedError("a mode other than constant")
    pads = node("pads") if pads is None else pads
    value = node("value", 0.0) if value is None else value
    sides = np.zeros((2, 4), int)
    sides[:, np.arange(4) if axes is None else axes] = np.reshape(pads, (2, -1))
    if sides[:, :2].any():
        raise NotImplementedError("padding of batch or channels")
    return [run([layers.Pad2D(tuple(int(n) for n in sides[:, 2:].T.ravel()), float(value))], x)]


def upsample(node):
    """node.shape already accounts for scales, sizes, axes and the aspect-ratio policy."""
    x = node.input(0)
    node("axes"), node("keep_aspect_ratio_policy")
    if node("mode", "nearest") == "linear" and not node("antialias", 0) and not node("exclude_outside", 0):
        return [run([interpolation(node, x)], x)]
    if node("mode", "nearest") != "nearest":
        raise NotImplementedError("a mode other than nearest and linear")
    if any(out % size for out, size in zip(node.shape, x.shape, strict=True)):
        raise NotImplementedError("a scale that is not an integer")
    return [run([layers.Upsample2D((node.shape[2] // x.shape[2], node.shape[3] // x.shape[3]))], x)]


def interpolation(node, x):
    """Returns the bilinear layer of a node."""
    scales, transform = node.input(2), node("coordinate_transformation_mode", "half_pixel")
    if transform not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise NotImplementedError("other coordinates")
    options = {"mode": "bilinear", "align_corners": transform == "align_corners"}
    if scales is None or not len(scales):
        return layers.Upsample2D(size=tuple(node.shape[2:]), **options)
    return layers.Upsample2D(tuple(float(scale) for scale in scales[-2:]), **options)


# ---- matrices and shapes


def dense(x, w, bias=None):
    return run([layers.Dense(len(w), use_bias=bias is not None)], x, weight=w, bias=bias)


def gemm(node):
    a, b, c = (node.input(place) for place in range(3))
    node("broadcast")  # in old versions, always on
    alpha, beta = node("alpha", 1.0), node("beta", 1.0)
    x, w = a.T if node("transA", 0) else a, b if node("transB", 0) else b.T
    return [dense(x, alpha * w, None if c is None else beta * np.broadcast_to(np.ravel(c), (len(w),)))]


def matmul(node):
    a, b = node.inputs
    if b.ndim > 2:
        raise NotImplementedError("a matrix per example")
    return [dense(a.reshape(-1, len(b)), b.reshape(len(b), -1).T).reshape((*a.shape[:-1], *b.shape[1:]))]


def flatten(node):
    return [run([layers.Flatten()], examples(node.input(0), node("axis", 1)))]


def reshape(node):
    """x is treated as one example, since ONNX's shape includes the batch."""
    x, shape = node.inputs
    if node("allowzero", 0):
        raise NotImplementedError("a size of 0")
    kept = tuple(x.shape[i] if size == 0 else int(size) for i, size in enumerate(shape))
    return [run([layers.Reshape(kept)], x[None])[0]]


# ---- normalization


def batch_norm(node):
    """ONNX's momentum weights the old statistics, and its variance is divided by n."""
    x, weight, bias, mean, var = node.inputs
    images = x.reshape(*x.shape[:2], -1, x.shape[-1])
    kept, training = node("momentum", 0.9), node("training_mode", 0)
    node("is_test")  # in old versions
    layer = layers.BatchNorm2D(eps=node("epsilon", 1e-5), momentum=1 - kept)
    state = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var, "num_batches_tracked": 0}
    model = model_of([layer], images, **state)
    if not training:
        return [model.predict(images).reshape(x.shape)]
    y = model.forward(images, training=True).reshape(x.shape)
    after, values = model.state_dict(), x.size // x.shape[1]
    unbiased = after["0.running_var"] - kept * var
    return [y, after["0.running_mean"], kept * var + unbiased * (values - 1) / values]


def layer_norm(node):
    """The other outputs, means and deviations, are internal to minidl's op."""
    x, weight, bias = (node.input(place) for place in range(3))
    bias = np.zeros_like(weight) if bias is None else bias
    rows = examples(x, node("axis", -1))
    return [run([layers.LayerNorm(eps=node("epsilon", 1e-5))], rows, weight=weight, bias=bias).reshape(x.shape)]


def rms_norm(node):
    x, weight = node.inputs
    rows = examples(x, node("axis", -1))
    return [run([layers.RMSNorm(eps=node("epsilon", 1e-5))], rows, weight=weight).reshape(x.shape)]


def group_norm(node):
    x, weight, bias = node.inputs
    layer = layers.GroupNorm(node("num_groups"), eps=node("epsilon", 1e-5))
    return [run([layer], x, weight=weight, bias=bias)]


def instance_norm(node):
    node.attributes["num_groups"] = node.input(0).shape[1]
    return group_norm(node)


# ---- activations


def activation(chain):
    """Returns the function of an elementwise op; chain(node): its layers. The first axis of x is the batch."""

    def function(node):
        x = node.input(0)
        return [run(chain(node), x.reshape(len(x), -1)).reshape(x.shape)]

    return function


def selu(node):
    alpha, gamma = node("alpha"), node("gamma")
    return [layers.SELU()] if alpha is None else [layers.ELU(alpha), layers.Rescale(gamma)]


def clip(node):
    """Integers are clipped as real numbers."""
    x, low, high = (node.input(place) for place in range(3))
    low, high = (given if given is not None else node(name) for given, name in ((low, "min"), (high, "max")))
    bounds = [None if bound is None else float(bound) for bound in (low, high)]
    if x.dtype.kind != "f":
        return [run([layers.Hardtanh(*bounds)], x.reshape(len(x), -1).astype("f4")).reshape(x.shape)]
    return activation(lambda node: [layers.Hardtanh(*bounds)])(node)


def shrink(node):
    lambd, bias = node("lambd", 0.5), node("bias", 0.0)
    if bias not in (0, lambd):
        raise NotImplementedError("another bias than lambd")
    return [layers.Softshrink(lambd) if bias else layers.Hardshrink(lambd)]


def swish(node):
    if node("alpha", 1.0) != 1:
        raise NotImplementedError("an alpha other than 1")
    return [layers.SiLU()]


def prelu(node):
    """Slopes belong to the last axes, or to the channels in old versions."""
    x, slope = node.inputs
    if node.opset < 7:
        return [run([layers.PReLU(shared=slope.size == 1)], x, weight=slope)]
    return [run([layers.PReLU()], x.reshape(-1, slope.size), weight=slope.ravel()).reshape(x.shape)]


def over_axis(layer):
    """Returns the function of a softmax over an axis."""
    return lambda node: [run([layer()], examples(x := node.input(0), node("axis", -1))).reshape(x.shape)]


def dropout(node):
    """x is treated as one example. The second output, in training, is where the gradient is not zero."""
    x, rate, training = (node.input(place) for place in range(3))
    node("seed")
    model = model_of([layers.Dropout(float(node("ratio", 0.5) if rate is None else rate))], x[None])
    if not training:
        return [model.predict(x[None])[0]]
    y = model.forward(x[None], training=True)[0]
    return [y, model.backward(np.ones_like(x[None]))[0] != 0]


# ---- losses


def log_probabilities(x, axis):
    """Returns the log-probabilities along an axis, as negative cross-entropies of every label."""
    scores = np.moveaxis(x, axis, -1)
    rows = scores.reshape(-1, scores.shape[-1])
    losses = [softmax_cross_entropy(rows, np.full(len(rows), label))[0] for label in range(rows.shape[1])]
    return np.moveaxis(-np.stack(losses, axis=1).reshape(scores.shape), -1, axis)


def cross_entropy(node):
    """Class weights and ignored labels become example weights; the mean is computed by a Trainer."""
    x, y, by_class = (node.input(place) for place in range(3))
    ignored = y == node("ignore_index")
    labels = np.where(ignored, 0, y).ravel()
    weights = np.ones(x.shape[1], x.dtype) if by_class is None else by_class
    weights = np.where(ignored.ravel(), 0, weights[labels])
    scores = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    reduction = node("reduction", "mean")
    if reduction == "mean":
        identity = Sequential([layers.Rescale(1.0)], input_shape=scores.shape[1:], dtype=x.dtype.name)
        trainer = Trainer(identity, softmax_cross_entropy, SGD(0.0))
        loss = np.array(trainer.train_batch(scores, labels, sample_weight=weights))
    else:
        losses = weights * softmax_cross_entropy(scores, labels)[0]
        loss = losses.reshape(y.shape) if reduction == "none" else losses.sum()
    return [loss, log_probabilities(x, 1)] if node.outputs == 2 else [loss]


# ---- optimizers


def step(node, optimizer, steps, *names):
    """Updates each parameter once; names: the optimizer's state arrays, in the order of the inputs.

    Inputs: rate, step, parameters, gradients, state arrays. Outputs: parameters and state arrays.
    """
    rate, _, *arrays = node.inputs
    count = len(arrays) // (2 + len(names))
    values, grads, *memory = ([a.copy() for a in arrays[i : i + count]] for i in range(0, len(arrays), count))
    for place, (value, grad) in enumerate(zip(values, grads, strict=True)):
        update = optimizer.update(value.size, value.dtype.name)
        update.steps = steps
        for name, entries in zip(names, memory, strict=True):
            update.state[name][:] = entries[place]
        update.apply(value, grad, float(rate))
        for name, entries in zip(names, memory, strict=True):
            entries[place][:] = update.state[name]
    return [array for arrays in (values, *memory) for array in arrays]


def adam(node):
    """ONNX's step 0 has no bias correction, as a late step of minidl."""
    if node.input(1) > 0:
        raise NotImplementedError("ONNX adds epsilon before the correction")
    betas, decay = (node("alpha", 0.9), node("beta", 0.999)), node("norm_coefficient", 0.0)
    return step(node, Adam(betas=betas, eps=node("epsilon", 1e-6), weight_decay=decay), 10**6, "mean", "squares")


def adagrad(node):
    decay, eps = node("norm_coefficient", 0.0), node("epsilon", 1e-6)
    optimizer = Adagrad(lr_decay=node("decay_factor", 0.0), weight_decay=decay, eps=eps)
    return step(node, optimizer, int(node.input(1)), "squares")


def momentum(node):
    """beta scales the gradient, except in step 0."""
    if node("beta") != 1 and node.input(1) > 0:
        raise NotImplementedError("dampening")
    decay = node("norm_coefficient")
    optimizer = SGD(0.1, node("alpha"), nesterov=node("mode") == "nesterov", weight_decay=decay)
    return step(node, optimizer, int(node.input(1)), "velocity")


OPS: dict[str, Callable[[Node], Arrays]] = {
    "Adagrad": adagrad,
    "Adam": adam,
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "Celu": activation(lambda node: [layers.CELU(node("alpha", 1.0))]),
    "Clip": clip,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Dropout": dropout,
    "Elu": activation(lambda node: [layers.ELU(node("alpha", 1.0))]),
    "Exp": activation(lambda node: [layers.Exp()]),
    "Flatten": flatten,
    "Gelu": activation(lambda node: [layers.GELU(node("approximate", "none"))]),
    "Gemm": gemm,
    "GRU": recurrent,
    "GlobalAveragePool": global_pool(layers.GlobalAvgPool2D),
    "GlobalMaxPool": global_pool(layers.GlobalMaxPool2D),
    "GroupNormalization": group_norm,
    "HardSigmoid": activation(lambda node: [layers.HardSigmoid(node("alpha", 0.2), node("beta", 0.5))]),
    "HardSwish": activation(lambda node: [layers.Hardswish()]),
    "InstanceNormalization": instance_norm,
    "LSTM": recurrent,
    "LayerNormalization": layer_norm,
    "LeakyRelu": activation(lambda node: [layers.LeakyReLU(node("alpha", 0.01))]),
    "LogSoftmax": over_axis(layers.LogSoftmax),
    "MatMul": matmul,
    "MaxPool": max_pool,
    "Mish": activation(lambda node: [layers.Mish()]),
    "Momentum": momentum,
    "Neg": activation(lambda node: [layers.Rescale(-1.0)]),
    "PRelu": prelu,
    "Pad": pad,
    "RNN": recurrent,
    "RMSNormalization": rms_norm,
    "Relu": activation(lambda node: [layers.ReLU()]),
    "Reshape": reshape,
    "Resize": upsample,
    "Selu": activation(selu),
    "Shrink": activation(shrink),
    "Sigmoid": activation(lambda node: [layers.Sigmoid()]),
    "Softmax": over_axis(layers.Softmax),
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "Softplus": activation(lambda node: [layers.Softplus()]),
    "Softsign": activation(lambda node: [layers.Softsign()]),
    "Swish": activation(swish),
    "Tanh": activation(lambda node: [layers.Tanh()]),
    "ThresholdedRelu": activation(lambda node: [layers.Threshold(node("alpha", 1.0), 0.0)]),
    "Upsample": upsample,
}
