"""ONNX's test cases of single nodes and of PyTorch's, imported: each that is taken must give the expected output.

    python tests/conformance/onnx_nodes.py      # 20 seconds

Inputs after the first become constants, and outputs after the first are ignored. A case whose output differs from
ONNX's is wrong unless onnxruntime's is equal. Canary: an expected output that is changed must be noticed.
"""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.onnx_random import kind_of, reason_of
from oracles.onnx_cases import recorded

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
TOLERANCE = 1e-4  # of the largest magnitude: some expected outputs are rounded


def single_input(case):
    """Returns (model, input, expected output) of a case; None unless all its values are arrays."""
    import onnx

    folder = Path(case.model_dir) if case.model_dir else None
    model = (
        onnx.load(str(folder / "model.onnx")) if folder else onnx.ModelProto.FromString(case.model.SerializeToString())
    )
    (inputs, outputs), *_ = case.data_sets or recorded(folder) or [((), ())]
    if not inputs or not all(isinstance(value, (np.ndarray, np.generic)) for value in (*inputs, outputs[0])):
        return None
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    for name, array in list(zip(names, inputs, strict=False))[1:]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    del model.graph.output[1:]
    return model, np.asarray(inputs[0]), np.asarray(outputs[0])


def is_equal(found, expected):
    if found.shape != expected.shape:
        return False
    largest = np.abs(expected, where=np.isfinite(expected), out=np.zeros(expected.shape)).max(initial=0)
    return np.allclose(found, expected, 0, TOLERANCE * max(1, largest), equal_nan=True)


def examine(case, path, edit=None):
    """Returns "equal", "refused" or "WRONG", and the reason; None for a case that has no single input."""
    import onnxruntime

    from minidl.onnx import import_model

    if (found := single_input(case)) is None:
        return None
    model, x, expected = found
    path.write_bytes(model.SerializeToString())
    try:
        net = import_model(path)
    except ValueError as error:
        return "refused", kind_of(reason_of(str(error).removeprefix(f"{path}: ")))
    single = x.ndim == len(net.input_shape)  # one example without a batch axis
    scores = net.predict(x[None] if single else x)
    scores, expected = scores[0] if single else scores, expected if edit is None else edit(expected)
    if single and scores.shape != expected.shape:
        scores = scores.reshape(expected.shape)  # a Reshape gives the axis
    if is_equal(scores, expected):
        return "equal", ""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runtime = session.run(None, {session.get_inputs()[0].name: x})[0]
    return ("equal to onnxruntime's", case.name) if edit is None and is_equal(scores, runtime) else ("WRONG", case.name)


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    from onnx.backend.test.loader import load_model_tests

    warnings.simplefilter("ignore")  # creating the cases overflows; imports warn about shared weights
    cases = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        verdicts = Counter(examine(case, path) for case in cases)
        relu = next(case for case in cases if case.name == "test_relu")
        assert examine(relu, path, lambda y: y + 1)[0] == "WRONG", "the canary was not noticed"
    del verdicts[None]
    totals = Counter()
    for (verdict, _), count in verdicts.items():
        totals[verdict] += count
    print(", ".join(f"{count} {verdict}" for verdict, count in totals.most_common()), f"of {totals.total()}")
    for (verdict, reason), count in verdicts.most_common():
        if verdict != "equal":
            print(f"{count:5} {verdict}: {reason}")
    sys.exit(bool(totals["WRONG"]))


if __name__ == "__main__":
    main()
