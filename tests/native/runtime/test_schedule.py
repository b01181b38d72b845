"""The form of each call, for 1 to 64 examples on 1 to 8 threads: a change of the costs or of the choice shows here."""

import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD
from minidl_c.runtime.threads import set_thread_choice

THREADS = range(1, 9)
FORMS = {  # of the parts of a call
    ("IN_TILES",): "T",
    ("IN_TILES", "IN_CHUNKS"): "R",
    ("IN_CHUNKS",): "C",
    ("IN_CHUNKS", "BY_EXAMPLE"): "m",  # as many for each thread, then threads share what is left over
    ("BY_EXAMPLE",): "s",
    ("TOGETHER",): "J",
}
PREDICTIONS = {  # for each number of threads, the forms of 1 to 64 examples
    "lenet": [
        "CCCCCCCTTTTTTTTTRRRRRRRTTTTTTTTTRRRRRRRTTTTTTTTTRRRRRRRTTTTTTTTT",
        "sCmCmCmCmCmCmCTTRRRRRRRTTTTTTTTTRRRRRRRRRRRRRRTTRRRRRRRTTTTTTTTT",
        "sCCmCCmCCmCCmCCmCCmCCRRRRRRRRRTTRRRRRRRTTTTTTTTTRRRRRRRRRRRRRRRR",
        "ssCCmmCCmmCCmmCCmmCCmmCCmmCCTTTTRRRRRRRRRRRRRRTTRRRRRRRTTTTTTTTT",
        "ssCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCRRRRRRRRRRRRRRRRRRRRRRRRRRRTT",
        "sssCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCTTTTTTRRRRRRRRRRRRRRRR",
        "sssCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCRRRRRRRRRRRRRRR",
        "ssssCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCCTTTTTTTT",
    ],
    "cnn": [
        "CCCCCCCCCCCCCCCTRRRRRRRRRRRRRRRTRRRRRRRRRRRRRRRTRRRRRRRRRRRRRRRT",
        "sCmCmCmCmCmCmCmCmCmCmCmCmCmCmCRTRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRRT",
        "sCCmCCmCCmCCmCCmCCmCCmCCmCCmCCmCCmCCmCCmCCmCCRRTRRRRRRRRRRRRRRRR",
        "ssCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCmmCCRRRT",
        "ssCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCCCmmCC",
        "sssCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmCCCmmmC",
        "sssCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCmmmCCCCm",
        "ssssCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCCmmmmCCCC",
    ],
    "mlp": [
        "CJJCCCCCCCCCCCCTCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJJJJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "sJJJJJJJJJJJJJJJJJJJJJJJJJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
    ],
}
STEPS = {  # the same in training, on 1, 2, 4 and 8 threads
    "lenet": [
        "JJJJJJTTTTTTTTTTRRRRRTTTTTTTTTTTRRRRRTTTTTTTTTTTRRRRRTTTTTTTTTTT",
        "JJJCCCCCTTTTTTTTTTTTTTTTTTTTTTTTRRRRRRRRRRTTTTTTTTTTTTTTTTTTTTTT",
        "JJJCCCCCCCCCCCCCCCCCTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "JJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCTTTTTTTTTTTTTTTTTTTTTTTT",
    ],
    "cnn": [
        "JJJJJJJJJJJJJJJTRRRRRRRRRRRRRRTTRRRRRRRRRRRRRRTTRRRRRRRRRRRRRRTT",
        "JCCCCCCCCCCCCCCCCCCCCCCCCCCCCCTTRRRRRRRRRRRRRRRRRRRRRRRRRRRRTTTT",
        "JJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCTTTT",
        "JJJJJJJCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
    ],
    "mlp": [
        "JJJJJJJJJJJJJJJTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "JJJJJJJJJJJJJJJJTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "JJJJJJJJJJJJJJJJTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
        "JJJJJJJJJJJJJJJJTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT",
    ],
}


def lenet():
    convs = [Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5), ReLU(), MaxPool2D(2)]
    return (1, 28, 28), [*convs, Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)]


def cnn():
    convs = [Conv2D(32, 3, padding=1), ReLU(), Conv2D(64, 3, padding=1), ReLU(), MaxPool2D(2)]
    return (3, 16, 16), [*convs, Flatten(), Dense(10)]


def mlp():
    return (784,), [Dense(256), ReLU(), Dense(10)]


def little():
    return (8,), [Dense(64), ReLU(), Dense(10)]


def model_of(make):
    shape, layers = make()
    return Sequential(layers, input_shape=shape)


def training_plan(make):
    return Trainer(model_of(make), "softmax_cross_entropy", SGD(0.01)).steps().plan


@pytest.fixture
def thread_choice():
    """Turns the choice on, which other tests do without, as on 64 cores."""
    set_thread_choice(True, 64)
    yield
    set_thread_choice(False)


def forms_of(parts):
    return FORMS[tuple(form for form, _, _ in parts)]


def threads_of(form, examples, threads):
    """Threads share an example only if there are two for each, a tile if it pays; other forms have work for all."""
    if form == "BY_EXAMPLE":
        assert 2 * examples <= threads
    return {
        "IN_TILES": {threads, min(threads, -(-examples // 16))},
        "IN_CHUNKS": {threads, min(threads, examples)},
    }.get(form, {threads})


@pytest.mark.parametrize("make", [lenet, cnn, mlp])
def test_each_prediction_has_the_form_of_the_table(make):
    plan = model_of(make).network.segments[0].plan
    for threads, expected in zip(THREADS, PREDICTIONS[make.__name__], strict=True):
        calls = [plan.schedules(n, threads) for n in range(1, 65)]
        assert "".join(map(forms_of, calls)) == expected, f"{threads} threads"
        for n, parts in enumerate(calls, 1):
            assert sum(examples for _, examples, _ in parts) == n
            for form, examples, used in parts:
                assert used in threads_of(form, examples, threads), f"{n} examples on {threads} threads: {parts}"
            assert all(examples % 16 == 0 for form, examples, _ in parts[:-1] if form == "IN_TILES")


@pytest.mark.usefixtures("thread_choice")
@pytest.mark.parametrize("make", [lenet, cnn, mlp])
def test_each_step_has_the_form_of_the_table(make):
    plan = training_plan(make)
    for threads, expected in zip((1, 2, 4, 8), STEPS[make.__name__], strict=True):
        calls = [plan.schedules(n, threads) for n in range(1, 65)]
        assert "".join(map(forms_of, calls)) == expected, f"{threads} threads"
        for n, parts in enumerate(calls, 1):
            assert sum(examples for _, examples, _ in parts) == n
            assert [form for form, _, _ in plan.schedules(n, threads, manual=True)] == ["IN_TILES"]


@pytest.mark.usefixtures("thread_choice")
def test_threads_without_one_more_tile_compute_the_rest_of_a_step():
    plan = training_plan(cnn)
    for n, threads, tiles in (
        (17, 1, 1), (33, 1, 2), (35, 2, 2), (48, 2, 2), (60, 2, 2), (64, 2, 4), (72, 4, 4), (100, 4, 4), (256, 1, 16)
    ):  # fmt: skip
        parts = plan.schedules(n, threads)
        assert sum(examples for form, examples, _ in parts if form == "IN_TILES") == 16 * tiles, parts
        (tasks,) = [tasks for name, tasks in plan.phases(n, threads) if name == "TILES"]
        assert tasks == (tiles if n == 16 * tiles else threads * (tiles // threads + 1))
    assert [form for form, _, _ in plan.schedules(257, 1)] == ["IN_TILES"]  # more tiles than slots


# (tiles, threads): tasks of whole tiles (slots, if there are 16), tiles that threads share, parts of each of these
WHOLE = {
    (2, 2): (2, 0, 0), (3, 2): (2, 1, 2), (4, 2): (4, 0, 0), (5, 2): (4, 1, 2), (16, 2): (16, 0, 0),
    (17, 2): (16, 1, 2), (64, 2): (16, 0, 0), (3, 4): (3, 0, 0), (5, 4): (4, 1, 4), (9, 4): (8, 1, 4),
    (4, 16): (0, 4, 4), (8, 16): (0, 8, 2), (16, 16): (16, 0, 0), (20, 16): (16, 4, 4), (24, 16): (16, 8, 2),
    (64, 16): (16, 0, 0), (64, 3): (64, 0, 0), (16, 32): (0, 16, 2), (48, 32): (32, 16, 2), (64, 32): (64, 0, 0),
    (64, 64): (64, 0, 0), (4096, 16): (16, 0, 0),
}  # fmt: skip


def shares(plan, tiles, threads):
    phases = plan.phases(16 * tiles, threads)
    whole = sum(tasks for name, tasks in phases if name == "TILES")
    split = [tasks for name, tasks in phases if name == "SPLIT_TILES"]  # the loss is not split
    return whole, min(split, default=0), max(split, default=0) // min(split, default=1)


@pytest.mark.usefixtures("thread_choice")
def test_whole_tiles_come_first_and_threads_share_those_that_are_left_over():
    plan = training_plan(cnn)
    plan.blocked_limit = 0
    for (tiles, threads), expected in WHOLE.items():
        found = shares(plan, tiles, threads)
        assert found == expected, f"{tiles} tiles on {threads} threads: {found}"


def test_without_the_choice_threads_share_every_tile_that_is_left_over():
    plan = training_plan(little)
    for tiles, threads in ((1, 2), (1, 4), (3, 2), (17, 2), (5, 4), (8, 16), (1, 64)):
        rest = tiles % threads
        assert shares(plan, tiles, threads) == (tiles - rest, rest, min(threads, 16)), (
            f"{tiles} tiles on {threads} threads"
        )


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


@pytest.mark.usefixtures("thread_choice")
def test_a_prediction_has_at_most_the_threads_that_have_enough_work():
    model = model_of(lenet)
    plan, work = model.network.segments[0].plan, sum(layer.macs for layer in model.layers)
    for n in (1, 4, 16, 64, 1024):
        used = [max(threads for _, _, threads in plan.schedules(n, most)) for most in (1, 2, 3, 8, None)]
        assert all(threads <= most for threads, most in zip(used, (1, 2, 3, 8), strict=False))
        assert all(threads == 1 or 2e6 * threads <= 1.2 * n * work for threads in used), (n, used)
    assert [max(part[2] for part in plan.schedules(n, 4)) for n in (1, 4, 1024)] == [1, 1, 4]


@pytest.mark.usefixtures("thread_choice")
def test_a_training_step_has_only_the_threads_that_make_it_faster():
    def chosen(make, n):
        return [training_plan(make).schedules(n, most)[0][2] for most in (1, 2, 4, 8, 16, 64)]

    assert chosen(little, 32) == [1] * 6
    set_thread_choice(True, 4)
    assert chosen(cnn, 1024) == [1, 2, 4, 4, 4, 4]  # no more than there are cores
    set_thread_choice(True, 64)
    assert chosen(cnn, 16)[:2] == [1, 2]
    assert chosen(lenet, 16)[1] == 1  # its layers have few channels: shared, the tile takes as long as alone
    assert chosen(cnn, 1024) == [1, 2, 4, 8, 16, 64]
    for make, n in ((lenet, 16), (lenet, 64), (lenet, 100), (cnn, 64), (cnn, 2048), (mlp, 64), (mlp, 1024)):
        used = chosen(make, n)
        assert used == sorted(used), f"{make.__name__}, {n} examples: {used}"
        assert all(threads <= most for threads, most in zip(used, (1, 2, 4, 8, 16, 64), strict=True))
