"""Options that both ``enmasse node`` and ``enmasse up`` have, declared once.

A node is started again in the middle of traffic and reads its arguments with argparse; ``up`` has typer. So they are
plain rows here, which either turns into its own, and which ``up`` writes down again for the node that it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.errors import ConfigError
from enmasse.net.egress import CONNECTORS, PROXIES
from enmasse.net.origins import HTTP_NAME as HTTP_NAME_FLAG
from enmasse.net.origins import plain_name

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class NodeOption:
    """One option.

    Attributes:
        flag: the flag as it is written.
        help: the purpose; neither capital nor full stop.
        metavar: stands for its value; None: it has none.
    """

    flag: str
    help: str
    metavar: str | None = None

    def add_to(self, parser: argparse.ArgumentParser, **more: Any) -> None:
        """Have a parser know it."""
        value: dict[str, Any] = {"action": "store_true"} if self.metavar is None else {"metavar": self.metavar}
        parser.add_argument(self.flag, help=self.help, **value, **more)

    @property
    def for_typer(self) -> Any:
        """The same as typer takes it."""
        import typer  # noqa: PLC0415  # a node has no use for it

        return typer.Option(self.flag, metavar=self.metavar, help=f"{self.help[0].upper()}{self.help[1:]}.")


USERS = NodeOption(
    "--users",
    "users of spaces with authentication `standard`; made by `enmasse user add`, read again when it changes",
    "FILE",
)
WEB_ORIGIN = NodeOption(
    "--web-origin",
    "where web pages may come from that open a WebSocket, such as https://shop.example.org, beside those of this "
    "machine, or that use HTTP or the device registry; may be given more than once; * is from everywhere",
    "ORIGIN",
)
HTTP_NAME = NodeOption(
    HTTP_NAME_FLAG,
    "a host name by which clients of HTTP come that is no space's and in no certificate, as that of a reverse proxy: "
    "shop.example.org; may be given more than once",
    "HOST",
)
CONNECTOR_NETWORK = NodeOption(
    CONNECTORS,
    "a network that connectors may go to, such as 10.1.0.0/16, or public for all public addresses; may be given more "
    "than once; without it they go nowhere",
    "CIDR",
)
DRAIN_DELAY = NodeOption(
    "--drain-delay",
    "serve on for so long after the signal to stop, without being ready, so that load balancers lead clients to "
    "others first; a second signal ends that (default: 0)",
    "SECONDS",
)
PROXY_FROM = NodeOption(
    PROXIES,
    "a network of load balancers, such as 10.2.0.0/28, that say by the PROXY protocol who their clients are; who "
    "comes from there and does not say it is refused; may be given more than once",
    "CIDR",
)
PROXY_CERTIFICATE_NAMES = NodeOption(
    "--proxy-certificate-names",
    "take the names in clients' certificates from these load balancers, which have verified them",
)
ALLOW_INSECURE_PLAIN = NodeOption(
    "--allow-insecure-plain", "let users send their passwords without TLS, where others may read them"
)


def written(flag: str, value: Any) -> Iterator[str]:
    """Yield the arguments of a command line that give an option a value; none for False, None and the empty list."""
    for one in value if isinstance(value, list | tuple) else (value,):
        if one is True:
            yield flag
        elif one is not None and one is not False:
            yield from (flag, str(one.absolute() if isinstance(one, Path) else one))


def names_of(texts: Iterable[str] | None) -> frozenset[str]:
    """Return the names that ``--http-name`` adds, in lower case.

    Raises:
        ConfigError: one is none.
    """
    try:
        return frozenset(map(plain_name, texts or ()))
    except ValueError as error:
        raise ConfigError(f"{HTTP_NAME.flag}: {error}") from None
