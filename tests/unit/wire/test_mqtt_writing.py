"""What is written is read as it was, and what MQTT cannot carry is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.mqtt.packets import ConnackProperties, PublishProperties, Version
from enmasse.wire.mqtt.writing import (
    NO_PROPERTIES,
    encode_publish,
    encode_publish_properties,
    publish_around,
    with_properties,
)
from tests.unit.wire.mqtt_scene import (
    FULL,
    V5,
    VERSIONS,
    Scene,
)


@given(
    st.binary(max_size=300), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(1, 65_535),
    st.sampled_from(VERSIONS), st.sampled_from([None, FULL]), st.integers(0, 3),
)  # fmt: skip
def test_what_is_written_is_read_as_it_was(
    payload: bytes, qos: int, retain: bool, dup: bool, number: int, version: Version, told: PublishProperties | None,
    alias: int,
) -> None:  # fmt: skip
    scene = Scene(ConnackProperties(topic_alias_maximum=3)).opened(version)
    dup = dup and qos > 0
    if version is not V5:
        told = None
    encoded = encode_publish_properties(told, alias) if version is V5 else b""
    if version is V5:
        assert with_properties(encode_publish_properties(told), alias) == encoded
    data = encode_publish(b"a/b", payload, qos, retain, dup, number if qos else 0, encoded)
    flags = qos << 1 | retain | dup << 3
    assert scene.hear(data) == [("PUBLISH", "a/b", payload, flags, number if qos else 0, told)]


@pytest.mark.parametrize("size", [0, 100, 120, 130, 20_000])
@pytest.mark.parametrize("told", [b"", NO_PROPERTIES, encode_publish_properties(FULL)])
def test_a_message_is_put_together_around_its_packet_identifier(size: int, told: bytes) -> None:
    before, after = publish_around(b"a/b", b"x" * size, told)
    for qos in (1, 2):
        whole = encode_publish(b"a/b", b"x" * size, qos, packet_id=0x1234, properties=told)
        assert bytes((0x30 | qos << 1,)) + before + b"\x12\x34" + after == whole


def test_subscription_identifiers_are_added_to_properties() -> None:
    for told in (PublishProperties(), FULL, PublishProperties(content_type="x" * 200)):
        wanted = replace(told, subscription_identifiers=[7, 300])
        assert with_properties(encode_publish_properties(told), 0, (7, 300)) == encode_publish_properties(wanted)


def test_what_mqtt_cannot_carry_is_left_out() -> None:
    told = PublishProperties(
        content_type="a\0b", response_topic="x" * 70_000, correlation_data=b"x" * 70_000,
        user_properties=[("a", "\0"), ("b" * 70_000, "c"), ("d", "e"), ("\ud800", "f"), ("é" * 40_000, "g")],
    )  # fmt: skip
    scene = Scene().opened(V5)
    data = encode_publish(b"t", b"", properties=encode_publish_properties(told))
    assert scene.hear(data) == [("PUBLISH", "t", b"", 0, 0, PublishProperties(user_properties=[("d", "e")]))]
