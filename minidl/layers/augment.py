"""RandomCrop, RandomFlip, RandomRotate90 and RandomShift: data augmentation, drawn for each example in each step.

The augmentation of an example depends only on the run's seed, the layer's path in the model, the step and the example's
row in the data. Threads, batch size, dtype and processor do not change it.
"""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_choice, check_image_shape, check_int, check_pair
from minidl_c.kernels.augment import MODES, AugmentOp, QuarterTurnOp, border_mode

MAX_OFFSET = 2**24  # pixels, as AugmentOp


class RandomCrop(Layer):
    """Random crop of each image in training; the centre crop in inference.

    Maps (c, h, w) to `(c, *size)`. The crop is that of the image after `Pad2D(padding, mode=mode)`; all positions are
    equally likely. `RandomCrop(32, padding=4)` followed by `RandomFlip()` is the usual augmentation for CIFAR-10.

    Parameters
    ----------
    size : int or (int, int)
        Size of the crop; a pair is (vertical, horizontal).
    padding : int or (int, int), default 0
        Pixels added on each side of the image before the crop; a pair is (vertical, horizontal).
    mode : "constant", "reflect", "replicate" or "circular", default "constant"
        What is added: zeros, or pixels of the image, as in `Pad2D`.

    Raises
    ------
    TypeError, ValueError
        In `build`, for a size that does not fit, another mode, or an input that is not an image; unless the padding is
        smaller than the image ("reflect"), or no larger ("circular").

    Notes
    -----
    The position depends only on the run's seed, the layer's path in the model, the step and the example's row in the
    data. Threads, batch size, dtype and processor do not change it.

    Targets of pixels move with the images: see docs/how-to/data.md.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import RandomCrop
    >>> model = Sequential([RandomCrop(2)], input_shape=(1, 4, 4))
    >>> x = np.arange(16).reshape(1, 1, 4, 4)
    >>> print(model.predict(x)[0, 0])  # the centre
    [[ 5.  6.]
     [ 9. 10.]]
    >>> model.forward(x, training=True).shape  # one of 9 crops
    (1, 1, 2, 2)
    >>> wide = Sequential([RandomCrop((1, 7), padding=(0, 2), mode="reflect")], input_shape=(1, 1, 3))
    >>> print(wide.predict([[[[1, 2, 3]]]])[0, 0])
    [[3. 2. 1. 2. 3. 2. 1.]]
    """

    moves_pixels = True

    def __init__(self, size: int | Pair, padding: int | Pair = 0, mode: str = "constant") -> None:
        self.size = size
        self.padding = padding
        self.mode = mode

    def build(self, in_shape: Shape) -> Shape:
        _, height, width = check_image_shape(in_shape)
        size, padding = check_pair("size", self.size), check_pair("padding", self.padding, 0, MAX_OFFSET)
        last = height + padding[0] - size[0], width + padding[1] - size[1]
        if last[0] < -padding[0] or last[1] < -padding[1]:
            raise ValueError(f"size: {size} does not fit into an image of {height} x {width} with padding {padding}")
        self._choices = size, (-padding[0], -padding[1]), last
        self._mode = check_choice("mode", self.mode, *MODES)
        border_mode("padding", self._mode, (height, width), padding)
        self.op = self.target_op(in_shape[0], self.dtype, False)
        self.shows_outside = self._mode == "constant" and any(padding)
        return self.op.out_shape

    def target_op(self, channels: int, dtype: str, nearest: bool) -> AugmentOp:
        shape = channels, *self.in_shape[1:]
        return AugmentOp(shape, *self._choices, path=self._path, dtype=dtype, mode=self._mode)


class RandomFlip(Layer):
    """Random flip in training, with probability 1/2 along each axis; the identity in inference.

    Maps (c, h, w) to (c, h, w).

    Parameters
    ----------
    horizontal : bool, default True
        Whether left and right may be swapped.
    vertical : bool, default False
        Whether top and bottom may be swapped.
    alternate_every : int, optional
        The number of steps of an epoch, `math.ceil(len(X) / batch_size)`, for alternating flips: the side of each
        image is drawn for the first epoch, and changes after each, so that each pair of epochs shows both sides. With
        both axes, the vertical flip changes after every second epoch, so that four epochs show all four sides. Rows of
        a validation split or of weight 0 are in no step; steps that accumulate k batches have `k * batch_size` rows.
        None: each step draws flips of its own.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless the first two arguments are bools, `alternate_every` is None or an int of at least 1, and the
        input is an image.

    Notes
    -----
    A flip depends only on the run's seed, the layer's path in the model, the step and the example's row in the data.
    Threads, batch size, dtype and processor do not change it. With `alternate_every`, the step decides by
    `step // alternate_every` alone; batches from an iterable need the same rows in the same order in each epoch.

    Targets of pixels move with the images: see docs/how-to/data.md.

    References
    ----------
    Alternating flips: K. Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024), arXiv:2404.00498.

    Examples
    --------
    Each example of a batch has a flip of its own:

    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import RandomFlip
    >>> model = Sequential([RandomFlip()], input_shape=(1, 1, 3))
    >>> y = model.forward(np.tile([1, 2, 3], (4, 1, 1, 1)), training=True)
    >>> print(y[:, 0, 0])
    [[1. 2. 3.]
     [1. 2. 3.]
     [3. 2. 1.]
     [1. 2. 3.]]

    Flips that alternate, in two epochs of one step:

    >>> model = Sequential([RandomFlip(alternate_every=1)], input_shape=(1, 1, 3))
    >>> epochs = [model.forward(np.tile([1, 2, 3], (4, 1, 1, 1)), training=True) for _ in range(2)]
    >>> print([epoch[:, 0, 0, 0].tolist() for epoch in epochs])
    [[1.0, 1.0, 3.0, 1.0], [3.0, 3.0, 1.0, 3.0]]
    """

    moves_pixels = True

    def __init__(self, horizontal: bool = True, vertical: bool = False, alternate_every: int | None = None) -> None:
        self.horizontal = horizontal
        self.vertical = vertical
        self.alternate_every = alternate_every

    def build(self, in_shape: Shape) -> Shape:
        self._flips = check_bool("vertical", self.vertical), check_bool("horizontal", self.horizontal)
        self._every = 0 if self.alternate_every is None else check_int("alternate_every", self.alternate_every)
        self.op = self.target_op(check_image_shape(in_shape)[0], self.dtype, False)
        return in_shape

    def target_op(self, channels: int, dtype: str, nearest: bool) -> AugmentOp:
        shape = channels, *self.in_shape[1:]
        every = self._every
        return AugmentOp(shape, shape[1:], flips=self._flips, path=self._path, dtype=dtype, alternate_every=every)


class RandomRotate90(Layer):
    """Random rotation in training by 0, 90, 180 or 270 degrees, all equally likely; the identity in inference.

    Maps (c, n, n) to (c, n, n). Pixels are copied, not interpolated, and none leaves the image. `RandomRotation` turns
    by other angles.

    Raises
    ------
    ValueError
        In `build`, unless the input is a square image.

    Notes
    -----
    A rotation depends only on the run's seed, the layer's path in the model, the step and the example's row in the
    data. Threads, batch size, dtype and processor do not change it.

    Targets of pixels move with the images: see docs/how-to/data.md.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import RandomRotate90
    >>> model = Sequential([RandomRotate90()], input_shape=(1, 2, 2))
    >>> y = model.forward(np.tile([[1, 2], [3, 4]], (4, 1, 1, 1)), training=True)
    >>> print(y.reshape(4, 4))
    [[2. 4. 1. 3.]
     [4. 3. 2. 1.]
     [4. 3. 2. 1.]
     [3. 1. 4. 2.]]
    """

    moves_pixels = True

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        if height != width:
            raise ValueError(
                f"expected a square image, got {height} x {width}: crop or pad it first, or use RandomFlip"
            )
        self.op = self.target_op(channels, self.dtype, False)
        return in_shape

    def target_op(self, channels: int, dtype: str, nearest: bool) -> QuarterTurnOp:
        return QuarterTurnOp((channels, *self.in_shape[1:]), path=self._path, dtype=dtype)


class RandomShift(Layer):
    """Random translation in training by up to `max_shift` pixels; the identity in inference.

    Maps (c, h, w) to (c, h, w), as a `RandomCrop` to the size of the image, with a padding of `max_shift`.

    Parameters
    ----------
    max_shift : int or (int, int)
        Largest shift; a pair is (vertical, horizontal). All integers from -max_shift to max_shift are equally likely.
    mode : "constant", "reflect", "replicate" or "circular", default "constant"
        What is shifted into the image: zeros, or pixels of the image, as in `Pad2D`.

    Raises
    ------
    TypeError, ValueError
        In `build`, for negative values, another mode, or an input that is not an image; unless `max_shift` is smaller
        than the image ("reflect"), or no larger ("circular").

    Notes
    -----
    A shift depends only on the run's seed, the layer's path in the model, the step and the example's row in the data.
    Threads, batch size, dtype and processor do not change it.

    Targets of pixels move with the images: see docs/how-to/data.md.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import RandomShift
    >>> model = Sequential([RandomShift((0, 1))], input_shape=(1, 1, 3))  # horizontal only
    >>> y = model.forward(np.tile([1, 2, 3], (6, 1, 1, 1)), training=True)
    >>> print(y[:, 0, 0])
    [[1. 2. 3.]
     [0. 1. 2.]
     [1. 2. 3.]
     [1. 2. 3.]
     [0. 1. 2.]
     [2. 3. 0.]]
    """

    moves_pixels = True

    def __init__(self, max_shift: int | Pair, mode: str = "constant") -> None:
        self.max_shift = max_shift
        self.mode = mode

    def build(self, in_shape: Shape) -> Shape:
        last = check_pair("max_shift", self.max_shift, 0, MAX_OFFSET)
        self._choices = check_image_shape(in_shape)[1:], (-last[0], -last[1]), last
        self._mode = check_choice("mode", self.mode, *MODES)
        border_mode("max_shift", self._mode, in_shape[1:], last)
        self.op = self.target_op(in_shape[0], self.dtype, False)
        self.shows_outside = self._mode == "constant" and any(last)
        return in_shape

    def target_op(self, channels: int, dtype: str, nearest: bool) -> AugmentOp:
        shape = channels, *self.in_shape[1:]
        return AugmentOp(shape, *self._choices, path=self._path, dtype=dtype, mode=self._mode)
