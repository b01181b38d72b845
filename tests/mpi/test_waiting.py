"""How a rank waits for others: when it speaks, when it gives up, how little it polls. Clock and requests are fakes."""

import re
import types

import pytest
from mpi.jobs import needs_mpi, run

from minidl.distributed import MPI, peers, processors, waiting
from minidl.distributed.peers import TAG_EXIT, Peers
from minidl.distributed.waiting import Waiting


class Clock:
    """Seconds that pass when a process sleeps. suspended: (at, seconds) in which it does not run."""

    def __init__(self, monkeypatch, suspended=None):
        self.now, self.sleeps, self.suspended = 0.0, 0, suspended
        monkeypatch.setattr(waiting, "time", types.SimpleNamespace(perf_counter=self.read, sleep=self.sleep))

    def read(self):
        self.now += 1e-5  # of a poll
        return self.now

    def sleep(self, seconds):
        self.now, self.sleeps = self.now + seconds, self.sleeps + 1
        if self.suspended and self.now > self.suspended[0]:
            self.now, self.suspended = self.now + self.suspended[1], None


class Request:
    """Is complete from a time on; an error of MPI may come first."""

    def __init__(self, clock, at, error=None):
        self.clock, self.at, self.error = clock, at, error

    def Test(self):
        if self.error is not None and self.clock.now > self.error:
            raise FakeError("connection reset")
        return self.clock.now > self.at


class FakeError(RuntimeError):
    """The exception of MPI."""


class Aborted(BaseException):
    """Stands for the end of the process."""


class Comm:
    """Rank 0 of three: what rank r sends arrives at times[r]."""

    def __init__(self, clock, times, errors=(None, None, None), ended=()):
        self.clock, self.times, self.errors, self.ended = clock, times, errors, ended

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 3

    def Idup(self):
        return self, Request(self.clock, -1)

    def Irecv(self, array, rank, tag):
        return Request(self.clock, self.times[rank], self.errors[rank])

    def Isend(self, array, rank, tag):
        return Request(self.clock, -1)

    def Iprobe(self, rank, tag):
        return tag == TAG_EXIT and rank in self.ended

    def Abort(self, code):
        raise Aborted(code)


@pytest.fixture
def make(monkeypatch):
    """Returns a function that makes the peers of rank 0, and a clock."""
    monkeypatch.setattr(peers, "signal", types.SimpleNamespace())  # no alarm
    monkeypatch.setattr(waiting, "MAX_PAUSE", 0.2)  # fewer polls

    def made(times, timeout=1800.0, suspended=None, **options):
        clock = Clock(monkeypatch, suspended)

        class Requests:
            @staticmethod
            def Testall(requests):
                return all(request.Test() for request in requests)

        mpi = types.SimpleNamespace(Exception=FakeError, Request=Requests)
        found = Peers(mpi, Comm(clock, times, **options), timeout)
        found.step, found.checkpoints = 13, ["run-{step}"]
        return found, clock

    return made


def test_a_wait_of_a_minute_names_the_exchange_the_step_and_the_ranks(make, capsys):
    ranks, _ = make((0, 1, 75))
    ranks.gather_numbers("losses", [1])
    said = capsys.readouterr().err.splitlines()
    where = "in the exchange of losses, step 13"
    assert said[0].startswith(f"minidl: rank 0 of 3 waits: no word from rank 2 for 60 s {where}: slow, lost")
    assert said[0].endswith("after 1800 s this ends the job (timeout of MPI)")
    assert said[1:] == [f"minidl: rank 0 of 3 goes on: word from all ranks after 75 s {where}"]


def test_a_short_wait_says_nothing(make, capsys):
    ranks, _ = make((0, 1, 59))
    ranks.gather_numbers("losses", [1])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("timeout", [1800.0, 30.0])
def test_a_wait_ends_after_the_timeout(make, capsys, timeout):
    ranks, clock = make((0, 1e9, 1e9), timeout)
    with pytest.raises(Aborted):
        ranks.gather_numbers("losses", [1])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 + (timeout > 60) and timeout < clock.now < timeout + 1
    ends = f"ends all processes: TimeoutError: no word from ranks 1, 2 for {timeout:.0f} s in the exchange of losses"
    assert said[-1] == f"minidl: rank 0 of 3 {ends}, step 13; Checkpoint saves to 'run-{{step}}'"


def test_without_a_timeout_a_rank_waits_for_hours(make, capsys):
    ranks, _ = make((0, 1, 9000), None)
    ranks.gather_numbers("losses", [1])
    assert "ends the job" not in capsys.readouterr().err


def test_time_in_which_the_process_is_suspended_does_not_count(make, capsys):
    ranks, clock = make((0, 1, 50000), 30.0, suspended=(20, 49975))
    ranks.gather_numbers("losses", [1])
    assert clock.now > 50000 and capsys.readouterr().err == ""


def test_an_error_of_mpi_is_reported_in_the_same_words(make, capsys):
    ranks, _ = make((0, 1e9, 1), errors=(None, 9, None))
    with pytest.raises(Aborted):
        ranks.gather_numbers("losses", [1])
    ends = "MPI: no word from rank 1 for 9 s in the exchange of losses, step 13: connection reset; Checkpoint saves to"
    assert ends in capsys.readouterr().err


def test_a_rank_that_has_ended_is_named_unless_its_message_is_there(make, capsys):
    ranks, _ = make((0, 0.1, 5), ended=(1, 2))
    with pytest.raises(Aborted):
        ranks.gather_numbers("losses", [1])
    assert "rank 2 has ended, and this one wants to train with it" in capsys.readouterr().err


def test_an_interrupted_exchange_ends_the_job(make, capsys, monkeypatch):
    """Otherwise MPI may write into buffers that are freed."""
    ranks, _ = make((0, 1e9, 0))

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting.time, "sleep", interrupt)
    with pytest.raises(Aborted):
        ranks.gather_numbers("losses", [1])
    assert "ends all processes: KeyboardInterrupt: no word from rank 1" in capsys.readouterr().err


def test_short_waits_spin_and_long_ones_sleep(monkeypatch):
    """No answer is noticed later than by 2 % of its wait and 5 ms; a long wait polls 200 times a second."""
    clock = Clock(monkeypatch)
    for end in (0.001, 0.01, 0.1, 1.0, 10.0):
        began, clock.sleeps = clock.now, 0
        Waiting(None).until(lambda end=end, began=began: clock.now - began > end, lambda: None, print)
        assert clock.now - began - end < min(0.021 * end, 0.0051) + 1e-4
        assert clock.sleeps == 0 if end < waiting.SPIN_SECONDS else clock.sleeps < 300 * end + 400


@needs_mpi
def test_a_signal_in_train_batch_acts_between_two_steps_on_all_ranks():
    code, out, err = run(2, "batches.py")
    assert code == 0, err
    (first, second) = re.findall(r"rank \d interrupted after (3 steps: \w+)", out)
    assert first == second


@pytest.mark.parametrize(
    "timeout, error",
    [("1800", TypeError), (True, TypeError), (0, ValueError), (-1, ValueError), (float("nan"), ValueError)],
)
def test_a_wrong_timeout_is_refused(timeout, error):
    with pytest.raises(error, match=r"^timeout: expected a "):
        MPI(timeout=timeout)


def described(own, host="a", launcher=4):
    return {"host": host, "own": own, "launcher": launcher}


@pytest.mark.parametrize(
    "ranks, shares, bound",
    [
        ([described([0, 1, 2, 3])] * 2, [0.5, 0.5], None),
        ([described([0, 1, 2, 3])] * 3, [1 / 3] * 3, None),
        ([described([k]) for k in range(3)], [1, 1, 1], None),
        ([described([k]) for k in range(2)], [1, 1], "ranks 0, 1"),
        ([described([0])] * 2, [0.5, 0.5], "ranks 0, 1"),
        ([described([0], launcher=1)] * 2, [0.5, 0.5], None),
        ([described([0, 1, 2, 3]), described([0], "b")], [1, 1], "rank 1"),
        ([described([k], launcher=None) for k in range(2)], [1, 1], None),
    ],
)
def test_ranks_divide_a_host_and_one_with_less_than_its_share_is_named(ranks, shares, bound):
    assert [processors.share(rank, ranks) for rank in range(len(ranks))] == pytest.approx(shares)
    warning = processors.warning_of_binding(ranks)
    assert warning is None if bound is None else f"mpiexec binds {bound} to" in warning and "--bind-to none" in warning
