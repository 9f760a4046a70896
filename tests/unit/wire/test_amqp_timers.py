"""Time: silence, heartbeats and slow starters, all by a clock that the test moves [AMQP 2.4.5]."""

from __future__ import annotations

import pytest

from enmasse.testing.clock import ManualClock
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.connection_output import OPEN_TIMEOUT_S
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT, SASL_HEADER
from enmasse.wire.amqp.performatives import Close, Open
from enmasse.wire.amqp.sasl import SaslServer
from tests.support.raw_peer import RawPeer


class Server:
    """A server engine, a raw peer and their clock."""

    def __init__(self, *, idle_timeout_s: float = 60.0, start_s: float = 1000.0) -> None:
        self.clock = ManualClock(start_s)
        self.handler = Recorder()
        self.engine = Connection(
            self.handler,
            container_id="s",
            is_server=True,
            now=start_s,
            idle_timeout_s=idle_timeout_s,
            sasl=SaslServer(["ANONYMOUS"], lambda *_: True, is_optional=True),
        )
        self.peer = RawPeer(self.engine, self.clock)

    def sleep(self, seconds: float) -> None:
        """Let time pass as a shell does: handle each deadline when it comes."""
        end = self.clock.now + seconds
        while True:
            deadline = self.engine.next_deadline()
            if deadline is None or deadline > end:
                break
            self.clock.now = max(self.clock.now, deadline)
            self.engine.handle_deadline(self.clock.now)
        self.clock.now = end


@pytest.mark.parametrize("start", [b"", b"AMQ", AMQP_HEADER, SASL_HEADER])
def test_who_does_not_open_in_time_is_let_go(start: bytes) -> None:
    world = Server()
    if start:
        world.sleep(OPEN_TIMEOUT_S - 1)
        world.peer.say_bytes(start)
    world.sleep(OPEN_TIMEOUT_S - 1 if not start else 0.9)
    assert world.handler.calls("closed") == []
    world.sleep(1)
    assert world.engine.closed
    assert world.handler.calls("closed") == ["amqp:resource-limit-exceeded"]


def test_a_deadline_handled_early_changes_nothing() -> None:
    world = Server()
    world.engine.handle_deadline(world.clock.now)
    assert not world.engine.closed
    world.peer.greet(open_with=Open("raw", idle_time_out=1000))
    for _ in range(5):
        world.engine.handle_deadline(world.clock.now)
    assert world.peer.hear() == []


def test_a_silent_peer_is_given_up_with_a_reason() -> None:
    world = Server(idle_timeout_s=10.0)
    world.peer.greet()
    world.sleep(9.9)
    assert not world.engine.closed
    world.sleep(0.2)
    error = world.peer.hear_one(Close).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    assert error.description == "nothing came for 10 s"
    assert world.engine.next_deadline() is None


def test_heartbeats_of_the_peer_keep_the_connection() -> None:
    world = Server(idle_timeout_s=10.0)
    world.peer.greet()
    for _ in range(10):
        world.sleep(9)
        world.peer.say_bytes(HEARTBEAT)
    assert not world.engine.closed
    world.sleep(11)
    assert world.engine.closed


def test_without_an_idle_timeout_silence_is_golden() -> None:
    world = Server(idle_timeout_s=0.0)
    world.peer.greet()
    assert world.engine.next_deadline() is None
    world.sleep(1_000_000)
    assert not world.engine.closed


def test_the_peer_is_kept_awake_when_it_asks_for_it() -> None:
    world = Server(idle_timeout_s=0.0)
    world.peer.greet(open_with=Open("raw", idle_time_out=3000))
    last = world.clock.now
    beats = 0
    for _ in range(600):
        world.sleep(0.1)
        if world.peer.hear():
            assert world.clock.now - last < 3.0
            last = world.clock.now
            beats += 1
    assert 20 <= beats <= 80


def test_no_silence_is_longer_than_the_peer_allows_whenever_something_else_is_sent() -> None:
    world = Server(idle_timeout_s=0.0)
    world.peer.greet(open_with=Open("raw", idle_time_out=3000))
    last = world.clock.now
    for turn in range(2000):
        world.sleep(0.1)
        if turn % 37 == 0:
            world.engine.put(HEARTBEAT)
        if world.peer.hear():
            last = world.clock.now
        assert world.clock.now - last < 3.0


def test_a_peer_that_asks_for_nothing_gets_no_heartbeats() -> None:
    world = Server(idle_timeout_s=0.0)
    world.peer.greet()
    world.sleep(10_000)
    assert world.peer.hear() == []


def test_two_engines_keep_each_other_awake() -> None:
    pair = RecordedPair(client={"idle_timeout_s": 5.0}, server={"idle_timeout_s": 60.0})
    pair.begin()
    pair.tick(3600)
    assert pair.client_diary.calls("closed") == pair.server_diary.calls("closed") == []
    pair.to_client.is_held = True
    pair.tick(5.1)
    assert pair.client.closed
    assert pair.client_diary.calls("closed") == ["amqp:resource-limit-exceeded"]
    assert pair.server_diary.calls("closed") == ["amqp:resource-limit-exceeded"]


def test_a_slow_network_is_no_silence() -> None:
    pair = RecordedPair(client={"idle_timeout_s": 5.0})
    pair.to_client.delay_s = 4.0
    pair.to_server.delay_s = 4.0
    pair.tick(20)
    assert pair.client_diary.calls("opened") == ["server"]
    pair.tick(600)
    assert not pair.client.closed


def test_a_close_that_is_never_answered_ends_by_silence() -> None:
    world = Server(idle_timeout_s=10.0)
    world.peer.greet(open_with=Open("raw", idle_time_out=1000))
    world.engine.close()
    world.sleep(9)
    (close,) = world.peer.hear()
    assert close.performative == Close(), "and no heartbeat after it"
    assert world.handler.calls("closed") == []
    world.sleep(2)
    assert world.engine.closed
