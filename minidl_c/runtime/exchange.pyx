"""The phases of steps that several processes do together, and what these exchange between them. See partition.pyx."""
from numpy import zeros

from minidl_c.array_args cimport ArrayArgs
from minidl_c.runtime.executor cimport begin_run, execute_phases
from minidl_c.runtime.partition cimport find_nodes, width_of
from minidl_c.runtime.run_state cimport COMBINE, PARTIALS, RANGES, phase


cdef int run_shared(run_state *run, partition *s, list rooms, Py_ssize_t rounds, object comm) except -1:
    """All phases, `rounds` times over; comm.alltoallv and comm.allgatherv exchange bytes (see minidl/distributed/mpi.py).

    rooms: where the call before has left its three arrays, new memory being slow. If an exchange raises, the steps before
    are done, and of this one nothing: run.train.stopped.
    """
    cdef ArrayArgs room = ArrayArgs()
    cdef Py_ssize_t most = 0, round = 0
    cdef const phase *f
    cdef int k, first
    for k in range(run.program.n_phases):
        most = max(most, run.program.phases[k].at[RANGES])
    nodes = find_nodes(s, s.all[s.n_all])
    sizes = [s.n_own * most, s.n_all * most, most]
    if [len(one) for one in rooms] != sizes:
        rooms[:] = [zeros(size, "uint8") for size in sizes]
    local, remote, combined = rooms
    s.local, s.remote = room.acquire(local, "uint8", -1, 1, True, "local"), room.acquire(remote, "uint8", -1, 1, True, "remote")
    s.combined = room.acquire(combined, "uint8", -1, 1, True, "combined")
    begin_run(run)
    try:
        for round in range(rounds):
            first = 0
            for k in range(run.program.n_phases):
                f = &run.program.phases[k]
                if f.kind not in (PARTIALS, COMBINE) and k + 1 < run.program.n_phases:
                    continue
                with nogil:
                    execute_phases(run, round, first, k + 1)
                first = k + 1
                widths = [width_of(f, rank, s) for rank in range(s.size)]
                if f.kind == PARTIALS:
                    sent = [s.n_own * width for width in widths]
                    comm.alltoallv(local, sent, remote, [n * widths[s.rank] for n in nodes])
                elif f.kind == COMBINE:
                    comm.allgatherv(combined, widths)
            if run.train.stopped >= 0:
                break
    except:
        run.train.stopped = round
        raise
    finally:
        room.release()
    return 0
