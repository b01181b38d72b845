"""ONNX's own test cases: which of them minidl passes, and which are not for it and why.

ONNX computes the cases of a node when they are asked for, with NumPy code of its own. Others were recorded of PyTorch,
and are files. `cd tests; python -m oracles.onnx_cases` prints the table.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from oracles.onnx_ops import OPS, Node, outputs

# The op types with a layer, loss or optimizer, and others that networks for images are made of.
APPLY = {*OPS, "LRN", "LpPool", "Mish", "NegativeLogLikelihoodLoss", "Softplus", "Softsign", "ThresholdedRelu"}

VOLUMES = "three dimensions: minidl has images"
DILATED = "pooling with dilation: PyTorch's max-pool has it, Keras's has not"
NO_LAYER = "no such layer"
BATCHED = "a matrix for each example is no weight"
RANDOM = "the mask comes from ONNX's random numbers"
MODE = "Pad2D pads with a constant alone"
SCALE = "Upsample2D takes whole scales alone"
INTERPOLATED = "Upsample2D takes the nearest pixel alone"
COORDINATES = "another pixel than the nearest"

# Why a case is not for minidl, by a pattern of its name. One that passes all the same must not stand here.
NOT_HERE = {
    "averagepool_2d_dilations": DILATED,
    "averagepool_3d_*": VOLUMES,
    "AvgPool3d*": VOLUMES,
    "celu_bfloat16": "bfloat16: NumPy has no such numbers",
    "Conv3d*": VOLUMES,
    "convtranspose_3d": VOLUMES,
    "edge_pad": MODE,
    "gemm_default_matrix_bias": BATCHED,
    "lppool_*": NO_LAYER,
    "lrn*": NO_LAYER,
    "matmul_1d_3d": BATCHED,
    "matmul_3d": BATCHED,
    "matmul_4d": BATCHED,
    "matmul_bcast": BATCHED,
    "maxpool_2d_dilations": DILATED,
    "maxpool_3d_*": VOLUMES,
    "MaxPool1d_stride_padding_dilation": DILATED,
    "MaxPool2d_stride_padding_dilation": DILATED,
    "MaxPool3d*": VOLUMES,
    "mish": NO_LAYER,
    "nllloss_*": "of log-probabilities; minidl's cross-entropy takes scores",
    "operator_pad": MODE,
    "reflect_pad": MODE,
    "ReflectionPad2d": MODE,
    "ReplicationPad2d": MODE,
    "reshape_allowzero_reordered": "a size of 0",
    "resize_downsample_*nearest*": SCALE,
    "resize_*_cubic*": INTERPOLATED,
    "resize_*_linear*": INTERPOLATED,
    "resize_tf_crop_and_resize*": INTERPOLATED,
    "resize_upsample_sizes_nearest": SCALE,
    "resize_upsample_sizes_nearest_axes_*": SCALE,
    "resize_upsample_sizes_nearest_ceil_half_pixel": COORDINATES,
    "resize_upsample_sizes_nearest_floor_align_corners": COORDINATES,
    "resize_upsample_sizes_nearest_not_larger": SCALE,
    "resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric": COORDINATES,
    "softplus*": NO_LAYER,
    "Softplus": NO_LAYER,
    "softsign*": NO_LAYER,
    "thresholdedrelu*": NO_LAYER,
    "training_dropout": RANDOM,
    "training_dropout_default*": RANDOM,
    "training_dropout_mask": RANDOM,
    "wrap_pad": MODE,
}

# What is expected of these has so few digits; of all others 1e-6 of the largest number is.
ROUNDED = {"averagepool_2d_ceil_last_window_starts_on_pad": 1e-3, "celu_float16": 1e-4}


@dataclass(frozen=True)
class Case:
    """One node, inputs and the outputs expected of them."""

    name: str
    model: Any  # onnx.ModelProto
    inputs: list[Any]
    expected: list[Any]
    rtol: float
    atol: float
    recorded: bool  # of PyTorch

    @property
    def op(self) -> str:
        return self.model.graph.node[0].op_type

    @property
    def not_here(self) -> str:
        """Why it is not for minidl, or nothing."""
        return next((why for pattern, why in NOT_HERE.items() if fnmatchcase(self.name, pattern)), "")

    def node(self, dtype) -> Node:
        """Its node; floats of any kind in this dtype."""
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
        """Raises an error of any kind unless minidl has these outputs, in both dtypes."""
        for dtype in ("float32", "float64"):
            for place, (got, expected) in enumerate(zip(outputs(self.node(dtype)), self.expected, strict=False)):
                exact = np.asarray(expected, "f8")
                assert np.shape(got) == exact.shape, f"output {place}: {np.shape(got)}, expected {exact.shape}"
                told = f"output {place}, {dtype}"
                np.testing.assert_allclose(got, exact, self.rtol, self.atol, err_msg=told)
                within = ROUNDED.get(self.name, 1e-6) * np.abs(exact).max(initial=0)
                np.testing.assert_allclose(got, exact, 0, within, err_msg=told)

    def fault(self) -> str:
        """What is wrong: that it fails, or passes and should not; or nothing."""
        try:
            self.check()
        except Exception as error:
            return "" if self.not_here else f"{type(error).__name__}: {error}"
        return f"passes, and stands in NOT_HERE: {self.not_here}" if self.not_here else ""


def load() -> list[Case]:
    """All cases of one node, of the op types in APPLY."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    cases, found = [], []
    for kind in ("node", "pytorch-converted", "pytorch-operator"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # making them takes casts that overflow, and the like
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
    """Inputs and outputs of a case that is a folder of files."""
    import onnx

    def arrays(trial, kind):
        files = (trial / f"{kind}_{i}.pb" for i in range(len(list(trial.glob(f"{kind}_*.pb")))))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]

    return [(arrays(trial, "input"), arrays(trial, "output")) for trial in sorted(folder.glob("test_data_set_*"))]


def table(cases: list[Case]) -> str:
    """How many cases of each op type pass, and why the others are not here."""
    lines = [f"{'':27}{'computed by ONNX':20}recorded of PyTorch"]
    for op in [*sorted(APPLY), "all"]:
        counts = []
        for recorded in (False, True):
            these = [case for case in cases if op in (case.op, "all") and case.recorded == recorded]
            passed = sum(not case.not_here and not case.fault() for case in these)
            counts.append(f"{passed:3} of {len(these):3}" if these else "")
        lines.append(f"{op:27}{counts[0]:20}{counts[1]}".rstrip())
    why = Counter(case.not_here for case in cases if case.not_here)
    return "\n".join([*lines, "", *(f"{count:3} {reason}" for reason, count in why.most_common())])


if __name__ == "__main__":
    print(table(load()))
