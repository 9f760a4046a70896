"""The host: what is declared is compared with what runs, for ever.

Rules:
1. One runner for each space with a pipeline that is to run, and one for each pipeline that wants a session of
   its own; none for spaces without.
2. While the API is away, what was known last goes on.
3. A pipeline gets a finalizer before its runner is told of it; it goes when its queries have stopped and its
   checkpoints are removed. What is left of a pipeline that went otherwise is removed when that is seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

from enmasse.errors import EnmasseError, UnavailableError
from enmasse.model.pipelines import Pipeline
from enmasse.pipeline.errors import SparkMissingError
from enmasse.pipeline.host.bounded_log import BoundedLog
from enmasse.pipeline.host.cluster_rule import cluster_rule
from enmasse.pipeline.host.composing import compose
from enmasse.pipeline.host.declared import Declared
from enmasse.pipeline.host.leftovers import Leftovers, end_user
from enmasse.pipeline.host.placing import arguments_of, runner_key
from enmasse.pipeline.host.python_rule import python_rule
from enmasse.pipeline.host.reports import Reports
from enmasse.pipeline.host.separation import Separation, clean_environment, find_separation, launch_command
from enmasse.pipeline.host.settings import HostSettings
from enmasse.pipeline.host.space_folders import SpaceFolders
from enmasse.pipeline.host.space_runner import RunnerKey, SpaceRunner, Told
from enmasse.pipeline.host.verdict import Facts, Rule, Verdict, judge, read_credentials, runs_python
from enmasse.pipeline.session import require_spark

__all__ = ["FINALIZER", "Host"]

FINALIZER = "enmasse.io/checkpoints"

_log = logging.getLogger(__name__)

_GATHER_S = 0.05
_TICK_S = 1.0
_SPARK_EVERY_S = 30.0
"""Between two looks whether Java and PySpark are there, while they are not."""
_DELETE_S = 30.0
"""For a runner to stop a pipeline; then it is ended with all that it runs."""

Document = dict[str, Any]
Key = tuple[str, str]


class Host:
    """Runs the pipelines of an installation.

    Args:
        settings: the operator's.
        http: the API.
    """

    def __init__(self, settings: HostSettings, http: httpx.AsyncClient) -> None:
        self._settings = settings
        self._http = http
        self._root = settings.data / "pipelines"
        self._folders = SpaceFolders(self._root)
        self._leftovers = Leftovers(self._root)
        self._something = asyncio.Event()
        self.declared = Declared(http, self._something.set)
        self.reports = Reports(http, _now)
        self.runners: dict[RunnerKey, SpaceRunner] = {}
        self._stopping: dict[RunnerKey, asyncio.Task[None]] = {}
        self._leaving: dict[Key, float] = {}
        """Space and name of pipelines whose place is to be removed, and since when."""
        self._separation: Separation | None = None
        self._spark: tuple[float, str] = (float("-inf"), "")
        self._changing: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Run until cancelled; then end all runners in order."""
        await asyncio.to_thread(self._leftovers.end, self._folders.users())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.declared.run(), name="declared")
                tasks.create_task(self.reports.run(), name="reports")
                tasks.create_task(self._look_for_ever(), name="looks")
        finally:
            await self._stop_all()

    async def query(self, space: str, command: Document, secret: str | None, seconds: float) -> Document:
        """Run one query of SQL in a space, whose runner is started if need be.

        Args:
            space: ``<namespace>/<name>``.
            command: ``sql`` and ``limit``.
            secret: a Secret of the namespace with the user who reads addresses; None: nobody in particular does.
            seconds: how long it may take.

        Raises:
            UnavailableError: it cannot be run now.
        """
        namespace, _, name = space.partition("/")
        facts = self.declared.spaces.get((namespace, name))
        if facts is None or facts.is_going:
            raise UnavailableError(f"the host of pipelines knows no space {space}: try again in a moment")
        if problem := self._spark_problem():
            raise UnavailableError(problem)
        key = RunnerKey(space)
        if key in self._stopping:
            raise UnavailableError(f"the runner of space {space} is just ending: try again in a moment")
        await self._find_separation()
        told = {**command, "addresses": await self._addresses_now(namespace, name), "credentials": secret or ""}
        runner = self.runners.get(key) or self._start(key, facts.uid, [])
        if secret is not None:
            runner.folder.write_credentials(*await self._credentials_now(namespace, secret))
        runner.used_at = time.monotonic()
        return await runner.query(told, seconds)

    def log_of(self, namespace: str, name: str) -> BoundedLog:
        """The log of a pipeline."""
        space = f"{namespace}/{name.partition('.')[0]}"
        return BoundedLog(self._folders.path_of(space) / "logs" / f"{name}.log")

    def state(self) -> list[Document]:
        """What there is to say of each runner."""
        return [
            {
                "space": runner.key.space,
                "pipelines": sorted(runner.told),
                "session": runner.key.own or "shared",
                "pid": runner.pid,
                "ready": runner.is_ready,
                "restarts": runner.restarts,
                "user": runner.folder.user,
            }
            for runner in self.runners.values()
        ]

    async def _addresses_now(self, namespace: str, space: str) -> Document:
        """The addresses of a space, as runners are told."""
        known = self.declared.addresses(namespace, space)
        if known is None:
            known = await self.declared.read_addresses(namespace, space)
        return {name: facts.told() for name, facts in known.items()}

    async def _credentials_now(self, namespace: str, secret: str) -> tuple[str, str, str]:
        """Name, user and password of a Secret.

        Raises:
            UnavailableError: there is no such Secret, or it is not complete.
        """
        found = read_credentials(secret, await self.declared.read_secret(namespace, secret))
        if isinstance(found, str):
            raise UnavailableError(found)
        return found

    async def _find_separation(self) -> Separation:
        if self._separation is None:
            self._separation = await asyncio.to_thread(find_separation, self._settings.data, self._root)
            if not self._separation.is_possible:
                _log.warning("processes of spaces cannot be kept from each other: %s", self._separation.reason)
        return self._separation

    async def _look_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_TICK_S if self.runners or self._leaving else None):
                    await self._something.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(_GATHER_S)
            self._something.clear()
            try:
                await self._look()
            except EnmasseError as error:
                _log.error("pipelines are not looked after now: %s", error)
                await asyncio.sleep(_TICK_S)
                self._something.set()

    async def _look(self) -> None:
        declared = self.declared
        if not declared.is_known:
            return
        pipelines = declared.pipelines
        declared.need(
            {key[0] for key in pipelines},
            {
                (key[0], item.spec.credentials_secret)
                for key, item in pipelines.items()
                if item.spec.credentials_secret
            },
            {(key[0], item.spec.code.config_map) for key, item in pipelines.items() if item.spec.code},
        )
        if pipelines:
            await self._find_separation()
        for key, pipeline in list(pipelines.items()):
            try:
                self._look_at(key, pipeline)
            except (EnmasseError, OSError, ValueError) as error:
                # The others go on.
                _log.error("pipeline %s/%s is not looked after now: %s", *key, error)
        present = {(item.space_key, key[1]): item.metadata.uid for key, item in pipelines.items()}
        for space, name, uid in self._folders.claimed():
            if present.get((space, name)) != uid:
                self._leaving.setdefault((space, name), time.monotonic())
        self.reports.forget(set(pipelines))
        self._see_off()
        self._end_idle()

    def _look_at(self, key: Key, pipeline: Pipeline) -> None:
        facts = self._facts(key, pipeline)
        if facts is None:
            return
        verdict = judge(pipeline, facts)
        wanted = runner_key(pipeline)
        for runner in list(self._having(key)):
            if runner.key != wanted or not verdict.is_wanted or _is_other(runner, pipeline):
                runner.delete(pipeline.metadata.name, purge=False)
        if pipeline.metadata.deletion_timestamp is not None:
            if FINALIZER in pipeline.metadata.finalizers:
                self._leaving.setdefault((pipeline.space_key, key[1]), time.monotonic())
        elif verdict.is_wanted:
            self._see_to_it(key, pipeline, verdict, facts)
        runner_now = self.runners.get(wanted)
        said = runner_now.statuses.get(pipeline.metadata.name) if runner_now is not None else None
        if said is not None and said.observed_generation not in (None, pipeline.metadata.generation):
            said = None
        ending = runner_now.ending if runner_now is not None and not runner_now.is_ready else ""
        former = self.reports.former(pipeline)
        self.reports.publish(pipeline, compose(pipeline, former, verdict, said, _now(), ending=ending))

    def _facts(self, key: Key, pipeline: Pipeline) -> Facts | None:
        """All that a pipeline depends on; None: it is not known yet."""
        namespace, name = key
        addresses = self.declared.addresses(namespace, pipeline.space)
        if addresses is None:
            return None
        secret = code = None
        if pipeline.spec.credentials_secret:
            is_known, secret = self.declared.find("secrets", namespace, pipeline.spec.credentials_secret)
            if not is_known:
                return None
        if pipeline.spec.code:
            is_known, code = self.declared.find("configmaps", namespace, pipeline.spec.code.config_map)
            if not is_known:
                return None
        return Facts(
            space=self.declared.spaces.get((namespace, pipeline.space)),
            addresses=addresses,
            secret=secret,
            code=code,
            spark=self._spark_problem(),
            python=self._python() if runs_python(pipeline) else Rule(True, "NotNeeded"),
            cluster=cluster_rule(pipeline, len(self.declared.spaces)),
            has_begun=any(name in runner.told for runner in self._having(key)),
        )

    def _see_to_it(self, key: Key, pipeline: Pipeline, verdict: Verdict, facts: Facts) -> None:
        """Have a pipeline run."""
        assert facts.space is not None
        if FINALIZER not in pipeline.metadata.finalizers:
            self._change_finalizer(pipeline, add=True)
            return
        place, name = runner_key(pipeline), pipeline.metadata.name
        if place in self._stopping or (pipeline.space_key, name) in self._leaving:
            return
        arguments = arguments_of(pipeline) if place.own else []
        runner = self.runners.get(place)
        if runner is not None and runner.arguments != tuple(arguments):
            self._end(runner)
            return
        runner = runner or self._start(place, facts.space.uid, arguments)
        if verdict.credentials is not None:
            runner.folder.write_credentials(*verdict.credentials)
        self._folders.claim(pipeline.space_key, name, pipeline.metadata.uid)
        if pipeline.spec.code is not None:
            runner.folder.write_code(name, dict(verdict.modules))
        document = pipeline.to_dict()
        document["metadata"].pop("managedFields", None)
        command = {"command": "put", "pipeline": document, **verdict.put}
        runner.put(name, Told(verdict.mark, pipeline.metadata.uid, command))

    def _see_off(self) -> None:
        """Remove the places of pipelines that are gone or going, once nothing of them runs any more."""
        for (space, name), asked in list(self._leaving.items()):
            living = [item for item in self.runners.values() if item.key.space == space]
            answers = [item.has_left(name) for item in living]  # each is to be asked
            if not all(answers):
                if time.monotonic() - asked > _DELETE_S:
                    for runner in living:
                        self._end(runner)
                continue
            self._folders.purge(space, name)
            pipeline = self.declared.pipelines.get((space.partition("/")[0], name))
            if pipeline is None or FINALIZER not in pipeline.metadata.finalizers:
                del self._leaving[space, name]
            elif pipeline.metadata.deletion_timestamp is not None:
                self._change_finalizer(pipeline, add=False)
            else:
                del self._leaving[space, name]

    def _having(self, key: Key) -> Iterator[SpaceRunner]:
        """The runners that were told of a pipeline; one, but for a moment when it moves."""
        namespace, name = key
        for runner in self.runners.values():
            if name in runner.told and runner.key.space.partition("/")[0] == namespace:
                yield runner

    def _start(self, key: RunnerKey, space_uid: str, arguments: list[str]) -> SpaceRunner:
        is_separated = self._separation is not None and self._separation.is_possible
        folder = self._folders.folder(key.space, space_uid, is_separated=is_separated)
        namespace, _, name = key.space.partition("/")
        program = [*self._settings.program, "--space", key.space, "--url", self._settings.amqp]
        program += ["--space-host", f"{name}.{namespace}", "--folder", str(folder.path), *arguments]
        if self._settings.quick:
            program.append("--quick")
        command = launch_command(folder, program, self._settings.data)
        runner = SpaceRunner(
            key, space_uid, folder, command, clean_environment(folder), tuple(arguments), self._heard(key)
        )
        self.runners[key] = runner
        runner.start()
        _log.info("space %s has a runner", " ".join(filter(None, key)))
        return runner

    def _heard(self, key: RunnerKey) -> Callable[[], None]:
        def heard() -> None:
            runner = self.runners.get(key)
            if runner is not None:
                self._leftovers.note(key, runner.pid)
            self._something.set()

        return heard

    def _end_idle(self) -> None:
        for runner in list(self.runners.values()):
            namespace, _, name = runner.key.space.partition("/")
            space = self.declared.spaces.get((namespace, name))
            if space is None or space.is_going or space.uid != runner.space_uid:
                self._end(runner)
            elif runner.is_busy:
                runner.used_at = time.monotonic()
            elif time.monotonic() - runner.used_at > self._settings.idle_s:
                self._end(runner)

    def _end(self, runner: SpaceRunner) -> None:
        if runner.key in self._stopping:
            return

        async def end() -> None:
            try:
                await runner.stop()
                self._leftovers.note(runner.key, None)
                others = [item for item in self.runners.values() if item.folder.user == runner.folder.user]
                if runner.folder.user is not None and len(others) <= 1:
                    await asyncio.to_thread(end_user, runner.folder.user)
            finally:
                self.runners.pop(runner.key, None)
                self._stopping.pop(runner.key, None)
                self._something.set()

        self._stopping[runner.key] = asyncio.create_task(end(), name=f"end {runner.key}")

    async def _stop_all(self) -> None:
        for runner in list(self.runners.values()):
            self._end(runner)
        await asyncio.gather(*self._stopping.values(), return_exceptions=True)
        for task in list(self._changing):
            task.cancel()

    def _change_finalizer(self, pipeline: Pipeline, *, add: bool) -> None:
        name = f"finalizer {pipeline.key}"
        if any(task.get_name() == name for task in self._changing):
            return

        async def change() -> None:
            try:
                await self.reports.change_finalizer(pipeline, FINALIZER, add=add)
            except httpx.HTTPError as error:
                _log.info("%s: %s", name, error or type(error).__name__)
                await asyncio.sleep(_TICK_S)
            # What has come of it is seen by the watch; if nothing has, it is tried again.
            self._something.set()

        task = asyncio.create_task(change(), name=name)
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)

    def _python(self) -> Rule:
        assert self._separation is not None
        return python_rule(self._separation, len(self.declared.spaces), is_api_open=self._settings.is_api_open)

    def _spark_problem(self) -> str:
        """Why Spark cannot start; empty: it can."""
        looked, problem = self._spark
        if (problem or looked < 0) and time.monotonic() - looked > _SPARK_EVERY_S:
            try:
                require_spark()
                problem = ""
            except SparkMissingError as error:
                problem = str(error)
            self._spark = time.monotonic(), problem
        return problem


def _is_other(runner: SpaceRunner, pipeline: Pipeline) -> bool:
    """Whether a runner was told of a former pipeline of this name."""
    told = runner.told.get(pipeline.metadata.name)
    return told is not None and told.uid != pipeline.metadata.uid


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
