"""Addresses of arrays, for arguments whose dtype a plan only knows when it runs."""
from numpy import dtype as numpy_dtype

_DTYPES = {name: numpy_dtype(name) for name in ("uint8", "int64", "float32", "float64")}       # native: others differ


cdef char *address(object array, object dtype, Py_ssize_t size, bint write, str name) except? NULL:
    """Where a C-contiguous array of `size` numbers lies; raises ValueError or TypeError if it is anything else."""
    flags = array.flags
    if array.dtype != _DTYPES[dtype]:
        raise TypeError(f"{name}: expected {dtype}, got {array.dtype}")
    if array.size != size or not flags.c_contiguous or not flags.aligned or (write and not flags.writeable):
        kind = "writable " if write else ""
        raise ValueError(f"{name}: expected {size} aligned C-contiguous {kind}numbers, got shape {array.shape}")
    return <char *> <size_t> array.ctypes.data
