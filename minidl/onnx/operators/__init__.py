"""Conversion of layers to ONNX operators and back: both directions of a family in one file.

`WRITE` maps a layer class to the function that writes its nodes, `READ` an operator to the function that makes layers
of a node. Containers and joins of branches are in `minidl.onnx.exporting` and `minidl.onnx.importing`.
"""

from minidl.layers.base import Layer
from minidl.onnx.node_reader import ReadFunction
from minidl.onnx.node_writer import WriteFunction
from minidl.onnx.operators import activations, arithmetic, convolutions, dense, norms, pools, shapes

FAMILIES = (activations, convolutions, dense, norms, arithmetic, pools, shapes)

WRITE: dict[type[Layer], WriteFunction] = {cls: write for family in FAMILIES for cls, write in family.WRITE.items()}
READ: dict[str, ReadFunction] = {op: read for family in FAMILIES for op, read in family.READ.items()}
