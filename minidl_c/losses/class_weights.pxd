cdef double *class_weights_of(str name, object weights, Py_ssize_t classes, str dtype) except? NULL
