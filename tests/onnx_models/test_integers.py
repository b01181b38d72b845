"""Quantized nets in ONNX files: valid, with the bytes of minidl up to the rounding of floats, in onnxruntime."""

import numpy as np
import pytest
import reference_integer
from integer_programs import random_program
from onnx_models.nets import run_onnxruntime, run_reference
from slow_marks import slow_after

import minidl
from minidl import Sequential, Trainer, layers, quantize
from minidl.datasets import load_digits
from minidl.onnx.operators.integers import NEGLIGIBLE
from minidl.optimizers import Adam
from minidl.quantization import QuantizedModel
from minidl.quantization import program as p

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

UNIT = 2.0**-24  # of rounding in float32
ROUNDINGS = 12  # of one term beside those of the sum: two scales, their products and quotients, and the factor


def exported(model, folder, **options):
    """Returns the path of the file, and its content, which is valid."""
    import onnx

    minidl.onnx.export(model, folder / "net.onnx", **options)
    content = onnx.load(str(folder / "net.onnx"))
    onnx.checker.check_model(content, full_check=True)
    return folder / "net.onnx", content


def run(content, x, optimized=False):
    """Returns the outputs; by the kernels of floats unless optimized: those of integers saturate on some processors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x})


def steps_between(model, scores, X):
    """Returns how far int8 numbers of scores are from those of the model."""
    return np.abs(model[:1].layers[0].quantized(scores).astype(int) - model.predict_int8(X))


def ops(content):
    return [node.op_type for node in content.graph.node]


# ---- each operation


def bytes_of_values(content, program, x):
    """Returns int8 values (n, c, h, w) of all operations; the last node of an operation has written its value."""
    from onnx import TensorProto, helper

    del content.graph.output[:]
    sources = []  # of each value: the output of a node, or the value that it is a copy of
    for k, prefix in enumerate(["0.input.", *(f"0.{i}." for i in range(len(program.operations)))]):
        own = [node for node in content.graph.node if node.name.startswith(prefix) and node.op_type != "Constant"]
        if not own:  # a copy in the same order
            (source,) = program.operations[k - 1].inputs
            sources.append(sources[source])
            continue
        sources.append(own[-1].output[0])
    for name in dict.fromkeys(sources):
        content.graph.output.append(helper.make_tensor_value_info(name, TensorProto.UINT8, None))
    found = dict(zip(dict.fromkeys(sources), run(content, x), strict=True))
    shapes = [(-1, *value.shape) for value in program.values]
    return [
        (found[name].astype(int) - 128).astype(np.int8).reshape(shape)
        for name, shape in zip(sources, shapes, strict=True)
    ]


def largest_error(o, inputs, zeros):
    """Returns a bound, in steps, of the error of floats before they are rounded to steps.

    A sum of n terms in float32 has an error of at most n + ROUNDINGS units of the sum of their absolute values. Copies,
    tables and maxima have none.
    """
    centred = [np.abs(x.astype(np.int64) - zero).astype(float) for x, zero in zip(inputs, zeros, strict=True)]
    match o:
        case p.SumOfProducts():
            n, largest = o.weights[0].size, centred[0].max()
            sums = np.abs(o.biases.astype(float)) + largest * np.abs(o.weights.astype(float)).sum(axis=(1, 2, 3))
            return (n + ROUNDINGS) * UNIT * (sums * o.multipliers / 2.0**o.shifts).max()
        case p.AveragePool():
            n = max(b - a for a, b in o.rows) * max(b - a for a, b in o.columns)
            factor = max(m / 2.0**shift for m, shift in o.factors.values())
            return (n + ROUNDINGS) * UNIT * n * centred[0].max() * factor + NEGLIGIBLE
        case p.Add():
            total = sum(x * abs(m) / 2.0**o.shift for x, m in zip(centred, o.multipliers, strict=True))
            return (len(inputs) + ROUNDINGS) * UNIT * total.max() + len(inputs) * NEGLIGIBLE
        case p.Multiply():
            return ROUNDINGS * UNIT * (centred[0] * centred[1]).max() * o.multiplier / 2.0**o.shift + NEGLIGIBLE
    return None


@pytest.mark.parametrize("seed", slow_after(60, range(600)))
def test_operations_of_random_programs(seed, tmp_path):
    """Each operation, from what onnxruntime computed before it: a table may make any error of its input larger.

    Two numbers that differ by e are rounded to whole numbers that differ by less than 1 + e, whatever halves become.
    """
    rng = np.random.default_rng(seed)
    program = random_program(rng)
    model = QuantizedModel(program, program.values[0].shape)
    _, content = exported(model, tmp_path)
    x = rng.uniform(-100, 400, (int(rng.integers(1, 8)), *model.input_shape)).astype("f4")
    values = bytes_of_values(content, program, x)
    np.testing.assert_array_equal(values[0], model.quantize_input(x))
    for operation, out, found in zip(program.operations, program.values[1:], values[1:], strict=True):
        inputs = [values[k] for k in operation.inputs]
        zeros = [program.values[k].quantization.zero_point for k in operation.inputs]
        expected = reference_integer.FUNCTIONS[type(operation)](operation, inputs, zeros, out)
        error = largest_error(operation, inputs, zeros)
        largest = 0 if error is None else np.floor(1 + error)
        assert np.abs(found.astype(int) - expected).max(initial=0) <= largest, operation


def test_bytes_beside_the_steps_of_the_input(tmp_path):
    rng = np.random.default_rng(0)
    factors, offsets = rng.uniform(0.01, 2, 3), rng.uniform(-100, 20, 3)
    values = [p.Value((3, 1, 1), p.Quantization(0.5, 3))] * 2
    same = p.Lookup("same", (0,), np.arange(-128, 128).astype(np.int8))
    model = QuantizedModel(p.Program(p.QuantizeInput(factors, offsets), tuple(values), (same,)), (3,))
    x = ((np.arange(-130, 130)[:, None] - offsets) / factors).astype("f4")
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, -np.float32(np.inf))])
    path, _ = exported(model, tmp_path)
    np.testing.assert_array_equal(run_onnxruntime(path, x), model.predict(x))


# ---- nets


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def cnn():
    first = [layers.Rescale(1 / 16), layers.Conv2D(16, 3, padding=1), layers.BatchNorm2D(), layers.ReLU()]
    second = [layers.MaxPool2D(2), layers.Conv2D(16, 3, padding=1), layers.ReLU()]
    return Sequential([*first, *second, layers.Flatten(), layers.Dense(10)], (1, 8, 8))


def gated():
    """A net with tables, sums, gates and means."""
    first = [layers.Rescale(1 / 16), layers.Conv2D(12, 3, padding=1), layers.SiLU()]
    body = [layers.Conv2D(12, 3, padding=1), layers.Tanh(), layers.SqueezeExcite(4)]
    last = [layers.AvgPool2D(2), layers.ReLU6(), layers.GlobalAvgPool2D(), layers.Dense(10)]
    return Sequential([*first, layers.Residual(*body), *last], (1, 8, 8))


NETS = {"cnn": cnn, "gated": gated}


@pytest.fixture(scope="module", params=NETS)
def trained(request, digits):
    model = NETS[request.param]()
    trainer = Trainer(model, "softmax_cross_entropy", Adam(3e-3))
    trainer.fit(digits.X_train, digits.y_train, epochs=4, verbose=0)
    return quantize(model, digits.X_train[:200])


def test_classes_of_digits(trained, digits, tmp_path):
    _, content = exported(trained, tmp_path)
    x = digits.X_test.astype("f4")
    (scores,) = run(content, x)
    steps = steps_between(trained, scores, x)
    assert steps.max() <= 2 and (steps > 0).mean() < 0.02
    top_two = np.sort(trained.predict_int8(x), axis=1)[:, -2:].astype(int)
    clear = top_two[:, 1] - top_two[:, 0] > 2 * steps.max()
    np.testing.assert_array_equal(scores.argmax(axis=1)[clear], trained.predict(x).argmax(axis=1)[clear])
    assert clear.mean() > 0.95
    (scores,) = run(content, x, optimized=True)
    assert (scores.argmax(axis=1) == trained.predict(x).argmax(axis=1)).mean() > 0.95


def test_onnxruntime_computes_with_integers(digits, tmp_path):
    """It replaces operators between pairs by its own of integers, if it finds what they need."""
    import onnx
    import onnxruntime

    path, _ = exported(quantize(cnn(), digits.X_train[:50]), tmp_path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = set(ops(onnx.load(options.optimized_model_filepath)))
    assert found.isdisjoint({"Conv", "Gemm", "QuantizeLinear"})
    assert {"QLinearConv", "QGemm"} <= found


def test_the_format(digits, tmp_path):
    quantized = quantize(cnn(), digits.X_train[:50])
    quantized.metadata, quantized.classes = {"data": "digits"}, [str(k) for k in range(10)]
    _, content = exported(quantized, tmp_path)
    found = [op for op in ops(content) if op not in ("Constant", "DequantizeLinear")]
    convolved = ["Conv", "QuantizeLinear"]
    first, last = ["Cast", "Mul", "Add", "Floor", "Add", "Clip", "Cast"], ["Reshape", "Gemm", "QuantizeLinear"]
    assert found == [*first, *convolved, "MaxPool", *convolved, *last]
    conv = next(node for node in content.graph.node if node.op_type == "Conv")
    assert (conv.name, conv.doc_string) == ("0.0.Conv", "1, Conv2D + 2, BatchNorm2D + 3, ReLU, sum of products")
    entries = {entry.key: entry.value for entry in content.metadata_props}
    assert set(entries) == {"metadata", "class_names", "minidl.integers"}
    (x,), (y,) = content.graph.input, content.graph.output
    assert (x.name, y.name) == ("input", "scores")
    assert [dim.dim_param or dim.dim_value for dim in y.type.tensor_type.shape.dim] == ["N", 10]


POOLS = {
    "padded": (layers.AvgPool2D(3, 2, padding=1), "AveragePool"),
    "counting the padding": (layers.AvgPool2D(3, 2, padding=1, count_include_pad=True), "AveragePool"),
    "to the end": (layers.AvgPool2D(3, 2, ceil_mode=True), "AveragePool"),
    "global": (layers.GlobalAvgPool2D(), "AveragePool"),
    "adaptive": (layers.AdaptiveAvgPool2D(3), "AveragePool"),
    "adaptive in uneven steps": (layers.AdaptiveAvgPool2D(5), "MatMul"),
    "a sum": (layers.Reduce("sum", axis=(1, 2)), "MatMul"),
    "maximum": (layers.MaxPool2D(3, 2, padding=1), "MaxPool"),
    "dilated": (layers.MaxPool2D(2, 1, dilation=2), "MaxPool"),
    "adaptive maximum": (layers.AdaptiveMaxPool2D((5, 4)), "ReduceMax"),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(name, tmp_path):
    pool, op = POOLS[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2, 10, 8)).astype("f4")
    model = quantize(Sequential([layers.Conv2D(3, 3), pool], X.shape[1:]), X)
    path, content = exported(model, tmp_path)
    found = ops(content)
    assert op in found and set(found).isdisjoint({op for _, op in POOLS.values()} - {op})
    for scores in (*run(content, X), run_reference(path, X)):
        assert steps_between(model, scores, X).max() <= 2


SHAPES = {
    "signals": ([layers.Conv1D(3, 3), layers.Sigmoid(), layers.MaxPool1D(2)], (2, 9)),
    "vectors": ([layers.Dense(4), layers.Tanh(), layers.Dense(3)], (5,)),
    "an image of one pixel": ([layers.Conv2D(4, 1), layers.ReLU()], (2, 1, 1)),
    "concatenated": ([layers.Parallel(layers.Conv2D(3, 1), []), layers.Pad2D(1), layers.ChannelShuffle(1)], (2, 3, 4)),
    "reshaped": ([layers.Conv2D(3, 3, padding=1), layers.Reshape((4, 9))], (2, 3, 4)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name, tmp_path):
    parts, shape = SHAPES[name]
    X = np.random.default_rng(0).normal(size=(40, *shape)).astype("f4")
    model = quantize(Sequential(parts, shape), X)
    path, content = exported(model, tmp_path)
    for x in (X, X[:1]):
        for scores in (*run(content, x), run_reference(path, x)):
            assert scores.shape == (len(x), *model.output_shape)
            assert steps_between(model, scores, x).max() <= 2
    assert run(content, X[:0])[0].shape == (0, *model.output_shape)


# ---- options, and what follows


def test_bytes_as_input_and_probabilities(digits, tmp_path):
    model = quantize(cnn(), digits.X_train[:50])
    _, content = exported(model, tmp_path, input_dtype="uint8", softmax=True)
    (found,) = run(content, digits.X_test)
    np.testing.assert_allclose(found, model.predict_proba(digits.X_test), atol=0.02)


def test_float_layers_follow(digits, tmp_path):
    outputs = layers.Outputs(scores=[layers.Dense(3), layers.Softmax()], features=[])
    model = quantize(Sequential([cnn(), outputs], (1, 8, 8)), digits.X_train[:50], float_layers=1)
    _, content = exported(model, tmp_path)
    x = digits.X_test.astype("f4")
    for found, expected in zip(run(content, x), model.predict(x).values(), strict=True):
        np.testing.assert_allclose(found, expected, atol=2.1 * model.program.values[-1].quantization.scale)


def test_it_may_be_a_part_of_other_models(digits, tmp_path):
    model = quantize(cnn(), digits.X_train[:50])
    path, _ = exported(Sequential([model.as_layer(), layers.Rescale(2.0)], (1, 8, 8)), tmp_path)
    x = digits.X_test.astype("f4")
    assert steps_between(model, run_onnxruntime(path, x) / 2, x).max() <= 2


def test_scales_that_float32_does_not_hold_are_refused(tmp_path):
    values = tuple(p.Value((1, 1, 1), p.Quantization(scale, 0)) for scale in (1.0, 1e-40, 1.0))
    one, squares = np.ones(1), [p.Multiply(f"{k}, Square", (k, k), 1, 1) for k in (0, 1)]
    program = p.Program(p.QuantizeInput(one, one), values, tuple(squares))
    with pytest.raises(
        ValueError, match=r"layer 0, IntegerNet: operation 0: y_scale: expected scales from .*, got 1e-40"
    ):
        minidl.onnx.export(QuantizedModel(program, (1,)), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []
