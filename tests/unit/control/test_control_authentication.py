"""How the users of a space are known: what it asks for, what the operator declares, what a node is told."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from enmasse.control.store.store import ResourceStore
from enmasse.control.users.authentication_services import Authentication, judge_service, resolve_authentication
from enmasse.control.users.identity_providers import IdentityProviders
from enmasse.identity.federation import realm_name
from enmasse.identity.oidc_settings import read_settings
from enmasse.model.kinds.authentication import AuthenticationService
from enmasse.model.kinds.core import Secret
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import decode

HUNTER2 = "hunter2"
OIDC = {"issuer": "https://id.example.com:8443/realms/corporate", "clientId": "messaging"}
SECRETS = {
    (PLAN_NAMESPACE, "client"): {"client-secret": HUNTER2, "other": "o"},
    (PLAN_NAMESPACE, "authorities"): {"ca.crt": "PEM"},
    ("default", "own"): {"ca.crt": "OWN"},
}


def service(type_: str = "external", name: str = "corporate", **fields: Any) -> AuthenticationService:
    document = {
        "apiVersion": "admin.enmasse.io/v1beta1", "kind": "AuthenticationService",
        "metadata": {"name": name, "namespace": PLAN_NAMESPACE}, "spec": {"type": type_, **fields},
    }  # fmt: skip
    found = decode(document)
    assert isinstance(found, AuthenticationService)
    return found


def external(**more: Any) -> AuthenticationService:
    oidc = OIDC | more.pop("oidc", {})
    return service(external={"oidc": oidc, **more})


def shop(**asked: Any) -> AddressSpace:
    document = {
        "apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"authenticationService": asked or {"name": "corporate"}},
    }  # fmt: skip
    found = decode(document)
    assert isinstance(found, AddressSpace)
    return found


def find_secret(namespace: str, name: str) -> Secret | None:
    entries = SECRETS.get((namespace, name))
    if entries is None:
        return None
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries}
    found = decode(document)
    assert isinstance(found, Secret)
    return found


def resolved(space: AddressSpace, *services: AuthenticationService) -> Authentication:
    return resolve_authentication(space, {item.metadata.name: item for item in services}, find_secret)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [({"name": "none-authservice"}, "none"), ({"type": "standard"}, "standard"), ({"name": "standard"}, "standard")],
)
def test_two_services_are_always_there(asked: dict[str, Any], kind: str) -> None:
    assert resolved(shop(**asked)) == Authentication(kind=kind)


def test_a_declared_service_says_of_which_type_it_is() -> None:
    assert resolved(shop(), service("none")) == Authentication(kind="none")
    assert resolved(shop(), service("standard")) == Authentication(kind="standard")
    assert resolved(shop(name="corporate", type="external"), external()).kind == "external"
    assert resolved(shop(type="external"), external()).kind == "external", "there is only one of them"


def test_a_node_is_told_all_that_it_needs() -> None:
    grants = [{"group": "staff", "operations": ["recv"], "addresses": ["*", "top*"]}]
    given = external(
        oidc={"clientSecret": {"name": "client"}, "passwordGrant": True, "grants": grants},
        caCertSecret={"name": "authorities"},
    )
    found = resolved(shop(), given)
    assert found.kind == "external"
    settings = read_settings("oidc", found.oidc)
    assert (settings.issuer, settings.audience, settings.client_secret) == (OIDC["issuer"], ("messaging",), HUNTER2)
    assert (settings.ca_cert, settings.password_grant) == ("PEM", True)
    assert settings.grants[0].grant.addresses == ("#", "top*"), "in the node's grammar"
    assert HUNTER2 not in repr(found)


@pytest.mark.parametrize(
    ("services", "asked", "reason", "told"),
    [
        ([], {"name": "corporate"}, "UnknownAuthenticationService", "'corporate'; there are none, standard"),
        ([], {"type": "external"}, "UnknownAuthenticationService", "'external'"),
        ([external()], {"name": "corporate", "type": "standard"}, "UnknownAuthenticationService", "of type external"),
        (
            [external(oidc={"clientSecret": {"name": "nowhere"}})],
            {"name": "corporate"},
            "SecretMissing",
            f"no Secret {PLAN_NAMESPACE}/nowhere",
        ),
        (
            [external(oidc={"clientSecret": {"name": "client", "key": "none"}})],
            {"name": "corporate"},
            "SecretMissing",
            "no entry 'none'",
        ),
        (
            [service(external={"host": "auth.example.com", "port": 5671})],
            {"name": "corporate"},
            "InvalidAuthenticationService",
            "oidc",
        ),
        (
            [external(oidc={"issuer": "http://id.example.com"})],
            {"name": "corporate"},
            "InvalidAuthenticationService",
            "https is expected",
        ),
        (
            [external(oidc={"clientId": None})],
            {"name": "corporate"},
            "InvalidAuthenticationService",
            "audience",
        ),
        ([external()], {"name": "corporate", "overrides": {"realm": "shop"}}, "OverrideNotAllowed", "allowOverride"),
    ],
)
def test_what_cannot_be_used_is_waited_for(
    services: list[AuthenticationService], asked: dict[str, Any], reason: str, told: str
) -> None:
    found = resolved(shop(**asked), *services)
    assert found.verdict.reason == reason
    assert told in found.verdict.message
    assert found.oidc is None


@pytest.mark.parametrize(
    ("overrides", "issuer", "has_secret"),
    [
        ({}, OIDC["issuer"], True),
        ({"realm": "shop"}, "https://id.example.com:8443/realms/shop", False),
        ({"realm": "corporate"}, OIDC["issuer"], True),
        ({"host": "id.example.com", "port": 8443}, OIDC["issuer"], True),
        ({"host": "other.example.com"}, "https://other.example.com/realms/corporate", False),
        ({"host": "other.example.com", "port": 9443}, "https://other.example.com:9443/realms/corporate", False),
        ({"port": 9443}, "https://id.example.com:9443/realms/corporate", False),
        ({"caCertSecret": {"name": "own"}}, OIDC["issuer"], False),
    ],
)
def test_a_space_changes_where_its_users_are_known_where_that_is_allowed(
    overrides: dict[str, Any], issuer: str, has_secret: bool
) -> None:
    given = external(
        oidc={"clientSecret": {"name": "client"}}, caCertSecret={"name": "authorities"}, allowOverride=True
    )
    oidc = resolved(shop(name="corporate", overrides=overrides), given).oidc
    assert oidc is not None
    assert oidc["issuer"] == issuer
    assert ("clientSecret" in oidc) is has_secret, "the operator's secret is for the operator's provider alone"
    allowed = [ip_network("10.1.0.0/16")]
    for networks in ((), allowed):
        found = resolve_authentication(
            shop(name="corporate", overrides=overrides), {"corporate": given}, find_secret, networks
        ).oidc
        # The operator's own may be anywhere.
        is_ours = urlsplit(issuer).netloc == urlsplit(OIDC["issuer"]).netloc
        assert read_settings("oidc", found).networks == (None if is_ours else tuple(networks))
    assert oidc["caCert"] == ("OWN" if "caCertSecret" in overrides else "PEM")


@pytest.mark.parametrize("realm", ["..", "../master", "a/b", "a?b", "a#b", "a b", "", "%2e%2e"])
def test_a_realm_is_one_word_of_the_url(realm: str) -> None:
    found = resolved(shop(name="corporate", overrides={"realm": realm}), external(allowOverride=True))
    assert found.verdict.reason == "OverrideNotAllowed"
    assert "overrides.realm" in found.verdict.message


def test_in_a_keycloak_of_ours_each_space_has_a_realm() -> None:
    keycloak = {"url": "https://keycloak.example.com/", "credentialsSecret": {"name": "admin"}}
    found = resolved(shop(), service("standard", standard={"keycloak": keycloak}))
    assert found.kind == "external"
    settings = read_settings("oidc", found.oidc)
    assert settings.issuer == "https://keycloak.example.com/realms/default-shop"
    assert (settings.audience, settings.password_grant, settings.group_grants) == (("messaging",), True, True)
    shared = service("standard", realm="one", standard={"keycloak": keycloak})
    assert "realm" in resolved(shop(), shared).verdict.message


def test_no_two_spaces_have_the_same_realm() -> None:
    names = [("a", "b-c"), ("a-b", "c"), ("a", "b"), ("a.b", "c"), ("a", "b.c"), ("x" * 63, "y" * 63)]
    realms = {realm_name(*name) for name in names}
    assert len(realms) == len(names)
    assert realm_name("default", "shop") == "default-shop"
    assert "master" not in realms


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (external(), "Valid"),
        (service("none"), "Valid"),
        (external(oidc={"issuer": "http://id.example.com"}), "InvalidAuthenticationService"),
        (external(caCertSecret={"name": "nowhere"}), "SecretMissing"),
        (
            service(
                "standard",
                standard={"keycloak": {"url": "http://k.example.com", "credentialsSecret": {"name": "admin"}}},
            ),
            "InvalidAuthenticationService",
        ),
    ],
)
def test_a_service_says_whether_it_can_be_used(given: AuthenticationService, reason: str) -> None:
    assert judge_service(given, find_secret).reason == reason


# Following the store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path / "store.db") as store:
        yield store


def test_a_service_or_a_secret_that_changes_has_its_spaces_looked_at(store: ResourceStore) -> None:
    looked: list[str] = []
    space = shop()
    providers = IdentityProviders(store, lambda: {"default/shop": space}, looked.append)
    providers.load(store)
    assert not providers.of(space).verdict.is_yes

    def write(resource: Any, verb: str = "create") -> list[str]:
        looked.clear()
        version = store.version
        document = resource.to_dict()
        document["metadata"] |= {"namespace": PLAN_NAMESPACE, "uid": resource.metadata.name}
        getattr(store, verb)(document)
        for change in store.changes(version)[0]:
            providers.apply(change)
        return looked

    early = shop(name="corporate", type="external")
    early = early.model_copy(update={"metadata": early.metadata.model_copy(update={"name": "early"})})
    assert not providers.of(early).verdict.is_yes, "somebody asks before it is declared"
    given = external(oidc={"clientSecret": {"name": "client"}})
    assert write(given) == ["default/shop"]
    assert providers.of(space).verdict.reason == "SecretMissing"
    assert providers.of(early).verdict.reason == "SecretMissing"
    secret = find_secret(PLAN_NAMESPACE, "client")
    assert secret is not None
    assert write(secret.settled()) == ["default/shop"]
    assert providers.of(space).verdict.is_yes
    other = secret.model_copy(update={"metadata": secret.metadata.model_copy(update={"name": "other"})})
    assert write(other.settled()) == [], "nothing depends on it"
    assert write(external(oidc={"clientId": "other"}), "replace") == ["default/shop"]
    found = providers.of(space).oidc
    assert found is not None
    assert found["clientId"] == "other"
