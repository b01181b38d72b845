"""One op over a batch of NCHW arrays. See batch.pyx."""
