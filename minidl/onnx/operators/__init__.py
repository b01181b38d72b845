"""What a layer is in ONNX, and what an operator of ONNX is in layers: both directions of a family in one file.

`WRITE` are the layers that can be exported, each with the function that writes its nodes; `READ` the operators that can
be imported, each with the function that makes layers of a node. Containers, and nodes in which branches meet, are in
`minidl.onnx.exporting` and `minidl.onnx.importing`.
"""

from minidl.layers.base import Layer
from minidl.onnx.node_reader import Read
from minidl.onnx.node_writer import Write
from minidl.onnx.operators import activations, arithmetic, convolutions, dense, norms, pools, shapes

FAMILIES = (activations, convolutions, dense, norms, arithmetic, pools, shapes)

WRITE: dict[type[Layer], Write] = {cls: write for family in FAMILIES for cls, write in family.WRITE.items()}
READ: dict[str, Read] = {op: read for family in FAMILIES for op, read in family.READ.items()}
