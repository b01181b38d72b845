"""Operators with attributes or constants that no layer has, and the reason in the error."""

import numpy as np
from onnx_models.operator_case import VECTOR, Case, integers, normal
from onnx_models.operator_cases import CHANNELS, HIGH, LARGEST, LOW, NUMBER

# Defaults, and orders of inputs, that no layer computes.
UNSUPPORTED = {
    "LRN of an even size": (Case("LRN", None, (), {"size": 4}), "size: expected an odd number, got 4"),
    "LRN without a size": (Case("LRN", None), "size: expected at least 1, got 0"),
    "ReduceMean of all": (Case("ReduceMean", None), "expected axes after the batch, got all"),
    "ReduceMax of the batch": (Case("ReduceMax", None, (integers(0, 2),)), "expected axes after the batch, got [0, 2]"),
    "ReduceSum of an axis twice": (Case("ReduceSum", None, (integers(1, -3),)), "each once, got [1, -3]"),
    "ReduceMin of no such axis": (Case("ReduceMin", None, (integers(4),)), "expected an axis from -4 to 3, got 4"),
    "ReduceL2 to a number": (
        Case("ReduceL2", None, (integers(1, 2, 3),), {"keepdims": 0}),
        "expected keepdims=1, or an axis of (4, 6, 7) that is left",
    ),
    "ReduceL1 without axes": (Case("ReduceL1", None, (), {"noop_with_empty_axes": 1}), "expected axes, got none"),
    "Pow": (Case("Pow", None, (NUMBER,)), "expected an exponent of 0.5, 1, 2, 3 or 4, or minus that"),
    "Pow of a constant": (Case("Pow", None, (NUMBER,), x_index=1), "expected a constant for input 1"),
    "MatMul of a constant and x": (
        Case("MatMul", None, (normal(6, 6),), shape=VECTOR, x_index=1),
        "expected a constant for input 1",
    ),
    "Gemm of a constant and x": (Case("Gemm", None, (normal(6, 6),), shape=VECTOR, x_index=1), "expected a constant"),
    "Gemm with a bias per example": (
        Case("Gemm", None, (normal(6, 6), normal(6, 1)), shape=VECTOR),
        "expected a bias of 6 numbers, got shape (6, 1)",
    ),
    "Dropout in training mode": (
        Case("Dropout", None, (np.array(0.5), np.array(1)), shape=VECTOR, opset=12),
        "expected training_mode=False, got True",
    ),
    "Div by a channel of 0": (Case("Div", None, (0.0 * CHANNELS,)), "expected divisors whose reciprocals are finite"),
    "Softmax of the batch": (Case("Softmax", None, attributes={"axis": 0}), "expected an axis after the batch, got 0"),
    "LogSoftmax before 13": (
        Case("LogSoftmax", None, attributes={"axis": -4}, opset=11),
        "expected an axis after the batch, got 0",
    ),
    "Clip with a bound per channel": (Case("Clip", None, (CHANNELS,)), "expected one real number for input 1"),
    **{
        f"Clip of {low} and {high}": (
            Case("Clip", None, tuple(None if v is None else np.array(v, "float64") for v in (low, high))),
            f"expected a minimum and a maximum that leave some numbers, got {low} and {high}",
        )
        for low, high in ((np.inf, None), (None, -np.inf), (LARGEST, None), (None, -LARGEST), (np.nan, 1.0))
    },
    "Clip without room": (Case("Clip", None, (HIGH, LOW)), "min_val: expected a number below max_val"),
    "Shrink with another bias": (Case("Shrink", None, attributes={"bias": 0.25}), "expected bias=0 or bias=lambd=0.5"),
    "Celu alpha of 0": (Case("Celu", None, attributes={"alpha": 0.0}), "alpha: expected at least 1.17549435e-38"),
    "LayerNormalization": (
        Case("LayerNormalization", None, (normal(1),)),
        "expected shape (7,) for input 1",
    ),
    "RMSNormalization": (
        Case("RMSNormalization", None, (normal(7),), {"axis": 0}, opset=23),
        "expected an axis after the batch, got 0",
    ),
    "Swish alpha": (Case("Swish", None, attributes={"alpha": 2.0}, opset=24), "expected alpha=1.0, got 2.0"),
    "Resize with round_prefer_floor": (
        Case("Resize", None, (None, np.array([1, 1, 2, 2.0])), {"coordinate_transformation_mode": "asymmetric"}),
        "got asymmetric and round_prefer_floor",
    ),
    "Resize floor": (
        Case("Resize", None, (None, np.array([1, 1, 2, 2.0])), {"nearest_mode": "floor"}),
        "got half_pixel and floor",
    ),
    "Reshape to zeros": (
        Case("Reshape", None, (integers(0, 0, -1),), {"allowzero": 1}),
        "separate, got [0, 0, -1]",
    ),
    "Expand of rows": (Case("Expand", None, (integers(1, 4, 3, 7),), shape=(4, 1, 7)), "repeated over an image, got"),
    "Expand of channels": (Case("Expand", None, (integers(1, 4, 1, 1),), shape=(1, 1, 1)), "repeated over an image"),
    "Expand of the batch": (Case("Expand", None, (integers(5, 4, 6, 7),)), "repeated over an image, got [5, 4, 6, 7]"),
    "Expand to more axes": (Case("Expand", None, (integers(1, 1, 4, 6, 7),)), "repeated over an image"),
    "Slice of examples": (Case("Slice", None, (integers(0), integers(5), integers(0))), "expected all examples"),
    "Slice of later examples": (Case("Slice", None, (integers(1), integers(2**62), integers(0))), "got 1 to 46"),
    "Slice of nothing": (
        Case("Slice", None, (integers(5), integers(2), integers(2), integers(2))),
        "expected a range of at least one element, got 5 to 2 of axis 2 of (4, 6, 7) in steps of 2",
    ),
    "Slice in steps of 0": (Case("Slice", None, (integers(0), integers(6), integers(2), integers(0))), "other than 0"),
    "Slice of an axis twice": (
        Case("Slice", None, (integers(0, 1), integers(6, 7), integers(2, -2))),
        "expected a start, an end and a step other than 0 for each of axes (2, -2)",
    ),
    "Pad of examples": (Case("Pad", None, (integers(1, 0, 0, 0, 0, 0, 0, 0),)), "expected pads after the batch axis"),
    "Pad of an axis twice": (Case("Pad", None, (integers(1, 1, 1, 1), None, integers(2, -2))), "expected two pads for"),
    "Pad that leaves nothing": (Case("Pad", None, (integers(0, 0, -3, 0, 0, 0, -3, 0),)), "pads that leave some of 6"),
    "Pad that mirrors too much": (
        Case("Pad", None, (integers(0, 0, 6, 0, 0, 0, 0, 0),), {"mode": "reflect"}),
        "padding: expected at most 5 for mode 'reflect' and a height of 6, got 6",
    ),
    "Pad that reflects and crops": (
        Case("Pad", None, (integers(0, 0, -1, 1, 0, 0, 0, 0),), {"mode": "reflect"}),
        "expected pads after the batch axis, of at least 0 unless constant",
    ),
    "DepthToSpace of too few channels": (
        Case("DepthToSpace", None, (), {"blocksize": 3}),
        "upscale_factor: expected 9 to divide 4 channels",
    ),
    "DepthToSpace without a size": (Case("DepthToSpace", None), "upscale_factor: expected at least 1, got 0"),
    "SpaceToDepth of other sizes": (Case("SpaceToDepth", None, (), {"blocksize": 2}), "expected a divisor of (6, 7)"),
    "SpaceToDepth of vectors": (
        Case("SpaceToDepth", None, (), {"blocksize": 2}, shape=VECTOR),
        "expected images, got (6,)",
    ),
    "Squeeze of the batch": (Case("Squeeze", None, (integers(0),)), "expected axes of size 1 after the batch"),
}
