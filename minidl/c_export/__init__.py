"""Export to C: one self-contained C99 file that computes what `predict` computes, with the same bits.

minidl.export_c(model, "digits.c")

The functions in c/ repeat the arithmetic of the kernels. They cannot be generated from the kernels' headers: those rely
on a mode of the processor that flushes subnormal results to zero, and on vectors of one size, whereas an exported file
flushes each result explicitly, for processors without such a mode. tests/c_export compares the bits. What is computed
before, such as the taps of a convolution or Winograd's transformed weights, comes from the layers' ops.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from minidl.c_export.code_generation import generate
from minidl.c_export.code_writer import CodeWriter
from minidl.c_export.examples import draw
from minidl.c_export.export_program import export_program
from minidl.c_export.exported import Export
from minidl.c_export.files import files_for, write
from minidl.c_export.winograd import MAX_TABLES, table_bytes, with_direct_sums
from minidl.engine.layer_list import layer_name
from minidl.onnx.deployment import class_names_of, model_of, with_probabilities
from minidl.quantization.model import QuantizedModel
from minidl.quantization.program import Program
from minidl.saving.atomic import Path
from minidl.sequential import Sequential
from minidl.utils.validation import check_bool, check_choice
from minidl_c import isa

__all__ = ["CodeWriter", "export_c"]

HAS_FMA = isa in ("v3", "v4") or platform.machine() in ("aarch64", "arm64")  # else the bits of predict differ


def export_c(
    model: Any,
    path: Path,
    name: str | None = None,
    *,
    softmax: bool = False,
    arena: str = "static",
    weights: str = "text",
    header: bool = False,
    keep_values: bool = False,
    class_names: bool | Sequence[str] = False,
    winograd: str | None = None,
) -> None:
    """Writes the model as one C99 file whose scores are those of `model.predict`, bit for bit.

    The file defines `void digits_predict(const float *x, float *scores)`, for one example in row-major order, and
    `digits_predict_uint8` for bytes; for a float64 model with double. Several `Outputs` have an array of scores each:
    `void digits_predict(const float *x, float *policy, float *value)`. The file includes stdint.h, string.h, math.h and
    fenv.h alone, allocates nothing, and has a test of its own: the comment at its head says how to compile it.
    Augmentation, dropout and such are left out, as in inference.

    The file of a QuantizedModel has integers alone: `void digits_predict(const int8_t *x, int8_t *scores)` takes what
    `quantize_input` returns, `digits_predict_uint8` bytes, and the scores are those of `predict_int8`. The header says
    what they stand for.

    A layer that is not minidl's returns its statements in its method `c_code(self, writer)`: see CodeWriter.

    Parameters
    ----------
    model : Sequential, QuantizedModel, Trainer, SequentialClassifier or SequentialRegressor
        The model, or the trainer or fitted estimator of which the model is written.
    path : str or os.PathLike
        The C file. Each file is written atomically.
    name : str or None, default None
        First part of the names in the file; None: the name of the file, without ".c". No keyword of C or C++.
    softmax : bool, default False
        Whether to write probabilities instead of scores, as `predict_proba` of `model` returns them: a Softmax is
        appended, or a Sigmoid for independent labels. A single score becomes two columns.
    arena : "static" or "argument", default "static"
        "static": the memory for values is in the file. "argument": the functions take `float *arena` of `DIGITS_ARENA`
        numbers, so that several threads can predict.
    weights : "text" or "inc", default "text"
        "text": the tables are in the C file. "inc": they are in a file digits.inc beside it. Both write each number
        as an integer of its bits, which is exact in every compiler.
    header : bool, default False
        Whether to write digits.h beside the C file.
    keep_values : bool, default False
        Whether the outputs of all layers stay in the arena, which is larger then, and the file has a table
        `digits_values` of their places. Needs `arena="argument"`.
    class_names : bool or list of str, default False
        Whether the file has a table `digits_classes` of the names of the classes, in UTF-8: True: the labels of the
        classifier, or else the model's `classes`; a list: a name for each output (two for a single score).
    winograd : "tables", "memory", "direct" or None, default None
        How convolutions by Winograd's algorithm are written. "tables": their transformed weights, four times as many
        as the weights, are in the file. "memory": the file transforms the weights in the first call, into memory of its
        own; with `arena="argument"`, `digits_transform(float *transformed)` does, and the functions take `transformed`,
        of `DIGITS_TRANSFORMED` numbers, after the arena. "direct": direct sums, with the scores of a model of
        `Conv2D(algorithm="direct")`. None: "tables" up to 256 KiB of them, and with `arena="argument"`; else "memory".

    Raises
    ------
    TypeError
        For another `model`, or arguments of another type.
    ValueError
        For a layer without C, naming the layer and its path; for weights that are not finite, for a model that is not
        built, for a name that is no C identifier, for a header file named as one of the C library, for other invalid
        arguments, for `softmax=True` where `predict_proba` raises it, and if `predict` returns NaN alone for the inputs
        of the test. Nothing is written then.
    RuntimeError
        If another thread trains the model.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import minidl
    >>> from minidl.layers import Dense
    >>> model = minidl.Sequential([Dense(2)], input_shape=(3,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     minidl.export_c(model, os.path.join(folder, "digits.c"), header=True)
    ...     print(sorted(os.listdir(folder)))
    ...     with open(os.path.join(folder, "digits.h")) as file:
    ...         header = file.read()
    ['digits.c', 'digits.h']
    >>> "void digits_predict(const float *x, float *scores);" in header
    True
    """
    net = model_of(model)
    net.check_one_size("export_c")
    files = files_for(path, name, arena, weights, header, keep_values)
    check_choice("winograd", winograd, "tables", "memory", "direct", None)
    check_bool("softmax", softmax)
    classes = _classes(model, class_names, net)
    if isinstance(net, QuantizedModel):
        predict, shape = net.predict_int8, net.input_shape
        for argument, value, default in (("softmax", softmax, False), ("winograd", winograd, None)):
            if value != default:
                raise ValueError(f"{argument}: expected {default} for a file of integers, got {value!r}")
        export_program(
            _integers_of(net),
            lambda q: predict(q.reshape(-1, *shape), quantized=True),
            path,
            name,
            arena=arena,
            weights=weights,
            header=header,
            keep_values=keep_values,
            classes=classes,
            names_classes=class_names is not False,
            metadata=net.metadata,
        )
        return
    if softmax:
        net = with_probabilities(model, net)
    if winograd == "direct":
        net = with_direct_sums(net)
    in_memory = winograd == "memory" if winograd else files.static_arena and table_bytes(net) > MAX_TABLES
    with net.usage.reading("export_c"):
        program, first, outputs = generate(net.layers, files.name, in_memory)
        export = Export(
            stem=files.stem,
            function="predict_proba" if softmax else "predict",
            classes=classes,
            metadata=dict(model_of(model).metadata),
            program=program,
            input=first,
            outputs=outputs,
            output_names=net.output_names or list(outputs),
            state=net.state_dict(),
            static_arena=files.static_arena,
            keeps_values=files.keeps_values,
            names_classes=class_names is not False,
            separate_tables=files.separate_tables,
            sums_directly=winograd == "direct",
            test=draw(net) if HAS_FMA else None,
        )
        write(files, export)


def _integers_of(model: QuantizedModel) -> Program:
    """Returns the program of a quantized model; raises ValueError if float layers follow it."""
    if len(model) > 1:
        expected = "expected a quantized model without float_layers, such as model[:1]: the file has integers alone"
        raise ValueError(f"{layer_name(1, model.layers[1])}: {expected}")
    return model.program


def _classes(source: Any, given: Any, model: Sequential) -> list[str]:
    """Returns the names of the outputs, in their order: the given ones, else those that the model has, or none.

    Raises TypeError or ValueError for other names, and for a table of names (`given` is True) without any.
    """
    classes = [str(name) for name in class_names_of(source, None if isinstance(given, bool) else given, model)]
    if given is True and not classes:
        expected = "expected a list of names, a fitted classifier, or a model with `classes`"
        raise ValueError(f"class_names: {expected}, got {type(source).__name__}")
    return classes
