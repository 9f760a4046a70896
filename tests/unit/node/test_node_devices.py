"""What a node knows of devices, and how it reads what they say, without a socket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.password_checks import DigestCheck, encode_check, split_frames
from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.model.kinds.connectors import DEVICE_WORDS
from enmasse.node.devices.commands import TenantCommands
from enmasse.node.devices.directory import FRESH_S, STALE_S, UNAVAILABLE, Directory
from enmasse.node.devices.messages import DeviceError, Downstream, RequestIds, Sent
from enmasse.node.devices.proofs import CERTIFICATE, KEY, PASSWORD, Login, Proof
from enmasse.node.devices.revocation import AGAIN_S, AT_ONCE, GONE, Connected, ConnectedDevices
from enmasse.node.devices.tenants import EVENT, MQTT, TELEMETRY, Device, Tenant
from enmasse.node.mqtt.device_topics import ERROR, KINDS, read_filter, read_topic

PLANT = Tenant("default.plant", "default/farm", {"alias": "plant"})


class Control:
    """Answers what a directory asks, if it is there."""

    def __init__(self) -> None:
        self.is_there = True
        self.holds = False
        self.held: list[Callable[[], None]] = []
        """Answers that are given later."""
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
        if self.holds:
            self.held.append(lambda: answered({"found": found}))
        else:
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
    control.now += FRESH_S
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
    ((frame,), rest) = split_frames(encode_check(7, check))
    assert (frame.number, frame.check, rest) == (7, check, b"")


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


def test_an_answer_that_a_change_has_overtaken_is_given_and_not_kept() -> None:
    control = Control()
    control.devices["d"] = {}
    control.holds = True
    found: list[Any] = []
    control.directory.find_login(PLANT, "hashed-password", "d", found.append)
    control.directory.find_login(PLANT, "hashed-password", "nobody", found.append)
    control.directory.forget(PLANT.id)
    control.holds = False
    for answer in control.held:
        answer()
    assert isinstance(found[0], Login)
    assert found[1] is None
    assert not control.directory.keeps(found[0])
    control.login("nobody")
    assert control.directory.keeps(control.login("d"))
    assert len(control.asked) == 4


SECRET = {"id": "1", "hash-function": "sha-256", "pwd-hash": "abc", "salt": "def"}


@pytest.mark.parametrize(
    ("credentials", "holds"),
    [
        ({"secrets": [SECRET]}, True),
        ({"secrets": [{"id": "2", "pwd-hash": "other"}, SECRET | {"id": "3", "comment": "renamed"}]}, True),
        (None, False),
        ({"secrets": []}, False),
        ({"secrets": [SECRET], "enabled": False}, False),
        ({"secrets": [SECRET | {"enabled": False}]}, False),
        ({"secrets": [SECRET | {"pwd-hash": "other"}]}, False),
        ({"secrets": [SECRET | {"salt": "other"}]}, False),
        ({"secrets": [SECRET | {"not-after": "2026-01-01T00:00:00Z"}]}, False),
        ({"secrets": [SECRET | {"not-before": "2026-01-03T00:00:00Z"}]}, False),
    ],
)
def test_a_proof_holds_as_long_as_its_own_secret_is_valid(credentials: dict[str, Any] | None, holds: bool) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    proof = Proof(PASSWORD, "d", Login(Device(PLANT, "d", {}), {}), SECRET)
    assert (proof.review(credentials, now) == "") is holds


def test_a_proof_ends_with_its_secret_or_by_itself_whichever_is_sooner() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    secret = SECRET | {"not-after": "2026-01-02T00:00:10Z"}
    proof = Proof(PASSWORD, "d", Login(Device(PLANT, "d", {}), {}), secret)
    ends = [proof.ends_at]
    assert not proof.review({"secrets": [SECRET]}, now)
    assert [*ends, proof.ends_at] == [now + 10, None]
    token = Proof(KEY, "d", Login(Device(PLANT, "d", {}), {}), SECRET, until=now + 5)
    assert token.ends_at == now + 5
    assert not token.review({"secrets": [SECRET | {"not-after": "2026-01-02T00:00:03Z"}]}, now)
    assert token.ends_at == now + 3


def test_who_is_vouched_for_by_an_authority_stays_while_its_tenant_has_it() -> None:
    proof = Proof(CERTIFICATE, "d", Login(Device(PLANT, "d", {}), {}), {}, authority="key")
    now = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    for anchors, stays in (
        ([{"public-key": "other"}, {"public-key": "key", "not-after": "2026-01-03T00:00:00Z"}], True),
        ([{"public-key": "key", "not-after": "2026-01-01T00:00:00Z"}], False),
        ([], False),
    ):
        assert proof.is_vouched_for(Tenant("a.b", "a/b", {"trusted-ca": anchors}), now) is stays


class Item:
    """Something that is reviewed."""

    tenant_id = PLANT.id

    def __init__(self, name: str) -> None:
        self.name = name
        self.judged: list[Any] = []

    def row(self, _tenant: Any) -> tuple[str, str, str]:
        return (self.name, "", "")

    def judge(self, _tenant: Any, found: Any) -> None:
        self.judged.append(found)


class Review:
    """A review of items, whose questions wait until they are answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.asked: list[tuple[dict[str, Any], Callable[[Any], None]]] = []
        self.is_there = True
        core: Any = SimpleNamespace(call_later=lambda delay_s, call: self.calls.append((delay_s, call)))
        link: Any = SimpleNamespace(core=core, ask=self.ask)
        directory: Any = SimpleNamespace(tenants={PLANT.id: PLANT})
        self.connected = ConnectedDevices(directory, link, lambda: 0.0)

    def ask(self, question: dict[str, Any], answered: Callable[[Any], None]) -> bool:
        if self.is_there:
            self.asked.append((question, answered))
        return self.is_there

    def run(self) -> None:
        while self.calls and not (self.asked or self.calls[0][0]):
            self.calls.pop(0)[1]()

    def answer(self, most: int = 1_000_000) -> list[str]:
        """Answer a question, at most for so many rows; return what it was about."""
        question, answered = self.asked.pop()
        answered({"found": [{"device": {}} for _ in question["of"]][:most]})
        return [row[0] for row in question["of"]]


def test_many_are_reviewed_by_a_few_questions_one_after_another() -> None:
    review = Review()
    items = [Item(f"d-{number}") for number in range(2 * AT_ONCE + 1)]
    for item in items:
        review.connected.mark(item)
    sizes = []
    review.run()
    while review.asked:
        assert len(review.asked) == 1
        sizes.append(len(review.answer()))
        review.run()
    assert sizes == [AT_ONCE, AT_ONCE, 1]
    assert all(len(item.judged) == 1 for item in items)


def test_what_was_not_answered_is_asked_about_again() -> None:
    review = Review()
    items = [Item(f"d-{number}") for number in range(3)]
    for item in items:
        review.connected.mark(item)
    review.run()
    review.connected.mark(items[0])  # it has changed once more meanwhile
    assert review.answer(most=2) == ["d-0", "d-1", "d-2"]
    review.run()
    assert review.answer() == ["d-0", "d-2"]
    review.is_there = False
    review.connected.mark(items[1])
    review.run()
    assert not review.asked
    ((delay_s, again),) = review.calls
    assert delay_s == AGAIN_S
    review.is_there = True
    again()
    assert review.answer() == ["d-1"]
    assert [len(item.judged) for item in items] == [2, 2, 1]


def test_a_device_that_was_registered_anew_is_another_one_of_its_id() -> None:
    review = Review()
    cut: list[str] = []
    review.connected.cut = lambda _connection, reason: cut.append(reason)
    connection: Any = Item("connection")
    connection.admission = SimpleNamespace(proof=None, device=None)
    connection.review = lambda: None
    connected = Connected(review.connected, connection, Device(PLANT, "lamp", {"made": "1"}), MQTT, lasts=True)
    review.connected.add(connected)
    for made in ({"made": "1"}, {}):
        connected.judge(PLANT, {"device": made})
        assert cut == []
    connected = Connected(review.connected, connection, Device(PLANT, "lamp", {"made": "1"}), MQTT, lasts=True)
    connected.judge(PLANT, {"device": {"made": "2"}})
    assert cut == [GONE]


def test_no_connector_takes_a_word_by_which_devices_reach_their_endpoints() -> None:
    assert {*KINDS, ERROR} == DEVICE_WORDS


def test_a_command_that_its_device_does_not_settle_is_released_after_a_while() -> None:
    calls: list[Callable[[], None]] = []
    outcomes: list[tuple[Any, Any]] = []
    consumer = SimpleNamespace(
        on_credit=lambda _gained, _drain: None, on_outcome=lambda *outcome: outcomes.append(outcome)
    )
    address = SimpleNamespace(name="command", attach_consumer=lambda _port, _options: consumer)
    core = SimpleNamespace(call_later=lambda _delay_s, call: calls.append(call))
    space = SimpleNamespace(core=core, find=lambda _name: address)
    link: Any = SimpleNamespace(core=core, note=lambda *_note: None)
    control = Control()
    spaces: Any = {"default/farm": space}
    commands = TenantCommands(PLANT, control.directory, link, lambda: spaces, RequestIds(b"key"))
    taken: list[Callable[[Any], None]] = []

    def offer(_command: Any, done: Callable[[Any], None]) -> bool:
        taken.append(done)
        return True

    listener: Any = SimpleNamespace(offer=offer)
    commands.listen(Device(PLANT, "d", {}), listener)
    payload = encode_message(b"", properties=Properties(to="command/default.plant/d", subject="open"))
    slow, quick, next_one = object(), object(), object()
    commands.send(slow, payload, False)
    commands.send(quick, payload, False)
    taken[1](ACCEPTED)
    assert outcomes == [(quick, ACCEPTED)]
    calls.pop()()
    commands.send(next_one, payload, False)
    assert len(calls) == 1
    calls.pop()()
    assert outcomes[1:] == [(slow, RELEASED)]
    taken[0](ACCEPTED)
    assert len(outcomes) == 2
    taken[2](ACCEPTED)
    assert outcomes[2:] == [(next_one, ACCEPTED)]
    calls.pop()()
    assert not calls
