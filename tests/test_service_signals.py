"""examples/service.py: SIGTERM, and SIGHUP for other weights while it serves."""

import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from service_process import GOOD, TEXT, ask, connect, in_flight, make_model, post, serving, statuses, strict

import minidl

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
HEALTH, READY = (post(b"", path=path, method="GET", length="") for path in ("/health", "/ready"))


def until(condition):
    """Waits until a condition holds, at most as long as a machine may be busy."""
    end = monotonic() + 120
    while not (value := condition()):
        assert monotonic() < end
        sleep(0.01)
    return value


def test_sigterm_ends_it_after_the_requests_that_it_accepted(tmp_path):
    make_model().save(tmp_path / "m")
    with serving(tmp_path / "m", "--seconds", 300) as (process, port):
        assert f"minidl {minidl.__version__}, commit " in "".join(process.log)
        accepted = in_flight(port, 5)
        process.send_signal(signal.SIGSTOP)
        waiting = [connect(port) for _ in range(20)]  # the kernel accepts them, the server has not seen them
        for connection in waiting:
            connection.sendall(post(GOOD))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        assert statuses(waiting) == [200] * 20
        assert statuses(accepted, TEXT) == [200] * 5
        assert process.wait(60) == 0
        with pytest.raises(ConnectionRefusedError):
            connect(port)


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_sigterm_as_process_1(tmp_path):
    prefix = ("unshare", "--pid", "--fork", "--kill-child")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs unshare, and the right to make a namespace of processes")
    make_model().save(tmp_path / "m")
    with serving(tmp_path / "m", "--seconds", 300, prefix=prefix) as (process, port):
        (server,) = children_of(process.pid)
        status = Path(f"/proc/{server}/status").read_text()
        assert re.search(r"^NSpid:.*\t1$", status, re.M)
        accepted = in_flight(port, 3)
        os.kill(server, signal.SIGTERM)
        assert statuses(accepted, TEXT) == [200] * 3
        assert process.wait(60) == 0


def test_during_the_grace_period_it_is_not_ready(tmp_path):
    make_model().save(tmp_path / "m")
    with serving(tmp_path / "m", "--grace", 300, "--seconds", 300) as (process, port):
        assert ask(port, READY)[0] == 200
        process.send_signal(signal.SIGTERM)
        until(lambda: ask(port, READY)[0] == 503)
        assert [ask(port, request)[0] for request in (HEALTH, post(GOOD))] == [200, 200]


# ---- other weights


def weights_of(port):
    return strict(ask(port, HEALTH)[2])["weights"]


def test_swaps_under_load_lose_and_mix_nothing(tmp_path):
    swaps, done, answers = 12, threading.Event(), []
    make_model(1).save(tmp_path / "m")

    def use(port):
        while not done.is_set():
            answers.append(ask(port, post(GOOD)))

    with serving(tmp_path / "m", "--seconds", 300) as (process, port):
        clients = [threading.Thread(target=use, args=(port,)) for _ in range(4)]
        for client in clients:
            client.start()
        weights = {weights_of(port): 1}
        for k in range(2, swaps + 2):
            make_model(k).save(tmp_path / "m")
            for _ in range(20):  # a signal may interrupt whatever the server does
                process.send_signal(signal.SIGHUP)
            now = until(lambda: new if (new := weights_of(port)) not in weights else None)
            weights[now] = k
        done.set()
        for client in clients:
            client.join()
        (tmp_path / "m").write_bytes(b"no model")
        process.send_signal(signal.SIGHUP)
        until(lambda: any("still serving weights" in line for line in process.log))
        assert weights_of(port) == now
    assert [status for status, _, _ in answers if status != 200] == []
    for _, _, body in answers:
        answer = strict(body)
        k = weights[answer["weights"]]
        expected = make_model(k).predict_proba(GOOD["images"])
        assert answer["labels"] == [f"{'abc'[k % 3]} {k}"]
        assert np.array_equal(np.float32(answer["probabilities"]), expected)
