"""What the console asks of a real installation: live rows, the last hour, who may what, and its own files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.installation import NODES
from tests.support.polling import until

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow

BASE = "/apis/enmasse.io/v1beta1"
DEMO = f"{BASE}/namespaces/default/addressspaces/demo"


def test_what_flows_is_seen_live_and_kept(shared: Installation) -> None:
    with httpx.Client(base_url=shared.url("api"), headers=shared.proof, timeout=30) as api:

        def row(name: str) -> dict[str, Any]:
            found = api.get(f"{DEMO}/rows/addresses", params={"search": name}).json()
            return next(item for item in found["items"] if item["address"] == name)

        until(lambda: "stored" in row("orders"), lambda: row("orders"))
        before = row("orders")["stored"]
        with api.stream("GET", f"{DEMO}/rows/addresses?watch=true&search=orders") as watch:
            lines = watch.iter_lines()
            json.loads(next(lines))
            for number in range(3):
                shared.ok("send", "orders", f"message {number}", "--space", "demo")
            told = next(line for line in map(json.loads, lines) if line["items"][0].get("stored") == before + 3)
        assert told["total"] == 1
        assert told["items"][0]["spark"]["in"][-1] > 0 or sum(told["items"][0]["spark"]["in"]) > 0
        series = api.get(f"{DEMO}/series", params={"address": "demo.orders"}).json()
        assert series["series"]["stored"][-1] >= before
        assert len(series["times"]) == len(series["series"]["messagesIn"])
        [space] = api.get(f"{BASE}/rows/addressspaces").json()["items"]
        assert (space["name"], space["ready"]) == ("demo", True)
        overview = api.get(f"{BASE}/overview").json()
        assert [node["up"] for node in overview["nodes"]] == [True] * NODES
        assert overview["totals"]["stored"] >= 3
        [latest] = api.get(f"{BASE}/audit", params={"limit": 1}).json()["items"]
        assert latest["user"]


def test_the_link_of_the_console_lets_a_browser_in(shared: Installation) -> None:
    link = shared.ok("console", "--print").strip()
    token = shared.proof["authorization"].removeprefix("Bearer ")
    assert link == f"{shared.url('api')}/login?token={token}"
    with httpx.Client() as browser:
        answer = browser.get(link)
        assert (answer.status_code, answer.headers["location"].partition("#")[0]) == (303, "/console/")
        page = browser.get(shared.url("console"))
        assert page.status_code in (200, 503)  # 503 where it is not built
        assert re.search("script-src 'self'|default-src 'none'", page.headers["content-security-policy"])
        assert len(page.headers.get_list("content-security-policy")) == 1
        assert browser.get(f"{shared.url('api')}{BASE}/nodes").status_code == 200


def test_a_user_is_asked_what_it_may_do_at_the_node(shared: Installation) -> None:
    shared.ok("create", "space", "guarded", "--authentication", "standard")
    try:
        shared.ok("status", "--wait", "60")
        shared.ok("create", "user", "maker", "--space", "guarded", "--send", "orders/#", stdin="correct horse\n")
        users = "/apis/user.enmasse.io/v1beta1/namespaces/default/messagingusers"
        with httpx.Client(base_url=shared.url("api"), headers=shared.proof) as api:

            def check(**asked: Any) -> Any:
                answer = api.post(f"{users}/guarded.maker/check", json=asked)
                return answer.json() if answer.status_code == 200 else answer.status_code

            until(lambda: check(operation="send", address="orders/1")["allowed"])
            assert check(operation="send", address="orders/1")["reason"] == "send on orders/#"
            assert check(operation="recv", address="orders/1")["allowed"] is False
            assert check(operation="manage")["allowed"] is False
            assert check(operation="fly", address="a") == 400
            assert check(operation="send") == 400
    finally:
        shared.ok("delete", "space", "guarded")
