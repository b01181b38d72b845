"""TrainingCall: the argument of Plan.train."""


cdef class TrainingCall:
    """Some training steps: what they read (IN), overwrite (OUT) and change (IN and OUT). Plan.train checks all of it.

    m is the number of rows: those of `rows`, or all of x. Each step takes the next `batch` of them. All fields can be set again.
    """

    def __cinit__(
        self,
        x,                              # IN (n, in_size) uint8, float32 or float64
        rows,                           # IN (m,) int64: which rows of x; None: all
        Py_ssize_t batch,
        targets,                        # IN, by row of x: int64 or uint8 labels (n,) or (n, n_labels), or numbers (n, n_target)
        weights,                        # IN (n,), by row of x, or None
        losses,                         # OUT (m,)
        scores,                         # OUT (m, classes), or None
        divisors,                       # IN (steps,) float64: of the sums of gradients
        lrs,                            # IN (steps,) float64: the learning rates
        param,                          # IN and OUT: the flat buffer
        grad,                           # OUT: the divided gradient of the last step, after clipping (see clip.pyx)
        update,                         # an Update, the optimizer; None: the parameters do not change
        num_threads,
        seed,                           # of random numbers
        step_counter,                   # IN and OUT (1,) int64: the number of completed steps; no signal comes between a step and it
        example_ids=None,               # IN (m,) int64: what the random numbers of each example depend on; None: `rows`
        clip_norm=None,
        clip_value=None,
        comm=None,                      # the processes that run each batch together: see minidl/distributed/mpi.py
        ranges=None,                    # ParamRanges: the parameters that `update` changes; None: all, with factors of 1
    ):
        self.x, self.rows, self.batch, self.targets, self.weights = x, rows, batch, targets, weights
        self.losses, self.scores, self.divisors, self.lrs = losses, scores, divisors, lrs
        self.param, self.grad, self.update, self.num_threads, self.seed = param, grad, update, num_threads, seed
        self.step_counter, self.example_ids = step_counter, example_ids
        self.clip_norm, self.clip_value, self.comm, self.ranges = clip_norm, clip_value, comm, ranges
