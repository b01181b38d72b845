"""Random ONNX graphs for onnx_random.py: one function for each family of operators, which adds a node to a graph.

Each takes a graph and the name of a value, and returns the name of its result, or None if the operator does not take a
value of this shape. Attributes are drawn from all that the operator documents.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

BATCH, MAX_SIZE = 3, 4096
ACTIVATIONS = (
    "Relu", "Sigmoid", "Tanh", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign", "HardSigmoid", "Celu", "Abs", "Neg",
    "Erf", "Exp", "Identity", "Floor",
)  # fmt: skip
OPSETS = (13, 15, 17, 18, 20, 21)


class Graph:
    """Nodes and constants; the shape of each value, without the batch."""

    def __init__(self, rng):
        self.rng, self.nodes, self.tensors, self.shapes = rng, [], [], {}
        self.opset = int(rng.choice(OPSETS))

    def chance(self, share):
        return self.rng.random() < share

    def choose(self, *options):
        return options[self.rng.integers(len(options))]

    def number(self, low, high):
        """Draws an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def constant(self, array, dtype="float32"):
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weights(self, *shape):
        terms = max(1, int(np.prod(shape[1:])))
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(terms))

    def integers(self, *numbers):
        return self.constant(numbers, "int64")

    def add(self, op, *inputs, shape, outputs=1, **attributes):
        """Adds a node; returns the name of its first output, of this shape."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}{len(self.nodes)}", **attributes))
        for name in names:
            self.shapes[name] = tuple(int(size) for size in shape)
        return names[0]

    def axis(self, x, first=1):
        """Draws an axis of a value from `first` on, counted from the front or from the end."""
        rank = len(self.shapes[x]) + 1
        axis = self.number(first, rank - 1)
        return axis - rank if self.chance(0.3) else axis

    def model(self, last, in_shape):
        value = helper.make_tensor_value_info
        inputs = [value("x", TensorProto.FLOAT, ["batch", *in_shape])]
        outputs = [value(last, TensorProto.FLOAT, ["batch", *self.shapes[last]])]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


# ---- one value


def activation(g, x):
    op = g.choose(*ACTIVATIONS)
    has_alpha = op in ("LeakyRelu", "Elu", "Celu") and g.chance(0.7)
    return g.add(op, x, shape=g.shapes[x], **({"alpha": float(g.rng.uniform(0.05, 1))} if has_alpha else {}))


def clip(g, x):
    low, high = np.sort(g.rng.standard_normal(2))
    ends = [g.constant(low) if g.chance(0.8) else "", g.constant(high) if g.chance(0.8) else ""]
    return g.add("Clip", x, *ends, shape=g.shapes[x])


def prelu(g, x):
    shape = g.shapes[x]
    return g.add("PRelu", x, g.weights(*g.choose((shape[0], *(1,) * (len(shape) - 1)), (1,))), shape=shape)


def positive(g, x):
    """Sqrt, Log and Reciprocal of a value away from zero."""
    shape = g.shapes[x]
    above = g.add("Add", g.add("Abs", x, shape=shape), g.constant(0.5), shape=shape)
    op = g.choose("Sqrt", "Log", "Reciprocal", "Pow")
    return g.add(op, above, *([g.constant(g.choose(2.0, 0.5, 3.0, -1.0))] if op == "Pow" else []), shape=shape)


def arithmetic(g, x):
    """A constant that broadcasts against an example."""
    shape, op = g.shapes[x], g.choose("Add", "Sub", "Mul", "Div")
    sizes = [size if g.chance(0.6) else 1 for size in shape]
    keep = g.number(0, len(sizes))
    sizes = [1, *sizes] if g.chance(0.2) else sizes[keep:]
    numbers = g.rng.standard_normal(sizes)
    if op == "Div":
        numbers = np.sign(numbers) * (np.abs(numbers) + 0.5)
    c = g.constant(numbers)
    return g.add(op, *((c, x) if op != "Div" and g.chance(0.2) else (x, c)), shape=shape)


def extremum(g, x):
    return g.add(g.choose("Max", "Min"), x, g.constant(g.rng.standard_normal()), shape=g.shapes[x])


def softmax(g, x):
    return g.add(g.choose("Softmax", "LogSoftmax"), x, shape=g.shapes[x], axis=g.axis(x))


def reduction(g, x):
    shape, op = g.shapes[x], g.choose("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceMin")
    axes = sorted({g.number(1, len(shape)) for _ in range(g.number(1, len(shape)))})
    keep = g.number(0, 1)
    out = [1 if i + 1 in axes else size for i, size in enumerate(shape)]
    if not keep:
        out = [size for i, size in enumerate(shape) if i + 1 not in axes]
    if not out:
        return None
    as_input = op == "ReduceSum" or g.opset >= 18
    if as_input:
        return g.add(op, x, g.integers(*axes), shape=out, keepdims=keep)
    return g.add(op, x, shape=out, keepdims=keep, axes=axes)


def normalization(g, x):
    shape = g.shapes[x]
    if len(shape) < 2:
        return None
    op, channels = g.choose("BatchNormalization", "InstanceNormalization", "LRN"), shape[0]
    if op == "LRN" and len(shape) != 3:  # onnxruntime takes images only
        return None
    if op == "LRN":
        return g.add(op, x, shape=shape, size=g.choose(1, 3, 5), alpha=0.1, beta=0.75, bias=float(g.choose(1, 2)))
    both = g.weights(channels), g.weights(channels)
    if op == "InstanceNormalization":
        return g.add(op, x, *both, shape=shape) if np.prod(shape[1:]) > 1 else None
    statistics = g.weights(channels), g.constant(g.rng.random(channels) + 0.3)
    epsilon = float(g.choose(0.0, 1e-5, 1e-3))
    return g.add(op, x, *both, *statistics, shape=shape, epsilon=epsilon)


def layer_norm(g, x):
    axis = g.number(1, len(g.shapes[x]))
    rest = g.shapes[x][axis - 1 :]
    if g.opset < 17 or np.prod(rest) < 2:
        return None
    return g.add("LayerNormalization", x, g.weights(*rest), g.weights(*rest), shape=g.shapes[x], axis=axis)


# ---- windows


def windows(g, shape, most=3):
    """Draws kernel, strides, dilations and pads of one axis each, and the sizes that they give; None if none fits."""
    kernel, strides, pads, out = [], [], [], []
    for size in shape[1:]:
        k, stride = g.number(1, min(most, size)), g.choose(1, 1, 2)
        before, after = g.number(0, k // 2), g.number(0, k // 2)
        kernel.append(k)
        strides.append(stride)
        pads.append((before, after))
        out.append((size + before + after - k) // stride + 1)
    pads = [before for before, _ in pads] + [after for _, after in pads]
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}, out


def convolution(g, x):
    shape = g.shapes[x]
    if len(shape) not in (2, 3):
        return None
    geometry, out = windows(g, shape)
    groups = g.choose(*[n for n in range(1, shape[0] + 1) if shape[0] % n == 0])
    filters = groups * g.number(1, max(1, 8 // groups))
    w = g.weights(filters, shape[0] // groups, *geometry["kernel_shape"])
    b = [g.weights(filters)] if g.chance(0.6) else []
    return g.add("Conv", x, w, *b, shape=(filters, *out), group=groups, **geometry)


def transposed(g, x):
    shape = g.shapes[x]
    if len(shape) not in (2, 3) or max(shape[1:]) > 9:
        return None
    filters, kernel, strides = g.number(1, 4), [], []
    for _ in shape[1:]:
        strides.append(g.choose(1, 2))
        kernel.append(g.number(strides[-1], 3))
    out = [(size - 1) * s + k for size, s, k in zip(shape[1:], strides, kernel, strict=True)]
    w = g.weights(shape[0], filters, *kernel)
    return g.add("ConvTranspose", x, w, shape=(filters, *out), strides=strides, kernel_shape=kernel)


def pool(g, x):
    shape = g.shapes[x]
    if len(shape) not in (2, 3):
        return None
    if g.chance(0.15):
        op = g.choose("GlobalAveragePool", "GlobalMaxPool")
        return g.add(op, x, shape=(shape[0], *(1,) * (len(shape) - 1)))
    geometry, out = windows(g, shape)
    op = g.choose("MaxPool", "AveragePool")
    more = {"count_include_pad": g.number(0, 1)} if op == "AveragePool" else {}
    return g.add(op, x, shape=(shape[0], *out), **geometry, **more)


def pad(g, x):
    shape, mode = g.shapes[x], g.choose("constant", "reflect", "edge")
    if len(shape) < 2:
        return None
    before, after = ([g.number(0, min(2, size - 1)) for size in shape[1:]] for _ in range(2))
    if not any(before + after):
        return None
    out = [shape[0], *(size + a + b for size, a, b in zip(shape[1:], before, after, strict=True))]
    value = [g.constant(g.rng.standard_normal())] if mode == "constant" and g.chance(0.4) else []
    return g.add("Pad", x, g.integers(0, 0, *before, 0, 0, *after), *value, shape=out, mode=mode)


# ---- shapes


def reshape(g, x):
    shape = g.shapes[x]
    size = int(np.prod(shape))
    a = g.choose(*[n for n in range(1, size + 1) if size % n == 0])
    b = g.choose(*[n for n in range(1, size // a + 1) if size // a % n == 0])
    out = g.choose((size,), (a, size // a), (a, b, size // a // b))
    first = g.choose(0, -1)
    return g.add("Reshape", x, g.integers(first, *out), shape=out)


def flatten(g, x):
    return g.add("Flatten", x, shape=(np.prod(g.shapes[x]),), axis=1)


def transpose(g, x):
    order = g.rng.permutation(len(g.shapes[x]))
    out = [g.shapes[x][i] for i in order]
    return g.add("Transpose", x, shape=out, perm=[0, *(int(i) + 1 for i in order)])


def slicing(g, x):
    shape, axis = g.shapes[x], g.number(1, len(g.shapes[x]))
    size, step = shape[axis - 1], g.choose(1, 1, 2)
    start = g.number(0, size - 1)
    end = g.number(start + 1, size)
    out = list(shape)
    out[axis - 1] = -(-(end - start) // step)
    if g.chance(0.3):
        end = end - size if end < size else 2**63 - 1  # the same, counted from the end
    return g.add("Slice", x, *(g.integers(number) for number in (start, end, axis, step)), shape=out)


def space(g, x):
    shape = g.shapes[x]
    if len(shape) != 3:
        return None
    c, h, w = shape
    if h % 2 == 0 and w % 2 == 0 and g.chance(0.5):
        return g.add("SpaceToDepth", x, shape=(4 * c, h // 2, w // 2), blocksize=2)
    if c % 4 == 0:
        return g.add("DepthToSpace", x, shape=(c // 4, 2 * h, 2 * w), blocksize=2, mode=g.choose("DCR", "CRD"))
    return None


def shuffle(g, x):
    shape = g.shapes[x]
    groups = g.choose(*[n for n in range(1, shape[0] + 1) if shape[0] % n == 0])
    if len(shape) < 2 or groups in (1, shape[0]):
        return None
    rest = shape[1:] if g.chance(0.5) else (int(np.prod(shape[1:])),)
    parts = (groups, shape[0] // groups, *rest)
    a = g.add("Reshape", x, g.integers(0, *parts), shape=parts)
    b = g.add("Transpose", a, shape=(parts[1], parts[0], *rest), perm=[0, 2, 1, *range(3, len(parts) + 1)])
    return g.add("Reshape", b, g.integers(-1, *shape), shape=shape)


def resize(g, x):
    shape = g.shapes[x]
    if len(shape) != 3 or max(shape[1:]) > 9:
        return None
    a, b = g.number(1, 2), g.number(1, 2)
    scales = g.constant([1, 1, a, b])
    out = (shape[0], a * shape[1], b * shape[2])
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if g.chance(0.5):
        return g.add("Resize", x, "", scales, shape=out, mode="linear")
    return g.add("Resize", x, "", scales, shape=out, mode="nearest", **modes)


def dense(g, x):
    shape = g.shapes[x]
    if len(shape) > 1 and g.chance(0.7):
        x = flatten(g, x)
        shape = g.shapes[x]
    outputs = g.number(1, 6)
    if len(shape) == 1 and g.chance(0.5):
        return g.add("Gemm", x, g.weights(outputs, shape[0]), g.weights(outputs), shape=(outputs,), transB=1)
    return g.add("MatMul", x, g.weights(shape[-1], outputs), shape=(*shape[:-1], outputs))


UNARY = (
    activation, activation, activation, clip, prelu, positive, arithmetic, arithmetic, extremum, softmax, reduction,
    normalization, layer_norm, convolution, convolution, convolution, transposed, pool, pool, pad, reshape, flatten,
    transpose, slicing, space, shuffle, resize, dense,
)  # fmt: skip


# ---- branches


def extended(g, x, operator):
    """Returns the operator's result; x if it does not take x, or becomes large."""
    y = operator(g, x)
    return x if y is None or np.prod(g.shapes[y]) > MAX_SIZE else y


def series(g, x, length):
    """Adds some operators one after another, which keep the shape."""
    for _ in range(length):
        x = extended(g, x, g.choose(activation, arithmetic, softmax))
    return x


def elementwise(g, x):
    """Branches of equal shapes, added, multiplied and so on."""
    shape, op = g.shapes[x], g.choose("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean")
    count = g.number(2, 3) if op in ("Sum", "Max", "Min", "Mean") else 2
    branches = [series(g, x, g.number(0, 2)) for _ in range(count)]
    if op in ("Div", "Pow"):  # of positive numbers, away from zero
        branches = [g.add("Sigmoid", branch, shape=shape) for branch in branches]
        branches = [g.add("Add", branch, g.constant(0.5), shape=shape) for branch in branches]
    return g.add(op, *branches, shape=shape)


def concatenation(g, x):
    axis = g.axis(x)
    branches = [series(g, x, g.number(0, 2)) for _ in range(g.number(2, 3))]
    out = list(g.shapes[x])
    out[axis - 1 if axis > 0 else axis] *= len(branches)
    return g.add("Concat", *branches, shape=out, axis=axis)


def gate(g, x):
    """A factor for each channel."""
    shape = g.shapes[x]
    if len(shape) != 3:
        return None
    one = (shape[0], 1, 1)
    mean = g.add("GlobalAveragePool", x, shape=one)
    factor = g.add("Sigmoid", g.add("Conv", mean, g.weights(shape[0], *one), shape=one), shape=one)
    return g.add("Mul", *g.choose((x, factor), (factor, x)), shape=shape)


def splitting(g, x):
    shape, axis = g.shapes[x], g.number(1, len(g.shapes[x]))
    size = shape[axis - 1]
    if size % 2 or g.opset >= 18:
        return None
    part = list(shape)
    part[axis - 1] = size // 2
    first = g.add("Split", x, shape=part, outputs=2, axis=axis)
    second = first[:-1] + "1"
    branches = [series(g, name, g.number(0, 1)) for name in (first, second)]
    return g.add("Concat", *branches[:: g.choose(1, -1)], shape=shape, axis=axis)


def crossed(g, x):
    """A value that is read in three places which do not nest."""
    shape = g.shapes[x]
    a = series(g, x, 1)
    b = g.add("Add", a, x, shape=shape)
    c = g.add("Mul", b, a, shape=shape)
    return g.add("Add", series(g, c, 1), b, shape=shape)


BRANCHED = (elementwise, elementwise, concatenation, gate, splitting, crossed)


def draw_graph(rng):
    """Returns a model of random operators, and examples for it."""
    g = Graph(rng)
    images, signals = (g.number(1, 4), g.number(3, 9), g.number(3, 9)), (g.number(1, 6), g.number(4, 20))
    last, shape = "x", g.choose(images, signals, (g.number(2, 24),))
    g.shapes["x"] = shape
    for _ in range(g.number(1, 6)):
        last = extended(g, last, g.choose(*UNARY, *BRANCHED))
    if last == "x":
        last = activation(g, "x")
    return g.model(last, shape), rng.standard_normal((BATCH, *shape)).astype(np.float32)
