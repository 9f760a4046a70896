"""Messages of addresses through the API of a whole installation: sent, browsed, followed, chosen, taken."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import cbor2
import httpx
import pytest

from enmasse.client import Message
from enmasse.client.blocking import connect
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow

XSS = "<script>alert('1')</script><img src=x onerror=alert(1)>"
NAME = 'it\'s "quoted" \u202e\u0623\u0628 \U0001f680'


class Addresses:
    """The addresses of a space, over HTTP."""

    def __init__(self, installation: Installation) -> None:
        self.http = httpx.Client(
            base_url=f"{installation.url('api')}/apis/enmasse.io/v1beta1/namespaces/default/addresses",
            headers=installation.proof,
            trust_env=False,
            timeout=30,
        )

    def get(self, address: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._checked(self.http.get(f"/{address}/messages", params=query))
        return found

    def post(self, path: str, body: Any, code: int = 200) -> dict[str, Any]:
        found: dict[str, Any] = self._checked(self.http.post(f"/{path}", json=body), code)
        return found

    def send(self, address: str, *messages: dict[str, Any]) -> list[str]:
        return [item["outcome"] for item in self.post(f"{address}/messages", {"messages": messages})["items"]]

    @staticmethod
    def _checked(answer: httpx.Response, code: int = 200) -> Any:
        assert answer.status_code == code, answer.text
        return answer.json()


@pytest.fixture
def addresses(shared: Installation) -> Iterator[Addresses]:
    found = Addresses(shared)
    with found.http:
        yield found


def test_messages_are_sent_browsed_in_pages_chosen_by_their_ids_and_taken(addresses: Addresses) -> None:
    sent = addresses.send(
        "demo.payments",
        {"body": XSS, "durable": True, "applicationProperties": {NAME: XSS, "n": 1}, "subject": NAME},
        {"body": {"a": [1, None, "x"]}, "applicationProperties": {"n": 2}},
        {"hex": "00ff80", "applicationProperties": {"n": 3}},
        {"base64": "AP8=", "contentType": "application/octet-stream", "durable": True},
        {"hex": cbor2.dumps({"t": 21.5, 1: b"\1"}).hex(), "contentType": "application/cbor"},
    )
    assert sent == ["accepted"] * 5
    first = addresses.get("demo.payments", limit=2)
    assert [item["body"]["form"] for item in first["items"]] == ["text", "json"]
    assert first["items"][0]["body"]["text"] == XSS
    assert first["items"][0]["applicationProperties"] == {NAME: XSS, "n": 1}
    assert first["items"][0]["properties"]["subject"] == NAME
    rest = addresses.get("demo.payments", **{"continue": first["metadata"]["continue"]})
    assert [item["body"].get("hex") for item in rest["items"]] == ["00ff80", "00ff", None]
    assert rest["items"][2]["body"]["value"] == {
        "type": "map", "value": [["t", 21.5], [1, {"type": "binary", "value": "01"}]],
    }  # fmt: skip
    assert "continue" not in rest["metadata"]
    chosen = addresses.get("demo.payments", selector="n > 1")["items"]
    assert [item["applicationProperties"]["n"] for item in chosen] == [2, 3]
    assert len(addresses.get("demo.payments", search="ALERT(1)")["items"]) == 1
    found = addresses.post("demo.payments/purge?dryRun=All", {"search": "ALERT(1)"})
    assert found["details"]["count"] == 1

    ids = [first["items"][1]["id"], rest["items"][1]["id"]]
    dry = addresses.post("demo.payments/purge?dryRun=All", {"ids": ids})
    assert dry["details"]["count"] == 2
    assert len(addresses.get("demo.payments")["items"]) == 5
    assert addresses.post("demo.payments/purge", {"ids": ids})["details"]["count"] == 2
    taken = addresses.post("demo.payments/receive", {"limit": 10})["items"]
    assert [item["body"].get("text") or item["body"].get("hex") for item in taken][:2] == [XSS, "00ff80"]
    assert len(taken) == 3
    assert addresses.post("demo.payments/receive", {"waitSeconds": 0})["items"] == []


def test_a_large_body_is_cut_unless_the_one_message_is_asked_for(addresses: Addresses) -> None:
    body = json.dumps({"values": ["x" * 100] * 9_000})
    assert addresses.send("demo.payments", {"body": "small"}, {"body": body, "contentType": "application/json"}) == [
        "accepted",
        "accepted",
    ]
    (_, cut) = addresses.get("demo.payments")["items"]
    assert (cut["body"]["form"], cut["body"]["truncated"], len(cut["body"]["text"])) == ("json", True, 65_536)
    whole = addresses.get("demo.payments", id=cut["id"], whole="true")["items"][0]
    assert (whole["body"]["text"], whole["body"]["truncated"]) == (body, False)
    assert "body" not in addresses.get("demo.payments", bodies="false")["items"][0]
    addresses.post("demo.payments/purge", {})
    gone = addresses.http.get("/demo.payments/messages", params={"id": cut["id"]})
    assert gone.status_code == 404


def test_dead_letters_tell_why_and_are_sent_back_one_by_one(shared: Installation, addresses: Addresses) -> None:
    assert addresses.send("demo.payments", {"body": "bad"}, {"body": "worse"}) == ["accepted"] * 2
    with connect(shared.url("amqp")) as connection, connection.receiver("payments", credit=1) as receiver:
        for attempt in range(12):
            delivery = receiver.receive(timeout=30 if attempt == 0 else 3)
            if delivery is None:
                break  # both are dead letters by now
            delivery.modify(failed=True)
    letters = until(lambda: len(found := addresses.get("demo.failed-payments")["items"]) == 2 and found)
    assert {(item["reason"], item["from"]) for item in letters} == {("attempts", "payments")}
    ids = [item["id"] for item in letters if item["body"]["text"] == "bad"]
    dry = addresses.post("demo.failed-payments/replay?dryRun=All", {"ids": ids})
    assert dry["details"]["count"] == 1
    assert addresses.post("demo.failed-payments/replay", {"ids": ids})["details"]["count"] == 1
    assert [item["body"]["text"] for item in addresses.get("demo.payments")["items"]] == ["bad"]
    addresses.post("demo.payments/purge", {})
    addresses.post("demo.failed-payments/purge", {})


def test_a_stream_is_browsed_from_an_offset_and_a_time_in_pages(addresses: Addresses) -> None:
    sent = addresses.send("demo.clicks", *({"body": str(n), "subject": "a key"} for n in range(7)))
    assert sent == ["accepted"] * 7
    found: list[dict[str, Any]] = []
    token: dict[str, str] = {}
    while True:
        page = addresses.get("demo.clicks", limit=4, **token)
        found += page["items"]
        if "continue" not in page["metadata"]:
            break
        token = {"continue": page["metadata"]["continue"]}
    mine = [item for item in found if item["properties"].get("subject") == "a key"]
    assert [item["body"]["text"] for item in mine] == [str(n) for n in range(7)]
    fifth = mine[4]
    later = addresses.get("demo.clicks", time=fifth["time"])["items"]
    assert {item["id"] for item in mine[4:]} <= {item["id"] for item in later}
    from_offset = addresses.get("demo.clicks", offset=fifth["offset"])["items"]
    assert fifth["id"] in {item["id"] for item in from_offset}
    assert addresses.get("demo.clicks", id=fifth["id"])["items"] == [fifth]


@pytest.mark.parametrize("address", ["demo.payments", "demo.clicks", "demo.news"])
def test_what_comes_is_told_as_it_comes(addresses: Addresses, address: str) -> None:
    addresses.send(address, {"body": "before"})
    seen: list[dict[str, Any]] = []
    begun = threading.Event()

    def follow() -> None:
        with addresses.http.stream("GET", f"/{address}/messages", params={"watch": "true"}) as answer:
            for line in answer.iter_lines():
                seen.append(json.loads(line))
                begun.set()
                if len(seen) == 3:
                    return

    following = threading.Thread(target=follow)
    following.start()
    assert begun.wait(30)
    assert addresses.send(address, {"body": "first"}, {"body": "second"}) == ["accepted"] * 2
    following.join(30)
    assert [event["type"] for event in seen] == ["BOOKMARK", "ADDED", "ADDED"]
    assert {event["object"]["body"]["text"] for event in seen[1:]} == {"first", "second"}
    if address == "demo.payments":
        assert addresses.post(f"{address}/purge", {})["details"]["count"] == 3


def test_what_cannot_be_is_refused_in_words(addresses: Addresses) -> None:
    for query, words in (
        ({"selector": "("}, "character"),
        ({"offset": 3}, "no stream"),
        ({"continue": "what"}, "enmasse:start takes"),
        ({"limit": 501}, "at most 500"),
        ({"time": "yesterday"}, "expected a time"),
        ({"whole": "true"}, "only together with id"),
    ):
        answer = addresses.http.get("/demo.payments/messages", params=query)
        assert (answer.status_code, words in answer.text) == (400, True), answer.text
    assert "its subscriptions do" in addresses.http.get("/demo.news/messages").text
    assert addresses.http.get("/demo.nothing/messages").status_code == 404
    addresses.post("demo.payments/messages", {"messages": [{"bdy": 1}]}, 400)
    addresses.post("demo.clicks/receive", {}, 400)


def test_the_frames_of_a_connection_are_told_without_what_messages_say(
    shared: Installation, addresses: Addresses
) -> None:
    spaces = str(addresses.http.base_url).replace("/addresses/", "/addressspaces")
    with connect(shared.url("amqp"), container_id="traced") as connection, connection.sender("payments") as sender:
        found = addresses.http.get(f"{spaces}/demo/connections").json()["items"]
        name = next(item["name"] for item in found if item["containerId"] == "traced")
        other = addresses.http.get(f"{spaces}/demo/connections/99999/trace?watch=true").text
        assert "has no connection 99999" in other
        texts = []
        for bodies in ("false", "true"):
            query = {"watch": "true", "bodies": bodies}
            with addresses.http.stream("GET", f"{spaces}/demo/connections/{name}/trace", params=query) as answer:
                lines = answer.iter_lines()
                assert "remark" in json.loads(next(lines))
                sender.send(Message("a secret text"))
                for line in lines:
                    frame = json.loads(line)
                    texts.append(frame["frame"])
                    if "disposition" in frame["frame"]:
                        break
    assert sum("transfer" in text for text in texts) == 2
    hexadecimal = b"a secret text".hex(" ")
    assert sum(hexadecimal in text for text in texts) == 1
    addresses.post("demo.payments/purge", {})
