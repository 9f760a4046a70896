"""Hosts: what nobody may claim, what operators grant, and that no host outranks a port or a realm."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.client.blocking import connect
from enmasse.client.errors import ConnectionDeniedError
from enmasse.drivers.data_directory import Layout
from enmasse.errors import UnavailableError
from tests.support.polling import until
from tests.tenancy.refusals import Way, no_login
from tests.tenancy.tenants import NAMESPACES, document, path_of
from tests.tenancy.ways_api import MERGE
from tests.tenancy.ways_hosts import HOST, ROUTE_DOMAINS, WAYS, claim, condition

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.words)
def test_red_does_not_get_to(way: Way, tenants: Tenants) -> None:
    way.attempt(tenants)


def operator(tenants: Tenants) -> httpx.Client:
    token = Layout(tenants.data).operator_token.read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=tenants.api, headers=headers, trust_env=False, timeout=30, verify=False)


def grant(tenants: Tenants, who: str, domains: str | None) -> httpx.Response:
    with operator(tenants) as http:
        body = {"metadata": {"annotations": {ROUTE_DOMAINS: domains}}}
        return http.patch(f"/api/v1/namespaces/{NAMESPACES[who]}", json=body, headers=MERGE)


@contextmanager
def space(tenants: Tenants, who: str, name: str, spec: dict[str, Any], reason: str) -> Iterator[None]:
    """A space of a tenant's, once what became of its endpoints is told."""
    namespace = NAMESPACES[who]
    with tenants.http(who) as http:
        http.post(path_of("addressspaces", namespace), json=document("addressspaces", namespace, name, spec=spec))
        try:
            becomes(tenants, who, name, reason)
            yield
        finally:
            http.delete(path_of("addressspaces", namespace, name))
            until(lambda: http.get(path_of("addressspaces", namespace, name)).status_code == 404)


def becomes(tenants: Tenants, who: str, name: str, reason: str) -> str:
    """Wait until a reason is told of a space's endpoints, and the space is served; return the message."""
    with tenants.http(who) as http:

        def item() -> dict[str, Any]:
            found: dict[str, Any] = http.get(path_of("addressspaces", NAMESPACES[who], name)).json()
            return found

        until(lambda: condition(item())[1] == reason and condition(item(), "Ready")[0] == "True", item)
        return condition(item())[2]


def place(connection: Any) -> str:
    """The space that a connection is in, as its own management tells it."""
    with connection:
        (found,) = connection.management().query("io.enmasse.space", ("name",))
        return str(found["name"])


def came_to(tenants: Tenants, **given: Any) -> str | None:
    """The space that a login leads to; nothing if it does not come in."""
    found: list[str | None] = []

    def has_answered() -> bool:
        try:
            found.append(place(tenants.connect(**given)))
        except ConnectionDeniedError:
            found.append(None)
        except UnavailableError as error:
            # So many have been refused of late that this one was not looked at.
            if "try again later" not in str(error):
                raise
        return bool(found)

    until(has_answered)
    return found[0]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_host_is_served_from_its_grant_on_until_that_is_taken_away(tenants: Tenants) -> None:
    own = path_of("addressspaces", "team-a", "red")
    with tenants.http("red") as http:
        http.patch(own, json={"spec": {"endpoints": claim(HOST)["endpoints"]}}, headers=MERGE).raise_for_status()
    try:
        becomes(tenants, "red", "red", "HostNotGranted")
        assert came_to(tenants, hostname=HOST) is None
        assert grant(tenants, "red", "other.example, *.bank.example").status_code == 422
        grant(tenants, "red", "other.example, bank.example").raise_for_status()
        becomes(tenants, "red", "red", "Served")
        until(lambda: came_to(tenants, hostname=HOST) == "team-a/red")
        # Neither a realm nor another name is outranked: whoever means blue gets there, or nowhere.
        for names in ({"user": "keeper@blue.team-b"}, {"user": "keeper@BLUE.team-b.enmasse.local"}):
            assert came_to(tenants, who="blue", hostname=HOST, **names) is None
        no_login(lambda: connect(
            tenants.amqps, tls=tenants.tls(HOST), user="keeper", password="red as a beet at noon",
            hostname="blue.team-b", reconnect=False, timeout=30,
        ))  # fmt: skip
        grant(tenants, "red", "other.example").raise_for_status()
        assert f"{ROUTE_DOMAINS}=other.example,{HOST}" in becomes(tenants, "red", "red", "HostNotGranted")
        until(lambda: came_to(tenants, hostname=HOST) is None)
    finally:
        grant(tenants, "red", None).raise_for_status()
        with tenants.http("red") as http:
            http.patch(own, json={"spec": {"endpoints": []}}, headers=MERGE).raise_for_status()


def test_of_two_spaces_that_claim_a_host_the_first_has_it_and_the_other_is_told_no_name(tenants: Tenants) -> None:
    for who in NAMESPACES:
        grant(tenants, who, "*").raise_for_status()
    try:
        with (
            space(tenants, "blue", "till", claim(HOST), "Served"),
            space(tenants, "red", "thief", claim(HOST), "HostRefused"),
        ):
            assert becomes(tenants, "red", "thief", "HostRefused") == f"host {HOST} belongs to another space"
            assert place(connect(tenants.amqp, hostname=HOST, reconnect=False, timeout=30)) == "team-b/till"
        # Not before there is such a space either.
        with space(tenants, "red", "thief", claim("later.team-b"), "HostRefused"):
            no_login(lambda: connect(tenants.amqp, hostname="later.team-b", reconnect=False, timeout=30))
    finally:
        for who in NAMESPACES:
            grant(tenants, who, None).raise_for_status()


def test_no_host_outranks_a_port_and_no_client_shows_its_password_to_a_space_for_everybody(tenants: Tenants) -> None:
    port = next(filter(is_free, range(31_000, 32_000)))
    url = f"amqp://127.0.0.1:{port}"
    grant(tenants, "red", "bank.example").raise_for_status()
    try:
        with (
            space(tenants, "red", "thief", claim(HOST), "Served"),
            space(tenants, "blue", "till", {
                "type": "standard", "plan": "standard-unlimited",
                "endpoints": [{"name": "own", "service": "messaging", "port": port}],
            }, "Served"),
        ):  # fmt: skip
            until(lambda: not is_free(port))
            for hostname in (None, "localhost", "till.team-b"):
                assert place(connect(url, hostname=hostname, reconnect=False, timeout=30)) == "team-b/till"
            for hostname in (HOST, "thief.team-a"):
                with pytest.raises(ConnectionDeniedError) as caught:
                    connect(url, hostname=hostname, reconnect=False, timeout=30)
                assert caught.value.condition == "amqp:not-allowed"
                assert "team-" not in caught.value.description.replace(hostname, "")
            # On this machine nobody else reads a password in the clear.
            tenants.connect(sasl=["PLAIN"], allow_insecure_plain=True).close()
            # An imposter's space lets in everybody: whoever has a password says so, and does not say it.
            with pytest.raises(ConnectionDeniedError, match="would show your secret to the network"):
                connect(url, user="keeper", password="blue as the sea at dawn", reconnect=False, timeout=30)
    finally:
        grant(tenants, "red", None).raise_for_status()


def test_who_serves_tenants_in_one_namespace_alone_grants_no_domains_there(tenants: Tenants) -> None:
    bound = document(
        "rolebindings", "team-a", "serves",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "enmasse.io:service-admin"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "red"}],
    )  # fmt: skip
    with operator(tenants) as http:
        http.post(path_of("rolebindings", "team-a"), json=bound).raise_for_status()
        try:
            with tenants.http("red") as red:
                body = {"metadata": {"annotations": {ROUTE_DOMAINS: "*"}}}
                answer = red.patch("/api/v1/namespaces/team-a", json=body, headers=MERGE)
            assert answer.status_code == 403, answer.text
            assert ROUTE_DOMAINS not in json.dumps(http.get("/api/v1/namespaces/team-a").json())
        finally:
            http.delete(path_of("rolebindings", "team-a", "serves")).raise_for_status()


def test_there_are_many_ways_each_once() -> None:
    words = [way.words for way in WAYS]
    assert len(words) == len(set(words)) > 20
