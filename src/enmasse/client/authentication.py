"""Who we say that we are: which SASL mechanisms to use at a place, the best first."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from enmasse.client.options import Options
from enmasse.client.tls import has_certificate
from enmasse.client.url import Url
from enmasse.wire.amqp.performatives import Performative, SaslMechanisms
from enmasse.wire.amqp.sasl import Anonymous, ClientMechanism, External, OAuthBearer, SaslClient, SaslCode, XOAuth2
from enmasse.wire.amqp.sasl_mechanisms import password_mechanisms

__all__ = ["Authentication"]

GIVE = "give user= and password=, or a certificate in TlsOptions"


class Authentication(SaslClient):
    """The client's side of SASL for one carrier.

    A password or a token never leaves this machine in the clear unless that was allowed: what would show it
    is left out on plain TCP. Whoever gave a user is never let in as nobody.
    """

    def __init__(self, options: Options, url: Url) -> None:
        self._is_tapped = not (url.is_tls or url.path or options.allow_insecure_plain)
        self._usable = _mechanisms(options, url, with_secrets=not self._is_tapped)
        self._is_known = options.user is not None or url.user is not None or options.token is not None
        self.hostname = url.hostname or options.hostname or url.host or None
        """The host, and so the space, that is asked for."""
        super().__init__(self._usable, self.hostname)

    @property
    def is_passing(self) -> bool:
        """Whether the server refused for reasons of its own, which have nothing to do with us."""
        return self.code in (SaslCode.SYS, SaslCode.SYS_PERM, SaslCode.SYS_TEMP)

    def receive(self, frame: Performative) -> list[bytes]:
        """What to send after a frame of the peer; see ``SaslClient``."""
        answer = super().receive(frame)
        if isinstance(frame, SaslMechanisms) and self.error is not None:
            self.error = self._explain(frame.mechanisms)
        elif self.code is SaslCode.AUTH and self.mechanism is not None:
            self.error = f"the server refused the credentials ({self.mechanism.name})"
            if self.mechanism.name == "ANONYMOUS":
                self.error = f"the server lets nobody in without a name: {GIVE}"
        return answer

    def _explain(self, offered: Sequence[str]) -> str:
        """Why nothing of what the server offers will do."""
        offers = f"the server offers {', '.join(offered) or 'no mechanism'}"
        showing = [name for name in ("PLAIN", "OAUTHBEARER", "XOAUTH2") if name in offered]
        if showing and self._is_known and self._is_tapped:
            return (
                f"{offers}, and {showing[0]} would show your secret to the network: use an amqps:// URL"
                " (or allow_insecure_plain=True where the network is safe)"
            )
        if not self._is_known:
            return f"{offers}: {GIVE}"
        names = [mechanism.name for mechanism in self._usable]
        return f"{offers}, and none of {', '.join(names) or 'what was asked for'}"


def _mechanisms(options: Options, url: Url, *, with_secrets: bool) -> list[ClientMechanism]:
    """What we can do at a place, the best first.

    Args:
        options: who we are.
        url: where that is asked; it may name another user.
        with_secrets: whether a password or token may be sent as it is.
    """
    user = options.user if options.user is not None else url.user
    password = (options.password if options.password is not None else url.password) or ""
    token = options.token() if callable(options.token) else options.token
    asked = options.sasl
    found: list[ClientMechanism] = []
    if has_certificate(options.tls) or asked is not None:
        found.append(External())
    if token is not None and with_secrets:
        found.append(OAuthBearer(token, user or "", url.host, url.port))
        if user is not None:
            found.append(XOAuth2(user, token))
    if user is not None and token is None:
        found += password_mechanisms(user, password, secrets.token_urlsafe, with_plain=with_secrets)
    if asked is None:
        if user is None and token is None:
            found.append(Anonymous())
        return found
    found.append(Anonymous())
    by_name = {mechanism.name: mechanism for mechanism in found}
    return [by_name[name] for name in asked if name in by_name]
