"""Statuses as the API gets them; the API is a small one that can refuse."""

from __future__ import annotations

import asyncio
from typing import cast

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.schema.objects import restore
from enmasse.pipeline.host.reports import Reports
from tests.support.polling import until_async


def pipeline(name: str) -> Pipeline:
    document = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid of {name}", "generation": 1},
        "spec": {"sources": [{"name": "rows", "address": "in"}], "sinks": [{"table": "out"}]},
    }
    return cast("Pipeline", restore(document))


PATH = "/apis/enmasse.io/v1beta1/namespaces/default/pipelines/{name}/status"


def test_a_status_that_cannot_be_written_holds_up_no_other_and_is_written_later() -> None:
    written: list[str] = []
    refused = {"shop.a"}

    async def take_status(request: Request) -> JSONResponse:
        name = request.path_params["name"]
        if name in refused:
            return JSONResponse({}, status_code=500)
        written.append(name)
        return JSONResponse({})

    api = Starlette(routes=[Route(PATH, take_status, methods=["PATCH"])])

    async def play() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://api") as http:
            reports = Reports(http, lambda: "2026-01-01T00:00:00Z", lambda: None)
            task = asyncio.create_task(reports.run())
            try:
                for name in ("shop.a", "shop.b"):
                    found = pipeline(name)
                    reports.publish(found, found.status.model_copy(update={"rows": 7}))
                await until_async(lambda: written == ["shop.b"])
                refused.clear()
                await until_async(lambda: written == ["shop.b", "shop.a"])
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())


def test_another_phase_is_told_before_other_news_that_wait_for_their_second() -> None:
    written: list[tuple[str, str]] = []

    async def take_status(request: Request) -> JSONResponse:
        status = (await request.json())[1]["value"]
        written.append((request.path_params["name"], status["phase"]))
        return JSONResponse({})

    api = Starlette(routes=[Route(PATH, take_status, methods=["PATCH"])])

    async def play() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://api") as http:
            reports = Reports(http, lambda: "2026-01-01T00:00:00Z", lambda: None)
            task = asyncio.create_task(reports.run())
            found = {name: pipeline(name) for name in ("shop.a", "shop.b")}
            try:
                for one in found.values():
                    reports.publish(one, one.status.model_copy(update={"phase": "Starting"}))
                await until_async(lambda: len(written) == 2)
                for name, news in (("shop.a", {"rows": 7}), ("shop.b", {"phase": "Running"})):
                    reports.publish(found[name], reports.former(found[name]).model_copy(update=news))
                await until_async(lambda: len(written) > 2)
                assert written[2:] == [("shop.b", "Running")]
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
