"""BaseModel: what a built model computes: outputs, and gradients by hand."""

from __future__ import annotations

from numpy.typing import ArrayLike

from minidl import losses
from minidl.engine.input_gradient import inference_network, input_gradient, make_objective
from minidl.engine.manual import ManualPass
from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
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
        self.usage = UsageGuard()  # allows predictions in many threads, or training in one
        self._manual: ManualPass | None = None
        self._inference: Network | None = None  # of input_gradient, if it may be shared by threads

    def _built(self) -> Network:
        if self.network is None:
            raise ValueError("the model is not built yet: give it an input_shape, or fit it first")
        return self.network

    @property
    def input_shape(self) -> Shape:
        """The shape of one example. Raises ValueError if the model is not built."""
        self._built()
        return self.layers[0].in_shape

    @property
    def output_shape(self) -> Shape:
        """The shape of one example's output. Raises ValueError if the model is not built."""
        self._built()
        return self.layers[-1].out_shape

    @known_arguments
    def predict(self, X: ArrayLike, num_threads: int | None = None) -> Array:
        """Returns the outputs (scores) for X, (n, *output_shape). Each row is independent of the others, bit for bit.

        X: real numbers, (n, *input_shape) or 2-D rows of the same size; rows may be sparse. Raises TypeError or
        ValueError for other X, RuntimeError while another thread trains this model. Many threads may predict at a time.
        """
        network = self._built()
        examples = ArraySource(X, self.input_shape, self.dtype)
        with self.usage.reading("predict"):
            return network.predict_all(examples, num_threads)

    @known_arguments
    def predict_proba(self, X: ArrayLike, num_threads: int | None = None) -> Array:
        """Returns the softmax of the scores, (n, classes); each row sums to 1.

        For a single score s, as with binary_cross_entropy, returns (n, 2): 1 - sigmoid(s) and sigmoid(s). Raises
        ValueError if the outputs are not of shape (classes,).
        """
        if len(self.output_shape) != 1:
            layer = "Sigmoid" if self.output_shape[0] == 1 else "Softmax"
            remedy = f"Sequential([{layer}()], model.output_shape, dtype=model.dtype).predict(model.predict(X))"
            expected = f"expected a model with outputs (classes,), got {self.output_shape}"
            raise ValueError(f"predict_proba: {expected}; for each position: {remedy}")
        return losses.probabilities(self.predict(X, num_threads))

    def forward(self, X: ArrayLike, training: bool = False) -> Array:
        """Returns the outputs for a batch X. With `training`, keeps what `backward` needs until the next forward."""
        network, training = self._built(), check_bool("training", training)
        examples = ArraySource(X, self.input_shape, self.dtype)
        x = examples.chunk(0, len(examples)).reshape(len(examples), *self.input_shape)
        if not training:
            with self.usage.reading("forward"):
                return network.predict(x)
        with self.usage.writing("forward"):
            if self._manual is None:
                self._manual = ManualPass(network)
            return self._manual.forward(x, self.seed)

    def backward(self, dy: ArrayLike) -> Array:
        """Returns the gradient dx of X in the last training forward, from the gradient dy of its outputs.

        Overwrites every param.grad with the plain sum over the batch. Raises RuntimeError if there was no training
        forward, TypeError or ValueError for a dy of another kind or shape.
        """
        network = self._built()
        with self.usage.writing("backward"):
            return (self._manual or ManualPass(network)).backward(dy)

    def input_gradient(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        loss: str | Loss | None = None,
        dscores: ArrayLike | None = None,
        num_threads: int | None = None,
    ) -> Array:
        """Returns the gradient w.r.t. each example of X in inference mode, (n, *input_shape); the model is unchanged.

        Row i is the gradient, in the model's dtype, of

        - with a loss: losses[i], for the targets y. loss: as for Trainer; the gradient is not averaged.
        - without: the score of class y[i], from 0 (or of the class y for all examples), as in a saliency map. y=None:
            the class with the highest score, the first of equal ones. For outputs (classes,).
        - with dscores (n, *output_shape): sum(dscores[i] * scores[i]).

        Batch norm uses its running statistics; dropout, crops, flips and shifts are off. No bit of a row depends on
        other examples or the number of threads, and memory does not grow with n, except for the result. A layer in
        NumPy is copied, and sees each example alone; since its backward follows a training forward, it has to compute
        the same in inference.

        Raises TypeError or ValueError for an invalid X, y, loss or dscores, and for a layer in NumPy that cannot be
        copied or computes something else in training; RuntimeError while another thread trains this model. Many threads
        may call it at a time.
        """
        network = self._built()
        examples = ArraySource(X, self.input_shape, self.dtype)
        objective = make_objective(y, loss, dscores, len(examples), self.output_shape, self.dtype)
        with self.usage.reading("input_gradient"):
            return input_gradient(self._in_inference(network), examples, objective, num_threads)

    def _in_inference(self, network: Network) -> Network:
        """Returns the network of `input_gradient`, which threads share if all layers have kernels."""
        if self._inference is not None:
            return self._inference
        found = inference_network(network.layers, network.names, network.parameters)
        if all(leaf.native for leaf in found.leaves):
            self._inference = found
        return found
