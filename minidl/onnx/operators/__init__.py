"""Mappings between layers and ONNX operators: one module for each family, with both directions.

`WRITE_FUNCTIONS` maps each exportable layer to the function that writes its nodes, `READ_FUNCTIONS` each importable
operator to the function that turns a node into layers, and `REWRITTEN_READ_FUNCTIONS` each operator of the passes.
Containers and joins are in `minidl.onnx.exporting` and `minidl.onnx.importing`.
"""

from minidl.layers.base import Layer
from minidl.onnx.graph import REWRITTEN, Node
from minidl.onnx.node_reader import ReadFunction
from minidl.onnx.node_writer import WriteFunction
from minidl.onnx.operators import (
    activations,
    arithmetic,
    channels,
    convolutions,
    dense,
    embedding,
    integers,
    norms,
    pools,
    recurrent,
    reductions,
    shapes,
    softmax,
)
from minidl.onnx.passes.activation_patterns import ACTIVATION
from minidl.onnx.passes.gathers import CHANNEL_STEPS, LOOKUP, STRIDED_VIEW
from minidl.onnx.passes.norm_patterns import CHANNEL_NORM
from minidl.onnx.passes.quantization import FAKE_QUANTIZE
from minidl.onnx.passes.recurrent import RECURRENT
from minidl.onnx.passes.splits import SPLIT_PART
from minidl.onnx.passes.tensordots import TENSORDOT
from minidl.onnx.passes.transposes import MERGED_AXES

FAMILIES = (
    activations, convolutions, dense, norms, arithmetic, pools, shapes, channels, embedding, softmax, reductions,
    recurrent, integers,
)  # fmt: skip

WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    cls: write for family in FAMILIES for cls, write in family.WRITE_FUNCTIONS.items()
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    op: read for family in FAMILIES for op, read in family.READ_FUNCTIONS.items()
}
REWRITTEN_READ_FUNCTIONS: dict[str, ReadFunction] = {
    ACTIVATION: activations.read_activation,
    CHANNEL_NORM: norms.read_channel_norm,
    CHANNEL_STEPS: channels.read_channel_steps,
    FAKE_QUANTIZE: activations.read_fake_quantize,
    LOOKUP: embedding.read_lookup,
    MERGED_AXES: shapes.read_merged_axes,
    RECURRENT: recurrent.read_recurrent,
    SPLIT_PART: channels.read_split_part,
    STRIDED_VIEW: channels.read_strided_view,
    TENSORDOT: convolutions.read_tensordot,
}


def find_read_function(node: Node) -> ReadFunction | None:
    """Returns the function that turns a node into layers, or None if there is none."""
    if node.domain == REWRITTEN:
        return REWRITTEN_READ_FUNCTIONS.get(node.op)
    return None if node.domain else READ_FUNCTIONS.get(node.op)
