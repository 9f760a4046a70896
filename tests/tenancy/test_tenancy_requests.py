"""Requests that the platform makes on behalf of tenants: where each of those who make them lets a host lead."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import httpx
import pytest

from enmasse.errors import UnavailableError
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.model.kinds.lakes import S3Lake
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.sql.sql import SqlError, checked_sql
from enmasse.net.egress import WEBHOOKS, EgressError, Reach, trust_of
from enmasse.net.egress_http import MAX_HOSTS, Egress
from enmasse.net.oidc_provider import OidcProvider
from enmasse.pipeline.database.connection import addresses_of
from enmasse.pipeline.errors import DatabaseAwayError
from enmasse.pipeline.host.lakes import lake_facts
from enmasse.pipeline.host.reach import RELAYED, may_lead_to, place_of
from enmasse.pipeline.host.verdict import database_rule
from enmasse.schemas.errors import InvalidSchemaError
from enmasse.schemas.json_schemas import check_json_schema

LOOPBACK = ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")
"""This machine."""

SECRET = (
    "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "fe80::1", "fe80::1%eth0", "ff02::1",
    "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "::ffff:169.254.169.254", "::127.0.0.1",
    "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe", "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:169.254.169.254",
)  # fmt: skip
"""Its link, where clouds tell secrets, and what leads back to it by another way."""

PRIVATE = (
    "10.0.0.1", "100.64.0.1", "172.16.0.1", "192.168.1.1", "192.0.0.1", "192.0.0.9", "192.0.0.170", "192.0.2.1",
    "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "fc00::1", "fd12:3456::1", "fec0::1",
    "5f00::1", "100::1", "100:0:0:1::1", "64:ff9b:1::1", "64:ff9b:1:fffe::7f00:1", "64:ff9b::a00:1", "2001:db8::1",
    "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "3fff::1", "4000::1", "2002:a00:1::1", "::ffff:10.0.0.1",
    "::10.0.0.1", "::ffff:0:10.0.0.1", "2606:4700::5efe:10.0.0.1",
)  # fmt: skip
"""Networks of the platform, and blocks that are for no hosts."""

PUBLIC = (
    "93.184.215.14", "2606:4700::1", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e", "2002:5db8:d70e::1",
    "2606:4700::5efe:93.184.215.14",
)  # fmt: skip

HOST = "tenant.example"


class Sockets:
    """What a name means, and the addresses that were connected to, none of which is really asked.

    Attributes:
        means: the addresses of the name, for each look one list; the last one stays.
        connected: scheme, address and port, the header Host and the name to be proved, of each request.
        answers: what is answered at a path.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.means: list[list[str]] = [[]]
        self.looks = 0
        self.connected: list[tuple[str, str, str, str]] = []
        self.answers: dict[str, httpx.Response] = {}

        def look(*_: Any, **__: Any) -> list[Any]:
            self.looks += 1
            found = self.means.pop(0) if len(self.means) > 1 else self.means[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in found]

        async def connect(_: object, request: httpx.Request) -> httpx.Response:
            url, sni = request.url, request.extensions.get("sni_hostname", "")
            self.connected.append((url.scheme, url.host, request.headers["host"], str(sni)))
            return self.answers.get(url.path, httpx.Response(204))

        monkeypatch.setattr(socket, "getaddrinfo", look)
        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", connect)


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Sockets:
    return Sockets(monkeypatch)


def webhook(sockets: Sockets, listed: tuple[str, ...] = ()) -> bool:
    """Have a webhook post; return true if its host was connected to."""

    async def post() -> None:
        egress = Egress(Reach(WEBHOOKS, tuple(ip_network(each) for each in listed)), trust_of(None))
        async with httpx.AsyncClient(transport=egress, trust_env=False) as client:
            await client.post(f"https://{HOST}/", content=b"x")

    before = len(sockets.connected)
    try:
        asyncio.run(post())
    except EgressError as error:
        # Which address it is would tell how names are resolved here.
        return str(error) != (
            f"{HOST} has an address that is not public, or none; the operator allows it by --webhook-network"
        )
    assert len(sockets.connected) == before + 1
    return True


def provider(sockets: Sockets, listed: tuple[str, ...] | None = ()) -> bool:
    """Have a node ask for the keys of a provider; return true if its host was connected to."""
    networks = None if listed is None else tuple(ip_network(each) for each in listed)
    settings = OidcSettings(f"https://{HOST}/realms/shop", ("messaging",), networks=networks)

    async def ask() -> None:
        asker = OidcProvider(settings, wall=lambda: 0.0, clock=lambda: 1_000.0)
        try:
            await asker.fetch_and_judge("a.b.c")
        finally:
            await asker.close()

    before = len(sockets.connected)
    with pytest.raises(UnavailableError):
        asyncio.run(ask())
    return len(sockets.connected) > before


def connector(sockets: Sockets, listed: tuple[str, ...] = ()) -> bool:
    """Return true if a connector's server is one that a node would connect to."""
    try:
        return bool(asyncio.run(Reach.of_connectors(["public", *listed]).addresses(HOST, 5671)))
    except EgressError:
        return False


def relay(sockets: Sockets, host: str = HOST) -> bool:
    """Return true if a runner's relay connects to a host that the operator lists."""
    place = place_of(host, 443)
    return any(may_lead_to(place, address) for address in sockets.means[0])


def database(sockets: Sockets) -> bool:
    """Return true if a sink connects to a database whose host the operator lists."""
    try:
        return bool(addresses_of(HOST, 5432))
    except DatabaseAwayError:
        return False


def relayed(sockets: Sockets) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RELAYED, "1")
        return database(sockets)


USERS: dict[str, tuple[Callable[[Sockets], bool], bool, bool]] = {
    # Each with whether private addresses and this machine are reached: of hosts that an operator lists, or names.
    "a webhook": (webhook, False, False),
    "a provider that a space names": (provider, False, False),
    "a connector, where public addresses are allowed": (connector, False, False),
    "a provider of the operator's": (lambda sockets: provider(sockets, None), True, True),
    "a relay, by a name that is listed": (relay, True, False),
    "a relay, by a network that is listed": (lambda sockets: relay(sockets, "0.0.0.0/0"), True, False),
    "a relay, by a network of IPv6": (lambda sockets: relay(sockets, "::/0"), True, False),
    "a database, without a relay": (database, True, False),
    # There loopback addresses stand for the names.
    "a database, behind a relay": (relayed, True, True),
}


@pytest.mark.parametrize("words", USERS)
def test_a_host_leads_where_it_may(words: str, sockets: Sockets) -> None:
    use, reaches_private, reaches_here = USERS[words]
    is_operators = words == "a provider of the operator's"
    for addresses, is_reached in (
        (PUBLIC, True),
        (PRIVATE, reaches_private),
        (LOOPBACK, reaches_here),
        (SECRET, is_operators),
    ):
        for address in addresses:
            sockets.means = [[address]]
            assert use(sockets) is is_reached, (words, address)


@pytest.mark.parametrize("use", [webhook, provider, connector])
def test_of_a_name_with_an_address_that_is_not_public_none_is_connected_to(
    use: Callable[..., bool], sockets: Sockets
) -> None:
    for means in (["93.184.215.14", "127.0.0.1"], ["::1", "93.184.215.14"], ["2606:4700::1", "10.0.0.1"], []):
        sockets.means = [means]
        assert not use(sockets), means
    sockets.means = [["2606:4700::1", "10.0.0.1"]]
    assert use(sockets, ("10.0.0.0/24",))
    assert not use(sockets, ("10.0.1.0/24", "fc00::/7"))


def test_of_a_name_that_is_listed_those_that_may_be_are_connected_to(sockets: Sockets) -> None:
    sockets.means = [["169.254.169.254", "10.0.0.1", "::1", "2606:4700::1"]]
    assert addresses_of(HOST, 5432) == ["10.0.0.1", "2606:4700::1"]


@pytest.mark.parametrize("use", [webhook, provider])
def test_the_address_that_was_looked_at_is_connected_to_and_proves_the_name(
    use: Callable[..., bool], sockets: Sockets
) -> None:
    sockets.means = [["2606:4700::1"], ["127.0.0.1"]]
    assert use(sockets)
    assert sockets.connected == [("https", "2606:4700::1", HOST, HOST)]
    assert sockets.looks == 1, "a second look would be at another address"
    assert not use(sockets)


@pytest.mark.parametrize(
    "leads_to", ["http://127.0.0.1:8080/", "http://localhost/", "https://[::1]/", "https://169.254.169.254/latest"]
)
def test_nothing_that_is_answered_leads_elsewhere(leads_to: str, sockets: Sockets) -> None:
    described = {"issuer": f"https://{HOST}/realms/shop", "jwks_uri": leads_to, "token_endpoint": leads_to}
    path = "/realms/shop/.well-known/openid-configuration"
    for answer in (httpx.Response(302, headers={"Location": leads_to}), httpx.Response(200, json=described)):
        sockets.answers = {path: answer, "/": answer}
        # The second look is that of what is led to.
        sockets.means = [["93.184.215.14"], ["127.0.0.1"]]
        assert provider(sockets)
        sockets.means = [["93.184.215.14"], ["127.0.0.1"]]
        assert webhook(sockets)
    assert {host for _, _, host, _ in sockets.connected} == {HOST}
    assert {address for _, address, _, _ in sockets.connected} == {"93.184.215.14"}


def test_hosts_of_one_address_share_no_connection() -> None:
    hosts: dict[Any, set[str]] = {}

    async def connect(connections: object, request: httpx.Request) -> httpx.Response:
        hosts.setdefault(connections, set()).add(request.headers["host"])
        return httpx.Response(204)

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["93.184.215.14"]

    async def ask() -> None:
        egress = Egress(Reach(WEBHOOKS, lookup=resolve), trust_of(None))
        async with httpx.AsyncClient(transport=egress, trust_env=False) as client:
            for number in range(3 * MAX_HOSTS):
                for host in ("a.example", f"b{number}.example"):
                    await client.get(f"https://{host}/")
                assert len(egress._inner) <= MAX_HOSTS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", connect)
        asyncio.run(ask())
    # Else one that has proved its name would speak for the others.
    assert all(len(found) == 1 for found in hosts.values()), hosts


def pipeline_to(host: str) -> Pipeline:
    place = {
        "type": "postgresql",
        "host": host,
        "port": 5432,
        "database": "d",
        "table": "t",
        "credentialsSecret": "s",
    }
    sink = {"input": "rows", "database": place}
    return Pipeline.model_validate(
        {
            "metadata": {"name": "shop.hot", "namespace": "default", "uid": "u", "generation": 1},
            "spec": {"sources": [{"name": "rows", "address": "telemetry"}], "sinks": [sink]},
        }
    )


ADDRESSES = [each for each in (*SECRET, *PRIVATE, *LOOPBACK, *PUBLIC) if "%" not in each]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_a_tenant_names_has_to_be_listed_and_some_never_are(address: str) -> None:
    shown = f"[{address}]" if ":" in address else address
    lake = S3Lake(endpoint=f"http://{shown}:9000", bucket="lake", credentials_secret="keys")
    for hosts, is_listed in (("", False), (f"{shown}:5432, {shown}:9000", True)):
        is_allowed = is_listed and address not in SECRET
        rule = database_rule(pipeline_to(address), hosts)
        assert rule is not None
        assert rule.is_allowed is is_allowed, rule
        facts = lake_facts(lake, hosts, "default", None)
        assert (facts.reason == "SecretMissing") is is_allowed, "the keys are what is asked for next"


REFERENCES = (
    "http://127.0.0.1/s", "https://evil.example/s#/a", "//evil.example/s", "file:///etc/passwd", "other.json",
    "urn:x:y",
)  # fmt: skip


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_schema_and_a_query_name_no_host_at_all(reference: str, sockets: Sockets) -> None:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        for schema in ({keyword: reference}, {"properties": {"a": {"items": {keyword: reference}}}}):
            with pytest.raises(InvalidSchemaError):
                check_json_schema(json.loads(json.dumps(schema)))
    with pytest.raises(InvalidSchemaError):
        check_json_schema({"$schema": reference, "type": "object"})
    for source in ("csv", "json", "text", "parquet", "delta", "jdbc"):
        with pytest.raises(SqlError):
            checked_sql(f"SELECT * FROM {source}.`{reference}`", {"rows": None})
    assert (sockets.looks, sockets.connected) == (0, [])
