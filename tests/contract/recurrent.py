"""Cases of recurrent layers, over signals (channels, length)."""

from contract.case import Case

from minidl.layers import GRU, LSTM, Bidirectional, SimpleRNN


def chance(rng, share=0.5):
    return bool(rng.random() < share)


def draw(rng):
    """Draws the shape of a signal, the number of units, and the arguments that all layers have.

    The tests draw large weights, with which rounding errors grow from step to step: signals are short.
    """
    shape, units = (int(rng.integers(1, 8)), int(rng.integers(1, 13))), int(rng.integers(1, 22))
    options = {"return_sequences": chance(rng), "reverse": chance(rng), "use_bias": chance(rng, 0.8)}
    return shape, units, options


def run(function, x, parameters, states=1, bidirectional=False):
    """Returns the outputs (n, units, length) of PyTorch's function of a layer, by its parameters in order."""
    sequence, parameters = x.movedim(1, 2), list(parameters.values())
    has_bias = parameters[-1].ndim == 1
    state = x.new_zeros(1 + bidirectional, len(x), parameters[1].shape[1])
    state = (state,) * states if states > 1 else state
    return function(sequence, state, parameters, has_bias, 1, 0.0, True, bidirectional, True)[0].movedim(1, 2)


def in_direction(steps, x, options):
    """Returns the outputs of a function of sequences that `return_sequences` and `reverse` ask for."""
    y = steps(x.flip(2) if options["reverse"] else x)
    if not options["return_sequences"]:
        return y[..., -1]
    return y.flip(2) if options["reverse"] else y


def functions():
    """Returns PyTorch's functions of recurrent layers, imported on first use because PyTorch is optional."""
    from torch import _VF

    return _VF


def simple_rnn(rng):
    shape, units, options = draw(rng)
    nonlinearity = "tanh" if chance(rng) else "relu"

    def torch(x, **parameters):
        function = getattr(functions(), f"rnn_{nonlinearity}")
        return in_direction(lambda sequence: run(function, sequence, parameters), x, options)

    return Case(SimpleRNN(units, nonlinearity, **options), shape, torch)


def lstm(rng):
    shape, units, options = draw(rng)

    def torch(x, **parameters):
        return in_direction(lambda sequence: run(functions().lstm, sequence, parameters, states=2), x, options)

    return Case(LSTM(units, **options), shape, torch)


def gru(rng):
    shape, units, options = draw(rng)
    reset_after = chance(rng)

    def step_by_step(x, weight_ih, weight_hh, bias_ih=0, bias_hh=None):
        """The formula of the first paper, which PyTorch's layer does not have."""
        h, outputs = x.new_zeros(len(x), units), []
        for step in x.unbind(2):
            of_x = (step @ weight_ih.T + bias_ih).chunk(3, 1)
            rows, biases = weight_hh.chunk(3), (0, 0, 0) if bias_hh is None else bias_hh.chunk(3)
            r, z = ((of_x[k] + h @ rows[k].T + biases[k]).sigmoid() for k in (0, 1))
            n = (of_x[2] + (r * h) @ rows[2].T + biases[2]).tanh()
            h = (1 - z) * n + z * h
            outputs.append(h)
        return functions().stack(outputs, 2)

    def torch(x, **parameters):
        if reset_after:
            return in_direction(lambda sequence: run(functions().gru, sequence, parameters), x, options)
        return in_direction(lambda sequence: step_by_step(sequence, **parameters), x, options)

    return Case(GRU(units, reset_after, **options), shape, torch)


def bidirectional(rng):
    shape, units, options = draw(rng)
    del options["reverse"]

    def torch(x, **parameters):
        y = run(functions().lstm, x, parameters, states=2, bidirectional=True)
        if options["return_sequences"]:
            return y
        first, second = y.chunk(2, 1)
        return functions().cat([first[..., -1], second[..., 0]], 1)

    return Case(Bidirectional(LSTM(units, **options)), shape, torch)


DRAWS = {"Bidirectional": bidirectional, "GRU": gru, "LSTM": lstm, "SimpleRNN": simple_rnn}
