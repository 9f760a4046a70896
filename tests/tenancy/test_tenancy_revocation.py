"""What is taken from a user of a space, or from an account of the API, ends what they have open in any protocol."""

from __future__ import annotations

import base64
import queue
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from enmasse.client.errors import ConnectionDeniedError, LinkDetachedError
from tests.devices.stage import MqttDevice
from tests.support.polling import until
from tests.tenancy.tenants import document, path_of

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow

NAMESPACE, SPACE = "team-a", "red.team-a"
PASSWORD = "leaves again some day"  # of tests
WAIT_S = 30.0

_numbers = count()

Held = Callable[[], str]
"""Waits for the end of a connection, and returns how the client was told."""


class Leaver:
    """A user of a space, from whom something is taken."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.name = f"leaver-{next(_numbers)}"
        self.trusted = ssl.create_default_context(cafile=str(tenants.data / "tls" / "authority" / "ca.crt"))
        self.port = urlsplit(tenants.amqps).port
        self._path = path_of("messagingusers", NAMESPACE, f"red.{self.name}")
        with tenants.http("red") as http:
            spec = self.spec(PASSWORD, ["send", "recv"])
            declared = document("messagingusers", NAMESPACE, f"red.{self.name}", spec=spec)
            http.post(path_of("messagingusers", NAMESPACE), json=declared).raise_for_status()
            until(lambda: http.get(self._path).json().get("status", {}).get("phase") == "Active")

    def spec(self, password: str, operations: list[str]) -> dict[str, Any]:
        return {
            "username": self.name,
            "authentication": {"type": "password", "password": base64.b64encode(password.encode()).decode()},
            "authorization": [{"operations": operations, "addresses": ["#"]}],
        }

    def delete(self) -> None:
        with self.tenants.http("red") as http:
            http.delete(self._path).raise_for_status()

    def put(self, **spec: Any) -> None:
        with self.tenants.http("red") as http:
            found = http.get(self._path).json()
            http.put(self._path, json=found | {"spec": found["spec"] | spec}).raise_for_status()


def amqp(leaver: Leaver, stack: ExitStack) -> Held:
    connection = stack.enter_context(leaver.tenants.connect(user=leaver.name, password=PASSWORD))
    receiver = connection.receiver("telling")

    def ended() -> str:
        with pytest.raises((ConnectionDeniedError, LinkDetachedError)) as found:
            receiver.receive(timeout=WAIT_S)
        return str(found.value)

    return ended


def mqtt(version: int, transport: str = "tcp") -> Callable[[Leaver, ExitStack], Held]:
    def come(leaver: Leaver, stack: ExitStack) -> Held:
        url = leaver.tenants.place.url("mqtt")
        device = MqttDevice(url, f"{leaver.name}@{SPACE}", PASSWORD, version, transport=transport)
        stack.enter_context(device)
        assert device.connected == 0
        device.subscribe("telling")
        return lambda: str(device.answer("disconnected"))

    return come


def stomp(leaver: Leaver, stack: ExitStack) -> Held:
    plain = socket.create_connection(("localhost", leaver.port), timeout=WAIT_S)
    sock = stack.enter_context(leaver.trusted.wrap_socket(plain, server_hostname="localhost"))
    sock.sendall(
        f"CONNECT\naccept-version:1.2\nhost:{SPACE}\nlogin:{leaver.name}\npasscode:{PASSWORD}\n\n\0"
        "SUBSCRIBE\nid:1\ndestination:telling\nreceipt:r\n\n\0".encode()
    )
    heard = b""
    while b"RECEIPT" not in heard:
        heard += sock.recv(65_536) or pytest.fail(f"the client was sent away: {heard!r}")

    def ended() -> str:
        words = b""
        while part := sock.recv(65_536):
            words += part
        return words.decode()

    return ended


def http(*, is_v2: bool, action: str) -> Callable[[Leaver, ExitStack], Held]:
    def come(leaver: Leaver, stack: ExitStack) -> Held:
        client = stack.enter_context(
            httpx.Client(
                trust_env=False, timeout=WAIT_S, verify=leaver.trusted, auth=(leaver.name, PASSWORD),
                http1=not is_v2, http2=is_v2, headers={"accept": "text/event-stream"},
            )
        )  # fmt: skip
        found: queue.Queue[str] = queue.Queue()
        begun = threading.Event()

        def run() -> None:
            url = f"https://localhost:{leaver.port}/v1/spaces/{SPACE}/addresses/telling/{action}"
            try:
                with client.stream("GET", url) as answer:
                    begun.set()
                    found.put(f"{answer.status_code} {answer.read().decode()}")
            except httpx.HTTPError as error:
                found.put(type(error).__name__)

        threading.Thread(target=run, daemon=True).start()
        assert begun.wait(WAIT_S)
        return lambda: found.get(timeout=WAIT_S)

    return come


UNAUTHORIZED = "unauthorized-access"

PROTOCOLS: dict[str, tuple[Callable[[Leaver, ExitStack], Held], str]] = {
    "AMQP": (amqp, UNAUTHORIZED),
    "MQTT 5": (mqtt(5), "Not authorized"),
    "MQTT 3.1.1": (mqtt(4), "Unspecified error"),
    "MQTT over WebSocket": (mqtt(5, "websockets"), "Not authorized"),
    "STOMP": (stomp, UNAUTHORIZED),
    # An answer that has begun breaks off.
    "events over HTTP/1.1": (http(is_v2=False, action="events"), "RemoteProtocolError"),
    "events over HTTP/2": (http(is_v2=True, action="events"), "RemoteProtocolError"),
}
"""How a user connects, and a part of what it is told at the end."""

TELLS_NO_END = ("MQTT 5", "MQTT over WebSocket")
"""Of a subscription alone; the connection stays."""

WAYS: dict[str, Callable[[Leaver], None]] = {
    "the user is deleted": Leaver.delete,
    "the password is changed": lambda leaver: leaver.put(
        **leaver.spec("another, and a longer one", ["send", "recv"])
    ),
    "the permission is taken away": lambda leaver: leaver.put(
        authorization=[{"operations": ["send"], "addresses": ["#"]}]
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_user_loses_ends_its_connections(tenants: Tenants, way: str) -> None:
    leaver = Leaver(tenants)
    with ExitStack() as stack, tenants.connect() as bystander:
        held = {name: come(leaver, stack) for name, (come, _) in PROTOCOLS.items()}
        WAYS[way](leaver)
        for name, ended in held.items():
            if "permission" not in way or name not in TELLS_NO_END:
                assert PROTOCOLS[name][1] in ended(), name
        bystander.receiver("telling")  # it is still there


# Accounts of the API


class Watcher:
    """An account that has streams open."""

    def __init__(self, tenants: Tenants) -> None:
        self.place = tenants.place
        self.api = tenants.api
        self.name = f"watcher-{next(_numbers)}"
        self.place.ok("account", "add", self.name, "--no-password")
        self.place.ok("account", "grant", self.name, "tenant-edit", "--namespace", NAMESPACE)
        self.token = self.place.ok("token", "create", "--account", self.name).strip()

    def open(self, path: str) -> Held:
        """Open a stream, and return what waits for its end."""
        found: queue.Queue[str] = queue.Queue()
        begun = threading.Event()

        def run() -> None:
            headers = {"Authorization": f"Bearer {self.token}"}
            try:
                with httpx.stream("GET", self.api + path, headers=headers, timeout=WAIT_S, trust_env=False) as answer:
                    assert answer.status_code == 200
                    for part in answer.iter_bytes():
                        if part:
                            begun.set()
                found.put("it has ended")
            except httpx.HTTPError as error:
                found.put(type(error).__name__)

        threading.Thread(target=run, daemon=True).start()
        assert begun.wait(WAIT_S)
        return lambda: found.get(timeout=WAIT_S)

    def revoke(self) -> None:
        (row,) = [line for line in self.place.ok("token", "list").splitlines() if self.name in line]
        self.place.ok("token", "revoke", row.split()[0])

    def remove(self) -> None:
        self.place.ok("account", "remove", self.name)

    def lose_role(self) -> None:
        path = path_of("rolebindings", NAMESPACE)
        with httpx.Client(base_url=self.api, headers=self.place.proof, trust_env=False, timeout=WAIT_S) as http:
            for binding in http.get(path).raise_for_status().json()["items"]:
                if any(subject["name"] == self.name for subject in binding["subjects"]):
                    http.delete(f"{path}/{binding['metadata']['name']}").raise_for_status()


STREAMS = {
    "a watch of objects": path_of("addresses", NAMESPACE) + "?watch=1",
    "rows of a table": path_of("addressspaces", NAMESPACE, "red") + "/rows/addresses?watch=true",
}

OF_ITS_ACCOUNT: dict[str, Callable[[Watcher], None]] = {
    "the token is revoked": Watcher.revoke,
    "the account is removed": Watcher.remove,
    "the role is taken away": Watcher.lose_role,
}


@pytest.mark.parametrize("way", OF_ITS_ACCOUNT)
def test_what_an_account_loses_ends_its_streams(tenants: Tenants, way: str) -> None:
    watcher = Watcher(tenants)
    held = {name: watcher.open(path) for name, path in STREAMS.items()}
    OF_ITS_ACCOUNT[way](watcher)
    for name, ended in held.items():
        assert ended() == "it has ended", name
