"""Export of models to ONNX files, and import from them: ONNX Runtime, browsers and phones run these files.

    minidl.onnx.export(model, "digits.onnx")
    model = minidl.onnx.import_model("digits.onnx")

Both need the package onnx: pip install "minidl[onnx]".
"""

from __future__ import annotations

from minidl.onnx import model_file
from minidl.onnx.exporting import cast_model, to_graph
from minidl.onnx.importing import to_model
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.saving.safetensors_file import FileError, content_of
from minidl.sequential import Sequential
from minidl.utils.validation import Shape

__all__ = ["export", "import_model"]


def export(model: Sequential, path: Path, dtype: str | None = None) -> None:
    """Writes the model as an ONNX file (opset 21): input (N, *input_shape), scores (N, *output_shape).

    The graph is that of inference: Dropout, RandomFlip and RandomShift are the identity, RandomCrop crops the centre,
    batch norm uses its running statistics. Parameters keep their names ("0.weight"); nodes are named after the path of
    their layer ("3.body.0.Conv"). The file is replaced atomically.

    dtype: "float32" or "float64"; None: the model's. ONNX Runtime has convolutions, average pools and other layers only
        in float32. ONNX stores eps, slopes and the like as float32 for both.

    Raises TypeError unless model is a Sequential; ValueError, naming the layer, for a layer that is not minidl's, for a
    model that is not built or beyond 2 GB, for another dtype or weights too large for it; OSError naming the path;
    ImportError without onnx.
    """
    if not isinstance(model, Sequential):
        raise TypeError(f"model: expected a Sequential, got {type(model).__name__}")
    name = atomic.text(path)
    model_file.import_onnx()
    atomic.write(name, [memoryview(model_file.to_bytes(to_graph(cast_model(model, dtype))))])


def import_model(path: Path, input_shape: Shape | None = None) -> Sequential:
    """Returns the model in an ONNX file. A file from `export` gives the same layers, which predict the same bits.

    In graphs of other exporters, opset 11 to 28, nodes become layers that compute the same: Conv, Gemm or MatMul,
    pools, norms, activations, and branches that join in Add, Sum or Concat. The batch may have any size. Weights that
    several nodes share are copied for each layer; a UserWarning names these nodes, since training changes each copy
    separately.

    input_shape: of one example, if the file leaves sizes open.

    Raises ValueError for a graph that layers cannot compute exactly: the message lists each kind of unsupported node
    with one example and the reason, and the remedy for weights in a second file (`external_data=False` in PyTorch);
    `minidl.FileError`, a ValueError, for a damaged file or another format; OSError if it cannot be read; ImportError
    without onnx. ONNX files have no checksums, so altered weights are not detected.
    """
    name = atomic.text(path)
    model_file.import_onnx()
    content = content_of(name, model_file.MAX_BYTES)
    try:
        return to_model(model_file.from_bytes(content), input_shape)
    except FileError as error:
        raise FileError(f"{name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
