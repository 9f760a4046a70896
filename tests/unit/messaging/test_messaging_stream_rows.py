"""Messages cut out of frames: the same bytes as if each were annotated by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.sections import Header, Properties, Sections, decode_message, encode_message
from enmasse.messaging.log.frame import encode_frame, split_payload
from enmasse.messaging.streams.rows import KNOWN_HEADS, Rows, Templates, make_template

TIME = 1_700_000_000_123_456

PAYLOADS: list[bytes] = [
    encode_message(b"x" * 100),
    encode_message(b""),
    encode_message("text"),
    encode_message(b"x" * 1_000, header=Header(durable=True), properties=Properties(subject="device-1")),
    encode_message({"a": 1}, message_annotations={"x-opt-partition-key": "k"}),
    encode_message(b"x", message_annotations={"x-opt-offset": 99, "mine": b"1", "x-opt-partition": "wrong"}),
    encode_message(b"x", message_annotations={f"x-{number}": "y" * 40 for number in range(20)}),
    encode_message([1, 2], application_properties={"p": 1}),
]


def rows_of(*payloads: bytes, first: int = 0, times: Any = None, **options: Any) -> Rows:
    parts = [split_payload(payload) for payload in payloads]
    data = encode_frame(
        first,
        times or [TIME] * len(payloads),
        [b""] * len(payloads),
        [head for head, _, _ in parts],
        [body for _, body, _ in parts],
        whole=[number for number, part in enumerate(parts) if part[2]],
    )
    return Rows(data, 3, options.get("offset", first), options.get("since_us", 0), Templates())


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_message_keeps_all_that_it_had_and_tells_its_place(payload: bytes) -> None:
    (found,) = rows_of(payload, first=300).take(10)
    before, after = Sections(payload), Sections(found)
    expected = dict(before.message_annotations)
    expected |= {"x-opt-offset": 300, "x-opt-partition": 3, "x-opt-enqueued-time": TIME // 1000}
    assert after.message_annotations == expected
    assert after.body == before.body
    assert (after.header, after.properties) == (before.header, before.properties)
    assert after.application_properties == before.application_properties


@given(
    st.dictionaries(st.sampled_from(["a", "x-opt-partition-key", "x-opt-offset", "n" * 100]), st.text(max_size=200)),
    st.one_of(st.none(), st.booleans()),
    st.integers(0, 300),
    st.binary(max_size=20),
)
def test_whatever_annotations_there_are_ours_are_added(
    annotations: dict[str, str], durable: bool | None, more: int, content: bytes
) -> None:
    annotations |= {f"m{number}": "" for number in range(more)}
    payload = encode_message(
        content,
        header=None if durable is None else Header(durable=durable, priority=7),
        message_annotations=annotations or None,
        properties=Properties(message_id=content.hex()),
    )
    (found,) = rows_of(payload, first=70_000).take(1)
    sections = decode_message(found)
    ours = {"x-opt-offset": 70_000, "x-opt-partition": 3, "x-opt-enqueued-time": TIME // 1000}
    assert sections.message_annotations == annotations | ours
    assert sections.body == content
    assert sections.properties.message_id == content.hex()
    assert sections.header.durable == bool(durable)


@pytest.mark.parametrize("cut", range(3, 60))
def test_messages_that_end_too_soon_are_passed_on(cut: int) -> None:
    payload = encode_message(
        b"x", header=Header(durable=True), message_annotations={"k": "v"}, properties=Properties(subject="s")
    )[:cut]
    (found,) = rows_of(payload).take(1)
    assert found[:3] == payload[:3]
    assert len(found) >= len(payload)


def test_ordinary_heads_have_templates_and_garbled_ones_have_none() -> None:
    assert all(make_template(split_payload(payload)[0]) for payload in PAYLOADS[:5])
    assert make_template(b"\x00\x53\x72garbage") is None
    assert rows_of(b"\x00\x53\x72garbage").take(1) == [b"\x00\x53\x72garbage"]


@given(
    st.lists(st.tuples(st.sampled_from(PAYLOADS), st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 7),
)
def test_however_rows_are_taken_they_are_those_of_the_frame(
    cells: list[tuple[bytes, int]], skipped: int, since: int, step: int
) -> None:
    times: list[int] = []
    for _, gap in cells:
        times.append((times[-1] if times else 0) + gap)
    payloads = [payload for payload, _ in cells]
    expected = [
        (offset, times[offset], Sections(payload).body)
        for offset, payload in enumerate(payloads)
        if offset >= skipped
    ]
    while expected and expected[0][1] < since:
        del expected[0]
    rows = rows_of(*payloads, times=times, offset=skipped, since_us=since)
    found: list[bytes] = []
    while some := rows.take(step):
        assert len(some) <= step
        found += some
        assert rows.offset == Sections(found[-1]).message_annotations["x-opt-offset"] + 1
    messages = [Sections(payload) for payload in found]
    assert [(m.message_annotations["x-opt-offset"], m.body) for m in messages] == [(o, b) for o, _, b in expected]


def test_templates_are_bounded() -> None:
    templates = Templates()
    for number in range(KNOWN_HEADS * 2):
        templates.of(split_payload(encode_message(b"x", properties=Properties(subject=str(number))))[0])
    assert len(templates._known) <= KNOWN_HEADS
