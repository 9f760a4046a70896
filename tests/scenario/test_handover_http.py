"""Clients of HTTP at a node that is not the home of their space: their requests are passed on, one by one."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from enmasse.identity.users import key_fields, make_keys
from tests.support.nodes import Nodes, two_nodes
from tests.support.polling import until

pytestmark = pytest.mark.slow

HERE, THERE, GUARDED = "here.default", "there.default", "guarded.default"
SECRET = "correct horse"
LARGE = bytes(range(256)) * 20_000
"""Five megabytes, which no buffer on the way holds."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with two_nodes(
        tmp_path_factory.mktemp("nodes"), "--allow-insecure-plain", "--web-origin", "http://page"
    ) as found:
        for space, home in (("default/here", 0), ("default/there", 1)):
            found.space(space, home)
            for name in ("orders", "large", "lost", "events"):
                found.address(space, home, name, "queue")
            found.address(space, home, "any", "anycast")
        found.space("default/guarded", 1, authentication="standard")
        found.address("default/guarded", 1, "orders", "queue")
        yield found


def declare_user(nodes: Nodes, name: str, password: str, revision: int = 1) -> None:
    """Declare a user of the guarded space, or change its password."""
    keys = make_keys("SCRAM-SHA-256", password, os.urandom(16), 4_096)
    record = {
        "space": "default/guarded", "spaceUid": "default/guarded", "username": name, "uid": f"uid-{name}",
        "generation": revision, "revision": str(revision),
        "authorization": [{"operations": ["send", "recv", "view"], "addresses": ["orders"]}],
        "scram": {"SCRAM-SHA-256": key_fields(keys)},
    }  # fmt: skip
    verb = "create" if revision == 1 else "update"
    nodes.manage(lambda management: getattr(management, verb)("io.enmasse.user", f"default/guarded.{name}", record))


def bodies(answer: httpx.Response) -> list[Any]:
    """The bodies of messages, which were sent as JSON."""
    assert answer.status_code == 200, answer.text
    return [message["body"] for message in answer.json()["messages"]]


def client(nodes: Nodes, front: int = 0, space: str = THERE, *, http2: bool = False, **options: Any) -> httpx.Client:
    base = f"http://127.0.0.1:{nodes.nodes[front].port}/v1/spaces/{space}/addresses/"
    return httpx.Client(base_url=base, timeout=60, trust_env=False, http1=not http2, http2=http2, **options)


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def front(request: pytest.FixtureRequest, nodes: Nodes) -> Iterator[httpx.Client]:
    with client(nodes, http2=request.param) as found:
        yield found


def test_what_is_sent_here_is_at_the_home_and_back(nodes: Nodes, front: httpx.Client) -> None:
    for number in range(3):
        assert front.post("orders/messages", json=number).status_code == 202
    (row,) = [row for row in nodes.connections(1) if row["protocol"] == "http"]
    assert (row["via"], row["space"], row["mechanism"]) == ("node-0", "default/there", None)
    assert not [row for row in nodes.connections(0) if row["protocol"] == "http"]
    head = front.head("orders/messages")
    assert (head.status_code, head.content) == (200, b"")
    assert bodies(front.get("orders/messages")) == [0, 1, 2]
    with client(nodes, 1) as home:
        (leased,) = home.post("orders/receive?max=1").json()["messages"]
    # A lease is the home's, wherever it is settled.
    assert front.post("orders/settle", json={"leases": [leased["lease"]]}).json()["settled"] == 1
    assert bodies(front.post("orders/receive?max=9&auto=true")) == [1, 2]
    missing = front.post("nothing/messages", content=b"x")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"


def test_large_bodies_and_answers(front: httpx.Client) -> None:
    kind = {"Content-Type": "application/octet-stream"}
    parts = (LARGE[at : at + 9_999] for at in range(0, len(LARGE), 9_999))
    assert front.post("large/messages", content=LARGE, headers=kind).status_code == 202
    assert front.post("large/messages", content=parts, headers=kind).status_code == 202
    for _ in range(2):
        (message,) = front.post("large/receive?max=1&auto=true").json()["messages"]
        assert base64.b64decode(message["bodyBase64"]) == LARGE


def test_one_connection_serves_users_of_several_spaces(nodes: Nodes) -> None:
    declare_user(nodes, "jo", SECRET)

    async def story() -> None:
        root = f"http://127.0.0.1:{nodes.nodes[0].port}/v1/spaces"
        async with httpx.AsyncClient(timeout=60, trust_env=False, http1=False, http2=True) as front:

            async def status(space: str, proof: tuple[str, str] | None) -> int:
                url = f"{root}/{space}/addresses/orders/messages"
                options: dict[str, Any] = {} if proof is None else {"auth": proof}
                return (await front.post(url, content=b"x", **options)).status_code

            asked = [(HERE, None), (THERE, None), (GUARDED, ("jo", SECRET)), (GUARDED, ("bo", "guess"))] * 8
            found = await asyncio.gather(*(status(*each) for each in asked))
            assert set(found[0::4]) == set(found[1::4]) == set(found[2::4]) == {202}
            assert set(found[3::4]) <= {401, 429}
            fronts = {row["via"] for row in nodes.connections(1) if row["user"] == "jo"}
            assert fronts == {"node-0"}

    asyncio.run(story())


def test_events_come_as_they_are_sent(nodes: Nodes, front: httpx.Client) -> None:
    with front.stream("GET", "events/events", headers={"Accept": "text/event-stream"}) as events:
        lines = events.iter_lines()
        with client(nodes, 1) as home:
            for number in range(3):
                assert home.post("events/messages", json=number).status_code == 202
                event = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
                assert event["body"] == number
                settled = home.post("events/settle", json={"leases": [event["lease"]]})
                assert settled.json()["settled"] == 1
    front.close()
    # The home notices that the client is gone, and has its link leave.
    until(lambda: not [row for row in nodes.connections(1) if row["protocol"] == "http" and row["receivers"]])


def test_pages_and_questions_without_a_login_are_the_fronts(nodes: Nodes) -> None:
    with client(nodes) as front:
        page = {"Origin": "http://page", "Sec-Fetch-Site": "cross-site"}
        asked = front.request("OPTIONS", "orders/messages", headers=page)
        assert asked.status_code == 204
        answer = front.post("orders/messages", content=b"x", headers=page)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (202, "http://page")
        assert len(answer.headers.get_list("date")) == 1
        stranger = front.post("orders/messages", content=b"x", headers={"Origin": "http://evil"})
        assert stranger.status_code == 403
        assert front.get(f"http://127.0.0.1:{nodes.nodes[0].port}/healthz").status_code == 200


def test_a_user_whose_password_changes_or_who_goes_is_noticed_on_a_connection_that_lasts(nodes: Nodes) -> None:
    declare_user(nodes, "cy", SECRET)
    with client(nodes, space=GUARDED, auth=("cy", SECRET)) as front:
        assert front.post("orders/messages", content=b"x").status_code == 202
        assert front.post("other/messages", content=b"x").status_code == 403
        declare_user(nodes, "cy", "another one", 2)
        until(lambda: front.post("orders/messages", content=b"x").status_code == 401)
    with client(nodes, space=GUARDED, auth=("cy", "another one")) as front:
        assert front.post("orders/messages", content=b"x").status_code == 202
        nodes.manage(lambda management: management.delete("io.enmasse.user", "default/guarded.cy"))
        until(lambda: front.post("orders/messages", content=b"x").status_code == 401)


def test_a_home_that_hangs_or_dies_costs_an_answer_and_is_found_again(nodes: Nodes) -> None:
    home = nodes.nodes[1]
    with client(nodes) as front, client(nodes, space=HERE) as here, ThreadPoolExecutor(1) as pool:
        assert front.post("lost/messages", json="before").status_code == 202
        os.kill(home.pid, signal.SIGSTOP)
        waiting = pool.submit(front.post, "lost/messages", json="unknown")
        with client(nodes) as another:
            late = another.post("lost/messages", json="never")
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        assert here.post("orders/messages", content=b"x").status_code == 202
        os.kill(home.pid, signal.SIGCONT)
        assert waiting.result(60).status_code == 202
        os.kill(home.pid, signal.SIGSTOP)
        waiting = pool.submit(front.post, "lost/messages", json="perhaps")
        assert here.post("orders/messages", content=b"x").status_code == 202
        home.kill()
        answer = waiting.result(60)
        assert answer.status_code in (502, 503)
        assert front.post("lost/messages", json="never").status_code == 503
        home.start()
        assert front.post("lost/messages", json="after").status_code == 202
        found = [body for body in bodies(front.get("lost/messages?max=100")) if body != "perhaps"]
        assert found == ["before", "unknown", "after"]
