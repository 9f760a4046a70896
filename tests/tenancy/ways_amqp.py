"""Ways over AMQP: other names, other hosts, other people's links, and the space's own management."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from enmasse.client.message import Message, Outcome
from tests.support.foreign_tools import require
from tests.tenancy.refusals import Way, denied, no_login, not_attached

if TYPE_CHECKING:
    from enmasse.client.blocking import Connection
    from tests.tenancy.tenants import Tenants

__all__ = ["WAYS"]

NAMES = (
    "private", "blue.private", "team-b/blue.private", "team-b/blue/private", "/team-b/blue/private", "blue/private",
    "private@blue.team-b", "amqp://blue.team-b/private", "blue.team-b/private", "blue::private", "../blue/private",
    "private\x00", "PRIVATE", "news::blue.reader", "team-b/blue.reader",
)  # fmt: skip
LINKS: dict[str, Callable[[Connection, str], Any]] = {
    "send to": lambda connection, name: connection.sender(name, timeout=30),
    "receive from": lambda connection, name: connection.receiver(name, timeout=30),
    "browse": lambda connection, name: connection.receiver(name, browse=True, timeout=30),
}
PASSWORD_OF_RED = "red as a beet at noon"


def _attach(form: Callable[[Connection, str], Any], name: str) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        with tenants.connect() as red:
            not_attached(lambda: form(red, name))

    return attempt


def _relay(name: str) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        with tenants.connect() as red:
            outcome = red.sender(None).send(Message("from red", to=name), timeout=30)
            assert outcome is not Outcome.ACCEPTED

    return attempt


def _login(**more: Any) -> Callable[[Tenants], None]:
    return lambda tenants: no_login(lambda: tenants.connect(**more))


def _secured(server_name: str, **more: Any) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        def connect() -> Connection:
            from enmasse.client.blocking import connect as dial

            given: dict[str, Any] = {"user": "app", "password": PASSWORD_OF_RED, "reconnect": False, "timeout": 20}
            return dial(tenants.amqps, tls=tenants.tls(server_name), **(given | more))

        no_login(connect)

    return attempt


def _desk(act: Callable[[Any], Any], *status: int) -> Callable[[Tenants], None]:
    """Ask red's own management for what is blue's."""

    def attempt(tenants: Tenants) -> None:
        with tenants.connect() as red:
            denied(lambda: act(red.management(timeout=30)), *status)

    return attempt


def _sees_nothing(name: str, **more: Any) -> Callable[[Tenants], None]:
    """Receive from an address that both tenants have under the same name: red's own is empty."""

    def attempt(tenants: Tenants) -> None:
        with tenants.connect() as red, red.receiver(name, **more) as receiver:
            while (delivery := receiver.receive(timeout=0.3)) is not None:
                assert "blue" not in str(delivery.message.body)

    return attempt


def _query(entity_type: str) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        with tenants.connect("blue", container_id="of-blue"), tenants.connect() as red:
            found = red.management().query(entity_type)
            assert found
            assert "blue" not in str(found)

    return attempt


def dynamic_address(tenants: Tenants) -> None:
    with tenants.connect("blue") as blue, tenants.connect() as red, blue.receiver(dynamic=True) as answers:
        not_attached(lambda: red.receiver(answers.address, timeout=30))
        not_attached(lambda: red.sender(answers.address, timeout=30))
        outcome = red.sender(None).send(Message("from red", to=answers.address), timeout=30)
        assert outcome is not Outcome.ACCEPTED
        assert answers.receive(timeout=0.3) is None


def reply_elsewhere(tenants: Tenants) -> None:
    with tenants.connect("blue") as blue, tenants.connect() as red, blue.receiver(dynamic=True) as answers:
        request = Message({}, reply_to=answers.address, properties={"operation": "QUERY"})
        red.sender("$management").send(request, timeout=30)
        assert answers.receive(timeout=0.3) is None


def stolen_link(tenants: Tenants) -> None:
    """Whoever has the same container id and link name in another space takes nothing over."""
    with (
        tenants.connect("blue", container_id="till") as blue,
        blue.receiver("asking", name="the-link") as receiver,
        tenants.connect(container_id="till") as red,
    ):
        red.receiver("asking", name="the-link", timeout=30)
        blue.sender("asking").send(Message("for blue"), settled=True, timeout=30)
        delivery = receiver.receive(timeout=30)
        assert delivery is not None
        assert delivery.message.body == "for blue"
        delivery.accept()


def taken_over_subscription(tenants: Tenants) -> None:
    with tenants.connect(container_id="till") as red:
        receiver = red.receiver("news::reader", timeout=30)
        assert receiver.receive(timeout=0.3) is None


def same_producer(tenants: Tenants) -> None:
    """A producer of a stream that red names like blue's leaves blue's numbers alone."""
    named = {"enmasse:producer": "meter"}
    with tenants.connect() as red, tenants.connect("blue") as blue:
        first, second = (connection.sender("telling-log", properties=named) for connection in (red, blue))
        outcome = first.send(Message("red", annotations={"x-opt-sequence": 1_000_000}), timeout=30)
        assert outcome is Outcome.ACCEPTED
        stored = blue.management().read("io.enmasse.address", "telling-log")["messagesStored"]
        assert second.send(Message("blue", annotations={"x-opt-sequence": 1}), timeout=30) is Outcome.ACCEPTED
        assert blue.management().read("io.enmasse.address", "telling-log")["messagesStored"] == stored + 1


def same_consumer(tenants: Tenants) -> None:
    """A consumer of a stream that red names like blue's leaves blue's place alone."""
    at_first = {"enmasse:consumer": "report", "enmasse:start": "first"}
    with tenants.connect() as red, tenants.connect("blue") as blue:
        red.sender("telling-log").send(Message("red"), timeout=30)
        with red.receiver("telling-log", filters=at_first) as receiver:
            delivery = receiver.receive(timeout=30)
            assert delivery is not None
            assert "blue" not in str(delivery.message.body)
            delivery.accept()
        assert "report" not in str(blue.management().read("io.enmasse.address", "history"))


def closed_connection(tenants: Tenants) -> None:
    with tenants.connect("blue", container_id="victim") as blue, tenants.connect() as red:
        number = next(
            item["name"] for item in blue.management().query("io.enmasse.connection") if item["container"] == "victim"
        )
        denied(lambda: red.management().delete("io.enmasse.connection", number), 404)
        assert blue.management().query("io.enmasse.space")


def hidden_host(tenants: Tenants) -> None:
    """Log in to red, then name blue in open."""
    require("python-qpid-proton with SASL and TLS")
    from proton import SASL, Connection, Transport

    transport, connection = Transport(), Connection()
    connection.hostname, connection.container = "blue.team-b", "red"
    connection.user, connection.password = "app@red.team-a", PASSWORD_OF_RED
    sasl = SASL(transport)
    sasl.allow_insecure_mechs = True
    sasl.allowed_mechs("SCRAM-SHA-256")
    transport.bind(connection)
    connection.open()
    host, _, port = tenants.amqp.rpartition("//")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        while not (transport.closed or connection.remote_condition):
            if (pending := transport.pending()) > 0:
                transport.pop(sock.send(transport.peek(pending) or b""))
                continue
            data = sock.recv(65536)
            if not data:
                break
            transport.push(data)
    assert connection.remote_condition is not None or transport.condition is not None


def _messages(name: str) -> Iterator[Way]:
    yield Way(f"read the figures of {name!r}", _desk(lambda desk: desk.read("io.enmasse.address", name), 404))
    yield Way(f"purge {name!r}", _desk(lambda desk: desk.purge(name), 404))
    yield Way(f"replay {name!r}", _desk(lambda desk: desk.replay(name), 404))
    yield Way(f"move messages of {name!r}", _desk(lambda desk: desk.move(name, "vault"), 404))
    yield Way(f"move messages to {name!r}", _desk(lambda desk: desk.move("vault", name)))


def _all() -> Iterator[Way]:
    for verb, form in LINKS.items():
        for name in NAMES:
            yield Way(f"{verb} {name!r}", _attach(form, name))
    for name in (
        "private",
        "team-b/blue.private",
        "blue.team-b/private",
        "amqp://blue.team-b/private",
        "blue.private",
    ):
        yield Way(f"address a message to {name!r}", _relay(name))
    yield Way("receive what blue stored, under the name that both have", _sees_nothing("vault"))
    yield Way("browse what blue stored, under the name that both have", _sees_nothing("vault", browse=True))
    yield Way(
        "read blue's stream from its first message", _sees_nothing("history", filters={"enmasse:start": "first"})
    )
    yield Way("read blue's dead letters", _sees_nothing("graves"))
    for host in (
        "blue.team-b", "blue.team-b.enmasse.local", "BLUE.TEAM-B", "team-b/blue", "blue.team-b.", "blue", "localhost",
    ):  # fmt: skip
        yield Way(f"log in as red where the host is {host!r}", _login(hostname=host))
    yield Way("log in with blue's realm and red's password", _login(hostname=None, user="app@blue.team-b"))
    yield Way("log in with blue's realm at red's host", _login(user="app@blue.team-b"))
    yield Way("log in with red's realm at blue's host", _login(hostname="blue.team-b", user="app@red.team-a"))
    yield Way("log in with blue's object name as user", _login(user="blue.app"))
    yield Way("log in without naming a space", _login(hostname=None))
    yield Way("come to blue without a name", _login(hostname="blue.team-b", user=None, password=None))
    yield Way(
        "come to blue as anonymous", _login(hostname="blue.team-b", user=None, password=None, sasl=["ANONYMOUS"])
    )
    yield Way("guess an empty password", _login(hostname="blue.team-b", password=""))
    yield Way("log in as red over TLS for blue's name", _secured("blue.team-b.enmasse.local"))
    yield Way(
        "name blue for TLS and red in AMQP",
        _secured("blue.team-b.enmasse.local", hostname="red.team-a.enmasse.local"),
    )
    yield Way("log in to red and name blue in open", hidden_host)
    for name in ("team-b/blue.vault", "blue.vault", "team-b/blue.private", "private"):
        yield from _messages(name)
    yield Way("read blue's space", _desk(lambda desk: desk.read("io.enmasse.space", "team-b/blue"), 404))
    yield Way("read blue's user", _desk(lambda desk: desk.read("io.enmasse.user", "team-b/blue.app")))
    yield Way("list users with their keys", _desk(lambda desk: desk.query("io.enmasse.user")))
    yield Way("list the node's listeners", _desk(lambda desk: desk.query("io.enmasse.listener")))
    yield Way("read the node's configuration", _desk(lambda desk: desk.query("io.enmasse.configuration")))
    yield Way("trace the node's frames", _desk(lambda desk: desk.perform("TRACE", "io.enmasse.connection")))
    yield Way(
        "make an address in blue",
        _desk(lambda desk: desk.create("io.enmasse.address", "team-b/blue.x", {"space": "team-b/blue"})),
    )
    yield Way("delete blue's address", _desk(lambda desk: desk.delete("io.enmasse.address", "team-b/blue.vault")))
    yield Way(
        "change blue's space", _desk(lambda desk: desk.update("io.enmasse.space", "team-b/blue", {"maxBytes": 1}))
    )
    for entity_type in ("io.enmasse.address", "io.enmasse.connection", "io.enmasse.link", "io.enmasse.space"):
        yield Way(f"list every {entity_type}", _query(entity_type))
    yield Way("close blue's connection", closed_connection)
    yield Way("use blue's dynamic address", dynamic_address)
    yield Way("have an answer sent to blue", reply_elsewhere)
    yield Way("take over blue's link by its container and name", stolen_link)
    yield Way("take over blue's subscription with its container and name", taken_over_subscription)
    yield Way("disturb blue's producer by its name", same_producer)
    yield Way("move blue's consumer by its name", same_consumer)


WAYS = tuple(_all())
