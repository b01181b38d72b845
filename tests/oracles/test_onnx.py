"""ONNX's test cases, computed by ONNX in NumPy or recorded of PyTorch: minidl passes, or says why it does not."""

from fnmatch import fnmatchcase

import pytest
from oracles import onnx_cases

pytestmark = pytest.mark.oracle("onnx")


@pytest.fixture(scope="module")
def cases():
    return onnx_cases.load()


@pytest.mark.parametrize("op", sorted(onnx_cases.APPLY))
def test_passes_or_says_why_not(op, cases):
    these = [case for case in cases if case.op == op]
    assert these
    assert {case.name: fault for case in these if (fault := case.fault())} == {}


def test_every_reason_is_that_of_a_case(cases):
    names = [case.name for case in cases]
    assert [p for p in onnx_cases.NOT_HERE if not any(fnmatchcase(name, p) for name in names)] == []
    assert set(onnx_cases.ROUNDED) <= set(names)
