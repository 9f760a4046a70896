"""How MQTT clients are let in: passwords, tokens, certificates, SCRAM, and what their users may do."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.identity.login import Judged, Judgement
from enmasse.identity.permissions import Grant
from enmasse.identity.users import User, Users
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.users.gate import Gate, GateOptions
from enmasse.node.users.peer import PeerInfo
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
    assert client.subscribed("topic/own/#", "topic/#", "other", "queue", qos=1) == [
        1, Reason.NOT_AUTHORIZED, Reason.NOT_AUTHORIZED, 1,
    ]  # fmt: skip
    assert client.answer("topic/own/a") == 0
    assert client.answer("topic/other") == Reason.NOT_AUTHORIZED
    assert client.answer("other", qos=2) == Reason.NOT_AUTHORIZED
    old = scene.jo(V3)
    old.publish("other", qos=1)
    assert (old.told(), old.is_cut) == ([], True)


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
