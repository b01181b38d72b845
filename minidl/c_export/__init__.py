"""Export to C: one self-contained C99 file that computes what `predict` computes, with the same bits.

minidl.export_c(model, "digits.c")
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from minidl.c_export.code_writer import CodeWriter
from minidl.c_export.identifiers import name_from
from minidl.c_export.lowering import lower
from minidl.c_export.source_file import Export, render, test_inputs
from minidl.onnx.deployment import model_of, with_softmax
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.utils.validation import check_bool, check_choice
from minidl_c import isa

__all__ = ["CodeWriter", "export_c"]

TEST_EXAMPLES = 4
INEXACT = ("v2", "base")  # builds without fused multiply-add, whose bits differ


def export_c(
    model: Any,
    path: Path,
    name: str | None = None,
    *,
    softmax: bool = False,
    arena: str = "static",
    weights: str = "text",
    header: bool = False,
) -> None:
    """Writes the model as one C99 file whose scores are those of `model.predict`, bit for bit.

    The file defines `void digits_predict(const float *x, float *scores)`, for one example in row-major order, and
    `digits_predict_uint8` for bytes; for a float64 model with double. It includes stdint.h, string.h and math.h alone,
    allocates nothing, and has a test of its own: the comment at its head says how to compile it. Augmentation, dropout
    and such are left out, as in inference.

    A layer that is not minidl's returns its statements in its method `c_code(self, writer)`: see CodeWriter.

    model: a Sequential, or a Trainer, SequentialClassifier or SequentialRegressor, of which the model is written.
    name: the first part of the names in the file; None: the name of the file, without ".c".
    softmax: whether to write probabilities instead of scores, as predict_proba returns them.
    arena: "static": the memory for values is in the file; "argument": the functions take `float *arena` of DIGITS_ARENA
        numbers, so that several threads can predict.
    weights: "text": the tables are hexadecimal floats; "inc": they are integers in a file digits.inc beside the C file,
        which compilers read faster.
    header: whether to write digits.h beside the C file.

    Each file is written atomically. Raises TypeError for another `model`; ValueError, naming the layer and its path,
    for a layer without C, for weights that are not finite, for a model that is not built, for a name that is no C
    identifier, and for softmax=True if the outputs are not scores of classes; OSError naming the path.
    """
    net, target = model_of(model), atomic.text(path)
    prefix = name_from(name, target)
    check_choice("arena", arena, "static", "argument")
    check_choice("weights", weights, "text", "inc")
    check_bool("header", header)
    if check_bool("softmax", softmax):
        net = with_softmax(model, net)
    shape = net.input_shape  # raises
    expected = None
    if isa not in INEXACT:
        inputs = test_inputs(TEST_EXAMPLES, int(np.prod(shape))).reshape(-1, *shape).astype(net.dtype)
        expected = net.predict(inputs)
    with net.usage.reading("export_c"):
        program, first, last = lower(net.layers, prefix)
        export = Export(program, first, last, net.state_dict(), arena == "static", weights == "inc", expected)
        source, declarations, words = render(export)
    stem = os.path.join(os.path.dirname(target), prefix)
    if words:
        atomic.write(f"{stem}.inc", [memoryview(words.encode())])
    if header:
        atomic.write(f"{stem}.h", [memoryview(declarations.encode())])
    atomic.write(target, [memoryview(source.encode())])
