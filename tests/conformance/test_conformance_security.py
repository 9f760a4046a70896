"""Part 5: the layers below AMQP, as far as they are frames."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Begin,
    Close,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.wire.amqp.sasl import SaslServer
from enmasse.wire.sasl.mechanisms import SaslCode, Verdict
from tests.conformance.clause_list import clause
from tests.conformance.server_scene import Scene, kinds


class Riddle:
    """A question with one good answer."""

    challenge = b"how many?"

    def answer(self, response: bytes) -> Verdict:
        return response == b"42"


class Door:
    """Who is admitted, and what was said."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes | None, str | None]] = []

    def authenticate(self, mechanism: str, response: bytes | None, hostname: str | None) -> Verdict:
        self.heard.append((mechanism, response, hostname))
        if mechanism == "RIDDLE":
            return Riddle()
        return response == b"\0ann\0secret"


def scene(*, is_optional: bool = False) -> tuple[Scene, Door]:
    door = Door()
    sasl = SaslServer(["PLAIN", "RIDDLE"], door.authenticate, is_optional=is_optional)
    return Scene(greets=False, sasl=sasl), door


def ask(peer: Scene) -> None:
    peer.say_bytes(SASL_HEADER)
    peer.hear()


def outcome(peer: Scene) -> int:
    return peer.hear_one(SaslOutcome).code


@clause("5.3:header", "5.3.2:server-offers", "5.3.3.1:at-least-one")
def test_the_header_is_answered_and_the_mechanisms_follow() -> None:
    peer, _ = scene()
    peer.say_bytes(SASL_HEADER)
    assert peer.hear_one(SaslMechanisms).mechanisms == ("PLAIN", "RIDDLE")
    assert peer.headers == [b"AMQP\x03\x01\x00\x00"]


@clause("5.3.2:client-chooses", "5.3.3.5:code", "5.3:then-amqp", "5.1:stacked", "5.3.3.2:hostname")
def test_after_success_amqp_begins_with_its_header() -> None:
    peer, door = scene()
    ask(peer)
    peer.say_sasl(SaslInit("PLAIN", b"\0ann\0secret", "shop.example"))
    assert outcome(peer) == 0
    assert door.heard == [("PLAIN", b"\0ann\0secret", "shop.example")]
    assert peer.headers == [SASL_HEADER]
    peer.say_bytes(AMQP_HEADER)
    peer.say(Open("c"))
    assert kinds(peer.heard()) == ["Open"]
    assert peer.headers == [SASL_HEADER, AMQP_HEADER]


@clause("5.3.2:failure-closes", "5.3.3.6:auth")
def test_after_a_failure_the_connection_is_closed() -> None:
    peer, _ = scene()
    ask(peer)
    peer.say_sasl(SaslInit("PLAIN", b"\0ann\0wrong"))
    assert outcome(peer) == int(SaslCode.AUTH)
    assert peer.engine.closed
    peer.say_bytes(AMQP_HEADER + amqp_frame(0, Open("c")))
    assert peer.hear() == []


@clause("5.3.2:only-offered")
def test_a_mechanism_that_was_not_offered_fails() -> None:
    peer, door = scene()
    ask(peer)
    peer.say_sasl(SaslInit("ANONYMOUS", b""))
    assert outcome(peer) == 1
    assert door.heard == []
    assert peer.engine.closed


@clause("5.3.3.3:challenge", "5.3.3.4:response")
@pytest.mark.parametrize(("answer", "code"), [(b"42", 0), (b"41", 1)])
def test_a_mechanism_may_ask(answer: bytes, code: int) -> None:
    peer, _ = scene()
    ask(peer)
    peer.say_sasl(SaslInit("RIDDLE"))
    assert peer.hear_one(SaslChallenge).challenge == b"how many?"
    peer.say_sasl(SaslResponse(answer))
    assert outcome(peer) == code


@clause("5.3.2:order", "5.3.3.4:response", "2.8.15:not-allowed")
@pytest.mark.parametrize(
    "frame", [SaslResponse(b"x"), SaslChallenge(b"x"), SaslMechanisms(("PLAIN",)), SaslOutcome(0)]
)
def test_a_frame_that_does_not_belong_there_ends_the_connection(frame: Any) -> None:
    peer, _ = scene()
    ask(peer)
    peer.say_sasl(frame)
    assert peer.hear_all(SaslOutcome) == []
    assert peer.engine.closed


@clause("5.3.2:order")
def test_a_second_init_ends_the_connection() -> None:
    peer, _ = scene()
    ask(peer)
    peer.say_sasl(SaslInit("RIDDLE"))
    peer.hear()
    peer.say_sasl(SaslInit("PLAIN", b"\0ann\0secret"))
    assert peer.hear_all(SaslOutcome) == []
    assert peer.engine.closed


@clause("5.3.2:no-amqp-before")
@pytest.mark.parametrize("data", [AMQP_HEADER, AMQP_HEADER + amqp_frame(0, Open("c"))])
def test_amqp_does_not_start_without_sasl_where_it_is_asked_for(data: bytes) -> None:
    peer, _ = scene()
    peer.say_bytes(data)
    assert peer.hear() == []
    assert (peer.headers, peer.engine.closed) == ([SASL_HEADER], True)


@clause("5.3.1:type", "5.3.2:no-amqp-before")
def test_an_amqp_frame_within_sasl_is_malformed() -> None:
    peer, _ = scene()
    ask(peer)
    peer.say(Open("c"))
    assert peer.engine.closed
    assert kinds(peer.heard()) in ([], ["Close"])


@clause("5.3.1:type")
def test_a_sasl_frame_within_amqp_is_malformed() -> None:
    peer, _ = scene(is_optional=True)
    peer.greet()
    peer.say_sasl(SaslInit("PLAIN"))
    assert kinds(peer.heard()) == ["Close"]


@clause("5.3.1:extended-ignored")
def test_the_rest_of_a_sasl_frames_header_is_ignored() -> None:
    peer, _ = scene()
    ask(peer)
    frame = sasl_frame(SaslInit("PLAIN", b"\0ann\0secret"))
    size = len(frame) + 4
    peer.say_bytes(size.to_bytes(4, "big") + b"\x03\x01\xab\xcd" + b"more" + frame[8:])
    assert outcome(peer) == 0


@clause("5.3.1:size")
@pytest.mark.parametrize("size", [7, 1 << 20, 0xFFFFFFFF])
def test_a_sasl_frame_has_a_bounded_size(size: int) -> None:
    peer, _ = scene()
    ask(peer)
    peer.say_bytes(size.to_bytes(4, "big") + b"\x02\x01\x00\x00")
    assert peer.engine.closed


@clause("5.3.1:pieces", "2.4.2:pipelined")
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_everything_may_come_in_any_pieces(size: int) -> None:
    peer, _ = scene()
    data = SASL_HEADER + sasl_frame(SaslInit("PLAIN", b"\0ann\0secret")) + AMQP_HEADER
    data += amqp_frame(0, Open("c")) + amqp_frame(0, Begin(None, 0, 9, 9)) + amqp_frame(0, Close())
    for at in range(0, len(data), size):
        peer.say_bytes(data[at : at + size])
    assert kinds(peer.heard()) == ["SaslMechanisms", "SaslOutcome", "Open", "Begin", "Close"]
    assert peer.headers == [SASL_HEADER, AMQP_HEADER]


@clause("5.3.2:order")
def test_sasl_happens_once() -> None:
    peer, _ = scene()
    ask(peer)
    peer.say_sasl(SaslInit("PLAIN", b"\0ann\0secret"))
    assert outcome(peer) == 0
    peer.say_bytes(SASL_HEADER)
    assert peer.hear_all(SaslMechanisms) == []
    assert peer.engine.closed
