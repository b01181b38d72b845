"""ONNX's own test cases: those that minidl passes, and those that it does not support, with reasons.

ONNX computes the node cases on demand, in NumPy. The others were recorded from PyTorch and are files.
`cd tests; python -m oracles.onnx_cases` prints the table.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from oracles.onnx_ops import OPS, Node, outputs

# Op types with a layer, loss or optimizer, and others that are common in image networks.
APPLY = {*OPS, "LRN", "LpPool", "NegativeLogLikelihoodLoss"}

VOLUMES = "three dimensions: minidl has only images"
NO_LAYER = "no such layer"
BATCHED = "a matrix per example is not a weight"
RANDOM = "the mask comes from ONNX's random numbers"
MODE = "Pad2D pads with a constant only"
SCALE = "Upsample2D takes integer scales only"
INTERPOLATED = "Upsample2D is nearest or bilinear, without a filter, in PyTorch's coordinates"
CROSSED = "Hardtanh takes a lower bound below the upper one only"
COORDINATES = "a pixel other than the nearest"

# Reasons by name pattern. A case that passes must not match.
UNSUPPORTED = {
    "averagepool_3d_*": VOLUMES,
    "AvgPool3d*": VOLUMES,
    "celu_bfloat16": "bfloat16: NumPy has no such dtype",
    "clip_min_greater_than_max": CROSSED,
    "Conv3d*": VOLUMES,
    "convtranspose_3d": VOLUMES,
    "edge_pad": MODE,
    "gemm_default_matrix_bias": BATCHED,
    "lppool_*": NO_LAYER,
    "lstm_with_peepholes": "no gate sees the memory of a cell",
    "lrn*": NO_LAYER,
    "matmul_1d_3d": BATCHED,
    "matmul_3d": BATCHED,
    "matmul_4d": BATCHED,
    "matmul_bcast": BATCHED,
    "maxpool_3d_*": VOLUMES,
    "MaxPool3d*": VOLUMES,
    "nllloss_*": "takes log-probabilities; minidl's cross-entropy takes scores",
    "operator_pad": MODE,
    "reflect_pad": MODE,
    "ReflectionPad2d": MODE,
    "ReplicationPad2d": MODE,
    "reshape_allowzero_reordered": "a size of 0",
    "resize_downsample_*nearest*": SCALE,
    "resize_*_cubic*": INTERPOLATED,
    "resize_downsample_scales_linear_align_corners": INTERPOLATED,
    "resize_downsample_scales_linear_antialias": INTERPOLATED,
    "resize_downsample_scales_linear_half_pixel_symmetric": INTERPOLATED,
    "resize_downsample_sizes_linear_antialias": INTERPOLATED,
    "resize_downsample_sizes_linear_pytorch_half_pixel": INTERPOLATED,
    "resize_upsample_scales_linear_half_pixel_symmetric": INTERPOLATED,
    "resize_tf_crop_and_resize*": INTERPOLATED,
    "resize_upsample_sizes_nearest": SCALE,
    "resize_upsample_sizes_nearest_axes_*": SCALE,
    "resize_upsample_sizes_nearest_ceil_half_pixel": COORDINATES,
    "resize_upsample_sizes_nearest_floor_align_corners": COORDINATES,
    "resize_upsample_sizes_nearest_not_larger": SCALE,
    "resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric": COORDINATES,
    "training_dropout": RANDOM,
    "training_dropout_default*": RANDOM,
    "training_dropout_mask": RANDOM,
    "wrap_pad": MODE,
}

# Tolerances of cases with rounded expected outputs, relative to the largest magnitude; the others have 1e-6.
ROUNDED = {"averagepool_2d_ceil_last_window_starts_on_pad": 1e-3, "celu_float16": 1e-4}


@dataclass(frozen=True)
class Case:
    """One node with inputs and expected outputs."""

    name: str
    model: Any  # onnx.ModelProto
    inputs: list[Any]
    expected: list[Any]
    rtol: float
    atol: float
    recorded: bool  # from PyTorch, instead of computed by ONNX

    @property
    def op(self) -> str:
        return self.model.graph.node[0].op_type

    @property
    def unsupported(self) -> str:
        """The reason why minidl does not support it, or ""."""
        return next((why for pattern, why in UNSUPPORTED.items() if fnmatchcase(self.name, pattern)), "")

    def node(self, dtype) -> Node:
        """Returns its node, with all floating-point inputs in this dtype."""
        from onnx import helper, numpy_helper

        graph, (node,) = self.model.graph, self.model.graph.node
        given = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        names = [value.name for value in graph.input if value.name not in given]
        given |= {name: np.asarray(array) for name, array in zip(names, self.inputs, strict=True)}
        given = {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in given.items()}
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
        shape = tuple(dim.dim_value for dim in graph.output[0].type.tensor_type.shape.dim)
        inputs = [given[name] if name else None for name in node.input]
        return Node(self.op, self.model.opset_import[0].version, attributes, inputs, shape, len(graph.output))

    def check(self) -> None:
        """Raises an exception unless minidl computes the expected outputs, in both dtypes."""
        for dtype in ("float32", "float64"):
            for place, (got, expected) in enumerate(zip(outputs(self.node(dtype)), self.expected, strict=False)):
                exact = np.asarray(expected, "f8")
                assert np.shape(got) == exact.shape, f"output {place}: {np.shape(got)}, expected {exact.shape}"
                label = f"output {place}, {dtype}"
                np.testing.assert_allclose(got, exact, self.rtol, self.atol, err_msg=label)
                within = ROUNDED.get(self.name, 1e-6) * np.abs(exact).max(initial=0)
                np.testing.assert_allclose(got, exact, 0, within, err_msg=label)

    def fault(self) -> str:
        """Returns a description of an unexpected failure or an unexpected pass, or ""."""
        try:
            self.check()
        except Exception as error:
            return "" if self.unsupported else f"{type(error).__name__}: {error}"
        return f"passes, but is listed in UNSUPPORTED: {self.unsupported}" if self.unsupported else ""


def load() -> list[Case]:
    """Returns all single-node cases of the op types in APPLY."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    cases, found = [], []
    for kind in ("node", "pytorch-converted", "pytorch-operator"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # creating the cases overflows casts
            found += load_model_tests(kind=kind)
    for test in found:
        folder = Path(test.model_dir) if test.model_dir else None
        model = onnx.load(str(folder / "model.onnx")) if folder else test.model
        if len(model.graph.node) == 1 and model.graph.node[0].op_type in APPLY:
            for inputs, expected in test.data_sets or recorded(folder):
                name = test.name.removeprefix("test_")
                cases.append(Case(name, model, inputs, expected, test.rtol, test.atol, bool(folder)))
    return cases


def recorded(folder: Path) -> list[tuple[list[Any], list[Any]]]:
    """Returns inputs and outputs of a case that is a folder of files."""
    import onnx

    def arrays(trial, kind):
        files = (trial / f"{kind}_{i}.pb" for i in range(len(list(trial.glob(f"{kind}_*.pb")))))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]

    return [(arrays(trial, "input"), arrays(trial, "output")) for trial in sorted(folder.glob("test_data_set_*"))]


def table(cases: list[Case]) -> str:
    """Returns a table of how many cases of each op type pass, and the reasons of the others."""
    lines = [f"{'':27}{'computed by ONNX':20}recorded from PyTorch"]
    for op in [*sorted(APPLY), "all"]:
        counts = []
        for recorded in (False, True):
            these = [case for case in cases if op in (case.op, "all") and case.recorded == recorded]
            passed = sum(not case.unsupported and not case.fault() for case in these)
            counts.append(f"{passed:3} of {len(these):3}" if these else "")
        lines.append(f"{op:27}{counts[0]:20}{counts[1]}".rstrip())
    why = Counter(case.unsupported for case in cases if case.unsupported)
    return "\n".join([*lines, "", *(f"{count:3} {reason}" for reason, count in why.most_common())])


if __name__ == "__main__":
    print(table(load()))
