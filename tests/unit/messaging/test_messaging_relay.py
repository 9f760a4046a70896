"""Names that another container has: clients of one node reach addresses of another, over engines without sockets."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.message.sections import Header, Properties, encode_message
from enmasse.message.types import Symbol
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.direct.large import LARGE_BYTES
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.relay import senders
from enmasse.messaging.relay.receivers import RelayConsumer
from enmasse.messaging.relay.relay import Relay
from enmasse.messaging.relay.senders import RelayProducer
from enmasse.messaging.relay.uplink import ControlThere
from enmasse.testing.recorder import Recorder, RecordingSink, Sent
from enmasse.wire.amqp.link import Link, ReceivingLink
from enmasse.wire.amqp.performatives import Source, Target
from tests.unit.node.test_node_binding import Client, Node

BODY = encode_message(b"x", header=Header(durable=True))
LARGE = encode_message(b"y" * (3 << 20), header=Header(durable=True))


class Uplink(Recorder):
    """The way of one node to another, on a session of a client of that."""

    def __init__(self, remote: Node) -> None:
        super().__init__()
        self.client = Client(remote, None, None, container="uplink")
        self.client.client.handler = self
        self.ends: dict[Link, RelayProducer | RelayConsumer] = {}
        self.numbers = count()

    def attach_sender(self, end: RelayProducer, name: str, options: AttachOptions) -> None:
        link = self.client.session.attach_sender(f"to {next(self.numbers)}", end, Target(address=name))
        self.ends[link] = end

    def attach_receiver(self, end: RelayConsumer, name: str, options: AttachOptions) -> None:
        asked = options.attach
        assert asked is not None
        given = {"rcv_settle_mode": asked.rcv_settle_mode}
        link = self.client.session.attach_receiver(f"from {next(self.numbers)}", end, Source(address=name), **given)
        link.passes_from = LARGE_BYTES
        self.ends[link] = end

    def attach_control(self, client: object) -> ControlThere:
        raise NotImplementedError(client)

    def detach(self, end: RelayProducer | RelayConsumer, *, closed: bool = True) -> None:
        for link, other in list(self.ends.items()):
            if other is end:
                del self.ends[link]
                link.detach(closed=closed)

    def on_attached(self, link: Link) -> None:
        answer = link.remote_attach
        assert answer is not None
        if (answer.source if isinstance(link, ReceivingLink) else answer.target) is not None:
            self.ends[link].granted = answer
            self.ends[link].on_upstream(link)  # type: ignore[arg-type]  # it is of the end's direction

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        end = self.ends.pop(link, None)
        if end is None:
            return
        if error is None:
            end.on_lost()
        else:
            end.on_refused_upstream(error)


class Scene:
    """A client of a node whose name ``far`` is another node."""

    def __init__(self) -> None:
        self.there = Node()
        for name, kind in {"any": "anycast", "queue": "queue"}.items():
            self.there.address(name, kind)
        self.here = Node()
        self.uplink = Uplink(self.there)
        space = self.here.entities.spaces["ns/shop"]
        self.address = Relay(space.core, "far", self.uplink, lambda name: name != "secret")
        space.connectors["far"] = self.address
        self.client = Client(self.here, None, None, container="client")
        self.other = Client(self.there, None, None, container="other")

    def go(self) -> None:
        for _ in range(8):
            for one in (self.client, self.uplink.client, self.other):
                one.go()
                one.server.resume_output()
                one.client.resume_output()

    def sender(self, name: str = "any", credit: int | None = None) -> RecordingSink:
        sink = self.client.sender(f"far/{name}")
        self.go()
        assert self.client.refusals == []
        return sink

    def receiver(self, name: str = "queue", credit: int = 0, answer: Any = ACCEPTED, **options: Any) -> RecordingSink:
        sink = self.client.receiver(f"far/{name}", credit, answer=answer, **options)
        self.go()
        assert self.client.refusals == []
        return sink

    def put(self, *bodies: bytes) -> RecordingSink:
        sink = self.other.sender("queue", name=f"put {len(bodies)}")
        for body in bodies:
            sink.send(body)
        self.go()
        return sink

    @property
    def queue(self) -> Any:
        return self.there.entities.spaces["ns/shop"].find("queue")


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Credit


def test_a_senders_credit_is_that_of_the_receiver_there(scene: Scene) -> None:
    sender = scene.sender()
    assert sender.credits == []
    receiver = scene.other.receiver("any", credit=7, answer=None)
    scene.go()
    assert sum(gained for gained, _ in sender.credits) == 7
    for _ in range(7):
        sender.send(BODY)
    scene.go()
    assert len(receiver.payloads) == 7
    assert sender.link is not None
    assert sender.link.credit == 0  # type: ignore[attr-defined]
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(2)
    scene.go()
    assert sender.link.credit == 2  # type: ignore[attr-defined]


def test_a_receivers_credit_is_used_there(scene: Scene) -> None:
    scene.put(*[BODY] * 5)
    receiver = scene.receiver(credit=3)
    assert receiver.payloads == [BODY] * 3
    scene.go()
    assert scene.queue.depth == 2


def test_a_drain_is_answered_by_what_there_is(scene: Scene) -> None:
    scene.put(*[BODY] * 2)
    receiver = scene.receiver()
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(5)
    link.drain()
    scene.go()
    assert receiver.payloads == [BODY] * 2
    assert (link.credit, receiver.given_up) == (0, [3])
    link.grant(4)
    scene.go()
    link.drain()
    scene.go()
    assert (link.credit, receiver.given_up) == (0, [3, 4])


def test_a_receiver_that_drains_no_more_has_its_credit_again(scene: Scene) -> None:
    receiver = scene.receiver()
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(1)
    link.drain()
    scene.client.pump()
    link.session.flow_pending(link)  # before the other container has answered
    scene.client.pump()
    scene.go()
    scene.put(BODY)
    assert receiver.payloads == [BODY]


def test_a_client_is_not_granted_more_than_may_be_undecided(scene: Scene) -> None:
    scene.address.usage.limits = SpaceLimits(connector_unsettled=100)
    sender = scene.sender()
    receiver = scene.other.receiver("any", credit=1000, answer=None)
    scene.go()
    sent = 0
    while sender.link is not None and sender.link.credit:  # type: ignore[attr-defined]
        sender.send(b"")
        sent += 1
        if not sent % 10:
            scene.go()
    scene.go()
    assert 50 <= sent <= 100
    assert len(receiver.payloads) == sent


# Outcomes


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Rejected(AmqpError("a:b", "no")),
        Modified(delivery_failed=True, message_annotations={Symbol("x-opt-a"): 1}),
    ],
    ids=repr,
)
def test_an_outcome_there_is_the_senders(scene: Scene, state: Any) -> None:
    sender = scene.sender()
    scene.other.receiver("any", credit=5, answer=state)
    scene.go()
    sent = sender.send(BODY)
    scene.go()
    assert (sent.is_settled, sent.state) == (True, state)


@pytest.mark.parametrize(("state", "depth"), [(ACCEPTED, 0), (RELEASED, 1), (Rejected(), 0)], ids=repr)
def test_an_outcome_of_the_receiver_is_that_of_the_message_there(scene: Scene, state: Any, depth: int) -> None:
    scene.put(BODY)
    receiver = scene.receiver(credit=1, answer=state)
    assert receiver.payloads == [BODY]
    scene.go()
    assert scene.queue.depth == depth


def test_a_settled_message_stays_settled(scene: Scene) -> None:
    receiver = scene.other.receiver("any", credit=5, answer=None)
    sender = scene.sender()
    sender.send(BODY, settled=True)
    scene.go()
    assert [one.settled for one in receiver.received] == [True]


def test_a_receiver_that_settles_second_hears_of_what_took_effect_there(scene: Scene) -> None:
    scene.put(BODY)
    receiver = scene.receiver(credit=1, answer=None, rcv_settle_mode=1)
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    confirmed: list[bool] = []
    link.settle_after(receiver.received[0].delivery_id, ACCEPTED, lambda: confirmed.append(True))
    # All but the disk of the other node has its turn.
    for _ in range(4):
        for one in (scene.client, scene.uplink.client):
            one.pump()
        scene.here.harness.turn()
        scene.there.harness.turn()
    assert confirmed == []
    scene.go()
    assert confirmed == [True]
    assert scene.queue.depth == 0


def test_a_receiver_that_settles_second_is_told_that_nobody_knows_when_the_uplink_is_lost(scene: Scene) -> None:
    scene.put(BODY)
    receiver = scene.receiver(credit=1, answer=None, rcv_settle_mode=1)
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    confirmed: list[bool] = []
    link.settle_after(receiver.received[0].delivery_id, ACCEPTED, lambda: confirmed.append(True))
    scene.client.pump()
    scene.uplink.client.cut()
    scene.client.go()
    assert confirmed == []
    assert [condition for _, condition, _ in scene.client.refusals] == ["amqp:link:detach-forced"]
    assert scene.address.consumers == []


def test_a_receiver_that_settles_second_is_told_that_its_outcome_comes_too_late(scene: Scene) -> None:
    scene.put(BODY)
    receiver = scene.receiver(credit=1, answer=None, rcv_settle_mode=1)
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    scene.uplink.client.cut()
    scene.client.go()
    assert scene.client.refusals == []
    confirmed: list[bool] = []
    link.settle_after(receiver.received[0].delivery_id, ACCEPTED, lambda: confirmed.append(True))
    scene.client.go()
    assert confirmed == []
    assert [condition for _, condition, _ in scene.client.refusals] == ["amqp:link:detach-forced"]


# Attach


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_refusal_there_is_the_clients(scene: Scene, role: str) -> None:
    if role == "sender":
        scene.client.sender("far/nowhere")
    else:
        scene.client.receiver("far/nowhere", 0)
    scene.go()
    assert [condition for _, condition, _ in scene.client.refusals] == ["amqp:not-found"]
    assert (scene.address.producers, scene.address.consumers) == ([], [])


def test_a_name_that_is_the_connectors_own_is_refused(scene: Scene) -> None:
    scene.client.sender("far")
    assert [condition for _, condition, _ in scene.client.refusals] == ["amqp:not-found"]


def test_a_client_that_goes_leaves_the_other_container(scene: Scene) -> None:
    scene.sender("queue")
    scene.put(BODY)
    scene.receiver(credit=1, answer=None)
    assert (len(scene.queue.producers), len(scene.queue.consumers)) == (2, 1)
    scene.client.cut()
    scene.go()
    assert (len(scene.queue.producers), len(scene.queue.consumers)) == (1, 0)
    # It may have been processed.
    assert scene.queue.depth == 1


def test_links_for_senders_that_name_many_addresses_are_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "MAX_GUESTS", 3)
    for number in range(8):
        scene.there.address(f"q{number}", "queue")
        scene.there.address(f"a{number}", "anycast")
    sender = scene.client.sender(Target())

    def send(name: str) -> Sent:
        sent = sender.send(encode_message(b"x", properties=Properties(to=f"far/{name}")))
        scene.go()
        assert len(scene.address.guests) <= 3
        return sent

    assert [send(f"q{number}").state for number in (*range(8), 0)] == [ACCEPTED] * 9
    # Those whose messages wait are not given up for others.
    waiting = [send(f"a{number}") for number in range(3)]
    assert send("q0").state == RELEASED
    receiver = scene.other.receiver("a1", credit=1, answer=ACCEPTED)
    scene.go()
    assert len(receiver.payloads) == 1
    assert send("q0").state is ACCEPTED
    assert [one.state for one in waiting] == [None, ACCEPTED, None]
    scene.client.cut()
    scene.go()
    assert scene.address.guests == {}


# Loss


def test_what_was_sent_there_has_failed_when_the_uplink_is_lost(scene: Scene) -> None:
    sender = scene.sender()
    scene.other.receiver("any", credit=5, answer=None)
    scene.go()
    sent: list[Sent] = [sender.send(BODY) for _ in range(2)]
    scene.go()
    scene.uplink.client.cut()
    scene.client.go()
    assert [one.state for one in sent] == [Modified(delivery_failed=True)] * 2
    assert scene.client.refusals == []
    assert sender.link is not None
    assert sender.link.credit == 0  # type: ignore[attr-defined]


def test_what_has_not_left_when_the_uplink_is_lost_is_released(scene: Scene) -> None:
    sender = scene.sender()
    receiver = scene.other.receiver("any", credit=5, answer=None)
    scene.go()
    scene.uplink.client.session.remote_window = 1
    sent = [sender.send(BODY) for _ in range(3)]
    scene.client.pump()
    assert len(end_of(scene).unwritten) == 1  # another one was not even sent
    scene.uplink.client.cut()
    scene.client.go()
    scene.other.go()
    assert [one.state for one in sent] == [Modified(delivery_failed=True), RELEASED, RELEASED]
    assert end_of(scene).unsettled == 0
    assert len(receiver.payloads) <= 1


def test_what_waited_for_the_window_has_left_once_that_opens(scene: Scene) -> None:
    sender = scene.sender()
    receiver = scene.other.receiver("any", credit=5, answer=None)
    scene.go()
    scene.uplink.client.session.remote_window = 1
    sent = [sender.send(BODY) for _ in range(3)]
    scene.client.pump()
    assert end_of(scene).unwritten
    scene.uplink.client.session.open_window(10)
    scene.uplink.client.session.send_pending()
    scene.go()
    assert len(receiver.payloads) == 3
    assert not end_of(scene).unwritten
    scene.uplink.client.cut()
    scene.client.go()
    assert [one.state for one in sent] == [Modified(delivery_failed=True)] * 3


def test_a_receiver_cannot_settle_any_more_what_came_on_an_uplink_that_is_lost(scene: Scene) -> None:
    scene.put(BODY)
    receiver = scene.receiver(credit=1, answer=None)
    scene.uplink.client.cut()
    scene.client.go()
    assert receiver.payloads == [BODY]
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.settle(receiver.received[0].delivery_id, ACCEPTED)
    scene.client.go()
    scene.other.go()
    assert scene.queue.depth == 1
    assert scene.client.refusals == []


# Blocked, and large


def test_what_comes_while_the_other_container_takes_no_more_waits(scene: Scene) -> None:
    receiver = scene.other.receiver("any", credit=5, answer=ACCEPTED)
    sender = scene.sender()
    scene.uplink.client.client.block_output()
    sent = [sender.send(BODY) for _ in range(5)]
    scene.client.go()
    assert receiver.payloads == []
    scene.go()
    assert receiver.payloads == [BODY] * 5
    assert [one.state for one in sent] == [ACCEPTED] * 5


def test_large_messages_pass_both_ways(scene: Scene) -> None:
    sender = scene.sender("queue")
    receiver = scene.receiver(credit=2)
    sent = sender.send(LARGE)
    scene.go()
    scene.go()
    assert sent.state is ACCEPTED
    assert receiver.payloads == [LARGE]
    assert scene.queue.depth == 0


def test_a_large_message_passes_while_it_comes(scene: Scene) -> None:
    scene.put(LARGE)
    receiver = scene.receiver()
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(1)
    uplink = scene.uplink.client
    uplink.to_client.chunk_bytes = 64 << 10
    for _ in range(30):
        if link.partial_bytes > LARGE_BYTES:
            break
        scene.client.go()
        uplink.to_server.collect()
        uplink.to_server.deliver()
        scene.there.harness.commit()
        uplink.to_client.collect()
        uplink.to_client.deliver(2)
        uplink.server.resume_output()
    assert receiver.payloads == []
    assert link.partial_bytes > LARGE_BYTES
    scene.go()
    scene.go()
    assert receiver.payloads == [LARGE]
    scene.go()
    assert scene.queue.depth == 0


def begin(client: Client, sender: RecordingSink) -> Sent:
    """Send a large message, of which some is to come yet."""
    sent = sender.send(LARGE)
    client.to_server.chunk_bytes = 64 << 10
    client.to_server.collect()
    client.to_server.deliver(40)
    return sent


def end_of(scene: Scene) -> RelayProducer:
    end = scene.address.producers[0]
    assert isinstance(end, RelayProducer)
    return end


def test_a_large_message_has_failed_when_the_uplink_is_lost(scene: Scene) -> None:
    sender = scene.sender("queue")
    sent = begin(scene.client, sender)
    assert end_of(scene).large is not None
    scene.uplink.client.pump()
    scene.uplink.client.cut()
    scene.client.go()
    assert sent.state == Modified(delivery_failed=True)
    assert end_of(scene).large is None
    assert end_of(scene).unsettled == 0
    assert scene.client.refusals == []
    assert scene.queue.depth == 0


@pytest.mark.parametrize("how", ["credit", "lost", "refused", "gone"])
def test_a_large_message_waits_for_credit_that_was_taken_back(scene: Scene, how: str) -> None:
    receiver = scene.other.receiver("any", credit=1, answer=ACCEPTED)
    sender = scene.sender()
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(0)
    scene.other.go()
    scene.uplink.client.go()
    sent = begin(scene.client, sender)
    assert scene.address.backlog_bytes > LARGE_BYTES
    state: Any = RELEASED
    if how == "credit":
        link.grant(1)
        scene.go()
        scene.go()
        assert receiver.payloads == [LARGE]
        state = ACCEPTED
    elif how == "lost":
        scene.uplink.client.cut()
    elif how == "refused":
        scene.there.entities.delete("io.enmasse.address", "ns/shop.any", scene.there.answers.append)
        scene.go()
    else:
        scene.client.cut()
        state = None  # its link has ended in the middle of it
    scene.client.go()
    assert sent.state == state
    assert scene.address.backlog_bytes == 0
    assert scene.address.dropped == 0


@pytest.mark.parametrize("who", ["uplink", "client"])
def test_a_large_message_that_is_half_received_comes_again_from_there(scene: Scene, who: str) -> None:
    scene.put(LARGE)
    receiver = scene.receiver()
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(1)
    scene.client.go()
    uplink = scene.uplink.client
    uplink.to_client.chunk_bytes = 64 << 10
    uplink.to_server.collect()
    uplink.to_server.deliver()
    scene.there.harness.commit()
    uplink.to_client.collect()
    uplink.to_client.deliver(40)
    end = scene.address.consumers[0]
    assert isinstance(end, RelayConsumer)
    assert end.large is not None
    if who == "uplink":
        uplink.cut()
        scene.client.server.resume_output()
        scene.client.go()
        assert (receiver.payloads, scene.client.refusals) == ([], [])
        assert (end.unsettled, end.is_blocked) == (0, False)
    else:
        scene.client.cut()
        scene.go()
    assert scene.address.backlog_bytes == 0
    again = scene.other.receiver("queue", credit=1, answer=ACCEPTED, name="again")
    scene.other.go()
    (payload,) = again.payloads
    assert payload.endswith(LARGE[-LARGE_BYTES:])


def test_large_messages_wait_for_a_client_that_takes_no_more(scene: Scene) -> None:
    scene.put(LARGE, BODY, LARGE)
    receiver = scene.receiver()
    link = receiver.link
    assert isinstance(link, ReceivingLink)
    link.grant(3)
    scene.client.server.block_output()
    for _ in range(4):
        scene.client.to_server.collect()
        scene.client.to_server.deliver()
        scene.here.harness.commit()
        scene.uplink.client.go()
    assert receiver.payloads == []
    for _ in range(4):
        scene.go()
    assert receiver.payloads == [LARGE, BODY, LARGE]
    assert scene.queue.depth == 0
    assert scene.address.backlog_bytes == 0
