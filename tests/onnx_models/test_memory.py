"""Memory of an import: the tensors are read once, and each is released when the model has copied it."""

import subprocess
import sys

import pytest

from minidl import Sequential
from minidl.layers import Block, Dense, ReLU
from minidl.onnx import export

pytestmark = pytest.mark.oracle("onnx")

PROGRAM = """
import re, sys
import onnx, onnx.checker, onnx.numpy_helper
from minidl.onnx import import_model

def peak():
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1])

import_model(sys.argv[1])
before = peak()
model = import_model(sys.argv[2], external_data=True)
print(peak() - before)
"""


def peak(*paths):
    """Returns the bytes by which importing the second file raises the peak of a process that has imported the first."""
    command = [sys.executable, "-c", PROGRAM, *map(str, paths)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("how", ["metadata", "nodes", "constants", "external"])
def test_an_import_takes_less_than_twice_the_model(how, tmp_path):
    import onnx

    wide = [Dense(2000), ReLU(), Dense(2000), ReLU(), Dense(2000)]
    path, model = tmp_path / "model.onnx", Sequential([*wide, Block(ReLU(), Dense(3000)), Dense(1000)], (2000,))
    export(model, path)
    if how != "metadata":
        proto = onnx.load(str(path))
        del proto.metadata_props[:]
        if how == "constants":
            tensors = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in proto.graph.initializer]
            nodes = [*tensors, *(onnx.NodeProto.FromString(node.SerializeToString()) for node in proto.graph.node)]
            del proto.graph.initializer[:], proto.graph.node[:]
            proto.graph.node.extend(nodes)
        onnx.save(proto, str(path), save_as_external_data=how == "external", location="weights.bin")
    size = sum(param.value.nbytes for param in model.params.values())
    export(Sequential([Dense(2), ReLU()], (3,)), tmp_path / "small.onnx")
    assert size < peak(tmp_path / "small.onnx", path) < 2 * size
