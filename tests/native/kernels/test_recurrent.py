"""recurrent: y, dx and gradients compared with NumPy, finite differences and PyTorch; equal bits; state and time."""

import numpy as np
import pytest
import reference as ref
from per_example_checks import check_alone, check_sums
from reference_recurrent import GATES, Layer

from minidl_c.kernels.recurrent import RecurrentOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

BATCHES = (0, 1, 15, 16, 17, 33, 277)  # 277: slots of two tiles
# Inputs, units, length: fewer and more than rows of a register tile, and more steps than a gradient takes at once.
GEOMETRIES = [(1, 1, 1), (1, 4, 9), (3, 16, 4), (5, 17, 7), (17, 3, 33), (4, 8, 70), (18, 37, 3)]
THREADS = (1, 2, 3, 8)
RANDOM_SHAPES = 100

each_cell = pytest.mark.parametrize("cell", sorted(GATES))
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def draw(rng, n, geometry, cell, dtype, options):
    """Draws x, dy, and the parameters in PyTorch's shapes; weights do not let errors grow from step to step."""
    inputs, units, length = geometry
    rows = GATES[cell] * units
    shapes = [(rows, inputs), (rows, units), *[(rows,)] * 2 * options.get("use_bias", True)]
    params = [rng.uniform(-1, 1, shape) / np.sqrt(units) for shape in shapes]
    dy = rng.standard_normal((n, units, length) if options.get("sequences") else (n, units))
    return [a.astype(dtype) for a in (rng.standard_normal((n, inputs, length)), dy, *params)]


def make(x, cell, params, options):
    return RecurrentOp(x.shape[1:], cell, params[1].shape[1], x.dtype.name, **options)


def stored(params):
    """Returns parameters as the op has them: weights (inputs, gates * units)."""
    return [np.ascontiguousarray(a.T) for a in params]


def forward(check, cell, options, x, *params, **how):
    op = make(x, cell, params, options)
    y = check.output((len(x), *op.out_shape), x.dtype)
    forward_batch(op, x, y, stored(params), **how)
    return y


def backward(check, cell, options, dy, x, *params, want_dx=True, **how):
    """Returns dx and the gradients of the parameters, in PyTorch's shapes."""
    dx, grads = check.output(x.shape, x.dtype) if want_dx else None, [np.full_like(a, 7) for a in stored(params)]
    backward_batch(make(x, cell, params, options), dy, x, dx, stored(params), grads, **how)
    return [dx, *(grad.T for grad in grads)]


def all_options():
    return [{"sequences": a, "reverse": b, "use_bias": c} for a in (True, False) for b in (True, False) for c in (1, 0)]


@pytest.mark.parametrize("n", BATCHES)
@each_cell
@each_dtype
def test_matches_numpy(check, dtype, cell, n):
    rng = np.random.default_rng(n)
    for number, geometry in enumerate(GEOMETRIES):
        options = all_options()[(number + n) % 8]
        x, dy, *params = draw(rng, n, geometry, cell, dtype, options)
        what, layer = f"{dtype} {cell} n={n} {geometry} {options}", Layer(cell, *params)
        steps = options["sequences"], options["reverse"]
        bound = 2e-5 if dtype == "float32" else 1e-13
        y, expected = forward(check, cell, options, check.input(x, dtype), *params), layer.forward(x, *steps)
        check.close(y, expected, bound, f"y {what}")
        got = backward(check, cell, options, check.input(dy, dtype), check.input(x, dtype), *params)
        for name, a, b in zip(("dx", "weight_ih", "weight_hh", "bias_ih", "bias_hh"), got,
                              layer.backward(dy, x, *steps), strict=False):  # fmt: skip
            check.close(a, b, bound * max(np.abs(b).max(initial=0), 1), f"{name} {what}")
        without = backward(check, cell, options, dy, x, *params, want_dx=False)
        assert all(np.array_equal(a, b) for a, b in zip(got[1:], without[1:], strict=True)), f"without dx {what}"
        check.count("recurrent", dtype)


@each_cell
def test_gradients_over_time_are_those_of_finite_differences(check, cell):
    for options in ({"sequences": True, "reverse": True}, {"sequences": False}):
        x, dy, *params = draw(np.random.default_rng(2), 2, (2, 3, 5), cell, "float64", options)
        dx, *grads = backward(check, cell, options, dy, x, *params)

        def loss(options=options, x=x, dy=dy, params=params):
            return float((forward(check, cell, options, x, *params) * dy).sum())

        for name, array, gradient in zip(("x", "w", "v", "b", "c"), (x, *params), (dx, *grads), strict=True):
            expected = ref.finite_differences(loss, array, 1e-6)
            assert np.allclose(gradient, expected, rtol=1e-7, atol=1e-8), f"{cell} {name} {options}"


def test_the_reference_has_the_gradients_of_finite_differences():
    for cell in GATES:
        x, dy, *params = draw(np.random.default_rng(3), 2, (2, 3, 4), cell, "float64", {"sequences": True})
        arrays = (x, *params)
        got = Layer(cell, *params).backward(dy, x, True, False)

        def loss(cell=cell, x=x, dy=dy, params=params):
            return float((Layer(cell, *params).forward(x, True, False) * dy).sum())

        for array, gradient in zip(arrays, got, strict=True):
            assert np.allclose(gradient, ref.finite_differences(loss, array, 1e-6), rtol=1e-7, atol=1e-8), cell


def random_case(rng, number):
    """Draws a cell with which PyTorch has a layer, and its arrays in float64."""
    cell = ("tanh", "relu", "lstm", "gru")[number % 4]
    geometry = [int(n) for n in rng.integers(1, (20, 40, 60))]
    options = {name: bool(rng.integers(2)) for name in ("sequences", "reverse", "use_bias")}
    return cell, options, draw(rng, int(rng.choice([1, 2, 16, 17, 35])), geometry, cell, "float64", options)


def run_torch(cell, options, dy, x, *params):
    """Returns y, dx and the gradients of the parameters, from PyTorch."""
    import torch

    leaf, *leaves = (torch.tensor(a, requires_grad=True) for a in (x, *params))
    function = getattr(torch._VF, cell if cell in ("lstm", "gru") else f"rnn_{cell}")
    state = leaf.new_zeros(1, len(x), params[1].shape[1])
    sequence = leaf.flip(2) if options["reverse"] else leaf
    state = (state, state) if cell == "lstm" else state
    y = function(sequence.movedim(1, 2), state, leaves, options["use_bias"], 1, 0.0, True, False, True)[0].movedim(1, 2)
    if not options["sequences"]:
        y = y[..., -1]
    elif options["reverse"]:
        y = y.flip(2)
    y.backward(torch.tensor(dy))
    return [y.detach().numpy(), *(a.grad.numpy() for a in (leaf, *leaves))]


@pytest.mark.oracle
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_agrees_with_pytorch(check, seed):
    rng = np.random.default_rng(seed)
    for number in range(RANDOM_SHAPES):
        cell, options, (x, dy, *params) = random_case(rng, number)
        got = [forward(check, cell, options, x, *params), *backward(check, cell, options, dy, x, *params)]
        for a, b in zip(got, run_torch(cell, options, dy, x, *params), strict=True):
            error = np.abs(a - b).max() / max(np.abs(b).max(), 1)
            assert error < 1e-12, f"{cell} {options} {x.shape} {params[1].shape}: {error}"


@each_cell
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, cell):
    options = {"sequences": True}
    for n, geometry in ((5, (9, 33, 5)), (37, (4, 17, 40)), (277, (3, 5, 6))):
        x, dy, *params = draw(np.random.default_rng(n), n, geometry, cell, dtype, options)
        y, grads = forward(check, cell, options, x, *params), backward(check, cell, options, dy, x, *params)
        for threads in THREADS:
            check.same_bits(forward(check, cell, options, x, *params, num_threads=threads), y, f"y {threads} threads")
            again = backward(check, cell, options, dy, x, *params, num_threads=threads)
            assert all(a.tobytes() == b.tobytes() for a, b in zip(again, grads, strict=True)), f"{threads} threads"
        for i in range(0, n, 9):
            row = slice(i, i + 1)
            check.same_bits(forward(check, cell, options, x[row], *params), y[row], f"y row {i}")
            dx = backward(check, cell, options, dy[row], x[row], *params)[0]
            check.same_bits(dx, grads[0][row], f"dx row {i}")


@each_cell
@each_dtype
def test_a_longer_sequence_changes_no_bit_of_earlier_steps(check, dtype, cell):
    """What comes after a step does not reach it, in either direction."""
    for reverse in (False, True):
        options = {"sequences": True, "reverse": reverse}
        x, _, *params = draw(np.random.default_rng(4), 18, (3, 20, 12), cell, dtype, options)
        y = forward(check, cell, options, x, *params)
        part = slice(4, None) if reverse else slice(8)
        shorter = forward(check, cell, options, np.ascontiguousarray(x[:, :, part]), *params)
        check.same_bits(np.ascontiguousarray(y[:, :, part]), shorter, f"{cell} reverse={reverse}")
        last = forward(check, cell, options | {"sequences": False}, x, *params)
        check.same_bits(last, np.ascontiguousarray(y[:, :, 0 if reverse else -1]), f"last step of {cell}")


@each_cell
def test_every_tile_begins_with_a_state_of_zeros(check, cell):
    """Also in memory that the tile before, and another op of the plan, have written to."""
    rng, options = np.random.default_rng(5), {"sequences": True}
    x, _, *first = draw(rng, 50, (3, 6, 9), cell, "float32", options)
    hidden, _, *second = draw(rng, 50, (6, 17, 9), cell, "float32", options)
    expected = forward(check, cell, options, forward(check, cell, options, x, *first), *second)
    params = [np.concatenate([a.ravel() for a in stored(params)]) for params in (first, second)]
    ops = [make(x, cell, first, options), make(hidden, cell, second, options)]
    plan = Plan(ops, [0, params[0].size])
    for _ in range(2):
        y = np.empty((50, 17 * 9), "f4")
        plan.predict(x.reshape(50, -1), None, np.concatenate(params), y, 1)
        check.same_bits(y.reshape(expected.shape), expected, cell)


@pytest.mark.parametrize("n", [1, 5, 19])
@each_cell
@each_dtype
def test_gradients_of_examples(dtype, cell, n):
    for geometry in GEOMETRIES[:5]:
        x, dy, *params = draw(np.random.default_rng(n), n, geometry, cell, dtype, {})
        op, params = make(x, cell, params, {}), stored(params)
        dx, grads = np.empty_like(x), [np.empty_like(a) for a in params]
        for threads in (1, 3):
            backward_batch(op, dy, x, dx, params, grads, threads)
            check_sums(op, dy, x, dx, params, grads, threads)
        check_alone(op, dy, x, params)


@each_cell
@each_dtype
def test_nan_stays_in_its_example_and_after_its_step(check, dtype, cell):
    options = {"sequences": True}
    x, _, *params = draw(np.random.default_rng(6), 17, (2, 5, 6), cell, dtype, options)
    x[3, 0, 2] = np.nan
    missing = np.isnan(forward(check, cell, options, x, *params))
    assert missing[3, :, 2:].all()
    assert not missing[3, :, :2].any()
    assert not np.delete(missing, 3, axis=0).any()


@pytest.mark.parametrize(
    ("make_op", "message"),
    [
        (lambda: RecurrentOp((2, 3), "elman", 4), "cell: expected one of tanh, relu, lstm, gru, gru_reset_before, got"),
        (lambda: RecurrentOp((2, 3), "lstm", 0), "inputs, length and units: expected numbers from 1"),
        (lambda: RecurrentOp((2, 0), "lstm", 1), "inputs, length and units: expected numbers from 1"),
        (lambda: RecurrentOp((2,), "lstm", 1), "inputs, length and units: expected 3 whole numbers"),
        (lambda: RecurrentOp((2, 3), "lstm", 1.0), "inputs, length and units: expected 3 whole numbers"),
        (lambda: RecurrentOp((1, 1), "gru", 2**21), "weights: expected at most 1099511627776 numbers"),
        (lambda: RecurrentOp((1, 2**40), "gru", 1), "values of all steps: expected at most 1099511627776 numbers"),
        (lambda: RecurrentOp((2, 3), "gru", 2, "float16"), "dtype"),
    ],
)
def test_invalid_arguments_are_refused(make_op, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_op()
