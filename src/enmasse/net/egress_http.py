"""Requests of HTTP to hosts that a tenant names, by the rule of ``egress``; redirections are not followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httpx

from enmasse.net.egress import CONNECT_S

if TYPE_CHECKING:
    import ssl

    from enmasse.net.egress import Reach

MAX_HOSTS: Final = 8
"""The most hosts to which connections are kept: a webhook has one, and a provider names some more."""


class Egress(httpx.AsyncBaseTransport):
    """A transport of httpx that looks at the address of each connection.

    Args:
        reach: the places to which requests may go.
        trust: the authorities by which hosts are verified.
    """

    def __init__(self, reach: Reach, trust: ssl.SSLContext) -> None:
        self._reach = reach
        self._trust = trust
        self._inner: dict[str, httpx.AsyncHTTPTransport] = {}
        """The connections to each host: those of one address may be to several, which prove different names."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            EgressError: the host must not be reached.
            httpx.TransportError: it cannot be reached.
        """
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = await self._reach.addresses(host, port)
        except OSError as error:
            raise httpx.ConnectError(f"{host} has no address: {error}") from None
        request.extensions = request.extensions | {"sni_hostname": host}
        *others, last = addresses
        for address in others:
            try:
                return await self._send(request, address, CONNECT_S)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._send(request, last, None)

    async def _connections(self, host: str) -> httpx.AsyncHTTPTransport:
        found = self._inner.get(host)
        if found is None:
            if len(self._inner) >= MAX_HOSTS:
                await self._inner.pop(next(iter(self._inner))).aclose()
            found = self._inner[host] = httpx.AsyncHTTPTransport(verify=self._trust, trust_env=False)
        return found

    async def _send(self, request: httpx.Request, address: str, connect_s: float | None) -> httpx.Response:
        timeout = dict(request.extensions.get("timeout", {}))
        if connect_s is not None:
            timeout["connect"] = min(connect_s, timeout.get("connect") or connect_s)
        chosen = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions | {"timeout": timeout},
        )
        inner = await self._connections(request.url.host)
        return await inner.handle_async_request(chosen)

    async def aclose(self) -> None:
        """Close all connections."""
        inner, self._inner = self._inner, {}
        for each in inner.values():
            await each.aclose()
