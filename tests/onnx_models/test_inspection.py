"""minidl.onnx.inspect: what a file holds, and every obstacle at once, as import_model refuses it."""

import numpy as np
import pytest
from onnx_models.graphs import Graph
from onnx_models.test_normal_form import MY, call, calling, leaky, modified

from minidl import FileError, Sequential, __main__
from minidl.layers import Conv2D, Flatten, ReLU
from minidl.onnx import export, import_model, inspect

pytestmark = pytest.mark.oracle("onnx")


def obstacles(graph, folder, **options):
    """Returns the obstacles; checks that the error of an import lists the same."""
    path = graph.save(folder, out_shape=(None,))
    found = list(map(str, inspect(path, **options).obstacles))
    with pytest.raises(ValueError) as error:
        import_model(path, **options)
    head, *lines = str(error.value).removeprefix(f"{path}: ").split("\n  ")
    assert [line for line in (head, *lines) if line in found] == found
    assert len(found) == 1 or head == f"expected a graph that layers can express, got {len(found)} obstacles:"
    return found


def test_a_file_that_can_be_imported(tmp_path):
    model = Sequential([Conv2D(4, 3), ReLU(), Flatten()], input_shape=(1, 8, 8))
    export(model, tmp_path / "net.onnx")
    found = inspect(tmp_path / "net.onnx")
    version = found.producer.removeprefix("minidl ")
    assert found.inputs == (("input", "float32", ("N", 1, 8, 8)),)
    assert found.outputs == (("scores", "float32", ("N", 144)),)
    assert found.operators == {"Conv": 1, "Relu": 1, "Flatten": 1} and found.opset == 21
    assert found.parameters == 40 and found.macs == model.summary().macs and found.obstacles == ()
    assert str(found) == repr(found) == "\n".join([
        f"file of minidl {version}, opset 21",
        "input 'input': float32 (N, 1, 8, 8)",
        "output 'scores': float32 (N, 144), Flatten of '1.Relu'",
        "nodes: 1 Conv, 1 Relu, 1 Flatten",
        f"40 parameters, {found.macs:,} multiply-adds an example",
        "import_model reads it",
    ])  # fmt: skip


def test_every_obstacle_at_once(tmp_path):
    """Of the input, of nodes before several outputs and after others, in an old opset."""
    g = Graph(opset=9, categories=5, indices="int32", dtype="float32")
    g.add("Sin", "x")
    g.append("Conv", g.normal(2, 3, 3, 3))
    g.outputs = [g.append("Hardmax").last, g.append("Sin").last]
    found = obstacles(g, tmp_path)
    assert found == [
        "input 'x': expected float or double, got int32, not followed by a Cast to one of them",
        "node 'Sin_0' (Sin): no layer of minidl does that (2 such nodes)",
        "node 'Hardmax_2' (Hardmax): no layer of minidl does that",
    ]
    text = str(inspect(tmp_path / "graph.onnx")).splitlines()
    assert text[0] == "file of an unknown program, opset 9, read as opset 11"
    assert text[1] == "input 'x': int32 (batch, 3, 8, 8)" and "nodes: 2 Sin, 1 Conv, 1 Hardmax" in text
    assert "54 parameters" in text and "import_model refuses it: 3 obstacles" in text
    assert [line.strip() for line in text if line.startswith("  ")][:3] == found


def test_several_inputs(tmp_path):
    from onnx import TensorProto, helper

    g = Graph()
    g.add("Sin", g.add("Add", "x", "z"))
    more = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 3, 8, 8])]
    g = modified(g, lambda model: model.graph.input.extend(more))
    g.save = lambda folder, **_: (folder / "graph.onnx").write_bytes(_model(g)) and folder / "graph.onnx"
    assert obstacles(g, tmp_path) == [
        "expected a graph of one input, and outputs, got ['x', 'z'] and ['v1']",
        "node 'Sin_1' (Sin): no layer of minidl does that",
    ]


def _model(graph):
    """Returns the bytes of a graph that reads an input which `Graph.model` does not know."""
    inputs, graph.tensors = dict(graph.tensors), {**graph.tensors, "z": np.zeros((1, 3, 8, 8), "f4")}
    model = graph.model(out_shape=(None,))
    graph.tensors = inputs
    del model.graph.initializer[-1]
    return model.SerializeToString()


def test_dynamic_sizes_hide_nothing(tmp_path):
    g = Graph(shape=(3, "height", 8))
    g.append("Sin").append("Softmax", axis=3)
    first, second = obstacles(g, tmp_path)
    assert first.startswith(
        "input 'x': expected a batch axis and the sizes of all other axes, got ['batch', 3, 'height'"
    )
    assert first.endswith("pass input_shape if they are dynamic") and second.startswith("node 'Sin_0' (Sin): no layer")
    assert len(obstacles(g, tmp_path, input_shape=(3, 8, 8))) == 1
    assert "(batch, 3, height, 8)" in str(inspect(tmp_path / "graph.onnx"))


@pytest.mark.parametrize("dtype", ["float16", "bool", "string"])
def test_an_input_of_another_dtype(dtype, tmp_path):
    from onnx import helper

    g = Graph().append("Sin")
    elem_type = 8 if dtype == "string" else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    modified(g, lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", elem_type))
    first, second = obstacles(g, tmp_path)
    assert first == f"input 'x': expected float or double, got {dtype}" and "(Sin)" in second


def test_an_input_that_is_no_tensor(tmp_path):
    from onnx import TensorProto, helper

    g = Graph().append("Relu")
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 3])
    modified(g, lambda model: model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(tensor)))
    assert obstacles(g, tmp_path)[0] == "input 'x': expected float or double, got sequence_type"


@pytest.mark.parametrize(("op", "hint"), [
    ("If", "it runs graphs: export for fixed shapes"),
    ("LSTM", "expected sequences with the batch first"),
    ("ConvInteger", "its ranges depend on the examples: quantize statically"),
])  # fmt: skip
def test_what_to_do(op, hint, tmp_path):
    from onnx import helper

    g = Graph(shape=(3, 8))
    if op == "If":
        branch = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "then", [], [])
        g.add(op, g.constant(True, "bool"), then_branch=branch, else_branch=branch)
    elif op == "LSTM":
        g.add(op, "x", g.normal(1, 16, 8), g.normal(1, 16, 4), hidden_size=4)
    else:
        g.add(op, "x", g.constant(np.ones((2, 3, 3, 3)), "uint8"))
    (found,) = obstacles(g, tmp_path)
    assert found.startswith(f"node '{op}_0' ({op}): no layer of minidl does that: {hint}")


def test_the_names_of_nodes_below_transposes_are_those_of_the_file(tmp_path):
    """The node is moved before a Transpose: its axes are then others than in the file."""
    g = Graph(shape=(8, 8, 3))
    g.append("Transpose", perm=[0, 3, 1, 2]).append("Conv", g.normal(4, 3, 1, 1)).append("Transpose", perm=[0, 2, 3, 1])
    g.append("Clip", g.constant(1.0), g.constant(0.0))
    for node in g.nodes:
        node.name = ""
    (found,) = obstacles(g, tmp_path)
    assert found.startswith("the node of 'v3' (Clip, with axes (0, 3, 1, 2) of the file as (0, 1, 2, 3)): ")


def test_local_functions(tmp_path):
    g = calling(Graph().append("Twice", domain=MY).append("Sin"), leaky("Twice"))
    found = inspect(g.save(tmp_path, out_shape=(None,)))
    assert found.operators == {"LeakyRelu": 1, "Sin": 1} and len(found.obstacles) == 1
    assert call("Twice", ["x"], ["y"]).domain == MY


HOSTILE = "\x1b[31m\x07\r\u202e"


def hostile(change):
    """Returns a graph with names that terminals would act upon."""
    g = Graph(batch=f"N{HOSTILE}").append("Relu").append("Sin")
    return modified(g, lambda model: (setattr(model, "producer_name", f"me{HOSTILE}\n"), change(model.graph)))


@pytest.mark.parametrize("change", [
    lambda graph: setattr(graph.node[1], "op_type", f"Op{HOSTILE}\n"),
    lambda graph: (setattr(graph.node[1], "domain", f"my{HOSTILE}"), graph.node[1].ClearField("name")),
    lambda graph: setattr(graph.node[1], "name", f"name{HOSTILE}"),
    lambda graph: graph.node[1].output.append(f"v1{HOSTILE}") or graph.node[1].input.append(HOSTILE),
    lambda graph: graph.node.add(op_type="Relu", input=[f"no {HOSTILE}"], output=[HOSTILE]),
    lambda graph: graph.node[0].attribute.add(name=HOSTILE, i=1, type=2),
], ids=range(6))  # fmt: skip
def test_what_is_printed_holds_no_escapes_of_the_file(change, tmp_path, capsys):
    path = str(hostile(change).save(tmp_path))
    for arguments in (["export-c", path, str(tmp_path / "net.c")], ["inspect", path, "--outputs=y"], ["inspect", path]):
        with pytest.raises(SystemExit):
            __main__.main(arguments)
        printed = "".join(capsys.readouterr())
        assert printed.replace("\n", "").isprintable()
    assert "\\x1b[31m" in printed
    with pytest.raises(ValueError) as error:
        import_model(path)
    assert str(error.value).replace("\n", "").isprintable()


def test_damaged_files_and_data_in_other_files_are_errors(tmp_path):
    import onnx

    path = tmp_path / "net.onnx"
    path.write_bytes(b"no ONNX file")
    with pytest.raises(FileError, match=r"net\.onnx: expected an ONNX file"):
        inspect(path)
    export(Sequential([Conv2D(4, 3)], (1, 8, 8)), path)
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(ValueError, match=r"net\.onnx: tensor .*external data.*external_data=True"):
        inspect(path)
    assert inspect(path, external_data=True).obstacles == ()
    (found,) = inspect(path, (1, 9, 9), external_data=True).obstacles
    assert str(found) == "input_shape: expected that of one example, (1, 8, 8) in the file, got (1, 9, 9)"


@pytest.mark.parametrize("obstructed", [False, True])
def test_the_command_line(obstructed, tmp_path, capsys):
    g = Graph(shape=(3, "height", "width"), batch=1)
    g.append("Relu").append("Sin" if obstructed else "Tanh")
    path = str(g.save(tmp_path))
    with pytest.raises(SystemExit) as exit_:
        __main__.main(["inspect", path, "--input-shape", "3,8,8"])
    assert exit_.value.code == int(obstructed)
    assert capsys.readouterr().out == f"{inspect(path, (3, 8, 8))}\n"
    with pytest.raises(SystemExit) as exit_:
        __main__.main(["inspect", path + "x"])
    assert exit_.value.code == 2 and capsys.readouterr().err.startswith("inspect: ")
