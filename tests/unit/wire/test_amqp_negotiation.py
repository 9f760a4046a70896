"""Protocol headers, SASL and open: how two engines, or an engine and a stranger, meet."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import LocalError
from enmasse.message.outcomes import AmqpError
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER
from enmasse.wire.amqp.performatives import (
    Begin,
    Close,
    Composite,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.sasl.mechanisms import Anonymous, Plain, plain_credentials
from tests.support.raw_peer import RawPeer

TLS_HEADER = b"AMQP\x02\x01\x00\x00"


def server(sasl: SaslServer | None = None, **options: Any) -> tuple[RawPeer, Recorder]:
    handler = Recorder()
    return RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0, sasl=sasl, **options)), handler


def anonymous(*, is_optional: bool = False) -> SaslServer:
    return SaslServer(["ANONYMOUS"], lambda *_: True, is_optional=is_optional)


def admit(mechanism: str, response: bytes, hostname: str | None) -> bool:
    return mechanism == "PLAIN" and plain_credentials(response) == ("ann", "secret") and hostname in (None, "space")


def meet(client_sasl: SaslClient | None, server_sasl: SaslServer | None) -> tuple[EnginePair, Recorder, Recorder]:
    ours, theirs = Recorder(), Recorder()
    pair = EnginePair(
        Connection(ours, container_id="c", is_server=False, now=0.0, sasl=client_sasl),
        Connection(theirs, container_id="s", is_server=True, now=0.0, sasl=server_sasl),
    )
    pair.pump()
    return pair, ours, theirs


@pytest.mark.parametrize("with_sasl", [False, True])
def test_two_engines_open(with_sasl: bool) -> None:
    pair = RecordedPair(with_sasl=with_sasl)
    pair.pump()
    assert pair.client_diary.diary == [("opened", "server")]
    assert pair.server_diary.diary == [("opened", "client")]
    assert not pair.client.closed


def test_open_carries_what_each_side_tells_of_itself() -> None:
    pair = RecordedPair(
        client={"hostname": "orders.shop", "properties": {"product": "test"}, "desired_capabilities": ("a", "b")},
        server={"max_frame_size": 4096, "offered_capabilities": ("a",), "idle_timeout_s": 20.0},
    )
    pair.pump()
    asked, answered = pair.server_diary.remote_open, pair.client_diary.remote_open
    assert asked is not None
    assert answered is not None
    assert (asked.hostname, asked.properties, asked.desired_capabilities) == (
        "orders.shop",
        {"product": "test"},
        ("a", "b"),
    )
    assert (answered.max_frame_size, answered.offered_capabilities) == (4096, ("a",))
    assert answered.idle_time_out == 10_000, "the peer is told half of what we wait"


@pytest.mark.parametrize(
    "header",
    [TLS_HEADER, b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x02\x00\x00", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00"],
)
def test_a_foreign_header_is_answered_with_ours(header: bytes) -> None:
    for sasl, wanted in ((None, AMQP_HEADER), (anonymous(), SASL_HEADER)):
        peer, handler = server(sasl)
        peer.say_bytes(header)
        assert peer.hear() == []
        assert peer.headers == [wanted]
        assert peer.engine.closed
        assert handler.calls("closed") == ["amqp:connection:framing-error"]


@pytest.mark.parametrize("start", [b"G", b"AMX", b"\x00", b"amqp"])
def test_a_foreign_header_is_told_by_its_first_wrong_byte(start: bytes) -> None:
    peer, _ = server()
    peer.say_bytes(start)
    assert peer.engine.closed


@pytest.mark.parametrize("size", range(1, 8))
def test_a_header_may_come_in_pieces(size: int) -> None:
    peer, _ = server()
    peer.say_bytes(AMQP_HEADER[:size])
    assert not peer.engine.closed
    peer.say_bytes(AMQP_HEADER[size:])
    peer.hear()
    assert peer.headers == [AMQP_HEADER]


def test_without_sasl_a_server_refuses_the_sasl_header() -> None:
    peer, _ = server()
    peer.say_bytes(SASL_HEADER)
    peer.hear()
    assert peer.headers == [AMQP_HEADER]
    assert peer.engine.closed


def test_where_sasl_is_required_nobody_gets_past_it() -> None:
    peer, handler = server(anonymous())
    peer.say_bytes(AMQP_HEADER)
    peer.say(Open("raw"))
    peer.hear()
    assert peer.headers == [SASL_HEADER]
    assert peer.engine.closed
    assert handler.calls("opened") == []


def test_where_sasl_is_optional_it_may_be_left_out() -> None:
    peer, handler = server(anonymous(is_optional=True))
    peer.greet()
    assert handler.calls("opened") == ["raw"]
    peer, handler = server(anonymous(is_optional=True))
    peer.say_bytes(SASL_HEADER)
    assert isinstance(peer.hear()[0].performative, SaslMechanisms)


def test_sasl_runs_only_once() -> None:
    peer, _ = server(anonymous())
    peer.say_bytes(SASL_HEADER)
    peer.say_sasl(SaslInit("ANONYMOUS"))
    peer.say_bytes(SASL_HEADER)
    assert peer.engine.closed


def test_plain_lets_the_right_password_in() -> None:
    sasl = SaslServer(["ANONYMOUS", "PLAIN"], admit, is_optional=False)
    pair, ours, theirs = meet(SaslClient([Plain("ann", "secret")], "space"), sasl)
    assert ours.calls("opened") == ["s"]
    assert theirs.calls("opened") == ["c"]
    assert not pair.server.closed


@pytest.mark.parametrize(
    ("mechanism", "hostname"),
    [(Plain("ann", "wrong"), None), (Plain("bob", "secret"), None), (Plain("ann", "secret"), "elsewhere")],
)
def test_plain_keeps_others_out(mechanism: Plain, hostname: str | None) -> None:
    pair, ours, theirs = meet(SaslClient([mechanism], hostname), SaslServer(["PLAIN"], admit, is_optional=False))
    for engine, diary in ((pair.client, ours), (pair.server, theirs)):
        assert engine.closed
        assert diary.calls("opened") == []
        assert diary.calls("closed") == ["amqp:unauthorized-access"]


def test_the_client_takes_the_first_mechanism_that_both_know() -> None:
    seen: list[str] = []

    def note(mechanism: str, _response: bytes, _hostname: str | None) -> bool:
        seen.append(mechanism)
        return True

    meet(SaslClient([Plain("u", "p"), Anonymous()]), SaslServer(["ANONYMOUS", "PLAIN"], note, is_optional=False))
    meet(SaslClient([Plain("u", "p"), Anonymous()]), SaslServer(["ANONYMOUS"], note, is_optional=False))
    assert seen == ["PLAIN", "ANONYMOUS"]


def test_without_a_common_mechanism_the_client_leaves_and_says_why() -> None:
    pair, ours, _ = meet(SaslClient([Plain("u", "p")]), anonymous())
    assert pair.client.closed
    assert ours.error is not None
    assert ours.error.description == "the server offers ANONYMOUS"


def test_a_mechanism_that_was_not_offered_fails_without_asking() -> None:
    peer, _ = server(SaslServer(["PLAIN"], lambda *_: True, is_optional=False))
    peer.say_bytes(SASL_HEADER)
    peer.say_sasl(SaslInit("ANONYMOUS"))
    _, outcome = peer.hear()
    assert outcome.performative == SaslOutcome(1)
    assert peer.engine.closed


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"\0u\0p", ("u", "p")),
        (b"other\0u\0p", None),
        (b"u\0u\0p", ("u", "p")),
        ("\0\u00e9\0\u00fc".encode(), ("\u00e9", "\u00fc")),
        (b"", None),
        (b"u\0p", None),
        (b"\0u\0p\0", None),
        (b"\0\xff\0p", None),
    ],
)
def test_plain_responses_are_read(response: bytes, expected: tuple[str, str] | None) -> None:
    assert plain_credentials(response) == expected


@pytest.mark.parametrize(
    "performative", [SaslMechanisms(("A",)), SaslChallenge(b"x"), SaslResponse(b"x"), SaslOutcome(0), Open("c")]
)
def test_a_server_takes_nothing_but_init_in_sasl(performative: Composite) -> None:
    peer, handler = server(anonymous())
    peer.say_bytes(SASL_HEADER)
    peer.say_sasl(performative)
    assert peer.engine.closed
    assert handler.calls("closed") == ["amqp:not-allowed"]


@pytest.mark.parametrize("performative", [SaslInit("A"), SaslResponse(b"x"), SaslChallenge(b"x"), Begin()])
def test_a_client_takes_nothing_but_mechanisms_and_outcome(performative: Composite) -> None:
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="c", is_server=False, now=0.0, sasl=SaslClient([Anonymous()])))
    peer.hear()
    peer.say_bytes(SASL_HEADER)
    peer.say_sasl(performative)
    assert handler.calls("closed") == ["amqp:not-allowed"]


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        ("00000007 02 01 0000", "amqp:connection:framing-error"),
        ("ffffffff 02 01 0000", "amqp:connection:framing-error"),
        ("00004001 02 01 0000", "amqp:connection:framing-error"),
        ("00000010 02 00 0000 0000000000000000", "amqp:connection:framing-error"),
        ("00000010 01 01 0000 0000000000000000", "amqp:connection:framing-error"),
        ("00000010 05 01 0000 0000000000000000", "amqp:connection:framing-error"),
        ("00000008 02 01 0000", "amqp:decode-error"),
        ("0000000c 02 01 0000 00534145", "amqp:decode-error"),
        ("0000000c 02 01 0000 ffffffff", "amqp:decode-error"),
    ],
)
def test_broken_sasl_frames_end_the_connection(data: str, condition: str) -> None:
    peer, handler = server(anonymous())
    peer.say_bytes(SASL_HEADER)
    peer.hear()
    peer.say_bytes(bytes.fromhex(data))
    assert peer.engine.closed
    assert handler.calls("closed") == [condition]
    assert peer.hear() == [], "before open there is no frame to say it in"


def test_a_client_hangs_up_on_a_server_that_wants_something_else() -> None:
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="c", is_server=False, now=0.0))
    peer.say_bytes(SASL_HEADER)
    assert peer.engine.closed
    peer.hear()
    assert peer.headers == [AMQP_HEADER], "the client has spoken first and has nothing to add"


def test_a_server_may_refuse_an_open_by_a_close_behind_its_own() -> None:
    peer, handler = server()
    handler.opens = False
    peer.say_bytes(AMQP_HEADER)
    peer.say(Open("raw"))
    assert peer.hear() == []
    peer.engine.close(AmqpError("amqp:not-found", "no such space"))
    opened, closed = peer.hear()
    assert isinstance(opened.performative, Open)
    assert closed.performative == Close(AmqpError("amqp:not-found", "no such space"))
    peer.say(Close())
    assert handler.calls("closed") == ["amqp:not-found"]


def test_a_second_open_is_a_breach() -> None:
    peer, _ = server()
    peer.greet()
    peer.say(Open("raw"))
    close = peer.hear_one(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:not-allowed"


@pytest.mark.parametrize("performative", [Begin(), Close()])
def test_nothing_goes_before_open(performative: Composite) -> None:
    peer, handler = server()
    peer.say_bytes(AMQP_HEADER)
    peer.say(performative)
    assert handler.calls("closed") == ["amqp:not-allowed"]
    frames = [frame.performative for frame in peer.hear()]
    assert [type(item) for item in frames] == [Open, Close]


@pytest.mark.parametrize(
    "remote", [Open("raw", max_frame_size=511), Open("raw", max_frame_size=0), Open("raw", idle_time_out=1)]
)
def test_limits_that_cannot_be_kept_are_refused(remote: Open) -> None:
    peer, handler = server()
    peer.say_bytes(AMQP_HEADER)
    peer.say(remote)
    assert handler.calls("closed") == ["amqp:invalid-field"]


def test_commands_out_of_order_are_our_own_errors() -> None:
    handler = Recorder()
    client = Connection(handler, container_id="c", is_server=False, now=0.0, sasl=SaslClient([Anonymous()]))
    with pytest.raises(LocalError, match="not open yet"):
        client.begin()
    plain = Connection(handler, container_id="c", is_server=False, now=0.0)
    with pytest.raises(LocalError, match="open already"):
        plain.open()
    plain.close()
    with pytest.raises(LocalError, match="closed"):
        plain.begin()


def test_a_client_may_pipeline_everything_behind_its_header() -> None:
    peer, handler = server()
    peer.engine.wake = lambda _connection: None
    stranger = Connection(Recorder(), container_id="c", is_server=False, now=0.0)
    session = stranger.begin()
    session.attach_sender("l", None, None)
    peer.say_bytes(b"".join(stranger.pending_output()))
    assert [name for name, _ in handler.diary] == ["opened", "begun", "attach"]
