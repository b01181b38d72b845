"""The first half of batch norm. See batchnorm_statistics.pyx."""
from minidl_c.kernels.batchnorm cimport batchnorm_dims
from minidl_c.op cimport Op


cdef class BatchStatisticsOp(Op):
    cdef batchnorm_dims d
