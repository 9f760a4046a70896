"""Transactions behind a connector whose other container ends them as a test scripts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from enmasse.client import Connection, Message, TransactionError, UnavailableError
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.message.sections import Sections
from enmasse.net.loop import run
from enmasse.node.uplinks import transactions
from enmasse.wire.amqp.link import Link, ReceivingLink
from enmasse.wire.amqp.performatives import (
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
    from_described,
)
from tests.support.polling import until_async
from tests.support.scripted_remote import ScriptedRemote
from tests.unit.node.test_node_uplinks_hostile import Place, placed


class Coordinating(ScriptedRemote):
    """A container with transactions, which keeps account of what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.declares: list[tuple[ReceivingLink, int]] = []

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        asked = _asked(payload)
        if isinstance(asked, Declare):
            self.declares.append((link, delivery_id))
            self.on_declare(link, delivery_id)
        elif isinstance(asked, Discharge):
            self.told.append("rollback" if asked.fail else "commit")
            self.on_discharge(link, delivery_id)
        else:
            super().on_message(link, payload, delivery_id, settled)

    def on_declare(self, link: ReceivingLink, delivery_id: int) -> None:
        link.settle(delivery_id, Declared(b"t"))

    def on_discharge(self, link: ReceivingLink, delivery_id: int) -> None:
        link.settle(delivery_id, ACCEPTED)

    def on_transactional_message(
        self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool, _format: int, txn_id: bytes
    ) -> None:
        self.told.append(Sections(payload).body)
        if not settled:
            link.settle(delivery_id, TransactionalState(txn_id, ACCEPTED))


def _asked(payload: bytes) -> Any:
    try:
        return from_described(Sections(payload).body)
    except DecodeError:
        return None


Scene = Callable[[Place, Connection], Coroutine[Any, Any, None]]


def play(remote: type[Coordinating], scene: Scene) -> None:
    async def played() -> None:
        async with placed(remote()) as place, place.client() as client:
            await scene(place, client)

    run(played())


class Cutting(Coordinating):
    """Hangs up as it is asked for a commit."""

    def on_discharge(self, link: ReceivingLink, delivery_id: int) -> None:
        link.session.connection.lost()
        for shell in self.shells:
            shell.abort()


def test_nobody_is_told_an_outcome_that_nobody_knows() -> None:
    async def scene(place: Place, client: Connection) -> None:
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        await sender.send(Message("x"), transaction=transaction)
        with pytest.raises(UnavailableError):
            await transaction.commit()
        assert place.remote.told == ["x", "commit"]  # type: ignore[attr-defined]

    play(Cutting, scene)


class Babbling(Coordinating):
    """Answers a commit by what is no answer."""

    def on_discharge(self, link: ReceivingLink, delivery_id: int) -> None:
        link.settle(delivery_id, RELEASED if self.told[0] == "released" else None)


@pytest.mark.parametrize("answer", ["released", "settled"])
def test_an_answer_that_says_nothing_is_none(answer: str) -> None:
    async def scene(place: Place, client: Connection) -> None:
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        await sender.send(Message(answer), transaction=transaction)
        with pytest.raises(UnavailableError):
            await transaction.commit()
        await until_async(lambda: place.remote.open_links == 1)
        assert str(await sender.send(Message("y"))) == "accepted"

    play(Babbling, scene)


class Deaf(Coordinating):
    """Declares nothing, and says so by what is no answer to that."""

    def on_declare(self, link: ReceivingLink, delivery_id: int) -> None:
        link.settle(delivery_id, ACCEPTED)


def test_a_declare_without_an_id_declares_nothing() -> None:
    async def scene(_place: Place, client: Connection) -> None:
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        assert str(await sender.send(Message("x"), transaction=transaction)).startswith("rejected")
        with pytest.raises(TransactionError):
            await transaction.commit()

    play(Deaf, scene)


class Refusing(Coordinating):
    """Rolls back what it is asked to commit."""

    def on_discharge(self, link: ReceivingLink, delivery_id: int) -> None:
        link.settle(delivery_id, Rejected(AmqpError("amqp:transaction:timeout", "too late")))


def test_the_reason_why_all_was_rolled_back_there_is_told() -> None:
    async def scene(_place: Place, client: Connection) -> None:
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        await sender.send(Message("x"), transaction=transaction)
        with pytest.raises(TransactionError, match="connector 'mill': too late") as refused:
            await transaction.commit()
        assert refused.value.condition == "amqp:transaction:timeout"

    play(Refusing, scene)


class Simple(Coordinating):
    """Knows no transactions."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        if isinstance(attach.target, Coordinator):
            link.refuse("amqp:not-implemented", "no transactions here")
        else:
            super().on_attach(link, attach)


def test_a_container_without_transactions_is_named_with_its_reason() -> None:
    async def scene(place: Place, client: Connection) -> None:
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        outcome = str(await sender.send(Message("x"), transaction=transaction))
        assert outcome.startswith("rejected (amqp:not-implemented")
        assert "no transactions here" in outcome
        with pytest.raises(TransactionError, match="no transactions here"):
            await transaction.commit()
        assert str(await sender.send(Message("y"))) == "accepted"
        assert len(place.remote.arrived) == 1

    play(Simple, scene)


class Slow(Coordinating):
    """Declares nothing until it is told to."""

    def on_declare(self, link: ReceivingLink, delivery_id: int) -> None: ...


def test_what_waits_for_its_transaction_outlives_its_link() -> None:
    async def scene(place: Place, client: Connection) -> None:
        remote = place.remote
        assert isinstance(remote, Slow)
        transaction = await client.transaction()
        async with client.sender("mill/orders") as sender:
            await sender.send(Message("x"), settled=True, transaction=transaction)
            await until_async(lambda: remote.declares)
        committing = asyncio.ensure_future(transaction.commit())
        (link, delivery_id) = remote.declares[0]
        link.settle(delivery_id, Declared(b"t"))
        await committing
        assert remote.told == ["x", "commit"]

    play(Slow, scene)


def test_what_waits_for_its_transaction_is_not_sent_once_that_is_rolled_back() -> None:
    async def scene(place: Place, client: Connection) -> None:
        remote = place.remote
        assert isinstance(remote, Slow)
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        sending = sender.send_nowait(Message("x"), transaction=transaction)
        await until_async(lambda: remote.declares)
        await transaction.rollback()
        assert str(await sending) == "released"
        (link, delivery_id) = remote.declares[0]
        link.settle(delivery_id, Declared(b"t"))
        await until_async(lambda: remote.told)
        assert remote.told == ["rollback"]

    play(Slow, scene)


def test_a_commit_does_not_wait_for_ever_for_a_transaction_that_is_not_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_S", 0.01)

    async def scene(place: Place, client: Connection) -> None:
        remote = place.remote
        assert isinstance(remote, Slow)
        sender = await client.sender("mill/orders")
        transaction = await client.transaction()
        await sender.send(Message("x"), settled=True, transaction=transaction)
        with pytest.raises(TransactionError, match="has not declared it"):
            await transaction.commit()
        (link, delivery_id) = remote.declares[0]
        link.settle(delivery_id, Declared(b"t"))
        await until_async(lambda: remote.told)
        assert remote.told == ["rollback"]

    play(Slow, scene)


def test_the_link_for_transactions_goes_with_its_client() -> None:
    async def scene(place: Place, client: Connection) -> None:
        remote = place.remote
        sender = await client.sender("mill/orders")
        async with client.transaction() as transaction:
            await sender.send(Message("x"), transaction=transaction)
        assert remote.open_links == 2
        await client.close()
        await until_async(lambda: remote.open_links == 0)

    play(Coordinating, scene)


def test_what_names_its_address_in_each_message_goes_on_its_clients_session() -> None:
    async def scene(place: Place, client: Connection) -> None:
        remote = place.remote
        assert isinstance(remote, Coordinating)
        sender = await client.sender(None)
        async with client.transaction() as transaction:
            for name in ("mill/one", "mill/two"):
                await sender.send(Message(name, to=name), transaction=transaction)
        assert remote.told == ["mill/one", "mill/two", "commit"]
        assert (remote.open_sessions, remote.open_links) == (1, 3)

    play(Coordinating, scene)
