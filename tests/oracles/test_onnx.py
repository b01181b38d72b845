"""ONNX's test cases, computed by ONNX in NumPy or recorded from PyTorch: minidl passes, or has a listed reason."""

from fnmatch import fnmatchcase

import pytest
from oracles import onnx_cases

pytestmark = pytest.mark.oracle("onnx")


@pytest.fixture(scope="module")
def cases():
    return onnx_cases.load()


@pytest.mark.parametrize("op", sorted(onnx_cases.APPLY))
def test_every_case_passes_or_is_listed_as_unsupported(op, cases):
    these = [case for case in cases if case.op == op]
    assert these
    assert {case.name: fault for case in these if (fault := case.fault())} == {}


def test_every_listed_pattern_matches_a_case(cases):
    names = [case.name for case in cases]
    assert [p for p in onnx_cases.UNSUPPORTED if not any(fnmatchcase(name, p) for name in names)] == []
    assert set(onnx_cases.ROUNDED) <= set(names)
