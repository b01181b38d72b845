"""UsageGuard: many readers or one writer, told apart by thread; a fork and an error set free."""

import os
import threading

import pytest

from minidl_c.runtime.usage_guard import UsageGuard

READ, WRITE, TRAIN = "reading", "writing", "training"


def refused(busy, method, in_thread=True):
    """Whether this use is refused, tried in another thread or in this one."""
    found = []

    def attempt():
        try:
            with getattr(busy, method)("it"):
                found.append(False)
        except RuntimeError as error:
            assert str(error).startswith("it: ")
            found.append(True)

    if in_thread:
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    else:
        attempt()
    return found[0]


@pytest.mark.parametrize(
    ("held", "elsewhere", "here"),
    [
        (READ, (WRITE, TRAIN), (WRITE, TRAIN)),
        (WRITE, (READ, WRITE, TRAIN), (TRAIN,)),
        (TRAIN, (READ, WRITE, TRAIN), (TRAIN,)),
    ],
)
def test_who_is_refused(held, elsewhere, here):
    busy = UsageGuard()
    for _ in range(2):  # a refused use changes nothing, and nothing stays behind
        assert not any(refused(busy, method) for method in (READ, WRITE, TRAIN))
        with getattr(busy, held)("holds"):
            for method in (READ, WRITE, TRAIN):
                assert refused(busy, method) == (method in elsewhere)
                assert refused(busy, method, in_thread=False) == (method in here)


def test_the_outermost_use_counts():
    busy = UsageGuard()
    with busy.training("fit"):
        with busy.reading("predict"), busy.writing("load_state_dict"):
            assert refused(busy, READ)
        assert refused(busy, READ)
    with busy.reading("evaluate"):
        with busy.reading("predict"):
            pass
        assert refused(busy, TRAIN)
    assert not refused(busy, TRAIN)


def test_messages_say_who_is_at_work():
    busy = UsageGuard()
    with busy.training("fit"):
        with pytest.raises(RuntimeError, match=r"^train_batch: this model is training already, in fit; wait"):
            busy.training("train_batch").__enter__()
        said = []

        def predict():
            with pytest.raises(RuntimeError) as error:
                busy.reading("predict").__enter__()
            said.append(str(error.value))

        thread = threading.Thread(target=predict)
        thread.start()
        thread.join()
        assert said[0].startswith("predict: another thread is at work on this model, in fit; wait for its end")
    with (
        busy.reading("predict"),
        pytest.raises(RuntimeError, match=r"^fit: this model is predicting just now"),
        busy.training("fit"),
    ):
        pass


def test_an_error_sets_free():
    busy = UsageGuard()
    for method in (READ, WRITE, TRAIN):
        with pytest.raises(KeyboardInterrupt), getattr(busy, method)("it"):
            raise KeyboardInterrupt
        assert not refused(busy, TRAIN)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("held", [READ, WRITE, TRAIN])
def test_a_forked_child_starts_free(held):
    """And what it left behind when it leaves the parent's use does not disturb its own."""
    busy = UsageGuard()
    use = getattr(busy, held)("holds")
    with use:
        child = os.fork()
        if child == 0:
            right = not refused(busy, TRAIN, in_thread=False)
            with busy.training("its own"):
                use.__exit__(None, None, None)
                right = right and refused(busy, READ)
            os._exit(0 if right and not refused(busy, WRITE) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert refused(busy, WRITE)
    assert not refused(busy, WRITE)


def test_a_context_that_was_not_entered_sets_nothing_free():
    busy = UsageGuard()
    held = busy.reading("predict")
    held.__exit__(None, None, None)
    with held:
        held.__exit__(None, None, None)
        held.__exit__(None, None, None)
    with busy.training("fit"), pytest.raises(RuntimeError):
        busy.training("fit").__enter__()


def test_a_context_of_nothing_is_refused():
    with pytest.raises(TypeError, match="made by itself"):
        type(UsageGuard().reading("x"))().__enter__()
