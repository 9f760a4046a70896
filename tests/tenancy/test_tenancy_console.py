"""Whatever role one has in a namespace, the console shows nothing of another; and a viewer reads no messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.tenancy.tenants import TYPES
from tests.tenancy.ways_console import ASKS, BASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow

ROLES = {"rosa": ("tenant-view",), "rufus": ("service-admin", "tenant-edit")}
"""People who have a role in red's namespace alone, beside red, who edits there."""

OWN = f"{BASE}/namespaces/team-a"


@pytest.fixture(scope="module")
def people(tenants: Tenants) -> Iterator[Tenants]:
    for name, roles in ROLES.items():
        tenants.place.ok("account", "add", name, "--no-password")
        for role in roles:
            tenants.place.ok("account", "grant", name, role, "--namespace", "team-a")
        tenants.tokens[name] = tenants.place.ok("token", "create", "--account", name).strip()
    yield tenants
    for name in ROLES:
        del tenants.tokens[name]


@pytest.mark.parametrize("who", list(ROLES))
def test_no_role_in_a_namespace_shows_another(people: Tenants, who: str) -> None:
    before = people.state_of_blue()
    with people.http(who) as http:
        for words, ask, see in ASKS:
            try:
                see(ask(http))
            except AssertionError as error:
                raise AssertionError(f"{who}: {words}: {error}") from error
    assert people.state_of_blue() == before


OF_EACH = len(TYPES) + 1 + 5
"""Addresses of each tenant: those, a subscription, and a project's."""


@pytest.mark.parametrize("who", ["red", *ROLES])
def test_everybody_sees_what_they_have(people: Tenants, who: str) -> None:
    with people.http(who) as http:

        def get(path: str, **query: str) -> Any:
            answer = http.get(path, params=query)
            assert answer.status_code == 200, (who, path, answer.text)
            return answer.json()

        spaces = get(f"{BASE}/rows/addressspaces")
        assert [(row["namespace"], row["name"]) for row in spaces["items"]] == [("team-a", "red")]
        overview = get(f"{BASE}/overview")
        assert (overview["totals"]["spaces"], overview["totals"]["addresses"]) == (1, OF_EACH)
        assert "nodes" not in overview
        assert get(f"{OWN}/addressspaces/red/rows/addresses")["total"] == OF_EACH
        assert get(f"{OWN}/addressspaces/red/rows/users", search="keep")["total"] == 1
        assert get(f"{OWN}/addressspaces/red/series", address="red.vault")["kind"] == "Series"
        may = {"operation": "send", "address": "vault"}
        users = "/apis/user.enmasse.io/v1beta1/namespaces/team-a/messagingusers"
        assert http.post(f"{users}/red.app/check", json=may).json()["allowed"] is True


READING: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "browse": lambda http: http.get(f"{OWN}/addresses/red.vault/messages"),
    "browse heads": lambda http: http.get(f"{OWN}/addresses/red.vault/messages", params={"bodies": "false"}),
    "follow": lambda http: http.get(f"{OWN}/addresses/red.vault/messages", params={"watch": "true"}),
    "send": lambda http: http.post(f"{OWN}/addresses/red.vault/messages", json={"messages": [{"body": "x"}]}),
    "take": lambda http: http.post(f"{OWN}/addresses/red.vault/receive", json={}),
    "purge": lambda http: http.post(f"{OWN}/addresses/red.vault/purge", json={}),
    "count": lambda http: http.post(f"{OWN}/addresses/red.vault/purge", params={"dryRun": "All"}, json={}),
    "query": lambda http: http.post(f"{OWN}/addressspaces/red/query", json={"sql": "SELECT 1"}),
    "trace bodies": lambda http: http.get(
        f"{OWN}/addressspaces/red/connections/1/trace", params={"watch": "true", "bodies": "true"}
    ),
}


@pytest.mark.parametrize("what", list(READING))
def test_a_viewer_reads_and_changes_no_messages(people: Tenants, what: str) -> None:
    with people.http("rosa") as http:
        refused = READING[what](http)
        assert refused.status_code == 403, refused.text
        assert 'User "rosa" cannot' in refused.json()["message"]


def test_who_has_no_role_at_all_sees_an_empty_overview(people: Tenants) -> None:
    people.place.ok("account", "add", "nobody", "--no-password")
    people.tokens["nobody"] = people.place.ok("token", "create", "--account", "nobody").strip()
    with people.http("nobody") as http:
        found = http.get(f"{BASE}/overview").json()
        assert (found["totals"]["spaces"], found["problems"]) == (0, [])
        assert http.get(f"{BASE}/rows/addressspaces").json()["total"] == 0
        with http.stream("GET", f"{BASE}/overview", params={"watch": "true"}) as answer:
            line = json.loads(next(answer.iter_lines()))
            assert line["totals"]["connections"] == 0
    del people.tokens["nobody"]
