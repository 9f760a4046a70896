"""Keeps lists of the devices that tenants have registered in the folder of each space whose pipelines need them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.errors import EnmasseError, UnavailableError
from enmasse.model.kinds.pipelines.builtins import HeartbeatParameters
from enmasse.pipeline.device_list import DeviceList, path_of

if TYPE_CHECKING:
    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.pipeline.host.space_folders import SpaceFolder

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_AGAIN_S: Final = 4.0
"""Runners that wait for a first list do so for longer."""
_EVERY_S: Final = 10.0
"""So long a device may be unknown to runners."""
_SHARE: Final = 20
"""A list that takes long is asked for so seldom that asking takes a twentieth of the time."""

Key = tuple[str, str]
"""A space, as ``<namespace>/<name>``, and a tenant."""


def tenant_of(spec: PipelineSpec) -> str | None:
    """Return the tenant whose devices a pipeline expects; None: it expects none."""
    if spec.builtin is None or spec.builtin.name != "heartbeat":
        return None
    return HeartbeatParameters.model_validate(dict(spec.builtin.parameters)).tenant


class DeviceLists:
    """Follows the devices of tenants.

    Args:
        http: the API.
        wanted: returns the folder for each space and tenant.
    """

    def __init__(self, http: httpx.AsyncClient, wanted: Callable[[], Mapping[Key, SpaceFolder]]) -> None:
        self._http = http
        self._wanted = wanted
        self._known: dict[Key, tuple[SpaceFolder, str]] = {}
        """The folder with the list, and what the registry called its state when the list was written."""
        self._due: dict[Key, float] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            wanted, now = self._wanted(), time.monotonic()
            self._due = {key: due for key, due in self._due.items() if key in wanted}
            self._known = {key: known for key, known in self._known.items() if key in wanted}
            due = [(key, folder) for key, folder in wanted.items() if self._due.get(key, 0.0) <= now]
            await asyncio.gather(*(self._update(key, folder) for key, folder in due))
            await asyncio.sleep(_LOOK_S)

    async def _update(self, key: Key, folder: SpaceFolder) -> None:
        asked = time.monotonic()
        is_read = await self._read(key, folder)
        took = time.monotonic() - asked
        self._due[key] = time.monotonic() + (max(_EVERY_S, took * _SHARE) if is_read else _AGAIN_S)

    async def _read(self, key: Key, folder: SpaceFolder) -> bool:
        """Have the list be as the registry is now; False if that cannot be done."""
        (namespace, _, space), tenant = key[0].partition("/"), key[1]
        known = self._known.get(key)
        tag = known[1] if known is not None and known[0] is folder else ""
        if not tenant.startswith(f"{namespace}."):
            _log.warning("space %s: tenant %s is of another namespace, its devices are not listed", key[0], tenant)
            return False
        try:
            response = await self._http.get(
                f"/registry/v1/ids/{tenant}",
                params={"space": space},
                headers={"if-none-match": tag} if tag else {},
            )
            if response.status_code == 304:
                return True
            if response.status_code == 404:
                raise UnavailableError(response.json()["error"])
            response.raise_for_status()
            await asyncio.to_thread(_write, folder, tenant, response.json())
            self._known[key] = folder, response.headers["etag"]
        except (httpx.HTTPError, EnmasseError, OSError, KeyError, ValueError) as error:
            self._known.pop(key, None)
            _log.info("the devices of tenant %s cannot be read now: %s", tenant, error or type(error).__name__)
            return False
        return True


def _write(folder: SpaceFolder, tenant: str, ids: list[str]) -> None:
    path = path_of(folder.path, tenant)
    content = DeviceList(path).changed_to(ids, time.time_ns() // 1000)
    if content is not None:
        folder.write_devices(path, content)
