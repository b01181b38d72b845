"""Update: every native optimizer matches its formula bit for bit, on any part of the buffer; step counts, errors."""

import numpy as np
import pytest
import reference_optimizers as formulas
from in_turn import in_turn

from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import ParamRanges, Update

DTYPES = ("float32", "float64")
DECAY = {"weight_decay": 0.02}
SGD, ADAGRAD = (SGDUpdate, formulas.sgd), (AdagradUpdate, formulas.adagrad)
RMSPROP, ADAM = (RMSpropUpdate, formulas.rmsprop), (AdamUpdate, formulas.adam)
FORMS = [
    *((*SGD, arguments) for arguments in ({}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True})),
    (*SGD, {"momentum": 0.99, **DECAY}),
    *((*ADAGRAD, arguments) for arguments in ({}, {"lr_decay": 0.1}, {"eps": 1e-3, **DECAY})),
    *((*RMSPROP, arguments) for arguments in ({}, {"alpha": 0.5, "eps": 0.1}, {"momentum": 0.9}, {"centered": True})),
    (*RMSPROP, {"momentum": 0.5, "centered": True, **DECAY}),
    *((*ADAM, arguments) for arguments in ({}, {"beta1": 0.0, "beta2": 0.5, **DECAY}, {"amsgrad": True})),
    (*ADAM, {"decoupled": True, "eps": 0.1, **DECAY}),
]
each_form = pytest.mark.parametrize(
    ("kind", "formula", "arguments"), FORMS, ids=[f"{kind.__name__}({arguments})" for kind, _, arguments in FORMS]
)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@each_dtype
@each_form
@in_turn("size", [0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 4099, 70001])
def test_matches_the_formula_bit_for_bit(check, kind, formula, arguments, size, dtype):
    rng = np.random.default_rng(size)
    update, w = kind(size, dtype, **arguments), check.output((size,), dtype)
    w[...] = expected = rng.standard_normal(size).astype(dtype)
    state = update.state
    for step, lr in enumerate((0.1, 0.03, 1.0, 0.01, 0.3)):
        g = check.input(rng.standard_normal(size), dtype)
        expected, state = formula(expected, np.array(g), {k: a.copy() for k, a in state.items()}, lr, step, **arguments)
        update.apply(w, g, lr)
        what = f"{kind.__name__} {arguments} {dtype} size={size} step={step}"
        check.same_bits(w, expected, f"w {what}")
        assert update.state.keys() == state.keys()
        for name, array in update.state.items():
            check.same_bits(array.copy(), state[name], f"{name} {what}")
        check.count(kind.__name__, dtype)


@each_dtype
@each_form
def test_position_in_the_buffer_changes_no_bit(check, kind, formula, arguments, dtype):
    """Vector loop and remainder agree: a part of the buffer updated on its own gets the same bits."""
    rng = np.random.default_rng(1)
    first, grads = rng.standard_normal(133).astype(dtype), rng.standard_normal((3, 133)).astype(dtype)

    def after(part):
        w, update = first[part].copy(), kind(len(first[part]), dtype, **arguments)
        for g in grads[:, part]:
            update.apply(w, g.copy(), 0.03)
        return [w, *(array.copy() for array in update.state.values())]

    whole = after(slice(None))
    for part in (slice(0, 1), slice(1, 18), slice(5, 133), slice(130, 133)):
        for alone, array in zip(after(part), whole, strict=True):
            check.same_bits(alone, array[part], f"{kind.__name__} {part}")


@each_dtype
@each_form
def test_zero_gradients_change_nothing(kind, formula, arguments, dtype):
    """0 / eps is 0, at the first step too. Without weight decay."""
    w, update = np.array([1.0, -2.0, 0.0], dtype), kind(3, dtype, **arguments | {"weight_decay": 0})
    for _ in range(5):
        update.apply(w, np.zeros(3, dtype), 0.1)
    assert w.tolist() == [1, -2, 0]


@each_form
def test_each_update_counts_its_own_steps(kind, formula, arguments):
    update, count = kind(3, "float32", **arguments), np.array([70])
    assert update.steps == 0
    for _ in range(2):
        update.apply(np.ones(3, "f4"), np.ones(3, "f4"), 0.1, count)
    update.apply(np.ones(3, "f4"), np.ones(3, "f4"), 0.1)
    assert (update.steps, count[0]) == (3, 72)


@each_dtype
@each_form
def test_subnormal_numbers_are_flushed_as_in_training(check, kind, formula, arguments, dtype):
    """State that decays to zero without gradients is flushed by `apply` as it is inside a plan."""
    tiny = np.finfo(dtype).tiny
    update = kind(37, dtype, **arguments)
    for array in update.state.values():
        array[...] = tiny
    update.apply(np.zeros(37, dtype), np.zeros(37, dtype), 1.0)
    assert all(set(np.unique(array)) <= {0, tiny} for array in update.state.values())
    assert tiny / np.ones(1, dtype) / 2 > 0, "flush-to-zero outlived the call"


@pytest.mark.parametrize(
    ("late", "message"),
    [
        (3, "ranges: expected at most the 2 steps that the optimizer has done as skipped steps, got 3"),
        (-1, "at least 0, .* and -1"),
    ],
)
@each_form
def test_a_step_count_above_the_number_of_steps_is_refused(check, kind, formula, arguments, late, message):
    """The formula's step would be negative, where Adam's bias correction diverges."""
    update, w = kind(3, "float32", **arguments), np.ones(3, "f4")
    update.steps = 2
    with pytest.raises(ValueError, match=message):
        update.apply(w, np.ones(3, "f4"), 0.1, None, ParamRanges([(0, 3, 1, 1, late)]))
    assert (w == 1).all() and update.steps == 2
    update.apply(w, np.ones(3, "f4"), 0.1, None, ParamRanges([(0, 1, 1, 1, 2), (1, 3, 1, 1, 0)]))
    assert np.isfinite(w).all() and (w != 1).all() and update.steps == 3


@each_dtype
@each_form
def test_each_range_has_its_rate_and_its_decay(check, kind, formula, arguments, dtype):
    """As the formula with another rate and another decay; what is in no range keeps its bits, and its state."""
    rng, update = np.random.default_rng(3), kind(40, dtype, **arguments)
    w, state = rng.standard_normal(40).astype(dtype), {name: array.copy() for name, array in update.state.items()}
    ranges = [(0, 7, 64.0, 0.0, 0), (7, 8, 1.0, 1.0, 0), (11, 30, 0.5, 3.0, 0), (30, 30, 1.0, 1.0, 0)]
    for step in range(3):
        g, expected = rng.standard_normal(40).astype(dtype), w.copy()
        for start, end, lr, decay, _ in ranges:
            here = slice(start, end)
            its = arguments | {"weight_decay": arguments.get("weight_decay", 0) * decay}
            kept = {name: array[here].copy() for name, array in state.items()}
            expected[here], new = formula(w[here].copy(), g[here], kept, 0.01 * lr, step, **its)
            for name, array in new.items():
                state[name][here] = array
        update.apply(w, g, 0.01, None, ParamRanges(ranges))
        check.same_bits(w, expected, f"{kind.__name__} {arguments} {dtype} {step}")
        assert all(np.array_equal(array, state[name]) for name, array in update.state.items())


@pytest.mark.parametrize(
    "ranges",
    [
        *(
            [(2, 1, 1, 1, 0)],
            [(-1, 1, 1, 1, 0)],
            [(0, 2, 1, 1, 0), (1, 3, 1, 1, 0)],
            [(2, 3, 1, 1, 0), (0, 1, 1, 1, 0)],
        ),
        *(
            [(0, 3, -1, 1, 0)],
            [(0, 3, 1, -1, 0)],
            [(0, 3, np.nan, 1, 0)],
            [(0, 3, 1, np.inf, 0)],
            [(0, 2**62, 1, 1, 0)],
        ),
        *([(0, 3, 1, 1)], [(0, 3, "a", 1, 0)], [(0.5, 3, 1, 1, 0)], [(0, 3, 1, None, 0)], None),
    ],
)
def test_invalid_ranges_are_refused(ranges):
    with pytest.raises((TypeError, ValueError)):
        ParamRanges(ranges)


def valid_call(check):
    def apply(w, g, lr):
        AdamUpdate(33, "float32").apply(w, g, lr)

    return check.call(apply, ("w",), w=np.ones(33, "f4"), g=np.ones(33, "f4"), lr=0.1)


@pytest.mark.parametrize("name", ["w", "g"])
def test_invalid_arrays_are_refused(check, name):
    call = valid_call(check)
    for wrong in (np.ones(32, "f4"), np.ones(34, "f4"), np.ones(0, "f4"), np.ones((33, 1), "f4")[::2]):
        check.refused(call, {name: wrong})
    check.refuses_invalid_arrays(call, name)


@pytest.mark.parametrize("value", [None, "0.1", (0.1,)])
def test_non_finite_learning_rates_are_refused(check, value):
    check.refused(valid_call(check), {"lr": value})


def test_an_update_for_other_parameters_is_refused():
    for update in (SGDUpdate(5, "float32"), SGDUpdate(5, "float32", 0.9), AdamUpdate(5, "float32")):
        with pytest.raises(ValueError, match="update: expected one made for 6 parameters of float32, got one for 5 of"):
            update.apply(np.ones(6, "f4"), np.ones(6, "f4"), 0.1)
    with pytest.raises(TypeError, match="update: expected that of an optimizer, got Update"):
        Update().apply(np.ones(6), np.ones(6), 0.1)
