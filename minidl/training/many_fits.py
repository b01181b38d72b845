"""fit_many: trains many nets at the same time, one in each thread."""

from __future__ import annotations

import inspect
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minidl.callbacks.callback_list import CallbackList, remembers
from minidl.training.base_trainer import BaseTrainer
from minidl.training.batch_feed import epoch_setter
from minidl.training.progress import Progress
from minidl.training.signals import SignalRelay, Signals, current_relay
from minidl.utils.hints import class_hint
from minidl.utils.validation import check_bool, check_int
from minidl_c.runtime.threads import get_num_threads, limit_thread

MAX_NAMED = 10  # failed nets in a message


def fit_many(
    trainers: Sequence[Any] | Mapping[Any, Any],
    X: Any = None,
    y: Any = None,
    *,
    each: Sequence[Mapping[str, Any]] | Mapping[Any, Mapping[str, Any]] | None = None,
    n_jobs: int | None = None,
    verbose: int | None = None,
    return_exceptions: bool = False,
    **fit_arguments: Any,
) -> Any:
    """Trains many nets at the same time: each is fitted in one thread, and has the bits of its own fit.

    The threads share X and y without copies, except y of a SequentialRegressor, which scales it. While steps run in C,
    the other threads run, too; Python runs in one thread at a time. This pays for small and medium nets of kernels, but
    not for layers, losses or callbacks in Python: see docs/how-to/many-nets.md.

    Parameters
    ----------
    trainers : list or dict of Trainer or estimator
        Objects with a `fit`: trainers, estimators or pipelines. Each has its own model and optimizer. A dict names
        them.
    X : array-like or None, default None
        The examples of all nets, as their `fit` takes them.
    y : array-like or None, default None
        The targets of all nets.
    each : list or dict of dict, or None, default None
        The arguments of each net's own `fit`, in the order of `trainers`, or by their names. They replace the shared
        ones: other data, callbacks or a batch size.
    n_jobs : int or None, default None
        The number of threads, each with one net at a time; None and -1: `minidl.get_num_threads()`. Inside the fit of
        another list it is 1.
    verbose : 0, 1, 2 or None, default None
        0 prints nothing, 1 a line at the end, 2 also a bar; None: 2 on a terminal, else 1. The nets print nothing.
    return_exceptions : bool, default False
        Whether the error of a net that fails is returned in place of its result.
    **fit_arguments : object
        Other arguments of each `fit`, such as `epochs`.

    Returns
    -------
    list or dict
        What each `fit` returned, in the order of `trainers`, or by their names: the history of a trainer, the estimator
        itself.

    Raises
    ------
    TypeError, ValueError
        Before the first fit, if an argument of `fit_many` itself is invalid, or if two nets share a model, an
        optimizer, a step of a pipeline, or a callback that has a `state_dict`.
    ExceptionGroup
        The errors of nets that failed, also those of invalid arguments of their `fit`, after all others have been
        fitted. The message has the names of the first ten, and a note of each error has its own.
    KeyboardInterrupt, SystemExit
        For Ctrl-C and SIGTERM, which act while all nets are between two steps. SIGTERM first calls the `on_terminate`
        of their callbacks. Some nets are fitted then, and those that have not begun are as they were. A trainer in
        between has made whole steps, and its next fit with the same arguments completes them; an estimator is not
        fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, Trainer, fit_many
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> X = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
    >>> def make(rate):
    ...     return Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(rate))
    >>> trainers = [make(rate) for rate in (0.001, 0.01, 0.1)]
    >>> histories = fit_many(trainers, X, 3 * X, epochs=20, verbose=0)
    >>> min(range(3), key=lambda k: histories[k]["loss"][-1])
    2

    Data of its own for each net, by name:

    >>> trainers = {"up": make(0.1), "down": make(0.1)}
    >>> data = {"up": {"X": X, "y": X}, "down": {"X": X, "y": -X}}
    >>> histories = fit_many(trainers, each=data, epochs=20, verbose=0)
    >>> {name: trainer.predict([[1.0]]).round().item() for name, trainer in trainers.items()}
    {'up': 1.0, 'down': -1.0}
    """
    nets = dict(trainers) if isinstance(trainers, Mapping) else dict(enumerate(_as_list(trainers)))
    given = {name: value for name, value in (("X", X), ("y", y)) if value is not None} | _whole(fit_arguments)
    if len(nets) > 1 and hasattr(X, "__next__"):
        raise TypeError(f"X: expected arrays, or batches that each net can read from the first, got the iterator {X!r}")
    own = _own_arguments(nets, each, isinstance(trainers, Mapping))
    calls = {name: _arguments(name, net, {**given, **_whole(own[name])}) for name, net in nets.items()}
    _check_unshared(nets, calls)
    check_bool("return_exceptions", return_exceptions)
    n_threads = get_num_threads() if n_jobs is None or n_jobs == -1 else check_int("n_jobs", n_jobs)
    fits = _Fits(nets, calls, Progress(verbose, 0))
    fits.run(min(len(nets), 1 if current_relay() else n_threads))
    if fits.failed and not return_exceptions:
        raise fits.error()
    results = {name: fits.results[name] for name in nets}
    return results if isinstance(trainers, Mapping) else list(results.values())


class _Fits:
    """The fits of some nets; results, failed: what they returned or raised so far, by name."""

    def __init__(self, nets: dict[Any, Any], calls: dict[Any, dict[str, Any]], progress: Progress) -> None:
        self._nets, self._calls, self._progress = nets, calls, progress
        self.results: dict[Any, Any] = {}
        self.failed: dict[Any, Exception] = {}
        self._left, self._lock = deque(nets), threading.Lock()

    def run(self, n_threads: int) -> None:
        """Does all fits; raises what stopped them, such as KeyboardInterrupt."""
        began = time.perf_counter()
        self._progress.begin("nets", "net", len(self._nets))
        try:
            if n_threads > 1:
                with warnings.catch_warnings():  # filters that fits set at the same time may be restored in any order
                    SignalRelay().run(self._work, n_threads)
            else:
                self._work()
        finally:
            self._progress.close()
        fitted, seconds = len(self.results) - len(self.failed), time.perf_counter() - began
        self._progress.note(f"{fitted:,} nets fitted, {len(self.failed):,} failed, {seconds:.1f} s")

    def error(self) -> ExceptionGroup[Exception]:
        """Returns the errors of the nets that failed."""
        failed = {name: self.failed[name] for name in self._nets if name in self.failed}
        kinds = [f"{name!r} ({type(error).__name__})" for name, error in failed.items()]
        more = f" and {len(kinds) - MAX_NAMED:,} more" if len(kinds) > MAX_NAMED else ""
        message = f"fit_many: {len(kinds):,} of {len(self._nets):,} nets failed: {', '.join(kinds[:MAX_NAMED])}{more}"
        return ExceptionGroup(message, list(failed.values()))

    def _work(self) -> None:
        """Fits one net after the other, each on one thread, until none is left."""
        before = limit_thread(1)
        try:
            while True:
                Signals().check(lambda: None)
                try:
                    name = self._left.popleft()
                except IndexError:
                    return
                try:
                    self.results[name] = self._nets[name].fit(**self._calls[name])
                except Exception as error:
                    error.add_note(f"In the fit of net {name!r}")
                    self.results[name] = self.failed[name] = error
                with self._lock:
                    self._progress.advance(1, failed=len(self.failed))
        finally:
            limit_thread(before)


# ---- arguments


def _as_list(trainers: Any) -> list[Any]:
    if not isinstance(trainers, Iterable) or hasattr(trainers, "fit"):
        raise TypeError(f"trainers: expected a list or a dict of them, got {trainers!r}{class_hint(trainers)}")
    return list(trainers)


def _own_arguments(nets: dict[Any, Any], each: Any, by_name: bool) -> dict[Any, Any]:
    """Returns the arguments of each net's own fit, by name; raises TypeError or ValueError for others."""
    if each is None:
        return {name: {} for name in nets}
    if isinstance(each, Mapping) is not by_name or not isinstance(each, Iterable):
        expected = "a dict with the names of trainers" if by_name else "a list in the order of trainers"
        raise TypeError(f"each: expected {expected}, got {type(each).__name__}")
    own = dict(each) if by_name else dict(enumerate(each))
    if own.keys() != nets.keys():
        differing = sorted(map(repr, own.keys() ^ nets.keys()))
        got = f"others: {', '.join(differing[:MAX_NAMED])}" if by_name else f"{len(own)}"
        raise ValueError(f"each: expected arguments for each of {len(nets)} nets, got {got}")
    for name, arguments in own.items():
        if not isinstance(arguments, Mapping):
            raise TypeError(f"each: expected a dict of arguments for net {name!r}, got {type(arguments).__name__}")
    return own


def _whole(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments of a fit, with callbacks that can be read twice."""
    callbacks = arguments.get("callbacks")
    return dict(arguments) | ({"callbacks": list(callbacks)} if isinstance(callbacks, Iterator) else {})


def _arguments(name: Any, net: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a net's fit; raises TypeError for one that it does not have."""
    if isinstance(net, type) or not callable(getattr(net, "fit", None)):
        expected = f"trainers: expected a Trainer or an estimator as net {name!r}"
        raise TypeError(f"{expected}, got {net!r:.100}{class_hint(net)}")
    if isinstance(net, BaseTrainer):
        given = {"verbose": 0, **given}
        if net.comm.size > 1:
            raise ValueError(f"distributed: expected None for net {name!r}, as its ranks fit one net at a time")
    try:
        inspect.signature(net.fit).bind(**given)
    except TypeError as error:
        raise TypeError(f"{type(net).__name__}.fit, for net {name!r}: {error}") from None
    return given


def _fitted_parts(what: str, net: Any) -> dict[str, Any]:
    """Returns a net and, if it is a pipeline of scikit-learn, its steps, which it fits, by description."""
    parts = {what: net}
    if not isinstance(net, type) and hasattr(net, "named_steps"):
        for step, part in net.named_steps.items():
            if hasattr(part, "fit"):
                parts |= _fitted_parts(f"step {step!r} of a pipeline", part)
    return parts


def _check_unshared(nets: dict[Any, Any], calls: dict[Any, dict[str, Any]]) -> None:
    """Raises ValueError if two nets train the same object; what only reads, such as a loss, may be shared."""
    users: dict[int, Any] = {}
    for name, net in nets.items():
        parts = _fitted_parts("trainer", net)
        if isinstance(net, BaseTrainer):
            callbacks = CallbackList(calls[name].get("callbacks", ()))
            parts |= {"model": net.model, "optimizer": net.optimizer}
            leaves = [leaf for layer in net.model.layers for leaf in layer.leaves()]
            parts |= {f"layer {i}, {leaf!r:.60},": leaf for i, leaf in enumerate(leaves)}
            parts |= {f"callback {callback!r:.60}": callback for callback in callbacks if remembers(callback)}
        parts |= {f"iterator {key}": value for key, value in calls[name].items() if hasattr(value, "__next__")}
        parts |= {f"batches {key} with set_epoch": value for key, value in calls[name].items() if epoch_setter(value)}
        for what, part in parts.items():
            if users.get(id(part), name) != name:
                other = users[id(part)]
                raise ValueError(f"trainers: expected its own {what} for each net, got one for {other!r} and {name!r}")
            users[id(part)] = name
