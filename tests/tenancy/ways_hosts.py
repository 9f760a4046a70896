"""Ways by host names: those of machines, of everybody and of others, misspelt ones, and what strangers are told."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.client.blocking import connect
from enmasse.errors import EnmasseError
from tests.tenancy.refusals import Way, forbidden, no_login
from tests.tenancy.tenants import answer_to, document, path_of
from tests.tenancy.ways_api import APPLY, MERGE, in_own_namespace

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

__all__ = ["HOST", "ROUTE_DOMAINS", "WAYS", "claim", "condition"]

ROUTE_DOMAINS = "enmasse.io/route-domains"
HOST = "mq.bank.example"
NOBODYS = (
    "localhost", "LOCALHOST", "localhost.localdomain", "x.localhost", "127.0.0.1", "127.1", "2130706433",
    "0x7f.0.0.1", "::1", "[::1]", "::ffff:127.0.0.1", "0.0.0.0", "broker", "*", "*.example.org", "mq.example.org.",
    "mq.example.org:5672", "mq example.org",
)  # fmt: skip
MISSPELT = ("typo.team-a", "red.wrong", "typo.team-a.enmasse.local", "red.wrong.enmasse.local", "Red.Wrong.")


def claim(host: str, *more: dict[str, Any]) -> dict[str, Any]:
    """A spec of a space that asks for a host."""
    route = {"name": "route", "service": "messaging", "expose": {"type": "route", "routeHost": host}}
    return {"type": "standard", "plan": "standard-unlimited", "endpoints": [route, *more]}


def condition(item: dict[str, Any], kind: str = "EndpointsReady") -> tuple[str, str, str]:
    """A condition of an object: status, reason and message."""
    found = [each for each in item.get("status", {}).get("conditions", ()) if each["type"] == kind]
    return (found[0]["status"], found[0].get("reason", ""), found[0].get("message", "")) if found else ("", "", "")


def _refused(host: Callable[[], str]) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        space, own = path_of("addressspaces", "team-a"), path_of("addressspaces", "team-a", "red")
        body = document("addressspaces", "team-a", "claim", spec=claim(host()))
        spec = {"spec": {"endpoints": claim(host())["endpoints"]}}
        with tenants.http("red") as http:
            answers = [
                http.post(space, json=body),
                http.post(space, params={"dryRun": "All"}, json=body),
                http.patch(own, json=spec, headers=MERGE),
                http.patch(f"{space}/claim", params={"fieldManager": "red"}, content=json.dumps(body), headers=APPLY),
            ]
        for answer in answers:
            assert answer.status_code == 422, answer.text
            assert "routeHost: expected a host name of the space alone" in answer.json()["message"]

    return attempt


def _not_granted(item: dict[str, Any]) -> None:
    status, reason, message = condition(item)
    assert (status, reason) == ("False", "HostNotGranted"), item["status"]
    assert f"kubectl annotate --overwrite namespace team-a {ROUTE_DOMAINS}={HOST}" in message
    assert HOST not in json.dumps(item["status"]["endpointStatuses"])


def self_granted(tenants: Tenants) -> None:
    """Write the annotation, by every way that a Namespace has of being written."""
    grant = {"metadata": {"name": "team-a", "annotations": {ROUTE_DOMAINS: "*"}}}
    whole = {"apiVersion": "v1", "kind": "Namespace"} | grant
    one, new = "/api/v1/namespaces/team-a", {"apiVersion": "v1", "kind": "Namespace"}
    with tenants.http("red") as http:
        forbidden(http.patch(one, json=grant, headers=MERGE))
        forbidden(http.patch(f"{one}/status", json=grant, headers=MERGE), 403, 404, 405)
        forbidden(http.patch(one, params={"fieldManager": "red"}, content=json.dumps(whole), headers=APPLY))
        forbidden(http.put(one, json=whole))
        forbidden(http.post("/api/v1/namespaces", json=new | {"metadata": grant["metadata"] | {"name": "team-r"}}))


def _misspelt(**names: Any) -> Callable[[Tenants], None]:
    return lambda tenants: no_login(lambda: tenants.connect(**names))


def told_of_spaces(tenants: Tenants) -> None:
    """Be refused in many ways; no word of it names a space of anybody."""
    told = []
    attempts: list[dict[str, Any]] = [
        {"hostname": hostname}
        for hostname in (None, "127.0.0.1", "mq.example.org", "typo.enmasse.local", "x.y.enmasse.local", "x.y")
    ]
    attempts.append({"hostname": None, "user": "app@x.y", "password": "x"})
    for given in attempts:
        for url, tls in ((tenants.amqp, None), (tenants.amqps, tenants.tls("localhost"))):
            with pytest.raises(EnmasseError) as caught:
                connect(url, tls=tls, reconnect=False, timeout=30, **given)
            told.append(str(caught.value))
    # Without SASL, a connection is not even opened.
    told.append(answer_to(tenants.amqp, b"AMQP\0\1\0\0").decode("latin-1"))
    for url in (tenants.amqp.replace("amqp:", "http:"), tenants.api):
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            paths = ("/", "/healthz", "/readyz?verbose", "/readyz", "/metrics", "/x", "/apis/enmasse.io/v1beta1")
            told += [http.get(path).text for path in paths]
    for answer in told:
        for name in ("blue", "red.", "/red", "team-"):
            assert name not in answer, answer


def _all() -> Iterator[Way]:
    for host in NOBODYS:
        yield Way(f"claim the host {host!r}", _refused(lambda host=host: host))  # type: ignore[misc]
    yield Way("claim the name of the machine in the network", _refused(lambda: f"{socket.gethostname()}.local"))
    yield Way(
        "claim a host of a domain that was not granted",
        in_own_namespace("addressspaces", "claim", _not_granted, spec=claim(HOST)),
    )
    yield Way("grant oneself every domain", self_granted)
    for host in MISSPELT:
        yield Way(
            f"log in as red with its realm at the misspelt host {host!r}",
            _misspelt(hostname=host, user="app@red.team-a"),
        )
    yield Way("log in as red where the space is misspelt", _misspelt(hostname="red.wrong"))
    yield Way("log in as red with a realm that is misspelt", _misspelt(hostname=None, user="app@typo.team-a"))
    yield Way("be told of spaces without a login", told_of_spaces)


WAYS = tuple(_all())
