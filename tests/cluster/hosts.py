"""Makes hosts of Linux namespaces: a network address, a hostname, processes, directories and a home of their own each.

All hosts live inside one outer namespace, whose first process is the command. When it ends, however it ends, the kernel
ends all processes of all hosts and removes their networks and directories; nothing outside was changed.

    the switch           a bridge that all hosts are connected to; the command itself
    driver               where the checks run
    master, worker1..3   Spark's standalone manager
    store                an object store with the protocol of S3
    hdfs                 a name node and a data node of HDFS

The installed environment is the file system of this machine, read-only, as a container image would be. Everything that
can be written is a host's own: /tmp, /var/tmp, /dev/shm, and below /home its home and its data. Hosts share the
network, the object store and HDFS. `MOUNTED` is one directory on all of them, as a network file system would be: only
the checks of what such a directory is good for (test_places.py), and those over Spark Connect, use it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME, DATA, MOUNTED = Path("/home/spark"), Path("/home/data"), Path("/home/mounted")
_OWN = ("/tmp", "/var/tmp", "/dev/shm", "/home")
_RUN = Path("/run")
_NETWORK = "10.77.0"


@dataclass(frozen=True, slots=True)
class Host:
    """A host by name and last number of its address; its home may be one that no user can write to."""

    name: str
    number: int
    has_home: bool = True

    @property
    def address(self) -> str:
        """The address on the bridge."""
        return f"{_NETWORK}.{self.number}"


DRIVER, MASTER = Host("driver", 2), Host("master", 10)
WORKERS = (Host("worker1", 11), Host("worker2", 12), Host("worker3", 13, has_home=False))
STORE, HDFS = Host("store", 20), Host("hdfs", 30)
HOSTS = (DRIVER, MASTER, *WORKERS, STORE, HDFS)


def run(*command: object) -> None:
    """Run a command; its output is part of the error if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")


# ---------------------------------------------------------------------- outside, and in the switch


def alone(command: Sequence[str]) -> list[str]:
    """The command as first process of namespaces of its own; all of them end with the process that starts it."""
    private = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig", "KILL", *private, *command]


def refusal() -> str | None:
    """Why this machine cannot have such hosts; None if it can."""
    try:
        run(*alone(["sh", "-c", "ip link add name probe type bridge && ip netns list && mount -t tmpfs tmpfs /run"]))
    except OSError as error:
        return str(error)
    return None


def make_switch() -> None:
    """Make the bridge and all hosts' networks in this namespace; what is mounted here is not seen outside."""
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "tmpfs", _RUN)
    (_RUN / "mounted").mkdir()
    (_RUN / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in HOSTS))
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "name", "bridge", "type", "bridge")
    run("ip", "address", "add", f"{_NETWORK}.1/24", "dev", "bridge")
    run("ip", "link", "set", "bridge", "up")
    for host in HOSTS:
        run("ip", "netns", "add", host.name)
        run("ip", "link", "add", "name", host.name, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        run("ip", "link", "set", "dev", host.name, "master", "bridge", "up")
        run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", host.name, "link", "set", device, "up")


def on(host: Host, command: Sequence[str]) -> list[str]:
    """The command on a host. Processes of the driver see those of all hosts, so that checks can end some."""
    own = [] if host == DRIVER else ["--pid", "--fork", "--kill-child", "--mount-proc"]
    enter = [sys.executable, "-m", "tests.cluster.hosts", host.name]
    return ["ip", "netns", "exec", host.name, "unshare", "--mount", "--uts", *own, *enter, *command]


def in_switch(*command: object) -> None:
    """Run a command in the switch, from the driver."""
    run("nsenter", "--target", 1, "--mount", "--net", *command)


# ---------------------------------------------------------------------- on a host


def _enter(host: Host, command: list[str]) -> None:
    """Become the command, on the host's own directories."""
    run("hostname", host.name)
    run("mount", "--make-rprivate", "/")
    run("mount", "--bind", _RUN / "hosts", "/etc/hosts")
    _own_directories([Path(place) for place in os.environ["CLUSTER_KEEPS"].split(":")])
    for directory in (HOME, DATA):
        directory.mkdir(exist_ok=True)
    os.chdir(DATA)
    home = HOME if host.has_home else Path("/var/empty")
    os.execvpe(command[0], command, os.environ | {"HOME": str(home), "PYTHONPATH": str(ROOT)})


def _own_directories(kept: list[Path]) -> None:
    """Everything read-only but fresh directories; what lies below those and is `kept` is in them, read-only."""
    before = _RUN / "before"
    before.mkdir(exist_ok=True)
    run("mount", "--rbind", "/", before)
    for place in _OWN:
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place)
    for place in kept:
        if any(place.is_relative_to(own) for own in _OWN) and not place.exists():
            place.mkdir(parents=True)
            run("mount", "--bind", before / place.relative_to("/"), place)
            run("mount", "-o", "remount,bind,ro", place)
    MOUNTED.mkdir()
    run("mount", "--bind", _RUN / "mounted", MOUNTED)
    run("mount", "-t", "tmpfs", "tmpfs", _RUN)  # over all of it: the switch is not seen from here
    run("mount", "-o", "remount,bind,ro", "/")


if __name__ == "__main__":
    _enter(next(host for host in HOSTS if host.name == sys.argv[1]), sys.argv[2:])
