"""UsageGuard: many readers or one writer per thread; errors and forks release it."""

import os
import threading
from collections import Counter

import pytest

from minidl_c.runtime.usage_guard import UsageGuard

READ, WRITE, TRAIN = "reading", "writing", "training"


def refused(guard, method, in_thread=True):
    """True if this use is refused, in another thread or in the current one."""
    found = []

    def attempt():
        try:
            with getattr(guard, method)("it"):
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
def test_conflicting_uses_are_refused(held, elsewhere, here):
    guard = UsageGuard()
    for _ in range(2):  # a refused use changes nothing, and a finished one leaves nothing
        assert not any(refused(guard, method) for method in (READ, WRITE, TRAIN))
        with getattr(guard, held)("holds"):
            for method in (READ, WRITE, TRAIN):
                assert refused(guard, method) == (method in elsewhere)
                assert refused(guard, method, in_thread=False) == (method in here)


def test_nested_uses_keep_the_outermost_one():
    guard = UsageGuard()
    with guard.training("fit"):
        with guard.reading("predict"), guard.writing("load_state_dict"):
            assert refused(guard, READ)
        assert refused(guard, READ)
    with guard.reading("evaluate"):
        with guard.reading("predict"):
            pass
        assert refused(guard, TRAIN)
    assert not refused(guard, TRAIN)


def test_messages_name_the_conflicting_use():
    guard = UsageGuard()
    with guard.training("fit"):
        with pytest.raises(RuntimeError, match=r"^train_batch: this model is training already, in fit; wait"):
            guard.training("train_batch").__enter__()
        messages = []

        def predict():
            with pytest.raises(RuntimeError) as error:
                guard.reading("predict").__enter__()
            messages.append(str(error.value))

        thread = threading.Thread(target=predict)
        thread.start()
        thread.join()
        assert messages[0].startswith("predict: another thread is at work on this model, in fit; wait for its end")
    with (
        guard.reading("predict"),
        pytest.raises(RuntimeError, match=r"^fit: this model is predicting just now"),
        guard.training("fit"),
    ):
        pass


def test_an_exception_releases_the_guard():
    guard = UsageGuard()
    for method in (READ, WRITE, TRAIN):
        with pytest.raises(KeyboardInterrupt), getattr(guard, method)("it"):
            raise KeyboardInterrupt
        assert not refused(guard, TRAIN)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("held", [READ, WRITE, TRAIN])
def test_a_forked_child_starts_with_a_free_guard(held):
    """Leaving the parent's use in the child does not affect the child's own use."""
    guard = UsageGuard()
    use = getattr(guard, held)("holds")
    with use:
        child = os.fork()
        if child == 0:
            right = not refused(guard, TRAIN, in_thread=False)
            with guard.training("its own"):
                use.__exit__(None, None, None)
                right = right and refused(guard, READ)
            os._exit(0 if right and not refused(guard, WRITE) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert refused(guard, WRITE)
    assert not refused(guard, WRITE)


def test_exiting_a_context_that_was_not_entered_releases_nothing():
    guard = UsageGuard()
    held = guard.reading("predict")
    held.__exit__(None, None, None)
    with held:
        held.__exit__(None, None, None)
        held.__exit__(None, None, None)
    with guard.training("fit"), pytest.raises(RuntimeError):
        guard.training("fit").__enter__()


def test_a_context_without_a_guard_is_refused():
    with pytest.raises(TypeError, match="made by itself"):
        type(UsageGuard().reading("x"))().__enter__()


def test_two_threads_never_train_at_once(frequent_thread_switches):
    """A free-threaded Python without the guard's critical sections let both in, and then locked the model for ever."""
    guard, inside, seen = UsageGuard(), Counter(), Counter()

    def train(me):
        for _ in range(50_000):
            try:
                with guard.training("fit"):
                    inside[me] = 1
                    for _ in range(20):
                        seen["overlaps"] += inside[1 - me]
                    seen[me] += 1
                    inside[me] = 0
            except RuntimeError:
                seen["refused"] += 1

    threads = [threading.Thread(target=train, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen["overlaps"] == 0
    assert seen[0] + seen[1] > 0
    assert not any(refused(guard, method) for method in (READ, WRITE, TRAIN))
