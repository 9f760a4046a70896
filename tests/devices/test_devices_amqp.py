"""Devices over AMQP, with Proton on both sides."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.devices.stage import EMPTY, GREEN, flush, message_of
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from tests.devices.stage import Stage

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def needs() -> None:
    require("python-qpid-proton with SASL and TLS")


def test_a_device_sends_and_is_commanded(stage: Stage) -> None:
    device = stage.device()
    application = stage.application()
    with (
        stage.amqp(device) as connection,
        application.listen("event") as events,
        application.listen("command_response", at="app-3") as responses,
    ):
        sender = connection.create_sender(None)
        sender.send(message_of("event", b"fire", content_type="text/plain", ttl=7.0, properties={"floor": 3}))
        message = events.next(device)
        assert (bytes(message.body), message.content_type) == (b"fire", "text/plain")
        assert message.ttl == pytest.approx(7.0, abs=1.0)  # it has waited a little
        assert message.properties == {
            "device_id": device,
            "tenant_id": GREEN,
            "orig_adapter": "hono-amqp",
            "orig_address": "event",
            "floor": 3,
        }
        receiver = connection.create_receiver("command", credit=5)
        flush(connection)
        # A change of it that takes nothing away has it looked at again, and leaves it its commands.
        stage.change(device, {"defaults": {"hall": "b"}})
        while True:
            sender.send(message_of("event", b"smoke"))
            if events.next(device).properties.get("hall") == "b":
                break
        told = {"reply_to": f"command_response/{GREEN}/app-3", "correlation_id": "c-3"}
        from proton.utils import SendException

        # Each side does something only while it waits, so that one of them needs a thread.
        outcomes: list[str] = []
        thread = Thread(
            target=lambda: outcomes.append(application.command(device, "open", b"valve", **told)), daemon=True
        )
        thread.start()
        command = receiver.receive(30)
        receiver.accept()
        flush(connection)
        thread.join(30)
        assert outcomes == ["accepted"]
        assert (command.subject, bytes(command.body)) == ("open", b"valve")
        sender.send(
            message_of(command.reply_to, b"opened", correlation_id=command.correlation_id, properties={"status": 200})
        )
        response = responses.next()
        assert (bytes(response.body), response.correlation_id, response.properties["status"]) == (
            b"opened",
            "c-3",
            200,
        )
        for to, fields in (
            ("nonsense", {}),
            ("event/other.blue/x", {}),
            ("event//nobody", {}),
            ("command_response/x/y/z", {"properties": {"status": 200}}),
        ):
            with pytest.raises(SendException):
                sender.send(message_of(to, b"x", **fields))


def test_devices_have_no_other_links(stage: Stage) -> None:
    from proton.utils import LinkDetached

    with stage.amqp(stage.device()) as connection:
        for address in (
            f"telemetry/{GREEN}",
            f"event/{GREEN}",
            "$management",
            "command/other.blue/x",
            f"command/{GREEN}",
        ):
            with pytest.raises(LinkDetached):
                connection.create_receiver(address)
        with pytest.raises(LinkDetached):
            connection.create_sender(f"event/{GREEN}")


def test_a_wrong_password_is_refused(stage: Stage) -> None:
    from proton import ConnectionException

    with pytest.raises(ConnectionException), stage.amqp(stage.device(), password="wrong"):
        pass


def test_short_names_and_empty_messages_are_taken(stage: Stage) -> None:
    from proton.utils import SendException

    device = stage.device()
    with stage.amqp(device) as connection, stage.application().listen("event") as events:
        sender = connection.create_sender(None)
        sender.send(message_of("e", b"1"))
        assert events.next(device).properties["orig_address"] == "e"
        for kind in (EMPTY, "text/plain"):
            sender.send(message_of("event", b"", content_type=kind, properties={"ttd": -1}))
            message = events.next(device)
            assert (bytes(message.body), message.content_type, message.properties["ttd"]) == (b"", kind, -1)
        for body, told in ((b"", None), (b"1", EMPTY)):
            with pytest.raises(SendException):
                sender.send(message_of("event", body, content_type=told))


def test_a_receiver_that_settles_nothing_has_commands_settled(stage: Stage) -> None:
    from proton.reactor import AtMostOnce

    device = stage.device()
    with stage.amqp(device) as connection:
        receiver = connection.create_receiver(f"command/{GREEN}/{device}", credit=1, options=AtMostOnce())
        # What is answered comes after the credit.
        connection.create_sender(None).send(message_of("event", b"here"))
        assert stage.application().command(device, "open", b"valve") == "accepted"
        assert receiver.receive(30).subject == "open"


def test_a_settled_event_is_stored_too(stage: Stage) -> None:
    from proton.reactor import AtMostOnce

    device = stage.device()
    with stage.amqp(device) as connection, stage.application().listen("event") as events:
        connection.create_sender(None, options=AtMostOnce()).send(message_of("event", b"quick"))
        flush(connection)
        assert events.body(device) == b"quick"
