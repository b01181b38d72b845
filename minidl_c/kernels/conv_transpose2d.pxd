"""2-D transposed convolution of a tile. See conv_transpose2d.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport Op


cdef class ConvTranspose2DOp(Op):
    cdef conv2d_dims d                  # of the convolution from its output to its input
