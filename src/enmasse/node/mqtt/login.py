"""The login of a client of MQTT: by user and password, token, certificate, or an exchange of SASL.

Rules:
1. A password that looks like a JSON web token is one, so that any client can log in with a token.
2. Credentials in the clear are taken from this machine alone, unless the operator allows others, too.
3. Enhanced authentication is SASL [MQTT 5.0, 4.12]: its methods are the mechanisms that the node offers.
4. A client that authenticates again stays the user that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from enmasse.identity.login import NAME_THE_SPACE
from enmasse.node.users.authentication import IN_THE_CLEAR
from enmasse.pending import Pending
from enmasse.wire.mqtt.packets import Auth, Connect, Reason
from enmasse.wire.sasl.mechanisms import Admitted, SaslCode, Verdict

if TYPE_CHECKING:
    from enmasse.node.users.admission import Admission


NOT_GOOD: Final = "user name or password is wrong"


class Refusal(Exception):  # noqa: N818  it is an outcome, and no fault
    """The client is not admitted.

    Attributes:
        reason: the reason code.
        text: the reason for the client.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


Decided = Callable[[Refusal | bytes | None], None]
"""Called with a refusal; or with the last data of the exchange, if there is any, as the client is admitted."""


class Login:
    """One login.

    Args:
        admission: the admission of the connection.
        ask: sends the client a challenge.
        decided: called at the end.
    """

    __slots__ = ("_admission", "_ask", "_decided", "_is_plain", "_question")

    def __init__(self, admission: Admission, ask: Callable[[bytes], None], decided: Decided) -> None:
        self._admission = admission
        self._ask = ask
        self._decided = decided
        self._is_plain = False
        """True if the client has sent a password or a token as it is."""
        self._question: Any = None

    def begin(self, connect: Connect) -> None:
        """Take a client's CONNECT."""
        if connect.authentication_method is not None:
            self.exchange(connect.authentication_method, connect.authentication_data)
            return
        admission = self._admission
        user, secret = connect.user_name or "", connect.password
        if secret is not None:
            self._is_plain = True
            password = secret.decode(errors="surrogateescape")
            if _is_token(password):
                self._judge(admission.token(user, password))
            else:
                self._judge(admission.login(user, password))
        elif admission.has_certificate:
            self._judge(admission.certificate(user))
        elif user:
            self._judge(admission.login(user, ""))
        else:
            # Without credentials a client may enter open spaces.
            self._judge(True)

    def exchange(self, method: str, data: bytes | None) -> None:
        """Begin an exchange of SASL."""
        if method not in self._admission.offer()[0]:
            self._decided(Refusal(Reason.BAD_AUTHENTICATION_METHOD, f"the method {method!r:.60} is not offered here"))
            return
        self._judge(self._admission.authenticate(method, data or b"", None))

    def answer(self, auth: Auth) -> None:
        """Take the client's answer to a challenge."""
        question, self._question = self._question, None
        if question is None:
            self._decided(Refusal(Reason.PROTOCOL_ERROR, "no challenge waits for an answer"))
        else:
            self._judge(question.answer(auth.data or b""))

    def _judge(self, verdict: Verdict) -> None:
        if isinstance(verdict, Pending):
            verdict.then(self._judge)
        elif isinstance(verdict, Admitted):
            self._decided(verdict.additional_data)
        elif verdict is True:
            self._decided(None)
        elif verdict is SaslCode.SYS_TEMP:
            self._decided(Refusal(Reason.SERVER_BUSY, "the login cannot be checked now: try again later"))
        elif isinstance(verdict, int):
            is_readable = self._is_plain and not self._admission.is_private
            wrong = NAME_THE_SPACE if self._admission.names_no_space else NOT_GOOD
            text = f"{IN_THE_CLEAR}, or log in by SCRAM" if is_readable else wrong
            self._decided(Refusal(Reason.BAD_USER_NAME_OR_PASSWORD, text))
        else:
            self._question = verdict
            self._ask(verdict.challenge)


def _is_token(password: str) -> bool:
    """Return true if a password is a JSON web token by its looks: the base64 of an object, and two dots."""
    return password.startswith("eyJ") and password.count(".") == 2 and password.isascii()
