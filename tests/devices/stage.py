"""A stage for stories of devices: who registers them, and the applications that they talk with."""

from __future__ import annotations

import hashlib
import queue
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import httpx

from tests.support.polling import until

if TYPE_CHECKING:
    from types import TracebackType

    from tests.support.installation import Installation

GREEN, BLUE = "default.green", "other.blue"
"""Tenants: telemetry of the one is anycast, of the other a stream."""

SPACES = {GREEN: "green-space.default", BLUE: "blue-space.other"}
PASSWORD = "opensesame"  # of tests
APPLICATION_PASSWORD = "open barley"
WAIT_S = 30.0
EMPTY = "application/vnd.eclipse-hono-empty-notification"


def login_of(tenant: str) -> tuple[str, str]:
    """The user and the password by which applications of a tenant log in."""
    return f"app@{SPACES[tenant]}", APPLICATION_PASSWORD


class Application:
    """An application of a tenant, as Hono's are: AMQP over Proton.

    Args:
        url: of the node.
        tenant: whose application it is.
    """

    def __init__(self, url: str, tenant: str) -> None:
        from proton.utils import BlockingConnection  # it may not be there

        self.tenant = tenant
        user, password = login_of(tenant)
        self.connection = BlockingConnection(url, timeout=WAIT_S, user=user, password=password)
        self.commands = self.connection.create_sender(f"command/{tenant}")

    def close(self) -> None:
        self.connection.close()

    def listen(self, kind: str, credit: int = 100, at: str = "") -> Listening:
        """Receive from an address of the tenant, or from a name below it."""
        return Listening(self.connection, f"{kind}/{self.tenant}" + (f"/{at}" if at else ""), credit)

    def command(self, device: str, name: str, body: bytes = b"", **fields: Any) -> str:
        """Send a command and return its outcome: accepted, released or rejected."""
        from proton import Delivery
        from proton import Message as ProtonMessage

        message = ProtonMessage(
            address=f"command/{self.tenant}/{device}", subject=name, body=body, inferred=True, **fields
        )
        delivery = self.commands.send(message, error_states=[])
        names: dict[int, str] = {
            Delivery.ACCEPTED: "accepted",
            Delivery.RELEASED: "released",
            Delivery.REJECTED: "rejected",
        }
        return names[delivery.remote_state]


class Listening:
    """A receiver that takes all that comes."""

    def __init__(self, connection: Any, address: str, credit: int) -> None:
        self._connection = connection
        self._receiver = connection.create_receiver(address, credit=credit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._receiver.close()

    def next(self, device: str = "") -> Any:
        """Return the next message, or the next one of a device; it is accepted, as those before are."""
        while True:
            message = self._receiver.receive(WAIT_S)
            if self._receiver.fetcher.unsettled:
                self._receiver.accept()
                flush(self._connection)
            if not device or message.properties["device_id"] == device:
                return message

    def body(self, device: str) -> bytes:
        """Return the payload of the next message of a device: Proton's own ends with the message."""
        message = self.next(device)
        return bytes(message.body)


def message_of(to: str, body: bytes, **fields: Any) -> Any:
    """Return a message of a device, or of an application, with one data section."""
    from proton import Message

    return Message(address=to, body=body, inferred=True, **fields)


def flush(connection: Any) -> None:
    """Have Proton send what waits to be sent: it does nothing by itself."""
    connection.wait(lambda: connection.conn.transport.pending() <= 0, msg="to send")


class MqttDevice:
    """A device that speaks MQTT over paho.

    Args:
        url: of the node.
        user: with the tenant behind ``@``.
        password: of the device.
        version: 4 or 5.
        context: with a certificate instead of user and password.
        transport: ``tcp`` or ``websockets``.
        will: the topic of its will; empty: it has none.
    """

    def __init__(
        self,
        url: str,
        user: str,
        password: str = PASSWORD,
        version: int = 4,
        context: ssl.SSLContext | None = None,
        transport: Any = "tcp",
        will: str = "",
    ) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

        self.messages: queue.Queue[Any] = queue.Queue()
        self.answers: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id="",
            protocol=MQTTProtocolVersion(version),
            reconnect_on_failure=False,
            transport=transport,
        )
        if context is None:
            self._client.username_pw_set(user, password)
        else:
            self._client.tls_set_context(context)
        if will:
            self._client.will_set(will, b"the will", qos=1)
        self._client.on_connect = lambda _c, _u, _f, code, _p: self.answers.put(("connected", code))
        self._client.on_disconnect = lambda _c, _u, _f, code, _p: self.answers.put(("disconnected", code))
        self._client.on_subscribe = lambda _c, _u, _m, codes, _p: self.answers.put(("subscribed", codes))
        self._client.on_publish = lambda _c, _u, _m, code, _p: self.answers.put(("published", code))
        self._client.on_message = lambda _c, _u, message: self.messages.put(message)
        host, _, port = url.partition("://")[2].partition(":")
        self._client.connect(host, int(port))
        self._client.loop_start()
        self.connected = self.answer("connected")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def cut(self) -> None:
        """End the connection without a word."""
        connected: Any = self._client.socket()
        connected.shutdown(socket.SHUT_RDWR)
        self.answer("disconnected")

    def answer(self, kind: str) -> Any:
        """Wait for an answer of a kind, and return its code."""
        while True:
            found, code = self.answers.get(timeout=WAIT_S)
            if found == kind:
                return code

    def publish(self, topic: str, body: bytes = b"", qos: int = 1) -> None:
        self._client.publish(topic, body, qos=qos)

    def send(self, topic: str, body: bytes = b"", qos: int = 1) -> Any:
        """Publish, and return the code of the answer."""
        self.publish(topic, body, qos)
        return self.answer("published")

    def subscribe(self, text: str, qos: int = 1) -> Any:
        self._client.subscribe(text, qos)
        return self.answer("subscribed")[0]

    def next(self) -> Any:
        """Return the next message that it is sent."""
        return self.messages.get(timeout=WAIT_S)


class Asked:
    """A request that is under way in a thread of its own."""

    def __init__(self, client: httpx.Client, method: str, path: str, **options: Any) -> None:
        self._answer: list[httpx.Response] = []
        self._thread = threading.Thread(
            target=lambda: self._answer.append(client.request(method, path, **options)), daemon=True
        )
        self._thread.start()

    def answer(self) -> httpx.Response:
        self._thread.join(30)
        return self._answer[0]


class Stage:
    """The installation, and what tests need of it.

    Args:
        installation: with the projects.
        numbers: for names that nobody else has.
    """

    def __init__(self, installation: Installation, numbers: Iterator[int]) -> None:
        self.installation = installation
        self._numbers = numbers
        self._stack = ExitStack()
        self._applications: dict[str, Application] = {}

    def __enter__(self) -> Self:
        self.registry = self._stack.enter_context(
            httpx.Client(
                base_url=self.installation.url("registry"),
                headers=self.installation.proof,
                timeout=WAIT_S,
                verify=False,
            )
        )
        return self

    def __exit__(self, *exception: object) -> None:
        for application in self._applications.values():
            application.close()
        self._stack.close()

    def url(self, protocol: str) -> str:
        return self.installation.url(protocol)

    def renew(self) -> None:
        """Have the applications connect anew, as the node was killed."""
        self._applications.clear()

    def application(self, tenant: str = GREEN) -> Application:
        """The application of a tenant, which all tests share."""
        if tenant not in self._applications:
            self._applications[tenant] = Application(self.url("amqp"), tenant)
        return self._applications[tenant]

    def device(
        self,
        tenant: str = GREEN,
        document: Mapping[str, Any] | None = None,
        secrets: list[dict[str, Any]] | None = None,
        kind: str = "hashed-password",
        auth_id: str = "",
    ) -> str:
        """Register a device with credentials, and return its id, which is its auth-id, too, unless one is given."""
        name = f"device-{next(self._numbers)}"
        self.registry.post(f"/devices/{tenant}/{name}", json=document or {}).raise_for_status()
        given = [{"type": kind, "auth-id": auth_id or name, "secrets": secrets or [hashed(PASSWORD)]}]
        self.registry.put(f"/credentials/{tenant}/{name}", json=given).raise_for_status()
        return name

    def change(self, device: str, document: Mapping[str, Any], tenant: str = GREEN) -> None:
        self.registry.put(f"/devices/{tenant}/{device}", json=document).raise_for_status()

    def mqtt(self, device: str, tenant: str = GREEN, **options: Any) -> MqttDevice:
        url = self.url("mqtts" if "context" in options else "mqtt")
        return MqttDevice(url, f"{device}@{tenant}", **options)

    def http(self, device: str, tenant: str = GREEN, password: str = PASSWORD) -> httpx.Client:
        # It speaks no TLS: to read all authorities for each device would take longer than what it does.
        credentials = (f"{device}@{tenant}", password)
        client = httpx.Client(base_url=self.url("http"), auth=credentials, timeout=WAIT_S, verify=False)
        return self._stack.enter_context(client)

    @contextmanager
    def amqp(self, device: str, tenant: str = GREEN, password: str = PASSWORD) -> Iterator[Any]:
        """A connection of a device, closed at the end: once its node is killed, Proton would wait for an answer."""
        from proton.utils import BlockingConnection

        connection = BlockingConnection(
            self.url("amqp"),
            timeout=WAIT_S,
            user=f"{device}@{tenant}",
            password=password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        try:
            yield connection
        finally:
            connection.close()


def hashed(password: str) -> dict[str, Any]:
    """Return a secret with a quick hash."""
    digest = hashlib.sha256(b"salt" + password.encode()).digest()
    return {
        "hash-function": "sha-256",
        "pwd-hash": b64encode(digest).decode(),
        "salt": b64encode(b"salt").decode(),
    }


def eventually(look: Callable[[], Any]) -> Any:
    """Wait until something is true, and return it."""
    until(lambda: bool(look()), look)
    return look()
