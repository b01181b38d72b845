"""sgd: PyTorch's formula step after step, and refusals."""

import platform

import numpy as np
import pytest
import reference as ref

from minidl_c.sgd import sgd_update

DTYPES = ("float32", "float64")
FORMS = [(0.0, False), (0.9, False), (0.9, True), (0.5, True), (0.99, False)]  # momentum, nesterov


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 4099, 70001])
@pytest.mark.parametrize(("momentum", "nesterov"), FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_follows_the_formula(check, dtype, momentum, nesterov, size):
    rng = np.random.default_rng(size)
    w, velocity = check.output((size,), dtype), check.output((size,), dtype)
    w[...], velocity[...] = rng.standard_normal(size), 0
    for step, lr in enumerate((0.1, 0.03, 1.0)):
        g = check.input(rng.standard_normal(size), dtype)
        exact_w, exact_v = ref.sgd_update(w, g, velocity, lr, momentum, nesterov)
        # lr and momentum are rounded to the dtype: 3 roundings to the velocity, 6 more to w
        v_size = momentum * np.abs(velocity.astype("f8")) + np.abs(g)
        w_size = np.abs(w) + lr * (np.abs(g) + v_size)
        sgd_update(w, g, velocity, lr, momentum=momentum, nesterov=nesterov)
        what = f"{dtype} size={size} step={step} momentum={momentum} nesterov={nesterov}"
        check.close(w, exact_w, ref.rounding(9, dtype) * w_size, f"w {what}")
        if momentum:
            check.close(velocity, exact_v, ref.rounding(3, dtype) * v_size, f"velocity {what}")
        check.count("sgd", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_numbers_are_exact(check, dtype):
    w, g, v = (np.array(a, dtype) for a in ([1, 2, 3], [4, 8, -4], [2, 0, 8]))
    sgd_update(w, g, v, 0.5, momentum=0.5)
    assert v.tolist() == [5, 8, 0]
    assert w.tolist() == [-1.5, -2, 3]
    sgd_update(w, g, v, 0.5, momentum=0.5, nesterov=True)
    assert v.tolist() == [6.5, 12, -4]
    assert w.tolist() == [-5.125, -9, 6]


@pytest.mark.parametrize("dtype", DTYPES)
def test_place_in_the_buffer_does_not_change_a_bit(check, dtype):
    """Vectors and their remainder do the same: any part updated alone gets the same bits."""
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(133).astype(dtype) for _ in range(3)]
    for momentum, nesterov in FORMS:
        w, g, v = (a.copy() for a in values)
        sgd_update(w, g, v, 0.03, momentum=momentum, nesterov=nesterov)
        for start, stop in ((0, 1), (1, 18), (5, 133), (130, 133)):
            part = [a[start:stop].copy() for a in values]
            sgd_update(*part, 0.03, momentum=momentum, nesterov=nesterov)
            check.same_bits(part[0], w[start:stop], f"w[{start}:{stop}]")
            check.same_bits(part[2], v[start:stop], f"velocity[{start}:{stop}]")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="nothing is flushed elsewhere")
@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_numbers_are_flushed_as_in_training(check, dtype):
    """A velocity without gradients decays to zero, by hand as inside a plan."""
    w, g, velocity = np.zeros(37, dtype), np.zeros(37, dtype), np.full(37, np.finfo(dtype).tiny)
    velocity = velocity.astype(dtype)
    sgd_update(w, g, velocity, 1.0, momentum=0.5)
    check.equal(velocity, np.zeros(37), "velocity")
    check.equal(w, np.zeros(37), "w")
    assert np.finfo(dtype).tiny / np.ones(1, dtype) / 2 > 0, "flush-to-zero outlived the call"


def right_call(check):
    arrays = {name: np.ones(33, "f4") for name in ("w", "g", "velocity")}
    return check.call(sgd_update, ("w", "velocity"), **arrays, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", ["w", "g", "velocity"])
def test_wrong_arrays_are_refused(check, name):
    check.wrong_shapes_refused(right_call(check), name)
    check.wrong_arrays_refused(right_call(check), name)


@pytest.mark.parametrize("name", ["lr", "momentum"])
@pytest.mark.parametrize("value", [None, "0.1", (0.1,)])
def test_what_is_no_number_is_refused(check, name, value):
    check.refused(right_call(check), {name: value})
