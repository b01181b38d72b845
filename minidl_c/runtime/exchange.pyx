"""The phases of steps that several processes do together, and what these exchange between them. See partition.pyx."""
from numpy import zeros

from minidl_c.array_args cimport Arguments
from minidl_c.runtime.executor cimport begin_job, run_part
from minidl_c.runtime.partition cimport find_nodes, width_of
from minidl_c.runtime.run_state cimport JOIN, NODES, RANGES, phase


cdef int run_shared(job *j, sharing *s, list rooms, Py_ssize_t rounds, object share) except -1:
    """All phases, `rounds` times over; share.alltoallv and share.allgatherv exchange bytes (see minidl/distributed/mpi.py).

    rooms: where the call before has left its three arrays, new memory being slow. If an exchange raises, the steps before
    are done, and of this one nothing: j.stopped.
    """
    cdef Arguments room = Arguments()
    cdef Py_ssize_t most = 0, round = 0
    cdef const phase *f
    cdef int k, first
    for k in range(j.n_phases):
        most = max(most, j.phases[k].at[RANGES])
    nodes = find_nodes(s, s.all[s.n_all])
    sizes = [s.n_own * most, s.n_all * most, most]
    if [len(one) for one in rooms] != sizes:
        rooms[:] = [zeros(size, "uint8") for size in sizes]
    mine, everyones, joined = rooms
    s.mine, s.everyones = room.take(mine, "uint8", -1, 1, True, "mine"), room.take(everyones, "uint8", -1, 1, True, "everyones")
    s.joined = room.take(joined, "uint8", -1, 1, True, "joined")
    begin_job(j)
    try:
        for round in range(rounds):
            first = 0
            for k in range(j.n_phases):
                f = &j.phases[k]
                if f.kind not in (NODES, JOIN) and k + 1 < j.n_phases:
                    continue
                with nogil:
                    run_part(j, round, first, k + 1)
                first = k + 1
                widths = [width_of(f, rank, s) for rank in range(s.ranks)]
                if f.kind == NODES:
                    sent = [s.n_own * width for width in widths]
                    share.alltoallv(mine, sent, everyones, [n * widths[s.rank] for n in nodes])
                elif f.kind == JOIN:
                    share.allgatherv(joined, widths)
            if j.stopped >= 0:
                break
    except:
        j.stopped = round
        raise
    finally:
        room.give_back()
    return 0
