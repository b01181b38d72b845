"""TrainingCall: the argument of Plan.train. See training_call.pyx."""

cdef class TrainingCall:
    # What each field means stands with the arguments in training_call.pyx.
    cdef public object x, rows, targets, weights, losses, scores, divisors, lrs, param, grad, update, num_threads, seed
    cdef public object step_counter, example_ids, clip_norm, clip_value, comm, ranges
    cdef public Py_ssize_t batch
