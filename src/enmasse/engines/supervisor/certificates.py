"""The certificate of an installation on this machine, made at its first start and kept from ending."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from enmasse.engines.authority import Authority
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["keep_certificate", "keep_renewing"]

_NAME = "default"
_DAY_S = 86_400.0


def keep_certificate(tls: Path, host: str) -> None:
    """Make the certificate of this machine, or make it anew when it ends soon or this machine has a new name.

    Args:
        tls: the directory of certificates.
        host: the interface that is served.

    Raises:
        ConfigError: what is there cannot be used, or nothing can be written.
    """
    own = socket.gethostname()
    # The first is the common name too, by which Qpid Proton knows a server that it reached by its IP address.
    hosts = [host, "localhost", "127.0.0.1", "::1", *([own] if own.isascii() and own else [])]
    Authority(tls).keep_server_certificate(_NAME, tuple(dict.fromkeys(hosts)))


async def keep_renewing(tls: Path, host: str, tell: Callable[[str], None]) -> None:
    """Look at the certificate once a day, until cancelled; nodes see by themselves that it has changed."""
    while True:
        await asyncio.sleep(_DAY_S)
        try:
            keep_certificate(tls, host)
        except ConfigError as error:
            tell(f"the certificate cannot be kept: {error}")
