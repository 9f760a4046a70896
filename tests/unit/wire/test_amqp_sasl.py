"""SASL with questions: both sides in memory, and peers that never come to an end."""

from __future__ import annotations

import hmac

import pytest

from enmasse.errors import RemoteError
from enmasse.message.composites import decode_composite
from enmasse.pending import Pending
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Composite,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.sasl.mechanisms import (
    Admitted,
    Anonymous,
    ClientMechanism,
    External,
    OAuthBearer,
    Plain,
    SaslCode,
    Verdict,
    XOAuth2,
    password_mechanisms,
)
from enmasse.wire.sasl.scram import Scram


class Riddle:
    """Asks until it is told the answer."""

    challenge = b"what?"

    def answer(self, response: bytes) -> Verdict:
        if response == b"bad":
            raise RemoteError("amqp:unauthorized-access", "that is no answer")
        return self if response == b"more" else response == b"42"


def spoken(frames: list[bytes]) -> list[Composite]:
    return [decode_composite(frame, 8, len(frame))[0] for frame in frames]


def riddle(*, mechanisms: tuple[str, ...] = ("RIDDLE",)) -> SaslServer:
    server = SaslServer(mechanisms, lambda *_: Riddle(), is_optional=False)
    assert spoken(server.begin()) == [SaslMechanisms(mechanisms)]
    return server


@pytest.mark.parametrize(("response", "code"), [(b"42", 0), (b"41", 1), (b"bad", 1)])
def test_a_server_may_ask_before_it_decides(response: bytes, code: int) -> None:
    server = riddle()
    assert spoken(server.receive(SaslInit("RIDDLE"))) == [SaslChallenge(b"what?")]
    assert spoken(server.receive(SaslResponse(b"more"))) == [SaslChallenge(b"what?")]
    assert spoken(server.receive(SaslResponse(response))) == [SaslOutcome(code)]
    assert server.is_done
    assert (server.error is None) == (code == 0)


def test_what_a_mechanism_says_last_comes_with_the_outcome() -> None:
    server = SaslServer(["RIDDLE"], lambda *_: Admitted(b"well done"), is_optional=False)
    assert spoken(server.receive(SaslInit("RIDDLE"))) == [SaslOutcome(0, b"well done")]
    assert server.is_done
    assert server.error is None


def test_a_server_does_not_ask_for_ever() -> None:
    server = riddle()
    heard = spoken(server.receive(SaslInit("RIDDLE")))
    while heard == [SaslChallenge(b"what?")]:
        heard = spoken(server.receive(SaslResponse(b"more")))
    assert heard == [SaslOutcome(2)]
    assert server.error is not None


@pytest.mark.parametrize("frame", [SaslInit("RIDDLE"), SaslOutcome(0), SaslChallenge(b"")])
def test_a_question_wants_a_response(frame: Composite) -> None:
    server = riddle()
    server.receive(SaslInit("RIDDLE"))
    with pytest.raises(RemoteError, match="sasl-response"):
        server.receive(frame)


def test_a_server_that_is_overloaded_says_so() -> None:
    server = SaslServer(["PLAIN"], lambda *_: SaslCode.SYS_TEMP, is_optional=False)
    frames = spoken(server.receive(SaslInit("PLAIN")))
    assert frames == [SaslOutcome(4)]
    client = SaslClient([Plain("u", "p")])
    client.receive(SaslMechanisms(("PLAIN",)))
    assert isinstance(frames[0], SaslOutcome)
    client.receive(frames[0])
    assert (client.code, client.error) == (
        SaslCode.SYS_TEMP,
        "the server cannot authenticate anybody now; try again later",
    )


def test_a_client_does_not_answer_for_ever() -> None:
    client = SaslClient([OAuthBearer("token")])
    client.receive(SaslMechanisms(("OAUTHBEARER",)))
    for _ in range(8):
        assert spoken(client.receive(SaslChallenge(b"{}"))) == [SaslResponse(b"\x01")]
    with pytest.raises(RemoteError, match="does not stop"):
        client.receive(SaslChallenge(b"{}"))


@pytest.mark.parametrize("frame", [SaslChallenge(b""), SaslOutcome(0), SaslInit("A"), SaslResponse(b"")])
def test_a_server_that_does_not_begin_with_mechanisms_is_left(frame: Composite) -> None:
    with pytest.raises(RemoteError, match="from a server"):
        SaslClient([Anonymous()]).receive(frame)


def test_mechanisms_are_told_once() -> None:
    client = SaslClient([Anonymous()])
    client.receive(SaslMechanisms(("ANONYMOUS",)))
    with pytest.raises(RemoteError, match="from a server"):
        client.receive(SaslMechanisms(("ANONYMOUS",)))


@pytest.mark.parametrize("mechanism", [Anonymous(), Plain("u", "p"), External()])
def test_who_has_said_everything_answers_no_question(mechanism: ClientMechanism) -> None:
    client = SaslClient([mechanism])
    client.receive(SaslMechanisms((mechanism.name,)))
    with pytest.raises(RemoteError, match="a question that"):
        client.receive(SaslChallenge(b""))


@pytest.mark.parametrize("data", [None, b"", b"v=AAAA", b"e=other-error"])
def test_a_server_that_cannot_prove_itself_is_not_trusted(data: bytes | None) -> None:
    client = SaslClient([Scram("SCRAM-SHA-256", "u", "p", lambda: "n")])
    client.receive(SaslMechanisms(("SCRAM-SHA-256",)))
    client.receive(SaslChallenge(b"r=n1,s=c2FsdA==,i=4096"))
    client.receive(SaslOutcome(0, data))
    assert client.is_done
    assert client.error is not None


def test_initial_responses() -> None:
    for mechanism, response in (
        (Anonymous(), b"anonymous"),
        (Plain("j\u00f6", "p"), b"\0j\xc3\xb6\0p"),
        (External(), b""),
        (External("jo"), b"jo"),
        (XOAuth2("jo", "abc"), b"user=jo\x01auth=Bearer abc\x01\x01"),
        (OAuthBearer("abc"), b"n,,\x01auth=Bearer abc\x01\x01"),
        # RFC 7628 4.1
        (
            OAuthBearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", "user@example.com", "server.example.com", 143),
            (
                b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
                b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
            ),
        ),
        (OAuthBearer("abc", "a,b=c"), b"n,a=a=2Cb=3Dc,\x01auth=Bearer abc\x01\x01"),
    ):
        assert mechanism.response() == response


def test_why_a_token_was_refused_is_kept() -> None:
    mechanism = OAuthBearer("abc")
    assert mechanism.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert mechanism.reason == '{"status":"invalid_token"}'


@pytest.mark.parametrize("with_plain", [True, False])
def test_a_password_goes_the_safest_way_that_the_server_knows(with_plain: bool) -> None:
    names = [m.name for m in password_mechanisms("u", "p", lambda: "n", with_plain=with_plain)]
    assert names == ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"] + ["PLAIN"] * with_plain


def test_comparison_takes_the_same_time_for_every_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    client = Scram("SCRAM-SHA-256", "u", "p", lambda: "n")
    client.response()
    client.answer(b"r=n1,s=c2FsdA==,i=4096")
    with pytest.raises(RemoteError):
        client.answer(b"v=AAAA")
    assert len(seen) == 1


class Asking:
    """Both ends of a connection; who may come in is decided elsewhere."""

    def __init__(self) -> None:
        self.verdict: Pending[Verdict] = Pending()
        sasl = SaslServer(["PLAIN"], lambda *_: self.verdict, is_optional=False)
        self.handler = Recorder()
        self.server = Connection(self.handler, container_id="node", sasl=sasl, is_server=True, now=0.0)

    def say(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.server.receive(chunk, 0.0)

    def said(self) -> bytes:
        return b"".join(self.server.pending_output())

    def is_held(self) -> bool:
        """A call, as it changes behind the type checker's back."""
        return self.server.is_held

    def came_in(self) -> bool:
        return ("opened", "client") in self.handler.diary


INIT = SASL_HEADER + sasl_frame(SaslInit("PLAIN", b"\0u\0p"))
OPEN = AMQP_HEADER + amqp_frame(0, Open(container_id="client"))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_a_client_says_before_a_late_verdict_is_understood_after_it(size: int) -> None:
    asking = Asking()
    asking.say(INIT)
    assert asking.is_held(), "its bytes stay in the socket meanwhile"
    asking.say(*(OPEN[at : at + size] for at in range(0, len(OPEN), size)))
    asking.said()
    assert not asking.came_in()
    asking.verdict.settle(True)
    assert asking.came_in()
    assert asking.said().startswith(sasl_frame(SaslOutcome(0)) + AMQP_HEADER)
    assert not asking.is_held()
    asking.verdict.settle(False)
    assert not asking.server.closed, "what is said twice counts once"


@pytest.mark.parametrize(("verdict", "code"), [(False, 1), (SaslCode.SYS_TEMP, 4)])
def test_a_late_refusal_ends_the_connection(verdict: Verdict, code: int) -> None:
    asking = Asking()
    asking.say(INIT, OPEN)
    asking.verdict.settle(verdict)
    assert asking.said().endswith(sasl_frame(SaslOutcome(code)))
    assert asking.server.closed
    assert not asking.came_in()


def test_a_verdict_for_a_client_that_has_gone_is_nothing() -> None:
    asking = Asking()
    asking.say(INIT)
    asking.server.lost()
    asking.said()
    asking.verdict.settle(True)
    assert asking.said() == b""
    assert not asking.came_in()


def test_a_verdict_may_wait_for_another_one_and_be_known_already() -> None:
    asking, inner = Asking(), Pending[Verdict]()
    asking.say(INIT)
    asking.verdict.settle(inner.map(lambda verdict: verdict))
    assert asking.is_held()
    inner.settle(True)
    asking.say(OPEN)
    assert asking.came_in()
    known = Asking()
    known.verdict.settle(True)
    known.say(INIT, OPEN)
    assert known.came_in()
