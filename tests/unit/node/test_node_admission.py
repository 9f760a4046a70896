"""Who comes into which space, and what links they get there: the node's gate over engines in memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jwt
import pytest

from enmasse.errors import RemoteError
from enmasse.identity.login import Judged, Judgement
from enmasse.identity.oidc import Identity
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.message.composites import decode_composite
from enmasse.message.outcomes import ACCEPTED, Rejected
from enmasse.message.sections import Properties, encode_message
from enmasse.message.types import Symbol
from enmasse.messaging.patterns import SUBTREE_CAPABILITY
from enmasse.messaging.space import Space
from enmasse.node.amqp.binding import LINGER_S
from enmasse.node.connections.review import CHECK_S, PER_TURN, Reviews
from enmasse.node.devices.devices import Devices
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.patterns import matcher_of
from enmasse.node.users.admission import Admission
from enmasse.node.users.gate import Gate, GateOptions
from enmasse.node.users.peer import PeerInfo
from enmasse.pending import Pending
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.performatives import Composite, SaslChallenge, SaslInit, SaslResponse, Source, Target
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.sasl.mechanisms import (
    Anonymous,
    ClientMechanism,
    External,
    OAuthBearer,
    Plain,
    SaslCode,
    XOAuth2,
)
from enmasse.wire.sasl.scram import Scram
from tests.unit.node.test_node_binding import Client, Node, Shell

SCRAM = "SCRAM-SHA-256"
FEW = 4_096
REFUSED = "amqp:unauthorized-access"


def person(
    name: str, space: str, *grants: Grant, certificates: tuple[str, ...] = (), password: str = "secret"
) -> User:
    keys = {SCRAM: make_keys(SCRAM, password, name.encode(), FEW)}
    return User(name, space, Permissions(grants, matcher_of, name), keys, certificates)


def jo(*grants: Grant, password: str = "secret") -> User:
    return person("jo", "ns/shop", *grants, certificates=("jo.example.com",), password=password)


SOME = Grant(("send", "recv"), ("orders/#", "replies", "news/*"))
USERS = [
    jo(SOME),
    person("bo", "ns/shop", SOME),
    person("flo", "ns/factory", Grant(("all",), ("#",))),
    person("mute", "ns/shop"),
    person("sub", "ns/shop", Grant(("recv",), ("mine",))),
]


class HandTurns:
    """Turns of a loop by hand; also the loop, whose timers never run."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.loop: Any = self

    def begin(self) -> float:
        return 0.0

    def later(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        self.timers.append((delay_s, call))
        return SimpleNamespace(cancel=lambda: None)

    def run(self) -> int:
        """Run one turn after another until nothing waits; return how many there were."""
        turns = 0
        while self.waiting:
            turns += 1
            calls, self.waiting = self.waiting, []
            for call in calls:
                call()
        return turns


def reviews_of(
    connections: Any, entities: Any, turns: HandTurns | None = None, wall: Callable[[], float] = lambda: 0.0
) -> Reviews:
    """Return the reviews of a node's connections, of which one looks after those that come from now on."""
    federation: Any = SimpleNamespace(settings_of=lambda _space: None)
    made = Reviews(connections, lambda: entities.spaces, turns or HandTurns(), wall, federation)
    connections.watchers.append(made)
    return made


class Guarded(Node):
    """A node with two spaces for users, and one for everybody."""

    def __init__(self, **options: Any) -> None:
        super().__init__("ns/open")
        for name in ("ns/shop", "ns/factory"):
            self.entities.create(SPACE_TYPE, name, {"authentication": "standard"}, self.answers.append)
        self.harness.commit()
        self.now = 0.0
        self.turns = HandTurns()
        self.reviews = reviews_of(self.connections, self.entities, self.turns, lambda: self.now)
        self.gate = Gate(self.entities.records[SPACE_TYPE], lambda: self.now, GateOptions(**options))
        self.set_users(USERS)
        self.entities.space_changed = lambda _space: self.review()
        for space in ("ns/shop", "ns/open"):
            for name in ("orders", "orders/eu", "stock", "replies"):
                self.address(name, "queue", space)
            self.address("news", "topic", space)
            self.address("mine", "subscription", space, topic="news")

    def set_users(self, users: list[User]) -> None:
        self.gate.users = Users(users, b"seed")
        self.review()

    def review(self) -> None:
        self.reviews.review_all()

    def meet(
        self,
        *mechanisms: ClientMechanism,
        sasl_host: str | None = None,
        hostname: str | None = None,
        without_sasl: bool = False,
        **peer_info: Any,
    ) -> GuardedClient:
        sasl = None if without_sasl else SaslClient(mechanisms, sasl_host)
        info = PeerInfo(**{"peer": Shell.peer, "is_vouched_for": lambda: True, **peer_info})
        return GuardedClient(self, hostname, sasl, gate=self.gate, peer_info=info)

    def user(self, name: str = "jo@shop.ns", password: str = "secret", **more: Any) -> GuardedClient:
        client = self.meet(Scram(SCRAM, name, password, lambda: "nonce"), **more)
        assert client.is_in, client.error
        return client


class GuardedClient(Client):
    """A client at a node with a gate."""

    @property
    def is_in(self) -> bool:
        return not self.client.closed and not self.server.is_close_sent and self.server.is_open_sent

    @property
    def error(self) -> tuple[str, str] | None:
        error = self.client.error or self.server.error
        return None if error is None else (str(error.condition), str(error.description))

    @property
    def space(self) -> str:
        assert self.binding.space is not None
        return self.binding.space.name


def message(to: str | None = None) -> bytes:
    return encode_message(b"x", properties=Properties(to=to))


def told(state: Any) -> str:
    """The condition of a rejection, or the name of another outcome."""
    if isinstance(state, Rejected) and state.error is not None:
        return str(state.error.condition)
    return type(state).__name__


@pytest.fixture
def node() -> Guarded:
    return Guarded()


# Coming in


@pytest.mark.parametrize(
    ("names", "space"),
    [
        ({"sasl_host": "shop.ns"}, "ns/shop"),
        ({"server_name": "shop.ns"}, "ns/shop"),
        ({"server_name": "shop.ns.enmasse.local", "sasl_host": "shop.ns", "hostname": "shop.ns"}, "ns/shop"),
        ({"sasl_host": "localhost", "server_name": "127.0.0.1"}, None),
        ({"sasl_host": "factory.ns"}, None),
        ({"sasl_host": "open.ns"}, None),
        ({"sasl_host": "shop.ns", "hostname": "factory.ns"}, None),
        ({"sasl_host": "shop.ns", "server_name": "factory.ns"}, None),
        ({"hostname": "shop.ns"}, None),  # too late: the password was to be checked before
    ],
)
def test_a_user_comes_into_the_space_that_is_named_before_open(
    node: Guarded, names: dict[str, Any], space: str | None
) -> None:
    client = node.meet(Scram(SCRAM, "jo", "secret", lambda: "nonce"), **names)
    assert client.is_in == (space is not None)
    if space is not None:
        assert (client.space, client.binding.user) == (space, "jo")
    assert node.connections.connections_of().page() == [] or client.is_in


def test_the_realm_names_the_space_and_goes_from_the_name(node: Guarded) -> None:
    client = node.user("flo@factory.ns")
    assert (client.space, client.binding.user) == ("ns/factory", "flo")
    assert [entity["user"] for entity in node.connections.connections_of().page()] == ["flo"]


def test_names_below_a_topic_are_cut_to_those_that_one_may_receive_from(node: Guarded) -> None:
    node.set_users([person("ann", "ns/shop", Grant(("recv",), ("news",)))])
    client = node.user("ann@shop.ns")
    client.receiver("news", name="one")
    client.receiver("news", name="all", desired_capabilities=(SUBTREE_CAPABILITY,))
    client.receiver("orders", name="none", desired_capabilities=(SUBTREE_CAPABILITY,))
    assert client.refusals == [("none", "amqp:unauthorized-access", True)]
    node.set_users([person("ann", "ns/shop", Grant(("recv",), ("news/#",)))])
    wide = client.receiver("news", name="wide", desired_capabilities=(SUBTREE_CAPABILITY,))
    assert wide.link is not None
    assert not wide.link.is_detached
    node.set_users([person("ann", "ns/shop", Grant(("recv",), ("news",)))])
    client.go()
    assert not wide.link.is_detached
    node.set_users([person("ann", "ns/shop", Grant(("recv",), ("orders",)))])
    client.go()
    assert {name for name, _, _ in client.refusals[1:]} == {"one", "all", "wide"}


def test_a_durable_subscription_that_is_named_by_its_link_alone_keeps_to_grants(node: Guarded) -> None:
    node.set_users([person("ann", "ns/shop", Grant(("recv",), ("news",)))])
    client = node.user("ann@shop.ns")
    first = client.receiver(Source(address="news", durable=2, expiry_policy=Symbol("never")), name="mine")
    assert first.link is not None
    first.link.detach(closed=False)
    client.go()
    nothing: Any = None
    second = client.receiver(nothing, name="mine")
    assert second.link is not None
    assert not second.link.is_detached
    node.set_users([person("ann", "ns/shop", Grant(("recv",), ("orders",)))])
    client.go()
    assert client.refusals[-1] == ("mine", REFUSED, True)


def test_the_listeners_default_is_meant_when_nothing_is_named(node: Guarded) -> None:
    node.default = "ns/shop"
    assert node.user("jo").space == "ns/shop"
    assert not node.meet(Anonymous()).is_in


@pytest.mark.parametrize(
    ("peer_info", "offered"),
    [
        ({}, (SCRAM, "PLAIN", "ANONYMOUS")),  # nobody else reads what does not leave this machine
        ({"is_private": True}, (SCRAM, "PLAIN", "ANONYMOUS")),
        ({"server_name": "shop.ns"}, (SCRAM, "PLAIN")),
        ({"server_name": "shop.ns", "peer": "192.0.2.1:1"}, (SCRAM,)),
        ({"server_name": "shop.ns", "is_private": True}, (SCRAM, "PLAIN")),
        ({"server_name": "shop.ns", "certified": ("x",)}, ("EXTERNAL", SCRAM, "PLAIN")),
        ({"server_name": "open.ns"}, ("PLAIN", "ANONYMOUS")),
        ({"peer": "192.0.2.1:1"}, (SCRAM,)),
    ],
)
def test_what_is_offered_is_good_for_a_space_that_may_be_meant(
    node: Guarded, peer_info: dict[str, Any], offered: tuple[str, ...]
) -> None:
    client = node.meet(Anonymous(), **peer_info)
    assert client.server.sasl is not None
    assert client.server.sasl.mechanisms == offered  # type: ignore[union-attr]
    assert client.server.sasl.is_optional == ("ANONYMOUS" in offered)


@pytest.mark.parametrize("peer_info", [{"server_name": "typo.ns"}, {"server_name": "shop.enmasse.local"}])
def test_what_is_offered_at_a_misspelt_host_is_what_is_offered_at_none(
    node: Guarded, peer_info: dict[str, Any]
) -> None:
    offers = [node.meet(Anonymous(), is_private=True, **each).server.sasl for each in (peer_info, {})]
    assert offers[0].mechanisms == offers[1].mechanisms  # type: ignore[union-attr]


def test_a_space_s_own_port_is_outranked_by_no_host_and_no_realm(node: Guarded) -> None:
    node.port_of = "ns/shop"
    assert node.user("jo").space == node.user("jo", hostname="localhost").space == "ns/shop"
    assert node.user("jo", sasl_host="10.0.0.1", server_name="broker.example.org").space == "ns/shop"
    for way in ("server_name", "sasl_host"):
        named: dict[str, Any] = {way: "factory.ns"}
        assert not node.meet(Scram(SCRAM, "flo", "secret", lambda: "nonce"), **named).is_in
    assert not node.meet(Scram(SCRAM, "flo@factory.ns", "secret", lambda: "nonce")).is_in
    late = node.meet(Scram(SCRAM, "jo", "secret", lambda: "nonce"), hostname="factory.ns")
    assert late.error is not None
    assert late.error[0] == "amqp:not-allowed"
    node.port_of = "ns/open"
    for host in ("shop.ns", "factory.ns"):
        client = node.meet(Anonymous(), hostname=host)
        assert client.error is not None
        assert client.error[0] == "amqp:not-allowed"
        assert "ns/" not in client.error[1]


@pytest.mark.parametrize("host", ["typo.ns", "shop.wrong", "typo.ns.enmasse.local", "SHOP.wrong."])
@pytest.mark.parametrize("is_open", [False, True])
def test_who_misspells_the_only_space_is_not_taken_there(host: str, is_open: bool) -> None:
    node = Guarded()
    for name in ("ns/open", "ns/factory"):
        for address in node.entities.declared.of_space(name).copy().values():
            node.entities.delete(ADDRESS_TYPE, address, node.answers.append)
        node.harness.commit()
        node.entities.delete(SPACE_TYPE, name, node.answers.append)
    node.harness.commit()
    if is_open:
        node.entities.update(SPACE_TYPE, "ns/shop", {"authentication": "none"}, node.answers.append)
        node.harness.commit()
        client = node.meet(Anonymous(), sasl_host=host, hostname=host)
        assert client.error is not None
        assert client.error[0] == "amqp:not-found"
        return
    scram = Scram(SCRAM, "jo", "secret", lambda: "nonce")
    assert node.meet(scram, sasl_host="localhost", hostname="localhost").is_in
    for way in ("sasl_host", "server_name", "hostname"):
        named: dict[str, Any] = {way: host}
        assert not node.meet(scram, **named).is_in
    assert not node.meet(Scram(SCRAM, f"jo@{host}", "secret", lambda: "nonce")).is_in


def test_a_user_who_misspells_a_host_is_not_told_of_spaces_of_others(node: Guarded) -> None:
    for host in ("typo.ns", "typo.ns.enmasse.local", "shop.wrong"):
        client = node.meet(Scram(SCRAM, "jo@shop.ns", "secret", lambda: "nonce"), hostname=host)
        assert client.error is not None
        assert client.error[0] == "amqp:not-found"
        assert "factory" not in client.error[1]


def test_a_certificate_does_not_lead_past_a_misspelt_host(node: Guarded) -> None:
    contradictions: list[dict[str, Any]] = [
        {"server_name": "typo.ns"},
        {"server_name": "factory.ns", "sasl_host": "shop.ns"},
    ]
    for names in contradictions:
        assert not node.meet(External(), is_private=True, certified=("jo.example.com",), **names).is_in


def test_no_refusal_before_a_login_names_a_space_that_the_client_has_not_named(node: Guarded) -> None:
    for default in (None, "ns/shop"):
        node.default = default
        for hostname in (None, "shop.ns", "localhost", "typo.ns", "typo.ns.enmasse.local", "shop.wrong"):
            for without_sasl in (False, True):
                client = node.meet(Anonymous(), hostname=hostname, without_sasl=without_sasl)
                assert client.error is not None
                told = client.error[1].replace(f"host {hostname!r}", "")
                assert "shop" not in told
                assert "factory" not in told


def test_a_password_from_elsewhere_needs_tls_or_permission(node: Guarded) -> None:
    plain, elsewhere = Plain("jo@shop.ns", "secret"), "192.0.2.1:1"
    assert not node.meet(plain, peer=elsewhere).is_in
    assert "PLAIN" not in node.meet(plain, peer=elsewhere).server.sasl.mechanisms  # type: ignore[union-attr]
    assert node.meet(plain).is_in
    assert node.meet(plain, peer=elsewhere, is_private=True).is_in
    assert Guarded(allow_insecure_plain=True).meet(plain, peer=elsewhere).is_in


@pytest.mark.parametrize(
    ("client", "is_in"),
    [
        ({"certified": ("jo.example.com",)}, True),
        ({"certified": ("jo.example.com",), "server_name": "shop.ns"}, True),
        ({"certified": ("jo.example.com",), "server_name": "factory.ns"}, False),
        ({"certified": ("jo.example.com",), "hostname": "factory.ns"}, False),
        ({"certified": ("other.example.com",), "server_name": "shop.ns"}, False),
    ],
)
def test_a_certificate_names_user_and_space(node: Guarded, client: dict[str, Any], is_in: bool) -> None:
    found = node.meet(External(), is_private=True, **client)
    assert found.is_in == is_in
    if is_in:
        assert (found.space, found.binding.user) == ("ns/shop", "jo")


@pytest.mark.parametrize("without_sasl", [True, False])
def test_who_proves_nothing_comes_into_open_spaces_only(node: Guarded, without_sasl: bool) -> None:
    for host, is_in in (("open.ns", True), ("shop.ns", False)):
        client = node.meet(Anonymous(), hostname=host, without_sasl=without_sasl)
        assert client.is_in == is_in
        if not is_in:
            assert client.error is not None
            assert client.error[0] == REFUSED
    assert [entity["space"] for entity in node.connections.connections_of().page()] == ["ns/open"] * 1


def test_where_all_spaces_have_users_sasl_cannot_be_left_out(node: Guarded) -> None:
    node.entities.update(SPACE_TYPE, "ns/open", {"authentication": "standard"}, node.answers.append)
    node.harness.commit()
    client = node.meet(without_sasl=True, hostname="shop.ns")
    assert client.server.closed
    assert client.client.closed


def test_others_machines_need_permission_for_open_spaces() -> None:
    for is_allowed in (False, True):
        node = Guarded(allow_anonymous=is_allowed)
        for peer in ("192.0.2.1:5", "[2001:db8::1]:5"):
            assert node.meet(Anonymous(), hostname="open.ns", peer=peer).is_in == is_allowed
            assert node.user(peer=peer).is_in
        for peer in ("127.9.9.9:5", "[::1]:5"):
            assert node.meet(Anonymous(), hostname="open.ns", peer=peer).is_in


def test_strangers_are_not_told_which_spaces_have_users(node: Guarded) -> None:
    client = node.meet(Anonymous())
    assert client.error is not None
    assert client.error[1].endswith("open.ns")
    assert "shop" not in client.error[1]


def test_a_user_has_so_many_connections_and_no_more() -> None:
    node = Guarded(max_user_connections=2)
    first, _ = node.user(), node.user()
    third = node.meet(Scram(SCRAM, "jo@shop.ns", "secret", lambda: "nonce"))
    assert third.error == ("amqp:resource-limit-exceeded", "user 'jo' has 2 connections already")
    node.user("bo@shop.ns")
    first.cut()
    node.user()


def test_who_guesses_waits_and_the_right_password_waits_with_it(node: Guarded) -> None:
    def attempt(password: str, user: str = "jo", peer: str = Shell.peer) -> str:
        client = node.meet(Scram(SCRAM, f"{user}@shop.ns", password, lambda: "nonce"), peer=peer)
        return "in" if client.is_in else str(client.client.sasl.error)  # type: ignore[union-attr]

    assert {attempt("guess") for _ in range(5)} == {"the server refused the credentials"}
    for password in ("guess", "secret"):
        assert "try again later" in attempt(password)
    assert attempt("secret", peer="127.0.0.2:1") == "in", "from elsewhere the same user comes in"
    assert attempt("secret", "bo") == "in"
    node.now += 6.5
    assert attempt("secret") == "in"
    for number in range(20):
        attempt("guess", f"nobody{number}")
    assert "try again later" in attempt("secret", "sub")
    assert attempt("secret", "sub", peer="127.0.0.2:1") == "in"
    assert attempt("secret", "bo") == "in", "who came in from there lately is known there"
    assert node.meet(Anonymous(), hostname="open.ns").is_in, "who guesses nothing need not wait"


def test_who_guesses_at_a_name_in_one_space_keeps_nobody_of_another_out(node: Guarded) -> None:
    node.set_users([*USERS, person("jo", "ns/factory", SOME)])

    def attempt(name: str, password: str, host: str | None = None) -> bool:
        return node.meet(Scram(SCRAM, name, password, lambda: "nonce"), sasl_host=host).is_in

    for number in range(5):
        # Whatever way the space is named, it is one user.
        assert not (attempt("jo@shop.ns", "guess") if number % 2 else attempt("jo", "guess", "shop.ns"))
    assert not attempt("jo", "secret", "shop.ns")
    assert not attempt("jo@shop.ns", "secret")
    assert attempt("jo", "secret", "factory.ns")
    assert attempt("jo@factory.ns", "secret")


class Attempt:
    """A login by SCRAM as far as one likes."""

    def __init__(self, node: Guarded, password: str, user: str = "jo@shop.ns", peer: str = "192.0.2.7:1") -> None:
        self._client = Scram(SCRAM, user, password, lambda: "nonce")
        spaces = node.entities.spaces
        admission = Admission(node.gate, spaces=lambda: spaces, default=None, peer_info=PeerInfo(peer))
        mechanisms, is_optional = admission.offer()
        self._server = SaslServer(mechanisms, admission.authenticate, is_optional=is_optional)
        self._challenge = self._ask(SaslInit(SCRAM, self._client.response(), None))

    def _ask(self, frame: Composite) -> Any:
        (answer,) = self._server.receive(frame)
        return decode_composite(answer, 8, len(answer))[0]

    def end(self) -> int:
        """Answer the challenge, if there was one, and return the outcome's code."""
        if isinstance(self._challenge, SaslChallenge):
            self._challenge = self._ask(SaslResponse(self._client.answer(self._challenge.challenge)))
        return int(self._challenge.code)


def test_logins_that_are_begun_at_once_are_as_few_guesses_as_others(node: Guarded) -> None:
    begun = [Attempt(node, f"guess {number}") for number in range(40)]
    begun.append(Attempt(node, "secret"))
    assert [attempt.end() for attempt in begun] == [1] * 5 + [4] * 36
    node.now += 6
    assert Attempt(node, "secret").end() == 0, "however many were tried, one failure is forgotten after six seconds"


def test_who_guesses_makes_nobody_wait_but_in_the_same_space_from_the_same_network(node: Guarded) -> None:
    there, next_door, elsewhere = "[2001:db8:1:2::7]:1", "[2001:db8:1:2:ffff::1]:1", "[2001:db8:1:3::7]:1"
    assert Attempt(node, "secret", "bo@shop.ns", next_door).end() == 0
    for number in range(40):
        Attempt(node, "guess", f"nobody{number}@shop.ns", there).end()
    assert Attempt(node, "secret", "jo@shop.ns", next_door).end() == 4, "a network is one place of clients"
    assert Attempt(node, "secret", "bo@shop.ns", next_door).end() == 0, "but for whom it is known"
    assert Attempt(node, "secret", "jo@shop.ns", elsewhere).end() == 0
    assert Attempt(node, "secret", "flo@factory.ns", next_door).end() == 0, "another tenant of the same network"
    node.now += 3
    assert Attempt(node, "secret", "jo@shop.ns", next_door).end() == 0


def test_passwords_that_somebody_else_judges_are_few_at_once(node: Guarded) -> None:
    authority = node.gate.tokens = Authority("ns/shop")
    for number in range(40):
        node.meet(Plain("ida", f"guess {number}"), sasl_host="shop.ns", is_private=True)
    assert len(authority.all_waiting) == 5
    for waiting in authority.all_waiting:
        waiting.settle(Judgement(reason="away", is_temporary=True))
    node.meet(Plain("ida", "guess"), sasl_host="shop.ns", is_private=True)
    assert len(authority.all_waiting) == 6, "what was not judged does not count"
    for _ in range(40):
        node.meet(Plain("ida", "guess"), sasl_host="shop.ns", is_private=True)
    assert len(authority.all_waiting) == 46, "the same password of many clients is one guess"


def test_who_is_nobody_may_fail_as_often_as_it_likes(node: Guarded) -> None:
    for _ in range(30):
        assert not node.meet(Anonymous(), sasl_host="shop.ns").is_in
    node.user()


def test_a_user_whose_name_may_be_a_device_s_comes_in_and_is_put_off_if_the_proof_is_wrong(node: Guarded) -> None:
    node.set_users([person("ida@example.org", "ns/shop", SOME)])
    admin = Space(node.harness.core, "$admin", lambda: "id")
    node.gate.devices = Devices(
        admin,
        lambda: node.entities.spaces,
        names=lambda: node.gate.names,
        clock=lambda: node.now,
        wall=lambda: 0.0,
        passwords=node.gate.passwords,
    )
    node.gate.devices.expect_tenants()
    assert node.user("ida@example.org", sasl_host="shop.ns").binding.user == "ida@example.org"
    for failures in range(1, 6):
        wrong = node.meet(Plain("ida@example.org", "guess"), sasl_host="shop.ns", is_private=True)
        assert (wrong.is_in, wrong.client.sasl.code) == (False, SaslCode.SYS_TEMP)  # type: ignore[union-attr]
        assert node.gate.refused == failures, "it counts, or guesses were free"
    for host in ("open.ns", None):
        late = node.meet(Plain("ida@example.org", "secret"), sasl_host=host, is_private=True)
        assert (late.is_in, node.gate.refused) == (False, 5)


# Links


@pytest.mark.parametrize(
    ("user", "address", "may_send", "may_receive"),
    [
        ("jo", "orders", True, True),
        ("jo", "orders/eu", True, True),
        ("jo", "stock", False, False),
        ("jo", "gone", False, False),
        ("jo", "news/sport", True, True),
        ("jo", "news/#", False, True),  # and is given what of it is within the grants
        ("mute", "orders", False, False),
        ("sub", "mine", False, True),
    ],
)
def test_links_are_what_permissions_say(
    node: Guarded, user: str, address: str, may_send: bool, may_receive: bool
) -> None:
    client = node.user(f"{user}@shop.ns")
    client.sender(address)
    client.receiver(address, credit=0)
    refused = {name for name, condition, _ in client.refusals if condition == REFUSED}
    assert refused == {name for name, may in (("out", may_send), ("in", may_receive)) if not may}


def test_a_subscription_is_reached_by_both_of_its_names(node: Guarded) -> None:
    client = node.user("sub@shop.ns")
    client.receiver("news::mine", credit=0)
    assert client.refusals == []
    node.user("jo@shop.ns").receiver("news::mine", credit=0)
    for source in ("news", "news::gone", "gone::mine"):
        client.receiver(source, name=source, credit=0)
    assert client.refusals == [(name, REFUSED, True) for name in ("news", "news::gone", "gone::mine")]


def test_the_anonymous_terminus_asks_for_each_address(node: Guarded) -> None:
    client = node.user()
    anonymous = client.sender(Target())
    sent = [anonymous.send(message(to)) for to in ("orders", "stock", "orders/eu", "gone", "orders")]
    client.go()
    assert [told(item.state) for item in sent] == ["Accepted", REFUSED, "Accepted", REFUSED, "Accepted"]
    node.set_users([jo(Grant(("send",), ("stock",)))])
    sent = [anonymous.send(message(to)) for to in ("orders", "stock")]
    client.go()
    assert [told(item.state) for item in sent] == [REFUSED, "Accepted"]


def test_a_dynamic_address_is_for_its_creator_to_read_and_for_all_to_answer(node: Guarded) -> None:
    asker, other, same = node.user(), node.user("bo@shop.ns"), node.user()
    replies = asker.receiver(Source(dynamic=True), answer=ACCEPTED)
    assert replies.link is not None
    assert replies.link.remote_attach is not None
    assert replies.link.remote_attach.source is not None
    name = replies.link.remote_attach.source.address
    sent = [other.sender(name).send(message()), other.sender(Target(), name="any").send(message(name))]
    for client in (other, asker, other):
        client.go()
    assert [told(item.state) for item in sent] == ["Accepted"] * 2
    other.receiver(name, credit=0)
    assert other.refusals == [("in", REFUSED, True)]
    same.receiver(name, credit=0)
    assert same.refusals == []
    mute = node.user("mute@shop.ns")
    mute.receiver(Source(dynamic=True), credit=0)
    assert mute.refusals == [("in", REFUSED, True)]


def test_in_an_open_space_everybody_may_do_everything(node: Guarded) -> None:
    client = node.meet(Anonymous(), hostname="open.ns")
    client.sender("stock")
    client.receiver("news", credit=0)
    client.receiver(Source(dynamic=True), name="reply", credit=0)
    assert client.refusals == []


# Changes


def test_permissions_that_are_lost_detach_what_they_had_allowed(node: Guarded) -> None:
    client, other = node.user(), node.user("bo@shop.ns")
    client.sender("orders")
    client.receiver("orders/eu", credit=0)
    other.sender("orders")
    space = node.entities.spaces["ns/shop"]
    node.set_users([jo(Grant(("recv",), ("orders/eu",))), USERS[1]])
    for each in (client, other):
        each.go()
    assert client.refusals == [("out", REFUSED, True)]
    assert other.refusals == []
    assert len(space.find("orders").producers) == 1
    assert len(space.find("orders/eu").consumers) == 1


@pytest.mark.parametrize("changed", [[], [jo(SOME, password="changed")]])
def test_a_user_that_is_gone_or_has_another_password_is_sent_away(node: Guarded, changed: list[User]) -> None:
    client, other = node.user(), node.user("bo@shop.ns")
    node.set_users([*changed, USERS[1]])
    for each in (client, other):
        each.go()
    assert client.diary.error is not None
    assert client.diary.error.condition == REFUSED
    assert other.is_in


def test_who_has_proved_itself_by_something_else_stays(node: Guarded) -> None:
    by_password = node.user()
    by_certificate = node.meet(External(), certified=("jo.example.com",), hostname="shop.ns")
    clients = by_password, by_certificate
    for changed, stay in (
        (jo(SOME, password="changed"), [False, True]),
        (person("jo", "ns/shop", SOME, password="changed"), [False, False]),
    ):
        node.set_users([changed, USERS[1]])
        for each in clients:
            each.go()
        assert [each.is_in for each in clients] == stay


def test_who_has_come_by_a_certificate_stays_as_long_as_that_counts(node: Guarded) -> None:
    trusted = ["mine", "longer"]

    def card(authority: str, until: float) -> GuardedClient:
        return node.meet(
            External(),
            certified=("jo.example.com",),
            hostname="shop.ns",
            is_vouched_for=lambda: authority in trusted,
            certified_until=until,
        )

    clients = card("mine", 300.0), card("longer", 100.0), card("longer", 200.0), node.user()
    trusted.remove("mine")
    node.review()
    stay = []
    for node.now in (50.0, 100.0):
        for _, call in node.turns.timers[-1:]:
            call()
        for each in clients:
            each.go()
        stay.append([each.is_in for each in clients])
    assert stay == [[False, True, True, True], [False, False, True, True]]
    assert "the certificate has expired" in str(clients[1].error)


def test_a_client_that_does_not_answer_the_close_neither_sends_nor_receives_any_more(node: Guarded) -> None:
    client = node.user()
    client.sender("orders")
    client.receiver("orders", credit=1)
    client.to_client.is_held = True  # it does not read
    queue = node.entities.spaces["ns/shop"].find("orders")
    assert (len(queue.producers), len(queue.consumers)) == (1, 1)
    node.set_users([USERS[1]])
    node.harness.advance(0.1)
    client.go()
    assert (len(queue.producers), len(queue.consumers)) == (0, 0)
    client.session.attach_sender("again", RecordingSink(), Target(address="orders"))
    client.go()
    assert not queue.producers
    ends = [client.server.closed]
    node.harness.advance(LINGER_S)
    client.go()
    assert [*ends, client.server.closed] == [False, True]
    assert client.server.error is not None
    assert client.server.error.condition == REFUSED


class Authority:
    """Knows one token, and one password; who has shown them may stay for as long as ``may_stay`` says."""

    may_stay = True

    def __init__(self, *spaces: str) -> None:
        self._spaces = spaces
        self.waiting: Pending[Judgement] = Pending()
        self.all_waiting: list[Pending[Judgement]] = []

    def knows(self, space: str) -> bool:
        return space in self._spaces

    def takes_passwords(self, space: str) -> bool:
        return True

    def judge_token(self, token: str, space: str) -> Judged:
        user = User("ida", space, Permissions([SOME], matcher_of), identity=Identity("https://id", "1", "ida"))
        return Judgement(user if token == "good" else None)

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        self.waiting = Pending()
        self.all_waiting.append(self.waiting)
        return self.waiting

    def judge_again(self, user: User) -> User | None:
        return user if self.may_stay else None


def test_whom_a_token_names_need_not_be_in_the_file(node: Guarded) -> None:
    authority = node.gate.tokens = Authority("ns/shop")
    assert not node.meet(OAuthBearer("bad"), sasl_host="shop.ns", is_private=True).is_in
    client = node.meet(OAuthBearer("good"), sasl_host="shop.ns", is_private=True)
    assert (client.space, client.binding.user) == ("ns/shop", "ida")
    node.set_users([])
    client.go()
    assert client.is_in
    client.sender("orders")
    assert client.refusals == []
    authority.may_stay = False
    node.review()
    client.go()
    assert not client.is_in


@pytest.mark.parametrize("mechanism", [OAuthBearer, lambda token: XOAuth2("ida", token)])
def test_a_token_of_a_device_opens_no_space_that_is_open_to_everybody(
    node: Guarded, mechanism: Callable[[str], ClientMechanism]
) -> None:
    node.gate.tokens = Authority("ns/shop")  # so that tokens are offered
    claims = {"tid": "ns.nosuch", "sub": "lamp", "aud": "hono-adapter"}
    for host in ("open.ns", None):
        others = jwt.encode({"sub": "ida"}, "a key of thirty-two bytes, or more", algorithm="HS256")
        assert node.meet(mechanism(others), sasl_host=host, hostname="open.ns", is_private=True).is_in
        token = jwt.encode(claims, "a key of thirty-two bytes, or more", algorithm="HS256")
        assert not node.meet(mechanism(token), sasl_host=host, hostname="open.ns", is_private=True).is_in


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_late_refusal_is_counted_only_if_it_says_something(node: Guarded, is_temporary: bool) -> None:
    authority = node.gate.tokens = Authority("ns/shop")
    client = node.meet(Plain("ida", "guess"), sasl_host="shop.ns", is_private=True)
    assert not client.is_in
    assert node.gate.refused == 0
    authority.waiting.settle(Judgement(reason="no", is_temporary=is_temporary))
    client.go()
    assert client.error is not None
    assert node.gate.refused == (0 if is_temporary else 1)


def test_a_late_admission_lets_a_client_in(node: Guarded) -> None:
    authority = node.gate.tokens = Authority("ns/shop")
    client = node.meet(Plain("ida", "right"), sasl_host="shop.ns", is_private=True)
    found = authority.judge_token("good", "ns/shop")
    assert isinstance(found, Judgement)
    authority.waiting.settle(found)
    client.go()
    assert client.is_in
    assert client.binding.user == "ida"


def test_a_user_that_is_removed_between_sasl_and_open_does_not_come_in(node: Guarded) -> None:
    admission = node.user().binding.admission
    node.gate.users = Users([], b"seed")
    with pytest.raises(RemoteError, match="changed meanwhile"):
        admission.enter(None)


def test_a_space_that_gets_users_sends_everybody_else_away(node: Guarded) -> None:
    client = node.meet(Anonymous(), hostname="open.ns")
    node.entities.update(SPACE_TYPE, "ns/open", {"authentication": "standard"}, node.answers.append)
    client.go()
    assert client.diary.error is not None
    assert client.diary.error.condition == REFUSED


def test_many_are_looked_at_in_slices_between_which_others_have_their_turn(node: Guarded) -> None:
    turns = HandTurns()
    reviews = reviews_of(node.connections, node.entities, turns)
    clients = [node.user("bo@shop.ns") for _ in range(2 * PER_TURN + 1)]

    def count_here() -> int:
        return sum(not client.server.is_close_sent for client in clients)

    node.gate.users = Users([USERS[0]], b"seed")
    reviews.review_user("ns/shop", "bo")
    assert count_here() == PER_TURN + 1
    assert turns.run() == 2
    assert count_here() == 0


def test_who_has_a_proof_that_ends_is_closed_then_and_not_before(node: Guarded) -> None:
    now, turns = 100.0, HandTurns()
    reviews = reviews_of(node.connections, node.entities, turns, lambda: now)
    clients = [node.user("bo@shop.ns") for _ in range(3)]
    ends = [105.0, 103.0, 104.0]
    for client, end in zip(clients, ends, strict=True):
        client.binding.admission.proof = SimpleNamespace(ends_at=end, name="password")  # type: ignore[assignment]
        reviews.schedule(client.binding)
    # The second proves itself again, and the third loses its own before.
    clients[1].binding.admission.proof = SimpleNamespace(ends_at=110.0, name="password")  # type: ignore[assignment]
    clients[2].binding.admission.proof = SimpleNamespace(ends_at=101.0, name="password")  # type: ignore[assignment]
    reviews.schedule(clients[2].binding)
    here = []
    while now < 112:
        now += 1
        delay_s, timer = turns.timers[-1]
        assert delay_s <= CHECK_S
        timer()
        here.append([not client.server.is_close_sent for client in clients])
    assert [sum(each) for each in zip(*here, strict=True)] == [4, 9, 0]
