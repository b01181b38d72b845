"""examples/service.py: the status of each request, its own faults, and its end in a process."""

import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from time import monotonic, sleep
from unittest.mock import Mock

import numpy as np
import pytest
from service_process import (
    GOOD,
    ROOT,
    SERVICE,
    TEXT,
    answer_of,
    ask,
    connect,
    in_flight,
    make_model,
    post,
    serving,
    statuses,
    strict,
)

import minidl
from minidl import InputError, Sequential
from minidl.layers import Conv2D

ROWS, BYTES = 64, 2**16  # the limits of the server of the tests
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    path = tmp_path_factory.mktemp("service") / "model.safetensors"
    make_model().save(path, metadata={"range": [0, 255]})
    with serving(path, "--rows", ROWS, "--bytes", BYTES, "--seconds", "300") as (process, number):
        yield number
        assert process.poll() is None  # no request has ended it


CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(TEXT), TEXT)

# Written before the server: a request, and the status that it gets.
REQUESTS = {
    # what a client may send
    "a good request": (post(GOOD), 200),
    "a query": (post(GOOD, path="/predict?x=1"), 200),
    "bytes after the body": (post(TEXT + b"GET /health HTTP/1.1\r\n\r\n", length=len(TEXT)), 200),
    "Expect: 100-continue": (post(GOOD, "Expect: 100-continue"), 200),
    "Content-Encoding: identity": (post(GOOD, "Content-Encoding: identity"), 200),
    "an empty line before it": (b"\r\n" + post(GOOD), 200),
    "HTTP/1.0": (post(GOOD).replace(b"HTTP/1.1", b"HTTP/1.0"), 200),
    "spaces in JSON": (post(b" \n" + TEXT + b"\n"), 200),
    "as many rows as it takes": (post({"images": [[1, 2, 3, 4]] * ROWS}), 200),
    "health": (post(b"", path="/health", method="GET", length=""), 200),
    "ready": (post(b"", path="/ready", method="GET", length=""), 200),
    "HEAD": (post(b"", path="/health", method="HEAD", length=""), 200),
    # the length
    "no length": (post(GOOD, length=""), 411),
    "chunked": (post(CHUNKED, "Transfer-Encoding: chunked", length=""), 411),
    "chunked and a length": (post(CHUNKED, "Transfer-Encoding: chunked"), 400),
    "a negative length": (post(GOOD, length=-1), 400),
    "length 1e3": (post(GOOD, length="1e3"), 400),
    "length 1_0": (post(GOOD, length="1_0"), 400),
    "length +5": (post(GOOD, length="+5"), 400),
    "an empty length": (post(GOOD, "Content-Length: ", length=""), 400),
    "a length twice": (post(GOOD, f"Content-Length: {len(TEXT)}"), 400),
    "two lengths": (post(GOOD, "Content-Length: 3"), 400),
    "two lengths in one": (post(GOOD, length=f"{len(TEXT)}, {len(TEXT)}"), 400),
    "a length of 5,000 digits": (post(GOOD, length="9" * 5000), 413),
    "a length of zero": (post(b""), 400),
    "one byte too many": (post(b" " * (BYTES + 1)), 413),
    "17 MB": (post(b" " * 17_000_000), 413),
    "17 MB announced": (post(b"", "Expect: 100-continue", length=17_000_000), 413),
    # the method and the path
    "another path": (post(GOOD, path="/"), 404),
    "a path in a path": (post(GOOD, path="/predict/"), 404),
    "POST to health": (post(GOOD, path="/health"), 405),
    "GET of predict": (post(b"", method="GET", length=""), 405),
    "PUT": (post(GOOD, method="PUT"), 405),
    "DELETE": (post(b"", method="DELETE", length=""), 405),
    "OPTIONS": (post(b"", method="OPTIONS", length=""), 405),
    "an unknown method": (post(GOOD, method="BREW"), 405),
    "a method in small letters": (post(b"", path="/health", method="get", length=""), 405),
    "an unknown method of another path": (post(b"", path="/", method="BREW"), 404),
    "no HTTP": (b"hello\r\n\r\n", 400),
    "binary": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "HTTP/9.9": (b"GET /health HTTP/9.9\r\n\r\n", 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "empty lines": (b"\r\n\r\n", 400),
    "a long path": (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
    "a long header": (post(GOOD, "X: " + "x" * 70_000), 431),
    "200 headers": (post(GOOD, *(f"X-{i}: 1" for i in range(200))), 431),
    # the body
    "gzip": (post(b"\x1f\x8b\x08", "Content-Encoding: gzip"), 415),
    "no JSON": (post(b"hello"), 400),
    "half of JSON": (post(TEXT[:-2]), 400),
    "UTF-16": (post(json.dumps(GOOD).encode("utf-16")), 400),
    "bytes that are no UTF-8": (post(b'{"images": "\xff"}'), 400),
    "a lone surrogate": (post(b'{"\\ud800": 1}'), 400),
    "a key twice": (post(b'{"images": [[1, 2, 3, 4]], "images": [[1, 2, 3, 4]]}'), 400),
    "NaN": (post(b'{"images": [[NaN, 2, 3, 4]]}'), 400),
    "Infinity": (post(b'{"images": [[-Infinity, 2, 3, 4]]}'), 400),
    "1e999": (post(b'{"images": [[1e999, 2, 3, 4]]}'), 400),
    "50,000 brackets": (post(b'{"images": ' + b"[" * 50_000), 400),
    "brackets that close": (post(b'{"images": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"), 400),
    "40 brackets": (post(b'{"images": ' + b"[" * 40 + b"1" + b"]" * 40 + b"}"), 400),
    "an integer of 5,000 digits": (post(b'{"images": [[' + b"9" * 5000 + b", 2, 3, 4]]}"), 400),
    "an integer of 400 digits": (post(b'{"images": [[' + b"9" * 400 + b", 2, 3, 4]]}"), 400),
    "an integer of 30 digits": (post(b'{"images": [[' + b"9" * 30 + b", 2, 3, 4]]}"), 400),
    "no object": (post([[1, 2, 3, 4]]), 400),
    "another key": (post({"image": [[1, 2, 3, 4]]}), 400),
    "a key too many": (post(GOOD | {"top": 1}), 400),
    "null": (post({"images": None}), 400),
    "null in a row": (post({"images": [[None, 2, 3, 4]]}), 400),
    "a string": (post({"images": "1234"}), 400),
    "strings": (post({"images": [["1", "2", "3", "4"]]}), 400),
    "an object": (post({"images": {"0": [1, 2, 3, 4]}}), 400),
    "a number": (post({"images": 3}), 400),
    "no rows": (post({"images": []}), 400),
    "rows without numbers": (post({"images": [[], []]}), 400),
    "ragged rows": (post({"images": [[1, 2, 3, 4], [1, 2]]}), 400),
    "too few numbers": (post({"images": [[1, 2, 3]]}), 400),
    "numbers below the range": (post({"images": [[1, 2, 3, -1]]}), 400),
    "numbers outside of the range": (post({"images": [[1, 2, 3, 256]]}), 400),
    "numbers that overflow the model": (post({"images": [[255, 255, 255, 255]]}), 400),
    "too many rows": (post({"images": [[1, 2, 3, 4]] * (ROWS + 1)}), 413),
}


@pytest.mark.parametrize(("request_", "status"), REQUESTS.values(), ids=REQUESTS)
def test_each_request_has_its_status(port, request_, status):
    got, headers, body = ask(port, request_)
    assert got == status, body
    assert headers["connection"] == "close"
    if not request_.startswith(b"HEAD"):
        assert int(headers["content-length"]) == len(body)
        assert ("error" in strict(body)) == (status != 200)
        assert "Traceback" not in body.decode() and (status == 200 or len(strict(body)["error"]) < 400)
    assert ("allow" in headers) == (status == 405)


def test_no_request_of_the_table_is_a_fault_of_the_server():
    assert {status for _, status in REQUESTS.values()} <= {200, 400, 404, 405, 411, 413, 414, 415, 431}


def test_a_good_answer(port):
    _, headers, body = ask(port, post({"images": [[1, 2, 3, 4], [0, 0, 0, 0]]}))
    answer = strict(body)
    assert answer["labels"] == ["cat", "cat"]
    X = [[1, 2, 3, 4], [0, 0, 0, 0]]
    assert np.array_equal(np.float32(answer["probabilities"]), make_model().predict_proba(X))
    assert headers["content-type"] == "application/json"
    health = strict(ask(port, REQUESTS["health"][0])[2])
    assert health == {"weights": answer["weights"], "minidl": minidl.__version__}


def test_messages_say_what_was_wrong(port):
    def error(request):
        return strict(ask(port, request)[2])["error"]

    assert error(post({"images": [[1, 2, 3]]})) == "X: expected shape (n, 4), got (1, 3)"
    assert error(REQUESTS["another key"][0]) == 'expected {"images": [...]}, got something else'
    assert error(REQUESTS["a key twice"][0]) == "expected JSON in UTF-8, got a key twice"
    assert error(REQUESTS["numbers outside of the range"][0]) == "images: expected numbers from 0 to 255, got 1 to 256"
    assert error(post({"images": []})) == "images: expected at least one row, got none"
    assert error(REQUESTS["one byte too many"][0]) == f"expected at most {BYTES} bytes, got {BYTES + 1}"


def test_a_client_that_is_told_no_sends_nothing(port):
    with closing(connect(port)) as connection:
        connection.sendall(post(b"", "Expect: 100-continue", length=100))
        assert connection.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
    with closing(connect(port)) as connection:
        connection.sendall(post(b"", "Expect: 100-continue", length=17_000_000))
        assert connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 413"


def test_a_client_that_goes_away_is_no_error(port):
    for request in (b"", b"POST /pre", post(GOOD)[:-3], post(GOOD)):
        with closing(connect(port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            connection.sendall(request)
    with closing(connect(port)) as connection:
        connection.sendall(post(GOOD)[:-3])
        connection.shutdown(socket.SHUT_WR)
        assert answer_of(connection)[0] == 400
    assert ask(port, post(GOOD))[0] == 200


def test_a_silent_client_has_a_408(tmp_path):
    make_model().save(tmp_path / "m")
    stop = threading.Event()

    def drip(connection):
        while not stop.wait(0.05):
            try:
                connection.sendall(b"x")
            except OSError:
                return

    with serving(tmp_path / "m", "--seconds", 0.5) as (process, port):
        silent = [connect(port) for _ in range(5)]
        parts = (b"", b"POST /pre", post(GOOD)[:-30], post(GOOD)[:-3], post(b"", length=999))
        for connection, part in zip(silent, parts, strict=True):
            connection.sendall(part)
        thread = threading.Thread(target=drip, args=silent[-1:])  # always something, never enough
        thread.start()
        for connection in silent:
            with closing(connection):
                assert answer_of(connection)[0] == 408
        stop.set()
        thread.join()
        assert process.poll() is None


# ---- the server's own faults


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server in this process, whose model a test replaces."""
    monkeypatch.syspath_prepend(SERVICE.parent)
    service = import_module("service")
    make_model().save(tmp_path / "m")
    server = service.Service(tmp_path / "m", ("127.0.0.1", 0), seconds=300)
    server.thread = threading.Thread(target=server.serve)
    server.thread.start()
    yield server
    server.end()
    server.thread.join()


@pytest.mark.parametrize(
    ("result", "logged"),
    [(ValueError("a fault of the model"), "a fault of the model"), (np.array([[np.nan]]), "not JSON compliant")],
    ids=["an error", "NaN"],
)
def test_a_fault_of_the_server_is_a_500_and_logged(server, caplog, result, logged):
    server.served = replace(server.served, model=Mock(predict_proba=Mock(side_effect=[result])))
    status, _, body = ask(server.server_address[1], post(GOOD))
    assert (status, strict(body)) == (500, {"error": "the server failed; its log says why"})
    assert logged in caplog.text


def test_a_subclass_keeps_the_range(server):
    with pytest.raises(InputError, match=r"images: expected numbers from 0 to 255, got 1 to 256"):
        replace(server.served, range=[0, 255]).predict_proba([[1, 2, 3, 256]])


def test_an_answer_has_weights_and_names_of_one_moment(server):
    def predict_proba(images):
        server.served = replace(server.served, classes=("new",), weights="new")
        return np.eye(3)[:1]

    server.served = replace(server.served, model=Mock(predict_proba=predict_proba), weights="old")
    answer = strict(ask(server.server_address[1], post(GOOD))[2])
    assert (answer["labels"], answer["weights"]) == (["cat"], "old")


def no_scores():
    return Sequential([Conv2D(2, 3)], input_shape=(1, 8, 8))


def with_range(value):
    model = make_model()
    model.metadata = {"range": value}
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "No such file"),
        (no_scores, "expected a model with outputs (classes,)"),
        (lambda: with_range([255, 0]), "expected a range from a number to a larger one, got [255, 0]"),
        (lambda: with_range(255), "expected a range of two numbers, got 255"),
        (lambda: with_range(["a", 0]), "expected a range of two numbers"),
    ],
    ids=["no file", "no class scores", "an empty range", "no range", "no numbers"],
)
def test_what_cannot_be_served_does_not_start(tmp_path, model, message):
    if model is not None:
        model().save(tmp_path / "m")
    refuse_start(tmp_path / "m", message)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--port", 99999, "port must be 0-65535"), ("--grace", -1, "a grace period of at least 0"), ("--rows", 0, "rows")],
)
def test_options_that_cannot_be_do_not_start_it(tmp_path, option, value, message):
    make_model().save(tmp_path / "m")
    refuse_start(tmp_path / "m", message, option, str(value))


def refuse_start(path, message, *options):
    done = subprocess.run(
        [sys.executable, SERVICE, path, "--port", "0", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cannot serve: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# ---- its end, in this process


def test_a_client_that_does_not_read_has_the_time_of_one_request(server, monkeypatch):
    service, late = sys.modules["service"], 0
    monkeypatch.setattr(service, "monotonic", lambda: monotonic() + late)
    monkeypatch.setattr(server.RequestHandlerClass, "answer", lambda *_: "x" * 2**25)  # more than buffers hold
    (connection,) = in_flight(server.server_address[1], 1)
    with closing(connection):
        late = 299.5
        connection.sendall(TEXT)
        server.end()
        server.thread.join(100)
        assert not server.thread.is_alive()


def test_it_ends_before_docker_kills_it(server):
    defaults = inspect.signature(type(server)).parameters
    assert defaults["grace"].default + defaults["seconds"].default + 2 < 10


def test_all_that_wait_are_answered_at_the_end(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["service"], "DRAIN_SECONDS", 300)
    other = type(server)(tmp_path / "m", ("127.0.0.1", 0), seconds=300)
    other.socket.listen(256)
    waiting = [connect(other.server_address[1]) for _ in range(200)]
    for connection in waiting:
        connection.sendall(post(GOOD))
    ends = threading.Thread(target=other.end)
    ends.start()
    other.serve()
    assert statuses(waiting) == [200] * 200


def test_connections_without_an_end_do_not_keep_it_up(server, tmp_path):
    other = type(server)(tmp_path / "m", ("127.0.0.1", 0))
    other.handle_request = lambda: sleep(0.01)  # always another one
    serves = threading.Thread(target=other.serve)
    serves.start()
    other.end()
    serves.join(60)
    assert not serves.is_alive()
