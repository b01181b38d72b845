"""QuantizedModel: a net of eight-bit integers as a model that predicts, is evaluated, saved and exported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine import description, layer_list
from minidl.quantization import program_file
from minidl.quantization.integer_net import IntegerNet
from minidl.quantization.noise import Noise, advice
from minidl.quantization.program import HIGH, LOW, Int8, Program, QuantizeInput
from minidl.quantization.summary import QuantizedSummary, rows_of
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
from minidl.utils.validation import Shape

KIND = "quantized model"  # of a file


class QuantizedModel(Sequential):
    """A net of eight-bit integers, which `quantize` makes of a trained model; float layers may follow.

    It is a model whose first layer has the arithmetic of a `Program`, so `predict`, `predict_proba`,
    `Trainer.evaluate`, plots and estimators take it like the float model. Integer sums are exact, so that its bytes are
    the same on every processor, on any number of threads, and in the C file that `export_c` writes. It cannot be
    trained.

    Parameters
    ----------
    program : Program
        The integers.
    input_shape : tuple of int
        Shape of one example.
    output_shape : tuple of int or None, default None
        Shape of the output of the integers; None: that of the program's last value.
    float_layers : Sequential or None, default None
        A built model that takes the numbers that this output stands for: its layers are copied.
    noise : tuple of Noise, default ()
        What each operation loses on calibration data, for `summary`.

    Attributes
    ----------
    program : Program
        The integers.
    noise : tuple of Noise
        As above.

    Raises
    ------
    TypeError, ValueError
        For a program whose operations do not fit together, and shapes that do not fit it.

    See Also
    --------
    quantize : Makes one of a trained model.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, quantize
    >>> from minidl.layers import Dense
    >>> X = np.linspace(-1, 1, 20).reshape(10, 2)
    >>> quantized = quantize(Sequential([Dense(3)], input_shape=(2,)), X)
    >>> quantized.predict_int8(X).shape, quantized.predict_int8(X).dtype.name
    ((10, 3), 'int8')
    """

    def __init__(
        self,
        program: Program,
        input_shape: Shape,
        output_shape: Shape | None = None,
        float_layers: Sequential | None = None,
        noise: Sequence[Noise] = (),
    ) -> None:
        after, state = (), dict[str, Array]()
        if float_layers is not None:
            after = layer_list.from_spec(layer_list.to_spec(float_layers.layers))
            for name, value in float_layers.state_dict().items():
                place, _, own = name.partition(".")
                state[f"{int(place) + 1}.{own}"] = value
        net = IntegerNet(program, None if output_shape is None else tuple(output_shape))
        super().__init__([net, *after])
        self.build_from(input_shape, state)
        self.program, self.noise = program, tuple(noise)
        self._of_bytes: Sequential | None = None  # the integers alone, of quantized inputs

    @property
    def advice(self) -> str:
        """Which operation loses most on the calibration data, and what to do."""
        return advice(self.noise)

    def quantize_input(self, X: ArrayLike) -> Int8:
        """Returns the numbers that the net computes from, which the C file takes.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)`
            Examples, as `predict` takes them.

        Returns
        -------
        array of shape `(n, *input_shape)`
            The numbers, int8.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        examples = ArraySource(X, self.input_shape, self.dtype)
        x = examples.chunk(0, len(examples)).astype(np.float64).reshape(-1, *self.program.values[0].shape)
        factors, offsets = (of[:, None, None] for of in (self.program.input.factors, self.program.input.offsets))
        numbers = np.clip(np.floor(x * factors + offsets), LOW, HIGH).astype(np.int8)
        return numbers.reshape(-1, *self.input_shape)

    def predict_int8(self, X: ArrayLike, num_threads: int | None = None) -> Int8:
        """Returns the outputs of the integers for X: the bytes that a chip computes.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)`
            Examples, as `predict` takes them, or what `quantize_input` returned: int8, of any shape for each example.
        num_threads : int or None, default None
            As for `predict`.

        Returns
        -------
        array of shape `(n, *shape)`
            The outputs of the integers, int8, before any float layers.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        given = getattr(X, "dtype", None) == np.int8
        numbers = np.reshape(X, (-1, *self.input_shape)) if given else self.quantize_input(X)
        if self._of_bytes is None:
            channels = self.program.values[0].shape[0]
            same = replace(self.program, input=QuantizeInput(np.ones(channels), np.zeros(channels)))
            self._of_bytes = Sequential([IntegerNet(same, self.layers[0].out_shape)], self.input_shape)
        (net,) = self._of_bytes.layers
        assert isinstance(net, IntegerNet)
        return net.quantized(self._of_bytes.predict(numbers, num_threads))

    def summary(self, batch_size: int = 64, num_threads: int | None = None) -> QuantizedSummary:  # type: ignore[override]
        """Returns operations, shapes, bytes, multiply-adds and noise, as an object that prints as a table.

        Parameters
        ----------
        batch_size, num_threads : int, int or None
            Not used: they are those of Sequential.summary.

        Returns
        -------
        QuantizedSummary
            It prints as a table. `rows` has for each operation `label`, `kind`, `output` (a shape), `macs`,
            `constant_bytes` and `snr`, the ratio of signal and noise on the calibration data in dB; None: unknown.
            `macs`, `constant_bytes` and `advice` are those of the whole program.
        """
        return QuantizedSummary(self.program.values[0].shape, rows_of(self.program, self.noise), self.advice)

    # ---- files

    def save(self, path: Path, metadata: Mapping[str, Any] | None = None, classes: ArrayLike | None = None) -> None:
        """Writes the integers and the float layers to a safetensors file, atomically; see Sequential.save.

        Parameters
        ----------
        path : str or os.PathLike
            The file.
        metadata, classes : dict or None, list or None
            As for Sequential.save.

        Raises
        ------
        TypeError, ValueError, OSError
            As Sequential.save.
        """
        config, tensors = program_file.encode(self.program)
        tensors = {f"program.{name}": array for name, array in tensors.items()}
        noise = [(one.label, one.kind, one.weight_bytes) for one in self.noise]
        tensors["noise"] = np.array([(one.snr, one.added, one.beyond) for one in self.noise], np.float64).reshape(-1, 3)
        config |= {"input_shape": list(self.input_shape), "output_shape": list(self.layers[0].out_shape)}
        config |= {"noise": [list(one) for one in noise], "float_layers": None}
        if len(self) > 1:
            after = self[1:]
            config["float_layers"] = after.get_config()
            tensors |= {f"float_layers.{name}": array for name, array in after.state_dict().items()}
        safetensors_file.write(path, KIND, config, tensors, description.about(self, metadata, classes))

    @classmethod
    def load(cls, path: Path, custom_objects: Mapping[str, Any] | None = None) -> QuantizedModel:
        """Returns the model that `save` wrote, with the same bytes.

        Parameters
        ----------
        path : str or os.PathLike
            A file that `save` wrote.
        custom_objects : dict of str to class, or None, default None
            Classes of float layers that are not minidl's, by name.

        Returns
        -------
        QuantizedModel
            A new model.

        Raises
        ------
        minidl.FileError
            If the content of the file is invalid. It is a ValueError that names the path.
        OSError
            If the file cannot be read.
        """
        config, tensors, about = safetensors_file.read(path, KIND)
        try:
            model = cls._decoded(config, tensors, custom_objects or {})
            description.describe(model, about)
            return model
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise safetensors_file.FileError(f"{os.fsdecode(path)}: {error}") from error

    @classmethod
    def _decoded(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Array], custom_objects: Mapping[str, Any]
    ) -> QuantizedModel:
        parts: dict[str, dict[str, Array]] = {"program": {}, "float_layers": {}}
        for name, array in tensors.items():
            if name != "noise":
                part, _, own = name.partition(".")
                parts[part][own] = array
        after = None
        if config["float_layers"] is not None:
            after = Sequential.from_config(config["float_layers"], parts["float_layers"], custom_objects)
        noise = [
            Noise(str(label), str(kind), float(snr), float(added), float(beyond), int(size))
            for (label, kind, size), (snr, added, beyond) in zip(config["noise"], tensors["noise"], strict=True)
        ]
        program = program_file.decode(config, parts["program"])
        return cls(program, tuple(config["input_shape"]), tuple(config["output_shape"]), after, noise)

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle."""
        after = self[1:] if len(self) > 1 else None
        noise = tuple(astuple(one) for one in self.noise)
        shapes = self.input_shape, self.layers[0].out_shape
        return _rebuilt, (self.program, *shapes, after, noise, description.about(self))


def _rebuilt(
    program: Program,
    input_shape: Shape,
    output_shape: Shape,
    float_layers: Sequential | None,
    noise: Sequence[tuple[Any, ...]],
    about: Mapping[str, Any],
) -> QuantizedModel:
    model = QuantizedModel(program, input_shape, output_shape, float_layers, [Noise(*one) for one in noise])
    description.describe(model, about)
    return model
