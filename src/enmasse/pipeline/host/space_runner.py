"""One runner of a space as the host sees it: its process, the pipelines that it was sent, and what it reports.

Rules:
1. Whatever it reports may come from a tenant's code: only what fits is taken, and only about its own pipelines.
2. A runner gets its commands once it is ready, and all of them again when it was started again. One that still
   starts has begun nothing, so it is ended at once and has nothing to leave in order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from enmasse.errors import UnavailableError
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.pipelines.status import PipelineStatus
from enmasse.model.schema.quantities import amount_of
from enmasse.pipeline.host.capacity import Needs
from enmasse.pipeline.host.space_folders import SpaceFolder
from enmasse.pipeline.host.supervise import GRACE_S, BoundedLog, Supervisor
from enmasse.pipeline.host.ui_sockets import UiSocket
from enmasse.pipeline.host.verdict import SpaceFacts

_log = logging.getLogger(__name__)

_MAX_QUERIES = 100
_LONGEST_TEXT = 4096
_ANSWER = ("columns", "rows", "error", "truncated", "warnings", "file", "busy")
_STATUS_FIELDS = (
    "phase", "messages", "conditions", "queries", "rows", "rate", "lag", "lastError", "restartedAt", "warnings",
    "observedGeneration", "lastRun", "nextRun", "backfill",
)  # fmt: skip

Document = dict[str, Any]


class RunnerKey(NamedTuple):
    """The key of a runner: of a whole space, or of one pipeline that has a session of its own."""

    space: str
    own: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A pipeline as it was sent to a runner."""

    mark: str
    uid: str
    command: Document


class SpaceRunner:
    """Supervises the process that runs some of a space's pipelines, and sends it these.

    Args:
        key: the key of the runner.
        space_uid: the identity of the space.
        folder: the folder of the space.
        command: the command that is to be supervised.
        environment: the environment of the command.
        arguments: the arguments of the runner, by which it differs from others.
        needs: memory and cores that it takes.
        changed: called when there is something new.
        ui: the socket on which it serves Spark's pages; None: it does not.
    """

    def __init__(
        self,
        key: RunnerKey,
        space_uid: str,
        folder: SpaceFolder,
        command: list[str],
        environment: Mapping[str, str],
        arguments: tuple[str, ...],
        needs: Needs,
        changed: Callable[[], None],
        ui: UiSocket | None = None,
    ) -> None:
        self.key = key
        self.ui = ui
        self.space_uid = space_uid
        self.folder = folder
        self.arguments = arguments
        self.needs = needs
        self.hosts = ""
        """The hosts that an operator lets it reach."""
        self.shown: tuple[str, ...] = ()
        """The settings of what it keeps and shows of Spark, as arguments."""
        self.cgroup: Path | None = None
        """The control group that bounds it."""
        self.is_ready = False
        self.restarts = 0
        self.ending = ""
        """The way it ended last; empty: it has not."""
        self._why = ""
        self.statuses: dict[str, PipelineStatus] = {}
        self.assigned: dict[str, Assignment] = {}
        self.deleted: set[str] = set()
        """Pipelines that it reported as stopped."""
        self.asked: set[str] = set()
        """Pipelines that it was asked to stop."""
        self.used_at = time.monotonic()
        self.is_stopping = False
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._queries: dict[str, asyncio.Future[Document]] = {}
        self.credentials: dict[str, str] = {}
        """The Secret of each query that is under way, by its number."""
        self._numbers = itertools.count(1)
        self._logs: dict[str, BoundedLog] = {}
        name = f"_runner.{key.own}.log" if key.own else "_runner.log"
        self._supervisor = Supervisor(
            command,
            folder.path / "logs" / name,
            self._on_event_threadsafe,
            environment=environment,
            keep=() if ui is None else (ui.number,),
        )

    @property
    def pid(self) -> int | None:
        """The pid of its process; None if it does not run."""
        return self._supervisor.pid

    @property
    def is_busy(self) -> bool:
        """True if it has a pipeline or a query."""
        return bool(self.assigned or self._queries)

    def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._supervisor.start()

    async def stop(self) -> None:
        """End it in order, or by force after a while; at once if it still starts."""
        self.is_stopping = True
        await asyncio.to_thread(self._supervisor.stop, GRACE_S if self.is_ready else 0.0)
        self._fail_queries("the space's Spark session has ended")

    def put(self, name: str, assignment: Assignment) -> None:
        """Have a pipeline run as given, unless it does already."""
        former = self.assigned.get(name)
        if former is None or former.mark != assignment.mark:
            self.assigned[name] = assignment
            self.deleted.discard(name)
            self.asked.discard(name)
            self._send(assignment.command)

    def delete(self, name: str, *, purge: bool) -> None:
        """Have a pipeline stopped."""
        self.assigned.pop(name, None)
        self.statuses.pop(name, None)
        self._send({"command": "delete", "name": name, "purge": purge})

    def has_left(self, name: str) -> bool:
        """Have the runner stop a pipeline and remove its state, and return whether that is done.

        The first call sends the command; later ones only ask. A runner that is not ready has nothing of it.
        """
        if name not in self.asked:
            self.asked.add(name)
            self.deleted.discard(name)
            self.delete(name, purge=True)
        return name in self.deleted or not self.is_ready

    async def query(self, command: Document, seconds: float) -> Document:
        """Run one query of SQL.

        Args:
            command: ``sql``, ``limit`` and what else a runner must know.
            seconds: the seconds to wait for the answer, Spark's start included.

        Raises:
            UnavailableError: there are too many, or there was no answer in time.
        """
        if len(self._queries) >= _MAX_QUERIES:
            raise UnavailableError(f"{_MAX_QUERIES} queries are under way in space {self.key.space}: try again later")
        number = str(next(self._numbers))
        answer: asyncio.Future[Document] = self._loop.create_future()
        self._queries[number] = answer
        self.credentials[number] = command["credentials"]
        try:
            async with asyncio.timeout(seconds):
                while not self.is_ready:
                    if self.ending and self.restarts > 1:
                        raise UnavailableError(f"the space's Spark session does not start: it {self.ending}")
                    await asyncio.sleep(0.05)
                self._supervisor.send({**command, "command": "query", "id": number})
                found = await answer
                if found["busy"]:
                    raise UnavailableError(str(found["error"]))
                return found
        except TimeoutError:
            raise UnavailableError(f"the query had no answer within {seconds:g} s") from None
        finally:
            self._queries.pop(number, None)
            self.credentials.pop(number, None)
            self.used_at = time.monotonic()
            if not answer.done():
                answer.cancel()
                self._supervisor.send({"command": "cancel", "id": number})

    def log_of(self, name: str) -> BoundedLog:
        """Return the log of a pipeline."""
        return self._logs.setdefault(name, BoundedLog(self.folder.path / "logs" / f"{name}.log"))

    def _send(self, command: Document) -> None:
        if self.is_ready:
            self._supervisor.send(command)

    def _on_event_threadsafe(self, event: Document) -> None:
        # The loop may have ended when the last event of a runner comes.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: Document) -> None:
        name = event.get("pipeline") or event.get("name")
        match event["event"]:
            case "started":
                self.is_ready = False
                self._why = ""
                self.statuses.clear()
            case "ready":
                self.is_ready = True
                self.ending = ""
                # What it was asked to leave it does not have: it is sent the rest alone.
                self.deleted |= self.asked
                for assignment in self.assigned.values():
                    self._supervisor.send(assignment.command)
                _log.info("the runner of %s is ready", self.key.space)
            case "failed":
                self._why = str(_shortened(event.get("error", "")))
            case "ended":
                self._ended(event["status"])
            case "status" if isinstance(name, str) and name in self.assigned:
                self._take_status(name, event.get("status"))
            case "log" if isinstance(name, str) and name in self.assigned:
                self.log_of(name).append(str(event.get("line", "")))
                return
            case "deleted" if isinstance(name, str):
                if name not in self.assigned and len(self.deleted) < _MAX_QUERIES:
                    self.deleted.add(name)
            case "answer":
                answer = self._queries.get(str(event.get("id")))
                if answer is not None and not answer.done():
                    answer.set_result({key: event.get(key) for key in _ANSWER})
                return
            case _:
                return
        self._changed()

    def _ended(self, status: Any) -> None:
        self.is_ready = False
        self.statuses.clear()
        self.restarts += 1
        self.ending = f"ended with exit code {status}" if status >= 0 else f"was ended by signal {-status}"
        if self._why:
            self.ending += f" ({self._why})"
        if not self.is_stopping:
            _log.warning("the runner of %s %s; it is started again", self.key.space, self.ending)
            for name in self.assigned:
                self.log_of(name).append(f"the runner {self.ending}; it is started again")
        if self.restarts > 1 or self.is_stopping:
            self._fail_queries(f"the space's Spark session {self.ending}")

    def _fail_queries(self, why: str) -> None:
        for answer in self._queries.values():
            if not answer.done():
                answer.set_exception(UnavailableError(f"{why}: try again"))

    def _take_status(self, name: str, reported: Any) -> None:
        if not isinstance(reported, dict):
            return
        fields = {key: _shortened(reported[key]) for key in _STATUS_FIELDS if reported.get(key) is not None}
        try:
            self.statuses[name] = PipelineStatus.model_validate(fields, by_alias=True, by_name=False)
        except ValidationError as error:
            _log.warning(
                "the runner of %s reports an invalid status of %s: %s", self.key.space, name, error.errors()[:1]
            )


def _shortened(value: Any, depth: int = 0) -> Any:
    """Cut what is longer than any honest runner reports."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if isinstance(value, list):
        return [_shortened(item, depth + 1) for item in value[:_MAX_QUERIES]] if depth < 6 else []
    if isinstance(value, dict):
        return {str(key): _shortened(item, depth + 1) for key, item in list(value.items())[:100]} if depth < 6 else {}
    return value


def shown_of(space: SpaceFacts) -> tuple[str, ...]:
    """Return what the runners of a space keep and show of Spark."""
    return (*(["--event-log"] if space.has_event_log else []), *(["--ui"] if space.has_ui else []))


def runner_key(pipeline: Pipeline) -> RunnerKey:
    """Return the runner that a pipeline belongs to."""
    resources = pipeline.spec.resources
    is_own = resources is not None and (resources.session == "own" or bool(resources.master))
    return RunnerKey(pipeline.space_key, pipeline.metadata.name if is_own else "")


def arguments_of(pipeline: Pipeline) -> list[str]:
    """Return the arguments of a runner that is of one pipeline alone."""
    resources = pipeline.spec.resources
    assert resources is not None
    found = ["--session", pipeline.metadata.name]
    if resources.cores is not None:
        found += ["--cores", str(resources.cores)]
    if resources.memory is not None:
        found += ["--memory", f"{max(1, int(amount_of(resources.memory)) >> 20)}m"]
    if resources.master:
        found += ["--master", resources.master]
    return found
