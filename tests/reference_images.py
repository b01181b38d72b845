"""Reference average-pooling and image augmentation; see reference.py."""

import numpy as np
from reference import dropout_bits


# ---- average-pooling -----------------------------------------------------------------------------
def _cells(case):
    """Yields for each position (i, j) in a window: rows, columns and whether they are inside, for all windows."""
    for i, j in np.ndindex(case.kernel):
        rows, columns = case.places(0)[:, i, None], case.places(1)[:, j]
        inside = (rows >= 0) & (rows < case.height) & (columns >= 0) & (columns < case.width)
        framed = (rows < case.height + case.sides[0][1]) & (columns < case.width + case.sides[1][1])
        yield rows.clip(0, case.height - 1), columns.clip(0, case.width - 1), inside, framed


def avgpool2d_divisors(case, count_include_pad):
    """Returns the number of cells of each window that count: those inside, optionally those in the padding."""
    return sum((framed if count_include_pad else inside).astype(int) for _, _, inside, framed in _cells(case))


def avgpool2d_forward(x, case, count_include_pad):
    total = np.zeros(case.y_shape)
    for rows, columns, inside, _ in _cells(case):
        np.add(total, x[:, :, rows, columns], where=inside, out=total)
    return total / avgpool2d_divisors(case, count_include_pad)


def avgpool2d_backward(dy, case, count_include_pad):
    """Returns dx: every cell of a window gets an equal share; overlapping windows add up."""
    dx, share = np.zeros(case.x_shape), dy / avgpool2d_divisors(case, count_include_pad)
    for rows, columns, inside, _ in _cells(case):
        np.add.at(dx, (slice(None), slice(None), rows, columns), np.where(inside, share, 0))
    return dx


# ---- augmentation --------------------------------------------------------------------------------
MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # in NumPy's words


def augment_draws(rows, first, last, flips, alternate_every=0, **what):
    """Returns (top, left, vertical flip, horizontal flip) of the examples with these ids; `what` as in dropout_bits."""
    bits = dropout_bits(4, rows, **what)
    turns = what.get("step", 0) // alternate_every if alternate_every else 0
    if alternate_every:
        bits[:, 2:] = dropout_bits(4, rows, **what | {"step": 0})[:, 2:]
    changes = turns // 2 if all(flips) else turns, turns  # four sides in turn, or both
    bits = [column.astype(object) for column in bits.T]  # Python ints
    top, left = (f + (b * (z - f + 1) >> 32) for b, f, z in zip(bits, first, last, strict=False))
    vertical, horizontal = (f & (b >> 31) ^ (f & n) for b, f, n in zip(bits[2:], flips, changes, strict=True))
    return [tuple(int(n) for n in drawn) for drawn in zip(top, left, vertical, horizontal, strict=True)]


def flipped(image, vertical, horizontal):
    return image[:, :: -1 if vertical else 1, :: -1 if horizontal else 1]


def piece(image, size, top, left, vertical=False, horizontal=False, mode="constant"):
    """Returns (c, *size) cropped from an image (c, h, w) at (top, left), with a border, then flipped."""
    axes = zip((top, left), size, image.shape[1:], strict=True)
    frame = [(max(0, -at), max(0, at + n - have)) for at, n, have in axes]
    framed = np.pad(image, ((0, 0), *frame), MODES[mode])
    top, left = top + frame[0][0], left + frame[1][0]
    return flipped(framed[:, top : top + size[0], left : left + size[1]], vertical, horizontal)


def pieces(x, size, draws, mode="constant"):
    """Returns the augmented batch of x (n, c, h, w)."""
    return np.stack([piece(image, size, *drawn, mode) for image, drawn in zip(x, draws, strict=True)])


def pieces_backward(dy, in_shape, draws, mode="constant"):
    """Returns dx: the gradients of all copies of a pixel are added, in row-major order before the flips."""
    number = np.arange(1, np.prod(in_shape) + 1).reshape(in_shape)  # 0: from outside
    dx = np.zeros((len(dy), number.size + 1), dy.dtype)
    for row, gradient, (*place, vertical, horizontal) in zip(dx, dy, draws, strict=True):
        np.add.at(row, piece(number, dy.shape[2:], *place, mode=mode), flipped(gradient, vertical, horizontal))
    return dx[:, 1:].reshape(-1, *in_shape)


def quarter_turns(rows, **what):
    """Returns the quarters of a turn, 0 to 3, of the examples with these ids; `what` as in dropout_bits."""
    return [int(bits) >> 30 for bits in dropout_bits(1, rows, **what)[:, 0]]


def turned(x, quarters):
    """Returns the images of x (n, c, h, h), each turned counter-clockwise."""
    return np.stack([np.rot90(image, quarter, (1, 2)) for image, quarter in zip(x, quarters, strict=True)])
