"""How MQTT clients are let in: passwords, tokens, certificates, SCRAM, and what their users may do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from enmasse.identity.login import Judged, Judgement
from enmasse.identity.permissions import Grant
from enmasse.identity.users import User, Users
from enmasse.messaging.limits import patterns_memory
from enmasse.messaging.patterns import MAX_PARTS, parse
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.users.gate import Gate, GateOptions
from enmasse.node.users.peer import PeerInfo
from enmasse.node.users.rights import known_grants
from enmasse.wire.mqtt.packets import PublishProperties, Reason, Will
from enmasse.wire.sasl.scram import Scram
from tests.conformance.clause_list import clause
from tests.unit.node.mqtt_scene import V3, V5, Client, Heard, Scene
from tests.unit.node.test_node_admission import SCRAM, person, reviews_of

HERE, AWAY = "127.0.0.1:1", "192.0.2.7:1"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqbyJ9.c2lnbmF0dXJl"


class Authority:
    """Knows the users of one space by their tokens."""

    def knows(self, space: str) -> bool:
        return space == "ns/tokens"

    def takes_passwords(self, space: str) -> bool:
        return False

    def judge_token(self, token: str, space: str) -> Judged:
        return Judgement(person("jo", space, Grant(("all",), ("#",))) if token == TOKEN else None, "it is not signed")

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        raise AssertionError("it takes none")

    def judge_again(self, user: User) -> User | None:
        return user


class Guarded(Scene):
    """A node whose space is for its users."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.reviews = reviews_of(self.connections, self.node.entities)
        self.node.create(SPACE_TYPE, "ns/tokens", authentication="standard")
        self.node.entities.update(SPACE_TYPE, "ns/shop", {"authentication": "standard"}, self.node.answers.append)
        self.harness.commit()
        self.gate = Gate(
            self.node.entities.records[SPACE_TYPE], lambda: self.now, GateOptions(**options), Authority()
        )
        self.node.entities.space_changed = lambda _space: self.review()
        self.grant(Grant(("send", "recv"), ("topic/own/#", "queue")))
        self.node.address("other", "topic")
        self.come_from(HERE)

    def grant(self, *grants: Grant) -> None:
        """Change what jo may do."""
        users = [person("jo", "ns/shop", *grants, certificates=("jo.example.com",)), person("bo", "ns/shop", *grants)]
        self.gate.users = Users(users, b"seed")
        self.review()

    def review(self) -> None:
        self.reviews.review_all()

    def come_from(self, peer: str, **more: Any) -> None:
        """Have the clients that follow come from there."""
        self.options |= {"gate": self.gate, "peer_info": PeerInfo(peer, is_vouched_for=lambda: True, **more)}

    @property
    def space(self) -> Any:
        return self.node.entities.spaces["ns/shop"]

    def stored(self) -> Any:
        return SimpleNamespace(all=lambda space, name: [one for one in [self.gate.users.find(space, name)] if one])

    def bo(self, version: Any = V5, client_id: str | None = None, **options: Any) -> Client:
        return self.client(version, client_id, user_name="bo@shop.ns", password=b"secret", **options)

    def jo(self, version: Any = V5, client_id: str | None = None, **options: Any) -> Client:
        return self.client(version, client_id, user_name="jo@shop.ns", password=b"secret", **options)


@pytest.fixture
def scene() -> Guarded:
    return Guarded()


def refused(scene: Scene, version: Any, **options: Any) -> Heard:
    client = scene.connecting(version, **options)
    assert client.connack is not None
    assert (client.connack.reason != 0, client.is_cut) == (True, True)
    return client.connack


def test_a_user_comes_in_with_a_password(scene: Guarded) -> None:
    for version in (V3, V5):
        client = scene.jo(version)
        assert client.connection.user == "jo"
        assert client.answer("queue") == 0


@pytest.mark.parametrize(
    ("user", "password"), [("jo@shop.ns", b"wrong"), ("nobody@shop.ns", b"secret"), ("jo@nowhere.ns", b"secret")]
)
def test_wrong_credentials_are_refused_alike(scene: Guarded, user: str, password: bytes) -> None:
    connack = refused(scene, V5, user_name=user, password=password)
    assert connack.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert connack.said.properties.reason_string == "user name or password is wrong"
    assert refused(scene, V3, user_name=user, password=password).reason == 4


@pytest.mark.parametrize("password", [b"secret", b"wrong"])
def test_from_another_machine_nothing_is_taken_in_the_clear(scene: Guarded, password: bytes) -> None:
    scene.come_from(AWAY)
    connack = refused(scene, V5, user_name="jo@shop.ns", password=password)
    assert connack.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert "use TLS" in connack.said.properties.reason_string
    assert refused(scene, V3, user_name="jo@shop.ns", password=password).reason == 4
    scene.come_from(AWAY, is_private=True)
    scene.jo()


def test_the_operator_may_allow_passwords_in_the_clear() -> None:
    scene = Guarded(allow_insecure_plain=True)
    scene.come_from(AWAY)
    scene.jo()


def test_without_credentials_only_open_spaces_are_entered(scene: Guarded) -> None:
    scene.come_from(HERE, server_name="shop.ns")
    assert refused(scene, V5).reason == Reason.NOT_AUTHORIZED
    assert refused(scene, V3).reason == 5
    scene.node.create(SPACE_TYPE, "ns/open")
    scene.come_from(HERE, server_name="open.ns")
    assert scene.client().connection.space is scene.node.entities.spaces["ns/open"]


def test_the_host_for_tls_names_the_space(scene: Guarded) -> None:
    scene.come_from(AWAY, is_private=True, server_name="shop.ns")
    client = scene.client(user_name="jo", password=b"secret")
    assert client.connection.space is scene.space


def test_a_token_takes_the_place_of_a_password(scene: Guarded) -> None:
    scene.come_from(AWAY, is_private=True, server_name="tokens.ns")
    for user in ("jo", None):
        assert scene.client(user_name=user, password=TOKEN.encode()).connection.user == "jo"
    other = TOKEN[:-1].encode() + b"x"
    assert refused(scene, V5, user_name="jo", password=other).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert refused(scene, V5, user_name="bo", password=TOKEN.encode()).reason == Reason.BAD_USER_NAME_OR_PASSWORD


def test_a_certificate_is_enough(scene: Guarded) -> None:
    scene.come_from(AWAY, is_private=True, server_name="shop.ns", certified=("jo.example.com",))
    assert scene.client().connection.user == "jo"
    assert scene.client(V3, user_name="jo").connection.user == "jo"
    assert refused(scene, V5, user_name="bo").reason == Reason.BAD_USER_NAME_OR_PASSWORD


def exchange(scene: Guarded, password: str = "secret", method: str = SCRAM) -> Heard:
    scene.come_from(AWAY)
    scram = Scram(SCRAM, "jo@shop.ns", password, lambda: "nonce")
    client = Client(
        scene, V5, "device", authentication_method=method, authentication_data=scram.response(),
    )  # fmt: skip
    heard = client.told()[0]
    if heard.kind == "connack":
        return heard
    assert (heard.kind, heard.reason) == ("auth", Reason.CONTINUE_AUTHENTICATION)
    client.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, scram.answer(heard.said.data))
    connack = client.one("connack")
    if not connack.reason:
        scram.finish(connack.said.properties.authentication_data)
        assert client.connection.user == "jo"
    return connack


def test_scram_proves_a_password_in_the_clear(scene: Guarded) -> None:
    assert exchange(scene).reason == 0
    assert exchange(scene, "wrong").reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert exchange(scene, method="GS2-KRB5").reason == Reason.BAD_AUTHENTICATION_METHOD


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_a_client_may_authenticate_again(scene: Guarded, password: str) -> None:
    scene.come_from(AWAY)
    scram = Scram(SCRAM, "jo@shop.ns", "secret", lambda: "nonce")
    client = Client(scene, V5, "device", authentication_method=SCRAM, authentication_data=scram.response())
    (challenge,) = client.told()
    client.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, scram.answer(challenge.said.data))
    assert client.one("connack").reason == 0
    scram = Scram(SCRAM, "jo@shop.ns", password, lambda: "another")
    client.engine.put_auth(Reason.REAUTHENTICATE, scram.response())
    client.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, scram.answer(client.one("auth").said.data))
    if password == "secret":
        heard = client.one("auth")
        assert heard.reason == Reason.SUCCESS
        scram.finish(heard.said.data)
        assert client.answer("queue") == 0
    else:
        heard = client.one("disconnect")
        assert (heard.reason, heard.said.reason_string) == (
            Reason.NOT_AUTHORIZED,
            "user name or password is wrong",
        )


# What users may do


def test_a_user_may_publish_and_subscribe_to_what_grants_cover(scene: Guarded) -> None:
    client = scene.jo()
    assert client.subscribed("topic/own/#", "topic/other/#", "other", "queue", qos=1) == [
        1, Reason.NOT_AUTHORIZED, Reason.NOT_AUTHORIZED, 1,
    ]  # fmt: skip
    assert client.answer("topic/own/a") == 0
    assert client.answer("topic/other") == Reason.NOT_AUTHORIZED
    assert client.answer("other", qos=2) == Reason.NOT_AUTHORIZED
    old = scene.jo(V3)
    old.publish("other", qos=1)
    assert (old.told(), old.is_cut) == ([], True)


@pytest.fixture(params=[False, True], ids=["once", "each"])
def hall(request: pytest.FixtureRequest) -> Guarded:
    """A space that takes any name, whose users may receive a part of them, once or with a copy for each filter."""
    scene = Guarded()
    scene.space.copies_overlapping = request.param
    scene.node.address("#", "topic")
    scene.space.grants = lambda owner, name: known_grants(
        scene.gate, scene.stored(), scene.node.entities.spaces, "ns/shop", owner, name
    )
    scene.grant(*RECEIVES_HALL)
    return scene


RECEIVES_HALL = Grant(("send",), ("#",)), Grant(("recv",), ("hall/#", "+/+/alarm", "line*"))
HIDDEN = ("office/desk", "hallway", "office/a/b/alarm")
SHOWN = ("hall", "hall/a", "office/a/alarm", "line-7/state")


def topics(client: Client) -> list[str]:
    return sorted(message.topic for message in client.messages())


def tell(scene: Guarded, *names: str, **options: Any) -> None:
    sender = scene.bo()
    for name in names:
        assert sender.answer(name, **options) in (0, Reason.NO_MATCHING_SUBSCRIBERS)


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_filter_wider_than_the_grants_gets_what_they_cover(hall: Guarded, version: Any, qos: int) -> None:
    tell(hall, *(f"{name}/kept" for name in (*SHOWN, *HIDDEN)), retain=True)
    client = hall.jo(version)
    assert client.subscribed("#", qos=qos) == [qos]
    assert topics(client) == ["hall/a/kept", "hall/kept", "line-7/state/kept"]
    tell(hall, *SHOWN, *HIDDEN)
    assert topics(client) == sorted(SHOWN)
    assert client.subscribed("office/#", "hall/+", "nothing/+", qos=qos) == [qos, qos, fails(version)]
    client.told()
    tell(hall, "office/a/alarm", "office/a/other")
    assert set(topics(client)) == {"office/a/alarm"}
    client.unsubscribe("#")
    client.told()
    tell(hall, "hall/a", "hall/b/c", "line-8", "office/a/alarm")
    assert topics(client) == ["hall/a", "office/a/alarm"]


def fails(version: Any) -> int:
    return 0x80 if version is V3 else int(Reason.NOT_AUTHORIZED)


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_left_of_a_filter_changes_with_the_grants(hall: Guarded, qos: int) -> None:
    client = hall.jo()
    assert client.subscribed("#", "+/a", qos=qos) == [qos, qos]
    hall.grant(Grant(("send",), ("#",)), Grant(("recv",), ("office/#",)))
    tell(hall, "hall/b", "office/b", "hall/a", "hallway")
    assert topics(client) == ["office/b"]
    hall.grant(Grant(("send", "recv"), ("#",)))
    tell(hall, "hall/b", "office/b", "hallway")
    assert topics(client) == ["hall/b", "hallway", "office/b"]
    hall.grant(*RECEIVES_HALL)
    tell(hall, "hall/b", "office/b")
    assert topics(client) == ["hall/b"]
    hall.grant(Grant(("send",), ("#",)))
    tell(hall, "hall/b")
    assert [one.kind for one in client.told() if one.kind == "publish"] == []
    assert client.connection.session.filters == {}


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_and_what_waits_is_not_sent_once_the_grants_do_not_cover_it(hall: Guarded, qos: int) -> None:
    lasting = {"is_clean": False, "session_expiry_s": 600}
    client = hall.jo(V5, "display", **lasting)
    client.subscribed("#", qos=qos)
    tell(hall, "hall/in-flight", "line-in-flight")
    client.told()
    client.node_engine.lost()
    hall.go_on()
    tell(hall, "hall/a", "line-7")
    hall.grant(Grant(("send",), ("#",)), Grant(("recv",), ("hall/#", "office/#")))
    hall.go_on()
    # What is gathered from now on is what the new grants cover.
    tell(hall, "hall/b", "line-8", "office/a", "elsewhere")
    back = hall.jo(V5, "display", **lasting)
    assert topics(back) == ["hall/a", "hall/b", "hall/in-flight", "office/a"]
    tell(hall, "hall/c", "line-9")
    assert topics(back) == ["hall/c"]


def test_a_shared_message_goes_to_a_member_that_may_have_it(hall: Guarded) -> None:
    hall.gate.users = Users(
        [
            person("jo", "ns/shop", *RECEIVES_HALL, certificates=("jo.example.com",)),
            person("bo", "ns/shop", Grant(("send",), ("#",)), Grant(("recv",), ("office/#",))),
        ],
        b"seed",
    )
    jo, bo = hall.jo(), hall.bo()
    for one in (jo, bo):
        assert one.subscribed("$share/group/#", qos=1) == [1]
    tell(hall, *(f"{place}/{number}" for number in range(6) for place in ("hall", "office", "elsewhere")))
    assert topics(jo) == [f"hall/{number}" for number in range(6)]
    assert topics(bo) == [f"office/{number}" for number in range(6)]
    (kept,) = (one for one in hall.space.find("#").subscriptions if one.is_durable)
    assert kept.depth == 0
    bo.unsubscribe("$share/group/#")
    bo.told()
    tell(hall, "hall/x", "office/x")
    assert (topics(jo), kept.depth) == (["hall/x"], 0)


def test_a_shared_message_that_waits_for_a_member_is_anothers_as_grants_cover_more(hall: Guarded) -> None:
    def have(*of_jo: str) -> None:
        jos = person("jo", "ns/shop", Grant(("recv",), of_jo), certificates=("jo.example.com",))
        bos = person("bo", "ns/shop", Grant(("send",), ("#",)), Grant(("recv",), ("office/#", "hall/#")))
        hall.gate.users = Users([jos, bos], b"seed")
        hall.review()
        hall.go_on()

    have("hall/#")
    jo, bo = hall.jo(), hall.bo(V5, "away", session_expiry_s=600, is_clean=False)
    empty = hall.space.usage.subscription_bytes
    for one in (jo, bo):
        assert one.subscribed("$share/group/#", qos=1) == [1]
    bo.node_engine.lost()
    hall.go_on()
    before = hall.space.usage.subscription_bytes
    tell(hall, "hall/1", "office/1", "hall/2")
    full = hall.space.usage.subscription_bytes
    assert topics(jo) == ["hall/1", "hall/2"]
    have("hall/#", "office/#")
    assert topics(jo) == ["office/1"]
    # What grants leave of a member's filter is the group's, and its own as well.
    assert hall.space.usage.subscription_bytes - full == patterns_memory([parse("office/#")])
    have("hall/#")
    assert hall.space.usage.subscription_bytes == full
    for one in (jo, hall.bo(V5, "away", session_expiry_s=600, is_clean=False)):
        one.unsubscribe("$share/group/#")
        one.told()
    assert hall.space.usage.subscription_bytes - empty == full - before


def test_grants_may_name_the_client(hall: Guarded) -> None:
    hall.grant(Grant(("send", "recv"), ("own/%u/%c/#",)))
    lasting = {"is_clean": False, "session_expiry_s": 600}
    client = hall.jo(V5, "gauge", will=Will("own/jo/gauge/gone", b"", 1), **lasting)
    assert client.subscribed("#", "own/jo/other/#", qos=1) == [1, Reason.NOT_AUTHORIZED]
    assert client.answer("own/jo/gauge/a") == 0
    assert client.answer("own/jo/other/a") == Reason.NOT_AUTHORIZED
    assert topics(client) == ["own/jo/gauge/a"]
    client.node_engine.lost()
    hall.go_on()
    hall.review()
    hall.go_on()
    tell_self = hall.jo(V5, "gauge", **lasting)
    assert topics(tell_self) == ["own/jo/gauge/gone"]
    wild = hall.jo(V5, "#")
    wild.subscribed("#")
    assert tell_self.answer("own/jo/gauge/b") == 0
    assert (topics(wild), topics(tell_self)) == ([], ["own/jo/gauge/b"])


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("${username}-*", ["jo-1", "jo-"], ["jo", "bo-1", "x"]),
        ("%u", ["jo"], ["jo-1", "%u"]),
        ("*-x", ["a-x"], ["-y", "x"]),
        ("a*a", ["aa", "a*a"], ["a"]),
    ],
)
def test_a_user_may_be_bound_to_what_its_clients_call_themselves(
    scene: Guarded, pattern: str, good: list[str], bad: list[str]
) -> None:
    jo = person("jo", "ns/shop", Grant(("send",), ("queue",)))
    scene.gate.users = Users([replace(jo, client_ids=pattern)], b"seed")
    login = {"user_name": "jo@shop.ns", "password": b"secret"}
    clients = [scene.jo(client_id=name) for name in good]
    for name in (*bad, ""):
        assert refused(scene, V5, client_id=name, **login).reason == Reason.CLIENT_IDENTIFIER_NOT_VALID
        if name:
            assert refused(scene, V3, client_id=name, **login).reason == 2
    scene.gate.users = Users([replace(jo, client_ids="other")], b"seed")
    scene.review()
    scene.go_on()
    assert all(client.is_cut for client in clients)


def test_a_filter_with_too_many_parts_is_refused(hall: Guarded) -> None:
    hall.grant(Grant(("recv",), tuple(f"room-{number}/#" for number in range(MAX_PARTS + 1))))
    client = hall.jo()
    assert client.subscribed("#", "room-7/#") == [Reason.QUOTA_EXCEEDED, 0]


def test_a_grant_that_goes_ends_what_it_covered(scene: Guarded) -> None:
    client, old = scene.jo(), scene.jo(V3)
    for one in (client, old):
        assert one.subscribed("topic/own/a", qos=1) == [1]
        one.publish("topic/own/b", qos=1)
        assert one.one("puback").packet_id
    scene.grant(Grant(("send", "recv"), ("queue",)))
    assert client.answer("topic/own/b") == Reason.NOT_AUTHORIZED
    assert client.answer("queue") == 0
    assert not list(client.connection.session.links)
    assert (old.told(), old.is_cut) == ([], True)


def test_a_user_who_is_deleted_is_disconnected(scene: Guarded) -> None:
    client = scene.jo()
    scene.gate.users = Users([], b"seed")
    scene.review()
    heard = client.one("disconnect")
    assert heard.reason == Reason.NOT_AUTHORIZED
    assert "authenticate again" in heard.said.reason_string


def test_the_session_of_another_user_is_refused(scene: Guarded) -> None:
    scene.jo(V5, "device", session_expiry_s=60)
    others = {"user_name": "bo@shop.ns", "password": b"secret", "client_id": "device"}
    assert refused(scene, V5, **others).reason == Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert refused(scene, V3, **others).reason == 2


def test_a_will_that_the_user_may_not_send_is_refused(scene: Guarded) -> None:
    who = {"user_name": "jo@shop.ns", "password": b"secret"}
    assert refused(scene, V5, will=Will("other", b"gone"), **who).reason == Reason.NOT_AUTHORIZED
    assert refused(scene, V3, will=Will("other", b"gone"), **who).reason == 5


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_sent_when_the_connection_is_lost(scene: Guarded, qos: int) -> None:
    receiver = scene.jo()
    receiver.subscribed("topic/own/#", qos=2)
    will = Will("topic/own/a", b"gone", qos, properties=PublishProperties(content_type="text/plain"))
    client = scene.jo(V5, "device", will=will)
    client.node_engine.lost()
    (message,) = receiver.messages()
    assert (message.topic, message.payload, message.qos) == ("topic/own/a", b"gone", qos)
    assert message.properties is not None
    assert message.properties.content_type == "text/plain"
    again = scene.jo(V5, "device", will=will)
    again.engine.put(b"\xe0\x00")
    assert receiver.messages() == []


@clause("mqtt5:3.1.2-28")
def test_response_information_is_a_name_that_the_client_may_use(scene: Guarded) -> None:
    scene.node.address("responses", "topic")
    for granted, expected in (("queue", None), ("responses/device", "responses/device")):
        scene.grant(Grant(("recv",), (granted,)))
        client = scene.jo(V5, "device", wants_response_information=True)
        assert client.connack is not None
        assert client.connack.said.properties.response_information == expected
    silent = scene.jo(V5, "device")
    assert silent.connack is not None
    assert silent.connack.said.properties.response_information is None


def test_statistics_are_for_who_may_view(scene: Guarded) -> None:
    client = scene.jo()
    assert client.subscribed("$SYS/#") == [Reason.NOT_AUTHORIZED]
    scene.grant(Grant(("view",), ("#",)))
    assert client.subscribed("$SYS/broker/clients/connected") == [0]
    assert client.bodies() == [b"1"]
    scene.grant()
    scene.jo()
    scene.harness.advance(30)
    assert client.told() == []


@pytest.mark.parametrize("version", [V3, V5])
def test_a_client_whose_space_is_not_there_is_refused_and_logged_once(version: Any) -> None:
    scene = Scene()
    refused(scene, version, user_name="@none.ns")
    assert scene.options["events"].counts["connection-refused"] == 1
