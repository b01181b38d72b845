"""A fit that was interrupted: which call completes it, which is refused, which begins another."""

import numpy as np
import pytest
from broken_off import FIT, WEIGHTS, Counts, X, Y, broken_off, everything, native

from minidl import Trainer
from minidl.callbacks import Checkpoint


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


# ---- refused
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"X": X[:80], "y": Y[:80]}, "X: expected the same"),
        ({"X": X + np.float32(1e-3)}, "X: expected the same data, as in the fit that was interrupted, got other data"),
        ({"y": Y[::-1]}, "y: expected the same"),
        ({"sample_weight": WEIGHTS}, "sample_weight: expected none, .* got other data"),
        ({"class_weight": {0: 2.0}}, "sample_weight: expected none"),
        ({"batch_size": 8}, "batch_size: expected 7, .* got 8"),
        ({"epochs": 5}, "epochs: expected 4"),
        ({"shuffle": False}, "shuffle: expected True"),
        ({"validation_split": 0.1}, r"validation_split: expected 0\.0"),
        ({"validation_data": (X, Y)}, "validation_data: expected none, .* got other data"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_another_fit_is_refused_and_changes_nothing(path, changed, said):
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    before = everything(trainer)
    with pytest.raises(ValueError, match=said):
        trainer.fit(**{"X": X, "y": Y, **FIT, **changed})
    assert everything(trainer) == before
    whole = native()
    whole.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT)  # still possible
    assert everything(trainer) == everything(whole)


def test_a_callback_that_remembers_has_to_be_there_and_new_ones_may_be(path):
    whole = native()
    whole.fit(X, Y, **FIT, callbacks=[Counts()])
    broken_off(native(), 16, callbacks=[Counts()]).save_checkpoint(path)
    trainer = Trainer.resume(path)
    with pytest.raises(ValueError, match="callbacks: expected Counts as well"):
        trainer.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path), Counts()])
    assert everything(trainer) == everything(whole)


def test_a_fit_that_never_began_does_not_lose_the_position(path, tmp_path):
    whole = native()
    whole.fit(X, Y, **FIT)
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    with pytest.raises(OSError, match="expected a folder"):
        trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(tmp_path / "missing" / "a")])
    assert trainer.interrupted is not None
    trainer.fit(X, Y, **FIT)
    assert everything(trainer) == everything(whole)


def test_in_one_process_the_same_call_completes_and_another_begins(path):
    whole = native()
    whole.fit(X, Y, **FIT)
    trainer, other = broken_off(native(), 16), broken_off(native(), 16)
    assert trainer.interrupted.step == 17
    trainer.fit(X, Y, **FIT)
    assert everything(trainer) == everything(whole) and trainer.interrupted is None
    other.fit(X, Y, epochs=1, batch_size=9, verbose=0)
    assert other.step == 17 + 10
    with pytest.raises(TypeError, match="interrupted: expected None"):
        other.interrupted = 3


def test_an_interrupted_fit_can_be_given_up(path):
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.interrupted = None
    trainer.fit(X, Y, epochs=1, batch_size=8, verbose=0)
    assert trainer.epoch == 2


def test_a_step_by_hand_ends_what_was_interrupted(path):
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.train_batch(X, Y)
    trainer.fit(X, Y, epochs=1, batch_size=8, verbose=0)
    assert trainer.step == 17 + 1 + 12


def test_layouts_and_byte_order_do_not_make_other_data(path):
    broken_off(native(), 16).save_checkpoint(path)
    for same in (np.asfortranarray(X), X.astype(">f4"), np.repeat(X, 2, axis=0)[::2], X.tolist()):
        trainer = Trainer.resume(path)
        if isinstance(same, list):  # of float64
            with pytest.raises(ValueError, match="X: expected the same"):
                trainer.fit(same, Y, **FIT)
        else:
            trainer.fit(same, Y, **FIT)


class Keyed(Counts):
    """Told apart by what the user says; its repr changes with every step, as that of a dataclass."""

    only_watches = True

    def __init__(self, state_key):
        super().__init__()
        self.state_key = state_key

    def __repr__(self):
        return f"Keyed({self.steps})"


def test_callbacks_are_found_by_class_or_key_in_any_order(path):
    first = [Counts(), Keyed("a"), Keyed("b")]
    broken_off(native(), 16, callbacks=first).save_checkpoint(path)
    first[1].steps = 100  # after the file was written
    trainer, again = Trainer.resume(path), [Keyed("b"), Keyed("c"), Counts()]
    trainer.fit(X, Y, **FIT, callbacks=again)
    assert [callback.steps for callback in again] == [52, 52 - 17, 52]


def test_a_checkpoint_may_write_to_another_place_or_be_left_out(path, tmp_path):
    whole = native()
    whole.fit(X, Y, **FIT)
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    broken_off(native(), 16, callbacks=[Checkpoint(old / "{step}", every_n_steps=1, keep=3)])
    old.rename(new)
    for callbacks in ([], [Checkpoint(path)], [Checkpoint(new / "{step}", every_n_steps=1, keep=3)]):
        trainer = Trainer.resume(new / "17")
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
        assert everything(trainer) == everything(whole)
    assert sorted(file.name for file in new.iterdir()) == ["50", "51", "52"]


def test_what_a_fit_makes_of_the_one_before_is_told(path, capsys):
    loud = FIT | {"verbose": 1}
    trainer = broken_off(native(), 16)
    trainer.fit(X, Y, **loud)
    assert capsys.readouterr().out.startswith("completes the fit that was interrupted at step 17\nepoch 2/4")
    other = broken_off(native(), 16)
    assert repr(other.interrupted) == "<fit at step 17, 1 of 4 epochs done>"
    other.fit(X, Y, epochs=1, batch_size=9, verbose=1)
    assert capsys.readouterr().out.startswith("gives up the fit that was interrupted at step 17: epochs: expected 4,")
    finished = native()
    finished.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    Trainer.resume(path).fit(X, Y, **loud)
    assert capsys.readouterr().out == "nothing is left to do: this fit had come to its end when it was saved\n"
    Trainer.resume(path).fit(X, Y, **loud | {"epochs": 2})
    assert capsys.readouterr().out.startswith("the fit before had come to its end; 2 more epochs\nepoch 1/2")
