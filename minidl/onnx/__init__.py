"""Export to and import from ONNX, the exchange format that onnxruntime, browsers and phones run.

    minidl.onnx.export(model, "digits.onnx")
    model = minidl.onnx.import_model("digits.onnx")
    print(minidl.onnx.inspect("digits.onnx"))

All need the onnx package: pip install "minidl[onnx]".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from minidl.onnx.deployment import metadata_of, model_of, with_probabilities
from minidl.onnx.exporting import build_graph, convert_dtype
from minidl.onnx.file import model_file
from minidl.onnx.importing import build_model
from minidl.onnx.inspection import Inspection, inspect_graph
from minidl.onnx.node_writer import NodeWriter
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.saving.safetensors_file import FileError
from minidl.sequential import Sequential
from minidl.utils.text import escape_lines
from minidl.utils.validation import Shape, check_bool

__all__ = ["NodeWriter", "export", "import_model", "inspect"]


def export(
    model: Any,
    path: Path,
    dtype: str | None = None,
    *,
    softmax: bool = False,
    input_dtype: str | None = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Writes the model as an ONNX file (opset 21): input `(N, *input_shape)`, scores `(N, *output_shape)`.

    The graph computes inference: dropout and augmentation are identities, except that RandomCrop takes the centre, and
    batch norm uses its running statistics. Parameters keep their names, "0.weight"; nodes are named after the path of
    their layer, "3.body.0.Conv". The file is written atomically: the path always holds the complete old or new file. A
    layer that is not minidl's writes its nodes in its method `onnx(self, writer, x)`: see NodeWriter.

    A QuantizedModel is written in the format QDQ: weights of int8, values of uint8, and real scores, which may differ
    by some steps from those of `predict`, since other programs round in another way.

    Parameters
    ----------
    model : Sequential, QuantizedModel, Trainer, SequentialClassifier or SequentialRegressor
        The model, or the trainer or fitted estimator of which the model is written.
    path : str or os.PathLike
        The file.
    dtype : "float32", "float64" or None, default None
        Dtype of the graph; None: the model's. onnxruntime supports convolutions, average pooling and other layers in
        float32 only. ONNX stores attributes such as eps and slopes as float32 for either dtype.
    softmax : bool, default False
        Whether to write probabilities instead of scores, as `predict_proba` of `model` returns them: a Softmax is
        appended, or a Sigmoid for independent labels. A single score becomes two columns.
    input_dtype : "uint8" or None, default None
        "uint8": the graph's input is bytes, which it casts to the model's dtype; None: the model's dtype.
    class_names : list of str or None, default None
        A name for each output (two for a single score), as a JSON list in the metadata entry "class_names"; None: the
        labels of a SequentialClassifier as strings, or else the `classes` of the model. Its `metadata` is the metadata
        entry "metadata".

    Raises
    ------
    TypeError
        For another `model`, and for names that are not strings.
    ValueError
        For a layer without ONNX nodes, or with invalid ones or ones that compute something else, naming the layer and
        its path; for a model that is not built or larger than 2 GB, for another dtype or weights out of its range, for
        `softmax=True` if the outputs are not scores of classes, and for another number of names.
    RuntimeError
        If another thread trains the model.
    OSError
        If the file cannot be written.
    ImportError
        Without onnx: pip install "minidl[onnx]".

    See Also
    --------
    import_model : Reads the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import minidl
    >>> from minidl.layers import Dense
    >>> model = minidl.Sequential([Dense(2)], input_shape=(3,))
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = os.path.join(folder, "model.onnx")
    ...     minidl.onnx.export(model, path)
    ...     same = minidl.onnx.import_model(path)
    >>> bool((same.predict([[1, 2, 3]]) == model.predict([[1, 2, 3]])).all())  # doctest: +SKIP
    True
    """
    net, name = model_of(model), atomic.text(path)
    model_file.import_onnx()
    if input_dtype not in (None, "uint8"):
        raise ValueError(f"input_dtype: expected 'uint8' or None, got {input_dtype!r}")
    metadata = metadata_of(model, class_names, net)
    if check_bool("softmax", softmax):
        net = with_probabilities(model, net)
    net = convert_dtype(net, dtype)
    with net.usage.reading("export"):
        graph = build_graph(net, input_dtype)
        content = model_file.to_bytes(replace(graph, metadata={**graph.metadata, **metadata}))
    atomic.write(name, [memoryview(content)])


def import_model(
    path: Path,
    input_shape: Shape | None = None,
    external_data: bool = False,
    outputs: str | Sequence[str] | None = None,
    *,
    dequantize: bool = False,
) -> Sequential:
    """Returns the model in an ONNX file. A file from `export` gives the same layers and bit-identical predictions.

    In graphs from other programs, opset 1 to 28, each node becomes the layers that compute the same: Conv, Gemm or
    MatMul, pooling, norms, activations, and branches joined by Add, Sub, Sum, Mul or Concat. Transposes of models with
    channels last disappear where nodes can be moved before them. The batch may have any size. An input of integers with
    a Cast after it becomes an input of the dtype that it is cast to.

    A quantized net becomes a QuantizedModel: one of minidl with the same bytes, one of another program, in the formats
    QDQ and QOperator, with its scales, zero points, weights and biases, and minidl's rounding.

    `classes` and `metadata` of the model are read from the metadata entries "class_names" and "metadata", if there are
    any that these attributes take.

    Weights shared by several nodes become one copy per layer; a UserWarning names the nodes, since training updates the
    copies separately.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    input_shape : tuple of int or None, default None
        Shape of one example, if the file has dynamic sizes.
    external_data : bool, default False
        Whether to read tensors that are in other files, in the folder of this one.
    outputs : str, sequence of str, or None, default None
        Names of the values that are the model's outputs, such as "probabilities": outputs of the graph, or other values
        in it; nodes that they do not depend on are left out. None: all outputs of the graph.
    dequantize : bool, default False
        Whether a quantized net becomes one of floats, which can be trained, without the rounding of values.

    Returns
    -------
    Sequential
        A new model, which is built: a QuantizedModel if values of the graph are quantized.

    Raises
    ------
    minidl.FileError
        For a damaged file or another format, and for external data outside the folder or of another length. It is a
        ValueError. ONNX files have no checksums, so modified weights go unnoticed.
    ValueError
        For a graph that layers cannot express exactly: the message lists every obstacle, each kind of unsupported node
        with one example and the reason. For a quantized net that integers cannot compute with the file's numbers: the
        message names the node. For tensors in other files without `external_data=True`.
    OSError
        If the file cannot be read.
    ImportError
        Without onnx: pip install "minidl[onnx]".

    See Also
    --------
    export : Writes such a file.
    inspect : What a file holds, and what an import would refuse.

    Examples
    --------
    >>> import os, tempfile
    >>> import minidl
    >>> from minidl.layers import Conv2D, Flatten, ReLU
    >>> model = minidl.Sequential([Conv2D(4, 3), ReLU(), Flatten()], input_shape=(1, 8, 8))
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = os.path.join(folder, "model.onnx")
    ...     minidl.onnx.export(model, path)
    ...     print(minidl.onnx.import_model(path))
    Sequential(
      (0): Conv2D(filters=4, kernel_size=3)
      (1): ReLU()
      (2): Flatten()
    )
    """
    check_bool("dequantize", dequantize)
    with _naming(path) as name:
        return build_model(
            model_file.read(name, check_bool("external_data", external_data)), input_shape, outputs, dequantize
        )


def inspect(
    path: Path,
    input_shape: Shape | None = None,
    external_data: bool = False,
    outputs: str | Sequence[str] | None = None,
    *,
    dequantize: bool = False,
) -> Inspection:
    """Returns what an ONNX file holds, and every obstacle to `import_model`. It prints as text.

    On the command line: python -m minidl inspect model.onnx

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    input_shape : tuple of int or None, default None
        Shape of one example, if the file has dynamic sizes.
    external_data : bool, default False
        Whether to read tensors that are in other files, in the folder of this one.
    outputs : str, sequence of str, or None, default None
        Names of the values that are to be the model's outputs, as in `import_model`; None: all outputs of the graph.
    dequantize : bool, default False
        Whether a quantized net is to become one of floats, as in `import_model`.

    Returns
    -------
    Inspection
        Its attributes: producer, opset, inputs, outputs, operators, parameters, macs, obstacles, notes. `obstacles` is
        empty for a file that `import_model` reads; `notes` are the warnings of that.

    Raises
    ------
    minidl.FileError
        For a damaged file or another format.
    ValueError
        For tensors in other files without `external_data=True`, and for an opset that does not exist.
    OSError
        If the file cannot be read.
    ImportError
        Without onnx: pip install "minidl[onnx]".

    See Also
    --------
    import_model : Reads the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import minidl
    >>> from minidl.layers import Dense
    >>> model = minidl.Sequential([Dense(2)], input_shape=(3,))
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = os.path.join(folder, "model.onnx")
    ...     minidl.onnx.export(model, path)
    ...     found = minidl.onnx.inspect(path)
    >>> print(found.operators, found.parameters, found.macs, found.obstacles)  # doctest: +SKIP
    {'Gemm': 1} 8 6 ()
    """
    check_bool("dequantize", dequantize)
    with _naming(path) as name:
        return inspect_graph(
            model_file.read(name, check_bool("external_data", external_data)), input_shape, outputs, dequantize
        )


@contextmanager
def _naming(path: Path) -> Iterator[str]:
    """Yields the path as text; errors begin with it, and are printable: they may quote the file."""
    name = atomic.text(path)
    model_file.import_onnx()
    try:
        yield name
    except FileError as error:
        raise FileError(f"{name}: {escape_lines(str(error))}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {escape_lines(str(error))}") from error
