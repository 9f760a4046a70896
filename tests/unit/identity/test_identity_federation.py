"""What somebody whom a provider knows may do in a space."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import ConfigError
from enmasse.identity.federation import federated_user, grant_of_group, group_of
from enmasse.identity.oidc import Identity
from enmasse.identity.oidc_settings import OidcSettings, read_settings
from enmasse.identity.permissions import Grant
from tests.unit.identity.people import exactly, person

SHOP = "ns/shop"
FIELDS = {"issuer": "https://id.example.com/realms/shop", "audience": "messaging"}
HUNTER2 = "hunter2"


def identity(*groups: str, scopes: tuple[str, ...] = ()) -> Identity:
    return Identity(FIELDS["issuer"], "u-1", "ida", groups, scopes)


def rights(who: Identity, listed: Any = None, **fields: Any) -> list[Grant] | None:
    user = federated_user(SHOP, who, listed, read_settings("oidc", FIELDS | fields), exactly)
    assert user is None or (user.name, user.space, user.identity) == ("ida", SHOP, who)
    return None if user is None else list(user.permissions.grants)


def test_whom_nobody_has_granted_anything_stays_out() -> None:
    assert rights(identity("manage", "send_orders", scopes=("orders",))) is None, "groups mean nothing by themselves"
    assert rights(identity("else"), groupGrants=True) is None


def test_a_messaging_user_decides_alone() -> None:
    few = Grant(("recv",), ("orders",))
    listed = person("ida", grants=[few])
    assert rights(identity("manage"), listed, groupGrants=True) == [few]
    assert rights(identity("manage"), person("ida"), groupGrants=True) == [], "even one that may do nothing"


def test_groups_say_what_their_members_may_do() -> None:
    groups = ("monitor", "send_orders%2F%23", "recv_a+b%20c", "view_x", "send_", "send", "admin", "_x")
    assert rights(identity(*groups), groupGrants=True) == [
        Grant(("view",)), Grant(("send",), ("orders/#",)), Grant(("recv",), ("a b c",))
    ]  # fmt: skip


@pytest.mark.parametrize("address", ["orders/#", "a_b", "caf\u00e9 +%", "${username}/*", "send_x"])
@pytest.mark.parametrize("operation", ["send", "recv"])
def test_the_name_of_a_group_holds_any_address(operation: str, address: str) -> None:
    group = group_of(operation, address)
    assert "/" not in group
    assert grant_of_group(group) == Grant((operation,), (address,))


@pytest.mark.parametrize(("operation", "group"), [("view", "monitor"), ("manage", "manage")])
def test_two_groups_are_about_the_whole_space(operation: str, group: str) -> None:
    assert group_of(operation) == group
    assert grant_of_group(group) == Grant((operation,))


def test_settings_grant_rights_to_groups_and_scopes() -> None:
    grants = [
        {"group": "staff", "operations": ["recv"], "addresses": ["orders"]},
        {"scope": "telemetry", "operations": ["send"], "addresses": ["devices/${username}"]},
    ]
    staff, telemetry = Grant(("recv",), ("orders",)), Grant(("send",), ("devices/${username}",))
    fields = {"grants": grants, "groupsClaim": "groups"}
    assert rights(identity("staff"), **fields) == [staff]
    assert rights(identity("staff", scopes=("telemetry",)), **fields) == [staff, telemetry]
    assert rights(identity("telemetry", scopes=("staff",)), **fields) is None


# Settings


def test_settings_are_read_from_their_map() -> None:
    assert read_settings("oidc", {"issuer": "http://localhost:8080", "clientId": "m", "clientSecret": HUNTER2}) == (
        OidcSettings("http://localhost:8080", ("m",), "m", HUNTER2)
    )
    assert HUNTER2 not in repr(read_settings("oidc", {**FIELDS, "clientSecret": HUNTER2}))
    assert read_settings("oidc", {**FIELDS, "groupGrants": True}).groups_claim == "groups"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (None, "oidc: a map"),
        ({}, "oidc.issuer"),
        ({"issuer": FIELDS["issuer"]}, "oidc.audience"),
        ({**FIELDS, "issuer": "http://id.example.com"}, "https is expected"),
        ({**FIELDS, "issuer": "http://127.0.0.1.example.com"}, "https is expected"),
        ({**FIELDS, "issuer": f"https://jo:{HUNTER2}@id.example.com"}, "no user nor password"),
        ({**FIELDS, "issuer": "ftp://id.example.com"}, "oidc.issuer"),
        ({**FIELDS, "issuer": "https://id.example.com?realm=x"}, "oidc.issuer"),
        ({**FIELDS, "issuer": "https://[::1"}, "oidc.issuer"),
        ({**FIELDS, "issuer": "https://id.example.com:99999"}, "oidc.issuer"),
        ({**FIELDS, "issuer": 5}, "oidc.issuer"),
        ({**FIELDS, "audience": [1]}, "oidc.audience"),
        ({**FIELDS, "passwordGrant": True}, "oidc.clientId"),
        ({**FIELDS, "passwordGrant": "yes"}, "oidc.passwordGrant"),
        ({**FIELDS, "clientSecret": [HUNTER2]}, "oidc.clientSecret"),
        ({**FIELDS, "leeway": 301}, "oidc.leeway"),
        ({**FIELDS, "leeway": True}, "oidc.leeway"),
        ({**FIELDS, "grants": {}}, "oidc.grants"),
        ({**FIELDS, "grants": [{"group": "a", "operations": ["send"]}]}, "oidc.grants[0]"),
        ({**FIELDS, "grants": [{"group": "a", "scope": "b", "operations": ["view"]}]}, "oidc.grants[0]"),
        ({**FIELDS, "grants": [{"group": "a", "operations": ["fly"]}]}, "oidc.grants[0].operations"),
        ({**FIELDS, "grants": [{"group": "a", "operations": []}]}, "oidc.grants[0]"),
        ({**FIELDS, "grants": ["a"]}, "oidc.grants[0]"),
        ({**FIELDS, "sicret": HUNTER2}, "sicret"),
    ],
)
def test_what_is_wrong_in_settings_is_named_without_their_secrets(fields: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings("oidc", fields)
    assert told in str(caught.value)
    assert HUNTER2 not in str(caught.value)
