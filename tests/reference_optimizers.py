"""Update formulas of the optimizers in NumPy, in the dtype of their arrays and with the kernels' rounding.

formula(w, g, state, lr, step, ...) is one step, counted from 0; it returns the new parameters and the new state by
name.
"""

import math

import numpy as np


def sgd(w, g, state, lr, step=0, momentum=0.0, nesterov=False, weight_decay=0.0):
    real = w.dtype.type
    g = g + real(weight_decay) * w
    if momentum == 0:
        return w - real(lr) * g, {}
    v = real(momentum) * state["velocity"] + g
    return w - real(lr) * (g + real(momentum) * v if nesterov else v), {"velocity": v}


def adagrad(w, g, state, lr, step, lr_decay=0.0, weight_decay=0.0, first=0.0, eps=1e-10):
    real = w.dtype.type
    g = g + real(weight_decay) * w
    s = state["squares"] + g * g
    return w - real(lr / (1 + step * lr_decay)) * (g / (np.sqrt(s) + real(eps))), {"squares": s}


def rmsprop(w, g, state, lr, step, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    real = w.dtype.type
    g = g + real(weight_decay) * w
    s = real(alpha) * state["squares"] + real(1 - alpha) * g * g
    new_state, denominator = {"squares": s}, s
    if centered:
        a = new_state["mean"] = real(alpha) * state["mean"] + real(1 - alpha) * g
        denominator = np.maximum(s - a * a, 0)
    change = g / (np.sqrt(denominator) + real(eps))
    if momentum:
        change = new_state["velocity"] = real(momentum) * state["velocity"] + change
    return w - real(lr) * change, new_state


def adam(
    w, g, state, lr, step, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, decoupled=False
):  # fmt: skip
    real = w.dtype.type
    if decoupled:
        w = real(1 - lr * weight_decay) * w
    else:
        g = g + real(weight_decay) * w
    m = real(beta1) * state["mean"] + real(1 - beta1) * g
    s = denominator = real(beta2) * state["squares"] + real(1 - beta2) * g * g
    new_state = {"mean": m, "squares": s}
    if amsgrad:
        denominator = new_state["largest"] = np.maximum(state["largest"], s)
    rate, scale = lr / (1 - power(beta1, step + 1)), 1 / math.sqrt(1 - power(beta2, step + 1))
    return w - real(rate) * (m / (np.sqrt(denominator) * real(scale) + real(eps))), new_state


def muon(
    w, g, state, lr, step=0, momentum=0.95, nesterov=True, weight_decay=0.1, ns_coefficients=(3.4445, -4.775, 2.0315),
    eps=1e-7, ns_steps=5, adjust_lr_fn=None, is_matrix=True,
):  # fmt: skip
    """Written as PyTorch computes it, with a velocity (1 - momentum) times as long; not with the kernels' rounding."""
    v = momentum * state["velocity"] + (1 - momentum) * g
    u = (1 - momentum) * g + momentum * v if nesterov else v
    if is_matrix:
        rows, columns = matrix = len(w), w.size // len(w)
        scale = max(1, rows / columns) ** 0.5 if adjust_lr_fn != "match_rms_adamw" else 0.2 * max(matrix) ** 0.5
        u = scale * orthogonalized(u.reshape(matrix), ns_coefficients, ns_steps, eps).reshape(w.shape)
    else:
        u = u / (1 - momentum)
    return (1 - lr * weight_decay) * w - lr * u, {"velocity": v}


def orthogonalized(u, coefficients, steps, eps):
    """Newton-Schulz iterations by the singular values, which they change one by one."""
    a, b, c = coefficients
    left, s, right = np.linalg.svd(u / max(np.linalg.norm(u), eps), full_matrices=False)
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return (left * s) @ right


def power(base, exponent):
    """Returns base ** exponent by repeated squaring; math.pow may differ in the last bit."""
    result = 1.0
    while exponent:
        result = result * base if exponent & 1 else result
        base, exponent = base * base, exponent >> 1
    return result
