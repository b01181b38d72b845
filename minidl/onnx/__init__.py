"""Models for other programs, and from them: ONNX files, which onnxruntime, browsers and phones run.

    minidl.onnx.export(model, "digits.onnx")
    model = minidl.onnx.import_model("digits.onnx")

Both need the library onnx: pip install "minidl[onnx]".
"""

from __future__ import annotations

from minidl.onnx import model_file
from minidl.onnx.exporting import graph_of, in_dtype
from minidl.onnx.importing import model_of
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.saving.safetensors_file import FileError, content_of
from minidl.sequential import Sequential
from minidl.utils.validation import Shape

__all__ = ["export", "import_model"]


def export(model: Sequential, path: Path, dtype: str | None = None) -> None:
    """Writes the model as an ONNX file (opset 21): input (N, *input_shape), scores (N, *output_shape).

    The graph is that of inference: Dropout, RandomFlip and RandomShift leave examples as they are, RandomCrop takes the
    centre, batch norm its running statistics. Parameters have their names, "0.weight"; nodes that of their layer's
    place, "3.body.0.Conv". The path holds the whole old or the whole new file at any time.

    dtype: "float32" or "float64", None: the model's. onnxruntime has convolutions, average pools and other layers in
        float32 alone. ONNX keeps eps, slopes and the like as float32, which others compute with in both.

    Raises TypeError for what is no Sequential; ValueError, naming layer and place, for a layer that is not minidl's,
    for a model that is not built or beyond 2 GB, for another dtype or weights too large for it; OSError naming the
    path; ImportError without onnx.
    """
    if not isinstance(model, Sequential):
        raise TypeError(f"model: expected a Sequential, got {type(model).__name__}")
    name = atomic.text(path)
    model_file.library()
    atomic.write(name, [memoryview(model_file.to_bytes(graph_of(in_dtype(model, dtype))))])


def import_model(path: Path, input_shape: Shape | None = None) -> Sequential:
    """The model in an ONNX file. What `export` wrote comes back with the same layers and predicts the same bits.

    Of graphs that others wrote, opset 11 to 28, nodes become the layers that compute the same: Conv, Gemm or MatMul,
    pools, norms, activations, and branches that meet in Add, Sum or Concat. The batch may have any size. Weights that
    nodes share become a copy for each layer; a UserWarning names the nodes, since training changes them apart.

    input_shape: of one example, where the file leaves sizes open.

    Raises ValueError for a graph that layers cannot say exactly: it names all kinds of nodes that are in the way, each
    with one node and the reason, and what to do about weights in a second file (`external_data=False` in PyTorch);
    `minidl.FileError`, a ValueError, for a file that is damaged or no ONNX file; OSError if it cannot be read;
    ImportError without onnx. ONNX files have no checksums: of weights that were changed nobody can tell.
    """
    name = atomic.text(path)
    model_file.library()
    content = content_of(name, model_file.MOST_BYTES)
    try:
        return model_of(model_file.from_bytes(content), input_shape)
    except FileError as error:
        raise FileError(f"{name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
