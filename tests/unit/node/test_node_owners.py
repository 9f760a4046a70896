"""Which owners may still come in to a space, as its users, its authentication and its provider say."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.identity.oidc import Identity
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User
from enmasse.messaging.owners import ADMINISTRATOR, ANONYMOUS
from enmasse.node.devices.tenants import Device, Tenant
from enmasse.node.patterns import matcher_of
from enmasse.node.users.owners import KnownOwners
from enmasse.node.users.rights import KnownGrants, known_grants

ISSUER = "https://id.example.com/realms/shop"
PROVIDER = OidcSettings(ISSUER, ("messaging",))
GRANTING = OidcSettings(ISSUER, ("messaging",), group_grants=True)
OURS = OidcSettings(ISSUER, ("messaging",), has_our_users=True)
OTHER = OidcSettings("https://id.example.com/realms/other", ("messaging",), group_grants=True)


class Node:
    """The users and the authentication of one space, as a gate, a federation and a directory."""

    def __init__(self, kind: str, *users: User, settings: OidcSettings | None = None) -> None:
        self.kind = kind
        self.users = users
        self.settings = settings
        here: Any = self
        self.tokens = self
        self.owners = KnownOwners(here, here, here)

    def is_open(self, _space: str) -> bool:
        return self.kind == "none"

    def knows(self, _space: str) -> bool:
        return self.kind == "external"

    def settings_of(self, _space: str) -> OidcSettings | None:
        return self.settings

    def all(self, _space: str, name: str) -> list[User]:
        return [user for user in self.users if user.name == name]

    def find(self, space: str, name: str) -> User | None:
        return next(iter(self.all(space, name)), None)

    def grants(self, owner: str, name: str) -> KnownGrants | None:
        here: Any = self
        return known_grants(here, here, {}, "ns/shop", owner, name)

    def knows_owner(self, owner: str, *, is_removed: bool = False) -> bool:
        return self.owners.is_known("ns/shop", owner, "ida", is_removed)


def ida(uid: str = "1", **more: Any) -> User:
    rights = Permissions([Grant(("send",), ("gone/*",)), Grant(("recv",), ("news/#",))], matcher_of, "ida")
    return User("ida", "ns/shop", rights, uid=uid, **more)


PERSON = ida("", identity=Identity(ISSUER, "u-1", "ida"))
NAMELESS = ida("", identity=Identity(ISSUER, "", "ida"))


def test_an_owner_is_no_name() -> None:
    tenant = Tenant("plant", "ns/shop", {})
    lamps = [Device(tenant, "lamp", {"made": f"2026-01-01T00:00:0{when}Z"}) for when in (0, 1)]
    others = [ida("2"), ida(""), ida("", identity=Identity(OTHER.issuer, "u-1", "ida"))]
    others += [ida("", identity=Identity(ISSUER, "u-2", "ida")), NAMELESS]
    owners = [user.owner for user in (ida(), PERSON, *others)] + [lamp.owner for lamp in lamps]
    assert len(set(owners)) == len(owners)
    assert ida("2", identity=PERSON.identity).owner == ida("2").owner, "a provider of ours has no users but ours"


@pytest.mark.parametrize(
    ("node", "known"),
    [
        (Node("none"), {ANONYMOUS}),
        (Node("none", ida()), {ANONYMOUS}),
        (Node("standard"), set()),
        (Node("standard", ida()), {ida().owner}),
        (Node("standard", ida("2")), set()),
        (Node("standard", ida(""), ida()), {ida().owner, ida("").owner}),
        (Node("external", settings=PROVIDER), set()),
        (Node("external", ida(), settings=PROVIDER), {PERSON.owner, NAMELESS.owner}),
        (
            Node("external", ida(certificates=("ida",)), settings=PROVIDER),
            {ida().owner, PERSON.owner, NAMELESS.owner},
        ),
        (Node("external", ida(), settings=OURS), {ida().owner, PERSON.owner, NAMELESS.owner}),
        (Node("external", settings=GRANTING), {PERSON.owner, NAMELESS.owner}),
        (Node("external", settings=OTHER), set()),
        (Node("external", settings=None), {PERSON.owner, NAMELESS.owner}),
    ],
)
def test_an_owner_is_known_as_long_as_it_could_come_in(node: Node, known: set[str]) -> None:
    everybody = {ANONYMOUS, ida().owner, ida("").owner, PERSON.owner, NAMELESS.owner}
    assert {owner for owner in everybody if node.knows_owner(owner)} == known
    assert node.knows_owner(ADMINISTRATOR)
    assert node.knows_owner("device:plant lamp 2026-01-01T00:00:00Z")


def test_whom_a_messaging_user_has_let_in_goes_with_it_whatever_a_token_grants() -> None:
    assert Node("external", settings=GRANTING).knows_owner(PERSON.owner)
    assert not Node("external", settings=GRANTING).knows_owner(PERSON.owner, is_removed=True)
    assert Node("external", ida("2"), settings=GRANTING).knows_owner(PERSON.owner, is_removed=True)


@pytest.mark.parametrize(
    ("node", "user", "owner"),
    [
        (Node("none", ida()), "ida", ANONYMOUS),
        (Node("none"), "", ANONYMOUS),
        (Node("standard", ida()), "ida", ida().owner),
        (Node("standard"), "ida", ida("").owner),
        (Node("standard"), "", ""),
        (Node("external", ida(), settings=PROVIDER), "ida", ""),
        (Node("external", ida(), settings=OURS), "ida", ida().owner),
    ],
)
def test_what_an_older_version_stored_is_whose_the_name_is_now(node: Node, user: str, owner: str) -> None:
    assert node.owners.owner_of("ns/shop", user) == owner


def test_the_grants_of_who_is_away_are_those_of_the_owner_and_not_of_the_name() -> None:
    node = Node("standard", ida())
    grants = node.grants(ida().owner, "ida")
    assert grants is not None
    assert [grants.may_send(name) for name in ("gone/x", "news/x")] == [True, False]
    assert [grants.may_receive(name) for name in ("news/#", "#")] == [True, False]
    for owner, user in ((ida("2").owner, "ida"), ("user:3", "bert")):
        nobodys = node.grants(owner, user)
        assert nobodys is not None
        assert not nobodys.may_send("gone/x")
        assert not nobodys.may_receive("news/x")
    assert Node("none", ida()).grants(ida().owner, "ida") is None
    assert Node("external", settings=GRANTING).grants(PERSON.owner, "ida") is None
    listed = Node("external", ida(), settings=GRANTING).grants(PERSON.owner, "ida")
    assert listed is not None
    assert listed.may_send("gone/x")
