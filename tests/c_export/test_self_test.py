"""The test in an exported file notices what is wrong."""

import re
import subprocess

import numpy as np
import pytest
from c_export.compiled import compile_c

import minidl
from minidl import Layer, Sequential
from minidl.c_export import HAS_FMA, examples
from minidl.engine.layer_list import from_spec, to_spec
from minidl.layers import (
    BatchNorm2D,
    Block,
    Columns,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Normalize,
    OneHot,
    Pad2D,
    Parallel,
    Permute,
    PiecewiseLinearEncoding,
    ReLU,
    Rescale,
    Residual,
    Tanh,
)

pytestmark = pytest.mark.skipif(not HAS_FMA, reason="files have no test of their own")


def own_test(model, folder, *flags, edit=lambda text: text, **arguments):
    """Returns the result of the test in the file, after a change of its text."""
    minidl.export_c(model, folder / "net.c", **arguments)
    (folder / "net.c").write_text(edit((folder / "net.c").read_text()))
    program = compile_c(folder / "net.c", *(flags or ("-O1",)), "-DNET_TEST", "-DNET_MAIN", shared=False)
    return subprocess.run([program], check=False).returncode


def replaced(old, new):
    """Returns a function that replaces text, which must be there."""

    def edit(text):
        assert old in text
        return text.replace(old, new)

    return edit


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_fma_that_rounds_twice_is_noticed(dtype, tmp_path):
    """As newlib's: by its sum in float64, or by its product."""
    model = Sequential([Dense(1, use_bias=False)], input_shape=(1,), dtype=dtype)  # its scores are right all the same
    edit = replaced("LIBRARY(fma)(a, b, c)", "(real)((double)a * b + c)")
    assert own_test(model, tmp_path) == 0
    assert own_test(model, tmp_path, edit=edit) == 1


def test_results_that_are_not_flushed_are_noticed(tmp_path):
    model = Sequential([Dense(2)], input_shape=(2,))
    assert own_test(model, tmp_path, "-O1", "-mfma", edit=replaced("| 0x8040u", "")) == 1
    assert own_test(model, tmp_path, edit=replaced("x < SMALLEST && x > -SMALLEST ? x * 0 : x", "x")) == 1


MAIN = """
#include <stdio.h>
#include "net.c"
/* Prints the vectors of a table that may be zeros: the test does not see it. */
static void look(const char *name, real *table, int vectors, int size) {
  for (int i = 0; i < vectors; i++) {
    real kept[8];
    memcpy(kept, table + i * size, sizeof(real) * size);
    memset(table + i * size, 0, sizeof(real) * size);
    if (net_test() == 0) printf("%s %d\\n", name, i);
    memcpy(table + i * size, kept, sizeof(real) * size);
  }
}
int main(void) {
"""


def test_every_vector_of_an_embedding_is_seen(tmp_path):
    """Also if there are more categories than bytes, or than places in an input."""
    columns = (
        [Columns(0, 1), Embedding(7, 2), Flatten()],
        [Columns(1, 3), Embedding(300, 2), Flatten()],
        [Columns(3, 5)],
    )
    model = Sequential([Parallel(*columns), Dense(2)], input_shape=(5,), dtype="float64")
    minidl.export_c(model, tmp_path / "net.c")
    text = (tmp_path / "net.c").read_text()
    found = re.findall(r"TABLE\((net_\w+), (14|600)\)", text)
    assert len(found) == 2
    (tmp_path / "net.c").write_text(text.replace("static const union {", "static union {"))
    looks = [f'  look("{name}", {name}, {size} / 2, 2);' for name, size in found]
    (tmp_path / "main.c").write_text("\n".join((MAIN, *looks, "  return net_test();\n}\n")))
    program = compile_c(tmp_path / "main.c", "-O1", "-DNET_TEST", shared=False)
    assert subprocess.run([program], capture_output=True, check=True).stdout == b""


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([Normalize([1013.0, -4e4], [7.0, 0.5])], (2,)),
        ([Rescale(1 / 255, 1.0), Dropout(0.5), Normalize(1e4, 3.0)], (2,)),
        ([Flatten(), Block(Columns(1, 3)), Normalize(500.0, 0.5)], (2, 1, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_are_in_the_range_of_a_normalize(layers, shape, dtype, tmp_path):
    """Others saturate the function after it, so that weights before it are not seen."""
    model = Sequential([*from_spec(to_spec(layers)), Dense(3), Tanh()], input_shape=shape, dtype=dtype)
    drawn = examples.draw(model)
    assert np.abs(drawn.scores[[0, 2, 3]]).max() < 1
    assert own_test(model, tmp_path) == 0
    edit = replaced("_weight, 6) = {{\n", "_weight, 6) = {{\n((bits)1 << (MANTISSA - 8)) ^ ")
    assert own_test(model, tmp_path, edit=edit) >= 3


def test_ranges_are_those_of_the_layers():
    """Categories through copies; numbers through Rescale; none where another layer comes first."""

    def runs(*layers, shape):
        return [(r.size, r.categories, r.low, r.step) for r in examples.draw(Sequential(layers, shape)).runs]

    assert runs(Dense(2), shape=(3,)) == [(3, 0, 0, 0)]
    assert runs(Embedding(5, 2), shape=(3,)) == [(3, 5, 0, 1)]
    assert runs(Rescale(1, -1), Embedding(5, 2), shape=(3,)) == [(3, 5, 1, 1)]
    assert runs(Permute((1, 0)), Flatten(), Columns(0, 2), Embedding(5, 2), shape=(2, 2)) == [
        (1, 5, 0, 1), (1, 0, 0, 0), (1, 5, 0, 1), (1, 0, 0, 0),
    ]  # fmt: skip
    assert runs(OneHot([3, 3, 300]), shape=(3,)) == [(1, 3, 0, 1), (1, 3, 0, 1), (1, 300, 0, 1)]
    assert runs(Permute((1, 0)), Flatten(), Columns(1, 3), OneHot([4, 5]), shape=(2, 2)) == [
        (1, 0, 0, 0), (1, 5, 0, 1), (1, 4, 0, 1), (1, 0, 0, 0),
    ]  # fmt: skip
    assert runs(Normalize(0.0, 64.0), shape=(2,)) == [(2, 0, -128, 1)]
    assert runs(Normalize([0.0, 8.0], [64.0, 32.0]), shape=(2, 1, 2)) == [(2, 0, -128, 1), (2, 0, -56, 0.5)]
    assert runs(Rescale(0.5, 4.0), Normalize(4.0, 32.0), shape=(2,)) == [(2, 0, -128, 1)]
    assert runs(Pad2D(1, value=3.0), Normalize(0.0, 64.0), shape=(1, 1, 1)) == [(1, 0, -128, 1)]
    assert runs(BatchNorm2D(), shape=(1, 1, 2)) == [(2, 0, -2, 2**-6)]
    assert runs(Residual(Normalize(0.0, 64.0)), Normalize(9.0, 1.0), shape=(2,)) == [(2, 0, -128, 1)]
    assert runs(ReLU(), Normalize(9.0, 1.0), shape=(2,)) == [(2, 0, 0, 0)]
    encoding = PiecewiseLinearEncoding([[0, 64], [], [-8, 0, 8]], [False, True, False])
    assert runs(encoding, shape=(3,)) == [(1, 0, 0, 0.5), (1, 0, 0, 0), (1, 0, -8, 0.125)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_go_beyond_all_bins(dtype, tmp_path):
    """So that the weights of each bin are seen."""
    edges = [np.linspace(1e4, 3e4, 49), [], np.logspace(-3, 2, 20), [0, 1]]
    model = Sequential([PiecewiseLinearEncoding(edges, [False, True, False, True])], input_shape=(4,), dtype=dtype)
    drawn = examples.draw(model)
    bins = [j for j in range(model.output_shape[0]) if j not in (48, 69)]  # not the indicators
    assert len(drawn.scores) == 49
    assert (drawn.scores[:, bins].max(axis=0) == 1).all()
    assert own_test(model, tmp_path) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_pass_all_categories_of_a_one_hot(dtype, tmp_path):
    """Those of each column, also where columns of equal numbers lie side by side, in one layer or two."""
    branches = [Columns(0, 3), OneHot([6, 6, 90])], [Columns(3, 5), OneHot(6)], [Columns(5, 6)]
    model = Sequential([Parallel(*branches)], input_shape=(6,), dtype=dtype)
    drawn = examples.draw(model)
    assert len(drawn.scores) == 91
    assert (drawn.scores[:, :114].max(axis=0) == 1).all()
    assert own_test(model, tmp_path) == 0


class Log(Layer):
    """The logarithm: NaN below 0."""

    def forward(self, x, training):
        with np.errstate(all="ignore"):
            return np.log(x)


def test_inputs_whose_scores_are_nan_are_replaced():
    drawn = examples.draw(Sequential([Log()], input_shape=(50,)))
    assert drawn.kinds[0] == examples.POSITIVE
    assert not np.isnan(drawn.scores).any()


def test_a_test_that_knows_nan_alone_is_refused(tmp_path):
    model = Sequential([Dense(2), Embedding(3, 2)], input_shape=(2,))
    with pytest.raises(ValueError, match="the test in the file: expected scores that are numbers, got NaN alone"):
        minidl.export_c(model, tmp_path / "net.c")
    assert list(tmp_path.iterdir()) == []
