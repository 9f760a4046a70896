"""The API as the host uses it: who we are, lists that are followed, statuses, events.

Rules:
1. What the API has is read as a list, then followed by a watch from its version on; when that is too old, or
   anything else goes wrong, after a growing pause anew. Meanwhile what was known last counts.
2. The proof of who we are is read from its file for each request: control makes another one at each start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any

import httpx

_log = logging.getLogger(__name__)

_PAGE = 500
_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 5.0
_ANSWER_S = 30.0
_SILENCE_S = 150.0
"""The API sends a bookmark every minute; who is silent for longer is gone without a word."""

Document = dict[str, Any]
Key = tuple[str, str]


class _Proof(httpx.Auth):
    def __init__(self, path: Path) -> None:
        self._path = path

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token, if there is one."""
        try:
            token = self._path.read_text()
        except OSError:
            token = ""
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        yield request


def api_client(url: str, token: Path) -> httpx.AsyncClient:
    """Return a client for the API.

    Args:
        url: the url of the API, on this machine.
        token: the file that proves who we are.
    """
    return httpx.AsyncClient(
        base_url=url,
        auth=_Proof(token),
        trust_env=False,
        # No authority is needed where nothing is encrypted: to read all takes longer than what is asked at a start.
        verify=url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        timeout=_ANSWER_S,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        headers={"user-agent": "enmasse-pipelines", "accept": "application/json"},
    )


class Following:
    """Objects of one kind, as the API has them.

    Args:
        http: the API.
        path: the path of the collection.
        changed: called after every change, and when all has been read.
        name: only the object of this name; empty: all.
        keep: returns what is kept of an object; None: it is left out.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        path: str,
        changed: Callable[[], None],
        *,
        name: str = "",
        keep: Callable[[Document], Any] = lambda document: document,
    ) -> None:
        self._http = http
        self._path = path
        self._changed = changed
        self._keep = keep
        self._query = {"fieldSelector": f"metadata.name={name}"} if name else {}
        self.items: dict[Key, Any] = {}
        self.is_known = False
        """True if everything has been read once."""

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                version = await self._list()
                pause_s = _FIRST_PAUSE_S
                while version:
                    version = await self._watch(version)
            except (httpx.HTTPError, httpx.StreamError, ValueError, KeyError) as error:
                _log.info("%s cannot be followed now: %s", self._path, error or type(error).__name__)
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  # spreads retries, hides nothing
                pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    async def _list(self) -> str:
        found: dict[Key, Any] = {}
        token, version = "", ""
        while True:
            query = self._query | {"limit": str(_PAGE)} | ({"continue": token} if token else {})
            response = await self._http.get(self._path, params=query)
            response.raise_for_status()
            page = response.json()
            for item in page["items"]:
                if (kept := self._keep(item)) is not None:
                    found[_key(item)] = kept
            version = page["metadata"]["resourceVersion"]
            token = page["metadata"].get("continue") or ""
            if not token:
                break
        self.items = found
        self.is_known = True
        self._changed()
        return str(version)

    async def _watch(self, version: str) -> str:
        """Follow from a version on; the version reached, empty when it must be listed anew."""
        query = self._query | {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        timeout = httpx.Timeout(_ANSWER_S, read=_SILENCE_S)
        async with self._http.stream("GET", self._path, params=query, timeout=timeout) as response:
            if response.status_code == 410:
                return ""
            response.raise_for_status()
            async for line in _lines(response):
                event = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR":
                    return ""
                version = item["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                kept = None if event["type"] == "DELETED" else self._keep(item)
                if kept is None:
                    self.items.pop(_key(item), None)
                else:
                    self.items[_key(item)] = kept
                self._changed()
        return version


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines of JSON; httpx would also cut at characters that JSON may hold as they are."""
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield line.decode()


def _key(item: Document) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
