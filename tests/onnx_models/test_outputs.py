"""Graphs of several outputs, both ways."""

import numpy as np
import pytest
from onnx_models.nets import randomize
from onnx_models.test_round_trip import without_metadata

import minidl
from minidl import Sequential, Trainer
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, GlobalAvgPool2D, Outputs, ReLU, Residual
from minidl.onnx.exporting import build_graph
from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model
from minidl.optimizers import SGD

SHAPE = (3, 6, 5)
X = np.random.default_rng(0).standard_normal((7, *SHAPE)).astype("f4")
RNG = np.random.default_rng(1)


def make(**branches):
    layers = [Conv2D(4, 3, padding=1), BatchNorm2D(), ReLU(), Outputs(**branches)]
    return randomize(Sequential(layers, SHAPE, seed=2), np.random.default_rng(5))


def policy():
    return [GlobalAvgPool2D(), Dense(5)]


NETS = {
    "heads": lambda: make(policy=policy(), mask=Conv2D(2, 1), value=[Flatten(), Dense(1)]),
    "the body as well": lambda: make(policy=policy(), features=[], again=[]),
    "one": lambda: make(policy=policy()),
    "branches in branches": lambda: make(a=[Residual(Conv2D(4, 3, padding=1), ReLU())], b=Conv2D(2, 3)),
}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.oracle("onnx")
@pytest.mark.parametrize("name", NETS)
def test_round_trip(name, tmp_path):
    model = NETS[name]()
    path = tmp_path / "model.onnx"
    minidl.onnx.export(model, path)
    back = minidl.onnx.import_model(path)
    assert same(back.predict(X), model.predict(X)) and back.get_config() == model.get_config()
    found = build_model(without_metadata(path.read_bytes()), None)  # as if from another program
    given = found.predict(X) if found.output_names else {"policy": found.predict(X)}
    assert same(given, model.predict(X)), found


@pytest.mark.oracle("onnxruntime")
@pytest.mark.parametrize("name", NETS)
def test_onnxruntime_agrees(name, tmp_path):
    import onnxruntime

    model, path = NETS[name](), tmp_path / "model.onnx"
    minidl.onnx.export(model, path)
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    assert names == list(model.output_names)
    for array, (key, expected) in zip(session.run(None, {"input": X}), model.predict(X).items(), strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-5, err_msg=key)


def dense(name, x, y, sizes, tensors):
    tensors[f"{name}.weight"] = RNG.standard_normal(sizes).astype("f4")
    return Node("MatMul", name, [x, f"{name}.weight"], [y])


def graph_of(nodes, tensors, outputs):
    return Graph(nodes, tensors, [ValueInfo("x", "float32", ["N", 3])], [ValueInfo(*one) for one in outputs])


def test_outputs_that_fork_at_several_places():
    """An output is read on: what the others need is carried along."""
    t = {}
    nodes = [
        dense("body", "x", "h", (3, 8), t),
        Node("Relu", "relu", ["h"], ["r"]),
        dense("first", "r", "a", (8, 2), t),
        dense("deeper", "r", "d", (8, 6), t),
        Node("Tanh", "tanh", ["d"], ["features"]),
        dense("second", "features", "b/logits:0", (6, 4), t),
        dense("third", "features", "val", (6, 1), t),
    ]
    outputs = [
        (name, "float32", ["N", size]) for name, size in (("a", 2), ("features", 6), ("b/logits:0", 4), ("val", 1))
    ]
    model = build_model(graph_of(nodes, dict(t), outputs), None)
    assert model.output_names == ("a", "features", "b_logits_0", "output_val")
    x = RNG.standard_normal((5, 3)).astype("f4")
    r = np.maximum(x @ t["body.weight"], 0)
    features = np.tanh(r @ t["deeper.weight"])
    expected = {"a": r @ t["first.weight"], "features": features, "b_logits_0": features @ t["second.weight"]}
    expected["output_val"] = features @ t["third.weight"]
    for name, array in model.predict(x).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)
    trainer = Trainer(model, {"a": "huber", "output_val": "huber"}, SGD(0.1))
    assert trainer.train_batch(x, {"a": np.zeros((5, 2)), "output_val": np.zeros(5)}) > 0


def test_refusals():
    t = {}
    nodes = [dense("body", "x", "h", (3, 8), t)]
    for outputs, message in (
        ([("h", "float32", ["N", 8]), ("y", "float32", ["N", 1])], "expected a value computed"),
        ([("h", "float32", ["N", 8]), ("h2", "float32", ["N", 7])], r"output 'h2': expected shape .*, got .*\(8,\)"),
    ):
        more = [Node("Relu", "relu", ["h"], ["h2"])]
        with pytest.raises(ValueError, match=message):
            build_model(graph_of(nodes + more, dict(t), outputs), None)
    for names in (["input"], ["0"]):
        with pytest.raises(ValueError, match="outputs: expected names other than 'input'"):
            build_graph(Sequential([Outputs(**dict.fromkeys(names, Dense(2)))], (3,)))


@pytest.mark.parametrize("node", [Node("Identity", "", ["c"], ["b"]), Node("Shape", "", ["a"], ["b"])], ids=str)
def test_an_output_that_is_a_constant_is_refused(node):
    ends = [("a", "float32", ["N", 3]), ("b", "float32", None)]
    graph = graph_of([Node("Relu", "", ["x"], ["a"]), node], {"c": np.ones(3, "f4")}, ends)
    expected = "output 'b': expected a value computed from the input, got a constant or a shape"
    with pytest.raises(ValueError, match=f"^{expected}: name the others by `outputs`$"):
        build_model(graph, None)
    with pytest.raises(ValueError, match=f"^{expected}$"):
        build_model(graph, None, "b")


@pytest.mark.oracle("onnx")
def test_options_of_one_output_are_refused(tmp_path):
    model = NETS["heads"]()
    for arguments in ({"softmax": True}, {"class_names": ["a"]}):
        with pytest.raises(ValueError, match=r"expected a model of one output, .*; write model\['policy'\]"):
            minidl.onnx.export(model, tmp_path / "model.onnx", **arguments)
