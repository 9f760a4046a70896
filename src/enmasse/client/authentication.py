"""Who we say that we are: which SASL mechanisms to use at a place, the best first."""

from __future__ import annotations

from enmasse.client.options import Options
from enmasse.client.tls import has_certificate
from enmasse.client.url import Url
from enmasse.wire.amqp.performatives import Performative, SaslMechanisms
from enmasse.wire.amqp.sasl import Anonymous, ClientMechanism, Plain, SaslClient

__all__ = ["Authentication"]


class Authentication(SaslClient):
    """The client's side of SASL for one carrier.

    A password never leaves this machine in the clear unless that was allowed: PLAIN is left out on
    plain TCP. Whoever gave a user is never let in as nobody.
    """

    def __init__(self, options: Options, url: Url) -> None:
        self._url = url
        self._is_open_to_all = not (url.is_tls or url.path)
        self._mechanisms = _mechanisms(options, url, with_plain=self._may_show_password(options))
        self.hostname = url.hostname or options.hostname or url.host or None
        """The host, and so the space, that is asked for."""
        super().__init__(self._mechanisms, self.hostname)

    def _may_show_password(self, options: Options) -> bool:
        return options.allow_insecure_plain or not self._is_open_to_all

    def receive(self, frame: Performative) -> list[bytes]:
        """What to send after a frame of the peer; see ``SaslClient``."""
        answer = super().receive(frame)
        if isinstance(frame, SaslMechanisms) and self.error is not None:
            self.error = self._explain(frame.mechanisms)
        return answer

    def _explain(self, offered: tuple[str, ...]) -> str:
        """Why nothing of what the server offers will do."""
        offers = f"the server offers {', '.join(offered) or 'no mechanism'}"
        names = [mechanism.name for mechanism in self._mechanisms]
        if "PLAIN" in offered and names != ["ANONYMOUS"] and self._is_open_to_all:
            return (
                f"{offers}, and PLAIN would show the password to the network: use an amqps:// URL"
                " (or allow_insecure_plain=True where the network is safe)"
            )
        if names == ["ANONYMOUS"]:
            return f"{offers}: give user= and password=, or a certificate in TlsOptions"
        return f"{offers}, and none of {', '.join(names) or 'what was asked for'}"


def _mechanisms(options: Options, url: Url, *, with_plain: bool) -> list[ClientMechanism]:
    """What we can do at a place, the best first."""
    user = options.user if options.user is not None else url.user
    password = (options.password if options.password is not None else url.password) or ""
    found: list[ClientMechanism] = []
    if user is not None and with_plain:
        found.append(Plain(user, password))
    asked = options.sasl
    if asked is None:
        if user is None and not has_certificate(options.tls):
            found.append(Anonymous())
        return found
    found.append(Anonymous())
    by_name = {mechanism.name: mechanism for mechanism in found}
    return [by_name[name] for name in asked if name in by_name]
