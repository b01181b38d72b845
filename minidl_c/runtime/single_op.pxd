"""One op over a batch of NCHW arrays. See single_op.pyx."""
