"""Streams to foreign clients: where readers begin, what is kept, and how far named consumers are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Data, Message, symbol, timestamp
from proton.reactor import Filter, LinkOption

from enmasse.client import blocking
from enmasse.messaging.streams.heads import partition_of
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.proton_play import Exchange

pytestmark = pytest.mark.slow

WAIT_S = 60.0


class Commits(LinkOption):
    """A sender of consumers' offsets."""

    def apply(self, link: Any) -> None:
        capabilities = link.target.capabilities
        capabilities.put_array(False, Data.SYMBOL)
        capabilities.enter()
        capabilities.put_symbol(symbol("enmasse:commits"))
        capabilities.exit()


class Committing(Exchange):
    """Sends offsets instead of messages."""

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            self.sender = self.container.create_sender(self.connection, self.target, options=Commits())


def where(**filters: Any) -> Any:
    """A reader's option."""
    return Filter({symbol("enmasse:" + name): value for name, value in filters.items()})


def send(node: NodeProcess, stream: str, *messages: Any) -> None:
    sender = Exchange(node.url, stream, list(messages), expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * len(messages)


def read(node: NodeProcess, stream: str, expect: int, *, answer: Any = None, credit: int = 10, **filters: Any) -> Any:
    reader = Exchange(node.url, stream, [], expect=expect, options=where(**filters), answer=answer, credit=credit)
    reader.play()
    assert reader.errors == []
    return reader


def consumers(addresses: Any, stream: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(name, partition) to (offset, lag)."""
    return {
        (found["name"], found["partition"]): (found["offset"], found["lag"])
        for found in addresses.read(stream)["consumers"]
    }


def place(message: Any) -> tuple[int, int]:
    """Partition and offset."""
    annotations = message.annotations
    return annotations[symbol("x-opt-partition")], annotations[symbol("x-opt-offset")]


# Where readers begin


@pytest.mark.parametrize(
    ("start", "expected"), [("first", list(range(20))), ("last", [19]), (7, list(range(7, 20))), (0, list(range(20)))]
)
def test_a_reader_begins_where_it_asks_to(node: NodeProcess, addresses: Any, start: Any, expected: list[int]) -> None:
    stream = addresses.declare("stream")
    send(node, stream, *range(20))
    reader = read(node, stream, len(expected), start=start)
    assert reader.bodies == expected
    assert [place(message) for message in reader.received] == [(0, offset) for offset in expected]


@pytest.mark.parametrize("filters", [{}, {"start": "next"}])
def test_a_reader_gets_what_comes_from_now_on_by_itself(
    node: NodeProcess, addresses: Any, filters: dict[str, Any]
) -> None:
    stream = addresses.declare("stream")
    send(node, stream, *range(5))
    play = Exchange(node.url, stream, [5, 6, 7], options=where(**filters) if filters else None)
    play.play()
    assert play.bodies == [5, 6, 7]


def test_a_reader_begins_at_a_time(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream")
    for number in range(4):
        send(node, stream, number)
        time.sleep(0.01)
    everything = read(node, stream, 4, start="first").received
    times = [message.annotations[symbol("x-opt-enqueued-time")] for message in everything]
    assert times == sorted(set(times))
    for number in range(4):
        assert read(node, stream, 4 - number, start=timestamp(times[number])).bodies == list(range(number, 4))
        after = Exchange(node.url, stream, [], expect=1, options=where(start=timestamp(times[number] + 1)))
        if number < 3:
            after.play()
            assert after.bodies[0] == number + 1


def test_a_reader_reads_one_partition_or_all(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream", partitions=4)
    send(node, stream, *[Message(body=number, subject=f"device-{number % 11}") for number in range(110)])
    everything = read(node, stream, 110, start="first").received
    for message in everything:
        assert place(message)[0] == partition_of(message.subject.encode(), 4)
    assert sorted(message.body for message in everything) == list(range(110))
    for partition in range(4):
        expected = [message.body for message in everything if place(message)[0] == partition]
        assert expected == sorted(expected)
        one = read(node, stream, len(expected), start="first", partition=partition)
        assert one.bodies == expected
        assert [place(message)[1] for message in one.received] == list(range(len(expected)))


@pytest.mark.parametrize(
    ("filters", "said"),
    [({"start": "latest"}, "first, last, next"), ({"partition": 5}, "partitions 0 to 0"), ({"consumer": ""}, "name")],
)
def test_a_place_that_does_not_exist_is_refused_with_a_reason(
    node: NodeProcess, addresses: Any, filters: dict[str, Any], said: str
) -> None:
    stream = addresses.declare("stream")
    play = Exchange(node.url, stream, [], expect=1, options=where(**filters))
    play.ends_on_error = True
    play.play()
    ((_, description),) = play.errors
    assert said in description


@pytest.mark.parametrize(("start", "expected"), [("first", list(range(12))), (9, [9, 10, 11]), ("last", [11])])
def test_rhea_begins_where_it_asks_to(
    rhea: Callable[..., dict[str, Any]], node: NodeProcess, addresses: Any, start: Any, expected: list[int]
) -> None:
    stream = addresses.declare("stream")
    send(node, stream, *range(12))
    report = rhea("exchange", source=stream, filter={"enmasse:start": start}, target=stream, expect=len(expected))
    assert [message["body"] for message in report["received"]] == expected


# What is kept


def test_retention_by_bytes_shows_where_the_stream_begins(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream", retentionBytes=20_000)
    for first in range(0, 100, 10):
        send(node, stream, *[b"%01000d" % number for number in range(first, first + 10)])
    until(lambda: addresses.read(stream)["bytesStored"] <= 20_000)
    found = addresses.read(stream)
    ((partition, low, following),) = found["partitionMarks"]
    assert (partition, following) == (0, 100)
    assert 80 <= low < 100
    assert found["messagesStored"] == 100 - low
    for start in ("first", 0, low):
        reader = read(node, stream, 100 - low, start=start)
        assert [int(body) for body in reader.bodies] == list(range(low, 100))


def test_retention_by_age_empties_a_stream_that_is_told_so(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream", retentionMs=300)
    send(node, stream, *range(5))
    until(lambda: bool(addresses.read(stream)["partitionMarks"] == [[0, 5, 5]]))
    assert addresses.read(stream)["bytesStored"] == 0
    play = Exchange(node.url, stream, [5], options=where(start="first"))
    play.play()
    assert [place(message) for message in play.received] == [(0, 5)]


# Named consumers


def test_a_named_consumer_goes_on_where_it_was_and_its_lag_shows(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    stream = addresses.declare("stream")
    send(process, stream, *range(30))

    def ten(number: int, event: Any) -> None:
        if number < 10:
            event.delivery.update(event.delivery.ACCEPTED)
            event.delivery.settle()

    first = read(process, stream, 15, answer=ten, start="first", consumer="billing")
    assert not any(first.settled_by_sender)
    until(lambda: consumers(addresses, stream) == {("billing", 0): (10, 20)})
    process.kill()
    process.start()
    addresses = manage()
    assert consumers(addresses, stream) == {("billing", 0): (10, 20)}
    second = read(process, stream, 20, consumer="billing")
    assert second.bodies == list(range(10, 30))
    until(lambda: consumers(addresses, stream) == {("billing", 0): (30, 0)})
    other = read(process, stream, 30, start="first", consumer="audit")
    assert other.bodies == list(range(30))


def test_proton_commits_offsets_by_itself(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream", partitions=2)
    send(node, stream, *[Message(body=number, subject=f"device-{number}") for number in range(40)])
    marks = {partition: following for partition, _, following in addresses.read(stream)["partitionMarks"]}
    offsets = {partition: following - 3 for partition, following in marks.items()}
    commits = Committing(
        node.url, stream, [{"consumer": "spark", "offsets": offsets}, {"consumer": "spark"}], expect=0, credit=0
    )
    commits.play()
    assert commits.outcomes == ["accepted", "rejected"]
    assert consumers(addresses, stream) == {("spark", p): (offset, 3) for p, offset in offsets.items()}
    assert len(read(node, stream, 6, consumer="spark").received) == 6


def test_our_own_client_commits_offsets_too(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream")
    send(node, stream, *range(10))
    with blocking.connect(node.url) as connection:
        sender = connection.sender(stream, capabilities=("enmasse:commits",))
        sender.send(blocking.Message(body={"consumer": "c", "offsets": {0: 4}}))
        receiver = connection.receiver(stream, filters={"enmasse:consumer": "c"}, credit=10)
        bodies = []
        for _ in range(6):
            delivery = receiver.receive(timeout=WAIT_S)
            assert delivery is not None
            bodies.append(delivery.message.body)
            delivery.accept()
        assert bodies == list(range(4, 10))
        until(lambda: consumers(addresses, stream) == {("c", 0): (10, 0)})


# Small frames


def test_readers_do_not_notice_that_frames_are_merged(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    stream = addresses.declare("stream")
    with blocking.connect(process.url) as connection:
        sender = connection.sender(stream)
        for number in range(150):
            sender.send(blocking.Message(body=number))

        def frames() -> int:
            receiver = connection.receiver(
                stream, capabilities=("enmasse:frames",), filters={"enmasse:from": 0, "enmasse:to": 150}, credit=200
            )
            count = 0
            while receiver.receive(timeout=WAIT_S) is not None:
                count += 1
                if count == 150:
                    break
            return count

        before = read(process, stream, 150, start="first").bodies
        assert before == list(range(150))
    process.kill()
    process.start()
    with blocking.connect(process.url) as connection:
        assert frames() < 150
    for start in (0, 1, 63, 64, 100, 149):
        assert read(process, stream, 150 - start, start=start).bodies == list(range(start, 150))
