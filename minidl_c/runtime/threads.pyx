"""How many threads a call may use: the only setting of this package.

An explicit number and OMP_NUM_THREADS are taken as they are, up to 1024 threads. Only the default is limited: to the processors this process
may run on (affinity, cgroup quota), and to one thread for little work. OpenMP's own limit is read at each call, so that
threadpoolctl and joblib act on it.
"""
import os
from operator import index

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define MINIDL_OPENMP 1
    static int openmp_limit(void) { return omp_get_max_threads(); }
    #else
    #define MINIDL_OPENMP 0
    static int openmp_limit(void) { return 1; }
    #endif
    """
    const int MINIDL_OPENMP
    int openmp_limit()

MAX_THREADS = 1024

cdef double LITTLE_ROUND = 2e6          # multiply-adds, about 40 us: threads would wait for each other longer than they work
cdef double LITTLE_CALL = 16e6          # about 0.3 ms: a second thread saves less than a busy machine takes to run it
_told = "OMP_NUM_THREADS" in os.environ          # read once, as OpenMP does: dask sets it later on, for its workers
_chosen = None          # what set_num_threads was given
_forked = False         # libgomp's threads do not survive a fork: a child that opens a region hangs for ever


def _processors():
    """The processors this process may use: affinity, and the quota of its cgroup."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass                                                  # no cgroup v2, or no limit in it
    return count


_available = _processors()


def _after_fork():
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def openmp():
    """Whether this build can use more than one thread."""
    return bool(MINIDL_OPENMP)


def check_num_threads(num_threads):
    """Returns num_threads if it is a whole number from 1 to 1024; raises TypeError or ValueError otherwise."""
    if isinstance(num_threads, bool) or not hasattr(num_threads, "__index__"):
        raise TypeError(f"num_threads: expected a whole number or None, got {num_threads!r}")
    number = index(num_threads)
    if not 1 <= number <= MAX_THREADS:
        raise ValueError(f"num_threads: expected 1 to {MAX_THREADS}, got {number}")
    return number


def set_num_threads(num_threads):
    """Sets the number of threads of every call that names none. None returns to the default.

    Raises TypeError or ValueError for anything but None or a whole number from 1 to 1024.
    """
    global _chosen
    _chosen = None if num_threads is None else check_num_threads(num_threads)


def get_num_threads():
    """The number of threads of a call that names none, as things stand now."""
    return threads_for(None, LITTLE_CALL, 1)


def limit_default(share):
    """Lets the default be this share of the processors, at least one: other processes run on them as well.

    Raises ValueError for a share that is not above 0 and at most 1.
    """
    global _available
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number above 0, and at most 1, got {share!r}")
    _available = max(1, int(_processors() * share + 1e-6))


cdef int threads_for(object num_threads, double work, double rounds) except -1:
    """The number of threads for a call of so many rounds, of `work` multiply-adds each, that asks for `num_threads`."""
    if num_threads is not None:
        num_threads = check_num_threads(num_threads)
    elif _chosen is not None:
        num_threads = _chosen
    else:
        num_threads = max(1, min(openmp_limit(), MAX_THREADS))         # of a number too large for it, OpenMP takes any
        if not _told:
            little = work < LITTLE_ROUND or work * rounds < LITTLE_CALL
            num_threads = 1 if little else min(num_threads, _available)
    return 1 if _forked or not MINIDL_OPENMP else num_threads
