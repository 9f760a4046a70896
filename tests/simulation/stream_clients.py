"""Clients of a stream: an ordinary sender, an idempotent one that sends again, one of frames, and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.messaging.streams.stream import Stream
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort
from tests.simulation.clients import number_of
from tests.simulation.node import marks_of
from tests.simulation.streams import StreamAccount, Unanswered

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["StreamClients"]

FRAMES = b"frames"
"""The producer of frames."""


class _Port(MemoryProducerPort):
    def __init__(self, told: Any) -> None:
        super().__init__()
        self._told = told

    def settle(self, delivery_id: int, state: Any) -> None:
        super().settle(delivery_id, state)
        self._told(delivery_id, state)


class _Reader(MemoryConsumerPort):
    """Reads all partitions, or one, and tells the account what it saw.

    Args:
        clients: of the stream.
    """

    def __init__(self, clients: StreamClients) -> None:
        super().__init__()
        self._clients = clients
        self._next: dict[int, int] = {}

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        super().send(delivery, payload, settled, message_format)
        annotations = Sections(payload).message_annotations
        partition, offset = annotations["x-opt-partition"], annotations["x-opt-offset"]
        expected = self._next.get(partition)
        if expected is None:
            self.begins(partition, offset)
        elif offset != expected:
            self._clients.observe()
            if offset < expected or expected >= self._clients.gone_below(partition):
                problem = f"a reader of partition {partition} got row {offset} instead of {expected}"
                self._clients.account.problem(problem)
        self._next[partition] = offset + 1
        self._clients.account.read(partition, offset, number_of(payload))

    def begins(self, partition: int, offset: int) -> None:
        """The first row of a partition has come."""


class _Named(_Reader):
    """Goes on where the name was: what it has not settled comes again, and nothing is left out."""

    def begins(self, partition: int, offset: int) -> None:
        if offset < self._clients.sure.get(partition, 0):
            sure = self._clients.sure[partition]
            self._clients.account.problem(
                f"the named consumer is back in partition {partition} at {offset}, not {sure}"
            )
        expected = self._clients.reached.get(partition)
        if expected is not None and offset > max(expected, self._clients.beyond.get(partition, 0)):
            self._clients.observe()
            if expected >= self._clients.gone_below(partition):
                problem = f"the named consumer goes on in partition {partition} at {offset}, it was at {expected}"
                self._clients.account.problem(problem)

    def accept_some(self) -> None:
        """Settle a part of what it has, from the oldest on."""
        while self.unsettled and self._clients.world.chance(0.7):
            annotations = Sections(self.unsettled[0].payload).message_annotations
            partition, offset = annotations["x-opt-partition"], annotations["x-opt-offset"]
            self.accept()
            told = self._clients.told
            told[partition] = max(told.get(partition, 0), offset + 1)


class StreamClients:
    """The clients of one stream, over all lives of its node.

    Args:
        world: what they live in.
        name: the address.
        account: of the stream.
    """

    def __init__(self, world: World, name: str, account: StreamAccount) -> None:
        self.world = world
        self.name = name
        self.account = account
        self.partitions = len(account.known)
        self._sequences = {b"messages": 0, FRAMES: 0}
        self._unanswered: dict[bytes, list[Unanswered]] = {b"messages": [], FRAMES: []}
        self._again: dict[bytes, list[Unanswered]] = {}
        self._lives = 0
        self.is_by_front = False
        """Whether they have come by another node."""
        self.told: dict[int, int] = {}
        """What the named consumer has not settled yet, by partition, as it knows itself."""
        self.sure: dict[int, int] = {}
        """The same, where that is on the disk."""
        self.beyond: dict[int, int] = {}
        """How far it came in lives that are over, of which the journal may know."""
        self.reached: dict[int, int] = {}
        """Where it must go on at the latest."""

    def open(self) -> None:
        """Attach to the node that has come up; idempotent senders repeat in order what has no answer."""
        self._lives += 1
        self.is_by_front = self.world.comes_by_front()
        self._again = {producer: list(left) for producer, left in self._unanswered.items()}
        self._sent: dict[int, int] = {}
        self._coming: dict[tuple[bytes, int], Unanswered] = {}
        self._plain = self._attach(self._plain_told)
        self._readers: list[_Reader] = []
        self._named: _Named | None = None
        for partition, offset in self.told.items():
            self.beyond[partition] = max(offset, self.beyond.get(partition, 0))
        self.told = dict(self.sure)
        self.reached = dict(self.sure)
        self._ports = {
            b"messages": self._attach(
                lambda delivery, state: self._told(b"messages", delivery, state),
                properties={"enmasse:producer": "messages"},
            ),
            FRAMES: self._attach(
                lambda delivery, state: self._told(FRAMES, delivery, state),
                capabilities=(FRAMES_CAPABILITY,),
                properties={"enmasse:partition": self.partitions - 1},
            ),
        }

    def lose_front(self) -> None:
        """Come again, if the node has died by which they came."""
        if not self.is_by_front:
            return
        for link in (self._plain, *self._ports.values(), *self._readers, self._named):
            if link is not None:
                link.leave()
        self.open()

    def _attach(self, told: Any, **options: Any) -> _Port:
        port = _Port(told)
        port.sink = self.world.address(self.name).attach_producer(port, self.name, AttachOptions(**options))
        return port

    def act(self) -> None:
        """Do something."""
        random = self.world.random
        random.choice(
            [self.send, self.send, self.send_again, self.send_again, self.read, self.advance_readers, self.consume]
        )()

    # Sending

    def send(self) -> None:
        """Send some messages that are not numbered."""
        for _ in range(self.world.random.randint(1, 5)):
            if self._plain.credit:
                number = self._new(self._lives, 0)
                self.account.sent[number] = (self._lives, number)
                settled = self.world.chance(self.world.scenario.settled)
                if not settled:
                    self._sent[self._plain._next_id] = number
                self._plain.send(self._payload(number), settled=settled)

    def _payload(self, number: int, **annotations: Any) -> bytes:
        key = self.world.random.choice([None, "a", "b", "c"])
        if key is not None:
            annotations["x-opt-partition-key"] = key
        padding = self.world.random.choice(self.world.scenario.padding)
        return encode_message(b"#%d:" % number + b"." * padding, message_annotations=annotations or None)

    def _new(self, sender: int, place: int) -> int:
        number = self.world.next_number()
        self.account.sent[number] = (sender, place)
        self.account.sent_at[number] = self.world.now
        return number

    def _plain_told(self, delivery: int, state: Any) -> None:
        number = self._sent.pop(delivery)
        (self.account.accepted if state is ACCEPTED else self.account.refused).add(number)

    def send_again(self) -> None:
        """Have an idempotent sender send what it must, or may, again, or something new."""
        world = self.world
        producer = world.random.choice([b"messages", FRAMES])
        port = self._ports[producer]
        for _ in range(world.random.randint(1, 3)):
            if not port.credit:
                return
            unanswered = self._unanswered[producer]
            if self._again.get(producer):
                item = self._again[producer].pop(0)
            elif unanswered and world.chance(0.4):
                item = world.random.choice(unanswered)
            else:
                item = self._make(producer)
                unanswered.append(item)
            self._put(producer, item)

    def _make(self, producer: bytes) -> Unanswered:
        world = self.world
        sequence = self._sequences[producer]
        self._sequences[producer] += world.random.choice([1, 1, 1, 3])
        if producer == FRAMES:
            numbers = [self._new(-1, sequence) for _ in range(world.random.randint(1, 6))]
            bodies = [b"#%d:" % number for number in numbers]
            heads = [b"\x00\x53\x75\xa0" + bytes([len(body)]) for body in bodies]
            count = len(numbers)
            payload = encode_frame(0, [0] * count, [b""] * count, heads, bodies, producer=producer, sequence=sequence)
            return Unanswered(sequence, numbers, payload)
        number = self._new(-2, sequence)
        return Unanswered(sequence, [number], self._payload(number, **{"x-opt-sequence": sequence}))

    def _put(self, producer: bytes, item: Unanswered) -> None:
        port = self._ports[producer]
        self._coming[producer, port._next_id] = item
        port.send(item.payload, message_format=FRAME_FORMAT if producer == FRAMES else 0)

    def _told(self, producer: bytes, delivery: int, state: Any) -> None:
        item = self._coming.pop((producer, delivery))
        if state is ACCEPTED:
            self.account.accepted.update(item.numbers)
            self.world.answer(lambda: self._answered(producer, item), is_by_front=self.is_by_front)

    def _answered(self, producer: bytes, item: Unanswered) -> None:
        if item in self._unanswered[producer]:
            self._unanswered[producer].remove(item)

    # Reading

    def read(self) -> None:
        """A reader comes or goes."""
        random = self.world.random
        if self._readers and self.world.chance(0.4):
            self._readers.pop(random.randrange(len(self._readers))).leave()
            return
        reader = _Reader(self)
        start = random.choice(["first", "next", "last", random.randrange(20)])
        filters: dict[str, Any] = {"enmasse:start": start}
        if self.world.chance(0.5):
            filters["enmasse:partition"] = random.randrange(self.partitions)
        address = self.world.address(self.name)
        options = AttachOptions(presettle=self.world.chance(0.5), filters=filters)
        reader.sink = address.attach_consumer(reader, options)
        self._readers.append(reader)
        reader.grant(random.randrange(20))

    def advance_readers(self) -> None:
        """Readers take more."""
        for reader in self._readers:
            reader.grant(self.world.random.randrange(40))
            while reader.unsettled and self.world.chance(0.8):
                reader.accept()

    def consume(self) -> None:
        """The named consumer comes, settles some of what it has, takes more, or goes."""
        named, world = self._named, self.world
        if named is None:
            named = self._named = _Named(self)
            filters: dict[str, Any] = {"enmasse:consumer": "somebody"}
            if not self.reached:
                filters["enmasse:start"] = "first"
            options = AttachOptions(filters=filters)
            named.sink = world.address(self.name).attach_consumer(named, options)
            named.grant(world.random.randrange(20))
        elif world.chance(0.2):
            named.leave()
            self._named = None
            self.reached = dict(self.told)
        else:
            named.accept_some()
            named.grant(world.random.randrange(20))

    # What must hold

    def observe(self) -> None:
        """Look where the partitions begin."""
        for partition, (low, end) in enumerate(marks_of(self.world.address(self.name))):
            self.account.begins_at(partition, low, end, self.world.now)

    def gone_below(self, partition: int) -> int:
        """Return where a partition begins on disk: readers find that before the node has the commit's answer."""
        stream = self.world.address(self.name)
        assert isinstance(stream, Stream)
        mark = self.world.storage.get(Table.MARK, log_key(stream.log_id, partition, 0))
        return max(self.account.low[partition], 0 if mark is None else int.from_bytes(mark[:8], "big"))

    def calmed(self) -> None:
        """All is on the disk: compare what the stream says of itself with what is known."""
        self.sure = dict(self.told)
        self.observe()
        counts = self.world.address(self.name).counts()
        known = sum(
            sum(offset >= low for offset in rows)
            for rows, low in zip(self.account.known, self.account.low, strict=True)
        )
        if counts["messagesStored"] < known:
            self.account.problem(f"it says it holds {counts['messagesStored']} messages; {known} were read")

    def finish(self) -> None:
        """Send again until all is accepted; then every number lies in exactly one place."""
        world = self.world
        for producer, unanswered in self._unanswered.items():
            for _ in range(100):
                if not unanswered:
                    break
                for item in list(unanswered):
                    if not self._ports[producer].credit:
                        break
                    self._put(producer, item)
                    world.node.settle()
                    world.pass_on()
            if unanswered:
                self.account.problem(f"{len(unanswered)} things are not accepted however often they are sent")
        if self._plain.unsettled:
            self.account.problem(f"{len(self._plain.unsettled)} messages are never answered")
        world.look()
