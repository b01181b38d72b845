"""Thread pools side by side: threadpoolctl and joblib limit that of minidl, and minidl limits that of the BLAS."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from minidl.utils.hints import warn_caller
from minidl_c.runtime.threads import limit_thread, openmp

ALL_THREADS = (
    "parts in Python use all threads of NumPy's BLAS, which may be slower beside those of minidl: limiting them needs "
    "threadpoolctl: pip install threadpoolctl"
)


def register() -> None:
    """Registers the pool with threadpoolctl, if this build has one; without threadpoolctl, nothing limits it."""
    if openmp():
        return
    with suppress(ModuleNotFoundError):
        import threadpoolctl

        from minidl.utils.thread_pool_controller import ThreadPoolController

        threadpoolctl.register(ThreadPoolController)


@contextmanager
def at_most(num_threads: int | None) -> Iterator[None]:
    """A context in which calls of this thread take at most this number of threads; None: as many as before."""
    before = limit_thread(0)
    limit_thread(min(filter(None, (before, num_threads)), default=0))
    try:
        yield
    finally:
        limit_thread(before)


class OneBlasThread:
    """A context in which NumPy's BLAS computes on one thread, in the whole process: `with one_blas_thread`.

    Its threads wait actively, for minidl's and for each other, on cores where other processes run too. Contexts nest,
    also those of several threads: the last one to end restores the number. A BLAS whose threads are OpenMP's is left
    alone: its limit would be that of minidl's threads as well.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._before: list[tuple[Any, int]] = []  # controllers of libraries that are limited, and their threads before
        self._libraries, self._modules = list[Any](), 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._unlock)

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                threads = [(library, library.get_num_threads()) for library in self._find()]
                self._before = [(library, number) for library, number in threads if number != 1]
                for library, _ in self._before:
                    _set_threads(library, 1)
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                for library, number in self._before:
                    _set_threads(library, number)

    def _find(self) -> list[Any]:
        """Returns threadpoolctl's controllers; looks for libraries only after an import, which may have loaded one.

        Warns once if threadpoolctl is missing.
        """
        if len(sys.modules) != self._modules:
            try:
                import threadpoolctl
            except ModuleNotFoundError:
                if not self._modules:
                    warn_caller(ALL_THREADS)
                self._modules = len(sys.modules)
                return []
            found = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
            self._libraries = [one for one in found if getattr(one, "threading_layer", None) != "openmp"]
            self._modules = len(sys.modules)
        return self._libraries

    def _unlock(self) -> None:
        self._lock = threading.Lock()  # after a fork: the thread that holds it may not exist here


def _set_threads(library: Any, number: int) -> None:
    """Sets a library's number of threads.

    threadpoolctl 3.8 lets only one thread of Python do that to OpenBLAS, the first one as long as it lives, and ignores
    all others. Contexts are counted here, so that any may, without taking it from the user's threads.
    """
    getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


one_blas_thread = OneBlasThread()
