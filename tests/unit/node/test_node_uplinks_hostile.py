"""A connector's other container that lies: what clients are told of it, and that others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from enmasse.client import Connection, LinkDetachedError, LinkRefusedError, Message, connect
from enmasse.client.errors import TooLargeError
from enmasse.client.options import Options, Url
from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Symbol, UInt
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import DETACHED
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.relay import receivers, senders
from enmasse.messaging.relay.relay import Relay
from enmasse.messaging.relay.senders import RelayProducer
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.net.egress import CONNECTORS, Reach
from enmasse.net.loop import run
from enmasse.node.uplinks import uplink
from enmasse.node.uplinks.remote import Remote
from enmasse.node.uplinks.uplink import Together, Uplinks
from enmasse.wire.amqp.connection import Connection as Engine
from enmasse.wire.amqp.errors import SessionError
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import (
    Attach,
    Declared,
    Disposition,
    Flow,
    Open,
    Target,
    TransactionalState,
    Transfer,
)
from enmasse.wire.amqp.session import Session
from tests.support.polling import until_async
from tests.support.scripted_remote import ScriptedRemote, Sink, listening
from tests.unit.client.authorities import Authority
from tests.unit.client.conftest import MemoryNode, noding, serving

GOOD = "good"
"""An address at which every remote behaves."""

BODY = Message("x").encode()
FLOOD = Message(b"x" * 10_000).encode()


class Place:
    """A node whose connector ``mill`` leads to a remote; a client of its own has links to where it behaves."""

    most_unsettled = 100

    def __init__(self, node: MemoryNode, remote: ScriptedRemote) -> None:
        self.node = node
        self.remote = remote
        self.space = node.entities.spaces["ns/shop"]
        self.together = Together(self.space.usage)
        self.uplinks = self.connector("mill", remote.port)

    def connector(self, name: str, port: int, made: Callable[[], Options] | None = None) -> Uplinks:
        place = Url(scheme="amqp", host="127.0.0.1", port=port)
        options = Options(places=(place,), container_id="node")
        servers = [made or (lambda: options)]
        mark = f"here/shop/{name}"
        uplinks = Uplinks(f"shop/{name}", servers, self.node.turn, lambda: None, mark, self.together)
        self.space.connectors[name] = Relay(self.node.core, name, uplinks, lambda _name: True, self.space.usage)
        self.space.version += 1
        return uplinks

    def client(self) -> Any:
        return connect(self.node.url)


@asynccontextmanager
async def placed(remote: ScriptedRemote) -> AsyncIterator[Place]:
    async with listening(remote), noding(local="anycast") as node:
        place = Place(node, remote)
        try:
            yield place
        finally:
            await place.uplinks.close()


Scene = Callable[[Place, Connection], Coroutine[Any, Any, None]]
CASES: dict[str, tuple[type[ScriptedRemote], Scene]] = {}


def case(remote: type[ScriptedRemote]) -> Callable[[Scene], Scene]:
    """Add a scene, with the remote that it is played against, to the table."""

    def add(scene: Scene) -> Scene:
        CASES[scene.__name__.replace("_", " ")] = remote, scene
        return scene

    return add


# Senders


def put_flow(link: Link, credit: int) -> None:
    """Say a credit that the engine would not."""
    count = link.received if isinstance(link, ReceivingLink) else 0
    flow = Flow(
        next_incoming_id=None,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=0,
        handle=link.handle,
        delivery_count=count,
        link_credit=credit,
    )
    link.session.connection.put(amqp_frame(link.channel, flow))


class Generous(ScriptedRemote):
    """Grants all that can be said; settles nothing that is sent to ``mute``."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        super().on_attach(link, attach)
        if isinstance(link, ReceivingLink):
            link.grant(0x7FFFFFFF)
            put_flow(link, 0xFFFFFFFF)

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        self.arrived.append(payload)
        if not settled and self.name_of(link) != "mute":
            link.settle(delivery_id, ACCEPTED)


@case(Generous)
async def credit_without_end_is_granted(place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders", max_pending=2_000)
    assert 0 < sender.credit <= place.most_unsettled
    for settled in (True, False):
        for _ in range(3 * place.most_unsettled):
            await sender.send_payload(BODY, settled=settled)
    await until_async(lambda: len(place.remote.arrived) > 6 * place.most_unsettled)


@case(Generous)
async def nothing_is_ever_settled(place: Place, client: Connection) -> None:
    sender = await client.sender("mill/mute")
    sending = [sender.send_payload_nowait(BODY) for _ in range(place.most_unsettled + 50)]
    await until_async(lambda: len(place.remote.arrived) == place.most_unsettled + 1)
    assert sender.credit == 0
    assert not any(one.done() for one in sending)
    for one in sending:
        one.cancel()


class Twice(ScriptedRemote):
    """Settles twice, with another state, and what was never sent."""

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        super().on_message(link, payload, delivery_id, settled)
        if self.name_of(link) != GOOD:
            for state in (ACCEPTED, RELEASED, Rejected(AmqpError("x:y", "z"))):
                link.session.settle(delivery_id, state)
                link.session.settle(delivery_id + 1_000, state)


@case(Twice)
async def outcomes_are_told_twice(_place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders")
    assert [str(await sender.send_payload(BODY)) for _ in range(3)] == 3 * ["accepted"]


class Second(ScriptedRemote):
    """Tells outcomes and has the sender settle first."""

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        if self.name_of(link) == GOOD:
            super().on_message(link, payload, delivery_id, settled)
        else:
            link.session.settle_second(delivery_id, ACCEPTED)


@case(Second)
async def the_sender_has_to_settle_first(_place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders")
    assert str(await sender.send_payload(BODY)) == "accepted"


class Transactional(ScriptedRemote):
    """Has outcomes that belong to a transaction that there is not, or say that there is one."""

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        name = self.name_of(link)
        if name == GOOD:
            super().on_message(link, payload, delivery_id, settled)
            return
        state = TransactionalState(b"t", ACCEPTED) if name == "state" else Declared(b"t")
        disposition = Disposition(role=True, first=delivery_id, last=delivery_id, settled=True, state=state)
        link.session.connection.put(amqp_frame(link.channel, disposition))


@case(Transactional)
async def outcomes_are_those_of_a_transaction(_place: Place, client: Connection) -> None:
    for name in ("state", "declared"):
        sender = await client.sender(f"mill/{name}")
        assert str(await sender.send_payload(BODY)).startswith("modified")


class Redirecting(ScriptedRemote):
    """Sends links on to where nobody should go, with more words than a frame takes."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        if self.name_of(link) == GOOD:
            super().on_attach(link, attach)
            return
        self.attaches.append(attach)
        info = {"network-host": "127.0.0.1", "port": self.port, "address": self.name_of(link)}
        link.refuse("amqp:link:redirect", "go on " * 20_000, info)


@case(Redirecting)
async def links_are_sent_on_in_circles(place: Place, client: Connection) -> None:
    for attach in (client.sender, client.receiver):
        with pytest.raises(LinkRefusedError, match="go on") as refused:
            await attach("mill/orders")
        assert refused.value.condition == "amqp:not-allowed"
        assert len(str(refused.value)) < 1_000
    assert len(place.remote.attaches) == 3


@case(Redirecting)
async def links_are_refused_over_and_over(place: Place, _client: Connection) -> None:
    for _ in range(5):
        async with place.client() as client:
            with pytest.raises(LinkRefusedError):
                await client.sender("mill/orders")
    await until_async(lambda: place.remote.open_sessions <= 1, lambda: "sessions are left")


class Full(ScriptedRemote):
    """Grants nothing but at the well-behaved address."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        self.credit = 100 if self.name_of(link) == GOOD else 0
        super().on_attach(link, attach)


@case(Full)
async def no_credit_is_granted(_place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders")
    assert sender.credit == 0
    anonymous = await client.sender(None)
    # Messages that name the address wait for its credit, in so much memory; the rest is given back.
    sending = [anonymous.send_payload_nowait(Message(b"x" * 4096, to="mill/orders").encode()) for _ in range(30)]
    await until_async(lambda: any(one.done() for one in sending))
    assert {str(one.result()) for one in sending if one.done()} == {"released"}


class Many(ScriptedRemote):
    """Allows one link in a session."""

    def on_connected(self, engine: Engine) -> None:
        engine.handle_max = 0


@case(Many)
async def a_session_takes_one_link(_place: Place, client: Connection) -> None:
    senders = await asyncio.gather(*(client.sender(f"mill/q{number}").__aenter__() for number in range(5)))
    for sender in senders:
        assert str(await sender.send_payload(BODY)) == "accepted"


class Small(ScriptedRemote):
    """Takes frames of 512 bytes."""

    def on_connected(self, engine: Engine) -> None:
        engine.max_frame_size = 512


@case(Small)
async def frames_are_small(place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders")
    payload = Message(b"x" * 100_000).encode()
    assert str(await sender.send_payload(payload)) == "accepted"
    assert place.remote.arrived[-1] == payload
    # An attach that does not fit would cost everybody the connection.
    with pytest.raises(LinkRefusedError) as refused:
        await client.sender("mill/orders", properties={"long": "x" * 1_000})
    assert refused.value.condition == "amqp:frame-size-too-small"


class Leaving(ScriptedRemote):
    """Detaches a sender after the first frame of its message, or its first message."""

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        if self.name_of(link) == GOOD:
            super().on_message(link, payload, delivery_id, settled)
        else:
            link.detach(AmqpError("x:enough", "no more"))


@case(Leaving)
async def the_link_is_detached_under_way(_place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders", resend=False)
    sending = [sender.send_payload_nowait(BODY) for _ in range(3)]
    found = await asyncio.gather(*sending, return_exceptions=True)
    assert all(isinstance(one, LinkDetachedError) or str(one).startswith("modified") for one in found), found


@case(Leaving)
async def a_link_is_detached_in_the_middle_of_a_large_message(place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders", resend=False)
    # It has not said that it takes only small ones.
    place.remote.links[-1].limit_messages(1_000)  # type: ignore[attr-defined]
    assert str(await sender.send_payload(Message(b"x" * (4 << 20)).encode())).startswith("modified")
    with pytest.raises(LinkDetachedError) as ended:
        await sender.send_payload(BODY)
    assert ended.value.condition == "amqp:link:message-size-exceeded"
    assert place.space.connectors["mill"].counts()["senders"] == 1


class Contrary(ScriptedRemote):
    """Answers with settle modes and a size that nobody has asked for."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        if self.name_of(link) == GOOD:
            super().on_attach(link, attach)
            return
        self.attaches.append(attach)
        link.sink = Sink(self, link)
        answer = replace(attach, role=not attach.role, handle=link.handle, max_message_size=100)
        answer.snd_settle_mode, answer.rcv_settle_mode = 1 - attach.snd_settle_mode % 2, 1 - attach.rcv_settle_mode
        link._send_attach(answer)
        link.tell_credit()
        if isinstance(link, ReceivingLink):
            link.grant(100)

    def on_credit(self, link: SendingLink, gained: int, drain: bool) -> None:
        for settled in (False, True)[: link.credit]:
            link.sink.send(BODY, settled=settled)


@case(Contrary)
async def other_settle_modes_are_answered_than_were_asked_for(place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders")
    assert str(await sender.send_payload(BODY)) == "accepted"
    with pytest.raises(TooLargeError, match="which takes 100"):
        await sender.send_payload(FLOOD)
    receiver = await client.receiver("mill/orders", credit=0)
    receiver.grant(2)
    found = [await receiver.receive(60) for _ in range(2)]
    assert [got is not None and got.settled for got in found] == [False, True]
    for got in found:
        assert got is not None
        got.accept()
    await until_async(lambda: place.remote.outcomes == [ACCEPTED])


class Wordy(ScriptedRemote):
    """Answers with more than a frame of a client takes."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        if self.name_of(link) in {GOOD, "wide"}:
            super().on_attach(link, attach)
            return
        self.attaches.append(attach)
        link.accept(
            Sink(self, link), source=attach.source, target=attach.target, properties={Symbol("x"): "y" * 100_000}
        )
        if isinstance(link, ReceivingLink):
            link.grant(100)

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        if self.name_of(link) == GOOD:
            super().on_message(link, payload, delivery_id, settled)
            return
        self.arrived.append(payload)
        words = "z" * 100_000
        if len(self.arrived) % 3 == 2:
            link.settle(delivery_id, Rejected(AmqpError("x:y", words, {Symbol("x"): words})))
        elif len(self.arrived) % 3 == 0:
            link.settle(delivery_id, Modified(delivery_failed=True, message_annotations={Symbol("x-opt-x"): words}))
        else:
            link.detach(AmqpError("x:z", words))


@case(Wordy)
async def an_answer_is_larger_than_a_clients_frames(place: Place, _client: Connection) -> None:
    port = int(place.node.url.rpartition(":")[2])
    options = Options(
        places=(Url(scheme="amqp", host="127.0.0.1", port=port),), container_id="small", max_frame_size=8_192
    )
    async with Connection(options, reconnect=False, timeout_s=60.0) as client:
        await client.open(60.0)
        other = await client.receiver("local")
        for attach in (client.sender, client.receiver):
            with pytest.raises(LinkRefusedError, match="take frames of as many") as refused:
                await attach("mill/orders")
            assert refused.value.condition == "amqp:frame-size-too-small"
        # So do the words of an outcome, of which those are left out that do not fit.
        place.remote.credit = 100
        wide = await client.sender("mill/wide", resend=False)
        outcome = str(await wide.send_payload(BODY))
        assert outcome.startswith("rejected (x:y")
        assert 1_000 < len(outcome) < 8_192
        for _ in range(2):  # of which the second has no outcome, as its link is detached
            assert str(await wide.send_payload(BODY)).startswith("modified")
        with pytest.raises(LinkDetachedError) as ended:
            await wide.send_payload(BODY)
        assert ended.value.condition == "x:z"
        local = await client.sender("local")
        one = local.send_payload_nowait(BODY)
        got = await other.receive(60)
        assert got is not None
        got.accept()
        assert str(await one) == "accepted"


class Wrapping(ScriptedRemote):
    """Counts from just below where numbers wrap."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        if isinstance(link, ReceivingLink) or self.name_of(link) == GOOD:
            super().on_attach(link, attach)
            return
        self.attaches.append(attach)
        self.links.append(link)
        assert isinstance(link, SendingLink)
        link.sink = Sink(self, link)
        link.delivery_count = start = 0xFFFFFFFE
        link.session.number_from(start)
        link._send_attach(replace(attach, role=False, handle=link.handle, initial_delivery_count=start))
        link.tell_credit()

    def on_credit(self, link: SendingLink, gained: int, drain: bool) -> None:
        for _ in range(min(link.credit, 1)):
            link.sink.send(BODY)


@case(Wrapping)
async def counts_wrap_both_ways(place: Place, client: Connection) -> None:
    sender = await client.sender("mill/orders")
    (line,) = place.uplinks._lines
    for session in line._sessions_of.values():
        session.number_from(0xFFFFFFFE)
    for _ in range(5):
        assert str(await sender.send_payload(BODY)) == "accepted"
    receiver = await client.receiver("mill/orders", credit=0)
    for _ in range(5):
        receiver.grant(1)
        got = await receiver.receive(60)
        assert got is not None
        got.accept()
    receiver.grant(1)
    assert await receiver.receive(60) is not None


class Ending(ScriptedRemote):
    """Ends each session but that of the well-behaved address, at once or with its first link."""

    is_eager = False

    def on_begun(self, session: Session) -> None:
        if self.is_eager and len(session.connection.sessions) > 1:
            session.end(AmqpError("x:over", "no session"))

    def on_attach(self, link: Link, attach: Attach) -> None:
        if self.name_of(link) == GOOD:
            super().on_attach(link, attach)
        else:
            link.session.end(AmqpError("x:over", "no more"))


class Eager(Ending):
    is_eager = True


async def _sessions_end(_place: Place, client: Connection) -> None:
    for attach in (client.sender, client.receiver, client.sender):
        with pytest.raises(LinkRefusedError) as refused:
            await attach("mill/orders")
        assert refused.value.condition == "x:over"


@case(Ending)
async def sessions_are_ended(place: Place, client: Connection) -> None:
    await _sessions_end(place, client)


@case(Eager)
async def every_session_is_refused(place: Place, client: Connection) -> None:
    await _sessions_end(place, client)


# Receivers


class Pushing(ScriptedRemote):
    """Sends as soon as there is credit, in the way that the address names."""

    def on_connected(self, engine: Engine) -> None:
        self.pushed = 0

    def on_credit(self, link: SendingLink, gained: int, drain: bool) -> None:
        if gained <= 0:
            return
        name, session = self.name_of(link), link.session
        if name in {"settled", "unsettled"}:
            while link.credit > 0:
                link.sink.send(BODY, settled=name == "settled")
        elif name == "beyond":
            for _ in range(link.credit + 3):
                link.sink.send(BODY)
        elif name == "wrapping":
            session.number_from(0xFFFFFFFE)
            while link.credit > 0:
                link.sink.send(BODY)
        elif name == "half":
            head = Transfer(handle=link.handle, delivery_id=0, delivery_tag=b"t", more=True)
            session.connection.put(amqp_frame(link.channel, head, len(BODY)))
            session.connection.put(BODY)
            link.detach(AmqpError("x:enough", "no more"))
        elif name == "flood" and not self.pushed:
            # Nothing of what the other end says later stops it.
            self.pushed = 3_000
            for _ in range(self.pushed):
                link.sink.send(FLOOD)


async def receive(client: Connection, name: str, count: int, **given: Any) -> list[Any]:
    receiver = await client.receiver(f"mill/{name}", credit=0, **given)
    receiver.grant(count)
    found = []
    for _ in range(count):
        got = await receiver.receive(60)
        assert got is not None
        got.accept()
        found.append(got)
    return found


@case(Pushing)
async def messages_are_settled_though_asked_not_to_be(_place: Place, client: Connection) -> None:
    assert all(one.settled for one in await receive(client, "settled", 5))


@case(Pushing)
async def messages_are_not_settled_though_asked_to_be(place: Place, client: Connection) -> None:
    assert all(one.settled for one in await receive(client, "unsettled", 5, settled=True))
    await until_async(lambda: place.remote.outcomes == 5 * [ACCEPTED])


@case(Pushing)
async def sequences_wrap(place: Place, client: Connection) -> None:
    await receive(client, "wrapping", 5)
    await until_async(lambda: place.remote.outcomes == 5 * [ACCEPTED], lambda: str(place.remote.outcomes))


@case(Pushing)
async def more_is_sent_than_was_granted(_place: Place, client: Connection) -> None:
    receiver = await client.receiver("mill/beyond", credit=0)
    receiver.grant(2)
    with pytest.raises(LinkDetachedError) as ended:
        await asyncio.gather(*(receiver.receive(60) for _ in range(9)))
    assert ended.value.condition == "amqp:link:transfer-limit-exceeded"


@case(Pushing)
async def the_link_is_detached_in_mid_message(_place: Place, client: Connection) -> None:
    receiver = await client.receiver("mill/half")
    with pytest.raises(LinkDetachedError) as ended:
        await receiver.receive(60)
    assert ended.value.condition == "x:enough"


@pytest.mark.parametrize("name", CASES)
def test_a_remote_that_lies_harms_only_those_who_use_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(uplink, "MAX_PAUSE_S", 0.05)
    for module in (senders, receivers):
        monkeypatch.setattr(module, "KEPT_BYTES", 64 << 10)
    made, scene = CASES[name]

    async def play() -> None:
        async with asyncio.timeout(60), placed(made()) as place, place.client() as neighbour:
            place.space.limit(SpaceLimits(connector_unsettled=place.most_unsettled))
            other = await neighbour.sender(f"mill/{GOOD}")
            assert str(await other.send(Message("before"))) == "accepted"
            async with place.client() as client:
                await scene(place, client)
            assert str(await other.send(Message("after"))) == "accepted"
            remote = place.remote
            attached = [link for link in remote.links if remote.name_of(link) == GOOD]
            assert len(attached) == 1, "the neighbour's link was lost"
            await until_async(lambda: remote.open_links <= 1, lambda: "links are left there")
            await until_async(lambda: remote.open_sessions <= 1, lambda: "sessions are left there")

    run(play())


def until_gone(place: Place) -> Any:
    """Wait until nothing of what clients wanted is there any more."""
    remote = place.remote
    return until_async(lambda: not remote.open_links and remote.open_sessions <= 1, lambda: "something is left")


class Dropping(ScriptedRemote):
    """Cuts the connection on which it is asked for a certain address, or each before anything was asked."""

    is_eager = False

    def on_begun(self, session: Session) -> None:
        if self.is_eager:
            session.connection.close(AmqpError("x:over", "no connection"))

    def on_attach(self, link: Link, attach: Attach) -> None:
        if self.name_of(link) == "poison":
            link.session.connection.close(AmqpError("x:over", "no more"))
        else:
            super().on_attach(link, attach)


def test_an_attach_that_costs_the_connection_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink, "FIRST_PAUSE_S", 0.02)

    async def scene() -> None:
        async with placed(Dropping()) as place, place.client() as neighbour, place.client() as client:
            sender = await neighbour.sender(f"mill/{GOOD}")
            for attach in (client.sender, client.receiver):
                with pytest.raises(LinkRefusedError):
                    await attach("mill/poison")
                assert str(await sender.send_payload(BODY)) == "accepted"
            assert len(place.remote.engines) == 3

    run(scene())


def test_a_server_that_closes_at_once_is_told_as_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink, "FIRST_PAUSE_S", 0.02)

    async def scene() -> None:
        remote = Dropping()
        remote.is_eager = True
        async with placed(remote) as place, place.client() as client:
            with pytest.raises(LinkRefusedError, match="no connection"):
                await client.sender("mill/orders")
            remote.is_eager = False
            sender = await client.sender("mill/orders")
            assert str(await sender.send_payload(BODY)) == "accepted"

    run(scene())


class Elsewhere(ScriptedRemote):
    """Sends clients on to itself, at once or as it is told to."""

    is_eager = True

    def on_opened(self, connection: Engine, remote: Open) -> None:
        super().on_opened(connection, remote)
        if self.is_eager:
            self.send_on(connection)

    def send_on(self, connection: Engine) -> None:
        there = {Symbol("network-host"): "127.0.0.1", Symbol("port"): UInt(self.port)}
        connection.close(AmqpError("amqp:connection:redirect", "go on " * 10_000, there))


def test_a_server_that_sends_clients_on_in_circles_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink, "FIRST_PAUSE_S", 0.02)

    async def scene() -> None:
        remote = Elsewhere()
        async with placed(remote) as place, place.client() as client:
            told = f"sends clients on to amqp://127.0.0.1:{remote.port}: name that in endpointHosts"
            for count in (1, 2):
                with pytest.raises(LinkRefusedError, match=told) as refused:
                    await client.sender("mill/orders")
                assert refused.value.condition == "amqp:connection:forced"
                assert len(remote.engines) == count
            assert told in place.uplinks.problem
            remote.is_eager = False
            sender = await client.sender("mill/orders")
            assert str(await sender.send_payload(BODY)) == "accepted"
            # One that works, too, leads nowhere else.
            remote.send_on(remote.engines[-1])
            await until_async(lambda: place.uplinks.reconnects == 1)
            assert str(await sender.send_payload(BODY)) == "accepted"
            assert (len(remote.engines), place.uplinks.problem) == (4, "")

    run(scene())


def test_a_server_whose_certificate_is_not_trusted_harms_nobody_else(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    reach = Reach(CONNECTORS, (ip_network("127.0.0.0/8"),), has_public=False)

    async def scene() -> None:
        async with (
            placed(ScriptedRemote()) as place,
            serving(tls=theirs.server("127.0.0.1")) as server,
            place.client() as client,
        ):
            secure = Remote("127.0.0.1", server.port, is_tls=True, authorities=ours.ca_file.read_text())
            barn = place.connector("barn", server.port, lambda: secure.options(reach, "node"))
            for attach in (client.sender, client.receiver):
                with pytest.raises(LinkRefusedError, match=r"is not known here.*tls.caCert"):
                    await attach("barn/orders")
            sender = await client.sender("mill/orders")
            assert str(await sender.send_payload(BODY)) == "accepted"
            assert (barn.connections, place.uplinks.connections, server.opens) == (0, 1, [])
            await barn.close()

    run(scene())


def test_a_server_that_stops_reading_holds_up_only_who_sends_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "KEPT_BYTES", 64 << 10)

    async def scene() -> None:
        class Vast(ScriptedRemote):
            credit = 1_000_000

        async with (
            placed(Vast()) as place,
            listening(ScriptedRemote()) as other,
            place.client() as client,
            place.client() as neighbour,
        ):
            remote, barn = place.remote, place.connector("barn", other.port)
            sender = await client.sender("mill/orders", max_pending=1_000_000, resend=False)
            assert str(await sender.send_payload(FLOOD)) == "accepted"
            (line,) = place.uplinks._lines
            assert line.engine is not None
            (end,) = place.space.connectors["mill"].producers
            assert isinstance(end, RelayProducer)
            sending: list[Any] = []
            for is_lost in (False, True):
                remote.shells[-1].transport.pause_reading()
                sending.clear()
                while not (end._is_blocked and sender.credit == 0):
                    sending += [sender.send_payload_nowait(FLOOD) for _ in range(min(sender.credit, 20))]
                    await asyncio.sleep(0)
                assert end._held_bytes <= 64 << 10
                assert line.engine.out_bytes <= 4 << 20
                local = await neighbour.receiver("local", credit=1)
                for name in ("barn/orders", "local"):
                    to = await neighbour.sender(name)
                    one = to.send_payload_nowait(BODY)
                    if name == "local":
                        got = await local.receive(60)
                        assert got is not None
                        got.accept()
                    assert str(await one) == "accepted"
                    await to.close()
                await local.close()
                if is_lost:
                    remote.shells[-1].abort()
                else:
                    remote.shells[-1].transport.resume_reading()
                outcomes = [str(each) for each in await asyncio.gather(*sending)]
                if not is_lost:
                    # What the relay had no room for goes nowhere.
                    assert set(outcomes) <= {"accepted", "released"}
                    assert len(remote.arrived) == 1 + outcomes.count("accepted")
            assert {outcome.split()[0] for outcome in outcomes} <= {"accepted", "modified", "released"}
            assert outcomes.count("accepted") < len(sending)
            await barn.close()

    run(scene())


def test_a_subscription_outlasts_a_new_connection_and_the_end_of_ours() -> None:
    async def scene() -> None:
        async with placed(ScriptedRemote()) as place, place.client() as client:
            remote = place.remote
            await client.receiver("mill/news", name="sub", durable=True)
            place.uplinks.renew(place.uplinks._servers)
            await until_async(lambda: len(remote.attaches) == 2)
            await until_async(lambda: len(remote.detached) == 1)
            await place.uplinks.close()
            await until_async(lambda: len(remote.detached) == 2)
            assert [closed for _, closed in remote.detached] == [False, False]

    run(scene())


def test_what_is_sent_to_a_client_that_does_not_read_is_given_back_beyond_a_bound() -> None:
    async def scene() -> None:
        async with placed(Pushing()) as place, place.client() as neighbour, place.client() as client:
            remote = place.remote
            assert isinstance(remote, Pushing)
            sender = await neighbour.sender(f"mill/{GOOD}")
            receiver = await client.receiver("mill/flood", credit=0, prefetch_bytes=1 << 30)
            client._carrier._shell.transport.pause_reading()
            receiver.grant(100_000)
            await until_async(lambda: RELEASED in remote.outcomes)
            assert str(await sender.send_payload(BODY)) == "accepted"
            client._carrier._shell.transport.resume_reading()
            taken = 0
            while len(remote.outcomes) < remote.pushed:
                got = await receiver.receive(0.01)
                if got is not None:
                    got.accept()
                    taken += 1
            assert 0 < taken == remote.outcomes.count(ACCEPTED)
            assert remote.outcomes.count(RELEASED) == remote.pushed - taken

    run(scene())


class Single(ScriptedRemote):
    """Allows one session in a connection."""

    def on_connected(self, engine: Engine) -> None:
        engine.channel_max = 0


def test_a_connection_that_takes_one_session_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink, "MAX_CONNECTIONS", 2)

    async def scene() -> None:
        async with placed(Single()) as place, place.client() as neighbour:
            remote = place.remote
            other = await neighbour.sender(f"mill/{GOOD}")
            for _ in range(4):
                async with place.client() as client:
                    sender = await client.sender("mill/orders")
                    assert str(await sender.send_payload(BODY)) == "accepted"
                    async with place.client() as third:
                        with pytest.raises(LinkRefusedError, match="has 2 connections, and none has room"):
                            await third.sender("mill/orders")
                await until_async(lambda: remote.open_links == 1)
            assert str(await other.send_payload(BODY)) == "accepted"
            assert len(remote.engines) == 2

    run(scene())


def test_what_waits_at_all_connectors_of_a_space_has_one_bound() -> None:
    async def scene() -> None:
        async with placed(Full()) as place, listening(Full()) as other, place.client() as client:
            barn = place.connector("barn", other.port)
            usage = place.space.usage
            place.space.limit(SpaceLimits(connector_bytes=64 << 10))
            sender = await client.sender(None)
            sending = [
                sender.send_payload_nowait(Message(b"x" * 4096, to=f"{name}/orders").encode())
                for _ in range(12)
                for name in ("mill", "barn")
            ]
            await until_async(lambda: sum(one.done() for one in sending) == 24 - 14)
            assert {str(one.result()) for one in sending if one.done()} == {"released"}
            assert 14 * 4096 < usage.connector_bytes <= 64 << 10
            await sender.close()
            await until_async(lambda: not usage.connector_bytes)
            await barn.close()

    run(scene())


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (SpaceLimits(connector_connections=1), "has 1 connections of connectors"),
        (SpaceLimits(connector_sessions=1), "has 1 sessions at its connectors"),
    ],
    ids=["connections", "sessions"],
)
def test_a_link_that_was_there_waits_for_what_the_space_may_not_have(
    monkeypatch: pytest.MonkeyPatch, limits: SpaceLimits, words: str
) -> None:
    monkeypatch.setattr(uplink, "FIRST_PAUSE_S", 0.02)

    async def scene() -> None:
        async with placed(ScriptedRemote()) as place, listening(ScriptedRemote()) as other, place.client() as client:
            barn = place.connector("barn", other.port)
            one, two = await client.sender("mill/orders"), await client.sender("barn/orders")
            assert str(await one.send_payload(BODY)) == str(await two.send_payload(BODY)) == "accepted"
            place.space.limit(limits)
            other.shells[-1].abort()
            await until_async(lambda: words in barn.problem)
            with pytest.raises(LinkRefusedError, match="close a client's connection that uses one") as refused:
                await client.receiver("barn/orders")
            assert refused.value.condition == "amqp:resource-limit-exceeded"
            async with place.client() as third:
                with pytest.raises(LinkRefusedError, match=words):
                    await third.sender("barn/orders")
            assert str(await one.send_payload(BODY)) == "accepted"
            place.space.limit(SpaceLimits())
            assert str(await two.send_payload(BODY)) == "accepted"
            assert barn.problem == ""
            await barn.close()

    run(scene())


class Forward(ScriptedRemote):
    """Begins sessions and attaches links of its own."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        super().on_attach(link, attach)
        session: Any = link.session
        for number in range(20):
            session.connection.begin()
            session.attach_sender(f"own {number}", Sink(self, link), Target(address="local"))


def test_sessions_and_links_of_a_remotes_own_lead_nowhere_and_take_nothing_from_others() -> None:
    async def scene() -> None:
        async with placed(Forward()) as place, listening(ScriptedRemote()) as other, place.client() as client:
            barn = place.connector("barn", other.port)
            place.space.limit(SpaceLimits(connector_sessions=3))
            sender = await client.sender("mill/orders")
            assert str(await sender.send_payload(BODY)) == "accepted"
            remote = place.remote
            await until_async(lambda: remote.open_links == 1 and remote.open_sessions == 1)
            assert place.uplinks.sessions == 1
            sender = await client.sender("barn/orders")
            assert str(await sender.send_payload(BODY)) == "accepted"
            await barn.close()

    run(scene())


class Late(ScriptedRemote):
    """Answers attaches when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Link] = []

    def on_attach(self, link: Link, attach: Attach) -> None:
        self.waiting.append(link)


def test_nothing_is_kept_of_a_client_that_goes_while_its_link_is_attached() -> None:
    async def scene() -> None:
        async with placed(Late()) as place:
            remote = place.remote
            assert isinstance(remote, Late)
            for _ in range(3):
                async with place.client() as client:
                    asking = [asyncio.ensure_future(_attached(attach)) for attach in (client.sender, client.receiver)]
                    await until_async(lambda: len(remote.waiting) == 2)
                    for one in asking:
                        one.cancel()
                    await asyncio.gather(*asking, return_exceptions=True)
                remote.waiting.clear()
                await until_gone(place)

    run(scene())


async def _attached(attach: Callable[[str], Any], name: str = "mill/orders") -> Any:
    return await attach(name)


class Unfiltered(ScriptedRemote):
    """Leaves filters out, as containers do that do not know them [AMQP 3.5.1]."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        assert attach.source is not None
        super().on_attach(link, replace(attach, source=replace(attach.source, filter=None)))


def test_a_filter_that_is_left_out_is_told_to_who_cannot_see_it() -> None:
    async def scene() -> None:
        async with placed(Unfiltered()) as place:
            connector = place.space.connectors["mill"]
            asked = AttachOptions(source="mill/orders", filters={SELECTOR_FILTER: "colour = 'red'"})
            refused = connector.attach_consumer(DETACHED, asked).opening
            granted = connector.attach_consumer(DETACHED, AttachOptions(source="mill/orders"))
            assert refused is not None
            assert granted.opening is not None
            answers: list[Any] = []
            refused.then(answers.append)
            await until_async(lambda: answers and granted.opening.answer)  # type: ignore[union-attr]
            (error,) = answers
            assert granted.opening.answer == (None,)
            assert error.condition == "amqp:not-implemented"
            assert f"does not know the filter {SELECTOR_FILTER!r}" in str(error)
            granted.on_detached()
            await until_gone(place)

    run(scene())


class Touchy(ScriptedRemote):
    """Sends, knows three outcomes, and ends the session of who attaches to ``poison``."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        if self.name_of(link) == "poison":
            self.attaches.append(attach)
            raise SessionError("x:poison", "no such thing")
        assert attach.source is not None
        known = tuple(kind.SYMBOL for kind in (Accepted, Rejected, Released))
        super().on_attach(link, replace(attach, source=replace(attach.source, outcomes=known)))

    def on_credit(self, link: SendingLink, gained: int, drain: bool) -> None:
        while link.credit > 0:
            link.sink.send(BODY)


def test_an_outcome_that_is_not_offered_becomes_released() -> None:
    async def scene() -> None:
        async with placed(Touchy()) as place, place.client() as client:
            remote = place.remote
            receiver = await client.receiver("mill/orders", credit=4)
            first, second, third, _left = [await receiver.receive(60) for _ in range(4)]
            first.modify(failed=True)
            second.accept()
            third.reject("x:no")
            await receiver.close()
            await until_async(lambda: len(remote.outcomes) == 4, lambda: str(remote.outcomes))
            assert [type(state) for state in remote.outcomes] == [Released, Accepted, Rejected, Released]

    run(scene())


class Rabbit(Touchy):
    """Does as RabbitMQ 3: repeats what is asked for, and sends more than was granted."""

    properties: Mapping[str, str] = MappingProxyType({"product": "RabbitMQ", "version": "3.10.8"})

    def on_credit(self, link: SendingLink, gained: int, drain: bool) -> None:
        if gained > 0:
            for _ in range(link.credit + 3):
                link.sink.send(BODY)


def test_what_rabbitmq_sends_beyond_the_credit_waits_for_more() -> None:
    async def scene() -> None:
        async with placed(Rabbit()) as place, place.client() as client:
            remote = place.remote
            sender = await client.sender("mill/orders")
            receiver = await client.receiver("mill/orders", credit=0)
            receiver.grant(1)
            got = await receiver.receive(60)
            assert got is not None
            receiver.grant(1)
            assert await receiver.receive(60) is not None
            assert remote.outcomes == []
            # Each link has a session of its own, which ends with it, so that nothing stays behind.
            assert remote.open_sessions == 3
            (line,) = place.uplinks.lines
            assert line.owner(True, 1) is line.owner(True, 2) is not None
            assert len(line.links_of(line.owner(True, 1))) == 2
            await receiver.close()
            await until_async(lambda: remote.open_sessions == 2)
            assert remote.outcomes == [RELEASED] * 4
            assert str(await sender.send_payload(BODY)) == "accepted"

    run(scene())


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"browse": True}, "does not know browsing"),
        ({"filters": {SELECTOR_FILTER: "a = 1"}}, "does not know the filter"),
    ],
)
def test_what_is_repeated_and_not_done_is_told_to_who_cannot_see_it(wish: dict[str, Any], words: str) -> None:
    async def scene() -> None:
        async with placed(Rabbit()) as place:
            asked = AttachOptions(source="mill/orders", **wish)
            opening = place.space.connectors["mill"].attach_consumer(DETACHED, asked).opening
            assert opening is not None
            answers: list[Any] = []
            opening.then(answers.append)
            await until_async(lambda: answers)
            assert words in str(answers[0])
            assert place.remote.outcomes == []

    run(scene())


def test_an_attach_that_costs_the_session_does_not_cost_other_links() -> None:
    async def scene() -> None:
        async with placed(Touchy()) as place, place.client() as client:
            remote = place.remote
            sender = await client.sender("mill/orders")
            receiver = await client.receiver("mill/orders", credit=1)
            assert await receiver.receive(60) is not None
            for attach in (client.sender, client.receiver):
                other = asyncio.ensure_future(_attached(client.sender, "mill/other"))
                with pytest.raises(LinkRefusedError) as refused:
                    await attach("mill/poison")
                assert refused.value.condition == "x:poison"
                await other
                assert str(await sender.send_payload(BODY)) == "accepted"
            again = await receiver.receive(60)
            assert again is not None
            again.accept()
            assert len(remote.engines) == 1
            assert [attach.source.address for attach in remote.attaches].count("poison") == 1  # type: ignore[union-attr]

    run(scene())
