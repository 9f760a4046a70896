"""Statuses and events, written through the API.

Rules:
1. Only what has changed is written, of each pipeline at most once a second, and of several changes the last.
2. What cannot be written now is written later; an object that is gone is not.
3. A change of the phase makes an event; the same event again is counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any

import httpx

from enmasse.model.pipelines import Pipeline, PipelineStatus

__all__ = ["Reports", "pipeline_path"]

_log = logging.getLogger(__name__)

EVERY_S = 1.0
_LOOK_S = 0.1
_LATER_S = 1.0
_JSON_PATCH = {"content-type": "application/json-patch+json"}
_MERGE_PATCH = {"content-type": "application/merge-patch+json"}
_SOURCE = "enmasse-pipelines"
_LONGEST_MESSAGE = 1024
_CONFLICTS = frozenset({409, 422})

Document = dict[str, Any]
Key = tuple[str, str]


def pipeline_path(namespace: str, name: str) -> str:
    """The path of a pipeline in the API."""
    return f"/apis/enmasse.io/v1beta1/namespaces/{namespace}/pipelines/{name}"


class Reports:
    """Writes what was found.

    Args:
        http: the API.
        now: gives the present, RFC 3339 in UTC.
    """

    def __init__(self, http: httpx.AsyncClient, now: Callable[[], str]) -> None:
        self._http = http
        self._now = now
        self._pending: dict[Key, tuple[Pipeline, PipelineStatus]] = {}
        self._written: dict[Key, tuple[str, PipelineStatus, float]] = {}
        self._something = asyncio.Event()

    def former(self, pipeline: Pipeline) -> PipelineStatus:
        """What was published of a pipeline last, or is about to be."""
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
        if status == self.former(pipeline):
            return
        self._pending[_key(pipeline)] = (pipeline, status)
        self._something.set()

    def forget(self, keys: set[Key]) -> None:
        """Forget all objects but these."""
        for known in (self._pending, self._written):
            for key in [key for key in known if key not in keys]:
                known.pop(key, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._something.wait()
            self._something.clear()
            try:
                await self.flush()
            except httpx.HTTPError as error:
                _log.info("statuses are not written now: %s", error or type(error).__name__)
                await asyncio.sleep(_LATER_S)
            if self._pending:
                self._something.set()
                await asyncio.sleep(_LOOK_S)

    async def flush(self, *, at_once: bool = False) -> None:
        """Write what may be written now.

        Raises:
            httpx.HTTPError: the API does not answer.
        """
        for key, (pipeline, status) in list(self._pending.items()):
            written = self._written.get(key)
            if not at_once and written is not None and time.monotonic() - written[2] < EVERY_S:
                continue
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
                await self._tell(pipeline, status)

    async def change_finalizer(self, pipeline: Pipeline, finalizer: str, *, add: bool) -> bool:
        """Put a finalizer on a pipeline or take it off; whether that is so now.

        Raises:
            httpx.HTTPError: the API does not answer.
        """
        metadata = pipeline.metadata
        others = [item for item in metadata.finalizers if item != finalizer]
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": [*others, *([finalizer] if add else [])]},
        ]
        response = await self._http.patch(pipeline_path(*_key(pipeline)), json=patch, headers=_JSON_PATCH)
        if response.is_error and response.status_code not in (404, *_CONFLICTS):
            _log.warning("the finalizer of %s/%s: %s", *_key(pipeline), response.text[:500])
        return response.is_success

    async def _tell(self, pipeline: Pipeline, status: PipelineStatus) -> None:
        """Make an event of a new phase."""
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
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata.namespace},
            "involvedObject": {
                "kind": "Pipeline",
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
