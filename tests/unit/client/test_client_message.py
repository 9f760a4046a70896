"""Messages, outcomes and URLs, without a connection."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from enmasse.cli.messages import to_json
from enmasse.client import Message, Outcome, UrlError
from enmasse.client.options import parse_url
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.wire.amqp.errors import LocalError
from enmasse.wire.amqp.performatives import Received

FIELDS: dict[str, Any] = {
    "subject": "s",
    "to": "t",
    "reply_to": "r",
    "message_id": 5,
    "correlation_id": UUID(int=7),
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "user_id": b"ann",
    "group_id": "g",
    "group_sequence": 3,
    "properties": {"a": 1, "b": [True, None]},
    "annotations": {"x-opt-a": "b"},
    "durable": True,
    "ttl": 1.5,
    "priority": 9,
    "creation_time": 1700000000.25,
    "delivery_count": 2,
}


@pytest.mark.parametrize(
    "body", [b"bytes", b"", "text", 5, 1.5, None, [1, "a"], {"k": {"l": b"v"}}, UUID(int=1), True]
)
def test_a_body_comes_back_as_it_went(body: Any) -> None:
    found = Message.decode(Message(body).encode()).body
    assert found == body
    assert type(found) is type(body)


def test_every_field_comes_back_as_it_went() -> None:
    found = Message.decode(Message(b"x", **FIELDS).encode())
    assert {name: getattr(found, name) for name in FIELDS} == FIELDS


def test_a_message_from_below_a_topic_says_which_name_it_was_sent_to() -> None:
    received = Message.decode(Message(b"x", annotations={"x-opt-topic-name": "alarms/hall/1"}).encode())
    assert received.topic_name == "alarms/hall/1"
    assert to_json(received)["annotations"] == {"x-opt-topic-name": "alarms/hall/1"}
    assert Message(b"x").topic_name is None


def test_a_bare_message_has_defaults() -> None:
    found = Message.decode(Message(b"x").encode())
    expected = Message(b"x")
    assert all(getattr(found, name) == getattr(expected, name) for name in Message.__slots__)


def test_two_messages_do_not_share_their_maps() -> None:
    first = Message()
    first.properties["a"] = 1
    assert Message().properties == {}


def test_a_copy_may_be_addressed_differently() -> None:
    original = Message(b"x", **FIELDS)
    copied = original.copy()
    copied.to = "elsewhere"
    assert original.to == "t"
    assert copied.properties is original.properties
    assert "elsewhere" in repr(copied)


def test_a_body_without_amqp_type_is_refused_with_its_type() -> None:
    with pytest.raises(LocalError, match="object"):
        Message(object()).encode()


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(DecodeError):
        Message.decode(b"no message")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Accepted(), Outcome.ACCEPTED),
        (Released(), Outcome.RELEASED),
        (Rejected(), Outcome.REJECTED),
        (Modified(), Outcome.MODIFIED),
        (None, Outcome.SETTLED),
        (Received(0, 0), Outcome.SETTLED),
    ],
)
def test_states_of_the_engine_become_outcomes(state: Any, expected: Outcome) -> None:
    assert Outcome.of(state) == expected
    assert hash(Outcome.of(state)) == hash(expected)


def test_an_outcome_tells_its_reason() -> None:
    outcome = Outcome.of(Rejected(AmqpError("x:why", "because")))
    assert (outcome.condition, outcome.description) == ("x:why", "because")
    assert str(outcome) == "rejected (x:why: because)"
    assert outcome != Outcome.ACCEPTED
    assert outcome != "rejected"
    modified = Outcome.of(Modified(True, True, {"a": 1}))
    assert (modified.is_failed, modified.is_undeliverable_here, modified.annotations) == (True, True, {"a": 1})


@pytest.mark.parametrize(
    ("text", "host", "port", "user", "password", "address"),
    [
        ("amqp://example.org", "example.org", 5672, None, None, None),
        ("amqp://example.org:99/orders/new", "example.org", 99, None, None, "orders/new"),
        ("amqp://a%40b:p%3Aw@h:1", "h", 1, "a@b", "p:w", None),
        ("amqp://[::1]:5", "::1", 5, None, None, None),
        ("amqps://example.org", "example.org", 5671, None, None, None),
        ("localhost:5672", "localhost", 5672, None, None, None),
    ],
)
def test_urls_are_read(
    text: str, host: str, port: int, user: str | None, password: str | None, address: str | None
) -> None:
    url = parse_url(text)
    assert (url.host, url.port, url.user, url.password, url.address) == (host, port, user, password, address)
    assert "p:w" not in repr(url)
    assert parse_url(str(url)).host == host


def test_a_unix_socket_is_named_by_its_path() -> None:
    url = parse_url("amqp+unix:///run/a%20b.sock")
    assert url.path == "/run/a b.sock"
    assert str(url) == "amqp+unix:///run/a b.sock"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("http://x", "amqp://"),
        ("amqps://", "amqps://host"),
        ("amqp://", "host"),
        ("amqp://x:99999", "port"),
        ("amqp://x:y", "port"),
        ("amqp+unix://run/x.sock", "amqp\\+unix:///"),
    ],
)
def test_other_urls_are_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UrlError, match=hint):
        parse_url(text)
