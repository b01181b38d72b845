"""Forks, signals and threads: nothing hangs, no step is left incomplete, and no thread gets another thread's results.

    python tests/conformance/processes.py                       # a few of each
    python tests/conformance/processes.py --forks 100 --interrupts 100 --predictions 10000

Forks: a child of a process that trains with two threads predicts and continues to train, with the parent's bits.
Interrupts: SIGINT and SIGTERM at random times; the process stops, and its model is the one after complete steps.
Predictions: eight threads share one model. Every part first shows that it detects a planted defect.
"""

import argparse
import contextlib
import copy
import hashlib
import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

import joblib
import numpy as np

import minidl_c.runtime.threads
from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

minidl_c.runtime.threads.set_thread_choice(False)  # predictions use all threads that they are asked to
LIMIT = 10  # seconds after which a process counts as hanging
SHORT = 1  # the same for canaries, which do hang
STARTING = 120  # seconds for a new interpreter and its imports
SHAPE, BATCH = (1, 12, 12), 32
RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (330, *SHAPE), dtype=np.uint8), RNG.integers(0, 10, 330)


class Centre(Layer):
    """A layer in NumPy, so that steps run stage by stage."""

    def forward(self, x, training):
        return x - 0.5

    def backward(self, dy):
        return dy


class Heavy:
    """SGD with momentum in Python, whose steps a signal must not interrupt."""

    def __init__(self, lr):
        self.lr, self.velocity = lr, {}

    def step(self, params, lr):
        for name, param in params.items():
            self.velocity[name] = 0.9 * self.velocity.get(name, 0) + param.grad
            param.value -= lr * self.velocity[name]

    def state_dict(self):
        return dict(self.velocity)

    def load_state_dict(self, state):
        self.velocity = dict(state)


class Shared(Layer):
    """A canary: its forward uses a buffer that all threads share."""

    def forward(self, x, training):
        self.x = x
        time.sleep(0)
        return self.x * 2 if len(self.x) == len(x) else x

    def backward(self, dy):
        return dy


FRONTS = {"staged": (Centre,), "shared": (Shared,)}
KINDS = ("native", "staged", "python")


def trainer_of(kind):
    """Returns a trainer of a small net: with steps in C, stage by stage, or with an optimizer in Python."""
    front = [layer() for layer in FRONTS.get(kind, ())]
    layers = [Rescale(1 / 255), *front, Conv2D(8, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(30), ReLU()]
    return trainer_with(Sequential([*layers, Dropout(0.2), Dense(10)], SHAPE), kind)


def trainer_with(model, kind="native"):
    optimizer = Heavy(0.02) if kind == "python" else SGD(0.02, momentum=0.9)
    return Trainer(model, "softmax_cross_entropy", optimizer, num_threads=2)


def digest(model, *more):
    found = hashlib.sha256(b"".join(a.tobytes() for a in [*model.state_dict().values(), *more]))
    return found.hexdigest()[:16]


def work(model):
    """Predicts and trains with a model, as a child process does; returns a hash of all results."""
    scores = model.predict(X)
    trainer = trainer_with(model)
    losses = [trainer.train_batch(X[:n], Y[:n]) for n in (BATCH, 100, 5)]
    return digest(model, scores, np.array(losses), model.predict(X[:7]))


# ---- forks


def forked(job, limit=LIMIT):
    """Returns the result of `job()` in a forked child, or "hung" after `limit` seconds, when the child is killed."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = job()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    ready = select.select([reads], [], [], limit)[0]
    said = os.read(reads, 1000).decode() if ready else "hung"
    os.close(reads)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said


class Fork:
    """A callback that forks once, in a fit; the child works with the model of that fit."""

    def __init__(self):
        self.got = self.expected = None

    def on_step_end(self, trainer, step, loss):
        if step == 3:
            self.expected = work(copy.deepcopy(trainer.model))
            self.got = forked(lambda: work(trainer.model))


def fork_after_training(trainer):
    trainer.fit(X, Y, verbose=0)
    return forked(lambda: work(trainer.model)), work(copy.deepcopy(trainer.model))


def fork_in_a_callback(trainer):
    fork = Fork()
    trainer.fit(X, Y, callbacks=[fork], verbose=0)
    return fork.got, fork.expected


def fork_beside_a_predicting_thread(trainer):
    trainer.fit(X, Y, verbose=0)
    expected, stop = work(copy.deepcopy(trainer.model)), threading.Event()

    def predict():
        while not stop.is_set():
            trainer.model.predict(X, 2)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        return forked(lambda: work(trainer.model)), expected
    finally:
        stop.set()
        thread.join()


FORKS = (fork_after_training, fork_in_a_callback, fork_beside_a_predicting_thread)


def open_a_region():
    """A canary: a child that opens a parallel region without the parent's threads."""
    minidl_c.runtime.threads._forked = False
    return work(trainer_of("native").model)


def in_pools(model):
    """Does the work in multiprocessing pools of every start method, and with joblib as in GridSearchCV(n_jobs=2)."""
    found = {}
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            found[method] = pool.map_async(work, [model] * 2).get(STARTING)
    found["joblib"] = joblib.Parallel(n_jobs=2, timeout=STARTING)(joblib.delayed(work)(model) for _ in range(2))
    return found


def check_forks(count):
    """Prints one line; returns the findings."""
    findings, began, slowest = [], time.perf_counter(), 0.0
    trainer_of("native").fit(X, Y, verbose=0)  # starts OpenMP's threads
    if minidl_c.runtime.threads.openmp() and forked(open_a_region, SHORT) != "hung":
        findings.append("a child that opens a parallel region was not seen to hang")
    for number in range(count):
        way, kind = FORKS[number % len(FORKS)], KINDS[number // len(FORKS) % len(KINDS)]
        start = time.perf_counter()
        got, expected = way(trainer_of(kind))
        slowest = max(slowest, time.perf_counter() - start)
        if got != expected:
            findings.append(f"{way.__name__}, {kind}: {got} instead of {expected}")
    model = trainer_of("staged").model
    expected = work(copy.deepcopy(model))
    pools = in_pools(model)
    findings += [f"{name}: {got} instead of {expected}" for name, got in pools.items() if got != [expected] * 2]
    tools = ", ".join(pools)
    seconds = time.perf_counter() - began
    print(
        f"forks: {count} in {seconds:.0f} s, the slowest {slowest:.2f} s; {tools}; {len(findings)} findings", flush=True
    )
    return findings


# ---- interrupts


def describe_state(trainer):
    """Returns steps, consistency of the history, and hashes of the weights now and two steps later (velocity)."""
    history = "whole" if {trainer.epoch, *map(len, trainer.history.values())} == {trainer.epoch} else "torn"
    said = f"{trainer.step} {history} {digest(trainer.model)}"
    for n in (BATCH, 7):
        trainer.train_batch(X[:n], Y[:n])
    return f"{said} {digest(trainer.model)}"


class Ready:
    """A callback that tells the parent when signals may be sent."""

    def on_fit_begin(self, trainer):
        print("ready", flush=True)


def train_until_interrupted(kind, path):
    """Runs in the child: for each line read, trains until a signal and prints the state of the model."""
    for _ in sys.stdin:
        trainer = trainer_of("native" if kind in ("torn", "deaf") else kind)
        if kind == "deaf":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        callbacks = [Ready(), Checkpoint(path)] if path else [Ready()]
        with contextlib.suppress(KeyboardInterrupt):
            trainer.fit(X, Y, 10**9, batch_size=BATCH, callbacks=callbacks, verbose=0)
        if kind == "torn":  # a canary: weights that do not match the step count
            trainer.model.params["1.weight"].value[0] += 1e-3
        print(describe_state(trainer), flush=True)


def uninterrupted(kind, steps):
    """Returns the state that a process must print after `steps` steps."""

    class Stop:
        def on_step_end(self, trainer, step, loss):
            if step == steps - 1:
                raise KeyboardInterrupt

    trainer = trainer_of(kind)
    with contextlib.suppress(KeyboardInterrupt):
        if steps:
            trainer.fit(X, Y, 10**9, batch_size=BATCH, callbacks=[Stop()], verbose=0)
    return describe_state(trainer)


class Child:
    """A child process that trains."""

    def __init__(self, kind, path=""):
        command = [sys.executable, __file__, "--child", kind, path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.kind = kind

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def line(self, limit):
        """Returns its next line; "" if it ended, "hung" after `limit` seconds without a line."""
        if not select.select([self.process.stdout], [], [], limit)[0]:
            return "hung"
        return self.process.stdout.readline().decode().strip()

    def begin(self):
        """Starts a fit in the child."""
        self.process.stdin.write(b"\n")
        assert self.line(STARTING) == "ready"

    def interrupted(self, delay, limit=LIMIT):
        """Interrupts it `delay` seconds after its start; returns the line it prints and the seconds it took to stop."""
        self.begin()
        time.sleep(delay)
        start = time.perf_counter()
        self.process.send_signal(signal.SIGINT)
        return self.line(limit), time.perf_counter() - start

    def terminated(self, delay):
        """Terminates it `delay` seconds after its start; returns its shell exit status and the seconds it took."""
        self.begin()
        time.sleep(delay)
        start = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return "hung", LIMIT
        return 128 - status if status < 0 else status, time.perf_counter() - start


def wrong_steps(kind, said):
    """Returns what is wrong with the state that an interrupted child printed, "" if nothing."""
    steps = said.partition(" ")[0]
    if not steps.isdigit():
        return f"{kind}: expected a number of steps from the child, got {said!r}"
    expected = uninterrupted(kind, int(steps))
    return "" if said == expected else f"{kind}: {said} instead of {expected}"


def check_interrupts(count, rng):
    """Prints one line; returns the findings."""
    findings, seconds = [], []
    with Child("torn") as child:
        if not wrong_steps("native", child.interrupted(0.1)[0]):
            findings.append("weights that do not match the step count were not noticed")
    with Child("deaf") as child:
        if child.interrupted(0, SHORT)[0] != "hung":
            findings.append("a process that does not stop was not noticed")
    states_seen = set()
    for kind in KINDS:
        with Child(kind) as child:
            for _ in range(-(-count // len(KINDS))):
                said, took = child.interrupted(0.5 * rng.random() ** 3)
                seconds.append(took)
                states_seen.add(said)
                findings += filter(None, [wrong_steps(kind, said)])
                if said in ("hung", ""):
                    break
    print(
        f"SIGINT: {len(seconds)}, {len(states_seen)} different states, {summary(seconds)}, {len(findings)} findings",
        flush=True,
    )
    return findings


def check_terminations(count, rng):
    """Prints one line; returns the findings. Each process leaves a checkpoint of the step when it was terminated."""
    findings, seconds, states_seen = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind, path = KINDS[number % len(KINDS)], os.path.join(folder, str(number))
            with Child(kind, path) as child:
                status, took = child.terminated(0.5 * rng.random() ** 3)
            seconds.append(took)
            if status != 128 + signal.SIGTERM:
                findings.append(f"SIGTERM, {kind}: expected exit status 143, got {status}")
                continue
            said = describe_state(
                Trainer.resume(path, custom_objects={"Centre": Centre, "Heavy": Heavy}, num_threads=2)
            )
            states_seen.add(said)
            findings += filter(None, [wrong_steps(kind, said)])
    states = f"{len(states_seen)} different checkpoints"
    print(f"SIGTERM: {count}, {states}, {summary(seconds)}, {len(findings)} findings", flush=True)
    return findings


def summary(seconds):
    if not seconds:
        return "none"
    return f"stopped after {1e3 * np.median(seconds):.1f} ms (median), {1e3 * max(seconds):.1f} ms at most"


# ---- predictions


def wrong_predictions(model, count, seed):
    """Makes `count` predictions in each of 8 threads; returns how many differ from those of one thread."""
    batches = [X[i : i + n] for n in (1, 2, 16, 17, 40) for i in (0, 100)]
    expected = [model.predict(x).tobytes() for x in batches]
    wrong = []

    def predict(number):
        rng = random.Random(seed + number)
        for _ in range(count):
            i = rng.randrange(len(batches))
            if model.predict(batches[i], rng.choice((None, None, None, 2))).tobytes() != expected[i]:
                wrong.append(i)

    threads = [threading.Thread(target=predict, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong)


def check_predictions(count, seed):
    """Prints one line; returns the findings."""
    findings, began = [], time.perf_counter()
    if not wrong_predictions(trainer_of("shared").model, 300, seed):
        findings.append("a layer that all threads share was not noticed")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # switch threads as often as possible
    for kind in ("native", "staged"):
        wrong = wrong_predictions(trainer_of(kind).model, count // 2, seed)
        findings += [f"{kind}: {wrong} of {8 * (count // 2)} predictions differ"] if wrong else []
    sys.setswitchinterval(before)
    seconds = time.perf_counter() - began
    print(f"predictions: 8 threads x {count} in {seconds:.0f} s, {len(findings)} findings", flush=True)
    return findings


def main():
    """Exits with 1 if anything hung or differed, or if a canary was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=12)
    parser.add_argument("--interrupts", type=int, default=20, help="number of SIGINTs, and of SIGTERMs")
    parser.add_argument("--predictions", type=int, default=1000, help="number in each of 8 threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    if options.child:
        train_until_interrupted(*options.child)
        return
    rng, findings = random.Random(options.seed), []
    if options.forks:
        findings += check_forks(options.forks)
    if options.interrupts:
        findings += check_interrupts(options.interrupts, rng) + check_terminations(options.interrupts, rng)
    if options.predictions:
        findings += check_predictions(options.predictions, options.seed)
    print(*findings, sep="\n", end="\n" if findings else "")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
