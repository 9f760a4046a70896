# ruff: noqa: T201  what it prints is what it is for
"""A client, a load balancer and a node on three machines, which are networks of this process's own; run by itself.

    unshare --net --pid --mount-proc --kill-child --fork python -m tests.interop.balancer_network FOLDER

The machine that it begins on is the node's (10.72.0.2). HAProxy runs on the second (10.72.0.1, to the client
10.71.0.1), and the client on the third (10.71.0.2). It prints what the client was answered, and what the node told.
All of it ends with this process.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from enmasse.cli.commands.declare.user import user as user_commands
from enmasse.client import TlsOptions, blocking, connect
from enmasse.drivers.authority import Authority
from tests.support.foreign_tools import HAPROXY
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.proxy_headers import binary

PASSWORD = "correct horse"
PLACES = {"passed through": 5671, "in the clear": 5672, "ended": 5673, "ended, then TLS": 5674, "only then TLS": 5675}
IN_TLS = ("passed through", "ended", "ended, then TLS")

CONFIG = """
defaults
    mode tcp
    maxconn 1000
    timeout connect 5s
    timeout client 1m
    timeout server 1m
    option httpchk GET /readyz
    default-server check check-send-proxy inter 200ms

listen passed-through
    bind 10.71.0.1:5671
    server node 10.72.0.2:5671 send-proxy-v2

listen in-the-clear
    bind 10.71.0.1:5672
    server node 10.72.0.2:5671 send-proxy

listen ended
    bind 10.71.0.1:5673 ssl crt balancer.pem
    server node 10.72.0.2:5671 send-proxy-v2-ssl proxy-v2-options authority

listen ended-then-tls
    bind 10.71.0.1:5674 ssl crt balancer.pem
    server node 10.72.0.2:5671 ssl verify required ca-file ca.crt verifyhost localhost check-ssl send-proxy-v2-ssl

listen only-then-tls
    bind 10.71.0.1:5675
    server node 10.72.0.2:5671 ssl verify required ca-file ca.crt verifyhost localhost check-ssl send-proxy-v2-ssl
"""


# The client


def _text(word: str) -> bytes:
    return len(word).to_bytes(2, "big") + word.encode()


def _mqtt(name: str) -> bytes:
    content = b"\0\4MQTT\4\xc2\0\x3c" + _text("") + _text(name) + _text(PASSWORD)
    return bytes([0x10, len(content)]) + content


def _stomp(name: str) -> bytes:
    return f"CONNECT\naccept-version:1.2\nhost:/\nlogin:{name}\npasscode:{PASSWORD}\n\n\0".encode()


def _http(name: str) -> bytes:
    user, _, space = name.partition("@")
    proof = b64encode(f"{user}:{PASSWORD}".encode()).decode()
    line = f"Authorization: Basic {proof}\r\n" if space.startswith("guarded") else ""
    path = f"/v1/spaces/{space}/addresses/none/messages"
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{line}Connection: close\r\n\r\n".encode()


RAW: dict[str, tuple[Callable[[str], bytes], bytes]] = {
    "MQTT": (_mqtt, b"\x20\x02\0\0"),
    "STOMP": (_stomp, b"CONNECTED"),
    "HTTP": (_http, b"HTTP/1.1 404"),
}
"""What a client says, by its user, and the beginning of the answer to one who is let in."""


def _trusting(folder: Path, where: str) -> ssl.SSLContext:
    return ssl.create_default_context(
        cafile=str(folder / ("ca.crt" if where == "passed through" else "balancer.crt"))
    )


def ask(folder: Path, way: str, where: str, name: str) -> bool:
    said, answer = RAW[way]
    found = b""
    with socket.create_connection(("10.71.0.1", PLACES[where]), 20) as bare:
        sock = _trusting(folder, where).wrap_socket(bare, server_hostname="localhost") if where in IN_TLS else bare
        try:
            sock.sendall(said(name))
            while len(found) < len(answer) and (data := sock.recv(65_536)):
                found += data
        except OSError:
            pass
        finally:
            sock.close()
    return found.startswith(answer)


async def by_amqp(folder: Path, where: str, scheme: str, **options: Any) -> bool:
    secure = where in IN_TLS
    if secure:
        options["tls"] = TlsOptions(ca_file=str(_trusted(folder, where)), server_name="localhost")
    url = f"{scheme}{'s' if secure else ''}://10.71.0.1:{PLACES[where]}"
    try:
        async with await connect(url, reconnect=False, allow_insecure_plain=True, **options):
            return True
    except Exception:  # noqa: BLE001  whatever it is, it is not in
        return False


def _trusted(folder: Path, where: str) -> Path:
    return folder / ("ca.crt" if where == "passed through" else "balancer.crt")


def be_client(folder: Path) -> None:
    """Try everything at every place, and print who was let in."""
    found: dict[str, list[str]] = {}

    def note(way: str, where: str, *, is_in: bool) -> None:
        found.setdefault(way, []).extend([where] if is_in else [])

    for where, port in PLACES.items():
        user = f"jo-{port}@guarded.default"  # where many are refused, that one has to wait
        for way in RAW:
            note(f"{way} by password", where, is_in=ask(folder, way, where, user))
            note(f"{way} as nobody", where, is_in=ask(folder, way, where, "anyone@open.default"))
        login = {"user": user, "password": PASSWORD}
        for way, scheme, options in (
            ("AMQP by password", "amqp", login | {"sasl": ("PLAIN",)}),
            ("AMQP by SCRAM", "amqp", login | {"sasl": ("SCRAM-SHA-256",)}),
            ("AMQP as nobody", "amqp", {"hostname": "open.default"}),
            ("WebSocket by password", "amqpws", login | {"sasl": ("PLAIN",)}),
            ("WebSocket as nobody", "amqpws", {"hostname": "open.default"}),
        ):
            note(way, where, is_in=asyncio.run(by_amqp(folder, where, scheme, **options)))
    print(json.dumps(found))


def be_stranger(address: str, header: bytes) -> None:
    """Say something from an address of the load balancer's machine, and print the answer."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        sock.settimeout(20)
        sock.connect(("10.72.0.2", 5671))
        try:
            sock.sendall(header + b"AMQP\0\1\0\0")
            print(json.dumps(sock.recv(8).hex()))
        except ConnectionError:
            print(json.dumps(""))


# The machines


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


class Machine:
    """Another machine: a network of its own, for as long as a process of it runs."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        own = Path("/proc/self/ns/net").readlink()
        until(lambda: Path(f"/proc/{self.process.pid}/ns/net").readlink() != own)
        self.within = ["nsenter", "-t", str(self.process.pid), "-n"]

    def run(self, *words: str) -> None:
        _run(*self.within, *words)

    def say(self, *arguments: str) -> Any:
        """What this program says there."""
        command = [*self.within, sys.executable, "-m", "tests.interop.balancer_network", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def _connect(balancer: Machine, client: Machine) -> None:
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "n0", "type", "veth", "peer", "name", "b0", "netns", str(balancer.process.pid))
    balancer.run("ip", "link", "add", "b1", "type", "veth", "peer", "name", "c0", "netns", str(client.process.pid))
    _run("ip", "address", "add", "10.72.0.2/24", "dev", "n0")
    _run("ip", "link", "set", "n0", "up")
    for machine, device, address in (
        (balancer, "b0", "10.72.0.1/24"), (balancer, "b0", "10.72.0.9/24"), (balancer, "b1", "10.71.0.1/24"),
        (client, "c0", "10.71.0.2/24"),
    ):  # fmt: skip
        machine.run("ip", "address", "add", address, "dev", device)
        machine.run("ip", "link", "set", device, "up")


def _prepare(folder: Path) -> None:
    Authority(folder / "tls").keep_server_certificate("default", ("localhost",))
    (folder / "ca.crt").write_bytes((folder / "tls" / "authority" / "ca.crt").read_bytes())
    other = Authority(folder / "balancer")
    other.keep_server_certificate("balancer", ("localhost",))
    pair = [(folder / "balancer" / f"balancer.{kind}").read_bytes() for kind in ("crt", "key")]
    (folder / "balancer.pem").write_bytes(b"".join(pair))
    (folder / "balancer.crt").write_bytes((folder / "balancer" / "authority" / "ca.crt").read_bytes())
    (folder / "haproxy.cfg").write_text(CONFIG)
    for port in PLACES.values():
        arguments = ("add", f"jo-{port}", "--space", "guarded", "--users", str(folder / "users.yaml"), "--recv", "#")
        done = CliRunner().invoke(user_commands, arguments, input=f"{PASSWORD}\n")
        assert done.exit_code == 0, done.output


def main(folder: Path) -> None:
    machines: list[Machine] = []
    try:
        try:
            machines += [Machine(), Machine()]
            _connect(*machines)
        except (OSError, subprocess.CalledProcessError) as error:
            print(json.dumps({"problem": str(getattr(error, "stderr", "") or error)}))
            return
        balancer, client = machines
        _prepare(folder)
        options = ("--users", str(folder / "users.yaml"), "--tls", str(folder / "tls"), "--log-format", "json")
        at = ("--listen", "10.72.0.2:5671", "--proxy-from", "10.72.0.1")
        with NodeProcess(folder / "data", *options, *at) as node:
            management = blocking.connect(node.admin_url, timeout=30, patience=30)
            for space, authentication in (("guarded", "standard"), ("open", "none")):
                management.management().create(
                    "io.enmasse.space", f"default/{space}", {"authentication": authentication}
                )
            management.close()
            # It returns once its ports are open.
            balancer.run(str(HAPROXY / "haproxy"), "-D", "-q", "-C", str(folder), "-f", "haproxy.cfg")
            found = client.say("--client", str(folder))
            strangers = {
                "from elsewhere": balancer.say("--stranger", "10.72.0.9", binary().hex()),
                "without a header": balancer.say("--stranger", "10.72.0.1", ""),
                "with a header": balancer.say("--stranger", "10.72.0.1", binary().hex()),
            }
        lines = [json.loads(line) for line in node.log.splitlines() if line.startswith("{")]
        print(json.dumps({"problem": "", "in": found, "strangers": strangers, "log": lines}))
    finally:
        for machine in machines:
            machine.process.kill()
            machine.process.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--client", folder]:
            be_client(Path(folder))
        case ["--stranger", address, header]:
            be_stranger(address, bytes.fromhex(header))
        case [folder]:
            main(Path(folder))
