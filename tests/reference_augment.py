"""Reference cutout, rotation and zoom, color jitter and Gaussian noise; `what` as in dropout_bits of reference.py."""

import numpy as np
from reference import dropout_bits


def uniform(first, last, bits):
    return first + (last - first) * (bits / 2**32)


# ---- cutout --------------------------------------------------------------------------------------
def cutout_boxes(rows, shape, size, rate=1.0, **what):
    """Returns a mask (n, 1, h, w) of the boxes of the examples with these ids."""
    bits = dropout_bits(4, rows, **what).astype(object)  # Python ints
    inside = np.zeros((len(bits), 1, *shape[1:]), bool)
    for mask, (row, column, decision, _) in zip(inside[:, 0], bits, strict=True):
        top, left = (b * n >> 32 for b, n in zip((row, column), shape[1:], strict=True))
        top, left = top - size[0] // 2, left - size[1] // 2
        if decision < rate * 2**32:
            mask[max(top, 0) : max(top + size[0], 0), max(left, 0) : max(left + size[1], 0)] = True
    return inside


# ---- rotation and zoom ---------------------------------------------------------------------------
def affine_draws(rows, degrees=(0, 0), zoom=(1, 1), **what):
    """Returns (angle in degrees, zoom) of the examples with these ids."""
    bits = dropout_bits(2, rows, **what)
    return list(zip(uniform(*degrees, bits[:, 0]), uniform(*zoom, bits[:, 1]), strict=True))


def affine_matrix(height, width, angle, zoom):
    """Returns the matrix that takes the pixels of an image to those of the rotated and zoomed one."""
    matrix, turn = np.zeros((height * width, height * width)), np.exp(1j * np.radians(angle)) / zoom
    for v, u in np.ndindex(height, width):
        place = (u - (width - 1) / 2 - 1j * (v - (height - 1) / 2)) / (turn * zoom**2)  # the imaginary axis is up
        h, w = (height - 1) / 2 - place.imag, (width - 1) / 2 + place.real
        for i in (int(np.floor(h)), int(np.floor(h)) + 1):
            for j in (int(np.floor(w)), int(np.floor(w)) + 1):
                if 0 <= i < height and 0 <= j < width:
                    matrix[v * width + u, i * width + j] += (1 - abs(h - i)) * (1 - abs(w - j))
    return matrix


def affine_matrices(shape, draws):
    return np.array([affine_matrix(*shape[1:], *drawn) for drawn in draws]).reshape(-1, *2 * (shape[1] * shape[2],))


def affine_forward(x, matrices, value):
    """Pixels outside have `value`: what the weights of pixels inside lack to 1 belongs to them."""
    flat = x.reshape(*x.shape[:2], x.shape[2] * x.shape[3]).astype(np.float64)
    outside = (1 - matrices.sum(axis=2))[:, None] * value
    return (np.einsum("npq,ncq->ncp", matrices, flat) + outside).reshape(x.shape)


def affine_backward(dy, matrices):
    flat = dy.reshape(*dy.shape[:2], dy.shape[2] * dy.shape[3]).astype(np.float64)
    return np.einsum("npq,ncp->ncq", matrices, flat).reshape(dy.shape)


# ---- color jitter --------------------------------------------------------------------------------
GREY = (0.2989, 0.587, 0.114)


def jitter_factors(rows, ranges, **what):
    """Returns the factors (n, 3) of brightness, contrast and saturation."""
    bits = dropout_bits(3, rows, **what)
    return np.stack([uniform(*ends, column) for ends, column in zip(ranges, bits.T, strict=True)], axis=1)


def jitter_colors(x, factors):
    """Returns y for x (n, c, h, w) and the factors (n, 3)."""
    weights = np.reshape(GREY if x.shape[1] == 3 else (1,), (1, -1, 1, 1))
    brightness, contrast, saturation = factors.T[:, :, None, None, None]
    u = brightness * x.astype(np.float64)
    mean = (weights * u).sum(axis=1, keepdims=True).mean(axis=(2, 3), keepdims=True)
    v = contrast * u + (1 - contrast) * mean
    return saturation * v + (1 - saturation) * (weights * v).sum(axis=1, keepdims=True)


def jitter_colors_gradient(dy, factors):
    """Returns dx: column by column of the Jacobian, as the function is linear."""
    dx, shape = np.zeros(dy.shape), dy.shape[1:]
    for index in np.ndindex(*shape):
        column = np.zeros((len(dy), *shape))
        column[:, *index] = 1
        dx[:, *index] = (jitter_colors(column, factors) * dy).sum(axis=(1, 2, 3))
    return dx


# ---- noise ---------------------------------------------------------------------------------------
def normal_numbers(size, rows, **what):
    """Returns standard normal numbers (len(rows), size), by Box and Muller's method."""
    bits = dropout_bits(size + size % 2, rows, **what).reshape(len(rows), (size + 1) // 2, 2)
    radius = np.sqrt(-2 * np.log((bits[..., 0] + 0.5) / 2**32))
    angle = 2 * np.pi * bits[..., 1] / 2**32
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return pairs.reshape(len(rows), size + size % 2)[:, :size]
