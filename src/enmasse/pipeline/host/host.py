"""Runs the pipelines of an installation: a controller that reconciles what is declared with what runs.

Rules:
1. One runner for each space with a pipeline that is to run, and one for each pipeline that wants a session of
   its own; none for spaces without. All runners of a namespace keep to its quotas: who finds no room waits.
2. While the API is away, what was known last goes on.
3. A pipeline gets a finalizer before its runner gets it; it goes when its queries have stopped and its
   checkpoints are removed. What is left of a pipeline that went otherwise is removed when that is seen.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

from enmasse.control.runtime.controller import Controller
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.resource_quota import in_words
from enmasse.pipeline.backup.outside import RestoredMarks
from enmasse.pipeline.backup.relocation import relocate
from enmasse.pipeline.host.capacity import used_of
from enmasse.pipeline.host.declared import Declared
from enmasse.pipeline.host.devices import DeviceLists, tenant_of
from enmasse.pipeline.host.reports import Reports
from enmasse.pipeline.host.runners import Runners
from enmasse.pipeline.host.schemas import SchemaCopies, needs_registry
from enmasse.pipeline.host.secrets import named_secrets
from enmasse.pipeline.host.settings import HostSettings
from enmasse.pipeline.host.space_folders import SpaceFolder, SpaceFolders
from enmasse.pipeline.host.space_runner import Assignment, RunnerKey, SpaceRunner, arguments_of, runner_key
from enmasse.pipeline.host.supervise import BoundedLog
from enmasse.pipeline.host.ui_sockets import UiSocket
from enmasse.pipeline.host.verdict import (
    Facts,
    Rule,
    Verdict,
    cluster_rule,
    compose,
    database_rule,
    judge,
    restored_rule,
    runs_python,
)

FINALIZER = "enmasse.io/checkpoints"

_log = logging.getLogger(__name__)

_PIPELINES = "all"
"""The key of the host's queue."""
_GATHER_S = 0.05
_TICK_S = 1.0
_NOT_STARTED = (
    "no Spark session runs for space {}, and one is not started for who may only look: a pipeline that runs brings "
    "one, and so does a query of somebody who may query the space, such as with the role tenant-edit"
)
_DELETE_S = 30.0
"""Seconds for a runner to stop a pipeline; then it is ended with all that it runs."""

Document = dict[str, Any]
Key = tuple[str, str]


class Host(Controller):
    """Runs the pipelines of an installation.

    All pipelines are one key: runners are shared, and what one takes decides whether another may start.

    Args:
        settings: the operator's.
        http: the API.
    """

    name = "pipelines"
    workers = 1

    def __init__(self, settings: HostSettings, http: httpx.AsyncClient) -> None:
        super().__init__(jitter=lambda: random.uniform(0.8, 1.2))  # noqa: S311  # spreads retries, hides nothing
        self._folder = settings.folder
        self._folders = SpaceFolders(settings.folder)
        self._restored = RestoredMarks(settings.folder)
        self.declared = Declared(http, self._changed)
        self.reports = Reports(http, _now, self._changed)
        self._schemas = SchemaCopies(http, self._spaces_with_schemas)
        self._devices = DeviceLists(http, self._tenants)
        self.runners = Runners(settings, self.declared, self._folders, self._changed)
        self._leaving: dict[Key, float] = {}
        """Space and name of pipelines whose place is to be removed, and since when."""

    async def run(self) -> None:
        """Run until cancelled; then end all runners in order."""
        await self.runners.end_former()
        if await asyncio.to_thread(relocate, self._folder):
            _log.info("the pipelines were moved to %s, and what they remember was told so", self._folder)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.declared.run(), name="declared")
                tasks.create_task(self.reports.run(), name="reports")
                tasks.create_task(self._schemas.run(), name="schemas")
                tasks.create_task(self._devices.run(), name="devices")
                tasks.create_task(super().run(), name=self.name)
        finally:
            await self.runners.end_all()

    async def query(
        self, space: str, command: Document, secret: str | None, seconds: float, *, may_start: bool = True
    ) -> Document:
        """Run one query of SQL in a space, whose runner is started if need be.

        Args:
            space: ``<namespace>/<name>``.
            command: ``sql`` (left out: the lake's tables are listed), ``limit``, and ``as``.
            secret: a Secret of the namespace with the user who reads addresses; None: no user.
            seconds: the seconds that it may take.
            may_start: whether a runner may be started for it.

        Raises:
            UnavailableError: it cannot be run now.
        """
        namespace, _, name = space.partition("/")
        facts = await self.declared.space_now(namespace, name)
        if problem := self.runners.spark_problem():
            raise UnavailableError(problem)
        key = RunnerKey(space)
        if key in self.runners.stopping:
            raise UnavailableError(f"the runner of space {space} is just ending: try again in a moment")
        await self.runners.find_separation()
        settings = None if facts.lake is None else await self.declared.lake_now(namespace, facts.lake)
        request = {
            **command,
            "addresses": await self.declared.addresses_now(namespace, name),
            "credentials": secret or "",
        }
        runner = self.runners.get(key)
        if runner is None:
            if not may_start:
                raise UnavailableError(_NOT_STARTED.format(space))
            if not (room := self.runners.room(key, None)).is_allowed:
                raise UnavailableError(room.message)
            runner = self.runners.start(key, facts, [], None, settings)
        if settings is not None:
            runner.folder.write_lake(settings)
        if secret is not None:
            runner.folder.write_credentials(*await self.declared.credentials_now(namespace, secret))
        runner.used_at = time.monotonic()
        return await runner.query(request, seconds)

    def log_of(self, namespace: str, name: str) -> BoundedLog:
        """Return the log of a pipeline."""
        space = f"{namespace}/{name.partition('.')[0]}"
        return BoundedLog(self._folders.path_of(space) / "logs" / f"{name}.log")

    def ui_of(self, namespace: str, name: str) -> UiSocket:
        """Return where Spark's pages are of the session in which a pipeline runs.

        Raises:
            UnavailableError: it does not run, or its space does not show them.
        """
        pipeline = self.declared.pipelines.get((namespace, name))
        runner = None if pipeline is None else self.runners.get(runner_key(pipeline))
        if pipeline is None or runner is None or not runner.is_ready:
            raise UnavailableError(f"pipeline {name} has no Spark session that runs: Spark shows what runs")
        if runner.ui is None:
            raise UnavailableError(
                f"space {pipeline.space} does not show Spark's pages: set spec.spark.ui of the AddressSpace to true"
            )
        return runner.ui

    def state(self) -> list[Document]:
        """Return the state of each runner."""
        return [
            {
                "space": runner.key.space,
                "pipelines": sorted(runner.assigned),
                "session": runner.key.own or "shared",
                "pid": runner.pid,
                "ready": runner.is_ready,
                "restarts": runner.restarts,
                "user": runner.folder.user,
            }
            for runner in self.runners.values()
        ]

    async def run_beside(self) -> None:
        """Reconcile every second while there are runners: some of what they do is a matter of time."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self.runners or self._leaving:
                self._changed()

    def _changed(self) -> None:
        self.enqueue(_PIPELINES)

    async def reconcile(self, key: str) -> bool:
        """Bring all runners to what is declared; changes that come together are taken together."""
        await asyncio.sleep(_GATHER_S)
        declared = self.declared
        if not declared.is_known:
            return True
        pipelines = declared.pipelines
        declared.need(
            {key[0] for key in pipelines},
            {(key[0], name) for key, item in pipelines.items() for name in named_secrets(item)}
            | {(key[0], item.lake.credentials_secret) for key, item in declared.spaces.items() if item.lake},
            {(key[0], item.spec.code.config_map) for key, item in pipelines.items() if item.spec.code},
        )
        if pipelines:
            await self.runners.find_separation()
        for of, pipeline in list(pipelines.items()):
            try:
                self._reconcile_pipeline(of, pipeline)
            except (EnmasseError, OSError, ValueError) as error:
                # The others go on.
                _log.error("pipeline %s/%s cannot be reconciled now: %s", *of, error)
        present = {(item.space_key, key[1]): item.metadata.uid for key, item in pipelines.items()}
        for space, name, uid in self._folders.claimed():
            if present.get((space, name)) != uid:
                self._leaving.setdefault((space, name), time.monotonic())
        self.reports.forget(set(pipelines))
        self._remove_left()
        self.runners.end_idle()
        self._report_usage()
        named: dict[str, set[str]] = defaultdict(set)
        for pipeline in pipelines.values():
            named[pipeline.space_key].update(named_secrets(pipeline))
        for runner in self.runners.values():
            named[runner.key.space].update(runner.credentials.values())
        self._folders.keep_credentials(named)
        return True

    def _reconcile_pipeline(self, key: Key, pipeline: Pipeline) -> None:
        facts = self._facts(key, pipeline)
        if facts is None:
            return
        verdict = judge(pipeline, facts)
        wanted = runner_key(pipeline)
        for runner in list(self.runners.having(key)):
            if runner.key != wanted or not verdict.is_wanted or _is_other(runner, pipeline):
                runner.delete(pipeline.metadata.name, purge=False)
        if pipeline.metadata.deletion_timestamp is not None:
            if FINALIZER in pipeline.metadata.finalizers:
                self._leaving.setdefault((pipeline.space_key, key[1]), time.monotonic())
        elif verdict.is_wanted:
            self._run_pipeline(key, pipeline, verdict, facts)
        runner_now = self.runners.get(wanted)
        reported = runner_now.statuses.get(pipeline.metadata.name) if runner_now is not None else None
        if reported is not None and reported.observed_generation not in (None, pipeline.metadata.generation):
            reported = None
        if reported is not None and reported.restarted_at and pipeline.spec.restart is not None:
            self._restored.forget(pipeline.space_key.replace("/", "."), key[1], reported.restarted_at)
        ending = runner_now.ending if runner_now is not None and not runner_now.is_ready else ""
        former = self.reports.former(pipeline)
        self.reports.publish(pipeline, compose(pipeline, former, verdict, reported, _now(), ending=ending))

    def _facts(self, key: Key, pipeline: Pipeline) -> Facts | None:
        """Return all that a pipeline depends on; None: it is not known yet."""
        namespace, name = key
        addresses = self.declared.addresses(namespace, pipeline.space)
        if addresses is None:
            return None
        code, secrets = None, {}
        for secret in named_secrets(pipeline):
            is_known, secrets[secret] = self.declared.find("secrets", namespace, secret)
            if not is_known:
                return None
        if pipeline.spec.code:
            is_known, code = self.declared.find("configmaps", namespace, pipeline.spec.code.config_map)
            if not is_known:
                return None
        space, lake = self.declared.spaces.get((namespace, pipeline.space)), None
        if space is not None and space.lake is not None:
            lake = self.declared.lake(namespace, space.lake)
            if lake is None:
                return None
        return Facts(
            space=space,
            lake=lake,
            addresses=addresses,
            secrets=secrets,
            code=code,
            spark=self.runners.spark_problem(),
            python=self.runners.python() if runs_python(pipeline) else Rule(True, "NotNeeded"),
            room=self.runners.room(runner_key(pipeline), pipeline),
            cluster=cluster_rule(pipeline, len(self.declared.spaces), self.runners.listed_hosts(namespace)),
            databases=database_rule(pipeline, self.declared.hosts(namespace)),
            restored=restored_rule(pipeline, self._restored),
            has_begun=any(name in runner.assigned for runner in self.runners.having(key)),
        )

    def _run_pipeline(self, key: Key, pipeline: Pipeline, verdict: Verdict, facts: Facts) -> None:
        """Have a pipeline run."""
        assert facts.space is not None
        if FINALIZER not in pipeline.metadata.finalizers:
            self.reports.request_finalizer(pipeline, FINALIZER, add=True)
            return
        place, name = runner_key(pipeline), pipeline.metadata.name
        if place in self.runners.stopping or (pipeline.space_key, name) in self._leaving:
            return
        arguments = arguments_of(pipeline) if place.own else []
        runner = self.runners.get(place)
        if runner is not None and runner.arguments != tuple(arguments):
            self.runners.end(runner)
            return
        settings = facts.lake.settings if facts.lake is not None else None
        runner = runner or self.runners.start(place, facts.space, arguments, pipeline, settings)
        if settings:
            runner.folder.write_lake(settings)
        for entries in verdict.credentials:
            runner.folder.write_credentials(*entries)
        self._folders.claim(pipeline.space_key, name, pipeline.metadata.uid)
        if pipeline.spec.code is not None:
            runner.folder.write_code(name, dict(verdict.modules))
        document = pipeline.to_dict()
        document["metadata"].pop("managedFields", None)
        command = {"command": "put", "pipeline": document, **verdict.put}
        runner.put(name, Assignment(verdict.mark, pipeline.metadata.uid, command))

    def _remove_left(self) -> None:
        """Remove the places of pipelines that are gone or going, once nothing of them runs any more."""
        for (space, name), asked in list(self._leaving.items()):
            living = [item for item in self.runners.values() if item.key.space == space]
            answers = [item.has_left(name) for item in living]  # each is to be asked
            if not all(answers):
                if time.monotonic() - asked > _DELETE_S:
                    for runner in living:
                        self.runners.end(runner)
                continue
            self._folders.purge(space, name)
            pipeline = self.declared.pipelines.get((space.partition("/")[0], name))
            if pipeline is None or FINALIZER not in pipeline.metadata.finalizers:
                del self._leaving[space, name]
            elif pipeline.metadata.deletion_timestamp is not None:
                self.reports.request_finalizer(pipeline, FINALIZER, add=False)
            else:
                del self._leaving[space, name]

    def _spaces_with_schemas(self) -> dict[tuple[str, str], SpaceFolder]:
        """Return the folders of spaces whose runners have a pipeline that needs the schema registry."""
        return {
            (runner.key.space, runner.space_uid): runner.folder
            for runner, pipeline in self._assigned()
            if needs_registry(pipeline.spec)
        }

    def _tenants(self) -> dict[tuple[str, str], SpaceFolder]:
        """Return the folders of spaces whose runners have a pipeline that expects devices, by space and tenant."""
        return {
            (runner.key.space, tenant): runner.folder
            for runner, pipeline in self._assigned()
            if (tenant := tenant_of(pipeline.spec)) is not None
        }

    def _assigned(self) -> Iterator[tuple[SpaceRunner, Pipeline]]:
        """Yield the pipelines of each runner, as they are declared."""
        for runner in self.runners.values():
            for name in runner.assigned:
                pipeline = self.declared.pipelines.get((runner.key.space.partition("/")[0], name))
                if pipeline is not None:
                    yield runner, pipeline

    def _report_usage(self) -> None:
        """Have the quotas' statuses state how much of them the runners take."""
        for (namespace, name), quota in self.declared.quotas.items():
            used = used_of(quota, self.runners.taken(namespace))
            found = {item: in_words(item, amount) for item, amount in used.items()}
            if any(quota.used.get(item) != amount for item, amount in found.items()):
                self.reports.request_used(namespace, name, found)


def _is_other(runner: SpaceRunner, pipeline: Pipeline) -> bool:
    """Return whether a runner has a former pipeline of this name."""
    sent = runner.assigned.get(pipeline.metadata.name)
    return sent is not None and sent.uid != pipeline.metadata.uid


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
