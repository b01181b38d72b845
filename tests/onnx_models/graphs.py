"""Graphs as other programs write them, made by hand: nodes in sequence, or with given names."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidl.onnx import import_model


@dataclass
class Graph:
    """Nodes and tensors; `chain` adds a node after the last one."""

    shape: tuple = (3, 8, 8)
    opset: int = 17
    batch: Any = "batch"
    dtype: str = "float32"
    nodes: list = field(default_factory=list)
    tensors: dict = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    seed: int = 0

    def __post_init__(self):
        self.last = "x"
        self.rng = np.random.default_rng(self.seed)

    def normal(self, *shape):
        """A constant of standard normal numbers; returns its name."""
        return self.constant(self.rng.standard_normal(shape))

    def constant(self, array, dtype=None):
        """A constant of the graph's dtype, or of another; returns its name."""
        name = f"c{len(self.tensors)}"
        self.tensors[name] = np.asarray(array, dtype or self.dtype)
        return name

    def whole(self, *numbers):
        return self.constant(np.array(numbers, "int64"), "int64")

    def add(self, op, *inputs, outputs=None, domain=None, **attributes):
        """A node; returns the name of its output."""
        from onnx import helper

        names = outputs or [f"v{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        self.last = names[0]
        return self.last

    def chain(self, op, *constants, **attributes):
        """A node that reads the last output, and then constants; returns the graph."""
        self.add(op, self.last, *constants, **attributes)
        return self

    def model(self, output=None, out_shape=()):
        """The ModelProto, with the shapes that ONNX infers for its outputs."""
        from onnx import TensorProto, helper, numpy_helper, shape_inference

        kind = TensorProto.DOUBLE if self.dtype == "float64" else TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info("x", kind, [self.batch, *self.shape])]
        names = self.outputs or [output or self.last]
        outputs = [helper.make_tensor_value_info(name, kind, None) for name in names]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "by hand", inputs, outputs, tensors)
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.example", 1)]
        model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=domains, ir_version=8))
        for value in model.graph.output:
            if not value.type.tensor_type.HasField("shape"):
                value.CopyFrom(helper.make_tensor_value_info(value.name, kind, out_shape))
        return model

    def save(self, folder, **options):
        path = folder / "graph.onnx"
        path.write_bytes(self.model(**options).SerializeToString())
        return path


def computed(graph, path, n=50):
    """What onnxruntime and the imported model compute of some examples, and the model."""
    import onnxruntime

    n = graph.batch if isinstance(graph.batch, int) else n
    x = graph.rng.standard_normal((n, *graph.shape)).astype(graph.dtype)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    model = import_model(path)
    return expected, model.predict(x), model


def check(graph, folder, *layers, **options):
    """The imported model has these layers, by name, and computes what onnxruntime does."""
    expected, found, model = computed(graph, graph.save(folder, **options))
    if layers:
        assert [type(layer).__name__ for layer in model.layers] == list(layers)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5 * max(1, float(np.abs(expected).max())))
    return model
