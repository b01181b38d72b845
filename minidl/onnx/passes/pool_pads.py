"""Pads before max pools: cells that are never the maximum are those of the pool's own padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node
from minidl.utils.arrays import Array

NOT_NEGATIVE = {"Relu", "Sigmoid"}  # operators whose results zeros do not exceed


def merge_pads_of_pools(graph: Graph) -> Graph:
    """Returns the graph with MaxPools that pad by themselves in place of Pads with minus infinity, or numbers like it.

    These are the lowest finite number, and zero after a Relu. The Pad stays if the pads, those of the pool included,
    exceed half the window: then windows might have no other cells.
    """
    constants = Constants(graph)
    producers = {node.outputs[0]: node for node in graph.nodes if node.outputs and not node.domain}

    def merge(pool: Node) -> Node:
        pad = producers.get(pool.inputs[0]) if (pool.op, pool.domain) == ("MaxPool", "") else None
        kernel = pool.attributes.get("kernel_shape")
        if pad is None or pad.op != "Pad" or not isinstance(kernel, list) or pool.attributes.get("ceil_mode", 0):
            return pool
        before = producers.get(pad.inputs[0])
        sides = _sides(pad, constants, len(kernel) + 2)
        own = pool.attributes.get("pads", [0] * (2 * len(kernel)))
        if sides is None or len(own) != sides.size or not _is_never_maximal(pad, before, constants):
            return pool
        sides = sides + np.array(own, "int64")
        fits = sides.min() >= 0 and (sides.reshape(2, -1) <= np.array(kernel) // 2).all()
        if not fits or pool.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return pool
        attributes = {**pool.attributes, "auto_pad": "NOTSET", "pads": sides.tolist()}
        return replace(pool, inputs=pad.inputs[:1], attributes=attributes)

    return replace(graph, nodes=[merge(node) for node in graph.nodes])


def _sides(pad: Node, constants: Constants, rank: int) -> Array | None:
    """Returns the pads of height and width, first those before; None unless all others are zero, and none negative."""
    pads = constants.find(pad.inputs[1])
    if pads is None or pads.shape != (2 * rank,) or (len(pad.inputs) > 3 and pad.inputs[3]) or pads.min() < 0:
        return None
    sides = np.asarray(pads, "int64").reshape(2, rank)
    return None if sides[:, :2].any() or pads.max() > 2**31 else sides[:, 2:].reshape(-1)


def _is_never_maximal(pad: Node, before: Node | None, constants: Constants) -> bool:
    """True if the cells of a Pad are at most as large as any number that they stand beside."""
    given = constants.find(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else np.zeros(1)
    if (
        given is None
        or given.size != 1
        or given.dtype.kind != "f"
        or pad.attributes.get("mode", "constant") != "constant"
    ):
        return False
    value = float(given.reshape(()))
    return value <= np.finfo(given.dtype).min or (value == 0 and before is not None and before.op in NOT_NEGATIVE)
