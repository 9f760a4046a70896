"""Keeps a copy of the schema registry in the folder of each space whose pipelines need it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.pipeline.host.space_folders import SpaceFolder

_log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
"""So long an id may be unknown to runners; asking costs a millisecond while nothing has changed."""


def needs_registry(spec: PipelineSpec) -> bool:
    """Return whether a pipeline reads or writes by the schema registry."""
    used = [*(source.schema_registry for source in spec.sources), *(sink.schema_registry for sink in spec.sinks)]
    return any(registry is not None for registry in used)


class SchemaCopies:
    """Follows the registries of spaces.

    Args:
        http: the API.
        wanted: returns the folders of the spaces that need it, by ``<namespace>/<name>`` and uid.
    """

    def __init__(self, http: httpx.AsyncClient, wanted: Callable[[], Mapping[tuple[str, str], SpaceFolder]]) -> None:
        self._http = http
        self._wanted = wanted
        self._known: dict[tuple[str, str], str] = {}
        """By space, what the registry called its state when the copy was made."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            wanted = self._wanted()
            self._known = {key: tag for key, tag in self._known.items() if key in wanted}
            await asyncio.gather(*(self._copy(key, folder) for key, folder in wanted.items()))
            await asyncio.sleep(_EVERY_S)

    async def _copy(self, key: tuple[str, str], folder: SpaceFolder) -> None:
        namespace, _, name = key[0].partition("/")
        known = self._known.get(key)
        asked_s = time.time()
        try:
            response = await self._http.get(
                f"/schemas/v1/spaces/{namespace}/{name}/schemas",
                params={"deleted": "true"},
                headers={"if-none-match": known} if known else {},
            )
            if response.status_code == 304:
                folder.confirm_schemas(asked_s)
                return
            response.raise_for_status()
            await asyncio.to_thread(folder.write_schemas, response.content, asked_s)
            self._known[key] = response.headers["etag"]
        except (httpx.HTTPError, EnmasseError, OSError, KeyError) as error:
            self._known.pop(key, None)
            _log.info("the schemas of space %s cannot be read now: %s", key[0], error or type(error).__name__)
