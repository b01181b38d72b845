"""Cases of activations, and of the softmax."""

from contract.case import Case, any_shape, functional

from minidl.layers import (
    CELU,
    ELU,
    GELU,
    SELU,
    Abs,
    Exp,
    Hardshrink,
    HardSigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    Log,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    Reciprocal,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Sqrt,
    Square,
    Squareplus,
    Tanh,
    Tanhshrink,
    Threshold,
)


def spread(rng, shape):
    """Draws values on both sides of every kink and in the saturated ranges."""
    return 3 * rng.standard_normal(shape)


def positive(rng, shape):
    """Draws values of a function that has none below 0, or that is infinite there."""
    return 0.2 + 3 * rng.random(shape)


def activation(draw):
    """Returns a drawing function; draw(rng): a layer, and name and arguments of its torch.nn.functional counterpart."""

    def case(rng):
        layer, name, arguments = draw(rng)
        return Case(layer, any_shape(rng), lambda x: getattr(functional(), name)(x, **arguments), spread)

    return case


def leaky_relu(rng):
    slope = float(rng.choice([0.01, 0.3, 0.0, 1.0, -0.5]))
    return LeakyReLU(slope), "leaky_relu", {"negative_slope": slope}


def elu(rng):
    alpha = float(rng.choice([1.0, 0.3, 0.0, 2.5]))
    return ELU(alpha), "elu", {"alpha": alpha}


def gelu(rng):
    approximate = str(rng.choice(["none", "tanh"]))
    return GELU(approximate), "gelu", {"approximate": approximate}


def prelu(rng):
    shared = bool(rng.integers(2))
    return Case(PReLU(shared=shared), any_shape(rng), lambda x, weight: functional().prelu(x, weight), spread)


def softmax(layer, name):
    """Returns a drawing function of a softmax over an axis or neighbours, and its torch.nn.functional counterpart."""

    def case(rng):
        shape = any_shape(rng)
        first = int(rng.integers(len(shape)))
        end = int(rng.integers(first + 1, len(shape) + 1))
        if rng.random() < 0.5:
            first, end = 0, 1

        def torch(x):
            return getattr(functional(), name)(x.flatten(first + 1, end), first + 1).reshape(x.shape)

        axis = first - len(shape) * int(rng.integers(2)) if end == first + 1 else list(range(first, end))
        return Case(layer(axis), shape, torch, spread)

    return case


def formula(draw, values=spread):
    """Returns a drawing function; draw(rng): a layer, and its formula in PyTorch, which has no such function."""

    def case(rng):
        layer, function = draw(rng)
        return Case(layer, any_shape(rng), function, values, limited=values is positive)

    return case


def celu(rng):
    """PyTorch's own function rounds alpha to float32."""
    alpha = float(rng.choice([1.0, 0.3, 2.5]))
    return CELU(alpha), lambda x: x.clamp(min=0) + alpha * (x.clamp(max=0) / alpha).expm1()


def hardtanh(rng):
    low, high = ((-1.0, 1.0), (-2.3, 0.6), (0.0, 4.1), (None, 1.7), (-0.3, None))[rng.integers(5)]
    bounds = {"min": low, "max": high}
    if low is None or high is None:
        return Case(Hardtanh(low, high), any_shape(rng), lambda x: x.clamp(**bounds), spread)
    return activation(lambda rng: (Hardtanh(low, high), "hardtanh", {"min_val": low, "max_val": high}))(rng)


def hard_sigmoid(rng):
    alpha, beta = ((1 / 6, 0.5), (0.2, 0.5), (0.5, 0.5), (-0.3, 0.25))[rng.integers(4)]
    return HardSigmoid(alpha, beta), lambda x: (alpha * x + beta).clamp(0, 1)


def threshold(rng):
    limit, value = ((0.4, 0.0), (0.0, 0.0), (-1.7, 2.1), (0.7, 0.7))[rng.integers(4)]
    return Threshold(limit, value), "threshold", {"threshold": limit, "value": value}


def with_one_argument(layer, function, name, values):
    """Returns a drawing function of a layer with an argument of that name here and in torch.nn.functional."""

    def draw(rng):
        argument = float(rng.choice(values))
        return layer(argument), function, {name: argument}

    return activation(draw)


def softplus(rng):
    """PyTorch's threshold is out of reach: from there on it returns x."""
    beta = float(rng.choice([1.0, 0.3, 4.0]))
    return Softplus(beta), "softplus", {"beta": beta, "threshold": 1e3}


def squareplus(rng):
    b = float(rng.choice([4.0, 0.3, 9.1]))
    return Squareplus(b), lambda x: (x + (x * x + b).sqrt()) / 2


def sparse_plus(x):
    from torch import where

    return where(x < 1, ((x + 1) / 2).clamp(0, 1) ** 2, x)


def without_arguments(layer, name):
    return activation(lambda rng: (layer(), name, {}))


DRAWS = {
    "Abs": formula(lambda rng: (Abs(), lambda x: x.abs())),
    "CELU": formula(celu),
    "ELU": activation(elu),
    "Exp": formula(lambda rng: (Exp(), lambda x: x.exp())),
    "GELU": activation(gelu),
    "HardSigmoid": formula(hard_sigmoid),
    "Hardshrink": with_one_argument(Hardshrink, "hardshrink", "lambd", [0.4, 0.0, 2.1]),
    "Hardswish": without_arguments(Hardswish, "hardswish"),
    "Hardtanh": hardtanh,
    "LeakyReLU": activation(leaky_relu),
    "Log": formula(lambda rng: (Log(), lambda x: x.log()), positive),
    "LogSigmoid": without_arguments(LogSigmoid, "logsigmoid"),
    "LogSoftmax": softmax(LogSoftmax, "log_softmax"),
    "Mish": without_arguments(Mish, "mish"),
    "PReLU": prelu,
    "Reciprocal": formula(lambda rng: (Reciprocal(), lambda x: x.reciprocal()), positive),
    "ReLU6": without_arguments(ReLU6, "relu6"),
    "SELU": without_arguments(SELU, "selu"),
    "SiLU": without_arguments(SiLU, "silu"),
    "Sigmoid": without_arguments(Sigmoid, "sigmoid"),
    "Softmax": softmax(Softmax, "softmax"),
    "Softmin": softmax(Softmin, "softmin"),
    "Softplus": activation(softplus),
    "Softshrink": with_one_argument(Softshrink, "softshrink", "lambd", [0.4, 0.0, 2.1]),
    "Softsign": without_arguments(Softsign, "softsign"),
    "SparsePlus": formula(lambda rng: (SparsePlus(), sparse_plus)),
    "Sqrt": formula(lambda rng: (Sqrt(), lambda x: x.sqrt()), positive),
    "Square": formula(lambda rng: (Square(), lambda x: x.square())),
    "Squareplus": formula(squareplus),
    "Tanh": without_arguments(Tanh, "tanh"),
    "Tanhshrink": without_arguments(Tanhshrink, "tanhshrink"),
    "Threshold": activation(threshold),
}
