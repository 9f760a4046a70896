"""Requests and replies, and management on top of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from enmasse.client import (
    ClosedError,
    DeadlineError,
    LinkRefusedError,
    Message,
    RemoteError,
    UnavailableError,
    connect,
)
from enmasse.client.management import Management, ManagementError
from enmasse.message.outcomes import RELEASED
from enmasse.wire.amqp.link import ReceivingLink

Answer = Callable[[Message], Message | None]


@asynccontextmanager
async def answering(url: str, address: str, answer: Answer) -> AsyncIterator[None]:
    """Somebody who answers requests."""
    async with connect(url) as connection:
        requests = await connection.receiver(address)
        replies = await connection.sender(None)

        async def serve() -> None:
            async for delivery in requests:
                delivery.accept()
                request = delivery.message
                reply = answer(request)
                if reply is not None:
                    reply.to = request.reply_to
                    reply.correlation_id = request.correlation_id or request.message_id
                    replies.send_nowait(reply)

        task = asyncio.ensure_future(serve())
        try:
            yield
        finally:
            await requests.close()
            await task


def echo(request: Message) -> Message:
    return Message(request.body)


async def test_each_request_gets_its_own_reply(serving: Any) -> None:
    async with serving() as server, answering(server.url, "service", echo), connect(server.url) as connection:
        replies = await asyncio.gather(*(connection.request("service", Message(n), timeout=30) for n in range(50)))
        assert [reply.body for reply in replies] == list(range(50))


async def test_the_senders_own_ids_are_kept_and_the_request_is_not_changed(serving: Any) -> None:
    async with serving() as server, answering(server.url, "service", echo), connect(server.url) as connection:
        request = Message(b"x", message_id="mine")
        assert (await connection.request("service", request, timeout=30)).correlation_id == "mine"
        assert request.reply_to is None
        request.correlation_id = "other"
        assert (await connection.request("service", request, timeout=30)).correlation_id == "other"


async def test_no_reply_in_time_is_an_error_and_a_late_one_disturbs_nobody(serving: Any) -> None:
    async with (
        serving() as server,
        answering(server.url, "service", lambda request: echo(request) if request.body == b"first" else None),
        connect(server.url) as connection,
    ):
        await connection.request("service", Message(b"first"), timeout=30)
        with pytest.raises(DeadlineError, match=r"no reply from 'service' within 0.05 s"):
            await connection.request("service", Message(b"x"), timeout=0.05)
        late = server.messages["temporary-1"]
        await (await connection.sender("temporary-1")).send(Message(b"late", correlation_id="nobody's"))
        assert not late


async def test_a_reply_that_is_no_message_disturbs_nobody(serving: Any) -> None:
    async with serving() as server, answering(server.url, "service", echo), connect(server.url) as connection:
        await connection.request("service", Message(b"x"), timeout=30)
        await (await connection.sender("temporary-1")).send_payload(b"rubbish")
        assert (await connection.request("service", Message(b"y"), timeout=30)).body == b"y"


@pytest.mark.parametrize(("address", "error"), [("bad", RemoteError), ("empty", UnavailableError)])
async def test_a_request_that_nobody_takes_fails(serving: Any, address: str, error: type[Exception]) -> None:
    async with serving() as server, connect(server.url) as connection:
        with pytest.raises(error, match="no good" if address == "bad" else "nobody at 'empty'"):
            await connection.request(address, Message(b"x"), timeout=30)


class ReleasedOnce(dict[str, Any]):
    """Outcomes of a peer that releases the first message to each address that is named."""

    def get(self, address: str, default: Any = None) -> Any:
        return self.pop(address, default)


async def test_a_request_that_is_released_is_sent_again(serving: Any) -> None:
    async with serving() as server, answering(server.url, "service", echo), connect(server.url) as connection:
        server.outcomes = ReleasedOnce(service=RELEASED)
        assert (await connection.request("service", Message(b"x"), timeout=30)).body == b"x"
        assert server.arrived["service"] == 2


@pytest.mark.parametrize("is_granted", [True, False])
async def test_a_request_whose_credit_was_called_in_waits_a_while_for_more(
    serving: Any, until: Any, monkeypatch: pytest.MonkeyPatch, is_granted: bool
) -> None:
    monkeypatch.setattr("enmasse.client.internal_links.RELEASED_S", 5.0 if is_granted else 0.05)
    async with serving() as server, answering(server.url, "service", echo), connect(server.url) as connection:
        server.outcomes = ReleasedOnce(service=RELEASED)
        server.without_credit.add("service")
        server.credit = 0
        waiting = asyncio.ensure_future(connection.request("service", Message(b"x"), timeout=30))
        await until(lambda: any(isinstance(link, ReceivingLink) for link in server.links[2:]))
        link = server.links[-1]
        link.grant(1)
        await until(lambda: server.arrived["service"] == 1)
        if is_granted:
            link.grant(1)
            assert (await waiting).body == b"x"
        else:
            with pytest.raises(UnavailableError, match="nobody at 'service'"):
                await waiting


async def test_a_request_to_an_unknown_address_is_refused_each_time(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        for _ in range(2):
            with pytest.raises(LinkRefusedError):
                await connection.request("nowhere", Message(b"x"), timeout=30)


async def test_requests_fail_with_the_connection_and_go_on_with_the_next(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        waiting = asyncio.ensure_future(connection.request("service", Message(b"lost")))
        await until(lambda: server.arrived["service"] == 1)
        await server.drop()
        with pytest.raises(UnavailableError, match="lost"):
            await waiting
        server.messages["service"].clear()
        async with answering(server.url, "service", echo):
            assert (await connection.request("service", Message(b"next"), timeout=30)).body == b"next"


async def test_closing_the_connection_ends_requests(serving: Any, until: Any) -> None:
    async with serving() as server:
        connection = await connect(server.url)
        waiting = asyncio.ensure_future(connection.request("service", Message(b"x")))
        await until(lambda: server.arrived["service"] == 1)
        await connection.close()
        with pytest.raises((UnavailableError, ClosedError)):
            await waiting


async def test_links_of_many_services_are_not_kept_for_ever(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.client.internal_links.MAX_ROUTES", 1)
    async with (
        serving() as server,
        answering(server.url, "one", echo),
        answering(server.url, "two", echo),
        connect(server.url) as connection,
    ):
        for address in ("one", "two", "one"):
            assert (await connection.request(address, Message(b"x"), timeout=30)).body == b"x"
        assert [link.is_attached for link in connection._links] == [True, True]


class Node:
    """Entities behind ``$management``, as the draft has them."""

    def __init__(self) -> None:
        self.entities: dict[str, dict[str, Any]] = {}

    def answer(self, request: Message) -> Message:
        asked = request.properties
        name = str(asked.get("name", asked.get("identity")))
        operation = asked["operation"]
        if operation == "QUERY":
            names = request.body["attributeNames"] or ["name", "size"]
            rows = [[entity.get(n) for n in names] for entity in self.entities.values()]
            return _reply(200, {"attributeNames": names, "results": rows})
        if operation == "CREATE":
            if name in self.entities:
                return _reply(409, None, f"{name!r} exists")
            self.entities[name] = {"name": name, "type": asked["type"], **request.body}
            return _reply(201, self.entities[name])
        if name not in self.entities:
            return _reply(404, None, f"there is no {name!r}")
        if operation == "DELETE":
            del self.entities[name]
            return _reply(204, {})
        if operation == "UPDATE":
            self.entities[name] |= request.body
        return _reply(200, self.entities[name])


def _reply(status: int, body: Any, description: str = "") -> Message:
    return Message(body, properties={"statusCode": status, "statusDescription": description})


async def test_entities_are_created_read_updated_queried_and_deleted(serving: Any) -> None:
    async with (
        serving() as server,
        answering(server.url, "$management", Node().answer),
        connect(server.url) as connection,
    ):
        manager = Management(connection)
        created = await manager.create("thing", "a", {"size": 1})
        assert created == {"name": "a", "type": "thing", "size": 1}
        assert await manager.read("thing", "a") == created
        assert await manager.read("thing", identity="a") == created
        assert (await manager.update("thing", "a", {"size": 2}))["size"] == 2
        await manager.create("thing", "b")
        assert await manager.query("thing", ["size", "name"]) == [
            {"size": 2, "name": "a"},
            {"size": None, "name": "b"},
        ]
        assert await manager.query("thing") == [{"name": "a", "size": 2}, {"name": "b", "size": None}]
        await manager.delete("thing", "a")
        assert await manager.query("thing", ["name"]) == [{"name": "b"}]


@pytest.mark.parametrize(("status", "condition"), [(404, "amqp:not-found"), (409, "amqp:precondition-failed")])
async def test_a_refusal_tells_status_and_reason(serving: Any, status: int, condition: str) -> None:
    async with (
        serving() as server,
        answering(server.url, "$management", Node().answer),
        connect(server.url) as connection,
    ):
        manager = Management(connection, timeout=30)
        await manager.create("thing", "a")
        with pytest.raises(ManagementError, match=f"status {status}") as caught:
            await (manager.read("thing", "x") if status == 404 else manager.create("thing", "a"))
        assert (caught.value.status, caught.value.condition) == (status, condition)
        assert caught.value.description


@pytest.mark.parametrize("reply", [Message({}), _reply(200, "text")])
async def test_an_answer_that_is_none_is_an_error(serving: Any, reply: Message) -> None:
    async with (
        serving() as server,
        answering(server.url, "$management", lambda _: reply.copy()),
        connect(server.url) as connection,
    ):
        with pytest.raises(ManagementError, match="has no"):
            await Management(connection).query("thing")
