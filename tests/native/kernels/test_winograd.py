"""winograd: errors of y, dx and dw beside those of the direct algorithm, equal bits in both layouts, sizes."""

import numpy as np
import pytest
import reference as ref
from geometries import Conv, winograd_cases
from per_example_checks import examples_of
from slow_marks import slow, slow_after

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten
from minidl.optimizers import SGD
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
# errors as multiples of those of the direct algorithm: docs/explanation/winograd.md promises them
MAX_RMS, MAX_ERROR = 3.0, 6.0
UNEVEN = Conv(5, 16, 9, 14, 48, (3, 3), padding=(2, 1, 0, 3))
CASES = (
    Conv(17, 16, 8, 8, 16, (3, 3), padding=(1, 1, 1, 1)),
    Conv(19, 48, 10, 13, 32, (3, 3)),
    Conv(3, 80, 12, 9, 16, (3, 3), padding=(1, 0, 0, 1)),
    Conv(5, 16, 8, 31, 32, (3, 3), padding=(5, 4, 3, 6)),  # beyond the kernel: outputs that read zeros alone
    UNEVEN,
    Conv(3, 192, 4, 4, 176, (3, 3), padding=(1, 1, 1, 1)),
    *winograd_cases(0, 6),
    *slow(winograd_cases(1, 24)),
)


def make_op(case, dtype, algorithm="winograd"):
    return Conv2DOp(case.x_shape[1:], case.filters, **case_options(case), dtype=dtype, algorithm=algorithm)


def case_options(case):
    return {"kernel_size": case.kernel, **case.options}


def random_cases(seed, count):
    """Yields geometries within the algorithm's limits."""
    rng = np.random.default_rng(seed)
    while count:
        channels, filters = (16 * rng.integers(1, 1 + rng.choice([2, 4, 12]), 2)).tolist()
        height, width = rng.integers(10, 24, 2).tolist()
        case = Conv(2, channels, height, width, filters, (3, 3), padding=tuple(rng.integers(0, 3, 4).tolist()))
        smallest = min(count_patches(height, width), count_patches(*case.y_shape[2:]))
        if channels * filters <= 32768 or smallest >= 16:
            count -= 1
            yield case


def count_patches(height, width):
    return -(-height // 4) * -(-width // 4)


def draw(rng, case):
    """Draws x as after a ReLU, weights in the scale of He, b and dy; exact in float32."""
    x = np.maximum(rng.standard_normal(case.x_shape, "f4"), 0)
    w = rng.standard_normal(case.w_shape, "f4") * np.float32(np.sqrt(2 / case.terms))
    return x, w, rng.standard_normal(case.filters, "f4"), rng.standard_normal(case.y_shape, "f4")


def run(op, values, dtype, threads=1):
    """Returns y, dx, dw and db."""
    x, w, b, dy = (v.astype(dtype) for v in values)
    y, dx, dw, db = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.empty_like(w), np.empty_like(b)
    forward_batch(op, x, y, (w, b), threads)
    backward_batch(op, dy, x, dx, (w, b), (dw, db), threads)
    return y, dx, dw, db


def errors(got, exact):
    """Returns the root mean square and the largest error."""
    error = np.abs(got - exact)
    return np.sqrt(np.mean(error**2)), np.max(error)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_those_of_the_definition(case, dtype):
    values = draw(np.random.default_rng(0), case)
    x, w, b, dy = values
    expected = ref.conv2d_forward(x, w, b, case), *ref.conv2d_backward(dy, x, w, case)
    for name, got, exact in zip(
        ("y", "dx", "dw", "db"), run(make_op(case, dtype), values, dtype), expected, strict=True
    ):
        limit = 100 * np.finfo(dtype).eps * np.sqrt(np.mean(exact**2))
        assert errors(got, exact)[1] < limit, name


@pytest.mark.parametrize("seed", slow_after(2, range(20)))
def test_errors_are_bounded_by_multiples_of_the_direct_algorithms(seed):
    """Ten geometries at a time, whose mean square errors are added up."""
    rms, largest = np.zeros((3, 2)), 0.0
    for case in random_cases(seed, 10):
        x, w, b, dy = draw(np.random.default_rng(seed), case)
        b[...] = 0  # a bias adds rounding errors to both algorithms, most of all to the direct one
        values = x, w, b, dy
        expected = ref.conv2d_forward(x, w, b, case), *ref.conv2d_backward(dy, x, w, case)[:2]
        found = [run(make_op(case, "float32", algorithm), values, "float32") for algorithm in ("winograd", "direct")]
        for i, exact in enumerate(expected):
            (own, own_max), (direct, direct_max) = (errors(results[i], exact) for results in found)
            rms[i] += np.square([own, direct])
            largest = max(largest, own_max / direct_max)
    ratios = np.sqrt(rms[:, 0] / rms[:, 1])
    assert (ratios < MAX_RMS).all(), f"root mean square errors of y, dx and dw: {ratios}"
    assert largest < MAX_ERROR


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_are_the_same_for_any_batch_and_threads(check, case, dtype):
    """The plan of one op predicts few examples in the blocked layout, and 16 and more in tiles."""
    values = draw(np.random.default_rng(1), case)
    x, w, b, _ = (v.astype(dtype) for v in values)
    op = make_op(case, dtype)
    first = run(op, values, dtype)
    for threads in (2, 3, 8):
        for name, got, expected in zip(("y", "dx", "dw", "db"), run(op, values, dtype, threads), first, strict=True):
            check.same_bits(got, expected, f"{name}, {threads} threads")
    plan = Plan([op], [0])
    param = np.concatenate([w.transpose(op.weight_order).ravel(), b])
    for limit in (0, plan.blocked_limit or 16):
        plan.blocked_limit = limit
        for n in sorted({1, 2, 3, min(5, case.batch), case.batch}):
            for threads in (1, 2, 3):
                y = np.full((n, first[0][0].size), np.nan, dtype)
                plan.predict(x[:n].reshape(n, -1), None, param, y, threads)
                check.same_bits(y, first[0][:n].reshape(n, -1), f"{n} examples, limit {limit}, {threads} threads")


@pytest.mark.parametrize("case", CASES[:7], ids=str)
def test_per_example_gradients_are_those_of_the_direct_sum(check, case):
    x, w, b, dy = (v.astype("f4") for v in draw(np.random.default_rng(9), case))
    dx = run(make_op(case, "float32"), (x, w, b, dy), "float32")[1]
    for threads in (1, 3):
        again = np.full_like(x, np.nan)
        own = examples_of(make_op(case, "float32"), dy, x, again, (w, b), threads)
        direct = examples_of(make_op(case, "float32", "direct"), dy, x, None, (w, b), threads)
        for name, got, expected in zip(("dw", "db"), own, direct, strict=True):
            check.same_bits(got, expected, f"{name}, {threads} threads")
        check.same_bits(again, dx, f"dx, {threads} threads")


@pytest.fixture
def two_layers():
    """Returns a function that makes a model and its trainer; dw of layer 0 needs dx of layer 1."""

    def make(weights_of=None):
        layers = [Conv2D(16, 3, padding=1), Conv2D(16, 3, padding=1), Flatten(), Dense(3)]
        model = Sequential(layers, input_shape=(16, 8, 8))
        if weights_of is not None:
            model.load_state_dict(weights_of.state_dict())
        return model, Trainer(model, "softmax_cross_entropy", SGD(0.001), num_threads=2)  # at 0.1, dy is soon 0

    return make


@pytest.mark.parametrize("n", [3, 17])  # in the blocked layout, in tiles
def test_any_changed_weight_is_transformed_again(check, two_layers, n):
    """A model with transformed weights, of which one is then written in place, gives the bits of a new model."""
    rng = np.random.default_rng(7)
    x, labels = rng.standard_normal((n, 16, 8, 8), "f4"), rng.integers(0, 3, n)
    model, trainer = two_layers()
    corners = {0: (0, 0), 8: (15, 15)}  # the first and the last weight
    for tap in range(9):
        for layer in (0, 1):
            trainer.train_batch(x, labels)
            model.predict(x)
            at = (*corners.get(tap, rng.integers(0, 16, 2)), *divmod(tap, 3))
            model.params[f"{layer}.weight"].value[at] += 1
            fresh, fresh_trainer = two_layers(model)
            check.same_bits(model.predict(x), fresh.predict(x), f"prediction, weight {at} of layer {layer}")
            trainer.train_batch(x, labels)
            fresh_trainer.train_batch(x, labels)
            for name, value in fresh.state_dict().items():
                check.same_bits(model.state_dict()[name], value, f"{name} after a step, weight {at} of layer {layer}")


@pytest.mark.parametrize("n", [3, 17])
def test_each_step_uses_the_weights_of_the_step_before(check, two_layers, n):
    rng = np.random.default_rng(8)
    x, labels = rng.standard_normal((n, 16, 8, 8), "f4"), rng.integers(0, 3, n)
    model, trainer = two_layers()
    stepwise, _ = two_layers()
    for _ in range(3):
        trainer.train_batch(x, labels)
        stepwise, new_trainer = two_layers(stepwise)
        new_trainer.train_batch(x, labels)
    for name, value in stepwise.state_dict().items():
        check.same_bits(model.state_dict()[name], value, name)


@pytest.mark.parametrize("size", [(8, 9), (2, 1)])
def test_gradients_match_finite_differences(size):
    """Differentiates sum(y * dy); a convolution is linear, so the step may be 1."""
    case = Conv(1, 16, *size, 16, (3, 3), padding=(1, 1, 1, 2))
    x, w, b, dy = (v.astype("f8") for v in draw(np.random.default_rng(2), case))
    op, y = make_op(case, "float64"), np.empty(case.y_shape)

    def value():
        forward_batch(op, x, y, (w, b), 1)
        return np.sum(y * dy)

    _, dx, dw, db = run(op, (x, w, b, dy), "float64")
    for got, array in ((dx, x), (dw, w), (db, b)):
        assert np.allclose(got, ref.finite_differences(value, array, step=1.0), rtol=0, atol=1e-10)


def test_an_infinite_pixel_spoils_only_the_patches_that_read_it():
    """Pixel (5, 5) is read by one patch alone: that of outputs 4 to 7, which reads 3 to 8; the one before ends at 4."""
    case = Conv(2, 16, 12, 12, 16, (3, 3), padding=(1, 1, 1, 1))
    x, w, b, _ = draw(np.random.default_rng(3), case)
    op, y, clean = make_op(case, "float32"), np.empty(case.y_shape, "f4"), np.empty(case.y_shape, "f4")
    forward_batch(op, x, clean, (w, b), 1)
    x[1, 7, 5, 5] = np.inf
    forward_batch(op, x, y, (w, b), 1)
    spoilt = np.zeros(case.y_shape[2:], bool)
    spoilt[4:8, 4:8] = True
    assert not np.isfinite(y[1][:, spoilt]).any()
    y[1][:, spoilt] = clean[1][:, spoilt]
    assert y.tobytes() == clean.tobytes()


def test_zeros_give_the_bias():
    case = CASES[0]
    _, w, b, dy = draw(np.random.default_rng(4), case)
    y, dx, _, _ = run(make_op(case, "float32"), (np.zeros(case.x_shape, "f4"), w, b, 0 * dy), "float32")
    assert (y == b[:, None, None]).all()
    assert (dx == 0).all()


@pytest.mark.parametrize(
    "change",
    [
        {"channels": 24},
        {"filters": 8},
        {"kernel": (3, 5)},
        {"stride": (1, 2)},
        {"dilation": (2, 2)},
        {"groups": 2},
    ],
    ids=str,
)
def test_other_sizes_are_refused_or_direct(change):
    case = Conv(**{"batch": 1, "channels": 16, "height": 10, "width": 10, "filters": 32, "kernel": (3, 3)} | change)
    with pytest.raises(ValueError, match="algorithm: expected sizes that suit 'winograd'"):
        make_op(case, "float32")
    assert not make_op(case, "float32", "auto").uses_winograd
    values = draw(np.random.default_rng(5), case)
    for got, expected in zip(
        *(run(make_op(case, "float32", a), values, "float32") for a in ("auto", "direct")), strict=True
    ):
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("case", "auto_is"),
    [
        (UNEVEN, "winograd"),
        (Conv(1, 16, 8, 8, 32, (3, 3), padding=(1, 1, 1, 1)), "winograd"),
        (Conv(1, 16, 7, 8, 32, (3, 3), padding=(2, 2, 1, 1)), "direct"),
        (Conv(1, 16, 10, 9, 32, (3, 3)), "direct"),  # outputs of 8x7
        (Conv(1, 128, 12, 13, 256, (3, 3), padding=(1, 1, 1, 1)), "winograd"),  # 12 patches, 32,768 pairs of channels
        (Conv(1, 192, 12, 13, 176, (3, 3), padding=(1, 1, 1, 1)), "direct"),  # 33,792 pairs
        (Conv(1, 192, 13, 13, 176, (3, 3), padding=(1, 1, 1, 1)), "winograd"),  # 16 patches
        (Conv(1, 192, 14, 14, 176, (3, 3)), "direct"),  # 16 patches of the image, 9 of the outputs
        (Conv(1, 192, 12, 12, 176, (3, 3), padding=(2, 2, 2, 2)), "direct"),  # 9 of the image, 16 of the outputs
    ],
    ids=str,
)
def test_auto_is_winograd_where_the_images_are_large_enough(case, auto_is):
    other = "direct" if auto_is == "winograd" else "winograd"
    ops = [make_op(case, "float32", algorithm) for algorithm in ("auto", auto_is, other)]
    assert [op.uses_winograd for op in ops] == [auto_is == "winograd", auto_is == "winograd", other == "winograd"]
    values = draw(np.random.default_rng(6), case)
    for auto, same, different in zip(*(run(op, values, "float32")[:3] for op in ops), strict=True):
        assert auto.tobytes() == same.tobytes() != different.tobytes()


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ValueError, match="algorithm: expected 'auto', 'direct' or 'winograd', got 'fft'"):
        make_op(UNEVEN, "float32", "fft")


@pytest.mark.parametrize("dtype", DTYPES)
def test_transformed_weights_are_those_of_the_definition(dtype, rng):
    """G g G^T, where a row of G evaluates a polynomial at a point, divided by the distances to the other points."""
    points = np.array([0, 0.6875, -0.6875, 1.5, -1.5])
    distances = [np.prod(point - np.delete(points, i)) for i, point in enumerate(points)]
    G = np.array([*(np.vander(points, 3, increasing=True) / np.c_[distances]), [0, 0, 1]])
    w = rng.standard_normal((48, 3, 3, 32)).astype(dtype)
    u = Conv2DOp((48, 8, 8), 32, (3, 3), padding=(1, 1, 1, 1), dtype=dtype).transformed_weights(w)
    assert u.dtype == dtype
    np.testing.assert_allclose(u, np.einsum("ir,crsk,js->ijck", G, w.astype("f8"), G), atol=10 * np.finfo(dtype).eps)


def test_transformed_weights_are_refused_without_the_algorithm_or_of_another_kind(rng):
    w = rng.standard_normal((16, 3, 3, 32))
    with pytest.raises(ValueError, match="transformed_weights: expected an op that uses 'winograd'"):
        Conv2DOp((16, 9, 9), 32, (3, 3), dtype="float64", algorithm="direct").transformed_weights(w)
    op = Conv2DOp((16, 10, 10), 32, (3, 3), dtype="float64")
    with pytest.raises(ValueError, match="weight: expected 16 rows of 288, got shape"):
        op.transformed_weights(w[:, :, :2].copy())
    with pytest.raises(TypeError, match="weight: expected float64, got float32"):
        op.transformed_weights(w.astype("f4"))
