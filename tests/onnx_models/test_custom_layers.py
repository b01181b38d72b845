"""Layers of users bring their own ONNX nodes."""

import numpy as np
import pytest
from onnx_models.nets import relative_error, run_onnxruntime

from minidl import Layer, Sequential
from minidl.initializers import ones
from minidl.layers import BatchNorm2D, Block, Conv2D, Dense, Flatten, Residual
from minidl.onnx import NodeWriter, export, import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Swish(Layer):
    """y = x * sigmoid(beta * x), with one beta for each channel."""

    def __init__(self, offset=0.0):
        self.offset = offset

    def build(self, in_shape):
        self.beta = self.param("beta", (in_shape[0], *(1,) * (len(in_shape) - 1)), ones)
        return in_shape

    def forward(self, x, training):
        return (x * sigmoid(self.beta.value * x) + self.offset).astype(x.dtype)

    def onnx(self, writer, x):
        assert isinstance(writer, NodeWriter)
        scaled = writer.add_node("Mul", x, writer.param_name("beta"))
        y = writer.add_node("Mul", x, writer.add_node("Sigmoid", scaled))
        return writer.add_node("Add", y, writer.add_constant("offset", writer["offset"])) if self.offset else y


class Bare(Layer):
    """The identity. A subclass adds `onnx`."""

    def forward(self, x, training):
        return x


class Mean(Bare):
    """The mean over height and width, with arguments and a buffer that ONNX does not need."""

    def build(self, in_shape):
        self.seen = self.buffer("seen", in_shape, ones)
        return in_shape[:1]

    def forward(self, x, training):
        return x.mean(axis=(2, 3))

    def onnx(self, writer, x):
        assert (writer.in_shape, writer.out_shape) == (self.in_shape, self.out_shape)
        return writer.add_node("ReduceMean", x, writer.add_int_constant("axes", (2, 3)), keepdims=0)


def randomized(layers, shape, dtype="float32"):
    model, rng = Sequential(layers, shape, dtype=dtype), np.random.default_rng(0)
    for param in model.params.values():
        param.value = rng.normal(size=param.value.shape)
    return model


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_layer_in_numpy(dtype, tmp_path, rng):
    import onnx

    model, path = randomized([Dense(6), Swish(0.5), Dense(3), Swish()], (4,), dtype), tmp_path / "model.onnx"
    x = rng.standard_normal((50, 4)).astype(dtype)
    export(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    assert relative_error(run_onnxruntime(path, x), model.predict(x)) < (1e-6 if dtype == "float32" else 1e-13)
    proto = onnx.load(str(path))
    names = [node.name for node in proto.graph.node]
    assert names == [
        "0.Gemm",
        "1.Mul",
        "1.Sigmoid",
        "1.Mul_2",
        "1.offset",
        "1.Add",
        "2.Gemm",
        "3.Mul",
        "3.Sigmoid",
        "3.Mul_2",
    ]
    assert not proto.metadata_props and {"1.beta", "3.beta"} < {tensor.name for tensor in proto.graph.initializer}


def test_in_containers_on_images_and_with_bytes(tmp_path, rng):
    layers = [Conv2D(4, 3, padding=1), Residual(Block(BatchNorm2D(), Swish()), Bare2()), Swish(), Mean()]
    model, path = randomized(layers, (2, 6, 6)), tmp_path / "model.onnx"
    x = rng.integers(0, 5, (20, 2, 6, 6), dtype="u1")
    export(model, path, "float32", input_dtype="uint8", softmax=True, class_names=list("abcd"))
    assert relative_error(run_onnxruntime(path, x), model.predict_proba(x)) < 1e-5


class Bare2(Bare):
    """The identity, without a node."""

    def onnx(self, writer, x):
        return x


@pytest.mark.parametrize("layers", [[Bare2], [Bare2, Bare2], [Dense, Bare2], [Bare2, Flatten]])
def test_a_layer_without_nodes(layers, tmp_path, rng):
    model = Sequential([cls(3) if cls is Dense else cls() for cls in layers], input_shape=(3,))
    x, path = rng.random((5, 3)).astype("f4"), tmp_path / "model.onnx"
    export(model, path)
    assert relative_error(run_onnxruntime(path, x), model.predict(x)) < 1e-6


def test_a_layer_of_nodes_that_minidl_has_can_be_imported(tmp_path, rng):
    class Halved(Layer):
        def build(self, in_shape):
            self.weight = self.param("weight", (3, *in_shape), ones)
            self.bias = self.param("bias", (3,), ones)
            return (3,)

        def forward(self, x, training):
            return (x @ self.weight.value.T + self.bias.value) / 2

        def onnx(self, writer, x):
            y = writer.add_node("Gemm", x, writer.param_name("weight"), writer.param_name("bias"), transB=1)
            return writer.add_node("Mul", y, writer.add_constant("half", 0.5))

    model, path = randomized([Dense(6), Halved()], (4,)), tmp_path / "model.onnx"
    x = rng.random((5, 4)).astype("f4")
    export(model, path)
    back = import_model(path)
    assert [type(layer).__name__ for layer in back.layers] == ["Dense", "Dense", "Rescale"]
    assert relative_error(back.predict(x), model.predict(x)) < 1e-6


def test_a_layer_with_a_kernel(user, tmp_path, rng):
    class KernelSwish(Layer):
        def build(self, in_shape):
            self.op = user.swish.SwishOp(in_shape, self.dtype)
            return in_shape

        def onnx(self, writer, x):
            return writer.add_node("Mul", x, writer.add_node("Sigmoid", x))

    model = randomized([Conv2D(3, 3), KernelSwish(), Flatten(), Dense(2)], (2, 6, 6))
    x, path = rng.standard_normal((40, 2, 6, 6)).astype("f4"), tmp_path / "model.onnx"
    export(model, path)
    assert relative_error(run_onnxruntime(path, x), model.predict(x)) < 1e-5


def raising(error):
    def write(writer, x):
        raise error

    return write


FAULTS = {
    "no name": (lambda w, x: None, TypeError, "onnx: expected the name of its output, got None"),
    "a foreign name": (
        lambda w, x: "1.Gemm",
        ValueError,
        "onnx: expected the output of a node that it added, got '1.Gemm'",
    ),
    "an operator": (lambda w, x: w.add_node("Swishh", x), ValueError, "expected valid ONNX nodes: .*Swishh"),
    "an attribute": (lambda w, x: w.add_node("Relu", x, beta=1.0), ValueError, "expected valid ONNX nodes: .*beta"),
    "an attribute's type": (lambda w, x: w.add_node("Relu", x, beta=object()), TypeError, "object"),
    "no attribute": (lambda w, x: w.add_node("Elu", x, alpha=None), TypeError, "alpha: expected a number.* got None"),
    "a list's range": (lambda w, x: w.add_node("Elu", x, alpha=[1.0, 1e300]), ValueError, r"alpha: .*, got 1e\+300"),
    "a number as input": (
        lambda w, x: w.add_node("Mul", x, 5),
        TypeError,
        "inputs: expected names of values, got 5",
    ),
    "an argument": (
        lambda w, x: w["nope"],
        ValueError,
        r"writer\['nope'\]: expected an argument of the layer, one of \[\]",
    ),
    "no constant": (lambda w, x: w.add_constant("k", None), TypeError, "k: expected a number .*, got None"),
    "words": (lambda w, x: w.add_constant("k", "two"), TypeError, "k: expected a number .*, got 'two'"),
    "a large constant": (lambda w, x: w.add_constant("k", [1, 1e300]), ValueError, r"k: .*float32 .*, got 1e\+300"),
    "a fraction": (lambda w, x: w.add_int_constant("k", [1, 1.5]), ValueError, "k: .*int64 can hold, got 1.5"),
    "other values": (
        lambda w, x: w.add_node("Neg", x),
        ValueError,
        "onnx: expected nodes with the layer's values for a batch of 1 random example, got others: they differ by",
    ),
    "random values": (
        lambda w, x: w.add_node("Add", x, w.add_node("RandomNormalLike", x)),
        ValueError,
        "onnx: expected nodes with the layer's values",
    ),
    "a mean over the batch": (
        lambda w, x: w.add_node(
            "Expand",
            w.add_node("ReduceMean", x, w.add_int_constant("axes", [0]), keepdims=1),
            w.add_node("Shape", x),
        ),
        ValueError,
        "onnx: expected nodes with the layer's values for a batch of 3 random examples",
    ),
    "another batch": (
        lambda w, x: w.add_node("Concat", x, x, axis=0),
        ValueError,
        r"onnx: expected nodes with the layer's output for a batch of 1 random example, \(1, 3\), got \(2, 3\)",
    ),
    "a fixed batch": (
        lambda w, x: w.add_node("Reshape", x, w.add_int_constant("s", [5, 3])),
        ValueError,
        "expected nodes that can be evaluated: .*reshape",
    ),
    "an attribute's range": (
        lambda w, x: w.add_node("Elu", x, alpha=1e300),
        ValueError,
        "alpha: expected a number that",
    ),
    "an input": (lambda w, x: w.add_node("Add", x, "0.nothing"), ValueError, "expected valid ONNX nodes: .*0.nothing"),
    "no input": (lambda w, x: w.add_node("Add", x, w.param_name("gamma")), ValueError, "expected valid ONNX nodes"),
    "a shape": (
        lambda w, x: w.add_node("Flatten", w.add_node("Tile", x, w.add_int_constant("n", (1, 2)))),
        ValueError,
        "expected valid ONNX nodes: .*dimension",
    ),
    "a dtype": (
        lambda w, x: w.add_node("Add", x, w.add_constant("one", 1, "int64")),
        ValueError,
        "expected valid ONNX",
    ),
    "a constant": (
        lambda w, x: w.add_constant("c", 1, "complex64"),
        ValueError,
        "dtype: expected 'float32', 'float64',",
    ),
    "a constant's name": (
        lambda w, x: w.add_node("Add", w.add_constant("c", 1.0), w.add_constant("c", 1.0)),
        ValueError,
        "expected valid ONNX nodes",
    ),
    "its own error": (raising(ValueError("only for vectors")), ValueError, "Faulty: only for vectors"),
    "its own type error": (raising(TypeError("no")), TypeError, "Faulty: no"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults_name_the_layer(what, tmp_path):
    write, error, message = FAULTS[what]

    class Faulty(Bare):
        def onnx(self, writer, x):
            return write(writer, x)

    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    for layers, name in (
        ([Dense(3), Faulty()], "layer 1, Faulty: "),
        ([Residual(Faulty())], "layer 0, Residual: body.0, F"),
    ):
        with pytest.raises(error, match=message) as caught:
            export(Sequential(layers, input_shape=(3,)), path)
        assert str(caught.value).startswith(name)
    assert path.read_bytes() == b"old"


def test_a_layer_without_the_method(tmp_path):
    message = r"layer 0, Bare: expected a layer that has ONNX nodes, or one with a method onnx\(writer, x\), got"
    with pytest.raises(ValueError, match=message):
        export(Sequential([Bare()], input_shape=(3,)), tmp_path / "model.onnx")


def test_a_layer_without_nodes_that_is_not_the_identity(tmp_path):
    class Doubled(Bare2):
        def forward(self, x, training):
            return 2 * x

    class Halves(Bare2):
        def build(self, in_shape):
            return (in_shape[0] // 2,)

    for layer, message in (
        (Doubled(), "0, Doubled: onnx: expected .* values"),
        (Halves(), "0, Halves: expected valid"),
    ):
        with pytest.raises(ValueError, match=message):
            export(Sequential([layer], input_shape=(4,)), tmp_path / "model.onnx")


@pytest.mark.parametrize("error", [None, ValueError("only for vectors"), KeyError("a")])
def test_a_method_that_changes_its_layer(error, tmp_path):
    class Changing(Swish):
        def onnx(self, writer, x):
            self.beta.value[...] = 7
            if error:
                raise error
            return super().onnx(writer, x)

    model = randomized([Dense(3), Changing()], (4,))
    before = model.state_dict()
    expected = r"but it changed \['beta'\]" if error is None else str(error)
    with pytest.raises(ValueError if error is None else type(error), match=expected):
        export(model, tmp_path / "model.onnx")
    assert all(np.array_equal(before[name], value) for name, value in model.state_dict().items())


def test_containers_and_layers_with_a_kernel_are_compared(tmp_path, rng):
    class Twice(Residual):
        def onnx(self, writer, x):
            return writer.add_node("Add", x, x)

    class Squared(Twice):
        def onnx(self, writer, x):
            return writer.add_node("Mul", x, x)

    class Unbiased(Dense):
        def onnx(self, writer, x):
            return writer.add_node("Gemm", x, writer.param_name("weight"), transB=1)

    model, path = randomized([Dense(3), Twice(Bare2())], (4,)), tmp_path / "model.onnx"
    x = rng.random((5, 4)).astype("f4")
    export(model, path)
    assert relative_error(run_onnxruntime(path, x), model.predict(x)) < 1e-6
    for layer, name in ((Squared(Bare2()), "Squared"), (Unbiased(3), "Unbiased")):
        with pytest.raises(ValueError, match=f"layer 1, {name}: onnx: expected nodes with the layer's values"):
            export(randomized([Dense(3), layer], (4,)), path)


def test_inputs_that_a_layer_does_not_take_are_not_compared(tmp_path):
    class Table(Layer):
        """Values of a table, by their index."""

        def build(self, in_shape):
            self.table = self.param("table", (4,), ones)
            return in_shape

        def forward(self, x, training):
            if (x != x.round()).any():
                raise IndexError("expected integers")
            return self.table.value[x.astype(int)]

        def onnx(self, writer, x):
            far = writer.add_node("Add", x, writer.add_constant("far", 100.0))
            return writer.add_node("Gather", writer.param_name("table"), writer.add_node("Cast", far, to=7))

    class NaNs(Table):
        def forward(self, x, training):
            return np.where(x == x.round(), self.table.value[0], np.nan).astype(x.dtype)

    for layer in (Table(), NaNs()):
        export(Sequential([layer], input_shape=(5,)), tmp_path / "model.onnx")


def test_an_operator_that_the_evaluator_does_not_have(tmp_path, monkeypatch):
    import onnx.reference

    def missing(*_):
        raise NotImplementedError("no such operator")

    monkeypatch.setattr(onnx.reference, "ReferenceEvaluator", missing)
    export(Sequential([Swish()], input_shape=(3,)), tmp_path / "model.onnx")
