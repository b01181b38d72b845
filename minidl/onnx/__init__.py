"""Export to and import from ONNX, the exchange format that onnxruntime, browsers and phones run.

    minidl.onnx.export(model, "digits.onnx")
    model = minidl.onnx.import_model("digits.onnx")

Both need the onnx package: pip install "minidl[onnx]".
"""

from __future__ import annotations

from minidl.onnx import model_file
from minidl.onnx.exporting import build_graph, convert_dtype
from minidl.onnx.importing import build_model
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.saving.safetensors_file import FileError, content_of
from minidl.sequential import Sequential
from minidl.utils.validation import Shape

__all__ = ["export", "import_model"]


def export(model: Sequential, path: Path, dtype: str | None = None) -> None:
    """Writes the model as an ONNX file (opset 21): input (N, *input_shape), scores (N, *output_shape).

    The graph computes inference: dropout and augmentation are identities, except that RandomCrop takes the centre,
    and batch norm uses its running statistics. Parameters keep their names, "0.weight"; nodes are named after the path
    of their layer, "3.body.0.Conv". The file is written atomically: the path always holds the complete old or new file.

    dtype: "float32" or "float64"; None: the model's. onnxruntime supports convolutions, average pooling and other
        layers in float32 only. ONNX stores attributes such as eps and slopes as float32 for either dtype.

    Raises TypeError unless the model is a Sequential; ValueError, naming the layer and its path, for a layer that is
    not minidl's, for a model that is not built or larger than 2 GB, for another dtype or weights out of its range;
    OSError naming the path; ImportError without onnx.
    """
    if not isinstance(model, Sequential):
        raise TypeError(f"model: expected a Sequential, got {type(model).__name__}")
    name = atomic.text(path)
    model_file.import_onnx()
    atomic.write(name, [memoryview(model_file.to_bytes(build_graph(convert_dtype(model, dtype))))])


def import_model(path: Path, input_shape: Shape | None = None) -> Sequential:
    """Returns the model in an ONNX file. A file from `export` gives the same layers and bit-identical predictions.

    In graphs from other programs, opset 11 to 28, each node becomes the layers that compute the same: Conv, Gemm or
    MatMul, pooling, norms, activations, and branches joined by Add, Sub, Sum, Mul or Concat. Transposes of models with
    channels last disappear where nodes can be moved before them. The batch may have any size. Weights shared by several
    nodes become one copy per layer; a UserWarning names the nodes, since training updates the copies separately.

    input_shape: of one example, if the file has dynamic sizes.

    Raises ValueError for a graph that layers cannot express exactly: the message lists every kind of unsupported node
    with one example and the reason, and what to do about weights in a second file (`external_data=False` in PyTorch);
    `minidl.FileError`, a ValueError, for a damaged file or another format; OSError if it cannot be read; ImportError
    without onnx. ONNX files have no checksums, so modified weights go unnoticed.
    """
    name = atomic.text(path)
    model_file.import_onnx()
    content = content_of(name, model_file.MAX_BYTES)
    try:
        return build_model(model_file.from_bytes(content), input_shape)
    except FileError as error:
        raise FileError(f"{name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
