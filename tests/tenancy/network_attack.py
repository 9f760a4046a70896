"""What a process tries that is started as runners are; run by itself, in a network that it makes for that.

    python -m tests.tenancy.network_attack FOLDER

Its network stands for the machine's: there are a node, somebody else's ports, a metadata service and hosts of a
LAN, and nothing leaves it. So it tries what must not reach anything real. It prints what came of each attempt.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from enmasse.pipeline.host import cage
from enmasse.pipeline.host.reach import Reach, parse_hosts
from enmasse.pipeline.host.separation import Confines, clean_environment, find_separation, launch_command
from enmasse.pipeline.host.space_folders import USERS, SpaceFolder
from enmasse.pipeline.host.syscalls import numbers_of

NODE, API = ("127.0.0.1", 5672), ("127.0.0.1", 8080)
MACHINE = (
    "127.0.0.1:5672, 127.0.0.1:8080, 127.0.0.1:6379, 127.0.0.1:22, 169.254.169.254:80, [fd00:ec2::254]:80, "
    "10.1.0.0/16:443, 10.2.0.0/16:443, 10.2.0.0/16:80, 198.51.100.0/24:80, [2001:db8::]:80"
)
OWN = socket.gethostname().lower()
LISTED = f"127.0.0.1:6379, 10.2.0.0/16, known.test:443, moved.test:80, 2001:db8::, not a host, {OWN}:443"
EVERYTHING = "0.0.0.0/0, [::/0]:80"
NAMES = f"127.0.0.1 localhost\n10.1.0.7 known.test\n169.254.169.254 moved.test\n10.1.0.8 other.test\n10.1.0.9 {OWN}\n"
OPEN = "/srv"
"""Stands for a folder that everybody may write to."""

MARK = f"left-by-{os.getpid()}"

ATTEMPTS = r"""
import ctypes, errno, json, os, resource, socket, sys
given = json.loads(sys.argv[1])
found = {}
def attempt(name):
    def run(what):
        try:
            found[name] = what()
        except OSError as error:
            found[name] = type(error).__name__
    return run
def says(host, port):
    with socket.create_connection((host, port), 5) as sock:
        return sock.recv(100).decode()
for host, port in given["places"]:
    attempt(f"{host} {port}")(lambda: says(host, port))
def addresses(host):
    return sorted({item[4][0] for item in socket.getaddrinfo(host, None)})
for host in {host for host, _ in given["places"]}:
    attempt("find " + host)(lambda: addresses(host))
def write(folder):
    path = os.path.join(folder, "left")
    open(path, "w").close()
    os.unlink(path)
    return "written"
for folder in given["folders"]:
    attempt("write " + folder)(lambda: write(folder))
attempt("list /run")(lambda: os.listdir("/run"))
def left():
    open("/tmp/" + given["mark"], "w").close()
    return sorted(os.listdir("/tmp"))
attempt("list /tmp")(left)
@attempt("abstract socket")
def _():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0somebody")
        return sock.recv(100).decode()
attempt("signal")(lambda: os.kill(given["pid"], 0) or "sent")
attempt("memory")(lambda: open("/proc/%d/mem" % given["pid"], "rb").name)
@attempt("network")
def _():
    number = os.open("/proc/%d/ns/net" % given["pid"], os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(number, 0):
        raise OSError(ctypes.get_errno(), "setns")
    return "entered"
def relays():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                if int(file.read().rpartition(") ")[2].split()[1]) == os.getpid():
                    yield int(name)
        except OSError:
            pass
def called(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, (*arguments, *[0] * (6 - len(arguments)))))
    return "done" if result >= 0 else errno.errorcode.get(ctypes.get_errno())
found["calls"] = {name: called(number) for name, number in given["calls"].items()}
found["clone"] = called(given["clone"], 0x10000000 | 17)
found["typing"] = called(given["ioctl"], 0, 0x5412)
def opens(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
    except OSError as error:
        return error.errno != errno.EAFNOSUPPORT
    return True
found["families"] = [number for number in range(48) if any(opens(number, kind) for kind in (1, 2, 3, 5))]
found["netlink"] = [number for number in range(32) if opens(16, 3, number)]
found["processes"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
attempt("keys")(lambda: open("/proc/keys").read())
attempt("first process")(lambda: os.listdir("/proc/1/fd"))
attempt("kill first")(lambda: os.kill(1, 9) or "sent")
attempt("kill relay")(lambda: [os.kill(pid, 9) for pid in relays()] and "killed")
attempt("trace relay")(lambda: [open(f"/proc/{pid}/mem", "rb").name for pid in relays()])
found["core"] = resource.getrlimit(resource.RLIMIT_CORE)
print(json.dumps(found))
"""

PLACES = [
    *(NODE, API), ("127.0.0.1", 6379), ("127.0.0.1", 22), ("169.254.169.254", 80), ("fd00:ec2::254", 80),
    ("10.1.0.7", 443), ("10.2.3.4", 443), ("10.2.3.4", 80), ("10.2.3.4", 22), ("198.51.100.1", 80),
    ("known.test", 443), ("known.test", 80), ("moved.test", 80), ("other.test", 443), ("2001:db8::", 80), (OWN, 443),
]  # fmt: skip


def answer(listening: socket.socket) -> None:
    """Tell each who connects what was reached."""
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.sendall("{} {}".format(*connection.getsockname()).encode())


def listen_in_abstract() -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("\0somebody")
    listening.listen()
    return listening


def become_machine(root: Path) -> list[socket.socket]:
    """Leave the real network for one that stands for a machine's, with its hosts and an open folder."""
    places, problems = parse_hosts(MACHINE)
    assert not problems
    listening = [*cage.enter_namespaces(Reach(places)), listen_in_abstract()]
    cage._mount("none", "/", None, cage.MS_REC | cage.MS_PRIVATE)
    names = root / "hosts"
    names.write_text(NAMES)
    cage._mount(str(names), cage.HOSTS, None, cage.MS_BIND)
    cage._mount("tmpfs", OPEN, "tmpfs", 0, "size=1m,mode=1777")
    for item in listening:
        threading.Thread(target=answer, args=(item,), daemon=True).start()
    return listening


def tried(folder: SpaceFolder, data: Path, confines: Confines) -> dict[str, Any]:
    """What came of each attempt, or of starting the process at all."""
    numbers = numbers_of(os.uname().machine)
    judged = {name: numbers.pop(name) for name in ("clone", "ioctl", "socket")}
    given = {
        "places": PLACES,
        "folders": [OPEN, "/run/lock", str(data), "."],
        "pid": os.getpid(),
        "mark": MARK,
        "calls": numbers,
        **judged,
    }
    command = launch_command(folder, [sys.executable, "-c", ATTEMPTS, json.dumps(given)], data, confines)
    done = subprocess.run(command, env=clean_environment(folder), capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ended_relay(folder: SpaceFolder, data: Path, confines: Confines) -> int:
    """The exit status of a process whose relay is ended, where it would sleep."""
    program = "import time; print(flush=True); time.sleep(60)"
    command = launch_command(folder, [sys.executable, "-c", program], data, confines)
    with subprocess.Popen(command, env=clean_environment(folder), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # It is the first one that was started.
        os.kill(int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]), signal.SIGKILL)
        return process.wait(30)


def greedy(folder: SpaceFolder, data: Path, confines: Confines) -> dict[str, Any]:
    """What becomes of a process whose child takes more memory than they may have, and of the cores that it has."""
    program = (
        "import os, sys, time\n"
        "print(len(os.sched_getaffinity(0)), flush=True)\n"
        "try: os.sched_setaffinity(0, range(os.cpu_count())); print('changed', flush=True)\n"
        "except OSError as error: print(type(error).__name__, flush=True)\n"
        "if not os.fork(): taken = bytearray(os.urandom(1 << 20)) * 300; time.sleep(600)\n"
        "os.wait()"
    )
    command = launch_command(folder, [sys.executable, "-c", program], data, confines)
    done = subprocess.run(command, env=clean_environment(folder), capture_output=True, text=True, check=False)
    return {"said": done.stdout.split(), "status": done.returncode, "log": done.stderr}


def main(root: Path) -> dict[str, Any]:
    """What came of all attempts: with hosts listed, with whole networks listed, and without a cage."""
    data = root / "data"
    for name in ("control", "pipelines"):
        (data / name).mkdir(parents=True)
    (data / "control" / "operator.token").write_text("enm_secret")
    is_root = os.getuid() == 0
    kept = become_machine(root)
    separation = find_separation(data, data / "pipelines")
    folder = SpaceFolder(data / "pipelines" / "team-a.red", USERS.stop - 1 if is_root else None)
    folder.make()
    ours = (NODE, API)
    found: dict[str, Any] = {
        "problem": separation.uncaged,
        "crowded": separation.crowded,
        "unfiltered": separation.unfiltered,
        "listed": tried(folder, data, Confines(ours, LISTED, is_caged=True, is_alone=separation.is_alone)),
        "everything": tried(folder, data, Confines(ours, EVERYTHING, is_caged=True)),
        "mark": MARK,
        "left": Path("/tmp", MARK).exists(),
        # Without a view, another user may not be able to read the program: it stays who it is.
        "uncaged": tried(SpaceFolder(folder.path, None), data, Confines(ours)),
        "greedy": greedy(folder, data, Confines((NODE,), is_caged=True, is_alone=True, memory=200 << 20, cores=1))
        if separation.is_alone
        else None,
        "without relay": [
            ended_relay(folder, data, Confines((NODE,), is_caged=True, is_alone=is_alone))
            for is_alone in {False, separation.is_alone}
        ],
    }
    Path("/tmp", MARK).unlink(missing_ok=True)
    del kept
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201  # to the test
