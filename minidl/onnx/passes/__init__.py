"""Passes over a graph: each returns an equal one, of nodes that are closer to layers.

A node that stands for others, or means something else than in ONNX, is one of the domain REWRITTEN. Its operator is
defined in the module of the pass that makes it.
"""

from collections.abc import Callable

from minidl.onnx.constant_folding import has_batch
from minidl.onnx.graph import ANY_BATCH, NO_SUCH_LAYER, REWRITTEN, Graph, refuse
from minidl.onnx.passes.activation_patterns import expand_means, fuse_activations
from minidl.onnx.passes.batch_axis import add_batch_axis
from minidl.onnx.passes.fused_operators import expand_fused_operators
from minidl.onnx.passes.gathers import (
    expect_float_indices,
    merge_channel_steps,
    merge_one_hot_products,
    merge_strided_views,
)
from minidl.onnx.passes.input_cast import remove_input_cast
from minidl.onnx.passes.integer_operators import expand_integer_operators
from minidl.onnx.passes.norm_patterns import merge_layer_norms
from minidl.onnx.passes.old_opsets import read_old_opsets
from minidl.onnx.passes.pool_pads import merge_pads_of_pools
from minidl.onnx.passes.quantization import remove_quantization
from minidl.onnx.passes.recurrent import expand_recurrent
from minidl.onnx.passes.splits import expand_splits
from minidl.onnx.passes.tensordots import merge_tensordots, unmerge_tensordots
from minidl.onnx.passes.transposes import move_transposes

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    add_batch_axis,
    remove_input_cast,
    expand_splits,
    expand_recurrent,
    merge_one_hot_products,
    expect_float_indices,
    merge_layer_norms,
    merge_strided_views,
    merge_channel_steps,
    merge_tensordots,
    move_transposes,
    unmerge_tensordots,
    expand_means,
    fuse_activations,
    merge_pads_of_pools,
)


def rewrite(graph: Graph, rounds: bool) -> Graph:
    """Returns the graph after all passes. rounds: whether values that the file quantizes are rounded.

    Raises ValueError for a file with what has a meaning of its own here: numbers ANY_BATCH and nodes of REWRITTEN.
    """
    graph = read_old_opsets(graph)
    if any(map(has_batch, graph.tensors.values())):
        raise ValueError(f"expected constants of other integers than {ANY_BATCH}")
    for node in graph.nodes:
        if node.domain == REWRITTEN:
            refuse(node, NO_SUCH_LAYER)
    graph = remove_quantization(expand_integer_operators(expand_fused_operators(graph)), rounds)
    for apply_pass in PASSES:
        graph = apply_pass(graph)
    return graph
