"""Cases of activations, and of the softmax over channels."""

from contract.case import Case, any_shape, functional

from minidl.layers import ELU, GELU, Hardswish, LeakyReLU, PReLU, Sigmoid, SiLU, Softmax, Tanh


def spread(rng, shape):
    """Draws values on both sides of every kink and in the saturated ranges."""
    return 3 * rng.standard_normal(shape)


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


def softmax(rng):
    return Case(Softmax(), any_shape(rng), lambda x: functional().softmax(x, 1), spread)


DRAWS = {
    "ELU": activation(elu),
    "GELU": activation(gelu),
    "Hardswish": activation(lambda rng: (Hardswish(), "hardswish", {})),
    "LeakyReLU": activation(leaky_relu),
    "PReLU": prelu,
    "SiLU": activation(lambda rng: (SiLU(), "silu", {})),
    "Sigmoid": activation(lambda rng: (Sigmoid(), "sigmoid", {})),
    "Softmax": softmax,
    "Tanh": activation(lambda rng: (Tanh(), "tanh", {})),
}
