"""The pipelines of the demonstration, followed through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from enmasse.demo.devices import SPACE
from enmasse.demo.figures import Figures, PipelineFigures
from enmasse.demo.service import Service
from enmasse.drivers.data_directory import Layout
from enmasse.pipeline.host.api import api_client

INTERVAL_S = 1.0
_ANSWER_S = 10.0


class Pipelines:
    """Keeps the figures of the space's pipelines fresh.

    Args:
        service: the platform that runs them.
        figures: gets what they report.
    """

    def __init__(self, service: Service, figures: Figures) -> None:
        self.ready = asyncio.Event()
        """Set once every query of every pipeline runs."""
        self.is_hopeless = False
        """True if the platform says that none of them can run here."""
        self._service = service
        self._figures = figures
        self._namespace, _, self._space = SPACE.partition("/")

    @property
    def lake(self) -> Path:
        """The folder of the space's tables."""
        return self._service.data / "pipelines" / f"{self._namespace}.{self._space}" / "lake"

    @property
    def logs(self) -> Path:
        """The folder of what Spark says."""
        return self.lake.parent / "work"

    async def follow(self) -> None:
        """Look again and again, until cancelled; a platform that does not answer is asked again."""
        path = f"/apis/enmasse.io/v1beta1/namespaces/{self._namespace}/pipelines"
        async with api_client(str(self._service.url("api")), Layout(self._service.data).operator_token) as client:
            while True:
                try:
                    items = (await client.get(path, timeout=_ANSWER_S)).raise_for_status().json()["items"]
                except (httpx.HTTPError, ValueError, KeyError):
                    pass
                else:
                    self._take([item for item in items if item["metadata"]["name"].startswith(f"{self._space}.")])
                await asyncio.sleep(INTERVAL_S)

    def _take(self, items: list[dict[str, Any]]) -> None:
        for item in items:
            self._figures.on_pipeline(_figures_of(item))
        conditions = [
            condition
            for item in items
            for condition in item.get("status", {}).get("conditions", ())
            if condition["type"] == "SparkAvailable"
        ]
        self.is_hopeless = bool(items) and any(condition["status"] == "False" for condition in conditions)
        if items and all(pipeline.is_running for pipeline in self._figures.pipelines.values()):
            self.ready.set()


def _figures_of(item: Mapping[str, Any]) -> PipelineFigures:
    status = item.get("status", {})
    queries = status.get("queries", ())
    states = {query.get("state") for query in queries}
    ready: Mapping[str, Any] = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
    return PipelineFigures(
        name=item["metadata"]["name"],
        phase=str(status.get("phase", "Pending")),
        is_running=bool(queries) and states <= {"Running", "Waiting"},
        batches=sum(query.get("batch", -1) + 1 for query in queries),
        rows=int(status.get("rows", 0)),
        rate=float(status.get("rate") or 0.0),
        lag=status.get("lag"),
        problem=str(ready.get("message", "")) if ready.get("status") == "False" else "",
        is_runner_gone=ready.get("reason") == "RunnerEnded",
    )
