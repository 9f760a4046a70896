"""What a node knows of devices, and how it reads what they say, without a socket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.password_checks import DigestCheck, encode_check, split_checks
from enmasse.node.devices.directory import ABSENT_S, FRESH_S, STALE_S, UNAVAILABLE, Directory
from enmasse.node.devices.messages import DeviceError, Downstream, RequestIds, Sent
from enmasse.node.devices.proofs import Login
from enmasse.node.devices.tenants import EVENT, MQTT, TELEMETRY, Device, Tenant
from enmasse.node.mqtt.device_topics import read_filter, read_topic
from enmasse.wire.amqp.sections import Sections

PLANT = Tenant("default.plant", "default/farm", {"alias": "plant"})


class Control:
    """Answers what a directory asks, if it is there."""

    def __init__(self) -> None:
        self.is_there = True
        self.asked: list[dict[str, Any]] = []
        self.devices: dict[str, dict[str, Any]] = {}
        self.changed: list[tuple[str, str]] = []
        self.now = 1_000.0
        self.directory = Directory(
            lambda: self.now,
            self.ask,
            lambda _tenant: None,
            lambda tenant, device: self.changed.append((tenant, device)),
        )
        self.directory.put_tenant(PLANT)

    def ask(self, question: dict[str, Any], answered: Callable[[dict[str, Any] | None], None]) -> bool:
        if not self.is_there:
            return False
        self.asked.append(question)
        device = self.devices.get(question.get("auth-id") or question["device-id"])
        found: dict[str, Any] | None = None if device is None else {"device": device}
        if found is not None and question["what"] == "credentials":
            found |= {"device-id": question["auth-id"], "credentials": {"secrets": [{"id": "1"}]}}
        answered({"found": found})
        return True

    def login(self, name: str) -> Any:
        found: list[Any] = []
        self.directory.find_login(PLANT, "hashed-password", name, found.append)
        return found[0]


def test_what_was_asked_for_is_kept_and_asked_for_again_after_a_while() -> None:
    control = Control()
    control.devices["d"] = {}
    first = control.login("d")
    assert isinstance(first, Login)
    assert control.login("d") is first
    control.now += FRESH_S + 1
    assert control.login("d") is not first
    assert len(control.asked) == 2


def test_what_is_known_is_good_for_a_day_while_nobody_answers() -> None:
    control = Control()
    control.devices["d"] = {}
    known = control.login("d")
    control.is_there = False
    control.now += FRESH_S + 1
    assert control.login("d") is known
    assert control.login("other") is UNAVAILABLE
    control.now += STALE_S
    assert control.login("d") is UNAVAILABLE


def test_a_change_drops_what_is_kept_and_what_was_not_there() -> None:
    control = Control()
    assert control.login("d") is None
    control.devices["d"] = {}
    assert control.login("d") is None
    control.directory.forget(PLANT.id, "d")
    assert control.changed[-1] == (PLANT.id, "d")
    assert control.login("d").device.is_enabled
    control.devices["d"] = {"enabled": False}
    control.directory.forget(PLANT.id, "d")
    assert not control.login("d").device.is_enabled


def test_what_there_is_not_is_not_asked_for_again_at_once() -> None:
    control = Control()
    for _ in range(10):
        assert control.login("guess") is None
    assert len(control.asked) == 1
    control.now += ABSENT_S
    control.login("guess")
    assert len(control.asked) == 2


def test_a_tenant_is_found_by_id_and_alias_until_it_goes() -> None:
    directory = Control().directory
    assert directory.tenant("plant") is directory.tenant("default.plant") is PLANT
    directory.keep_tenants(set())
    assert directory.tenant("plant") is directory.tenant("default.plant") is None


@pytest.mark.parametrize(
    ("topic", "kind", "device", "properties"),
    [
        ("telemetry", TELEMETRY, "", {}),
        ("t/", TELEMETRY, "", {}),
        ("event/default.plant/d-1", EVENT, "d-1", {}),
        ("e/plant/d-1", EVENT, "d-1", {}),
        ("e//d-1/?content-type=a%2Fb&hono-ttl=5", EVENT, "d-1", {"content-type": "a/b", "hono-ttl": "5"}),
        ("c///s/some-id/204", "command", "", {}),
        ("inquiry///req/7/weather", "inquiry", "", {}),
    ],
)
def test_topics_are_read(topic: str, kind: str, device: str, properties: dict[str, str]) -> None:
    found = read_topic(PLANT, topic)
    assert (found.kind, found.device, found.properties) == (kind, device, properties)


@given(st.text(max_size=60))
def test_any_topic_and_filter_is_read_or_refused(text: str) -> None:
    for read in (read_topic, read_filter):
        with suppress(DeviceError):
            read(PLANT, text)


def test_the_id_of_a_request_is_its_devices_alone_and_cannot_be_made_up() -> None:
    ids = RequestIds(b"key")
    made = ids.make(PLANT, "d-1", "command_response/default.plant/app", 7)
    assert ids.read(PLANT, "d-1", made) == ("command_response/default.plant/app", 7)
    other, another = Tenant("default.other", "default/farm", {}), RequestIds(b"another")
    for who, tenant, device, text in (
        (ids, PLANT, "d-2", made),
        (ids, other, "d-1", made),
        (another, PLANT, "d-1", made),
        (ids, PLANT, "d-1", made[:-2]),
        (ids, PLANT, "d-1", "?"),
        (ids, PLANT, "d-1", ""),
    ):
        with pytest.raises(DeviceError):
            who.read(tenant, device, text)


@pytest.mark.parametrize(
    ("own", "default", "most", "found"),
    [
        (None, None, -1, None),
        (5, None, -1, 5),
        (None, 7, -1, 7),
        (5, 7, -1, 5),
        (50, None, 20, 20),
        (None, None, 20, 20),
    ],
)
def test_a_time_to_live_is_ones_own_or_the_default_within_the_bound(
    own: int | None, default: int | None, most: int, found: int | None
) -> None:
    tenant = Tenant("a.b", "a/b", {"resource-limits": {"max-ttl": most}, "defaults": {"site": "north"}})
    device = Device(tenant, "d", {"defaults": {"ttl": default}})
    made = Downstream(Sent(EVENT, device, MQTT, "event", ttl_s=own)).message(b"body", 1_700_000_000_123)
    sections = Sections(made)
    assert sections.header.ttl == (None if found is None else found * 1000)
    assert sections.properties.creation_time == 1_700_000_000_123
    assert sections.application_properties["site"] == "north"
    assert sections.body == b"body"


def test_a_salted_hash_is_checked_here_and_in_the_process_for_passwords() -> None:
    import hashlib

    stored = hashlib.sha512(b"salt" + b"secret").digest()
    check = DigestCheck("sha-512", b"secret", b"salt", stored)
    assert check.is_right()
    assert not check._replace(password=b"other").is_right()
    assert split_checks(encode_check(7, check)) == ([(7, check)], b"")


def test_a_device_cannot_say_that_it_is_another_one_or_behind_a_gateway() -> None:
    device = Device(PLANT, "d", {})
    said = {"device_id": "other", "tenant_id": "other", "gateway_id": "g", "orig_adapter": "x", "ttd": 5, "floor": 3}
    made = Downstream(Sent(TELEMETRY, device, MQTT, "t", properties=said)).message(b"", 0)
    assert Sections(made).application_properties == {
        "device_id": "d",
        "tenant_id": "default.plant",
        "orig_adapter": MQTT,
        "orig_address": "t",
        "floor": 3,
    }
