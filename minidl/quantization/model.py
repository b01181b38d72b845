"""QuantizedModel: a net of eight-bit integers as a model that predicts, is evaluated, saved and exported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine import description, layer_list
from minidl.layers.base import Layer
from minidl.quantization import evaluation, program_file
from minidl.quantization.integer_net import IntegerNet
from minidl.quantization.noise import Noise, advice
from minidl.quantization.program import Int8, Program, QuantizeInput
from minidl.quantization.summary import QuantizedSummary, rows_of
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path
from minidl.saving.object_codec import checked_custom
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.data import CHUNK, ArraySource
from minidl.utils.validation import Shape, check_bool

KIND = "quantized model"  # of a file
CONFIG = {"program", "noise", "float_layers", "input_shape", "output_shape"}  # what its config has


class QuantizedModel(Sequential):
    """A net of eight-bit integers, which `quantize` makes of a trained model; float layers may follow.

    It is a model whose first layer has the arithmetic of a `Program`, so `predict`, `predict_proba`,
    `Trainer.evaluate`, plots and estimators take it like the float model. Integer sums are exact, so that its bytes are
    the same on every processor, on any number of threads, and in the C file that `export_c` writes. It cannot be
    trained.

    `model[:1]` is the QuantizedModel of the integers alone, and `model[1:]` the float layers.

    Parameters
    ----------
    program : Program
        The integers.
    input_shape : tuple of int
        Shape of one example.
    output_shape : tuple of int or None, default None
        Shape of the output of the integers; None: that of the program's last value.
    float_layers : Sequential or None, default None
        A built model that takes the numbers that this output stands for: its layers are copied, in float32.
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
    minidl.quantize : Makes one of a trained model.

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
            _check_float_layers(float_layers)
            after = layer_list.from_spec(layer_list.to_spec(float_layers.layers))
            for name, value in float_layers.state_dict().items():
                place, _, own = name.partition(".")
                state[f"{int(place) + 1}.{own}"] = value
        super().__init__([IntegerNet(program, output_shape), *after])
        self.build_from(input_shape, state)
        out_shape = self.layers[0].out_shape
        if float_layers is not None and float_layers.input_shape != out_shape:
            raise ValueError(f"float_layers: expected a model that takes {out_shape}, got {float_layers.input_shape}")
        if not isinstance(noise, Sequence) or not all(isinstance(one, Noise) for one in noise):
            raise TypeError(f"noise: expected a tuple of Noise, got {noise!r:.100}")
        self.program, self.noise = program, tuple(noise)
        self._of_bytes: Sequential | None = None  # the integers alone, of quantized inputs

    @property
    def advice(self) -> str:
        """Which operation loses most on the calibration data, and what to do; empty without `noise`."""
        return advice(self.noise) if self.noise else ""

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
        numbers = np.empty((len(examples), *self.program.values[0].shape), np.int8)
        for rows, x in examples.chunks(CHUNK):
            block = x.astype(self.dtype).reshape(-1, *numbers.shape[1:])
            numbers[rows] = evaluation.quantize_input(self.program.input, block)
        return numbers.reshape(-1, *self.input_shape)

    def predict_int8(self, X: ArrayLike, num_threads: int | None = None, *, quantized: bool = False) -> Int8:
        """Returns the outputs of the integers for X: the bytes that a chip computes.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)`
            Examples, as `predict` takes them.
        num_threads : int or None, default None
            As for `predict`.
        quantized : bool, default False
            Whether X is what `quantize_input` returned, int8, instead of examples.

        Returns
        -------
        array of shape `(n, *shape)`
            The outputs of the integers, int8, before any float layers.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        if not check_bool("quantized", quantized):
            X = self.quantize_input(X)
        elif getattr(X, "dtype", None) != np.int8:
            raise TypeError(
                f"X: expected int8, that quantize_input returned, got {getattr(X, 'dtype', type(X).__name__)}"
            )
        if self._of_bytes is None:
            channels = self.program.values[0].shape[0]
            same = replace(self.program, input=QuantizeInput(np.ones(channels), np.zeros(channels)))
            self._of_bytes = Sequential([IntegerNet(same, self.layers[0].out_shape)], self.input_shape)
        (net,) = self._of_bytes.layers
        assert isinstance(net, IntegerNet)
        return net.quantized(self._of_bytes.predict(X, num_threads))

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

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice | str | list[str]) -> Sequential: ...
    def __getitem__(self, index: int | slice | str | list[str]) -> Layer | Sequential:
        """Returns a layer, or a new model: see Sequential. One that begins with the integers is quantized."""
        chosen = super().__getitem__(index)
        if not isinstance(chosen, Sequential) or not isinstance(chosen.layers[0], IntegerNet):
            return chosen
        after = chosen[1:] if len(chosen) > 1 else None
        shapes = self.input_shape, self.layers[0].out_shape
        return _described(QuantizedModel(self.program, *shapes, after, self.noise), description.about(chosen))

    def soft_update(self, other: Sequential, tau: float = 1.0) -> NoReturn:
        """Is refused, since integers do not move a part of the way.

        Parameters
        ----------
        other, tau : Sequential, float
            Not used: they are those of Sequential.soft_update.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("soft_update: expected a model of floats, got a QuantizedModel, whose integers do not change")

    # ---- files

    def get_config(self, custom_objects: dict[str, Any] | None = None) -> NoReturn:
        """Is refused, since the numbers of a program are no arguments of a layer.

        Parameters
        ----------
        custom_objects : dict or None
            Not used: it is that of Sequential.get_config.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("expected a model of floats, got a QuantizedModel, of which save and load keep the integers")

    @classmethod
    def from_config(
        cls, config: dict[str, Any], state: Mapping[str, Array] | None, custom_objects: Mapping[str, Any]
    ) -> NoReturn:
        """Is refused, as `get_config`.

        Parameters
        ----------
        config, state, custom_objects : dict
            Not used: they are those of Sequential.from_config.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("from_config: expected Sequential.from_config, or QuantizedModel.load of a file")

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
        program, arrays = program_file.encode(self.program)
        tensors = {f"program.{name}": array for name, array in arrays.items()}
        noise, numbers = program_file.encode_noise(self.noise)
        tensors |= {"noise": numbers}
        config = {"program": program, "noise": noise, "float_layers": None}
        config |= {"input_shape": list(self.input_shape), "output_shape": list(self.layers[0].out_shape)}
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
        custom = checked_custom(custom_objects)
        config, tensors, about = safetensors_file.read(path, KIND)
        try:
            return _described(cls._decoded(config, tensors, custom), about)
        except (TypeError, ValueError, OverflowError) as error:
            raise safetensors_file.FileError(f"{os.fsdecode(path)}: {error}") from error

    @classmethod
    def _decoded(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Array], custom_objects: Mapping[str, Any]
    ) -> QuantizedModel:
        """Returns the model of a file's content; raises TypeError, ValueError or OverflowError for others."""
        if set(config) != CONFIG:
            raise ValueError(f"config: expected {sorted(CONFIG)}, got {sorted(config)!r:.300}")
        parts: dict[str, dict[str, Array]] = {"program": {}, "float_layers": {}, "noise": {}}
        for name, array in tensors.items():
            part, _, own = name.partition(".")
            if part not in parts:
                raise ValueError(f"expected tensors of {', '.join(parts)}, got {name!r:.100}")
            parts[part][own] = array
        after = None
        if config["float_layers"] is not None:
            after = Sequential.from_config(config["float_layers"], parts["float_layers"], custom_objects)
        program = program_file.decode(config["program"], parts["program"])
        noise = program_file.decode_noise(config["noise"], parts["noise"])
        in_shape, out_shape = (program_file.tupled(config[name]) for name in ("input_shape", "output_shape"))
        return cls(program, in_shape, out_shape, after, noise)

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle."""
        after = self[1:] if len(self) > 1 else None
        noise = tuple(astuple(one) for one in self.noise)
        shapes = self.input_shape, self.layers[0].out_shape
        return _rebuilt, (self.program, *shapes, after, noise, description.about(self))


def _check_float_layers(model: Any) -> None:
    """Raises TypeError or ValueError unless it is a built model of one size."""
    if not isinstance(model, Sequential):
        raise TypeError(f"float_layers: expected a Sequential or None, got {model!r:.100}")
    if model.network is None:
        raise ValueError("float_layers: expected a built model: give it an input_shape, or fit it first")
    model.check_one_size("float_layers")


def _described(model: QuantizedModel, about: Mapping[str, Any]) -> QuantizedModel:
    description.describe(model, about)
    return model


def _rebuilt(
    program: Program,
    input_shape: Shape,
    output_shape: Shape,
    float_layers: Sequential | None,
    noise: Sequence[tuple[Any, ...]],
    about: Mapping[str, Any],
) -> QuantizedModel:
    made = [Noise(*one) for one in noise]
    return _described(QuantizedModel(program, input_shape, output_shape, float_layers, made), about)
