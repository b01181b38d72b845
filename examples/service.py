"""A model as an HTTP service
==========================

A service for a model with class scores, of the standard library and minidl alone.

Run it with: `python examples/service.py digits.safetensors --port 8000`

- `POST /predict` with `{"images": [...]}` answers with the classes and their probabilities, as many rows as images. The
  names of the classes are those of the model file: `model.save(path, classes=names)`. If its metadata has a `range`,
  `metadata={"range": [0, 255]}`, numbers outside of it are refused.
- `GET /health` answers with a hash of the weights and the version of minidl, `GET /ready` too, with status 503 after
  SIGTERM.
- SIGHUP loads the file again, while the old weights serve. A file that cannot be served is logged, and changes nothing.
- SIGTERM ends the service after the answers to all requests that it accepted, also as process 1 of a container.

Whatever the client sends has an answer in JSON, a status from 400 to 499 with an `error`; only a fault of the server
is a 500. Each connection has one request, and a thread of its own. Encryption, authentication and a limit on the number
of connections are left to a reverse proxy.
"""

import argparse
import hashlib
import io
import json
import logging
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from socket import SHUT_WR
from threading import Lock, Thread
from time import monotonic, sleep

import numpy as np

import minidl

METHODS = {"/predict": ["POST"], "/health": ["GET", "HEAD"], "/ready": ["GET", "HEAD"]}
LINGER_SECONDS, LINGER_BYTES = 2, 2**26  # for what a client still sends after an error, so that it can read the answer
LAST_SECONDS, DRAIN_SECONDS = 1, 0.5  # for an answer after the client's time; for connections that wait at the end
ANY = [-np.inf, np.inf]  # the range of a file whose metadata has none
LOG = logging.getLogger("service")


class Refused(Exception):
    """A request that is answered with an error: its status, and what was expected."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Served:
    """A model, and what belongs to its weights: one object, which a reload replaces as a whole."""

    model: minidl.Sequential
    classes: tuple
    range: list
    weights: str

    @classmethod
    def load(cls, path):
        """Returns the content of a model file; raises OSError, ValueError or TypeError if it cannot be served."""
        model = minidl.Sequential.load(path)
        example = np.zeros((1, *(size or 32 for size in model.input_shape)))
        outputs = model.predict_proba(example).shape[1]  # a ValueError for a model without class scores
        limits = model.metadata.get("range", ANY)
        if not isinstance(limits, list) or [type(limit) in (int, float) for limit in limits] != [True, True]:
            raise ValueError(f"metadata: expected a range of two numbers, got {limits!r}")
        if not limits[0] < limits[1]:
            raise ValueError(f"metadata: expected a range from a number to a larger one, got {limits}")
        state = b"".join(value.tobytes() for value in model.state_dict().values())
        return cls(model, model.classes or tuple(range(outputs)), limits, hashlib.sha256(state).hexdigest()[:16])

    def predict_proba(self, images):
        """Returns the probabilities of images; raises InputError for those that the model refuses, or out of range."""
        with suppress(ValueError):  # of lists of several lengths, which the model refuses in its own words
            images = np.asarray(images)
        probabilities, (low, high) = self.model.predict_proba(images), self.range
        smallest, largest = images.min(), images.max()
        if not low <= smallest <= largest <= high:
            raise minidl.InputError(f"images: expected numbers from {low} to {high}, got {smallest} to {largest}")
        return probabilities


class Reader(io.RawIOBase):
    """Reads from a connection until a moment, so that a client that sends a byte now and then has an end, too."""

    def __init__(self, connection, seconds):
        self.connection, self.end = connection, monotonic() + seconds

    def readable(self):
        return True

    def readinto(self, buffer):
        self.connection.settimeout(max(self.end - monotonic(), 1e-3))
        try:
            return self.connection.recv_into(buffer)
        except TimeoutError:
            raise Refused(408, "expected the whole request, got a part of it and then nothing in time") from None


class Handler(BaseHTTPRequestHandler):
    """Answers one request. A subclass may have another `answer`."""

    protocol_version, default_request_version = "HTTP/1.1", "HTTP/1.0"
    request_version, command, requestline, expects = "HTTP/1.0", "", "", False  # until they are read
    wbufsize = -1  # head and body of an answer are sent together

    def setup(self):
        super().setup()
        self.client = Reader(self.connection, self.server.seconds)
        self.rfile = io.BufferedReader(self.client)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except Refused as refused:
            self.reply(refused.status, {"error": str(refused)})
        except minidl.InputError as error:
            self.reply(400, {"error": str(error)})
        except ConnectionError as error:
            LOG.info("%s: went away: %s", self.client_address[0], error)
        except Exception:
            LOG.exception("%s: %r", self.client_address[0], self.requestline)
            self.reply(500, {"error": "the server failed; its log says why"})
        self.close_connection = True

    def do_any(self):
        path, served = self.path.partition("?")[0], self.server.served
        if path not in METHODS:
            raise Refused(404, f"expected a path of {', '.join(METHODS)}, got another one")
        if self.command not in METHODS[path]:
            raise Refused(405, f"expected {' or '.join(METHODS[path])} {path}, got {self.command[:100]}")
        if path == "/predict":
            body, start = self.read_body(), monotonic()
            answer = self.answer(served, body)
            self.client.end += monotonic() - start  # what the server takes is not the client's time
            self.reply(200, answer)
        elif path == "/ready" and self.server.ending:
            raise Refused(503, "the server is ending")
        else:
            self.reply(200, {"weights": served.weights, "minidl": minidl.__version__})

    def __getattr__(self, name):
        if name.startswith("do_"):  # any method, also an unknown one
            return self.do_any
        raise AttributeError(name)

    def parse_request(self):
        if not self.raw_requestline.strip():  # an empty line before a request is ignored: RFC 9112, 2.2
            self.raw_requestline = self.rfile.readline(2**16)
        if not self.raw_requestline.strip():
            raise Refused(400, "expected a request, got empty lines")
        return super().parse_request()

    def handle_expect_100(self):
        self.expects = True  # 100 is sent after the other headers are checked
        return True

    def read_body(self):
        """Returns the body of the request, which has a length and no encoding."""
        lengths, most = self.headers.get_all("Content-Length", []), self.server.bytes
        if "Transfer-Encoding" in self.headers and lengths:
            raise Refused(400, "expected a Content-Length, got a Transfer-Encoding, too")
        if not lengths:
            raise Refused(411, "expected a Content-Length, got none")
        if len(lengths) > 1 or not re.fullmatch("[0-9]+", lengths[0]):
            raise Refused(400, f"Content-Length: expected one number, got {', '.join(lengths)[:100]!r}")
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(415, "Content-Encoding: expected none")
        if len(lengths[0]) > 18 or int(lengths[0]) > most:
            raise Refused(413, f"expected at most {most} bytes, got {lengths[0][:18]}")
        if self.expects:
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            raise Refused(400, f"expected {lengths[0]} bytes, got {len(body)} and the end")
        return body

    def answer(self, served, body):
        """Returns what is answered to the body of a request, as JSON's values."""
        probabilities = served.predict_proba(parse(body, self.server.rows))
        labels = [served.classes[i] for i in probabilities.argmax(axis=1)]
        return {"labels": labels, "probabilities": probabilities.tolist(), "weights": served.weights}

    def reply(self, status, answer):
        content = json.dumps(answer, allow_nan=False).encode()
        end = max(self.client.end, monotonic() + LAST_SECONDS)
        self.connection.settimeout(end - monotonic())
        with suppress(OSError):  # a client that does not read, or went away
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            if status == 405:
                self.send_header("Allow", ", ".join(METHODS[self.path.partition("?")[0]]))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else content)
            self.wfile.flush()
            if status >= 400:
                self.linger(end)

    def linger(self, end):
        """Reads what the client still sends, within limits: a close before that would destroy the answer."""
        self.connection.shutdown(SHUT_WR)
        end, count = min(end, monotonic() + LINGER_SECONDS), 0
        while count < LINGER_BYTES and (left := end - monotonic()) > 0:
            self.connection.settimeout(left)
            if not (part := self.connection.recv(2**16)):
                break
            count += len(part)

    def send_error(self, code, message=None, explain=None):
        self.reply(400 if code == 505 else code, {"error": (message or self.responses[code][0])[:200]})

    def log_request(self, code="-", size="-"):
        if code >= 400:
            LOG.info("%s: %d for %.200r", self.client_address[0], code, self.requestline)

    def log_message(self, *args):
        pass


def unique(pairs):
    """Returns the keys and values of an object in JSON as a dict."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return found


def no_constant(name):
    raise ValueError(f"{name}, which JSON does not have")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=no_constant)


def parse(body, most_rows):
    """Returns the images in the body of a request, as lists; raises Refused for anything but strict JSON."""
    try:
        question = DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"expected JSON in UTF-8, got {error}"[:300]) from error
    if not isinstance(question, dict) or list(question) != ["images"] or not isinstance(question["images"], list):
        raise Refused(400, 'expected {"images": [...]}, got something else')
    if not question["images"]:
        raise Refused(400, "images: expected at least one row, got none")
    if len(question["images"]) > most_rows:
        raise Refused(413, f"images: expected at most {most_rows} rows, got {len(question['images'])}")
    return question["images"]


class Service(ThreadingHTTPServer):
    """A server with the model of a file. rows, bytes, seconds: the limits of a request.

    After SIGTERM, it ends within `grace` and `seconds` and 2 seconds more, and the time of the last predictions.
    """

    request_queue_size = 128  # connections that wait: with the default of 5, a client waits a second for the next try
    daemon_threads = False  # so that server_close waits for the answers

    def __init__(self, path, address, handler=Handler, *, rows=1024, bytes=2**20, seconds=5, grace=0):
        if not (rows > 0 and bytes > 0 and seconds > 0 and grace >= 0):
            raise ValueError("expected rows, bytes and seconds above 0, and a grace period of at least 0")
        self.path, self.rows, self.bytes, self.seconds, self.grace = path, rows, bytes, seconds, grace
        self.served, self.loading, self.ending, self.wanted = Served.load(path), Lock(), False, SimpleQueue()
        super().__init__(address, handler)

    def reload(self):
        """Loads the file again. A request has the weights and names from before or from after, never a mixture."""
        with self.loading:
            try:
                self.served = Served.load(self.path)
            except (OSError, ValueError, TypeError) as error:
                LOG.error("%s: still serving weights %s", error, self.served.weights)
            else:
                LOG.info("serving weights %s", self.served.weights)

    def service_actions(self):
        """Starts what handlers of signals have put into `wanted`. The loop calls it, at least ten times a second.

        A handler starts no thread: if it interrupts the start of another one, it waits for itself. A put into a
        SimpleQueue may interrupt another one.
        """
        for action in {self.wanted.get() for _ in range(self.wanted.qsize())}:
            Thread(target=action).start()

    def end(self):
        """Ends `serve` after the grace period, in which requests are accepted and `/ready` answers with 503."""
        self.ending = True
        sleep(self.grace)
        self.shutdown()

    def serve(self):
        """Answers requests until `end`, and then those that wait for a thread."""
        self.serve_forever(0.1)
        self.timeout, self.drained, end = 0, False, monotonic() + DRAIN_SECONDS
        while not self.drained and monotonic() < end:
            self.handle_request()
        self.server_close()

    def handle_timeout(self):
        self.drained = True  # no connection waits


def main(handler=Handler, **defaults):
    """Serves the file that the command line names. defaults: of its options, for another handler."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", help="the file that model.save wrote")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000, help="0: one that is free")
    parser.add_argument("--rows", type=int, default=1024, help="the most images in a request")
    parser.add_argument("--bytes", type=int, default=2**20, help="the most bytes of a request")
    parser.add_argument("--seconds", type=float, default=5, help="a client's time for request and answer")
    parser.add_argument("--grace", type=float, default=0, help="seconds after SIGTERM in which requests are accepted")
    parser.set_defaults(**defaults)
    options = vars(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before it served"))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    minidl.set_num_threads(1)  # each request has a thread of its own
    address = options.pop("host"), options.pop("port")
    try:
        server = Service(options.pop("path"), address, handler, **options)
    except (OSError, ValueError, TypeError, OverflowError) as error:  # OverflowError: of a port
        sys.exit(f"cannot serve: {error}")
    for name, action in {"SIGTERM": server.end, "SIGINT": server.end, "SIGHUP": server.reload}.items():
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), lambda *_, action=action: server.wanted.put(action))
    config = minidl.show_config()
    LOG.info("minidl %s, commit %s, instruction set %s", config.minidl, config.commit, config.instruction_set)
    LOG.info("serving weights %s at http://%s:%d", server.served.weights, *server.server_address)
    server.serve()


if __name__ == "__main__":
    main()
