"""Batch normalization. See batchnorm.pyx."""
from minidl_c.op cimport Op

ctypedef struct batchnorm_dims:
    Py_ssize_t C, pixels
    double eps, momentum
    int affine

ctypedef enum statistic:                # the arrays in `packed`: [STATISTICS][C] doubles
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

cdef int init_batchnorm(batchnorm_dims *d, Op self, tuple in_shape, object eps, object momentum, bint affine,
                        object dtype) except -1


cdef inline double *channels(const batchnorm_dims *d, const void *packed, statistic which) noexcept nogil:
    """Returns the array [C] of a statistic."""
    return <double *> packed + which * d.C
