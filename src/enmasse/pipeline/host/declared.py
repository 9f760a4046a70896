"""What the API has declared, as far as pipelines depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import httpx

from enmasse.errors import UnavailableError
from enmasse.model.kinds import restore
from enmasse.model.pipelines import Pipeline
from enmasse.model.spaces import AddressSpace
from enmasse.pipeline.host.api import Following
from enmasse.pipeline.host.verdict import AddressFacts, SpaceFacts

__all__ = ["Declared"]

_ENMASSE = "/apis/enmasse.io/v1beta1"

Document = dict[str, Any]
Key = tuple[str, str]


class Declared:
    """Follows pipelines and spaces everywhere, and of the rest only what pipelines need.

    Args:
        http: the API.
        changed: called when something is another way now.
    """

    def __init__(self, http: httpx.AsyncClient, changed: Callable[[], None]) -> None:
        self._http = http
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._more: dict[str, Following] = {}
        self._pipelines = Following(http, f"{_ENMASSE}/pipelines", changed, keep=_pipeline)
        self._spaces = Following(http, f"{_ENMASSE}/addressspaces", changed, keep=_space)

    @property
    def is_known(self) -> bool:
        """Whether all pipelines and spaces have been read."""
        return self._pipelines.is_known and self._spaces.is_known

    @property
    def pipelines(self) -> dict[Key, Pipeline]:
        """By namespace and name."""
        return self._pipelines.items

    @property
    def spaces(self) -> dict[Key, SpaceFacts]:
        """By namespace and name."""
        return self._spaces.items

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pipelines.run(), name="pipelines")
                tasks.create_task(self._spaces.run(), name="spaces")
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def need(self, namespaces: Iterable[str], secrets: Iterable[Key], config_maps: Iterable[Key]) -> None:
        """Follow the addresses of these namespaces and these objects, and nothing else any more."""
        wanted: dict[str, Callable[[], Following]] = {}
        for namespace in namespaces:
            path = f"{_ENMASSE}/namespaces/{namespace}/addresses"
            wanted[_addresses(namespace)] = lambda path=path: Following(  # type: ignore[misc]  # bound at once
                self._http, path, self._changed, keep=_address
            )
        for plural, keys in (("secrets", secrets), ("configmaps", config_maps)):
            for namespace, name in keys:
                path = f"/api/v1/namespaces/{namespace}/{plural}"
                wanted[f"{plural} {namespace} {name}"] = lambda path=path, name=name: Following(  # type: ignore[misc]
                    self._http, path, self._changed, name=name
                )
        for what in [what for what in self._more if what not in wanted]:
            del self._more[what]
            self._tasks.pop(what).cancel()
        for what, make in wanted.items():
            if what not in self._more:
                following = self._more[what] = make()
                self._tasks[what] = asyncio.create_task(following.run(), name=what)

    def addresses(self, namespace: str, space: str) -> dict[str, AddressFacts] | None:
        """The addresses of a space by what applications call them; None: not known yet."""
        following = self._more.get(_addresses(namespace))
        if following is None or not following.is_known:
            return None
        return {name: facts for of, name, facts in following.items.values() if of == space}

    async def read_addresses(self, namespace: str, space: str) -> dict[str, AddressFacts]:
        """Read the addresses of a space that nothing is known of yet.

        Raises:
            UnavailableError: the API does not answer.
        """
        items = (await self._read(f"{_ENMASSE}/namespaces/{namespace}/addresses"))["items"]
        found = filter(None, map(_address, items))
        return {name: facts for of, name, facts in found if of == space}

    async def read_secret(self, namespace: str, name: str) -> Document:
        """Read a Secret.

        Raises:
            UnavailableError: there is none, or the API does not answer.
        """
        return await self._read(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    async def _read(self, path: str) -> Document:
        try:
            response = await self._http.get(path)
            document: Document = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise UnavailableError(f"the API does not answer the host of pipelines: {error}") from None
        if response.is_error:
            raise UnavailableError(str(document.get("message")))
        return document

    def find(self, plural: str, namespace: str, name: str) -> tuple[bool, Document | None]:
        """A Secret or ConfigMap; whether it is known at all, and what it is."""
        following = self._more.get(f"{plural} {namespace} {name}")
        if following is None or not following.is_known:
            return False, None
        return True, following.items.get((namespace, name))


def _addresses(namespace: str) -> str:
    return f"addresses {namespace}"


def _pipeline(document: Document) -> Pipeline:
    return cast("Pipeline", restore(document))


def _space(document: Document) -> SpaceFacts:
    space = cast("AddressSpace", restore(document))
    needs_user = not space.spec.authentication_service.is_none
    return SpaceFacts(space.metadata.uid, needs_user, space.metadata.deletion_timestamp is not None)


def _address(document: Document) -> tuple[str, str, AddressFacts] | None:
    if document["metadata"].get("deletionTimestamp"):
        return None
    spec = document["spec"]
    is_ready = bool(document.get("status", {}).get("isReady"))
    facts = AddressFacts(spec["type"], spec.get("schema"), is_ready)
    return document["metadata"]["name"].partition(".")[0], spec["address"], facts
