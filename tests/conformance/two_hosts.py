"""Two hosts on one machine, made of namespaces: each has a network, a name, processes and shared memory of its own, and
sshd. A bridge in a third network joins them, so that a wire can be cut without a word to either of them."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("ip", "unshare", "nsenter", "taskset", "sshd", "ssh-keygen")
NETS = ("minidl1", "minidl2", "minidl0")  # of the hosts, and of the bridge
START = """\
hostname {name}; mount -t proc proc /proc; mount -t tmpfs tmpfs /dev/shm
mount --bind {folder}/hosts /etc/hosts
exec taskset -c {core} {sshd} -D -e -f {folder}/sshd.conf
"""
SSHD = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/id.pub
StrictModes no
PidFile none
UsePAM no
PermitRootLogin yes
"""
SSH = """\
Host one
 HostName 10.77.0.1
Host two
 HostName 10.77.0.2
Host *
 IdentityFile {folder}/id
 StrictHostKeyChecking no
 UserKnownHostsFile /dev/null
 LogLevel ERROR
 ServerAliveInterval 2
 ServerAliveCountMax {alive}
"""


def missing():
    """Returns what the hosts cannot be made without, in words; None if all is there."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "needs root"
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"needs {', '.join(absent)} (Debian: iproute2, util-linux, openssh-server)" if absent else None


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, stderr=None if check else subprocess.DEVNULL)


class Host:
    """A host: `name`, and its first process."""

    def __init__(self, number, folder):
        self.name, self.number, self.folder = ("one", "two")[number - 1], number, folder
        cores = sorted(os.sched_getaffinity(0))
        text = START.format(name=self.name, folder=folder, core=cores[number % len(cores)], sshd=shutil.which("sshd"))
        self.log = folder / f"{self.name}.log"
        command = ["ip", "netns", "exec", NETS[number - 1], "unshare", "--uts", "--ipc", "--pid", "--mount", "--fork"]
        command += ["--kill-child", "sh", "-c", text]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.first = self._first_process()

    def _first_process(self):
        """Waits for sshd; returns its number."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for _ in range(1000):
            if "Server listening" in self.log.read_text():
                return int(children.read_text())
            time.sleep(0.01)
        raise TimeoutError(f"host {self.name} does not start: {self.log.read_text()}")

    def start(self, *command, **options):
        """Starts a command on this host, in a session of its own."""
        enter = ["nsenter", "--target", str(self.first), "--all", *map(str, command)]
        return subprocess.Popen(enter, start_new_session=True, **options)

    def processes(self, word=""):
        """Returns the processes of the host whose command lines contain a word, except those of its sshd."""
        space, found = os.readlink(f"/proc/{self.first}/ns/pid"), []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if not entry.isdigit() or int(entry) == self.first or os.readlink(f"/proc/{entry}/ns/pid") != space:
                    continue
                state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
                line = Path(f"/proc/{entry}/cmdline").read_bytes().decode()
                if state != "Z" and word in line and not line.startswith("sshd"):
                    found.append(int(entry))
        return found

    def lose_power(self):
        """Ends all of its processes at once."""
        os.kill(self.first, signal.SIGKILL)
        self.process.wait()


class Hosts:
    """A context with two hosts, joined by a wire. folder: a new one for its files, which both see.

    ssh_seconds: ssh gives up a host that has been silent for as long.
    """

    def __init__(self, ssh_seconds):
        self.ssh_seconds = ssh_seconds

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp())
        self.remove_nets()
        for name, text in {"sshd.conf": SSHD, "ssh.conf": SSH}.items():
            (self.folder / name).write_text(text.format(folder=self.folder, alive=self.ssh_seconds // 2 - 1))
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 one\n10.77.0.2 two\n")
        for key in ("id", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        os.makedirs("/run/sshd", exist_ok=True)
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(f'#!/bin/sh\nexec ssh -F {self.folder}/ssh.conf "$@"\n')
        self.ssh.chmod(0o755)
        for net in NETS:
            ip("netns", "add", net)
        ip("-n", NETS[2], "link", "add", "bridge", "type", "bridge")
        ip("-n", NETS[2], "link", "set", "bridge", "up")
        for number, net in enumerate(NETS[:2], 1):
            ip("link", "add", "wire", "netns", net, "type", "veth", "peer", "name", f"wire{number}", "netns", NETS[2])
            ip("-n", net, "address", "add", f"10.77.0.{number}/24", "dev", "wire")
            ip("-n", NETS[2], "link", "set", f"wire{number}", "up")
            for device in ("lo", "wire"):
                ip("-n", net, "link", "set", device, "up")
        self.join()
        self.one, self.two = self.hosts = [Host(number, self.folder) for number in (1, 2)]
        return self

    def join(self):
        for number in (1, 2):
            ip("-n", NETS[2], "link", "set", f"wire{number}", "master", "bridge")

    def cut(self):
        """Cuts the wire: packets are lost, and neither host is told."""
        ip("-n", NETS[2], "link", "set", "wire2", "nomaster")

    def __exit__(self, *error):
        for host in self.hosts:
            if host.process.poll() is None:
                host.lose_power()
        self.remove_nets()
        shutil.rmtree(self.folder)

    def remove_nets(self):
        for net in NETS:
            ip("netns", "delete", net, check=False)
