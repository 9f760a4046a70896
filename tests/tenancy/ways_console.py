"""Ways over what the console asks: rows, series, overview, messages and traces, of another namespace or of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from enmasse.model.schema.subresources import TABLES_OF_SPACES
from tests.tenancy.refusals import Way, forbidden

if TYPE_CHECKING:
    import httpx

    from tests.tenancy.tenants import Tenants

__all__ = ["ASKS", "WAYS", "nothing_of_blue"]

BASE = "/apis/enmasse.io/v1beta1"
BLUE = f"{BASE}/namespaces/team-b"
USERS = "/apis/user.enmasse.io/v1beta1/namespaces/team-b/messagingusers"
WATCH = {"watch": "true"}

Ask = Callable[["httpx.Client"], "httpx.Response"]


def nothing_of_blue(response: httpx.Response) -> None:
    """See that an answer is one, and that nothing in it is of blue."""
    assert response.status_code == 200, (response.status_code, response.text)
    for word in ("blue", "team-b", "the formula"):
        assert word not in response.text, (word, response.text)


def _refused() -> Iterator[tuple[str, Ask]]:
    for table in TABLES_OF_SPACES:
        path = f"{BLUE}/addressspaces/blue/rows/{table}"
        yield f"see rows of blue's {table}", lambda http, path=path: http.get(path)  # type: ignore[misc]
    yield (
        "watch rows of blue's addresses",
        lambda http: http.get(f"{BLUE}/addressspaces/blue/rows/addresses", params=WATCH),
    )
    yield "see what flowed in blue's space", lambda http: http.get(f"{BLUE}/addressspaces/blue/series")
    for what, name in (("address", "blue.vault"), ("pipeline", "blue.etl"), ("connection", "1")):
        yield (
            f"see what flowed at blue's {what}",
            lambda http, what=what, name=name: http.get(f"{BLUE}/addressspaces/blue/series", params={what: name}),  # type: ignore[misc]
        )
    yield (
        "watch what flows at blue's address",
        lambda http: http.get(f"{BLUE}/addressspaces/blue/series", params={"address": "blue.vault"} | WATCH),
    )
    # A space of the same name as one's own names nothing of blue either.
    yield (
        "see what flowed at blue's address by one's own space",
        lambda http: http.get(f"{BLUE}/addressspaces/red/series", params={"address": "blue.vault"}),
    )
    messages = f"{BLUE}/addresses/blue.vault/messages"
    yield "read blue's messages", lambda http: http.get(messages)
    yield "read blue's messages without their bodies", lambda http: http.get(messages, params={"bodies": "false"})
    yield "look for a text in blue's messages", lambda http: http.get(messages, params={"search": "formula"})
    yield "follow blue's messages", lambda http: http.get(messages, params=WATCH)
    yield "send to blue's address over the API", lambda http: http.post(messages, json={"messages": [{"body": "x"}]})
    yield (
        "take blue's messages over the API",
        lambda http: http.post(f"{BLUE}/addresses/blue.vault/receive", json={"waitSeconds": 0}),
    )
    for action in ("purge", "replay"):
        yield (
            f"count by a dry run what {action} would reach at blue's address",
            lambda http, action=action: http.post(  # type: ignore[misc]
                f"{BLUE}/addresses/blue.vault/{action}", params={"dryRun": "All"}, json={"search": "formula"}
            ),
        )
    trace = f"{BLUE}/addressspaces/blue/connections/1/trace"
    yield "trace blue's connection over the API", lambda http: http.get(trace, params=WATCH)
    yield "trace blue's messages", lambda http: http.get(trace, params=WATCH | {"bodies": "true"})
    yield (
        "query blue's space over the API",
        lambda http: http.post(f"{BLUE}/addressspaces/blue/query", json={"sql": "SELECT * FROM vault"}),
    )
    yield "list the tables of blue's lake over the API", lambda http: http.get(f"{BLUE}/addressspaces/blue/tables")
    yield (
        "check what blue's user may do",
        lambda http: http.post(f"{USERS}/blue.app/check", json={"operation": "send", "address": "vault"}),
    )
    yield "list the nodes", lambda http: http.get(f"{BASE}/nodes")
    yield "watch the nodes", lambda http: http.get(f"{BASE}/nodes", params=WATCH)
    yield "read the audit log", lambda http: http.get(f"{BASE}/audit")
    yield "read in the audit log what blue did", lambda http: http.get(f"{BASE}/audit", params={"user": "blue"})


def _told() -> Iterator[tuple[str, Ask]]:
    """What is answered, with one's own alone in it."""
    rows = f"{BASE}/rows/addressspaces"
    yield "see blue's space among the rows of all", lambda http: http.get(rows)
    yield "look for blue's space", lambda http: http.get(rows, params={"search": "blue"})
    yield "ask for the rows of blue's namespace", lambda http: http.get(rows, params={"namespace": "team-b"})
    yield "see blue in the overview", lambda http: http.get(f"{BASE}/overview")
    yield "see blue's pipelines among those that are built in", lambda http: http.get(f"{BASE}/builtinpipelines")


def _way(words: str, ask: Ask, see: Callable[[httpx.Response], None]) -> Way:
    def attempt(tenants: Tenants) -> None:
        with tenants.http("red") as http:
            see(ask(http))

    return Way(words, attempt)


ASKS = (*((words, ask, forbidden) for words, ask in _refused()), *((*told, nothing_of_blue) for told in _told()))
"""Each in words, with what is asked and what has to be answered."""

WAYS = tuple(_way(*asked) for asked in ASKS)
