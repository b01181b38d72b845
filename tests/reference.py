"""The reference implementation of every kernel, in NumPy and float64, written for clarity.

It does not import minidl; `case` is a geometry, see geometries.py. Convolution and pooling exist twice: tap by tap over
whole arrays (fast enough for thousands of geometries) and as plain loops from the definition, which check the fast
ones.
"""

import hashlib
from itertools import pairwise

import numpy as np


# ---- rounding ------------------------------------------------------------------------------------
def rounding(terms, dtype):
    """Returns the relative error of a sum of `terms` products in any order, of the kernel and of this reference.

    |computed - exact| <= gamma(terms) * sum(|a||b|), gamma(n) = n u / (1 - n u), u = eps / 2
    (Higham, Accuracy and Stability of Numerical Algorithms, 3.1).
    """
    units = [terms * np.finfo(kind).eps / 2 for kind in (dtype, np.float64)]
    return sum(unit / (1 - unit) for unit in units)


def finite_differences(function, array, step):
    """Returns central differences of a scalar function of `array`, entry by entry; `array` is restored."""
    gradient = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        value = array[index]
        array[index] = value + step
        above = function()
        array[index] = value - step
        below = function()
        array[index] = value
        gradient[index] = (above - below) / (2 * step)
    return gradient


# ---- convolution ---------------------------------------------------------------------------------
def _pad(x, case):
    top, bottom, left, right = case.padding
    return np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))


def _taps(image, case):
    """Yields for each kernel position (i, j) the view of the padded image that it meets, (n, c, oh, ow)."""
    (sh, sw), (dh, dw), (oh, ow) = case.stride, case.dilation, case.out_size
    for i in range(case.kernel[0]):
        for j in range(case.kernel[1]):
            rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
            yield i, j, image[:, :, rows, j * dw : j * dw + (ow - 1) * sw + 1 : sw]


def _grouped(a, groups, axis):
    return a.reshape(*a.shape[:axis], groups, a.shape[axis] // groups, *a.shape[axis + 1 :])


def conv2d_forward(x, w, b, case):
    """y[n,k] = b[k] + sum over c, i, j of w[k,c,i,j] x[n,c] shifted by (i, j): cross-correlation."""
    wg = _grouped(w.astype(np.float64), case.groups, 0)
    y = np.zeros(case.y_shape)
    y += b.astype(np.float64)[:, None, None]
    for i, j, patch in _taps(_pad(x, case), case):
        patch = _grouped(patch, case.groups, 1)
        y += np.einsum("ngchw,gkc->ngkhw", patch, wg[..., i, j]).reshape(y.shape)
    return y


def conv2d_backward(dy, x, w, case):
    """Returns (dx, dw, db): every product of the forward pass passes dy on to its two factors."""
    wg = _grouped(w.astype(np.float64), case.groups, 0)
    dyg = _grouped(dy.astype(np.float64), case.groups, 1)
    image = _pad(x, case)
    dimage, dwg = np.zeros(image.shape), np.zeros(wg.shape)
    places = zip(_taps(image, case), _taps(dimage, case), strict=True)
    for (i, j, patch), (_, _, dpatch) in places:
        patch = _grouped(patch, case.groups, 1)
        dwg[..., i, j] = np.einsum("ngkhw,ngchw->gkc", dyg, patch)
        dpatch += np.einsum("ngkhw,gkc->ngchw", dyg, wg[..., i, j]).reshape(dpatch.shape)
    top, _, left, _ = case.padding
    dx = dimage[:, :, top : top + case.height, left : left + case.width]
    return dx, dwg.reshape(w.shape), dy.astype(np.float64).sum(axis=(0, 2, 3))


def conv2d_loops(x, w, b, dy, case):
    """Returns (y, dx, dw, db) by loops over every product; taps in the padding are products with zero."""
    y, dx, dw, db = (np.zeros(shape) for shape in (case.y_shape, x.shape, w.shape, b.shape))
    top, _, left, _ = case.padding
    for n, k, p, q in np.ndindex(case.y_shape):
        y[n, k, p, q] += b[k]
        db[k] += dy[n, k, p, q]
        first = k // (case.filters // case.groups) * w.shape[1]
        for c, i, j in np.ndindex(w.shape[1:]):
            row = p * case.stride[0] + i * case.dilation[0] - top
            column = q * case.stride[1] + j * case.dilation[1] - left
            if 0 <= row < case.height and 0 <= column < case.width:
                y[n, k, p, q] += w[k, c, i, j] * x[n, first + c, row, column]
                dw[k, c, i, j] += dy[n, k, p, q] * x[n, first + c, row, column]
                dx[n, first + c, row, column] += dy[n, k, p, q] * w[k, c, i, j]
    return y, dx, dw, db


def _landings(case, spread):
    """Yields for each kernel position (i, j) the view of an image of size `spread` in which the inputs land."""
    (sh, sw), (dh, dw) = case.stride, case.dilation
    for i, j in np.ndindex(case.kernel):
        rows = slice(i * dh, i * dh + (case.height - 1) * sh + 1, sh)
        yield i, j, spread[:, :, rows, j * dw : j * dw + (case.width - 1) * sw + 1 : sw]


def conv_transpose2d_forward(x, w, b, case):
    """Every input adds w[c,k] times itself to the output, `stride` pixels from the next; padding is cropped."""
    xg = _grouped(x.astype(np.float64), case.groups, 1)
    wg = _grouped(w.astype(np.float64), case.groups, 0)
    spread = np.zeros((case.batch, case.filters, *case.spread))
    for i, j, index in _landings(case, spread):
        index += np.einsum("ngchw,gck->ngkhw", xg, wg[..., i, j]).reshape(index.shape)
    ((top, _), (left, _)), (height, width) = case.sides, case.y_shape[2:]
    return spread[:, :, top : top + height, left : left + width] + b.astype(np.float64)[:, None, None]


def conv_transpose2d_backward(dy, x, w, case):
    """Returns (dx, dw, db): gathers what the forward pass spread."""
    xg = _grouped(x.astype(np.float64), case.groups, 1)
    wg = _grouped(w.astype(np.float64), case.groups, 0)
    ((top, _), (left, _)), (height, width) = case.sides, case.y_shape[2:]
    spread = np.zeros((case.batch, case.filters, *case.spread))
    spread[:, :, top : top + height, left : left + width] = dy
    dx, dwg = np.zeros(x.shape), np.zeros(wg.shape)
    for i, j, index in _landings(case, spread):
        index = _grouped(index, case.groups, 1)
        dx += np.einsum("ngkhw,gck->ngchw", index, wg[..., i, j]).reshape(x.shape)
        dwg[..., i, j] = np.einsum("ngkhw,ngchw->gck", index, xg)
    return dx, dwg.reshape(w.shape), dy.astype(np.float64).sum(axis=(0, 2, 3))


# ---- max-pooling ---------------------------------------------------------------------------------
def maxpool2d_forward(x, case):
    """Returns (y, winner): the maximum of each window and its position in the image, row * width + column.

    Cells are visited in row-major order; a cell becomes the winner if it is the first inside the image, is greater, or
    is the first NaN.
    """
    y, winner = np.zeros(case.y_shape, x.dtype), np.full(case.y_shape, -1)
    for i, j in np.ndindex(case.kernel):
        rows, columns = case.places(0)[:, i, None], case.places(1)[:, j]
        inside = (rows >= 0) & (rows < case.height) & (columns >= 0) & (columns < case.width)
        cells = x[:, :, rows.clip(0, case.height - 1), columns.clip(0, case.width - 1)]
        ahead = (winner < 0) | (cells > y) | (np.isnan(cells) & ~np.isnan(y))
        np.copyto(y, cells, where=inside & ahead)
        np.copyto(winner, rows * case.width + columns, where=inside & ahead)
    return y, winner


def maxpool2d_backward(dy, winner, case):
    """Returns dx: the winner of each window receives its whole gradient; overlapping windows add up."""
    planes = case.batch * case.channels
    dx = np.zeros((planes, case.height * case.width))
    winner = winner.reshape(planes, int(np.prod(case.out_size)))
    np.add.at(dx, (np.arange(planes)[:, None], winner), dy.reshape(winner.shape))
    return dx.reshape(case.x_shape)


def maxpool2d_loops(x, dy, case):
    """Returns (y, dx) by loops over every cell of every window."""
    y, dx = np.zeros(case.y_shape, x.dtype), np.zeros(x.shape)
    for n, c, p, q in np.ndindex(case.y_shape):
        best = None
        for i, j in np.ndindex(case.kernel):
            row = p * case.stride[0] - case.sides[0][0] + i * case.dilation[0]
            column = q * case.stride[1] - case.sides[1][0] + j * case.dilation[1]
            if not (0 <= row < case.height and 0 <= column < case.width):
                continue
            cell = x[n, c, row, column]
            if best is None or cell > x[best] or (np.isnan(cell) and not np.isnan(x[best])):
                best = (n, c, row, column)
        y[n, c, p, q] = x[best]
        dx[best] += dy[n, c, p, q]
    return y, dx


# ---- dense layers and softmax --------------------------------------------------------------------
def dense_forward(x, w, b):
    return x.astype(np.float64) @ w.astype(np.float64) + b


def dense_backward(dy, x, w):
    """Returns (dx, dw, db)."""
    dy = dy.astype(np.float64)
    return dy @ w.T.astype(np.float64), x.T.astype(np.float64) @ dy, dy.sum(axis=0)


def softmax(scores):
    """Returns exp(s - max) / sum, so that no exponential overflows."""
    scores = scores.astype(np.float64)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def smoothed(labels, classes, smoothing):
    """Returns one-hot rows with a fraction `smoothing` spread over all classes."""
    return (1 - smoothing) * np.eye(classes)[labels] + smoothing / classes


def softmax_cross_entropy_forward(scores, labels, smoothing=0.0):
    """losses[i] = log(sum exp(scores[i])) - scores[i, labels[i]], or its mean under smoothed labels."""
    scores = scores.astype(np.float64)
    shifted = scores - scores.max(axis=1, keepdims=True)
    q = smoothed(labels, scores.shape[1], smoothing)
    own = np.where(q > 0, q * np.where(q > 0, shifted, 0), 0).sum(axis=1)
    return np.log(np.exp(shifted).sum(axis=1)) - own


def softmax_cross_entropy_backward(scores, labels, weights, smoothing=0.0):
    """Row i: weights[i] * (softmax - smoothed labels)."""
    gradient = softmax(scores) - smoothed(labels, scores.shape[1], smoothing)
    return gradient * np.asarray(weights, np.float64)[:, None]


# ---- normalization -------------------------------------------------------------------------------
def normalized(x, groups, eps):
    """Returns x (n, ...) with every group of an example scaled to mean 0 and variance 1, and the divisors.

    Centers at the first value, then twice at the mean: for equal values and for values far from zero, NumPy's mean
    alone
    is less exact than the kernel.
    """
    rows = x.astype(np.float64).reshape(len(x), groups, x[:1].size // groups or 1)
    rows = rows - rows[:, :, :1]
    for _ in range(2):
        rows = rows - rows.mean(axis=2, keepdims=True)
    deviation = np.sqrt((rows**2).mean(axis=2, keepdims=True) + eps)
    return (rows / deviation).reshape(x.shape), np.broadcast_to(deviation, rows.shape).reshape(x.shape)


def groupnorm_forward(x, w, b, groups, eps):
    """y = w * normalized + b; x (n, channels, pixels), w and b (channels,)."""
    return w[:, None] * normalized(x, groups, eps)[0] + b[:, None].astype(np.float64)


def groupnorm_backward(dy, x, w, groups, eps):
    """Returns (dx, dw, db): from g = w * dy, its effect on the mean and deviation of its group is subtracted."""
    n, deviation = normalized(x, groups, eps)
    g = w[:, None] * dy.astype(np.float64)
    rows = (len(x), groups, x[:1].size // groups or 1)
    mean_g, mean_gn = (a.reshape(rows).mean(axis=2, keepdims=True) for a in (g, g * n))
    dx = g.reshape(rows) - mean_g - n.reshape(rows) * mean_gn
    return dx.reshape(x.shape) / deviation, (dy * n).sum(axis=(0, 2)), dy.astype(np.float64).sum(axis=(0, 2))


def pixels_normalized(x, eps, centered=True):
    """Returns (normalized, deviation): of x (n, channels, pixels), each pixel over its channels; see `normalized`.

    Without `centered`, the deviation is the root mean square.
    """
    x = x.astype(np.float64)
    if not centered:
        deviation = np.sqrt((x**2).mean(axis=1, keepdims=True) + eps)
        return x / deviation, deviation
    rows = x.swapaxes(1, 2)
    return tuple(a.reshape(rows.shape).swapaxes(1, 2) for a in normalized(rows.reshape(-1, x.shape[1]), 1, eps))


def layernorm_forward(x, w, b, eps, centered=True):
    """y = w * normalized + b of each pixel; x (n, channels, pixels), w and b (channels,)."""
    return w[:, None] * pixels_normalized(x, eps, centered)[0] + b[:, None].astype(np.float64)


def layernorm_backward(dy, x, w, eps, centered=True):
    """Returns (dx, dw, db); as groupnorm_backward, with the channels of a pixel as a group."""
    n, deviation = pixels_normalized(x, eps, centered)
    g = w[:, None] * dy.astype(np.float64)
    mean_g, mean_gn = (a.mean(axis=1, keepdims=True) for a in (g, g * n))
    dx = (g - mean_g * centered - n * mean_gn) / deviation
    return dx, (dy * n).sum(axis=(0, 2)), dy.astype(np.float64).sum(axis=(0, 2))


def batchnorm_statistics(x):
    """Returns mean and unbiased variance of each channel of x (n, channels, pixels)."""
    rows = x.astype(np.float64).swapaxes(0, 1).reshape(x.shape[1], -1)
    mean = rows.mean(axis=1)
    return mean, ((rows - mean[:, None]) ** 2).sum(axis=1) / (rows.shape[1] - 1)


def batchnorm_forward(x, w, b, eps):
    """y = w * normalized + b, each channel over the batch and its pixels; x (n, channels, pixels)."""
    return w[:, None] * normalized(x.swapaxes(0, 1), 1, eps)[0].swapaxes(0, 1) + b[:, None].astype(np.float64)


def batchnorm_backward(dy, x, w, eps):
    """Returns (dx, dw, db), as groupnorm_backward does."""
    n, deviation = (a.swapaxes(0, 1) for a in normalized(x.swapaxes(0, 1), 1, eps))
    g = w[:, None] * dy.astype(np.float64)
    mean_g, mean_gn = (a.mean(axis=(0, 2), keepdims=True) for a in (g, g * n))
    return (g - mean_g - n * mean_gn) / deviation, (dy * n).sum(axis=(0, 2)), dy.astype(np.float64).sum(axis=(0, 2))


# ---- piecewise linear encoding -------------------------------------------------------------------
def encoding_forward(x, edges, missing):
    """Returns the place of x (n, columns) in each bin, and whether it is NaN; in the dtype of x, with its roundings."""
    outputs = []
    for v, of_column, has in zip(x.T, edges, missing, strict=True):
        for low, high in pairwise(np.asarray(of_column, x.dtype)):
            place = (v - low) / (high - low)
            outputs.append(np.where(place > 0, np.minimum(place, 1), 0))
        outputs += [np.isnan(v)] * has
    return np.array(outputs, x.dtype).T


def encoding_backward(dy, x, edges, missing):
    """Returns dx: dy of the bin that x is in, divided by its width."""
    dx, j = np.zeros_like(x), 0
    for c, (of_column, has) in enumerate(zip(edges, missing, strict=True)):
        for low, high in pairwise(np.asarray(of_column, x.dtype)):
            inside = (low < x[:, c]) & (x[:, c] <= high)
            dx[inside, c] = dy[inside, j] / (high - low)
            j += 1
        j += has
    return dx


# ---- one-hot encoding ----------------------------------------------------------------------------
def one_hot_forward(x, categories):
    """Returns whether x (n, columns) is each of the categories of its column, in the dtype of x."""
    return np.concatenate([x[:, [c]] == np.arange(count) for c, count in enumerate(categories)], axis=1).astype(x.dtype)


# ---- dropout -------------------------------------------------------------------------------------
WORD = 2**32 - 1
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(key, counter):
    """Threefry-2x32 with 20 rounds, on pairs of 32-bit words in uint64 arrays (or integers).

    Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, 3.3.
    """
    keys = (key[0], key[1], 0x1BD11BDA ^ key[0] ^ key[1])
    left, right = (counter[0] + keys[0]) & WORD, (counter[1] + keys[1]) & WORD
    for done in range(20):
        by = ROTATIONS[done % 8]
        left = (left + right) & WORD
        right = ((right << by | right >> (32 - by)) & WORD) ^ left
        if done % 4 == 3:
            group = done // 4 + 1
            left = (left + keys[group % 3]) & WORD
            right = (right + keys[(group + 1) % 3] + group) & WORD
    return left, right


def words(number):
    """Splits a 64-bit integer into two words, the low one first."""
    return number & WORD, number >> 32


def dropout_bits(size, rows, seed=0, step=0, path=""):
    """Returns the 32 random bits of each element of the examples with these ids: (len(rows), size)."""
    rows = np.asarray(rows).astype(np.uint64)[:, None]
    digest = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little")
    key = words(seed)
    for number in (digest, step):
        key = threefry(key, words(number))
    pairs = np.arange((size + 1) // 2, dtype=np.uint64)
    key = threefry(tuple(np.uint64(word) for word in key), words(rows))
    return np.stack(threefry(key, words(pairs)), axis=-1).reshape(len(rows), 2 * pairs.size)[:, :size]


def dropout(x, rate, group=1, **what):
    """x / (1 - rate) where the bits of a group are below (1 - rate) 2**32, else 0; `what` as in dropout_bits."""
    kept = dropout_bits(x.shape[1] // group, **what).repeat(group, axis=1) < round((1 - rate) * 2**32)
    return np.where(kept, x * x.dtype.type(1 / (1 - rate)), x.dtype.type(0))
