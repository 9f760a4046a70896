"""SASL: who the peer is, before the first AMQP frame [AMQP 5.3].

Both sides are one object each, fed with decoded frames, that answer with frames to send. Mechanisms and
verdicts are those of ``wire.sasl``; what a server asks is up to the owner of the users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enmasse.pending import Pending
from enmasse.wire.amqp.errors import RemoteError
from enmasse.wire.amqp.framing import sasl_frame
from enmasse.wire.amqp.performatives import (
    Composite,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.wire.sasl.mechanisms import Admitted, ClientMechanism, Question, SaslCode, Verdict

MAX_QUESTIONS = 8
"""No mechanism asks more often; who does keeps the other side busy for nothing."""


def _nobody(_frames: list[bytes]) -> None:
    """Nobody waits for frames."""


class SaslServer:
    """The server's side.

    Args:
        mechanisms: the mechanisms that are offered.
        authenticate: given (mechanism, initial response, hostname) says whether the peer may come in, or
            what it has to answer first. A ``RemoteError`` is a refusal.
        is_optional: whether a peer may leave SASL out.

    Attributes:
        is_waiting: whether the verdict is not known yet; nothing may be received until it is.
        resume: is given what to send once a verdict that was waited for is known.
    """

    __slots__ = (
        "_asked", "_authenticate", "_question", "error", "is_done", "is_optional", "is_waiting", "mechanisms",
        "resume",
    )  # fmt: skip

    def __init__(
        self,
        mechanisms: Sequence[str],
        authenticate: Callable[[str, bytes, str | None], Verdict],
        *,
        is_optional: bool,
    ) -> None:
        self.mechanisms = tuple(mechanisms)
        self.is_optional = is_optional
        self.is_done = False
        self.is_waiting = False
        self.resume: Callable[[list[bytes]], None] = _nobody
        self.error: str | None = None
        self._authenticate = authenticate
        self._question: Question | None = None
        self._asked = 0

    def begin(self) -> list[bytes]:
        """Return the frames to send first."""
        return [sasl_frame(SaslMechanisms(self.mechanisms))]

    def receive(self, frame: Composite) -> list[bytes]:
        """Return the frames to send after a frame of the peer.

        Raises:
            RemoteError: the frame does not belong here.
        """
        question = self._question
        wanted = SaslInit if question is None else SaslResponse
        if not isinstance(frame, wanted):
            raise RemoteError("amqp:not-allowed", f"{frame.SYMBOL} where {wanted.SYMBOL} was expected")
        verdict: Verdict = False
        try:
            if isinstance(frame, SaslResponse):
                assert question is not None
                verdict = question.answer(frame.response)
            elif isinstance(frame, SaslInit) and frame.mechanism in self.mechanisms:
                verdict = self._authenticate(frame.mechanism, frame.initial_response or b"", frame.hostname)
        except RemoteError as error:
            return self._end(SaslCode.AUTH, error.description)
        return self._follow(verdict)

    def _follow(self, verdict: Verdict) -> list[bytes]:
        """Return the frames to send after a verdict; none while it is not known."""
        while isinstance(verdict, Pending):
            if verdict.answer is None:
                self.is_waiting = True
                verdict.then(self._go_on)
                return []
            (verdict,) = verdict.answer
        if isinstance(verdict, int):
            # True and False are numbers too, but not the codes.
            code = verdict if isinstance(verdict, SaslCode) else (SaslCode.OK if verdict else SaslCode.AUTH)
            return self._end(code, "authentication failed")
        if isinstance(verdict, Admitted):
            return self._end(SaslCode.OK, "", verdict.additional_data)
        self._asked += 1
        if self._asked > MAX_QUESTIONS:
            return self._end(SaslCode.SYS, "authentication has not come to an end")
        self._question = verdict
        return [sasl_frame(SaslChallenge(verdict.challenge))]

    def _go_on(self, verdict: Verdict) -> None:
        self.is_waiting = False
        self.resume(self._follow(verdict))

    def _end(self, code: SaslCode, reason: str, additional_data: bytes | None = None) -> list[bytes]:
        self.is_done = True
        self._question = None
        if code is not SaslCode.OK:
            self.error = reason
        return [sasl_frame(SaslOutcome(int(code), additional_data))]


class SaslClient:
    """The client's side.

    Args:
        mechanisms: the mechanisms that the client knows, the best first.
        hostname: the host, and so the space, that it wants.

    Attributes:
        mechanism: the mechanism that was chosen, once the server has said what it offers.
        code: the code with which the server has ended it; nothing before, or if it never came to that.
    """

    is_optional = False

    def __init__(self, mechanisms: Sequence[ClientMechanism], hostname: str | None = None) -> None:
        self.is_done = False
        self.error: str | None = None
        self.mechanism: ClientMechanism | None = None
        self.code: SaslCode | None = None
        self._mechanisms = mechanisms
        self._hostname = hostname
        self._answered = 0

    def begin(self) -> list[bytes]:
        """The server speaks first."""
        return []

    def receive(self, frame: Composite) -> list[bytes]:
        """Return the frames to send after a frame of the peer.

        Raises:
            RemoteError: the frame does not belong here, or the server does not prove what it has to.
        """
        if isinstance(frame, SaslMechanisms) and self.mechanism is None:
            return self._choose(frame.mechanisms)
        if isinstance(frame, SaslChallenge) and self.mechanism is not None:
            self._answered += 1
            if self._answered > MAX_QUESTIONS:
                raise RemoteError("amqp:not-allowed", "the server does not stop to ask")
            return [sasl_frame(SaslResponse(self.mechanism.answer(frame.challenge)))]
        if isinstance(frame, SaslOutcome) and self.mechanism is not None:
            self._end(frame)
            return []
        raise RemoteError("amqp:not-allowed", f"{frame.SYMBOL} from a server")

    def _choose(self, offered: Sequence[str]) -> list[bytes]:
        for mechanism in self._mechanisms:
            if mechanism.name in offered:
                self.mechanism = mechanism
                return [sasl_frame(SaslInit(mechanism.name, mechanism.response(), self._hostname))]
        self.is_done = True
        self.error = f"the server offers {', '.join(offered) or 'no mechanism'}"
        return []

    def _end(self, outcome: SaslOutcome) -> None:
        assert self.mechanism is not None
        self.is_done = True
        self.code = SaslCode(outcome.code) if outcome.code <= SaslCode.SYS_TEMP else SaslCode.SYS
        if self.code is SaslCode.OK:
            try:
                self.mechanism.finish(outcome.additional_data)
            except RemoteError as error:
                self.error = error.description
        elif self.code is SaslCode.AUTH:
            self.error = "the server refused the credentials"
        else:
            self.error = "the server cannot authenticate anybody now; try again later"
