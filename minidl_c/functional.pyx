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
    """Computes y, the convolution of every image of x; padding is (top, bottom, left, right).

    Raises ValueError for inconsistent shapes, before y is written.
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
    """Computes dx, and the sums over the batch dw and db, from the gradient dy of the output. Raises as conv2d_forward."""
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
    """Computes y, the maximum of each window; pool_size, stride and dilation are pairs, padding is one or has four sides.

    Raises ValueError for a window that does not fit, padding above half the window, or a wrong shape of y.
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
    """Computes dx: adds each number of dy to the maximum of its window in that example. Raises as maxpool2d_forward."""
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

    Raises ValueError for inconsistent shapes, before y is written.
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
    """Computes dx, and the sums over the batch dw and db, from the gradient dy of the output. Raises as dense_forward."""
    dy_, x_, w_, dx_, dw_, db_ = check_arrays({"dy": dy, "x": x, "w": w}, {"dx": dx, "dw": dw, "db": db})
    op = _dense_op(x_, w_, dy=dy_, dw=dw_, db=db_)
    backward_batch(op, dy_, x_, dx_, (w_, zeros_like(db_)), (dw_, db_), num_threads)
