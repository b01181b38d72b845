"""The number of threads of a call: the only setting of this package.

An explicit number and OMP_NUM_THREADS may be up to 1024 threads. Only the default is limited, to the processors on which this
process may run (affinity, cgroup quota). The limit of OpenMP, or of minidl's own thread pool, is read at each call, so that
threadpoolctl and joblib have their effect.

A call may use that number of threads, and uses as many as make it faster: no more than there are cores, in a prediction those that have
enough work (THREAD_WORK), in training as many as the model of schedule.pyx finds. The default is one thread for training steps of little
work.
"""
import os
import warnings
from operator import index

cdef extern from "minidl_c/runtime/calls.h" nogil:
    void forget_calls()
    int computing_calls()
    int calls_are_rare()
    void begin_computing()
    void end_computing(int cores)
    void take_turn()

cdef extern from *:
    """
    static _Thread_local int most;                        /* threads of the calls of this thread; 0: any number */
    static int limit_own_calls(int number) { int before = most; most = number; return before; }
    static int limited(int number) { return most && number > most ? most : number; }
    #ifdef _OPENMP
    #include <omp.h>
    #define MINIDL_OPENMP 1
    static int thread_limit(void) { return omp_get_max_threads(); }
    static void init_limit(int number) { (void)number; }                    /* OpenMP reads OMP_NUM_THREADS itself */
    #else
    #define MINIDL_OPENMP 0
    /* The limit of a thread is that of the process unless it was set, as in OpenMP. Exported: see minidl/utils/threadpool.py. */
    static int process_limit;
    static _Thread_local int own_limit;
    Py_EXPORTED_SYMBOL int minidl_get_num_threads(void) { return own_limit ? own_limit : process_limit; }
    Py_EXPORTED_SYMBOL void minidl_set_num_threads(int number) { own_limit = number < 1 ? 1 : number; }
    static int thread_limit(void) { return minidl_get_num_threads(); }
    static void init_limit(int number) { process_limit = number; }
    #endif
    """
    const int MINIDL_OPENMP
    int thread_limit()
    void init_limit(int number)
    int limit_own_calls(int number)
    int limited(int number)

MAX_THREADS = 1024

cdef double MIN_STEP_WORK = 2e6         # multiply-adds, about 40 us: in less, threads wait for each other longer than they work
cdef double MIN_CALL_WORK = 4e6         # about 50 us: in less, a second thread saves less than a busy machine takes to run it
# Multiply-adds of each thread of a prediction, at least: about 50 us, what it takes to wake a thread that sleeps. Measured on two cores
# (predict of one example with two threads and with one, in turn, at once and after pauses of 20 ms, the fastest of each): with 0.2 to 2.4
# million multiply-adds, two threads took 0.95 to 1.7 times as long, after a pause 1 to 26 times; with 11 to 12 million, 0.65 to 0.85 times,
# but a net of many small layers 1.4 times at once.
cdef double THREAD_WORK = 2e6
# Multiply-adds of a prediction for which threads that sleep are woken: about 4 ms. Measured on two cores, after sleeps of 10 ms: with 12 to
# 190 million multiply-adds, two threads took 0.83 to 1.5 times as long as one; with 240 million and more, 0.57 to 0.76 times.
cdef double WAKING_WORK = 1.5e8
cdef double LOCKED_WORK = 2e5           # about 5 us: to give up the interpreter's lock for less costs more than others gain
cdef bint _chooses = True               # else calls use all threads that they may, however little work they have
_num_threads = None     # the argument of set_num_threads
_forked = False         # OpenMP's threads do not survive a fork: a child that opened a region would hang
_warned = False         # set_num_threads has said so in this process


def _processors():
    """Returns the number of processors this process may use: its affinity, and the quota of its cgroup."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass                                                  # no cgroup v2, or no quota in it
    return count


_available = _processors()
cdef int _cores = _available            # more threads than cores make no call faster


def _omp_num_threads():
    """Returns the value of OMP_NUM_THREADS, of which the first number is that of this level; None without a valid one."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    digits = first.lstrip("0")
    return min(int(digits[:9]), MAX_THREADS) if digits and first.isdecimal() else None       # int refuses thousands of digits


init_limit(_omp_num_threads() or min(_available, MAX_THREADS))
_limit_is_set = _omp_num_threads() is not None         # read once, as OpenMP does: dask sets it later, for its workers


def _after_fork():
    global _forked
    _forked = True
    forget_calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def openmp():
    """Returns True if the threads are OpenMP's, False if they are those of minidl's own pool."""
    return bool(MINIDL_OPENMP)


def check_num_threads(num_threads):
    """Returns num_threads if it is a whole number from 1 to 1024; raises TypeError or ValueError otherwise."""
    try:
        if isinstance(num_threads, bool):
            raise TypeError
        number = index(num_threads)
    except TypeError:                                         # also raised by __index__ of an array
        raise TypeError(f"num_threads: expected a whole number or None, got {num_threads!r}") from None
    if not 1 <= number <= MAX_THREADS:
        raise ValueError(f"num_threads: expected 1 to {MAX_THREADS}, got {number}")
    return number


def set_num_threads(num_threads):
    """Sets the largest number of threads of every call without `num_threads`.

    A call takes fewer if more would not make it faster. With OpenMP, a forked child computes on one thread, whatever the
    number is: there, the first call with another one gives a RuntimeWarning, which names the remedies.

    Parameters
    ----------
    num_threads : int or None
        From 1 to 1024; None restores the default, see `get_num_threads`.

    Raises
    ------
    TypeError, ValueError
        For anything else.

    Examples
    --------
    >>> import minidl
    >>> minidl.set_num_threads(2)
    >>> minidl.get_num_threads()
    2
    >>> minidl.set_num_threads(None)
    """
    global _num_threads, _warned
    _num_threads = None if num_threads is None else check_num_threads(num_threads)
    if _forked and MINIDL_OPENMP and not _warned and num_threads is not None and _num_threads > 1:
        _warned = True
        warnings.warn(
            f"set_num_threads({_num_threads}): a forked child computes on one thread, because OpenMP's threads do not survive a fork; "
            "start processes with multiprocessing's method 'spawn' (or 'forkserver', and import minidl in the child alone), "
            "or build minidl with threads of its own, MINIDL_NO_OPENMP=1",
            RuntimeWarning,
            stacklevel=1,       # the caller: this function is compiled, and no frame
        )


def get_num_threads():
    """Returns the number of threads of a call without `num_threads`.

    It is that of `set_num_threads`, else that of OMP_NUM_THREADS. Without both, it is the number of processors on which
    this process may run (affinity, cgroup quota), and training with little work takes one thread. The limits that
    threadpoolctl and joblib set are read at each call. A call takes fewer threads if more would not make it faster.

    Returns
    -------
    int
        For a call with enough work for several threads.

    Examples
    --------
    >>> import minidl
    >>> minidl.get_num_threads() >= 1
    True
    """
    return most_threads(None)


def set_thread_choice(bint chooses, cores=None):
    """Turns the choice of the number of threads on or off; returns whether it was on. For tests.

    Without it, calls use all threads that they may. cores: the number to choose for; None: those of the machine.
    """
    global _chooses, _cores
    before, _chooses = _chooses, chooses
    _cores = _processors() if cores is None else check_num_threads(cores)
    return before


def limit_thread(int number):
    """Limits all calls of this thread, also those with a `num_threads`, to this number of threads; returns the limit before.

    0: no limit. Other threads have limits of their own, none at first.
    """
    return limit_own_calls(max(0, number))


def limit_default(share):
    """Limits the default to this share of the processors, at least one: other processes run on them as well.

    Raises ValueError unless 0 < share <= 1.
    """
    global _available
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number above 0, and at most 1, got {share!r}")
    _available = max(1, int(_processors() * share + 1e-6))


cdef bint chooses_threads() noexcept:
    return _chooses


cdef int most_threads(object num_threads) except -1:
    """Returns the number of threads that a call may use; num_threads: its argument."""
    if num_threads is not None:
        num_threads = check_num_threads(num_threads)
    elif _num_threads is not None:
        num_threads = _num_threads
    else:
        num_threads = max(1, min(thread_limit(), MAX_THREADS))         # OpenMP may return any number if its limit is too large
        if not _limit_is_set:
            num_threads = min(num_threads, _available)
    return 1 if _forked and MINIDL_OPENMP else limited(num_threads)


cdef int threads_for(object num_threads, double work, double n_steps) except -1:
    """Returns the number of threads of n_steps training steps of `work` multiply-adds each."""
    cdef bint is_small = work < MIN_STEP_WORK or work * n_steps < MIN_CALL_WORK
    cdef int most = most_threads(num_threads)
    if is_small and num_threads is None and _num_threads is None and not _limit_is_set:
        return 1
    return min(most, _cores) if _chooses else most


cdef int threads_of_prediction(object num_threads, double work) except -1:
    """Returns the number of threads of a prediction of `work` multiply-adds: other calls may compute now, or none since long."""
    cdef int most = most_threads(num_threads)
    if not _chooses:
        return most
    if calls_are_rare() and work < WAKING_WORK:
        return 1
    return <int> max(1.0, min(<double> min(most, _cores // (computing_calls() + 1)), work / THREAD_WORK))


cdef bint keeps_lock(double work) noexcept:
    """Whether a call on one thread keeps the interpreter's lock: it computes for a few microseconds."""
    return work < LOCKED_WORK


cdef void begin_call() noexcept nogil:
    """Begins a computation, after which the interpreter's lock is given up."""
    begin_computing()


cdef void end_call() noexcept nogil:
    """Ends it, before the interpreter's lock is taken back."""
    end_computing(_cores)


cdef void take_lock() noexcept:
    """Says that the caller has the interpreter's lock again."""
    take_turn()
