"""CloudEvents by HTTP, in every mode, beside clients of AMQP; and requests that have their effect once."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from enmasse.client import Message
from enmasse.message.parts import Parts
from enmasse.message.sections import Properties, encode_message
from enmasse.message.types import Timestamp, UInt, ULong
from enmasse.node.http.cloudevents import EVENT_TYPE, event_of, from_headers, read_event
from enmasse.node.http.documents import from_sections
from enmasse.node.http.values import MAX_JSON_LEVELS, read_json
from enmasse.wire.http.answers import HttpError
from tests.unit.node.http_scene import Scene, play, version  # noqa: F401  a fixture

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}
BATCH = "application/cloudevents-batch+json"
STRUCTURED = "application/cloudevents+json; charset=utf-8"


def test_events_of_every_mode_are_the_same_to_amqp_and_back(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.amqp() as amqp:
            binary = {f"ce-{name}": value for name, value in EVENT.items()}
            binary |= {"ce-subject": "gr%C3%BCn%20%25", "Content-Type": "application/json"}
            assert (await client.post("orders/messages", content=b'{"a": 1}', headers=binary)).status_code == 202
            event: dict[str, Any] = {**EVENT, "subject": "gr\u00fcn %", "data": {"a": 1}, "count": 3}
            answer = await client.post("orders/messages", json=event, headers={"Content-Type": STRUCTURED})
            assert answer.status_code == 202, answer.text
            coded = {**EVENT, "datacontenttype": "image/png", "data_base64": "/wA="}
            text = {**EVENT, "datacontenttype": "text/plain", "data": "words"}
            batch = [coded, text, {"id": "no event"}]
            answer = await client.post("orders/messages", json=batch, headers={"Content-Type": BATCH})
            assert [json.loads(line)["status"] for line in answer.text.splitlines()] == [202, 202, 400]

            wanted: list[dict[str, Any]] = [
                {**EVENT, "subject": "gr\u00fcn %", "datacontenttype": "application/json", "data": {"a": 1}},
                {**event, "datacontenttype": "application/json"},
                coded,
                text,
            ]
            looked = await client.get("orders/messages", headers={"Accept": BATCH})
            assert looked.headers["content-type"] == BATCH
            assert looked.headers["x-next"]
            assert looked.json() == wanted
            answer = await client.post("orders/receive?max=1", headers={"Accept": BATCH})
            (leased,) = answer.json()
            assert {**wanted[0], "lease": leased["lease"]} == leased
            assert (await client.post("orders/settle", json={"leases": [leased["lease"]]})).json()["settled"] == 1

            async with amqp.receiver("orders") as receiver:
                found = [await receiver.receive(30) for _ in range(3)]
            messages = [each.message for each in found if each is not None]
            assert [message.body for message in messages] == [b'{"a": 1}', b"\xff\0", b"words"]
            assert messages[0].properties == {
                **{f"cloudEvents_{name}": value for name, value in EVENT.items()},
                "cloudEvents_subject": "gr\u00fcn %",
                "cloudEvents_count": 3,
            }
            assert messages[1].content_type == "image/png"

    play(tmp_path, story)


def test_events_are_asked_and_answered_in_binary_mode(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.amqp() as amqp, amqp.receiver("any") as receiver:
            headers = {f"ce-{name}": value for name, value in EVENT.items()}
            asking = asyncio.create_task(client.post("any/request", content=b"?", headers=headers))
            delivery = await receiver.receive(30)
            assert delivery is not None
            question = delivery.message
            delivery.accept()
            assert question.properties is not None
            assert question.properties["cloudEvents_type"] == "sold"
            properties = {f"cloudEvents:{name}": value for name, value in {**EVENT, "subject": "\u00fc"}.items()}
            async with amqp.sender(str(question.reply_to)) as sender:
                await sender.send(Message(b"!", properties=properties, correlation_id=question.correlation_id))
            reply = await asking
            assert (reply.status_code, reply.content) == (200, b"!")
            assert (reply.headers["ce-type"], reply.headers["ce-subject"]) == ("sold", "%C3%BC")

    play(tmp_path, story)


@pytest.mark.parametrize(
    "time",
    ["2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123456789z", "2016-12-31T23:59:60Z", "2026-01-31T12:00:00+05:30"],
)
def test_the_time_of_an_event_is_kept_as_it_is(time: str) -> None:
    parts = Parts()
    assert read_event({**EVENT, "time": time}, parts) == b""
    assert event_of(parts.encode(b""), source="/s", name="7") == {**EVENT, "time": time}


def test_attributes_of_other_types_are_shown_as_json_has_them() -> None:
    parts = Parts()
    read_event(EVENT, parts)
    for name, value in {
        "time": Timestamp(1_769_860_800_000), "late": Timestamp(1_769_860_800_007), "mark": b"\xff\x00",
        "key": UUID(int=7), "few": UInt(7), "many": ULong(1 << 40), "yes": True,
    }.items():  # fmt: skip
        parts.properties[f"cloudEvents_{name}"] = value
    found = event_of(parts.encode(b""), source="/s", name="7")
    assert found == EVENT | {
        "time": "2026-01-31T12:00:00Z", "late": "2026-01-31T12:00:00.007Z", "mark": "/wA=",
        "key": "00000000-0000-0000-0000-000000000007", "few": 7, "many": "1099511627776", "yes": True,
    }  # fmt: skip


def test_an_event_without_a_content_type_leaves_without_one() -> None:
    parts = Parts()
    read_event(EVENT, parts)
    assert event_of(parts.encode(b"words"), source="/s", name="7") == EVENT | {"data_base64": "d29yZHM="}


def test_values_of_headers_may_stand_in_quotes() -> None:
    parts = Parts()
    headers = {f"ce-{name}": value for name, value in EVENT.items()}
    from_headers(
        parts, headers | {"ce-subject": '"a \\"b\\\\ %E2%82%AC"', "ce-other": '"a"b', "ce-plain": "gr\u00c3\u00bcn"}
    )
    properties = parts.properties
    assert properties["cloudEvents_plain"] == "gr\u00fcn", "some clients encode nothing"
    assert (properties["cloudEvents_subject"], properties["cloudEvents_other"]) == ('a "b\\ \u20ac', '"a"b')


def test_a_batch_may_have_no_event(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            answer = await client.post("orders/messages", content=b"[]", headers={"Content-Type": BATCH})
            assert (answer.status_code, answer.content) == (200, b"")

    play(tmp_path, story)


def test_what_is_no_event_becomes_one_and_structured_ones_are_understood() -> None:
    plain = event_of(encode_message(b"\xff"), source="/s", name="7")
    assert plain == {
        "specversion": "1.0",
        "id": "7",
        "source": "/s",
        "type": "io.enmasse.message",
        "data_base64": "/w==",
    }
    parts = Parts()
    parts.fields["content_type"] = STRUCTURED
    assert event_of(parts.encode(json.dumps(EVENT).encode()), source="/s", name="7") == EVENT


@pytest.mark.parametrize("depth", [MAX_JSON_LEVELS + 1, 950, 100_000])
def test_a_body_that_nests_deep_is_shown_as_bytes(depth: int) -> None:
    """An answer is one level deeper than what it is made of, and is made where some of the stack is used."""
    nested = b"[" * depth + b"]" * depth
    properties = Properties(content_type="application/json")
    payload = encode_message(nested, properties=properties)
    assert base64.b64decode(event_of(payload, source="/s", name="7")["data_base64"]) == nested
    assert base64.b64decode(from_sections(payload)["bodyBase64"]) == nested
    as_event = encode_message(nested, properties=Properties(content_type=EVENT_TYPE))
    assert event_of(as_event, source="/s", name="7")["type"] == "io.enmasse.message"
    with pytest.raises(HttpError) as caught:
        read_json(nested, "an event")
    assert caught.value.status == 400
    taken = nested[:MAX_JSON_LEVELS] + nested[-MAX_JSON_LEVELS:]
    assert event_of(encode_message(taken, properties=properties), source="/s", name="7")["data"] == json.loads(taken)


@pytest.mark.parametrize(
    "event",
    [
        [],
        {},
        {**EVENT, "specversion": "0.3"},
        {**EVENT, "Bad": "name"},
        {**EVENT, "list": [1]},
        {**EVENT, "much": 1 << 40},
        {**EVENT, "data": 1, "data_base64": ""},
        {**EVENT, "data_base64": "?"},
        {**EVENT, "source": ""},
        {**EVENT, "time": "yesterday"},
        {**EVENT, "time": "2026-13-31T12:00:00Z"},
        {**EVENT, "time": "2026-01-31 12:00:00Z"},
        {**EVENT, "time": "2026-01-31T12:00:00"},
        {**EVENT, "time": 1},
    ],
)
def test_what_should_be_an_event_and_is_none_is_refused(event: Any) -> None:
    with pytest.raises(HttpError) as caught:
        read_event(event, Parts())
    assert caught.value.status == 400


def test_a_request_with_a_key_has_its_effect_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.client() as other:
            for address in ("orders", "log"):
                for key in ("k1", "k1", "k2"):
                    headers = {"Idempotency-Key": key}
                    for each in (client, other):
                        answer = await each.post(f"{address}/messages", content=key.encode(), headers=headers)
                        assert answer.status_code == 202, answer.text
                lines = '{"body": "l1"}\n{"body": "l2"}\n'
                headers = {"Idempotency-Key": "batch", "Content-Type": "application/x-ndjson"}
                for each in (client, other):
                    answer = await each.post(f"{address}/messages", content=lines, headers=headers)
                    assert [json.loads(line)["status"] for line in answer.text.splitlines()] == [202, 202]
                found = (await client.get(f"{address}/messages")).json()["messages"]
                assert [message["body"] for message in found] == ["k1", "k2", "l1", "l2"]
            refused = await client.post("any/messages", content=b"x", headers={"Idempotency-Key": "k"})
            assert refused.status_code == 409

    play(tmp_path, story)
