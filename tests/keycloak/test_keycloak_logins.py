"""Logins and tokens of a real Keycloak: clients of ours and of Proton at a whole installation."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import ConnectionDeniedError
from enmasse.errors import EnmasseError, UnavailableError
from tests.keycloak.conftest import Installation, Keycloak, sends
from tests.support.foreign_tools import require
from tests.support.polling import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("keycloak")]

TOOLS = Path(__file__).parents[1] / "tools"
SECRET = "s3cret of the client"
MAPPERS = [
    {
        "name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
        "config": {"included.client.audience": "messaging", "access.token.claim": "true"},
    },
    {
        "name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
        "config": {"claim.name": "groups", "full.path": "true", "access.token.claim": "true"},
    },
]  # fmt: skip


def person(name: str, *groups: str) -> dict[str, Any]:
    return {
        "username": name, "enabled": True, "email": f"{name}@example.com", "emailVerified": True,
        "firstName": name, "lastName": name, "groups": [f"/{group}" for group in groups],
        "credentials": [{"type": "password", "value": f"password of {name}"}],
    }  # fmt: skip


CORPORATE = {
    "realm": "corporate", "enabled": True,
    "groups": [{"name": "staff"}],
    "clients": [
        {
            "clientId": "messaging", "secret": SECRET, "directAccessGrantsEnabled": True, "protocolMappers": MAPPERS,
        },
        {"clientId": "elsewhere", "publicClient": True, "directAccessGrantsEnabled": True},
        {
            "clientId": "hasty", "publicClient": True, "directAccessGrantsEnabled": True, "protocolMappers": MAPPERS,
            "attributes": {"access.token.lifespan": "4"},
        },
    ],
    "users": [person("ida"), person("jo"), person("stan", "staff"), person("eve")],
}  # fmt: skip


def ours(keycloak: Keycloak, user: str, client: str = "messaging") -> str:
    """A token of the corporate realm."""
    return keycloak.token("corporate", user, f"password of {user}", client, SECRET if client == "messaging" else "")


@pytest.fixture(scope="module")
def corporate(keycloak: Keycloak, installation: Installation) -> Installation:
    """A space ``shop`` whose users the company's Keycloak knows."""
    keycloak.admin("POST", "", CORPORATE)
    installation.declare("Secret", "client", stringData={"client-secret": SECRET})
    oidc = {
        "issuer": f"{keycloak.url}/realms/corporate",
        "clientId": "messaging",
        "clientSecret": {"name": "client"},
        "passwordGrant": True,
        "leeway": 0,
        "grants": [{"group": "staff", "operations": ["recv"], "addresses": ["orders"]}],
    }
    installation.declare("AuthenticationService", "corporate", {"type": "external", "external": {"oidc": oidc}})
    installation.space("shop", "corporate")
    for user in ("ida", "jo"):
        installation.user("shop", user, "orders")
        installation.wait("MessagingUser", f"shop.{user}")
    installation.wait("Address", "shop.orders")
    return installation


@pytest.fixture(scope="module")
def plant(keycloak: Keycloak, installation: Installation) -> Installation:
    """A space ``plant`` whose users are kept in a Keycloak of our own."""
    entries = {"admin.username": keycloak.user, "admin.password": keycloak.password}
    installation.declare("Secret", "keycloak-admin", stringData=entries)
    own = {"keycloak": {"url": keycloak.url, "credentialsSecret": {"name": "keycloak-admin"}}}
    installation.declare("AuthenticationService", "keycloak", {"type": "standard", "standard": own})
    installation.space("plant", "keycloak")
    installation.user("plant", "max", "orders", password="first")
    for kind, name in (
        ("AuthenticationService", "keycloak"),
        ("Address", "plant.orders"),
        ("MessagingUser", "plant.max"),
    ):
        installation.wait(kind, name)
    installation.wait("AddressSpace", "plant", "AuthenticationReady")
    keycloak.until(lambda: keycloak.knows("default-plant", "max", "first"), lambda: installation.logs[-5_000:])
    return installation


# A provider of others


@pytest.mark.parametrize(("mechanism", "user"), [("OAUTHBEARER", None), ("XOAUTH2", "ida")])
def test_a_token_lets_a_client_in(corporate: Installation, keycloak: Keycloak, mechanism: str, user: str) -> None:
    with corporate.connect("shop", token=ours(keycloak, "ida"), user=user, sasl=[mechanism]) as connection:
        assert sends(connection)
        assert not sends(connection, "stock")


def test_a_password_lets_a_client_in(corporate: Installation) -> None:
    for name in ("ida", "ida@shop.default"):
        with corporate.connect("shop", user=name, password="password of ida") as connection:
            assert sends(connection)
    with pytest.raises(ConnectionDeniedError):
        corporate.connect("shop", user="ida", password="password of jo")


def test_the_groups_of_a_token_count_as_the_service_says(corporate: Installation, keycloak: Keycloak) -> None:
    with corporate.connect("shop", token=ours(keycloak, "stan")) as connection:
        assert not sends(connection)
        connection.receiver("orders").close()


def test_a_token_for_others_or_of_others_is_worth_nothing(corporate: Installation, keycloak: Keycloak) -> None:
    for token in (
        ours(keycloak, "eve"),  # good, but nobody has granted anything
        ours(keycloak, "ida", "elsewhere"),
        keycloak.token("master", keycloak.user, keycloak.password, "admin-cli"),
        ours(keycloak, "ida")[:-8] + "AAAAAAAA",
    ):
        with pytest.raises(ConnectionDeniedError):
            corporate.connect("shop", token=token)


def test_a_connection_ends_with_its_token(corporate: Installation, keycloak: Keycloak) -> None:
    with corporate.connect("shop", user="ida", password="password of ida") as other:
        connection = corporate.connect("shop", token=ours(keycloak, "ida", "hasty"))
        assert sends(connection)

        def end() -> str:
            try:
                sends(connection)
            except EnmasseError as error:
                return str(error)
            return ""

        assert "the token has expired" in until(end)
        connection.close()
        assert sends(other), "a password has no end"


@contextmanager
def proton(installation: Installation, space: str, **options: Any) -> Iterator[Any]:
    """A connection of Proton's blocking client."""
    require("python-qpid-proton with SASL and TLS")
    from proton import SSLDomain
    from proton.utils import BlockingConnection

    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(installation.authority))
    domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
    connection = BlockingConnection(
        installation.url("amqps"), ssl_domain=domain, virtual_host=f"{space}.default", timeout=20,
        sasl_enabled=True, reconnect=False, **options,
    )  # fmt: skip
    try:
        yield connection
    finally:
        connection.close()


def test_proton_comes_in_by_a_password(corporate: Installation) -> None:
    with proton(corporate, "shop", user="ida", password="password of ida", allowed_mechs="PLAIN") as connection:
        from proton import Message

        connection.create_sender("orders").send(Message("from proton"))


@pytest.mark.parametrize("is_good", [True, False])
def test_rhea_comes_in_by_a_token(corporate: Installation, keycloak: Keycloak, is_good: bool) -> None:
    require("rhea")
    options = {
        "username": "ida", "token": ours(keycloak, "ida", "messaging" if is_good else "elsewhere"),
        "sasl_init_hostname": "shop.default", "transport": "tls", "ca": corporate.authority.read_text(),
    }  # fmt: skip
    port = int(corporate.url("amqps").rpartition(":")[2])
    done = subprocess.run(
        ["node", str(TOOLS.parent / "interop" / "rhea_login.js"),
         json.dumps({"port": port, "address": "orders", "options": options})],
        env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")}, stdout=subprocess.PIPE, timeout=60, check=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["opened"] is is_good, report
    assert not is_good or report["outcome"] == "accepted"


# A Keycloak of our own


def test_each_space_has_a_realm_with_its_users(plant: Installation, keycloak: Keycloak) -> None:
    assert keycloak.groups_of("default-plant", "max") == {"send_orders", "recv_orders"}
    token = keycloak.token("default-plant", "max", "first")
    for given in ({"token": token}, {"user": "max", "password": "first"}):
        with plant.connect("plant", **given) as connection:
            assert sends(connection)
            assert not sends(connection, "stock")
    with proton(plant, "plant", user="max", password="first", allowed_mechs="PLAIN"):
        pass
    with pytest.raises(ConnectionDeniedError):
        plant.connect("plant", user="max", password="second")


def test_what_is_declared_of_a_user_comes_to_be_in_its_realm(plant: Installation, keycloak: Keycloak) -> None:
    plant.user("plant", "ann", "stock", password="first")
    keycloak.until(lambda: keycloak.knows("default-plant", "ann", "first"))
    plant.user("plant", "ann", "orders", "${username}/#", password="first")
    wanted = {f"{verb}_{name}" for verb in ("send", "recv") for name in ("orders", "%24%7Busername%7D%2F%23")}
    keycloak.until(lambda: keycloak.groups_of("default-plant", "ann") == wanted)
    plant.user("plant", "ann", "orders", password="second")
    keycloak.until(lambda: keycloak.knows("default-plant", "ann", "second"))
    assert not keycloak.knows("default-plant", "ann", "first")
    plant.delete("MessagingUser", "plant.ann")
    keycloak.until(lambda: not keycloak.groups_of("default-plant", "ann"))
    assert not keycloak.knows("default-plant", "ann", "second")


def test_whom_others_have_put_into_a_realm_comes_in_by_its_groups(plant: Installation, keycloak: Keycloak) -> None:
    realm = "/default-plant"
    guest = {**person("guest", "recv_orders"), "groups": ["/recv_orders"]}
    keycloak.admin("POST", f"{realm}/users", guest)
    token = keycloak.token("default-plant", "guest", "password of guest")
    with plant.connect("plant", token=token) as connection:
        assert not sends(connection)
        connection.receiver("orders").close()


def test_a_realm_goes_with_its_space(plant: Installation, keycloak: Keycloak) -> None:
    plant.space("brief", "keycloak")
    keycloak.until(lambda: "default-brief" in keycloak.realms())
    plant.delete("AddressSpace", "brief")
    keycloak.until(lambda: "default-brief" not in keycloak.realms())
    assert {"master", "default-plant"} <= keycloak.realms()


def test_no_password_token_or_secret_is_written_down(
    corporate: Installation, plant: Installation, keycloak: Keycloak
) -> None:
    logs = plant.logs
    for secret in (SECRET, keycloak.password, "password of ida", "eyJ", base64.b64encode(SECRET.encode()).decode()):
        assert secret not in logs
    space = str(plant.read("AddressSpace", "shop")) + str(plant.read("AuthenticationService", "corporate"))
    assert SECRET not in space


# The last one: it cuts the way to the Keycloak


def test_live_clients_do_not_notice_that_the_keycloak_is_gone(
    corporate: Installation, plant: Installation, keycloak: Keycloak
) -> None:
    plant.user("plant", "new", "orders", password="first")
    keycloak.until(lambda: keycloak.knows("default-plant", "new", "first"))
    tokens = ours(keycloak, "ida"), keycloak.token("default-plant", "max", "first")
    live = [
        corporate.connect("shop", token=tokens[0]),
        corporate.connect("shop", user="ida", password="password of ida"),
        plant.connect("plant", token=tokens[1]),
        plant.connect("plant", user="max", password="first"),
    ]
    keycloak.way.cut()
    assert all(sends(connection) for connection in live)
    for space, token in zip(("shop", "plant"), tokens, strict=True):
        with corporate.connect(space, token=token) as connection:
            assert sends(connection), "its key is known"
    with pytest.raises(UnavailableError, match="try again later"):
        corporate.connect("shop", user="jo", password="password of jo")
    with pytest.raises(UnavailableError, match="try again later"):
        plant.connect("plant", user="new", password="first")
    plant.user("plant", "late", "orders", password="first")
    assert plant.wait("AddressSpace", "plant", "AuthenticationReady", "False")[1] == "KeycloakUnavailable"
    assert plant.condition("AddressSpace", "plant")[0] == "True", "it goes on"
    assert all(sends(connection) for connection in live)

    keycloak.way.mend()
    for connection in live:
        assert sends(connection)
        connection.close()
    keycloak.until(lambda: keycloak.knows("default-plant", "late", "first"), lambda: plant.logs[-5_000:])
    plant.wait("AddressSpace", "plant", "AuthenticationReady")
    with plant.connect("plant", user="late", password="first") as connection:
        assert sends(connection)
