"""``connect``, the entry to the client."""

from __future__ import annotations

import ssl
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from enmasse.client.connection import Connection
from enmasse.client.errors import UrlError
from enmasse.client.link import Opening
from enmasse.client.options import Options, TlsOptions, make_context, parse_url

TIMEOUT_S = 10.0
"""For one attempt to connect: more than two lost packets cost."""


def connect(
    url: str | Sequence[str],
    *,
    container_id: str | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | Callable[[], str] | None = None,
    hostname: str | None = None,
    tls: TlsOptions | ssl.SSLContext | None = None,
    sasl: Sequence[str] | None = None,
    allow_insecure_plain: bool = False,
    shuffle: bool = False,
    reconnect: bool = True,
    timeout: float = TIMEOUT_S,
    patience: float = 0.0,
    idle_timeout: float = 60.0,
    properties: Mapping[str, Any] | None = None,
) -> Opening[Connection]:
    """Connect to a place that speaks AMQP 1.0: ``await`` it, or use it with ``async with``.

    Args:
        url: ``amqp[s]://[user:password@]host[:port]``, over WebSocket ``amqpws[s]://host[:port][/path]``, or
            ``amqp+unix:///path/to.sock``; or several of these, of which one is used, and the next when that
            is lost.
        container_id: the name of this client; made up if missing.
        user: the user to be there; by default the URL's, and without one nobody (SASL ANONYMOUS).
        password: goes with ``user``.
        token: a bearer token instead of a password, or what gives a fresh one for each attempt.
        hostname: the host name to ask for, which may name a space; by default the URL's.
        tls: the authorities to trust and the certificate to show, for ``amqps``; by default the system's authorities.
        sasl: the SASL mechanisms that may be used, the best first; by default all that fit, safest first.
        allow_insecure_plain: show password or token to the network if a server on plain TCP wants it so.
        shuffle: try several places in a random order, so that many clients spread over them.
        reconnect: connect again, with back-off and for ever, whenever the connection is lost.
        timeout: seconds that one attempt may take.
        patience: seconds to go on trying when no place lets us in at first.
        idle_timeout: seconds of the peer's silence after which the connection counts as lost.
        properties: properties of this client, sent when the connection opens.

    Raises:
        UrlError: a URL is none of these.
        TlsError: a file of ``tls`` cannot be used, or the place is not to be trusted; the message says why.
        UnavailableError: the place cannot be reached.
        ConnectionDeniedError: the place refused, for instance the user or the password.
    """
    places = tuple(parse_url(one) for one in ([url] if isinstance(url, str) else url))
    if not places:
        raise UrlError("connect needs at least one URL")
    options = Options(
        places=places,
        container_id=container_id or f"{Path(sys.argv[0]).stem or 'python'}-{uuid.uuid4().hex[:12]}",
        hostname=hostname,
        user=user,
        password=password,
        token=token,
        sasl=sasl,
        allow_insecure_plain=allow_insecure_plain,
        tls=tls,
        context=make_context(tls) if any(place.is_tls for place in places) else None,
        shuffle=shuffle,
        idle_timeout_s=idle_timeout,
        properties=dict(properties or {}),
    )

    async def open_it() -> Connection:
        connection = Connection(options, reconnect=reconnect, timeout_s=timeout)
        await connection.open(patience)
        return connection

    return Opening(open_it)
