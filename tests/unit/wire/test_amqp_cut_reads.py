"""Between frames an engine asks whether others have waited long enough, and keeps the rest of a read."""

from __future__ import annotations

from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import SLICE_BYTES, Connection
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import Link
from enmasse.wire.amqp.performatives import Attach, Begin, Composite, Detach, End, Flow, Source, Target, Transfer
from tests.support.raw_peer import RawPeer

WINDOW = 1_000
ECHO = Flow(None, WINDOW, 0, WINDOW, echo=True)
ATTACH = Attach("again", 1, False, source=Source(), target=Target("q"), initial_delivery_count=0)


class Impatient:
    """A server's engine, whether others have waited long enough, and how often that was asked."""

    def __init__(self) -> None:
        self.handler = Recorder()
        self.handler.on_wish = self._accept
        self.engine = Connection(self.handler, container_id="s", is_server=True, now=0.0)
        self.peer = RawPeer(self.engine)
        self.peer.greet()
        self.peer.begin()
        self.peer.attach_sender()
        self.asked: list[bool] = []
        self.engine.is_late = self._is_late

    @staticmethod
    def _accept(link: Link, _attach: Attach) -> None:
        link.accept(RecordingSink(link))

    def _is_late(self, is_hot: bool) -> bool:
        self.asked.append(is_hot)
        return True

    def reads(self, *frames: Composite, payload: bytes = b"", channel: int = 0) -> int:
        """Send frames at once; how many reads they take."""
        self.peer.say(*frames, payload=payload, channel=channel)
        count = 1
        while self.engine.has_more:
            self.engine.receive(b"", 0.0)
            count += 1
        return count


def test_each_frame_that_is_not_hot_may_be_the_last_of_a_read() -> None:
    scene = Impatient()
    assert scene.reads(*[ECHO] * 5) == 5
    assert scene.reads(*[ATTACH, Detach(handle=1, closed=True)] * 3) == 6
    begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
    assert scene.reads(*[begin, End()] * 3, channel=1) == 6
    assert not any(scene.asked)
    told = scene.peer.hear()
    kinds = [type(frame.performative) for frame in told]
    assert (kinds.count(Attach), kinds.count(Detach), kinds.count(Begin), kinds.count(End)) == (3, 3, 3, 3)


def test_of_transfers_a_slice_is_read_before_it_is_asked() -> None:
    scene = Impatient()
    link = scene.engine.sessions[0].receivers[0]
    link.grant(1_000)
    payload = bytes(80)
    transfers = [Transfer(handle=0, delivery_id=number, delivery_tag=b"t") for number in range(200)]
    size = len(amqp_frame(0, transfers[100], len(payload)) + payload)
    assert scene.reads(*transfers, payload=payload) in range(4, 200 * size // SLICE_BYTES + 2)
    assert all(scene.asked)
    assert link.received == 200


def test_frames_that_are_kept_come_before_those_that_follow_and_none_is_lost() -> None:
    scene = Impatient()
    link = scene.engine.sessions[0].receivers[0]
    link.grant(1_000)
    frames = [ECHO, Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), ECHO]
    data = b"".join(amqp_frame(0, frame) for frame in frames)
    scene.peer.say_bytes(data[:-5])
    assert scene.engine.has_more
    assert link.received == 0
    scene.peer.say_bytes(data[-5:])
    scene.reads()
    assert link.received == 1
    assert scene.engine.unread == b""


def test_whoever_is_held_reads_nothing_of_what_is_kept() -> None:
    scene = Impatient()
    scene.peer.say(ECHO, ECHO, ECHO)
    kept = scene.engine.unread
    assert kept
    scene.engine.hold_input(True)
    scene.engine.receive(b"", 1.0)
    assert scene.engine.unread == kept
    scene.engine.receive(amqp_frame(0, ECHO), 1.0)
    assert len(scene.engine.unread) > len(kept)
    scene.engine.hold_input(False)
    assert scene.reads() == 4 - 1


def test_a_connection_that_ends_keeps_nothing() -> None:
    scene = Impatient()
    scene.peer.say(ECHO, ECHO, ECHO)
    scene.engine.lost()
    assert (scene.engine.has_more, scene.engine.unread, scene.engine.partial_bytes) == (False, b"", 0)
