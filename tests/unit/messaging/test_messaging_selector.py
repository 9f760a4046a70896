"""What selectors select."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from enmasse.message.sections import Header, Properties, encode_message
from enmasse.message.types import Byte, Float, Symbol, Timestamp, UByte, ULong
from enmasse.messaging.errors import AttachError, SelectorError
from enmasse.messaging.selectors.fields import MessageFields
from enmasse.messaging.selectors.selector import SELECTOR_FILTER, compile_selector, selector_of

VALUES: dict[str, Any] = {
    "yes": True,
    "no": False,
    "one": 1,
    "seven": 7,
    "small": Byte(-3),
    "huge": ULong(2**64 - 1),
    "half": 0.5,
    "third": Float(0.25),
    "red": "red",
    "empty": "",
    "quote": "it's",
    "code": Symbol("s"),
    "raw": b"red",
    "id": UUID(int=5),
    "null": None,
    "with-dash": 4,
    "a.b": 5,
    "true": 6,
    "$x_1": 8,
    "größe": 9,
}
MESSAGE = encode_message(b"body", application_properties=VALUES)
TRUE, FALSE, UNKNOWN = "one = 1", "one = 2", "missing = 1"


def truth(text: str, payload: bytes = MESSAGE) -> bool | None:
    """What a condition is: unknown is what neither it nor its opposite selects."""
    if compile_selector(text).matches(payload):
        assert not compile_selector(f"NOT ({text})").matches(payload)
        return True
    return False if compile_selector(f"NOT ({text})").matches(payload) else None


@pytest.mark.parametrize(
    ("one", "other", "both", "either"),
    [
        (TRUE, TRUE, True, True),
        (TRUE, FALSE, False, True),
        (TRUE, UNKNOWN, None, True),
        (FALSE, TRUE, False, True),
        (FALSE, FALSE, False, False),
        (FALSE, UNKNOWN, False, None),
        (UNKNOWN, TRUE, None, True),
        (UNKNOWN, FALSE, False, None),
        (UNKNOWN, UNKNOWN, None, None),
    ],
)
def test_and_and_or_follow_the_truth_tables(one: str, other: str, both: bool | None, either: bool | None) -> None:
    assert truth(f"{one} AND {other}") is both
    assert truth(f"{one} OR {other}") is either


@pytest.mark.parametrize(("text", "value"), [(TRUE, False), (FALSE, True), (UNKNOWN, None)])
def test_not_follows_its_truth_table(text: str, value: bool | None) -> None:
    assert truth(f"NOT {text}") is value
    assert truth(f"NOT NOT NOT {text}") is value


CASES = [
    # booleans
    ("TRUE", True),
    ("false", False),
    ("yes", True),
    ("no", False),
    ("NOT no", True),
    ("NOT NOT yes", True),
    ("yes = TRUE", True),
    ("yes <> FALSE", True),
    ("yes = no", False),
    ("missing", None),
    ("one", None),
    ("red", None),
    ("(one = 1) = TRUE", True),
    ("(missing = 1) = TRUE", None),
    ("yes AND (no OR one = 1)", True),
    # precedence: NOT before AND before OR
    ("TRUE OR TRUE AND FALSE", True),
    ("(TRUE OR TRUE) AND FALSE", False),
    ("NOT FALSE AND FALSE", False),
    ("NOT one = 2", True),
    ("NOT one = 2 OR one = 2", True),
    # numbers
    ("one = 1.0", True),
    ("one <> 1.0", False),
    ("half = .5", True),
    ("half = 5E-1", True),
    ("half = 0.5d AND third = 0.25f", True),
    ("seven = 0x7 AND seven = 07 AND seven = 7L AND seven = 7.", True),
    ("huge = 18446744073709551615", True),
    ("huge > 9223372036854775807", True),
    ("small = -3", True),
    ("small = - 3", True),
    ("small = -(+3)", True),
    ("- small = 3", True),
    ("+ small = small", True),
    ("seven < 8 AND seven <= 7 AND seven > 6 AND seven >= 7", True),
    ("seven < 7 OR seven > 7", False),
    ("seven > half", True),
    ("missing > 1", None),
    ('"null" = 1', None),
    ("1 < 2", True),
    # strings
    ("red = 'red'", True),
    ("'red' = red", True),
    ("red <> 'red'", False),
    ("red = 'Red'", False),
    ("empty = ''", True),
    ("quote = 'it''s'", True),
    ("code = 's'", True),
    ("missing <> 'x'", None),
    # values of unlike types
    ("one = '1'", False),
    ("one <> '1'", False),
    ("red = 1", False),
    ("red <> 1", False),
    ("yes = 1", False),
    ("yes <> 1", False),
    ("one = TRUE", False),
    ("one <> yes", False),
    ("one = red", False),
    ("red > 1", False),
    ("yes >= 1", False),
    ("red < seven", False),
    ("raw = 'red'", False),
    ("raw = raw", False),
    ("id = id", False),
    # computing
    ("seven + one * 2 = 9", True),
    ("(seven + one) * 2 = 16", True),
    ("seven - one - one = 5", True),
    ("seven / 2 = 3", True),
    ("-seven / 2 = -3", True),
    ("seven / -2 = -3", True),
    ("seven / 2.0 = 3.5", True),
    ("12 / 2 / 3 = 2", True),
    ("- seven + 8 = 1", True),
    ("huge * huge > huge", True),
    ("one / 0 = 1", None),
    ("half / 0 = 1", None),
    ("red + 1 = 1", None),
    ("1 + red = 1", None),
    ("yes + 1 = 2", None),
    ("- yes = 1", None),
    ("missing + 1 = 1", None),
    ("1 + missing * 2 = 1", None),
    # ranges
    ("seven BETWEEN 1 AND 7", True),
    ("seven BETWEEN 7 AND 9 AND TRUE", True),
    ("seven NOT BETWEEN 1 AND 7", False),
    ("seven not between 8 and 9", True),
    ("seven BETWEEN one + 5 AND one * 8", True),
    ("missing BETWEEN 1 AND 2", None),
    ("missing NOT BETWEEN 1 AND 2", None),
    ("seven BETWEEN missing AND 3", False),
    ("seven BETWEEN missing AND 9", None),
    ("red BETWEEN 1 AND 2", False),
    ("red NOT BETWEEN 1 AND 2", False),
    # membership
    ("red IN ('blue', 'red')", True),
    ("red IN ('blue')", False),
    ("red NOT IN ('blue')", True),
    ("red NOT IN ('red')", False),
    ("code IN ('s')", True),
    ("seven IN (6, 7.0)", True),
    ("small IN (-3)", True),
    ("yes IN (1)", False),
    ("yes IN (TRUE)", True),
    ("one IN (TRUE)", False),
    ("one IN ('1')", False),
    ("one NOT IN ('1')", True),
    ("raw IN ('red')", False),
    ("missing IN ('red')", None),
    ("missing NOT IN ('red')", None),
    # forms
    ("red LIKE 'r%'", True),
    ("red NOT LIKE 'r%'", False),
    ("red NOT LIKE 'b%'", True),
    ("red LIKE '_e_'", True),
    ("one LIKE '1'", False),
    ("one NOT LIKE '1'", True),
    ("missing LIKE '%'", None),
    ("missing NOT LIKE '%'", None),
    # presence
    ("missing IS NULL", True),
    ("missing IS NOT NULL", False),
    ('"null" IS NULL', True),
    ("red IS NULL", False),
    ("red IS NOT NULL", True),
    ("red is not null", True),
    # names
    ('"with-dash" = 4', True),
    ("a.b = 5", True),
    ('"true" = 6 AND "a.b" = 5 AND "it""s" IS NULL', True),
    ("$x_1 = 8", True),
    ("größe = 9", True),
    ("RED IS NULL", True),
    ("\tone\n=\r1 ", True),
    ("(((one)))=(((1)))", True),
]


@pytest.mark.parametrize(("text", "value"), CASES, ids=[text for text, _ in CASES])
def test_a_condition_is_true_false_or_unknown(text: str, value: bool | None) -> None:
    assert truth(text) is value


FULL = encode_message(
    "body",
    header=Header(durable=True, priority=7, ttl=50, delivery_count=1),
    message_annotations={"x-opt-delivery-time": Timestamp(77)},
    properties=Properties(
        message_id="ID:1",
        user_id=b"ann",
        to="orders",
        subject="coffee",
        reply_to="replies",
        correlation_id=UUID(int=5),
        content_type="text/plain",
        absolute_expiry_time=99,
        creation_time=88,
        group_id="g",
        group_sequence=4,
    ),
    application_properties={"JMSXMine": 1, "JMS_ACME_x": 2, "JMSOdd": 3, "amqp.odd": 4},
)


@pytest.mark.parametrize(
    "text",
    [
        "JMSPriority = 7",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSMessageID = 'ID:1'",
        "JMSTimestamp = 88",
        "JMSCorrelationID = 'ID:AMQP_UUID:00000000-0000-0000-0000-000000000005'",
        "JMSType = 'coffee'",
        "JMSXGroupID = 'g'",
        "JMSXGroupSeq = 4",
        "JMSXUserID = 'ann'",
        "JMSXDeliveryCount = 2",
        "JMSRedelivered",
        "JMSReplyTo = 'replies'",
        "JMSDestination = 'orders'",
        "JMSExpiration = 99",
        "JMSDeliveryTime = 77",
        "JMSXMine = 1 AND JMS_ACME_x = 2",
        '"JMSOdd" = 3 AND "amqp.odd" = 4',
        "amqp.durable AND amqp.priority = 7 AND amqp.ttl = 50 AND amqp.delivery_count = 1",
        "amqp.message_id = 'ID:1' AND amqp.to = 'orders' AND amqp.user_id = 'ann'",
        "amqp.correlation_id = '00000000-0000-0000-0000-000000000005'",
        "amqp.content_type = 'text/plain' AND amqp.content_encoding IS NULL",
    ],
)
def test_header_fields_have_names(text: str) -> None:
    assert compile_selector(text).matches(FULL)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "JMSMessageID = 'ID:AMQP_ULONG:7' AND amqp.message_id = 7"),
        (b"\x0a\xff", "JMSMessageID = 'ID:AMQP_BINARY:0AFF'"),
        (UUID(int=1), "amqp.message_id = '00000000-0000-0000-0000-000000000001'"),
        ("plain", "JMSMessageID = 'plain'"),
        (None, "JMSMessageID IS NULL"),
    ],
)
def test_a_message_id_of_any_type_can_be_named(value: Any, text: str) -> None:
    assert compile_selector(text).matches(encode_message("", properties=Properties(message_id=value)))


@pytest.mark.parametrize(
    "text",
    [
        "JMSPriority = 4",
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSMessageID IS NULL AND JMSTimestamp IS NULL AND JMSXUserID IS NULL AND JMSDeliveryTime IS NULL",
        "NOT JMSRedelivered",
        "JMSXDeliveryCount = 1",
        "anything IS NULL",
        "NOT amqp.durable AND NOT amqp.first_acquirer",
    ],
)
def test_a_bare_message_has_the_defaults(text: str) -> None:
    assert compile_selector(text).matches(encode_message(b"body"))
    assert compile_selector(text).matches(b"")


def test_failed_deliveries_here_count() -> None:
    selector = compile_selector("JMSXDeliveryCount = 4 AND JMSRedelivered")
    assert selector.matches(FULL, attempts=2)
    assert not selector.matches(FULL)


def test_one_look_serves_many_selectors() -> None:
    fields = MessageFields(FULL, 1)
    assert compile_selector("JMSType = 'coffee'").selects(fields)
    assert not compile_selector("JMSType = 'tea'").selects(fields)
    assert compile_selector("amqp.delivery_count = 2").selects(fields)


def test_a_message_that_cannot_be_read_is_not_selected() -> None:
    for payload in (b"garbage", MESSAGE[:-20], b"\x00\x53\x74\x45"):
        assert not compile_selector("one IS NULL").matches(payload)
        assert not compile_selector("one IS NOT NULL").matches(payload)


def test_the_filter_of_a_source_is_found() -> None:
    selector = selector_of({SELECTOR_FILTER: "one = 1"})
    assert selector is not None
    assert selector.text == "one = 1"
    assert repr(selector) == "Selector('one = 1')"
    assert selector.matches(MESSAGE)


@pytest.mark.parametrize("filters", [{}, {"enmasse:from": 5}, {SELECTOR_FILTER: ""}, {SELECTOR_FILTER: " \n"}])
def test_no_selector_is_none(filters: dict[str, Any]) -> None:
    assert selector_of(filters) is None


@pytest.mark.parametrize("value", [5, b"one = 1", ["one = 1"], True])
def test_a_selector_that_is_no_string_is_refused(value: Any) -> None:
    with pytest.raises(SelectorError, match="string") as error:
        selector_of({SELECTOR_FILTER: value})
    assert error.value.condition == "amqp:invalid-field"
    assert error.value.position == 0


def test_a_selector_that_is_malformed_refuses_the_attach() -> None:
    with pytest.raises(AttachError, match="at character 7"):
        selector_of({SELECTOR_FILTER: "one = "})


def test_a_priority_is_compared_as_a_number_of_any_width() -> None:
    payload = encode_message("", application_properties={"p": UByte(200), "q": 200})
    assert compile_selector("p = q AND p > 199 AND p IN (200)").matches(payload)
