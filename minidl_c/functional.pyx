"""Convolution, max-pooling and dense layers as functions of NCHW arrays, in parallel over the batch.

Each function takes typed memoryviews of float or double and checks shapes before it writes. It returns the same bits as the
layer in a model, because it runs the layer's op (see kernels/) as a plan of one op (see runtime/single_op.pyx).
"""
from numpy import zeros_like

from minidl_c.array_args cimport check_arrays
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.maxpool2d import MaxPool2DOp
from minidl_c.op cimport real
from minidl_c.runtime.single_op import backward_batch, forward_batch

__all__ = [
    "conv2d_backward", "conv2d_forward", "dense_backward", "dense_forward", "maxpool2d_backward", "maxpool2d_forward",
]


# ---- convolution ---------------------------------------------------------------------------------------------------------

def _conv2d_op(x, stride, padding, dilation, groups, w, **others):
    """Returns the Conv2DOp for x and w; raises ValueError if the other arrays have the wrong shapes."""
    op = Conv2DOp(x.shape[1:], w.shape[0], w.shape[2:], stride, padding, dilation, groups, x.dtype.name)
    weight = (w.shape[0], x.shape[1] // groups, *w.shape[2:])
    expected = {"w": weight, "dw": weight, "b": weight[:1], "db": weight[:1], "y": (x.shape[0], *op.out_shape)}
    expected["dy"] = expected["y"]
    for name, array in {"w": w, **others}.items():
        if array.shape != expected[name]:
            raise ValueError(f"conv2d: {name}: expected shape {expected[name]}, got {array.shape}")
    return op


def conv2d_forward(
    const real[:, :, :, ::1] x not None,       # IN  (n, c, h, w)
    const real[:, :, :, ::1] w not None,       # IN  (k, c / groups, r, s)
    const real[::1] b not None,                # IN  (k,)
    real[:, :, :, ::1] y not None,             # OUT (n, k, oh, ow)
    stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, num_threads=1,
):
    """Computes y, the convolution of every image of x.

    All arrays are C-contiguous, and of one dtype: float32 or float64.

    Parameters
    ----------
    x : array of shape (n, c, h, w)
        Input.
    w : array of shape (k, c / groups, r, s)
        Weight.
    b : array of shape (k,)
        Bias.
    y : array of shape (n, k, oh, ow)
        Output, which is overwritten.
    stride : (int, int), default (1, 1)
        Vertical and horizontal step of the window.
    padding : (int, int, int, int), default (0, 0, 0, 0)
        Zeros at the top, bottom, left and right.
    dilation : (int, int), default (1, 1)
        Vertical and horizontal distance of the kernel's taps.
    groups : int, default 1
        Number of groups of channels, each with kernels of its own.
    num_threads : int or None, default 1
        Number of threads; None: see `minidl.get_num_threads`.

    Raises
    ------
    TypeError, ValueError
        For arrays of another kind or of inconsistent shapes, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl_c.functional import conv2d_forward
    >>> x, w, b = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2)), np.zeros(1)
    >>> y = np.empty((1, 1, 2, 2))
    >>> conv2d_forward(x, w, b, y)
    >>> y[0, 0]
    array([[ 8., 12.],
           [20., 24.]])
    """
    x_, w_, b_, y_ = check_arrays({"x": x, "w": w, "b": b}, {"y": y})
    forward_batch(_conv2d_op(x_, stride, padding, dilation, groups, w=w_, b=b_, y=y_), x_, y_, (w_, b_), num_threads)


def conv2d_backward(
    const real[:, :, :, ::1] dy not None,      # IN  (n, k, oh, ow)
    const real[:, :, :, ::1] x not None,       # IN  (n, c, h, w)
    const real[:, :, :, ::1] w not None,       # IN  (k, c / groups, r, s)
    real[:, :, :, ::1] dx,                     # OUT (n, c, h, w), or None
    real[:, :, :, ::1] dw not None,            # OUT (k, c / groups, r, s)
    real[::1] db not None,                     # OUT (k,)
    stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, num_threads=1,
):
    """Computes the gradients of a convolution: dx, and the sums over the batch dw and db.

    All arrays are C-contiguous, and of one dtype: float32 or float64.

    Parameters
    ----------
    dy : array of shape (n, k, oh, ow)
        Gradient with respect to the output.
    x : array of shape (n, c, h, w)
        Input of the forward.
    w : array of shape (k, c / groups, r, s)
        Weight.
    dx : array of shape (n, c, h, w) or None
        Gradient with respect to x, which is overwritten; None: it is not computed.
    dw : array of shape (k, c / groups, r, s)
        Gradient with respect to w, which is overwritten.
    db : array of shape (k,)
        Gradient with respect to the bias, which is overwritten.
    stride : (int, int), default (1, 1)
        Vertical and horizontal step of the window.
    padding : (int, int, int, int), default (0, 0, 0, 0)
        Zeros at the top, bottom, left and right.
    dilation : (int, int), default (1, 1)
        Vertical and horizontal distance of the kernel's taps.
    groups : int, default 1
        Number of groups of channels, each with kernels of its own.
    num_threads : int or None, default 1
        Number of threads; None: see `minidl.get_num_threads`.

    Raises
    ------
    TypeError, ValueError
        For arrays of another kind or of inconsistent shapes, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl_c.functional import conv2d_backward
    >>> x, w, dy = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2))
    >>> dx, dw, db = np.empty_like(x), np.empty_like(w), np.empty(1)
    >>> conv2d_backward(dy, x, w, dx, dw, db)
    >>> dw[0, 0], db
    (array([[ 8., 12.],
           [20., 24.]]), array([4.]))
    >>> dx[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    dy_, x_, w_, dx_, dw_, db_ = check_arrays({"dy": dy, "x": x, "w": w}, {"dx": dx, "dw": dw, "db": db})
    op = _conv2d_op(x_, stride, padding, dilation, groups, w=w_, dy=dy_, dw=dw_, db=db_)
    backward_batch(op, dy_, x_, dx_, (w_, zeros_like(db_)), (dw_, db_), num_threads)


# ---- max-pooling ---------------------------------------------------------------------------------------------------------

def _maxpool2d_op(x, name, y, pool_size, stride, padding, ceil_mode, dilation):
    op = MaxPool2DOp(x.shape[1:], pool_size, stride, padding, ceil_mode, x.dtype.name, dilation=dilation)
    if y.shape != (x.shape[0], *op.out_shape):
        raise ValueError(f"max-pool: {name}: expected shape {(x.shape[0], *op.out_shape)} for {x.shape}, got {y.shape}")
    return op


def maxpool2d_forward(
    const real[:, :, :, ::1] x not None,       # IN  (n, c, h, w)
    real[:, :, :, ::1] y not None,             # OUT (n, c, oh, ow)
    pool_size, stride, padding=(0, 0), ceil_mode=False, num_threads=1, *, dilation=(1, 1),
):
    """maxpool2d_forward(x, y, pool_size, stride, padding=(0, 0), ceil_mode=False, num_threads=1, *, dilation=(1, 1))

    Computes y, the maximum of each window.

    Both arrays are C-contiguous, and of one dtype: float32 or float64.

    Parameters
    ----------
    x : array of shape (n, c, h, w)
        Input.
    y : array of shape (n, c, oh, ow)
        Output, which is overwritten.
    pool_size : (int, int)
        Height and width of a window.
    stride : (int, int)
        Vertical and horizontal step of the window.
    padding : (int, int) or (int, int, int, int), default (0, 0)
        Vertical and horizontal, or at the top, bottom, left and right.
    ceil_mode : bool, default False
        Whether a last window may reach beyond the padded input.
    num_threads : int or None, default 1
        Number of threads; None: see `minidl.get_num_threads`.
    dilation : (int, int), default (1, 1)
        Vertical and horizontal distance of the pixels of a window.

    Raises
    ------
    TypeError, ValueError
        For arrays of another kind, for a window that does not fit, for padding above half the window, and for a wrong
        shape of y, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl_c.functional import maxpool2d_forward
    >>> x, y = np.array([[[[1.0, 3.0], [4.0, 2.0]]]]), np.empty((1, 1, 1, 1))
    >>> maxpool2d_forward(x, y, (2, 2), (2, 2))
    >>> y[0, 0]
    array([[4.]])
    """
    x_, y_ = check_arrays({"x": x}, {"y": y})
    op = _maxpool2d_op(x_, "y", y_, pool_size, stride, padding, ceil_mode, dilation)
    forward_batch(op, x_, y_, (), num_threads)


def maxpool2d_backward(
    const real[:, :, :, ::1] dy not None,      # IN  (n, c, oh, ow)
    const real[:, :, :, ::1] x not None,       # IN  (n, c, h, w)
    real[:, :, :, ::1] dx not None,            # OUT (n, c, h, w)
    pool_size, stride, padding=(0, 0), ceil_mode=False, num_threads=1, *, dilation=(1, 1),
):
    """maxpool2d_backward(dy, x, dx, pool_size, stride, padding=(0, 0), ceil_mode=False, num_threads=1, *, dilation=(1, 1))

    Computes the gradient dx: adds each number of dy to the maximum of its window in that example.

    All arrays are C-contiguous, and of one dtype: float32 or float64.

    Parameters
    ----------
    dy : array of shape (n, c, oh, ow)
        Gradient with respect to the output.
    x : array of shape (n, c, h, w)
        Input of the forward.
    dx : array of shape (n, c, h, w)
        Gradient with respect to x, which is overwritten.
    pool_size : (int, int)
        Height and width of a window.
    stride : (int, int)
        Vertical and horizontal step of the window.
    padding : (int, int) or (int, int, int, int), default (0, 0)
        Vertical and horizontal, or at the top, bottom, left and right.
    ceil_mode : bool, default False
        Whether a last window may reach beyond the padded input.
    num_threads : int or None, default 1
        Number of threads; None: see `minidl.get_num_threads`.
    dilation : (int, int), default (1, 1)
        Vertical and horizontal distance of the pixels of a window.

    Raises
    ------
    TypeError, ValueError
        For arrays of another kind, for a window that does not fit, for padding above half the window, and for a wrong
        shape of dy, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl_c.functional import maxpool2d_backward
    >>> x = np.array([[[[1.0, 3.0], [4.0, 2.0]]]])
    >>> dx = np.empty_like(x)
    >>> maxpool2d_backward(np.array([[[[5.0]]]]), x, dx, (2, 2), (2, 2))
    >>> dx[0, 0]
    array([[0., 0.],
           [5., 0.]])
    """
    dy_, x_, dx_ = check_arrays({"dy": dy, "x": x}, {"dx": dx})
    op = _maxpool2d_op(x_, "dy", dy_, pool_size, stride, padding, ceil_mode, dilation)
    backward_batch(op, dy_, x_, dx_, (), (), num_threads)


# ---- dense layers --------------------------------------------------------------------------------------------------------

def _dense_op(x, w, **others):
    """Returns the DenseOp for x and w; raises ValueError if the other arrays have the wrong shapes."""
    op = DenseOp(x.shape[1:], w.shape[1], x.dtype.name)
    weight, bias, out = (x.shape[1], w.shape[1]), (w.shape[1],), (x.shape[0], w.shape[1])
    expected = {"w": weight, "dw": weight, "b": bias, "db": bias, "y": out, "dy": out}
    for name, array in {"w": w, **others}.items():
        if array.shape != expected[name]:
            raise ValueError(f"dense: {name}: expected shape {expected[name]}, got {array.shape}")
    return op


def dense_forward(
    const real[:, ::1] x not None,             # IN  (n, inputs)
    const real[:, ::1] w not None,             # IN  (inputs, outputs)
    const real[::1] b not None,                # IN  (outputs,)
    real[:, ::1] y not None,                   # OUT (n, outputs)
    num_threads=1,
):
    """Computes y = x w + b.

    All arrays are C-contiguous, and of one dtype: float32 or float64.

    Parameters
    ----------
    x : array of shape (n, inputs)
        Input.
    w : array of shape (inputs, outputs)
        Weight.
    b : array of shape (outputs,)
        Bias.
    y : array of shape (n, outputs)
        Output, which is overwritten.
    num_threads : int or None, default 1
        Number of threads; None: see `minidl.get_num_threads`.

    Raises
    ------
    TypeError, ValueError
        For arrays of another kind or of inconsistent shapes, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl_c.functional import dense_forward
    >>> x, w, b = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.array([0.0, 0.0, 10.0])
    >>> y = np.empty((1, 3))
    >>> dense_forward(x, w, b, y)
    >>> y
    array([[ 1.,  2., 13.]])
    """
    x_, w_, b_, y_ = check_arrays({"x": x, "w": w, "b": b}, {"y": y})
    forward_batch(_dense_op(x_, w_, b=b_, y=y_), x_, y_, (w_, b_), num_threads)


def dense_backward(
    const real[:, ::1] dy not None,            # IN  (n, outputs)
    const real[:, ::1] x not None,             # IN  (n, inputs)
    const real[:, ::1] w not None,             # IN  (inputs, outputs)
    real[:, ::1] dx,                           # OUT (n, inputs), or None
    real[:, ::1] dw not None,                  # OUT (inputs, outputs)
    real[::1] db not None,                     # OUT (outputs,)
    num_threads=1,
):
    """Computes the gradients of a dense layer: dx, and the sums over the batch dw and db.

    All arrays are C-contiguous, and of one dtype: float32 or float64.

    Parameters
    ----------
    dy : array of shape (n, outputs)
        Gradient with respect to the output.
    x : array of shape (n, inputs)
        Input of the forward.
    w : array of shape (inputs, outputs)
        Weight.
    dx : array of shape (n, inputs) or None
        Gradient with respect to x, which is overwritten; None: it is not computed.
    dw : array of shape (inputs, outputs)
        Gradient with respect to w, which is overwritten.
    db : array of shape (outputs,)
        Gradient with respect to the bias, which is overwritten.
    num_threads : int or None, default 1
        Number of threads; None: see `minidl.get_num_threads`.

    Raises
    ------
    TypeError, ValueError
        For arrays of another kind or of inconsistent shapes, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl_c.functional import dense_backward
    >>> x, w, dy = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.ones((1, 3))
    >>> dx, dw, db = np.empty_like(x), np.empty_like(w), np.empty(3)
    >>> dense_backward(dy, x, w, dx, dw, db)
    >>> dx, dw
    (array([[2., 2.]]), array([[1., 1., 1.],
           [2., 2., 2.]]))
    """
    dy_, x_, w_, dx_, dw_, db_ = check_arrays({"dy": dy, "x": x, "w": w}, {"dx": dx, "dw": dw, "db": db})
    op = _dense_op(x_, w_, dy=dy_, dw=dw_, db=db_)
    backward_batch(op, dy_, x_, dx_, (w_, zeros_like(db_)), (dw_, db_), num_threads)
