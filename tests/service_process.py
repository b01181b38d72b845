"""A process of examples/service.py, and requests to it."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Dense

ROOT = Path(__file__).parents[1]
SERVICE = (ROOT / "examples").joinpath("service.py")
CLASSES = ("cat", "dog", "é")


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
