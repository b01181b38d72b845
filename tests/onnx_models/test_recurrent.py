"""Recurrent operators as exporters write them: directions, states of zeros, last steps, several layers; refusals."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check
from onnx_models.test_pytorch import TORCHSCRIPT_EXPORTER, export_module
from onnx_models.test_round_trip import check_round_trip, export_bytes, without_metadata

from minidl import Sequential
from minidl.layers import GRU, LSTM, Bidirectional, Conv1D, SimpleRNN
from minidl.onnx import import_model
from minidl.onnx.file.model_file import from_bytes
from minidl.onnx.importing import build_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
LAYERS = {"GRU": "GRU", "LSTM": "LSTM", "RNN": "SimpleRNN"}


def sequences(**options):
    """Returns a graph of sequences (N, 7, 3), as (7, N, 3)."""
    return Graph(shape=(7, 3), **options).append("Transpose", perm=[1, 0, 2])


def add_recurrent(g, op, *others, outputs=("y", "h"), units=4, channels=3, bias=True, **attributes):
    """Adds a node with random weights. others: its inputs from sequence_lens on."""
    directions, rows = 1 + (attributes.get("direction") == "bidirectional"), GATES[op] * units
    inputs = [g.normal(directions, rows, channels), g.normal(directions, rows, units)]
    inputs += [g.normal(directions, 2 * rows) if bias else "", *others]
    g.add(op, g.last, *inputs, outputs=list(outputs), hidden_size=units, **attributes)
    return g


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("op", GATES)
def test_one_direction(op, direction, opset, tmp_path):
    """All steps; the last one as an output of its own, or as PyTorch's y[:, -1], which is y[:, 0] in reverse."""
    for bias in (False, True):
        for what in ("all", "last", "element"):
            g = add_recurrent(sequences(opset=opset), op, direction=direction, bias=bias)
            g.last = "h" if what == "last" else "y"
            number = 0 if what == "last" else 1
            g = g.append("Squeeze", axes=[number]) if opset < 13 else g.append("Squeeze", g.integers(number))
            if what != "last":
                g.append("Transpose", perm=[1, 0, 2])
            if what == "element":
                g.append("Gather", g.constant(0 if direction == "reverse" else -1, "int64"), axis=1)
            names = ["Permute", LAYERS[op], *["Permute"] * (what == "all")]
            layer = check(g, tmp_path, *names).layers[1]
            assert (layer.reverse, layer.return_sequences) == (direction == "reverse", what == "all")


@pytest.mark.parametrize("op", GATES)
def test_both_directions(op, tmp_path):
    """As PyTorch writes them, and as tf2onnx does: parts of the axis of directions."""
    g = add_recurrent(sequences(), op, direction="bidirectional")
    g.last = "y"
    g.append("Transpose", perm=[0, 2, 1, 3]).append("Reshape", g.integers(0, 0, -1)).append("Transpose", perm=[1, 0, 2])
    check(g, tmp_path, "Permute", "Bidirectional", "Permute")
    for output, axis in (("y", 1), ("h", 0)):
        g = add_recurrent(sequences(), op, direction="bidirectional")
        parts = [g.add("Slice", output, *(g.integers(i) for i in (start, start + 1, axis))) for start in (0, 1)]
        parts = [g.add("Squeeze", part, g.integers(axis)) for part in parts]
        g.add("Concat", *parts, axis=-1)
        check(g.append("Transpose", perm=[1, 0, 2]) if axis else g, tmp_path)


@pytest.mark.parametrize(("op", "attributes", "expected"), [
    ("RNN", {"activations": ["Relu"]}, {"nonlinearity": "relu"}),
    ("RNN", {"activations": ["Tanh"]}, {"nonlinearity": "tanh"}),
    ("GRU", {"linear_before_reset": 1}, {"reset_after": True}),
    ("GRU", {"linear_before_reset": 0, "activations": ["Sigmoid", "Tanh"]}, {"reset_after": False}),
    ("LSTM", {"input_forget": 0, "activations": ["Sigmoid", "Tanh", "Tanh"]}, {}),
])  # fmt: skip
def test_attributes(op, attributes, expected, tmp_path):
    g = add_recurrent(sequences(), op, **attributes)
    g.last = "h"
    layer = check(g.append("Squeeze", g.integers(0)), tmp_path, "Permute", LAYERS[op]).layers[1]
    assert {name: getattr(layer, name) for name in expected} == expected


def states(g, kind, value=0.0, directions=1, units=4):
    """Adds a state of equal numbers for any batch size; returns its name."""
    if kind == "constant":
        return g.constant(np.full((directions, g.batch, units), value))
    from onnx import helper

    size = g.add("Gather", g.add("Shape", "x"), g.integers(0), axis=0)
    shape = g.add("Concat", g.integers(directions), size, g.integers(units), axis=0)
    if kind == "Expand":
        return g.add("Expand", g.constant(np.full((directions, 1, units), value)), shape)
    return g.add("ConstantOfShape", shape, value=helper.make_tensor("value", 1, [1], [value]))


@pytest.mark.parametrize("kind", ["constant", "Expand", "ConstantOfShape"])
def test_states_begin_as_zeros(kind, tmp_path):
    for value in (0.0, 0.5):
        g = Graph(shape=(7, 3), batch=6 if kind == "constant" else "batch")
        first = [states(g, kind), states(g, kind, value)]
        g.last = "x"
        add_recurrent(g.append("Transpose", perm=[1, 0, 2]), "LSTM", "", *first)
        g.last = "h"
        g.append("Squeeze", g.integers(0))
        if value:
            with pytest.raises(
                ValueError, match=r"\(LSTM\): expected no initial_c other than zeros: no layer of minidl"
            ):
                import_model(g.save(tmp_path))
        else:
            check(g, tmp_path, "Permute", "LSTM")


@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), [
    ("LSTM", ["lengths"], {}, "expected no sequence_lens: no layer of minidl has that"),
    ("GRU", ["", "states"], {}, "expected no initial_h other than zeros"),
    ("LSTM", ["", "", "", "peepholes"], {}, "expected no P:"),
    ("LSTM", [], {"input_forget": 1}, "expected input_forget=0, got 1"),
    ("GRU", [], {"clip": 3.0}, "expected no clip"),
    ("LSTM", [], {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "expected activations=('Sigmoid', 'Tanh', 'Tanh')"),
    ("RNN", [], {"activations": ["Affine"]}, "expected activations=('Tanh',) or ('Relu',), got ('Affine',)"),
    ("RNN", [], {"activations": ["Tanh", "Relu"], "direction": "bidirectional"}, "got ('Tanh', 'Relu')"),
    ("RNN", [], {"direction": "backward"}, "expected direction='forward' or 'reverse' or"),
    ("GRU", [], {"hidden_size": 5}, "expected hidden_size=4, got 5"),
    ("GRU", [], {"channels": 2}, "expected shape (1, 12, 3) for input 1"),
])  # fmt: skip
def test_what_layers_lack_is_refused_by_name(op, inputs, attributes, message):
    g = sequences(batch=6)
    given = {"lengths": [5] * 6, "states": np.ones((1, 6, 4)), "peepholes": np.ones((1, 12))}
    others = [g.constant(given[name], "int32" if name == "lengths" else None) if name else "" for name in inputs]
    g.last = "v0"
    add_recurrent(g, op, *others, **{"channels": 3, **{k: v for k, v in attributes.items() if k != "hidden_size"}})
    g.last = "h"
    graph = parsed(g.append("Squeeze", g.integers(0)))
    (node,) = (node for node in graph.nodes if node.op == op)
    node.attributes.update({k: v for k, v in attributes.items() if k == "hidden_size"})
    with pytest.raises(ValueError) as error:
        build_model(graph, None)
    assert f"({op}): expected " in str(error.value) and message in str(error.value)


def parsed(g):
    return from_bytes(g.model(out_shape=("batch", 4)).SerializeToString())


def test_nodes_that_are_not_between_transposes_are_refused():
    """The batch of PyTorch's default, batch_first=False, is the second axis; and the state of a cell is no output."""
    g = add_recurrent(Graph(shape=(7, 3)), "LSTM")
    g.last = "h"
    expected = r"\(LSTM\): no layer of minidl does that: expected sequences with the batch first"
    with pytest.raises(ValueError, match=expected):
        build_model(parsed(g.append("Squeeze", g.integers(0))), None)
    g = add_recurrent(sequences(), "LSTM", outputs=("", "h", "c"))
    g.last = "c"
    with pytest.raises(ValueError, match=r"\(LSTM\): expected no Y_c: no layer of minidl has that"):
        build_model(parsed(g.append("Squeeze", g.integers(0))), None)


@pytest.mark.parametrize("layer", [
    LSTM(40), GRU(40, return_sequences=True), Bidirectional(GRU(24, False)), SimpleRNN(70, "relu", reverse=True),
], ids=str)  # fmt: skip
def test_models_of_many_units_round_trip(layer, tmp_path):
    """Weights of more elements than small constants have."""
    model = Sequential([Conv1D(64, 3), layer], (3, 12))
    x = np.random.default_rng(0).standard_normal((5, 3, 12)).astype("f4")
    check_round_trip(model, x, tmp_path / "net.onnx")
    found = build_model(without_metadata(export_bytes(model, tmp_path / "net.onnx")), None)
    assert found.predict(x).tobytes() == model.predict(x).tobytes()


def pytorch_net(kind, how, options):
    """Returns a net that reads all steps, the last one, or the last state of the last layer."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = getattr(torch.nn, kind)(5, 6, batch_first=True, **options)
            self.dense = torch.nn.Linear(6 * (1 + (options.get("bidirectional", False) and how != "state")), 3)

        def forward(self, x):
            y, h = self.recurrent(x)
            h = h[0] if isinstance(h, tuple) else h
            both = torch.cat([h[-2], h[-1]], 1) if how == "states" else None
            return self.dense({"all": y, "last": y[:, -1], "mean": y.mean(1), "state": h[-1], "states": both}[how])

    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.oracle("torch", "onnx")
@pytest.mark.parametrize("options", [
    {}, {"bias": False}, {"num_layers": 2}, {"bidirectional": True}, {"bidirectional": True, "num_layers": 2},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.filterwarnings("error")  # of weights that several nodes share
def test_pytorch_exports(kind, options, tmp_path):
    layer = "Bidirectional" if options.get("bidirectional") else LAYERS[kind]
    for how in ("all", "last", "mean", "state", *["states"] * (layer == "Bidirectional")):
        for folded in (True, False):
            exporter = {**TORCHSCRIPT_EXPORTER, "do_constant_folding": folded}
            x, y = export_module(pytorch_net(kind, how, options), (7, 5), tmp_path / "net.onnx", **exporter)
            model = import_model(tmp_path / "net.onnx")
            np.testing.assert_allclose(model.predict(x), y, 1e-5, 1e-6)
            names = [type(layer).__name__ for layer in model.layers]
            assert names[: 1 + options.get("num_layers", 1)] == ["Permute", *[layer] * options.get("num_layers", 1)]
            assert names.count(layer) == options.get("num_layers", 1)
