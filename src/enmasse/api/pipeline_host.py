"""The way from the API to the host of pipelines: HTTP over its private socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from enmasse.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["PipelineHost"]

_CONNECT_S = 5.0
_QUERY_S = 150.0
"""The host itself gives a query up before; Spark's start of ten seconds and more is in it."""
_FOLLOW_S = 3700.0
_AWAY = (
    "the host of pipelines does not answer: it is just starting, or was not started (`enmasse up` starts it, unless "
    "it is told --no-pipelines)"
)

Document = dict[str, Any]


class PipelineHost:
    """Asks the host.

    Args:
        socket: where it listens.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def query(self, command: Document) -> Document:
        """Run a query of SQL; columns, rows, and an error if there is one.

        Raises:
            UnavailableError: the host is away, or cannot run it now.
        """
        try:
            async with self._client(_QUERY_S) as http:
                response = await http.post("/query", json=command)
                answer: Document = response.json()
        except (httpx.TransportError, ValueError):
            raise UnavailableError(_AWAY) from None
        if response.is_error:
            raise UnavailableError(str(answer.get("message")))
        return answer

    @asynccontextmanager
    async def log(self, namespace: str, name: str, tail: int, *, follow: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give the lines of a pipeline's log, as text, for the time of the block.

        Raises:
            UnavailableError: the host is away, or too many logs are followed.
        """
        query = {"tail": str(tail), "follow": str(follow).lower()}
        async with self._client(_FOLLOW_S) as http:
            request = http.build_request("GET", f"/log/{namespace}/{name}", params=query)
            try:
                response = await http.send(request, stream=True)
            except httpx.TransportError:
                raise UnavailableError(_AWAY) from None
            try:
                if response.is_error:
                    await response.aread()
                    raise UnavailableError(str(response.json().get("message")))
                yield response.aiter_bytes()
            finally:
                await response.aclose()

    def _client(self, seconds: float) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(self._socket)),
            base_url="http://pipelines",
            timeout=httpx.Timeout(seconds, connect=_CONNECT_S),
            trust_env=False,
        )
