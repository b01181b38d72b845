"""Steps that several processes run together: phases, and the messages between them. See partition.pyx."""
from numpy import zeros

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport LANES
from minidl_c.runtime.executor cimport begin_run, execute_phases
from minidl_c.runtime.partition cimport find_nodes, width_of
from minidl_c.runtime.run_state cimport COMBINE, PARTIALS, REDUCE_TASKS, phase
from minidl_c.runtime.schedule cimport find_slots


cdef int run_distributed(run_state *run, partition *s, list buffers, Py_ssize_t n_steps, object comm) except -1:
    """Runs all phases of n_steps steps; comm.alltoallv and comm.allgatherv exchange bytes, and comm.mark notes the
    step (see minidl/distributed/mpi.py).

    buffers: the three arrays of the previous call, if any; they are used again if they have the same sizes, since new memory is slow.
    If an exchange raises, the steps before it are complete, and its own step, `run.train.stopped`, has changed nothing.
    """
    cdef ArrayArgs arguments = ArrayArgs()
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t width = 0, step = 0
    cdef const phase *f
    cdef int k, first
    for k in range(run.program.n_phases):
        width = max(width, run.program.phases[k].offsets[REDUCE_TASKS])
    node_counts = find_nodes(s, find_slots((run.schedule.total_examples + LANES - 1) // LANES, starts))
    sizes = [s.n_local_nodes * width, s.n_nodes * width, width]
    if [len(array) for array in buffers] != sizes:
        buffers[:] = [zeros(size, "uint8") for size in sizes]
    local, received, combined = buffers
    s.local = arguments.acquire(local, "uint8", -1, 1, True, "local")
    s.received = arguments.acquire(received, "uint8", -1, 1, True, "received")
    s.combined = arguments.acquire(combined, "uint8", -1, 1, True, "combined")
    begin_run(run)
    try:
        for step in range(n_steps):
            comm.mark(run.train.first_step + step)
            first = 0
            for k in range(run.program.n_phases):
                f = &run.program.phases[k]
                if f.kind not in (PARTIALS, COMBINE) and k + 1 < run.program.n_phases:
                    continue
                with nogil:
                    execute_phases(run, step, first, k + 1)
                first = k + 1
                widths = [width_of(f, rank, s) for rank in range(s.size)]
                if f.kind == PARTIALS:
                    send_counts = [s.n_local_nodes * w for w in widths]
                    comm.alltoallv(local, send_counts, received, [n * widths[s.rank] for n in node_counts])
                elif f.kind == COMBINE:
                    comm.allgatherv(combined, widths)
            if run.train.stopped >= 0:
                break
    except:
        run.train.stopped = step
        raise
    finally:
        arguments.release()
    return 0
