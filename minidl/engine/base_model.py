"""BaseModel: what a built model computes: outputs, and gradients by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn, Self, cast

from numpy.typing import ArrayLike

from minidl.engine import description
from minidl.engine.input_gradient import inference_network, input_gradient, make_objective
from minidl.engine.manual import ManualPass
from minidl.engine.network import Network
from minidl.engine.param_groups import Select, set_param_group
from minidl.engine.probabilities import link_of, one_output, predicted_probabilities
from minidl.engine.sizes import Sizes
from minidl.engine.views import Views, over_views
from minidl.layers.base import Layer
from minidl.layers.outputs import Outputs
from minidl.losses import Loss
from minidl.saving import canonical_json
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource, shape_of_examples
from minidl.utils.hints import known_arguments
from minidl.utils.validation import Shape, check_bool
from minidl_c.runtime.usage_guard import UsageGuard


class BaseModel:
    """Layers and their network, which is None until the model is built. See Sequential."""

    layers: tuple[Layer, ...]
    dtype: str
    seed: int

    def __init__(self) -> None:
        self.network: Network | None = None
        self.sizes: Sizes[Any] | None = None  # of a built model that takes images of any size
        self.usage = UsageGuard()  # allows predictions in many threads, or training in one
        self._changes = [0]
        self._manual: ManualPass | None = None  # made at the first forward by hand
        self._inference: Network | None = None  # of input_gradient, if it may be shared by threads
        self._metadata = "{}"  # JSON
        self._classes: tuple[str | int, ...] | None = None

    def _built(self) -> Network:
        if self.network is None:
            raise ValueError("the model is not built yet: give it an input_shape, or fit it first")
        return self.network

    @property
    def changes(self) -> int:
        """The number of changes of the weights since the model was made: steps, load_state_dict, soft_update."""
        return self._changes[0]

    @changes.setter
    def changes(self, count: int) -> None:
        self._changes[0] = count

    @property
    def input_shape(self) -> Shape:
        """The shape of one example, a tuple of int, with None for height and width that may be any.

        Raises
        ------
        ValueError
            If the model is not built.
        """
        self._built()
        return self.layers[0].in_shape if self.sizes is None else cast(Shape, self.sizes.declared)

    @property
    def output_shape(self) -> Any:
        """The shape of one example's output, a tuple of int; of several `Outputs`, a dict of shapes by name.

        A size that depends on that of the example is None, if it may be any.

        Raises
        ------
        ValueError
            If the model is not built.
        """
        network = self._built()
        if self.sizes is not None:
            return self.sizes.output_shape
        return network.out_shape if network.outputs is None else dict(network.outputs.shapes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of several `Outputs`; empty if the model has one output."""
        last = self.layers[-1]
        return tuple(last.branches) if isinstance(last, Outputs) else ()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What you say of the model, by name: a read-only dict of JSON's values, which files keep. Set a dict.

        The values are of `str`, `int`, `float`, `bool`, `list`, `dict` and None, and what is read back is equal to what
        was set. Copies, slices, pickles, checkpoints, and model and ONNX files keep it.

        Raises
        ------
        TypeError
            If another value is set: a tuple, bytes or a number of NumPy, or a key that is no string.
        ValueError
            For NaN and infinity, for more than 2**20 characters of JSON, and for more than 50 levels.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(2)], input_shape=(3,))
        >>> model.metadata = {"data": "survey 7", "range": [0, 255]}
        >>> model.metadata["range"]
        [0, 255]
        """
        return MappingProxyType(canonical_json.load(self._metadata))

    @metadata.setter
    def metadata(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = description.metadata_text(metadata)

    @property
    def classes(self) -> tuple[str | int, ...] | None:
        """The names of the classes, in the order of the outputs, which files keep; None: it has none. Set a list.

        There is a string or an int for each output, (classes, ...), and two for a single score; no two are equal.
        Copies, pickles, checkpoints, model files, ONNX and C files keep them, and slices that have the last layer.

        Raises
        ------
        TypeError
            If others than strings, or ints, or None are set.
        ValueError
            If their number is not that of the outputs, if two are equal, if the model has several `Outputs`, or if it
            is not built.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(2)], input_shape=(3,))
        >>> model.classes = ["cat", "dog"]
        >>> model.classes[model.predict([[1, 2, 3]]).argmax()] in ("cat", "dog")
        True
        """
        return self._classes

    @classes.setter
    def classes(self, classes: ArrayLike | None) -> None:
        if classes is not None:
            classes = description.check_classes("classes", classes, self.output_shape, self.output_names)
        self._classes = classes

    def at(self, input_shape: Shape) -> Self:
        """Returns the model for examples of one shape: see Sequential.at.

        Parameters
        ----------
        input_shape : tuple of int
            Shape of one example.

        Returns
        -------
        BaseModel
            A model of one size.

        Raises
        ------
        ValueError
            If the model cannot take it.
        """
        raise NotImplementedError

    def check_one_size(self, what: str) -> None:
        """Raises ValueError, beginning with `what`, if the model takes images of any size, or is not built.

        Parameters
        ----------
        what : str
            Name of the caller, for the message.

        Raises
        ------
        ValueError
            The message names the remedy.
        """
        self._built()
        if self.sizes is not None:
            example = (self.sizes.declared[0], *[128] * (len(self.sizes.declared) - 1))
            expected = f"expected a model of one size: model.at({example}) is one, with the same weights"
            raise ValueError(f"{what}: {expected}; got a model of images of any size, {self.sizes.declared}")

    @property
    def decay_mult(self) -> NoReturn:
        """Not an attribute of models, which have `lr_mult` only: reading and setting it raise AttributeError.

        Raises
        ------
        AttributeError
            The message names the remedies.
        """
        expected = "expected the weight_decay of the optimizer, or model.set_param_group(select, decay_mult=...)"
        raise AttributeError(f"model.decay_mult: {expected}: a model has lr_mult only")

    @decay_mult.setter
    def decay_mult(self, factor: float) -> None:
        _ = self.decay_mult

    @known_arguments
    def set_param_group(self, select: Select, *, lr_mult: float | None = None, decay_mult: float | None = None) -> None:
        """Sets `lr_mult` and `decay_mult` of some parameters, in their layers.

        The factors of other parameters stay. Those of the containers that a layer is in, and `model.lr_mult`, multiply
        them as before.

        Parameters
        ----------
        select : str, class of layers, tuple of classes, or callable
            Which parameters: those of a name, such as "bias", or one, such as "0.bias"; those of the layers of a class,
            or of several, which are not containers; or those for which a function f(path, layer, name) is true, with
            the path of the layer, such as "3.body.0", and the name of the parameter in it.
        lr_mult : float or None, default None
            Factor of the learning rate, of at least 0; None: unchanged.
        decay_mult : float or None, default None
            Factor of the weight decay, of at least 0; 0: no decay. None: unchanged.

        Raises
        ------
        TypeError, ValueError
            Without any change, if an argument is invalid, if `select` chooses no parameter, or one of a layer whose
            class has factors of its own, if both factors are None, or if the model is not built.

        Examples
        --------
        Weight decay only of matrices and kernels, and biases with 64 times the rate:

        >>> from minidl import Sequential
        >>> from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten
        >>> model = Sequential([Conv2D(4, 3), BatchNorm2D(), Flatten(), Dense(2)], input_shape=(1, 5, 5))
        >>> model.set_param_group(BatchNorm2D, decay_mult=0)
        >>> model.set_param_group("bias", lr_mult=64, decay_mult=0)
        >>> dict(model[0].decay_mult), model[1].decay_mult, dict(model[1].lr_mult)
        ({'bias': 0.0}, 0.0, {'bias': 64.0})
        """
        self._built()
        set_param_group(self.layers, select, lr_mult, decay_mult)

    @property
    def manual(self) -> ManualPass:
        """The forward and backward by hand of a built model."""
        if self._manual is None:
            self._manual = ManualPass(self._built())
        return self._manual

    def _named(self, scores: Array) -> Any:
        """Returns scores as a user gets them: those of several outputs as a dict."""
        outputs = self._built().outputs
        return scores if outputs is None else outputs.split(scores)

    @known_arguments
    def predict(self, X: ArrayLike, num_threads: int | None = None, views: Views | None = None) -> Any:
        """Returns the outputs (scores) for X.

        Each row is independent of the others, bit for bit. Any number of threads may predict at a time, and none may
        change the weights meanwhile: see `Sequential.load_state_dict`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            Real numbers, or 2-D rows of the same size. Rows may be sparse.
        num_threads : int or None, default None
            The most threads to use; None: see `get_num_threads`. Fewer are used if more would have too little work.
        views : "flip", "flip+shift", callable or None, default None
            Returns the mean of the scores over views of each image (test-time augmentation). "flip": the image and its
            mirror image, left and right swapped. "flip+shift": these with half of the weight, and both moved by a pixel
            down and right, and up and left, with reflected borders. Or a function of images (n, c, h, w), which are
            bytes if X is, that returns several arrays of this shape, in a list or by `yield`.

        Returns
        -------
        array of shape `(n, *output_shape)`, or dict of arrays
            Scores in the dtype of the model; of several `Outputs`, by name.

        Raises
        ------
        InputError
            If X is of another kind or shape, or holds NaN or infinity; or what the function `views` returns.
        TypeError, ValueError
            If the model is not built. With other `views`, or if they are none; and with `views` unless the model takes
            images, and its outputs are vectors: those of pixels would have to be turned back.
        RuntimeError
            If another thread changes the model: in a fit, or in `load_state_dict` or `soft_update`.

        References
        ----------
        Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024), arXiv:2404.00498, has the views "flip+shift".

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential
        >>> from minidl.layers import Flatten, MaxPool2D
        >>> model = Sequential([MaxPool2D(2)], input_shape=(1, 2, 4))
        >>> x = np.arange(8).reshape(1, 1, 2, 4)
        >>> model.predict(x)
        array([[[[5., 7.]]]], dtype=float32)

        The mean over an image and its mirror image, and over all turns of an image:

        >>> Sequential([Flatten()], input_shape=(1, 2, 4)).predict(x, views="flip")
        array([[1.5, 1.5, 1.5, 1.5, 5.5, 5.5, 5.5, 5.5]], dtype=float32)
        >>> def turns(images):
        ...     return [np.rot90(images, k, axes=(2, 3)) for k in range(4)]
        >>> Sequential([Flatten()], input_shape=(1, 2, 2)).predict([[[[1, 2], [3, 6]]]], views=turns)
        array([[3., 3., 3., 3.]], dtype=float32)
        """
        network = self._built()
        if self.sizes is not None:
            return self.at(shape_of_examples(X)).predict(X, num_threads, views)
        if views is None and network.reads(X):
            with self.usage.reading("predict"):
                return network.predict(X, num_threads)
        examples = ArraySource(X, self.input_shape, self.dtype, missing=network.takes_missing)
        predict = None if views is None else over_views(network, views)
        with self.usage.reading("predict"):
            return self._named(network.predict_all(examples, num_threads, predict))

    @known_arguments
    def predict_proba(
        self, X: ArrayLike, num_threads: int | None = None, output: str | None = None, views: Views | None = None
    ) -> Array:
        """Returns the softmax of the scores: probabilities of classes, of which one is right.

        A model does not know the loss that it was trained with, and assumes softmax_cross_entropy. For a single score
        s, it assumes binary_cross_entropy: the two columns are 1 - sigmoid(s) and sigmoid(s). The outputs of a model
        that ends in a Softmax are probabilities already. `Trainer.predict_proba` knows the loss.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            As for `predict`.
        num_threads : int or None, default None
            As for `predict`.
        output : str or None, default None
            The name of one of several `Outputs`.
        views : "flip", "flip+shift", callable or None, default None
            As for `predict`: the softmax of mean scores.

        Returns
        -------
        array of shape (n, classes)
            Probabilities in the dtype of the model. Each row sums to 1.

        Raises
        ------
        InputError
            As `predict`, and if a probability is NaN, because a layer overflows or has no number for a row.
        TypeError, ValueError
            As `predict`; if the outputs are not of shape (classes,), if the model ends in a LogSoftmax, Softmin or
            Sigmoid, for an `output` that it does not have, and for a probability that is NaN by the model's parameters.
        RuntimeError
            As `predict`.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(2)], input_shape=(1,), dtype="float64")
        >>> model.load_state_dict({"0.weight": [[0.0], [1.0]], "0.bias": [0.0, 0.0]})
        >>> model.predict_proba([[0.0], [5.0]]).round(3)
        array([[0.5  , 0.5  ],
               [0.007, 0.993]])
        """
        network = self._built()
        layers, shape = one_output("predict_proba", network, output)
        link = link_of("predict_proba", layers, shape, None)
        scores = self.predict(X, num_threads, views)
        return predicted_probabilities(scores if output is None else scores[output], link, network)

    def forward(self, X: ArrayLike, training: bool = False) -> Any:
        """Returns the outputs for a batch X.

        With `training`, the model keeps what `backward` needs until the next training forward.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)`
            As for `predict`.
        training : bool, default False
            Whether to compute as in a training step, with batch statistics, dropout and augmentation.

        Returns
        -------
        array of shape `(n, *output_shape)`, or dict of arrays
            Scores in the dtype of the model; of several `Outputs`, by name.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        RuntimeError
            If another thread uses the model (with `training`) or trains it.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(1)], input_shape=(2,))
        >>> y = model.forward([[1, 2], [3, 4]], training=True)
        >>> dx = model.backward(np.ones_like(y))
        >>> model.params["0.weight"].grad
        array([[4., 6.]], dtype=float32)
        """
        network, training = self._built(), check_bool("training", training)
        examples = ArraySource(X, self.input_shape, self.dtype, missing=network.takes_missing)
        x = examples.chunk(0, len(examples)).reshape(len(examples), *self.input_shape)
        if not training:
            with self.usage.reading("forward"):
                return self._named(network.predict(x))
        with self.usage.writing("forward"):
            return self._named(self.manual.forward(x, self.seed, self.changes))

    def backward(self, dy: ArrayLike | Mapping[str, ArrayLike]) -> Array:
        """Returns the gradient of X in the last training forward, from the gradient of its outputs.

        Overwrites every `param.grad` with the plain sum over the batch.

        Parameters
        ----------
        dy : array-like of shape `(n, *output_shape)`, or dict of these
            Gradient with respect to the outputs; of several `Outputs`, by name: a missing one is zero.

        Returns
        -------
        array of shape `(n, *input_shape)`
            Gradient dx with respect to X, in the dtype of the model.

        Raises
        ------
        RuntimeError
            If there was no training forward, or if another thread uses the model.
        TypeError, ValueError
            If `dy` is of another kind or shape, or if the model is not built.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import ReLU
        >>> model = Sequential([ReLU()], input_shape=(3,))
        >>> y = model.forward([[-1, 2, 3]], training=True)
        >>> model.backward([[10, 10, 10]])
        array([[ 0., 10., 10.]], dtype=float32)
        """
        self._built()
        with self.usage.writing("backward"):
            return self.manual.backward(dy, self.changes)

    def input_gradient(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        loss: str | Loss | None = None,
        dscores: ArrayLike | Mapping[str, ArrayLike] | None = None,
        num_threads: int | None = None,
        output: str | None = None,
    ) -> Array:
        """Returns the gradient with respect to each example of X, in inference mode; the model is unchanged.

        Row i is the gradient of

        - `losses[i]`, for the targets `y`, with a loss; it is not averaged;
        - the score of class `y[i]`, without a loss, as in a saliency map;
        - `sum(dscores[i] * scores[i])`, with `dscores`.

        Any number of threads may call it at a time.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)`
            As for `predict`.
        y : array-like, int or None, default None
            With a loss, its targets. Without one, the class of each example, from 0, or one class for all examples;
            None: the class with the highest score, the first of equal ones. Classes need outputs of shape (classes,).
        loss : str, loss or None, default None
            As for Trainer.
        dscores : array-like of shape `(n, *output_shape)`, dict of these, or None, default None
            Weights of the scores, without `y` and `loss`; of several `Outputs`, by name: a missing one is zero.
        num_threads : int or None, default None
            Number of threads; None: see `get_num_threads`.
        output : str or None, default None
            The name of one of several `Outputs`, of which `y`, `loss` and `dscores` speak then.

        Returns
        -------
        array of shape `(n, *input_shape)`
            Gradients in the dtype of the model.

        Raises
        ------
        TypeError, ValueError
            If X, `y`, `loss` or `dscores` is invalid, if a layer in NumPy cannot be copied or computes something else
            in training, or if the model is not built.
        RuntimeError
            If another thread trains the model.

        Notes
        -----
        Batch norm uses its running statistics; dropout, crops, flips and shifts are off. No bit of a row depends on
        other examples or the number of threads, and memory does not grow with n, except for the result. A layer in
        NumPy is copied, and sees each example alone. Since its backward follows a training forward, it has to compute
        the same in inference.

        Examples
        --------
        The gradient of a score of a dense layer is a row of its weight:

        >>> import numpy as np
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(2)], input_shape=(3,))
        >>> gradient = model.input_gradient(np.ones((5, 3)), y=1)
        >>> np.array_equal(gradient[4], model.params["0.weight"].value[1])
        True
        """
        network = self._built()
        examples = ArraySource(X, self.input_shape, self.dtype, missing=network.takes_missing)
        objective = make_objective(y, loss, dscores, len(examples), network, output)
        with self.usage.reading("input_gradient"):
            return input_gradient(self._in_inference(network), examples, objective, num_threads)

    def _in_inference(self, network: Network) -> Network:
        """Returns the network of `input_gradient`, which threads share if all layers have kernels."""
        if self._inference is not None:
            return self._inference
        found = inference_network("input_gradient", network.layers, network.names, network.parameters)
        if all(leaf.native for leaf in found.leaves):
            self._inference = found
        return found
