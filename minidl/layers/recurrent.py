"""Recurrent layers, which read a sequence step by step and keep a state: SimpleRNN, LSTM, GRU; Bidirectional."""

from __future__ import annotations

from minidl.initializers import Init, check_initializer, damped_he_uniform, glorot_uniform, unit_forget_bias, zeros
from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container
from minidl.layers.join import CONCAT
from minidl.utils.constructors import construct, constructor_arguments, readonly_argument
from minidl.utils.hints import class_hint
from minidl.utils.validation import Shape, check_bool, check_choice, check_int, check_signal_shape
from minidl_c.kernels.recurrent import RecurrentOp


class _Recurrent(Layer):
    """What the recurrent layers share: all except the cell. Each of them has these arguments."""

    units: int
    return_sequences: bool
    reverse: bool
    use_bias: bool
    kernel_initializer: Init
    recurrent_initializer: Init
    bias_initializer: Init

    def _cell(self) -> str:
        """Returns the name of the cell in the kernel's table."""
        raise NotImplementedError

    def build(self, in_shape: Shape) -> Shape:
        units, cell = check_int("units", self.units), self._cell()
        sequences, reverse, use_bias = (
            check_bool(name, getattr(self, name)) for name in ("return_sequences", "reverse", "use_bias")
        )
        inputs, length = check_signal_shape(in_shape)
        options = {"sequences": sequences, "reverse": reverse, "use_bias": use_bias}
        self.op = RecurrentOp(in_shape, cell, units, self.dtype, **options)
        rows = self.op.gates * units
        inits = [
            check_initializer(name, getattr(self, name))
            for name in ("kernel_initializer", "recurrent_initializer", "bias_initializer")
        ]
        self.weight_ih = self.param("weight_ih", (rows, inputs), inits[0], order=(1, 0))
        self.weight_hh = self.param("weight_hh", (rows, units), inits[1], order=(1, 0))
        if use_bias:
            self.bias_ih = self.param("bias_ih", (rows,), inits[2])
            self.bias_hh = self.param("bias_hh", (rows,), zeros)
        self.macs = rows * (inputs + units) * length
        return self.op.out_shape


class SimpleRNN(_Recurrent):
    """Simple recurrent layer, of Elman: the state is a function of a weighted sum of the input and of the state before.

    Maps (channels, length) to (units,), the state after the last step, or with `return_sequences` to (units, length),
    that after each step. A step computes `h = tanh(weight_ih x + bias_ih + weight_hh h + bias_hh)`; h begins as zeros.

    Parameters
    ----------
    units : int
        Number of outputs of a step.
    nonlinearity : "tanh" or "relu", default "tanh"
        The function of the sums.
    return_sequences : bool, default False
        Whether the output has all steps; False: the last one alone.
    reverse : bool, default False
        Whether the sequence is read from its end. The outputs of `return_sequences` stay at the places of their
        inputs, and the last step is that of the first element.
    use_bias : bool, default True
        False omits both biases.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial `weight_ih`, such as those of `minidl.initializers`.
    recurrent_initializer : callable, default glorot_uniform
        Likewise for `weight_hh`.
    bias_initializer : callable, default zeros
        Likewise for `bias_ih`. `bias_hh`, which is added to it, begins as zeros.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments, or an input that is no signal (channels, length).

    See Also
    --------
    LSTM, GRU : Cells that keep what they read for more steps.

    Notes
    -----
    Learned parameters, as in torch.nn.RNN: `weight_ih` (units, channels), `weight_hh` (units, units), `bias_ih` and
    `bias_hh` (units,).

    References
    ----------
    Elman, "Finding structure in time", Cognitive Science 14 (1990).

    Examples
    --------
    With weights of 1, the state is the sum so far:

    >>> from minidl import Sequential
    >>> from minidl.initializers import ones
    >>> from minidl.layers import SimpleRNN
    >>> sums = dict(nonlinearity="relu", kernel_initializer=ones, recurrent_initializer=ones)
    >>> for options in {}, {"return_sequences": True}, {"return_sequences": True, "reverse": True}:
    ...     model = Sequential([SimpleRNN(1, **sums, **options)], input_shape=(1, 4))
    ...     print(model.predict([[[1, 2, 3, 4]]])[0])
    [10.]
    [[ 1.  3.  6. 10.]]
    [[10.  9.  7.  4.]]
    """

    def __init__(
        self,
        units: int,
        nonlinearity: str = "tanh",
        *,
        return_sequences: bool = False,
        reverse: bool = False,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        recurrent_initializer: Init = glorot_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.units = units
        self.nonlinearity = nonlinearity
        self.return_sequences = return_sequences
        self.reverse = reverse
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.recurrent_initializer = recurrent_initializer
        self.bias_initializer = bias_initializer

    def _cell(self) -> str:
        return str(check_choice("nonlinearity", self.nonlinearity, "tanh", "relu"))


class LSTM(_Recurrent):
    """Long short-term memory: a recurrent layer whose gates decide what its memory takes, keeps and shows.

    Maps (channels, length) to (units,), the output of the last step, or with `return_sequences` to (units, length),
    that of each step. With the sums `weight_ih x + bias_ih + weight_hh h + bias_hh` of the four gates, a step computes
    `c = sigmoid(f) c + sigmoid(i) tanh(g)` and `h = sigmoid(o) tanh(c)`, which is its output; h and c begin as zeros.

    Parameters
    ----------
    units : int
        Number of outputs of a step.
    return_sequences : bool, default False
        Whether the output has all steps; False: the last one alone.
    reverse : bool, default False
        Whether the sequence is read from its end. The outputs of `return_sequences` stay at the places of their
        inputs, and the last step is that of the first element.
    use_bias : bool, default True
        False omits both biases.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial `weight_ih`, such as those of `minidl.initializers`.
    recurrent_initializer : callable, default glorot_uniform
        Likewise for `weight_hh`.
    bias_initializer : callable, default unit_forget_bias
        Likewise for `bias_ih`: ones for the gate f, zeros for the others. `bias_hh`, which is added to it, begins as
        zeros.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments, or an input that is no signal (channels, length).

    See Also
    --------
    GRU : A cell with a gate less.
    Bidirectional : Two layers, one of which reads from the end.

    Notes
    -----
    Learned parameters, as in torch.nn.LSTM: `weight_ih` (4 units, channels), `weight_hh` (4 units, units), `bias_ih`
    and `bias_hh` (4 units,). Their rows are those of the gates i, f, g, o, in this order.

    References
    ----------
    Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9 (1997). Gers, Schmidhuber and Cummins,
    "Learning to forget" (2000), for the gate f.

    Examples
    --------
    Two layers; the first passes the outputs of all steps on:

    >>> from minidl import Sequential
    >>> from minidl.layers import LSTM, Dense
    >>> layers = [LSTM(16, return_sequences=True), LSTM(8), Dense(2)]
    >>> model = Sequential(layers, input_shape=(3, 50))
    >>> [layer.out_shape for layer in model.layers]
    [(16, 50), (8,), (2,)]
    >>> {name: param.value.shape for name, param in model.params.items() if name.startswith("1")}
    {'1.weight_ih': (32, 16), '1.weight_hh': (32, 8), '1.bias_ih': (32,), '1.bias_hh': (32,)}
    """

    def __init__(
        self,
        units: int,
        *,
        return_sequences: bool = False,
        reverse: bool = False,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        recurrent_initializer: Init = glorot_uniform,
        bias_initializer: Init = unit_forget_bias,
    ) -> None:
        self.units = units
        self.return_sequences = return_sequences
        self.reverse = reverse
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.recurrent_initializer = recurrent_initializer
        self.bias_initializer = bias_initializer

    def _cell(self) -> str:
        return "lstm"


class GRU(_Recurrent):
    """Gated recurrent unit: a recurrent layer whose state moves towards a new one as far as a gate says.

    Maps (channels, length) to (units,), the state after the last step, or with `return_sequences` to (units, length),
    that after each step. With `r = sigmoid(W_r x + b_r + V_r h + c_r)` and z likewise, a step computes
    `n = tanh(W_n x + b_n + r (V_n h + c_n))` and `h = (1 - z) n + z h`; h begins as zeros. W, V, b, c are the rows of
    `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh` of a gate.

    Parameters
    ----------
    units : int
        Number of outputs of a step.
    reset_after : bool, default True
        Whether r multiplies `V_n h + c_n`, as in PyTorch, or else h alone: `n = tanh(W_n x + b_n + V_n (r h) + c_n)`,
        as in the first paper. Keras has both.
    return_sequences : bool, default False
        Whether the output has all steps; False: the last one alone.
    reverse : bool, default False
        Whether the sequence is read from its end. The outputs of `return_sequences` stay at the places of their
        inputs, and the last step is that of the first element.
    use_bias : bool, default True
        False omits both biases.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial `weight_ih`, such as those of `minidl.initializers`.
    recurrent_initializer : callable, default glorot_uniform
        Likewise for `weight_hh`.
    bias_initializer : callable, default zeros
        Likewise for `bias_ih`. `bias_hh` begins as zeros.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments, or an input that is no signal (channels, length).

    See Also
    --------
    LSTM : A cell with a memory beside its output.
    Bidirectional : Two layers, one of which reads from the end.

    Notes
    -----
    Learned parameters, as in torch.nn.GRU: `weight_ih` (3 units, channels), `weight_hh` (3 units, units), `bias_ih`
    and `bias_hh` (3 units,). Their rows are those of the gates r, z, n, in this order.

    References
    ----------
    Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine translation" (2014),
    arXiv:1406.1078.

    Examples
    --------
    After a convolution that shortens the signal:

    >>> from minidl import Sequential
    >>> from minidl.layers import GRU, Conv1D, ReLU
    >>> model = Sequential([Conv1D(16, 5, stride=4), ReLU(), GRU(8)], input_shape=(3, 101))
    >>> [layer.out_shape for layer in model.layers]
    [(16, 25), (16, 25), (8,)]
    """

    def __init__(
        self,
        units: int,
        reset_after: bool = True,
        *,
        return_sequences: bool = False,
        reverse: bool = False,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        recurrent_initializer: Init = glorot_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.units = units
        self.reset_after = reset_after
        self.return_sequences = return_sequences
        self.reverse = reverse
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.recurrent_initializer = recurrent_initializer
        self.bias_initializer = bias_initializer

    def _cell(self) -> str:
        return "gru" if check_bool("reset_after", self.reset_after) else "gru_reset_before"


class Bidirectional(Container):
    """A recurrent layer and a second one, of the same arguments, that reads the sequence in the other direction.

    Their outputs are concatenated: (2 units, length) with `return_sequences`, else (2 units,).

    Parameters
    ----------
    layer : SimpleRNN, LSTM or GRU
        The layer that reads forwards.

    Raises
    ------
    TypeError, ValueError
        For any other layer, and one with `reverse=True`.

    Notes
    -----
    Learned parameters: those of the layers, named "forward.0.weight_ih", "reverse.0.weight_ih".

    References
    ----------
    Schuster and Paliwal, "Bidirectional recurrent neural networks", IEEE Transactions on Signal Processing 45 (1997).

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import LSTM, Bidirectional
    >>> layers = [Bidirectional(LSTM(16, return_sequences=True)), Bidirectional(LSTM(8))]
    >>> model = Sequential(layers, input_shape=(3, 50))
    >>> [layer.out_shape for layer in model.layers]
    [(32, 50), (16,)]
    """

    join = CONCAT

    def __init__(self, layer: Layer) -> None:
        if not isinstance(layer, _Recurrent):
            raise TypeError(f"layer: expected a SimpleRNN, LSTM or GRU, got {layer!r}{class_hint(layer)}")
        if layer.reverse is not False:
            raise ValueError(f"layer: expected one with reverse=False, got {layer!r}")
        self._layer = layer
        self._reversed = construct(type(layer), {**constructor_arguments(layer), "reverse": True})

    layer = readonly_argument("layer")

    def named_branches(self) -> dict[str, Branch]:
        return {"forward": (self._layer,), "reverse": (self._reversed,)}
