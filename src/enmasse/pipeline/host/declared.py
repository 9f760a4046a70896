"""Follows what the API has declared, as far as pipelines depend on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import httpx

from enmasse.errors import UnavailableError
from enmasse.model.kinds.lakes import S3Lake
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.conditions import NOT_IN_EFFECT, READY
from enmasse.model.schema.objects import restore
from enmasse.pipeline.host.api import Following
from enmasse.pipeline.host.capacity import QuotaFacts, quota_facts
from enmasse.pipeline.host.lakes import LakeFacts, lake_facts
from enmasse.pipeline.host.reach import ANNOTATION
from enmasse.pipeline.host.secrets import SecretEntries, read_credentials
from enmasse.pipeline.host.verdict import AddressFacts, SpaceFacts

_TOLD_S = 10.0
"""So long a query waits to hear of its space: of all of them after a start, of a new one from its creation on."""
_LOOK_S = 0.05
_ENMASSE = "/apis/enmasse.io/v1beta1"

Document = dict[str, Any]
Key = tuple[str, str]


class Declared:
    """Follows pipelines, spaces and quotas everywhere, and of the rest only what pipelines need.

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
        self._quotas = Following(http, "/api/v1/resourcequotas", changed, keep=quota_facts)
        self._hosts = Following(http, "/api/v1/namespaces", changed, keep=_listed_hosts)

    @property
    def is_known(self) -> bool:
        """True if all pipelines, spaces, namespaces and quotas have been read."""
        found = (self._pipelines, self._spaces, self._hosts, self._quotas)
        return all(following.is_known for following in found)

    @property
    def pipelines(self) -> dict[Key, Pipeline]:
        """By namespace and name."""
        return self._pipelines.items

    @property
    def spaces(self) -> dict[Key, SpaceFacts]:
        """By namespace and name."""
        return self._spaces.items

    @property
    def quotas(self) -> dict[Key, QuotaFacts]:
        """By namespace and name."""
        return self._quotas.items

    def hosts(self, namespace: str) -> str:
        """Return what the runners of a namespace may reach besides EnMasse, as the operator wrote it."""
        found: str = self._hosts.items.get(("", namespace), "")
        return found

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pipelines.run(), name="pipelines")
                tasks.create_task(self._spaces.run(), name="spaces")
                tasks.create_task(self._quotas.run(), name="quotas")
                tasks.create_task(self._hosts.run(), name="namespaces")
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def need(self, namespaces: Iterable[str], secrets: Iterable[Key], config_maps: Iterable[Key]) -> None:
        """Follow the addresses of these namespaces and these objects, and nothing else any more."""
        wanted: dict[str, Callable[[], Following]] = {}
        for namespace in namespaces:
            path = f"{_ENMASSE}/namespaces/{namespace}/addresses"
            wanted[_addresses(namespace)] = partial(Following, self._http, path, self._changed, keep=_address)
        for plural, keys in (("secrets", secrets), ("configmaps", config_maps)):
            for namespace, name in keys:
                path = f"/api/v1/namespaces/{namespace}/{plural}"
                wanted[f"{plural} {namespace} {name}"] = partial(
                    Following, self._http, path, self._changed, name=name
                )
        for what in [what for what in self._more if what not in wanted]:
            del self._more[what]
            self._tasks.pop(what).cancel()
        for what, make in wanted.items():
            if what not in self._more:
                following = self._more[what] = make()
                self._tasks[what] = asyncio.create_task(following.run(), name=what)

    def addresses(self, namespace: str, space: str) -> dict[str, AddressFacts] | None:
        """Return the addresses of a space by what applications call them; None: not known yet."""
        following = self._more.get(_addresses(namespace))
        if following is None or not following.is_known:
            return None
        return _of_space(space, following.items.values())

    async def space_now(self, namespace: str, name: str) -> SpaceFacts:
        """Return what is declared of a space, waiting for it where the API has not told all of its spaces yet.

        Raises:
            UnavailableError: there is no such space, or it is being deleted.
        """
        deadline = time.monotonic() + _TOLD_S
        while (facts := self.spaces.get((namespace, name))) is None and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)
        if facts is None or facts.is_going:
            raise UnavailableError(f"the host of pipelines knows no space {namespace}/{name}: try again in a moment")
        return facts

    async def addresses_now(self, namespace: str, space: str) -> Document:
        """Return the addresses of a space, as runners get them."""
        known = self.addresses(namespace, space)
        if known is None:
            items = (await self._read(f"{_ENMASSE}/namespaces/{namespace}/addresses"))["items"]
            known = _of_space(space, filter(None, map(_address, items)))
        return {name: facts.to_command() for name, facts in known.items()}

    async def credentials_now(self, namespace: str, secret: str) -> SecretEntries:
        """Name and entries of a Secret.

        Raises:
            UnavailableError: there is no such Secret, or it is not complete.
        """
        found = read_credentials(secret, await self._read(f"/api/v1/namespaces/{namespace}/secrets/{secret}"))
        if isinstance(found, str):
            raise UnavailableError(found)
        return found

    def lake(self, namespace: str, lake: S3Lake) -> LakeFacts | None:
        """Return what counts for the storage of a space's tables; None: it is not known yet."""
        is_known, secret = self.find("secrets", namespace, lake.credentials_secret)
        return lake_facts(lake, self.hosts(namespace), namespace, secret) if is_known else None

    async def lake_now(self, namespace: str, lake: S3Lake) -> Mapping[str, str]:
        """Return what a process must know of the storage of a space's tables.

        Raises:
            UnavailableError: it cannot be used.
        """
        secret = await self._read(f"/api/v1/namespaces/{namespace}/secrets/{lake.credentials_secret}")
        found = lake_facts(lake, self.hosts(namespace), namespace, secret)
        if found.problem:
            raise UnavailableError(found.problem)
        return found.settings

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
        """Return whether a Secret or ConfigMap is known yet, and its document."""
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
    lake = space.spec.lake.s3 if space.spec.lake is not None else None
    spark, limits = space.spec.spark, space.status.limits
    return SpaceFacts(
        space.metadata.uid,
        needs_user,
        space.metadata.deletion_timestamp is not None,
        lake,
        has_ui=spark is not None and bool(spark.ui),
        has_event_log=spark is not None and bool(spark.event_log),
        memory=None if limits is None else limits.pipeline_memory,
        cores=None if limits is None else limits.pipeline_cores,
    )


def _of_space(space: str, found: Iterable[tuple[str, str, AddressFacts]]) -> dict[str, AddressFacts]:
    """Return the addresses of a space; of several declarations of one that counts which has its place."""
    facts: dict[str, AddressFacts] = {}
    for of, name, declared in found:
        if of == space and (declared.is_placed or name not in facts):
            facts[name] = declared
    return facts


def _listed_hosts(document: Document) -> str | None:
    return (document["metadata"].get("annotations") or {}).get(ANNOTATION)


def _address(document: Document) -> tuple[str, str, AddressFacts] | None:
    if document["metadata"].get("deletionTimestamp"):
        return None
    spec = document["spec"]
    status = document.get("status", {})
    # One is served as well that is not ready because something of it has no effect.
    is_ready = status.get("isReady") or any(
        (item["type"], item["reason"]) == (READY, NOT_IN_EFFECT) for item in status.get("conditions", ())
    )
    facts = AddressFacts(spec["type"], spec.get("schema"), bool(is_ready), "planStatus" in status)
    return document["metadata"]["name"].partition(".")[0], spec["address"], facts
