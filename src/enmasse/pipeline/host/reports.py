"""Statuses and events, written through the API.

Rules:
1. Only what has changed is written, of each pipeline at most once a second, or ten times where its phase changes, and
   of several changes the last.
2. What cannot be written now is written later, after a back-off of its own; an object that is gone is not.
3. A change of the phase makes an event; the same event again is counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx

from enmasse.control.runtime.controller import Controller
from enmasse.errors import UnavailableError
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.pipelines.status import PipelineStatus
from enmasse.model.schema.kinds import EVENT, PIPELINE

_log = logging.getLogger(__name__)

EVERY_S = 1.0
"""Between two writes of one status."""
PHASE_S = 0.1
"""Between two where the phase is another, for which somebody waits."""
_JSON_PATCH = {"content-type": "application/json-patch+json"}
_MERGE_PATCH = {"content-type": "application/merge-patch+json"}
_SOURCE = "enmasse-pipelines"
_LONGEST_MESSAGE = 1024
_CONFLICTS = frozenset({409, 422})

Document = dict[str, Any]
Key = tuple[str, str]


def pipeline_path(namespace: str, name: str) -> str:
    """Return the path of a pipeline in the API."""
    return f"/apis/enmasse.io/v1beta1/namespaces/{namespace}/pipelines/{name}"


class Reports(Controller):
    """Writes what the host found; a key is one object and one thing to write of it.

    Args:
        http: the API.
        now: gives the present, RFC 3339 in UTC.
        changed: called when a finalizer or a quota was written: what its watch does not show then is requested anew.
    """

    name = "reports of pipelines"
    workers = 8

    def __init__(self, http: httpx.AsyncClient, now: Callable[[], str], changed: Callable[[], None]) -> None:
        super().__init__(jitter=lambda: random.uniform(0.8, 1.2))  # noqa: S311  # spreads retries, hides nothing
        self._http = http
        self._now = now
        self._changed = changed
        self._pending: dict[Key, tuple[Pipeline, PipelineStatus]] = {}
        self._written: dict[Key, tuple[str, PipelineStatus, float]] = {}
        self._requested: dict[str, Callable[[], Awaitable[object]]] = {}

    def former(self, pipeline: Pipeline) -> PipelineStatus:
        """Return what was published of a pipeline last, or is about to be."""
        key = _key(pipeline)
        pending = self._pending.get(key)
        if pending is not None and pending[0].metadata.uid == pipeline.metadata.uid:
            return pending[1]
        written = self._written.get(key)
        if written is not None and written[0] == pipeline.metadata.uid:
            return written[1]
        return pipeline.status

    def publish(self, pipeline: Pipeline, status: PipelineStatus) -> None:
        """Have a status written soon, if it is another one."""
        key = _key(pipeline)
        if status != self.former(pipeline):
            self._pending[key] = (pipeline, status)
        if key in self._pending:
            self.enqueue("/".join(key))

    def request_finalizer(self, pipeline: Pipeline, finalizer: str, *, add: bool) -> None:
        """Have a finalizer put on a pipeline or taken off, unless that is under way."""
        self._request(f"finalizer {pipeline.key}", partial(self._change_finalizer, pipeline, finalizer, add=add))

    def request_used(self, namespace: str, name: str, used: dict[str, str]) -> None:
        """Have a quota's status state what of it is used, unless that is under way."""
        self._request(f"quota {namespace}/{name}", partial(self._write_used, namespace, name, used))

    def forget(self, keys: set[Key]) -> None:
        """Forget all objects but these."""
        for known in (self._pending, self._written):
            for key in [key for key in known if key not in keys]:
                known.pop(key, None)

    async def reconcile(self, key: str) -> bool:
        """Write what a key stands for."""
        try:
            if change := self._requested.get(key):
                await change()
                del self._requested[key]
                self._changed()
            elif pending := self._pending.get(pair := _pair(key)):
                await self._write_status(pair, *pending)
        except httpx.HTTPError as error:
            raise UnavailableError(f"the API does not take it now: {error or type(error).__name__}") from None
        return True

    def _request(self, key: str, change: Callable[[], Awaitable[object]]) -> None:
        self._requested.setdefault(key, change)
        self.enqueue(key)

    async def _write_status(self, key: Key, pipeline: Pipeline, status: PipelineStatus) -> None:
        written = self._written.get(key)
        if written is not None:
            pause_s = EVERY_S if status.phase == written[1].phase else PHASE_S
            if (wait_s := written[2] + pause_s - time.monotonic()) > 0:
                asyncio.get_running_loop().call_later(wait_s, self.enqueue, "/".join(key))
                return
        former = written[1] if written is not None and written[0] == pipeline.metadata.uid else pipeline.status
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pipeline.metadata.uid},
            {"op": "add", "path": "/status", "value": status.to_dict()},
        ]
        response = await self._http.patch(f"{pipeline_path(*key)}/status", json=patch, headers=_JSON_PATCH)
        if response.status_code >= 500:
            response.raise_for_status()
        if response.is_error and response.status_code not in (404, *_CONFLICTS):
            _log.warning("the status of %s/%s is refused: %s", *key, response.text[:500])
        if self._pending.get(key) == (pipeline, status):
            del self._pending[key]
        self._written[key] = (pipeline.metadata.uid, status, time.monotonic())
        if response.is_success and status.phase != former.phase:
            await self._make_event(pipeline, status)

    async def _change_finalizer(self, pipeline: Pipeline, finalizer: str, *, add: bool) -> None:
        metadata = pipeline.metadata
        others = [item for item in metadata.finalizers if item != finalizer]
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": [*others, *([finalizer] if add else [])]},
        ]
        response = await self._http.patch(pipeline_path(*_key(pipeline)), json=patch, headers=_JSON_PATCH)
        if response.is_error and response.status_code not in (404, *_CONFLICTS):
            _log.warning("the finalizer of %s/%s: %s", *_key(pipeline), response.text[:500])

    async def _write_used(self, namespace: str, name: str, used: dict[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/{name}/status"
        response = await self._http.patch(path, json={"status": {"used": used}}, headers=_MERGE_PATCH)
        if response.status_code != 404:
            response.raise_for_status()

    async def _make_event(self, pipeline: Pipeline, status: PipelineStatus) -> None:
        metadata, now = pipeline.metadata, self._now()
        wrong = next((item for item in reversed(status.conditions) if item.status != "True"), None)
        reason = wrong.reason if wrong is not None else status.phase
        kind = "Warning" if status.phase == "Failed" else "Normal"
        digest = hashlib.sha256(f"{metadata.uid} {status.phase} {reason}".encode()).hexdigest()[:16]
        name = f"{metadata.name[:200].rstrip('.-')}.{digest}"
        path = f"/api/v1/namespaces/{metadata.namespace}/events"
        text = f"is {status.phase}{': ' if status.messages else ''}{'; '.join(status.messages)}"[:_LONGEST_MESSAGE]
        event = {
            "apiVersion": "v1",
            "kind": EVENT.name,
            "metadata": {"name": name, "namespace": metadata.namespace},
            "involvedObject": {
                "kind": PIPELINE.name,
                "apiVersion": pipeline.api_version,
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
            },
            "reason": reason,
            "message": text,
            "type": kind,
            "source": {"component": _SOURCE},
            "reportingComponent": _SOURCE,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        response = await self._http.post(path, json=event)
        if response.status_code != 409:
            return
        present = (await self._http.get(f"{path}/{name}")).json()
        again = {"count": int(present.get("count") or 1) + 1, "lastTimestamp": now, "message": text}
        await self._http.patch(f"{path}/{name}", json=again, headers=_MERGE_PATCH)


def _key(pipeline: Pipeline) -> Key:
    return pipeline.metadata.namespace, pipeline.metadata.name


def _pair(key: str) -> Key:
    namespace, _, name = key.partition("/")
    return namespace, name
