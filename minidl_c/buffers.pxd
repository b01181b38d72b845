"""Addresses of arrays. See buffers.pyx."""
cdef char *address(object array, object dtype, Py_ssize_t size, bint write, str name) except? NULL
