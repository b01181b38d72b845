"""Resumed fits on batches whose order changes from epoch to epoch: by set_epoch, by a count of their own, at random."""

import re
import warnings

import numpy as np
import pytest
from batch_fits import BATCHES, Loader, assert_same, interrupted, make_trainer

from minidl import Trainer, fit_many
from minidl.callbacks import Checkpoint
from minidl.saving import safetensors_file

EPOCHS = 4


class Numbered:
    """Draws the order of an epoch from its number. It is read item by item, so a new number counts at once."""

    def __init__(self):
        self.epoch, self.told, self.numbered = 99, [], self

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.told.append(epoch)

    def __len__(self):
        return len(BATCHES)

    def __getitem__(self, index):
        return BATCHES[np.random.default_rng(self.epoch).permutation(4)[index]]


class Sampler:
    """As PyTorch's DistributedSampler, whose order is drawn when an iteration begins."""

    def __init__(self):
        self.epoch = 99

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(np.random.default_rng(self.epoch).permutation(4).tolist())


class BatchSampler:
    def __init__(self):
        self.sampler = Sampler()

    def __iter__(self):
        return iter(self.sampler)


class WithSampler(Loader):
    """As PyTorch's DataLoader."""

    def __init__(self, **samplers):
        vars(self).update(sampler=range(4), batch_sampler=range(4), **samplers)

    def __iter__(self):
        indices = self.sampler if isinstance(self.sampler, Sampler) else self.batch_sampler
        return iter([BATCHES[i] for i in indices])


class WithBatchSampler(WithSampler):
    def __init__(self):
        super().__init__()
        self.batch_sampler = BatchSampler()
        self.numbered = self.batch_sampler.sampler


class WithOwnSampler(WithSampler):
    def __init__(self):
        super().__init__()
        self.sampler = self.numbered = Sampler()


class Counting(Loader):
    """Counts its epochs itself, from 0 in each process."""

    epoch = 0

    def __iter__(self):
        return iter([BATCHES[i] for i in np.random.default_rng(self.epoch).permutation(4)])

    def on_epoch_end(self):
        self.epoch += 1


class Random(Loader):
    """Goes on drawing, in each process from another state."""

    random = np.random.default_rng(0)  # of all instances: orders that differ, and are the same in each run of the test

    def __iter__(self):
        order = self.random.permutation(4)
        order = np.roll(order, 1) if order[0] == getattr(self, "first", None) else order
        self.first = order[0]  # another one in each epoch: it would be the same by chance in one of four
        return iter([BATCHES[i] for i in order])


def resumed(path, make, **options):
    """Returns a trainer that completes a fit from a file, as a new process does; a warning is an error."""
    trainer = Trainer.resume(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit(make(), epochs=EPOCHS, verbose=0, **options)
    return trainer


class StopAfter:
    """Interrupts a fit between two epochs, once."""

    def __init__(self, epochs):
        self.epochs = epochs

    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.epochs:
            self.epochs = None
            raise KeyboardInterrupt


def interrupted_after(epochs, source, path):
    """Returns a trainer whose fit was interrupted after some epochs, the last of which is in a checkpoint."""
    trainer = make_trainer()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(source, epochs=EPOCHS, callbacks=[Checkpoint(path), StopAfter(epochs)], verbose=0)
    return trainer


@pytest.mark.parametrize(
    ("make", "steps_per_epoch", "steps"),
    [
        *((Numbered, steps, range(1, EPOCHS * (steps or 4), 2)) for steps in (None, 3, 6)),
        *((make, steps, (5, 8, 10)) for make in (WithOwnSampler, WithBatchSampler) for steps in (None, 3)),
    ],
)
def test_batches_that_take_the_epoch_are_resumed_with_equal_bits(make, steps_per_epoch, steps, tmp_path):
    """Also where an epoch ends in the middle of a pass over the batches, or has more than one."""
    whole, options = make_trainer(), {"steps_per_epoch": steps_per_epoch}
    whole.fit(source := make(), epochs=EPOCHS, verbose=0, **options)
    assert source.numbered.epoch == EPOCHS - 1
    for step in steps:
        in_process = interrupted(step, source := make(), tmp_path / "c", epochs=EPOCHS, **options)
        assert_same(resumed(tmp_path / "c", make, **options), whole)
        in_process.fit(source, epochs=EPOCHS, verbose=0, **options)
        assert_same(in_process, whole)


def test_the_epoch_is_told_before_the_first_read_and_once(tmp_path):
    source, trainer = Numbered(), make_trainer()
    trainer.fit(source, epochs=3, verbose=0)
    trainer.fit(source, epochs=2, verbose=0)
    assert source.told == [0, 1, 2, 3, 4]
    order = [np.random.default_rng(epoch).permutation(4) for epoch in range(2)]
    by_hand = make_trainer()
    by_hand.fit([BATCHES[i] for i in order[0]], verbose=0)
    by_hand.fit([BATCHES[i] for i in order[1]], verbose=0)
    two = make_trainer()
    two.fit(Numbered(), epochs=2, verbose=0)
    assert_same(two, by_hand)


def test_an_iterator_is_told_the_epoch():
    class Source(Numbered):
        def __iter__(self):
            return self

        def __next__(self):
            return BATCHES[self.epoch]

    source = Source()
    make_trainer().fit(source, epochs=3, steps_per_epoch=2, verbose=0)
    assert source.told == [0, 1, 2]


def test_an_epoch_that_a_callback_changes_is_told():
    class Later:
        def on_fit_begin(self, trainer):
            trainer.epoch = 7

    source, expected = Numbered(), make_trainer()
    trainer = make_trainer()
    trainer.fit(source, callbacks=[Later()], verbose=0)
    assert source.told == [0, 7]
    expected.fit([BATCHES[i] for i in np.random.default_rng(7).permutation(4)], verbose=0)
    expected.epoch = 8
    expected.history["epoch"] = [7]
    assert_same(trainer, expected)


@pytest.mark.parametrize("make", [Counting, Random])
def test_batches_that_do_not_take_it_are_named(make, tmp_path):
    """Between two epochs, a fit goes on with a warning, in one it is refused; after the first, nothing is known."""
    path = tmp_path / "c"
    for epochs in (2, 3):
        interrupted_after(epochs, make(), path)
        trainer = Trainer.resume(path)
        with pytest.warns(UserWarning, match=r"X: the first batch differed between epochs.*give X a method set_epoch"):
            trainer.fit(make(), epochs=EPOCHS, verbose=0)
        assert (trainer.epoch, trainer.step) == (4, 16)
    for step in (11, 12):
        interrupted(step, make(), path, epochs=EPOCHS)
        trainer, source = Trainer.resume(path), make()
        with pytest.raises(ValueError, match=re.escape("got others; give X a method set_epoch(epoch) from whose")):
            trainer.fit(source, epochs=EPOCHS, verbose=0)
        assert trainer.step == step
    interrupted_after(1, make(), path)
    resumed(path, make)


def test_in_the_same_process_they_go_on():
    whole, trainer = make_trainer(), make_trainer()
    whole.fit(Counting(), epochs=EPOCHS, verbose=0)
    source = Counting()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(source, epochs=EPOCHS, callbacks=[StopAfter(2)], verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit(source, epochs=EPOCHS, verbose=0)
    assert_same(trainer, whole)


def test_batches_that_are_the_same_in_each_epoch_are_not_named(tmp_path):
    for epochs in (1, 2, 3):
        interrupted_after(epochs, Loader(), tmp_path / "c")
        resumed(tmp_path / "c", Loader)


def test_the_remedy_helps_a_fit_that_was_named(tmp_path):
    """Its checkpoint knows that batches differ; those that take the epoch now are not doubted."""
    interrupted_after(3, Counting(), tmp_path / "c")
    resumed(tmp_path / "c", Numbered)


def test_what_is_known_survives_a_second_interruption(tmp_path):
    path = tmp_path / "c"
    interrupted_after(2, Counting(), path)
    trainer = Trainer.resume(path)
    trainer.save_checkpoint(path)
    with pytest.warns(UserWarning, match="first batch differed"):
        Trainer.resume(path).fit(Loader(), epochs=EPOCHS, callbacks=[Checkpoint(path)], verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer.resume(path).fit(Loader(), epochs=EPOCHS, verbose=0)  # complete: nothing is in doubt


def test_other_batches_that_take_the_epoch_are_refused(tmp_path):
    class Other(Numbered):
        def __getitem__(self, index):
            return BATCHES[(self.epoch + index) % 4]

    interrupted(10, Numbered(), tmp_path / "c", epochs=EPOCHS)
    message = "got others; their order has to follow from the number that set_epoch gets, and from nothing else. Call"
    with pytest.raises(ValueError, match=message):
        Trainer.resume(tmp_path / "c").fit(Other(), epochs=EPOCHS, verbose=0)


@pytest.mark.parametrize("between", [False, True])
def test_checkpoints_of_earlier_versions_are_completed(between, tmp_path):
    """They do not say whether the first batches differed."""
    path, whole = tmp_path / "c", make_trainer()
    whole.fit(BATCHES, epochs=EPOCHS, verbose=0)
    if between:
        interrupted_after(2, BATCHES, path)
    else:
        interrupted(10, BATCHES, path, epochs=EPOCHS)
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    fields = config["fit"]["dict"]
    place = next(i for i, (name, _) in enumerate(fields) if name == "batches")
    if between:
        del tensors[dict(fields[place][1]["dict"])["weights"]["array"]]
        fields[place][1] = None
    else:
        fields[place][1]["dict"] = [pair for pair in fields[place][1]["dict"] if pair[0] not in ("opening", "varies")]
    safetensors_file.write(path, "checkpoint", config, tensors)
    assert_same(resumed(path, lambda: BATCHES), whole)


def test_nets_that_are_fitted_together_need_batches_of_their_own():
    nets = [make_trainer(), make_trainer()]
    with pytest.raises(ValueError, match="expected its own batches X with set_epoch for each net, got one for 0 and 1"):
        fit_many(nets, Numbered(), epochs=2, verbose=0)
    fit_many(nets, each=[{"X": Numbered()}, {"X": WithOwnSampler()}], epochs=2, verbose=0)
    assert_same(*nets)


@pytest.mark.oracle
def test_a_loader_of_pytorch_with_a_distributed_sampler(tmp_path):
    from torch import tensor
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    data = TensorDataset(*(tensor(np.concatenate([batch[k] for batch in BATCHES])) for k in (0, 1)))

    def make():
        return DataLoader(data, batch_size=16, sampler=DistributedSampler(data, num_replicas=1, rank=0, seed=3))

    whole = make_trainer()
    whole.fit(make(), epochs=EPOCHS, verbose=0)
    assert len(set(whole.history["loss"])) == EPOCHS
    for step in (3, 8, 9):
        interrupted(step, make(), tmp_path / "c", epochs=EPOCHS)
        assert_same(resumed(tmp_path / "c", make), whole)
