"""partition: a batch split over ranks, simulated by threads, has the same bits for any number of ranks."""

import contextlib
import functools

import numpy as np
import pytest
from plans import loss_plan, train, training
from slow_marks import slow
from threaded_ranks import run_ranks

from minidl import Sequential, Trainer
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    MaxPool2D,
    PReLU,
    ReLU,
    Residual,
    Tanh,
)
from minidl.optimizers import SGD
from minidl.training.labeled_data import LabeledData
from minidl.utils.data import ArraySource

SHAPE, CLASSES = (2, 9, 8), 4
RANKS = (2, 3, 4, 7, 17)


def lenet():
    return [
        *(Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(5, 2), ReLU(), Flatten()),
        *(Dense(20), ReLU(), Dense(CLASSES)),
    ]


def with_statistics():
    body = [DepthwiseConv2D(3, padding=1), BatchNorm2D(), ReLU()]
    return [
        *(Conv2D(8, 3, use_bias=False), BatchNorm2D(), ReLU(), Residual(*body), GroupNorm(4), PReLU(), Dropout(0.3)),
        *(Flatten(), Dense(12), BatchNorm1D(), ReLU(), Dense(CLASSES)),
    ]


def with_embeddings():
    """X has integers below 7: some categories have no examples."""
    return [Flatten(), Embedding(9, 5), Flatten(), Dense(12), ReLU(), Dense(CLASSES)]


NETS = {"lenet": lenet, "statistics": with_statistics, "embeddings": with_embeddings}


def trained(net, dtype, batch, ranks, weights=None, bad_row=None, threads=(1, 2)):
    """Trains three steps on `ranks` ranks; returns each rank's (state, steps, losses), and the bytes exchanged."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3 * batch, *SHAPE)).astype(dtype), rng.integers(0, CLASSES, 3 * batch)
    if net == "embeddings":
        X = rng.integers(0, 7, X.shape).astype(dtype)
    if bad_row is not None:
        X[bad_row] = np.finfo(dtype).max

    def run_rank(comm):
        model = Sequential(NETS[net](), SHAPE, seed=1, dtype=dtype)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), num_threads=threads[comm.rank % 2])
        plan, parameters, update = (steps := trainer.steps()).plan, model.network.parameters, steps.update
        losses, count = np.zeros(3 * batch, dtype), np.zeros(1, np.int64)
        with np.errstate(all="ignore"):
            done = train(
                plan, X.reshape(len(X), -1), np.arange(len(X)), batch, y, weights, losses, None,
                np.full(3, float(batch)), np.full(3, 0.1), parameters.values, parameters.grads, update,
                trainer.num_threads, 0, count, comm=comm if ranks > 1 else None,
            )  # fmt: skip
        return {k: v.tobytes() for k, v in model.state_dict().items()}, done, losses

    return run_ranks(ranks, run_rank)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("batch", [17, 330, *slow([2, 64, 100])])
def test_any_number_of_ranks_gives_the_same_bits(net, batch, dtype):
    """Also with more ranks than slots: idle ranks have no losses."""
    ((state, done, losses),), _ = trained(net, dtype, batch, 1)
    assert done == 3
    for ranks in RANKS:
        processes, _ = trained(net, dtype, batch, ranks)
        assert all(other == state and steps == 3 for other, steps, _ in processes), f"{ranks} ranks"
        assert np.array_equal(np.sum([own for _, _, own in processes], axis=0), losses)
        assert all(((own == 0) | (own == losses)).all() for _, _, own in processes)


@pytest.mark.parametrize("ranks", [3, 4, 7])
def test_more_threads_than_tiles_change_no_bit_in_slots_of_several_tiles(ranks):
    """With 512 examples a slot has two tiles, so four slots have eight: fewer than 16 threads."""
    ((alone, *_),), _ = trained("statistics", "float32", 512, 1)
    processes, _ = trained("statistics", "float32", 512, ranks, threads=(16, 32))
    assert all(state == alone for state, *_ in processes)


def test_a_failed_exchange_leaves_complete_steps():
    """The third exchange fails, in the middle of a call of four steps."""
    X, y = np.random.default_rng(0).random((128, 4), dtype=np.float32), np.arange(128) % CLASSES

    def run_rank(comm, fails=True):
        trainer = Trainer(Sequential([Dense(CLASSES)], (4,)), "softmax_cross_entropy", SGD(0.1), distributed=comm)
        scatter, calls = comm.alltoallv, []

        def failing(*args):
            calls.append(args)
            if len(calls) == 3:
                raise MemoryError
            scatter(*args)

        comm.alltoallv = failing if fails else scatter
        data = LabeledData.from_arrays(trainer.model, trainer.loss, X, y)
        with pytest.raises(MemoryError) if fails else contextlib.nullcontext():
            trainer.run(trainer.batches(data, np.arange(128 if fails else 64), 32, comm=comm))
        return trainer.step, trainer.steps().update.steps, trainer.model.params["0.weight"].value.tobytes()

    assert run_ranks(2, run_rank)[0] == run_ranks(2, functools.partial(run_rank, fails=False))[0]


def test_a_rank_reads_only_its_own_rows(monkeypatch):
    """For arrays that are converted as they are read."""
    X, y = np.ones((192, 4), np.float16), np.arange(192) % CLASSES

    def run_rank(comm):
        trainer = Trainer(Sequential([Dense(CLASSES)], (4,)), "softmax_cross_entropy", SGD(0.1), distributed=comm)
        data = LabeledData.from_arrays(trainer.model, trainer.loss, X, y)
        trainer.run(trainer.batches(data, np.arange(192), 64, comm=comm))

    read, copy = [], ArraySource.gather_copy
    monkeypatch.setattr(
        ArraySource, "gather_copy", lambda examples, rows: read.append(len(rows)) or copy(examples, rows)
    )
    run_ranks(3, run_rank)
    assert sum(read) == 192


def test_a_rank_with_a_single_example_clips_it_as_any_other_rank():
    """The norm sums over fourteen arrays, in one order for one example or many."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((99, 6)), rng.integers(0, 3, 99)

    def run_rank(comm):
        layers = [layer for _ in range(6) for layer in (Dense(9), Tanh())]
        model = Sequential([*layers, Dense(3)], (6,), seed=0, dtype="float64")
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), per_example_clip_norm=0.05, distributed=comm)
        trainer.fit(X, y, epochs=3, batch_size=32, verbose=0)  # the last batch has 3 examples
        return b"".join(value.tobytes() for value in model.state_dict().values())

    assert len({state for ranks in (1, 2, 3) for state in run_ranks(ranks, run_rank)[0]}) == 1


@pytest.mark.parametrize("ranks, nodes", [(2, 2), (4, 4), (8, 8), (3, 7), (5, 9)])
def test_ranks_exchange_tree_nodes_instead_of_slots(ranks, nodes):
    """Each rank sends its largest complete nodes to the ranks that combine them; then all ranks receive the sums."""
    net = NETS["lenet"]
    numbers = sum(param.value.size for param in Sequential(net(), SHAPE).params.values())
    _, sent = trained("lenet", "float32", 256, ranks)
    expected = 4 * numbers * (nodes * (ranks - 1) / ranks + ranks - 1)
    assert 0.95 < sent / 3 / expected < 1.1


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_infinite_loss_on_one_rank_stops_all_even_if_gradients_are_finite(ranks):
    """The square of a difference of 1e25 overflows float32, but twice the difference does not."""
    rng = np.random.default_rng(0)
    X, y = 1e-9 * rng.random((192, 4), dtype=np.float32), np.zeros((192, 1), np.float32)
    y[64 + 50] = 1e25

    def run_rank(comm):
        trainer = Trainer(Sequential([Dense(1)], (4,), seed=0), "mean_squared_error", SGD(0.1), distributed=comm)
        with pytest.raises(FloatingPointError, match="step 1"):
            trainer.fit(X, y, batch_size=64, shuffle=False, verbose=0)
        return trainer.step

    assert run_ranks(ranks, run_rank)[0] == [1] * ranks


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_non_finite_loss_on_one_rank_stops_all(ranks):
    processes, _ = trained("lenet", "float32", 64, ranks, bad_row=64 + 50)
    assert all(done == 1 for _, done, _ in processes)
    assert all(state == processes[0][0] for state, _, _ in processes)


def test_messages_know_the_step():
    """Each step is marked before its exchanges, also if the trainer has done others before."""

    def run_rank(comm):
        given = training() | {"step_counter": np.full(1, 5)}
        assert train(loss_plan(), **given, comm=comm) == len(given["lrs"])
        return comm.marks, len(given["lrs"])

    (marks, steps), *others = run_ranks(2, run_rank)[0]
    assert marks == list(range(5, 5 + steps)) and others == [(marks, steps)]
