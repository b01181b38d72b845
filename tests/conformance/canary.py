"""Runs a kernel with one fault (canary_op.pyx) forward and backward, and prints a hash of what came out."""

import argparse
import hashlib

import numpy as np

from minidl_c.flatten import FlattenOp
from minidl_c.plan import Plan
from minidl_c.relu import ReLUOp

SHAPE = (3, 2, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", help='"none", or one that canary_op.pyx names')
    parser.add_argument("--examples", type=int, default=19)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    from canary_op import CanaryOp  # built by instrumented.py

    ops = [ReLUOp(SHAPE), CanaryOp(SHAPE, options.fault), FlattenOp(SHAPE)]
    plan, n = Plan(ops, [0, 0, 0]), options.examples
    rng = np.random.default_rng(0)
    x, y, dx = (rng.standard_normal((n, int(np.prod(SHAPE))), "f4") for _ in range(3))
    param, grad = np.zeros(512, "f4"), np.zeros(512, "f4")
    kept = plan.forward(x, param, y, options.threads)
    plan.backward(kept, y, dx, param, grad)
    print(hashlib.sha256(b"".join(a.tobytes() for a in (y, dx, grad))).hexdigest())


if __name__ == "__main__":
    main()
