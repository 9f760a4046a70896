"""HTTP at a node: what is received, under which leases, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from tests.support.polling import until_async
from tests.unit.node.http_scene import Scene, basic, play, user, version  # noqa: F401  a fixture

WANTED = {"Accept": "text/event-stream"}


async def received(client: httpx.AsyncClient, address: str = "orders", **query: Any) -> list[dict[str, Any]]:
    answer = await client.post(f"{address}/receive", params={"wait": 30, **query})
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def sent(client: httpx.AsyncClient, *bodies: str, address: str = "orders") -> None:
    for body in bodies:
        answer = await client.post(f"{address}/messages", content=body, headers={"Content-Type": "text/plain"})
        assert answer.is_success, answer.text


async def asked(client: httpx.AsyncClient, action: str, *leases: str, **more: Any) -> dict[str, Any]:
    answer = await client.post(f"orders/{action}", json={"leases": leases, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_lease_is_settled_by_another_request(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.client() as other:
            await sent(client, "a", "b", "c", "d")
            messages = await received(client, max=4)
            assert [message["body"] for message in messages] == list("abcd")
            assert messages[0]["contentType"] == "text/plain"
            accepted, rejected, released, failed = (message["lease"] for message in messages)
            assert await asked(other, "settle", accepted, accepted) == {"settled": 1, "unknown": []}
            assert await asked(other, "settle", accepted, "x") == {"settled": 0, "unknown": [accepted, "x"]}
            await asked(other, "settle", rejected, outcome="reject", condition="shop:closed", description="no")
            await asked(other, "settle", released, outcome="release")
            await asked(other, "settle", failed, outcome="modify", failed=True)
            again = [(await received(other))[0] for _ in range(2)]
            assert {message["body"]: message.get("deliveryCount", 0) for message in again} == {"c": 0, "d": 1}
            await asked(other, "settle", *(message["lease"] for message in again))
            assert await received(other, wait=0) == []
            await until_async(lambda: scene.server.connections.links == 1)  # the sender's

    play(tmp_path, story)


def test_a_lease_that_ends_gives_its_message_back(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            await sent(client, "a")
            (message,) = await received(client, lease=60)
            assert await asked(client, "renew", message["lease"], "x", lease=0) == {"renewed": 1, "unknown": ["x"]}
            (again,) = await received(client)
            assert (again["body"], again["deliveryCount"]) == ("a", 1)
            assert (await asked(client, "settle", message["lease"]))["settled"] == 0
            assert (await asked(client, "settle", again["lease"]))["settled"] == 1

    play(tmp_path, story)


def test_what_is_accepted_as_it_is_delivered_is_gone(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            await sent(client, "a", "b")
            messages = await received(client, max=2, auto="true")
            assert [(message["body"], "lease" in message) for message in messages] == [("a", False), ("b", False)]
            assert await received(client, wait=0) == []

    play(tmp_path, story)


def test_a_receiver_waits_for_a_message_and_its_sender_for_the_outcome(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.client() as other:
            for outcome, status in (("accept", 200), ("reject", 422), ("release", 503)):
                waiting = asyncio.create_task(received(client, "any"))
                sending = asyncio.create_task(other.post("any/messages?wait=30", content=b"hello"))
                (message,) = await waiting
                body = {"leases": [message["lease"]], "outcome": outcome}
                assert (await client.post("any/settle", json=body)).json()["settled"] == 1
                assert (await sending).status_code == status

    play(tmp_path, story)


def test_what_a_client_that_is_gone_was_to_get_is_for_others(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        connections = scene.server.connections
        _, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        path = "/v1/spaces/open.ns/addresses/orders/receive?wait=60"
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        await until_async(lambda: connections.links == 1)
        writer.close()
        await until_async(lambda: len(connections) == 0)
        async with scene.client() as client:
            await sent(client, "a")
            (message,) = await received(client)
            assert (message["body"], message.get("deliveryCount", 0)) == ("a", 0)

    play(tmp_path, story)


async def half_closed(scene: Scene, action: str, body: bytes = b"") -> bytes:
    """Ask, say at once that nothing more comes, and return all that is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
    path = f"/v1/spaces/open.ns/addresses/{action}"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_a_client_that_says_nothing_more_hears_its_answer(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for number in range(5):
            answer = await half_closed(scene, "orders/messages", b"%d" % number)
            assert answer.startswith(b"HTTP/1.1 202 ")
        async with scene.amqp() as amqp:
            receiver = await amqp.receiver("any")
            receiving = asyncio.create_task(receiver.receive(timeout=60))
            await until_async(lambda: scene.server.connections.links == 1)
            sending = asyncio.create_task(half_closed(scene, "any/messages?wait=60", b"x"))
            delivery = await receiving
            assert delivery is not None
            await delivery.accept()
            assert (await sending).startswith(b"HTTP/1.1 200 ")
        answer = await half_closed(scene, "orders/receive?wait=60&max=5")
        assert answer.count(b'"lease"') == 5
        # What waits for more is answered at once: who is gone altogether looks the same, and must be handed nothing.
        answer = await half_closed(scene, "orders/receive?wait=60")
        assert answer.endswith(b'{"messages": []}\n')

    play(tmp_path, story)


def test_leases_are_of_their_user_alone(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.set_users(user("jo", "orders"), user("bo", "orders"), user("flo"))
        async with scene.client("shop.ns", headers=basic("jo")) as jo:
            await sent(jo, "a")
            (message,) = await received(jo)
            for stranger, status in (("bo", 200), ("flo", 403)):
                body = {"leases": [message["lease"]]}
                answer = await jo.post("orders/settle", json=body, headers=basic(stranger))
                assert answer.status_code == status
                if status == 200:
                    assert answer.json() == {"settled": 0, "unknown": [message["lease"]]}
            assert (await asked(jo, "settle", message["lease"]))["settled"] == 1

    play(tmp_path, story)


def test_a_queue_is_looked_at_page_by_page(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            await sent(client, *"abc")
            first = (await client.get("orders/messages", params={"max": 2})).json()
            assert [message["body"] for message in first["messages"]] == ["a", "b"]
            rest = (await client.get("orders/messages", params={"after": first["next"]})).json()
            assert [message["body"] for message in rest["messages"]] == ["c"]
            none = (await client.get("orders/messages", params={"after": rest["next"]})).json()
            assert none == {"messages": [], "next": rest["next"]}
            assert len(await received(client, max=3, auto="true")) == 3, "nothing was taken"

    play(tmp_path, story)


def test_a_stream_is_read_from_an_offset_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            await sent(client, *"abc", address="log")
            first = (await client.get("log/messages", params={"max": 2})).json()
            assert [message["body"] for message in first["messages"]] == ["a", "b"]
            assert first["next"] == {"0": 2}
            rest = (await client.get("log/messages", params={"offset": 2})).json()
            assert [message["body"] for message in rest["messages"]] == ["c"]
            assert (await client.get("log/messages", params={"offset": 3})).json() == {
                "messages": [],
                "next": {"0": 3},
            }
            waiting = asyncio.create_task(client.get("log/messages", params={"offset": 3, "wait": 30}))
            await until_async(lambda: scene.server.connections.links == 2)
            async with scene.client() as other:
                await sent(other, "d", address="log")
            assert [message["body"] for message in (await waiting).json()["messages"]] == ["d"]
            assert (await client.post("log/receive")).status_code == 409

    play(tmp_path, story)


def test_a_request_is_answered_by_a_message(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.amqp() as amqp:
            late = await client.post("orders/request?wait=0.2", content=b"anyone?")
            assert late.status_code == 504, late.text
            assert (await client.post("any/request?wait=0.2", content=b"anyone?")).status_code == 503
            async with amqp.receiver("any") as receiver:
                headers = {"X-Correlation-Id": "7", "Content-Type": "text/plain"}
                asking = asyncio.create_task(client.post("any/request", content=b"how many?", headers=headers))
                delivery = await receiver.receive(30)
                assert delivery is not None
                question = delivery.message
                delivery.accept()
                assert (question.body, question.correlation_id) == (b"how many?", "7")
                answer = {"body": {"count": 4}, "correlationId": question.correlation_id, "properties": {"N": 1}}
                async with scene.client() as other:
                    batch = {"Content-Type": "application/x-ndjson"}
                    address = str(question.reply_to).replace("$", "%24")
                    done = await other.post(f"{address}/messages", content=json.dumps(answer), headers=batch)
                    assert json.loads(done.text)["status"] in (200, 202), done.text
                reply = await asking
                assert (reply.status_code, reply.json()) == (200, {"count": 4})
                assert reply.headers["content-type"] == "application/json"
                assert reply.headers["x-correlation-id"] == "7"
                assert json.loads(reply.headers["x-properties"]) == {"N": 1}
            await until_async(lambda: not len(scene.server.entities.spaces["ns/open"].dynamic))

    play(tmp_path, story)


def test_mistakes_of_receivers_are_answered(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            for path in (
                "orders/receive?max=0",
                "orders/receive?wait=x",
                "orders/receive?auto=maybe",
                "orders/receive?selector=((",
                "orders/receive?lease=-1",
                "orders/receive?offset=1",
            ):
                assert (await client.post(path)).status_code == 400, path
            for path in (
                "orders/messages?offset=1",
                "orders/messages?after=x",
                "log/messages?after=1",
                "log/messages?offset=x",
            ):
                assert (await client.get(path)).status_code == 400, path
            for body in (b"", b"[]", b'{"leases": "x"}', b'{"leases": [], "outcome": "keep"}'):
                assert (await client.post("orders/settle", content=body)).status_code == 400, body
            assert (await client.post("none/receive")).status_code == 404

    play(tmp_path, story)


def test_events_come_as_far_as_those_before_are_settled(tmp_path: Path) -> None:
    async def next_event(lines: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        async for line in lines:
            if not line and "data" in found:
                return found
            name, _, value = line.partition(": ")
            found[name] = value
        raise AssertionError("the events have ended")

    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.client() as other:
            await sent(client, "a", "b")
            # The client closes its connection, too: httpx leaves streams of HTTP/2 as they are.
            async with (
                scene.client() as reader,
                reader.stream("GET", "orders/events", params={"max": 1}, headers=WANTED) as answer,
            ):
                assert answer.headers["content-type"] == "text/event-stream"
                lines = answer.aiter_lines()
                for body in "ab":
                    event = await next_event(lines)
                    message = json.loads(event["data"])
                    assert (event["event"], event["id"], message["body"]) == ("message", message["lease"], body)
                    if body == "a":
                        assert (await asked(other, "settle", message["lease"]))["settled"] == 1
            # What was seen and not settled comes again, as a failed attempt.
            (again,) = await received(other)
            assert (again["body"], again["deliveryCount"]) == ("b", 1)

            await sent(other, *"xyz", address="log")
            async with client.stream("GET", "log/events", params={"offset": "first", "max": 1}) as answer:
                lines = answer.aiter_lines()
                events = [await next_event(lines) for _ in range(2)]
                assert [(event["id"], json.loads(event["data"])["body"]) for event in events] == [
                    ("0", "x"),
                    ("1", "y"),
                ]
            headers = {"Last-Event-ID": "1"}
            async with client.stream("GET", "log/events", headers=headers) as answer:
                assert json.loads((await next_event(answer.aiter_lines()))["data"])["body"] == "z"

    play(tmp_path, story)
