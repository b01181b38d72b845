"""Graphs as other programs write them, built by hand: nodes in sequence, or with explicit names."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidl.onnx import import_model


@dataclass
class Graph:
    """Nodes and tensors; `append` adds a node after the last one."""

    shape: tuple = (3, 8, 8)
    opset: int = 17
    batch: Any = "batch"
    dtype: str = "float32"
    categories: int = 0  # if not 0, inputs are integers below it, of dtype `indices`
    indices: str = "float32"
    nodes: list = field(default_factory=list)
    tensors: dict = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    seed: int = 0

    def __post_init__(self):
        self.last = "x"
        self.rng = np.random.default_rng(self.seed)

    def normal(self, *shape):
        """Adds a constant of standard normal values; returns its name."""
        return self.constant(self.rng.standard_normal(shape))

    def constant(self, array, dtype=None):
        """Adds a constant, by default of the graph's dtype; returns its name."""
        name = f"c{len(self.tensors)}"
        self.tensors[name] = np.asarray(array, dtype or self.dtype)
        return name

    def integers(self, *numbers):
        return self.constant(np.array(numbers, "int64"), "int64")

    def add(self, op, *inputs, outputs=None, domain=None, **attributes):
        """Adds a node; returns the name of its output."""
        from onnx import helper

        names = outputs or [f"v{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        self.last = names[0]
        return self.last

    def append(self, op, *constants, **attributes):
        """Adds a node that reads the last output, then constants; returns the graph."""
        self.add(op, self.last, *constants, **attributes)
        return self

    def model(self, output=None, out_shape=()):
        """Returns the ModelProto, with inferred shapes of its outputs."""
        from onnx import TensorProto, helper, numpy_helper, shape_inference

        kind = TensorProto.DOUBLE if self.dtype == "float64" else TensorProto.FLOAT
        first = helper.np_dtype_to_tensor_dtype(np.dtype(self.indices)) if self.categories else kind
        inputs = [helper.make_tensor_value_info("x", first, [self.batch, *self.shape])]
        names = self.outputs or [output or self.last]
        outputs = [helper.make_tensor_value_info(name, kind, None) for name in names]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "by hand", inputs, outputs, tensors)
        domains = [helper.make_opsetid(*known) for known in (("", self.opset), ("ai.onnx.ml", 3), ("com.example", 1))]
        domains += [helper.make_opsetid("com.microsoft", 1)] * any(n.domain == "com.microsoft" for n in self.nodes)
        model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=domains, ir_version=8))
        for value in model.graph.output:
            if not value.type.tensor_type.HasField("shape"):
                value.CopyFrom(helper.make_tensor_value_info(value.name, kind, out_shape))
        return model

    def save(self, folder, **options):
        path = folder / "graph.onnx"
        path.write_bytes(self.model(**options).SerializeToString())
        return path


def run_both(graph, path, n=50):
    """Returns the outputs of onnxruntime and of the imported model for n examples, and the model."""
    import onnxruntime

    n = graph.batch if isinstance(graph.batch, int) else n
    x = graph.rng.standard_normal((n, *graph.shape)).astype(graph.dtype)
    if graph.categories:
        x = graph.rng.integers(0, graph.categories, x.shape).astype(graph.indices)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    model = import_model(path)
    return expected, model.predict(x), model


def check(graph, folder, *layers, **options):
    """Checks the names of the imported layers, and their outputs against onnxruntime; returns the model."""
    expected, found, model = run_both(graph, graph.save(folder, **options))
    if layers:
        assert [type(layer).__name__ for layer in model.layers] == list(layers)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5 * max(1, float(np.abs(expected).max())))
    return model
