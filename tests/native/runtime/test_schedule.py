"""The form of each call, for 1 to 64 examples on 1 to 8 threads: a change of the costs or of the choice shows here."""

import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD
from minidl_c.runtime.threads import set_thread_choice

THREADS = range(1, 9)
FORMS = {  # of the parts of a prediction
    ("IN_TILES",): "T",
    ("BY_EXAMPLE",): "e",
    ("BY_EXAMPLE", "BY_EXAMPLE"): "m",  # as many for each thread, then threads share what is left over
    ("IN_TILES", "BY_EXAMPLE"): "E",
    ("IN_TILES", "BY_EXAMPLE", "BY_EXAMPLE"): "M",
    ("TOGETHER",): "J",
    ("IN_CHUNKS",): "C",
}
PREDICTIONS = {  # for each number of threads, the forms of 1 to 64 examples
    "lenet": [
        "eeeeeeTTTTTTTTTTEEEEEETTTTTTTTTTEEEEEETTTTTTTTTTEEEEEETTTTTTTTTT",
        "eemememeTTTTTTTTEEMEMETTTTTTTTTTEEMEMETTTTTTTTTTEEMEMETTTTTTTTTT",
        "eeemeeTTTTTTTTTTeeTTTTTTTTTTTTTTEEEMEETTTTTTTTTTEEEMEETTTTTTTTTT",
        "eeeemmeeTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTEEEEMMTTTTTTTTTT",
        "eeeeeTTTTTTTTTTTmeeeTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "eeeeeeTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "eeeeeeeTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "eeeeeeeeTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
    ],
    "cnn": [
        "eeeeeeeeeeeeeeTTEEEEEEEEEEEEEETTEEEEEEEEEEEEEETTEEEEEEEEEEEEEETT",
        "eemememememememeEEMEMEMEMEMEMETTEEMEMEMEMEMEMETTEEMEMEMEMEMEMETT",
        "eeemeemeemeemeemeemeemeemeemeemeEEEMEEMEEMEEMETTEEEMEEMEEMEEMETT",
        "eeeemmeemmeemmeemmeemmeemmeemmeemmeemmeemmeemmeeEEEEMMEEMMEEMMTT",
        "eeeeemmeeemmeeeTmeeemmeeemmeeemmeeemmeeemmeeemmeeemmeeemmeeemmee",
        "eeeeeemmmeeemmmeeemmmeeemmmeeemmmeeemmmeeemmmeeemmmeeemmmeeemmme",
        "eeeeeeemmmeeeeTTmeeeemmmeeeemmmeeeemmmeeeemmmeeeemmmeeeemmmeeeem",
        "eeeeeeeemmmmeeeemmmmeeeemmmmeeeemmmmeeeemmmmeeeemmmmeeeemmmmeeee",
    ],
    "mlp": [
        "eJJCCCCCCCCCCCCTCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJJJJJJJJTTJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "eJJJJJJJJJJJJJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
    ],
}
LARGEST_BLOCKED_BATCH = {"lenet": (5, 5), "cnn": (15, 16), "mlp": (10, 11)}  # in training: on one thread, on several


def lenet():
    convs = [Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5), ReLU(), MaxPool2D(2)]
    return (1, 28, 28), [*convs, Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)]


def cnn():
    convs = [Conv2D(32, 3, padding=1), ReLU(), Conv2D(64, 3, padding=1), ReLU(), MaxPool2D(2)]
    return (3, 16, 16), [*convs, Flatten(), Dense(10)]


def mlp():
    return (784,), [Dense(256), ReLU(), Dense(10)]


def model_of(make):
    shape, layers = make()
    return Sequential(layers, input_shape=shape)


def training_plan(make):
    return Trainer(model_of(make), "softmax_cross_entropy", SGD(0.01)).steps().plan


def threads_of(form, examples, threads):
    """Threads share a tile, or an example, only if there are two for each; joint ops have work for all of them."""
    if form in ("TOGETHER", "IN_CHUNKS"):
        return threads
    units = -(-examples // 16) if form == "IN_TILES" else examples
    return threads if 2 * units <= threads else min(threads, units, 16)


@pytest.mark.parametrize("make", [lenet, cnn, mlp])
def test_each_prediction_has_the_form_of_the_table(make):
    plan = model_of(make).network.segments[0].plan
    for threads, expected in zip(THREADS, PREDICTIONS[make.__name__], strict=True):
        calls = [plan.schedules(n, threads) for n in range(1, 65)]
        assert "".join(FORMS[tuple(form for form, _, _ in parts)] for parts in calls) == expected, f"{threads} threads"
        for n, parts in enumerate(calls, 1):
            assert sum(examples for _, examples, _ in parts) == n
            for form, examples, used in parts:
                assert used == threads_of(form, examples, threads), f"{n} examples on {threads} threads: {parts}"
            assert all(examples % 16 == 0 for form, examples, _ in parts[:-1] if form == "IN_TILES")


@pytest.mark.parametrize("make", [lenet, cnn, mlp])
def test_small_batches_are_trained_together_in_the_blocked_layout(make):
    plan, (alone, shared) = training_plan(make), LARGEST_BLOCKED_BATCH[make.__name__]
    for threads in THREADS:
        for n in range(1, 65):
            form = "TOGETHER" if n <= (alone if threads == 1 else shared) else "IN_TILES"
            assert plan.schedules(n, threads) == [(form, n, threads_of(form, n, threads))]
            assert plan.schedules(n, threads, manual=True) == [("IN_TILES", n, threads_of("IN_TILES", n, threads))]


@pytest.mark.parametrize("make", [lenet, cnn, mlp])
def test_the_limit_overrides_the_cost_model(make):
    plans = model_of(make).network.segments[0].plan, training_plan(make)
    for plan in plans:
        plan.blocked_limit = 0
        for threads in THREADS:
            assert {form for n in range(1, 65) for form, _, _ in plan.schedules(n, threads)} == {"IN_TILES"}
        plan.blocked_limit = 1
        for threads in THREADS[1:]:
            assert not any(form == "IN_TILES" for n in range(1, 17) for form, _, _ in plan.schedules(n, threads))


@pytest.fixture
def thread_choice():
    """Turns the choice on, which other tests do without."""
    set_thread_choice(True)
    yield
    set_thread_choice(False)


@pytest.mark.usefixtures("thread_choice")
def test_a_prediction_has_at_most_the_threads_that_have_enough_work():
    model = model_of(lenet)
    plan, work = model.network.segments[0].plan, sum(layer.macs for layer in model.layers)
    for n in (1, 4, 16, 64, 1024):
        used = [max(threads for _, _, threads in plan.schedules(n, most)) for most in (1, 2, 3, 8, None)]
        assert all(threads <= most for threads, most in zip(used, (1, 2, 3, 8), strict=False))
        assert all(threads == 1 or 2e6 * threads <= 1.2 * n * work for threads in used), (n, used)
    assert [max(part[2] for part in plan.schedules(n, 4)) for n in (1, 4, 1024)] == [1, 1, 4]
