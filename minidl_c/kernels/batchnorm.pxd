"""Batch normalization. See batchnorm.pyx."""
from minidl_c.op cimport Op

ctypedef struct batchnorm_dims:
    Py_ssize_t C, pixels
    double eps, momentum
    int affine

ctypedef enum statistic:                # what a call keeps of each channel: rows of doubles
    RUNNING_MEAN                        # for inference
    RUNNING_INVERSE                     # 1 / sqrt(variance + eps)
    MEAN                                # of the batch
    INVERSE
    VARIANCE                            # unbiased
    GAIN                                # the parameters
    SHIFT
    MEAN_DSHIFT                         # of dy, and of dy * xhat, over the batch
    MEAN_DGAIN
    STATISTICS

cdef int measure(batchnorm_dims *d, Op self, tuple in_shape, object eps, object momentum, bint affine,
                 object dtype) except -1


cdef class BatchNormOp(Op):
    cdef batchnorm_dims d


cdef inline double *row(const batchnorm_dims *d, const void *packed, statistic which) noexcept nogil:
    """One number of each channel."""
    return <double *> packed + which * d.C
