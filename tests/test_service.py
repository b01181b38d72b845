"""examples/service.py: the status of each request, the end by SIGTERM, and other weights while it serves."""

import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from unittest.mock import Mock

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, Dense

ROOT = Path(__file__).parents[1]
SERVICE = (ROOT / "examples").joinpath("service.py")
CLASSES = ("cat", "dog", "é")
ROWS, BYTES = 64, 2**16  # the limits of the server of the tests
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")


def make_model(k=0):
    """Returns a model that tells its number by the names of its classes, and by its scores."""
    model = Sequential([Dense(3)], input_shape=(4,))
    weight = np.zeros((3, 4))
    weight[k % 3] = 1e36 if k == 0 else k
    model.load_state_dict({"0.weight": weight, "0.bias": np.zeros(3)})
    model.classes = CLASSES if k == 0 else [f"{name} {k}" for name in "abc"]
    return model


@contextmanager
def serving(path, *options, prefix=()):
    """Starts a server in a process of its own; gives the process and its port."""
    command = [
        *prefix,
        sys.executable,
        str(SERVICE),
        str(path),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        *map(str, options),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"serving .* at http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            pytest.fail(f"the server did not start: {''.join(lines)}")
        rest = threading.Thread(target=lambda: lines.extend(process.stderr))
        rest.start()
        process.log = lines
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        rest.join()
        process.stderr.close()


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    path = tmp_path_factory.mktemp("service") / "model.safetensors"
    make_model().save(path, metadata={"range": [0, 255]})
    with serving(path, "--rows", ROWS, "--bytes", BYTES, "--seconds", "300") as (process, number):
        yield number
        assert process.poll() is None  # no request has ended it


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer_of(connection):
    """Reads a whole answer; returns its status, headers and JSON."""
    content = b""
    while part := connection.recv(2**16):
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100 "):
        head, _, body = body.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def ask(port, request):
    with closing(connect(port)) as connection:
        connection.sendall(request)
        return answer_of(connection)


def strict(text):
    """Parses JSON without NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def post(body, *headers, path="/predict", length=None, method="POST"):
    """Returns the bytes of a request. length: another one than that of the body; "": none."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = len(body) if length is None else length
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    lines += [] if length == "" else [f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


GOOD = {"images": [[1, 2, 3, 4]]}
TEXT = json.dumps(GOOD).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(TEXT), TEXT)

# Written before the server: a request, and the status that it gets.
REQUESTS = {
    # what a client may send
    "a good request": (post(GOOD), 200),
    "a query": (post(GOOD, path="/predict?x=1"), 200),
    "bytes after the body": (post(TEXT + b"GET /health HTTP/1.1\r\n\r\n", length=len(TEXT)), 200),
    "Expect: 100-continue": (post(GOOD, "Expect: 100-continue"), 200),
    "Content-Encoding: identity": (post(GOOD, "Content-Encoding: identity"), 200),
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
    "an unknown method": (post(GOOD, method="BREW"), 501),
    "no HTTP": (b"hello\r\n\r\n", 400),
    "binary": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "HTTP/9.9": (b"GET /health HTTP/9.9\r\n\r\n", 505),
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


def test_a_good_answer(port):
    _, headers, body = ask(port, post({"images": [[1, 2, 3, 4], [0, 0, 0, 0]]}))
    answer = strict(body)
    assert answer["labels"] == ["cat", "cat"]
    X = [[1, 2, 3, 4], [0, 0, 0, 0]]
    assert np.array_equal(np.float32(answer["probabilities"]), make_model().predict_proba(X))
    assert headers["content-type"] == "application/json"
    assert strict(ask(port, REQUESTS["health"][0])[2])["weights"] == answer["weights"]


def test_messages_say_what_was_wrong(port):
    def error(request):
        return strict(ask(port, request)[2])["error"]

    assert error(post({"images": [[1, 2, 3]]})) == "X: expected shape (n, 4), got (1, 3)"
    assert error(REQUESTS["another key"][0]) == 'expected {"images": [...]}, got something else'
    assert error(REQUESTS["a key twice"][0]) == "expected JSON in UTF-8, got a key twice"
    assert error(REQUESTS["numbers outside of the range"][0]) == "images: expected numbers from 0 to 255, got 1 to 256"
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
    done = subprocess.run(
        [sys.executable, SERVICE, tmp_path / "m", "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cannot serve: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# ---- SIGTERM


def in_flight(port, count):
    """Returns connections, each with a request without its body, which the server has accepted."""
    connections = [connect(port) for _ in range(count)]
    for connection in connections:
        connection.sendall(post(GOOD, "Expect: 100-continue")[: -len(TEXT)])
        assert connection.recv(25, socket.MSG_WAITALL).startswith(b"HTTP/1.1 100")  # a thread waits for the body
    return connections


def statuses(connections, rest=b""):
    found = []
    for connection in connections:
        with closing(connection):
            connection.sendall(rest)
            found.append(answer_of(connection)[0])
    return found


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
        assert ask(port, REQUESTS["ready"][0])[0] == 200
        process.send_signal(signal.SIGTERM)
        until(lambda: ask(port, REQUESTS["ready"][0])[0] == 503)
        assert [ask(port, request)[0] for request in (REQUESTS["health"][0], post(GOOD))] == [200, 200]


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


# ---- other weights


def weights_of(port):
    return strict(ask(port, REQUESTS["health"][0])[2])["weights"]


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
