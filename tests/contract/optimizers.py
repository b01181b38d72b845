"""Random arguments of the optimizers, which PyTorch's optimizers of the same names accept too."""

from minidl import optimizers


def chance(rng, share=0.5):
    return bool(rng.random() < share)


def decay(rng):
    return {"weight_decay": float(rng.choice([0.0, rng.uniform(0, 0.2)]))}


def sgd(rng):
    momentum = float(rng.choice([0.0, rng.uniform(0.1, 0.99)]))
    return {"momentum": momentum, "nesterov": momentum > 0 and chance(rng), **decay(rng)}


def adagrad(rng):
    first = float(rng.choice([0.0, rng.uniform(0, 1)]))
    lr_decay, eps = float(rng.uniform(0, 0.5)), float(10 ** rng.uniform(-10, -2))
    return {"lr_decay": lr_decay, "eps": eps, "initial_accumulator_value": first, **decay(rng)}


def rmsprop(rng):
    momentum = float(rng.choice([0.0, rng.uniform(0.1, 0.99)]))
    alpha, eps = float(rng.uniform(0.1, 0.999)), float(10 ** rng.uniform(-8, -2))
    return {"alpha": alpha, "eps": eps, "momentum": momentum, "centered": chance(rng), **decay(rng)}


def adam(rng):
    betas = float(rng.uniform(0, 0.99)), float(rng.uniform(0.5, 0.9999))
    return {"betas": betas, "eps": float(10 ** rng.uniform(-9, -2)), "amsgrad": chance(rng), **decay(rng)}


def muon(rng):
    coefficients = ((3.4445, -4.775, 2.0315), (1.875, -1.25, 0.375), (1.5, -0.5, 0.0))[rng.integers(3)]
    return {
        "momentum": float(rng.choice([0.0, rng.uniform(0.1, 0.99)])),
        "nesterov": chance(rng),
        "ns_coefficients": coefficients,
        "eps": float(10 ** rng.uniform(-9, 1)),
        "ns_steps": int(rng.integers(1, 8)),
        "adjust_lr_fn": (None, "original", "match_rms_adamw")[rng.integers(3)],
        **decay(rng),
    }


DRAWS = {
    optimizers.SGD: sgd,
    optimizers.Adagrad: adagrad,
    optimizers.RMSprop: rmsprop,
    optimizers.Adam: adam,
    optimizers.AdamW: adam,
    optimizers.Muon: muon,
}
