"""How the control process proves to a node on another machine who it is, and knows the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.client import TlsOptions
from enmasse.engines.authority import Authority
from enmasse.identity.requester import OURSELVES

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.engines.embedded.paths import Layout

__all__ = ["node_tls"]

_FILE = "management"


def node_tls(layout: Layout) -> Callable[[], TlsOptions]:
    """Return what gives the certificates for one attempt to connect: ours is made anew in time.

    Args:
        layout: where the platform's authority and our certificate lie.
    """

    def options() -> TlsOptions:
        authority = Authority(layout.tls)
        certificate, key = authority.keep_client_certificate(OURSELVES.name, layout.api_tls, _FILE)
        return TlsOptions(ca_file=authority.path, certificate=certificate, key=key)

    return options
