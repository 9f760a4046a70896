"""The runners of an installation: started in their cages and within their namespaces' quotas, and ended.

Whether a pipeline is to run is not decided here, but in ``host``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

from enmasse.drivers.authority import Authority
from enmasse.drivers.data_directory import Layout
from enmasse.model.kinds.pipelines.pipeline import DEFAULT_MEMORY, Pipeline
from enmasse.pipeline.errors import SparkMissingError
from enmasse.pipeline.host.capacity import (
    Cgroups,
    Machine,
    Needs,
    QuotaFacts,
    amounts_of,
    check_capacity,
    cores_of,
    memory_of,
    needs_of,
    this_machine,
)
from enmasse.pipeline.host.declared import Declared
from enmasse.pipeline.host.reach import ANNOTATION, parse_hosts
from enmasse.pipeline.host.separation import (
    Confines,
    Separation,
    clean_environment,
    find_separation,
    launch_command,
)
from enmasse.pipeline.host.settings import HostSettings
from enmasse.pipeline.host.space_folders import Leftovers, SpaceFolders, end_user
from enmasse.pipeline.host.space_runner import RunnerKey, SpaceRunner, shown_of
from enmasse.pipeline.host.ui_sockets import UiSocket, remove_former
from enmasse.pipeline.host.verdict import Rule, SpaceFacts, python_rule
from enmasse.pipeline.session import require_spark

_log = logging.getLogger(__name__)

_SPARK_EVERY_S = 30.0
"""Between two checks for Java and PySpark while they are missing."""


class Runners(Mapping[RunnerKey, SpaceRunner]):
    """The runners that run, by their keys.

    Args:
        settings: the operator's.
        declared: the declarations.
        folders: the folders of spaces.
        changed: called when one has started, ended or reported something.
    """

    def __init__(
        self, settings: HostSettings, declared: Declared, folders: SpaceFolders, changed: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._declared = declared
        self._folders = folders
        self._changed = changed
        self._leftovers = Leftovers(settings.folder)
        self._sockets = Layout(settings.data).pipelines_socket.parent
        """Not in the folder of pipelines: its disk may have no sockets, or its path too many characters for one."""
        self._running: dict[RunnerKey, SpaceRunner] = {}
        self.stopping: dict[RunnerKey, asyncio.Task[None]] = {}
        self._separation: Separation | None = None
        self._cgroups = Cgroups()
        self._spark: tuple[float, str] = (float("-inf"), "")
        self._machine = this_machine()

    def __getitem__(self, key: RunnerKey) -> SpaceRunner:
        return self._running[key]

    def __iter__(self) -> Iterator[RunnerKey]:
        return iter(self._running)

    def __len__(self) -> int:
        return len(self._running)

    async def end_former(self) -> None:
        """End what runners of a former host have left."""
        await asyncio.to_thread(self._leftovers.end, self._folders.users())
        remove_former(self._sockets)

    async def find_separation(self) -> Separation:
        """Find out, once, how far runners can be kept from each other and from this machine."""
        if self._separation is None:
            self._separation = await asyncio.to_thread(find_separation, self._settings.data, self._settings.folder)
            if not self._separation.is_possible:
                _log.warning("processes of spaces cannot be kept from each other: %s", self._separation.reason)
            if self._cgroups.problem:
                if self._separation.is_alone:
                    how = "are looked after by its first process, as there are no control groups"
                else:
                    how = "are not bounded together"
                _log.info("memory and cores of all processes of a runner %s: %s", how, self._cgroups.problem)
            if self._separation.crowded:
                _log.warning("runners see the numbers of other processes: %s", self._separation.crowded)
            if self._separation.unfiltered:
                _log.warning("runners may make all system calls: %s", self._separation.unfiltered)
            if self._separation.is_caged:
                _log.info("runners reach the node, the API and what %s of their namespace lists", ANNOTATION)
            else:
                _log.warning(
                    "runners share this machine's network and its folders for temporary files: %s. "
                    "Run EnMasse as root, or let users make user namespaces; until then connections to other ports "
                    "are refused where the kernel has Landlock for ports (Linux 6.7)",
                    self._separation.uncaged,
                )
        return self._separation

    def spark_problem(self) -> str:
        """Return why Spark cannot start; empty: it can."""
        checked, problem = self._spark
        if (problem or checked < 0) and time.monotonic() - checked > _SPARK_EVERY_S:
            try:
                require_spark()
                problem = ""
            except SparkMissingError as error:
                problem = str(error)
            self._spark = time.monotonic(), problem
        return problem

    def having(self, key: tuple[str, str]) -> Iterator[SpaceRunner]:
        """Yield the runners that have a pipeline; one, but for a moment when it moves."""
        namespace, name = key
        for runner in self._running.values():
            if name in runner.assigned and runner.key.space.partition("/")[0] == namespace:
                yield runner

    def _there(self, key: RunnerKey) -> Machine:
        """Return what of the machine the runners of a space may have."""
        namespace, _, name = key.space.partition("/")
        space = self._declared.spaces.get((namespace, name))
        return self._machine if space is None else self._machine.within(space.memory, space.cores)

    def _needs(self, key: RunnerKey, pipeline: Pipeline | None) -> Needs:
        namespace = key.space.partition("/")[0]
        return needs_of(pipeline if key.own else None, self._quotas(namespace).values(), self._there(key))

    def room(self, key: RunnerKey, pipeline: Pipeline | None) -> Rule:
        """Return whether there is room for a runner, of a pipeline that has it for itself or of none.

        One that runs may go on.
        """
        if key in self._running:
            return Rule(True, "Granted")
        namespace = key.space.partition("/")[0]
        return check_capacity(
            self._needs(key, pipeline), self.taken(namespace), self._quotas(namespace), self._there(key)
        )

    def taken(self, namespace: str) -> list[Needs]:
        """Return what each runner of a namespace takes."""
        return [item.needs for key, item in self._running.items() if key.space.partition("/")[0] == namespace]

    def _quotas(self, namespace: str) -> dict[str, QuotaFacts]:
        return {name: quota for (where, name), quota in self._declared.quotas.items() if where == namespace}

    def start(
        self,
        key: RunnerKey,
        space: SpaceFacts,
        arguments: list[str],
        pipeline: Pipeline | None,
        lake: Mapping[str, str] | None,
    ) -> SpaceRunner:
        """Start a runner.

        Args:
            key: the key of the runner.
            space: its space.
            arguments: the arguments of the runner, by which it differs from others.
            pipeline: the pipeline that may have it for itself; None: it is for queries.
            lake: settings of the space's tables, if they are not in its folder.
        """
        needs = self._needs(key, pipeline)
        is_separated = self._separation is not None and self._separation.is_possible
        folder = self._folders.folder(key.space, space.uid, is_separated=is_separated)
        if lake:
            folder.write_lake(lake)
        if (authority := Authority(Layout(self._settings.data).tls).path).exists():
            folder.write_authority(authority.read_bytes())
        namespace, _, name = key.space.partition("/")
        program = [*self._settings.program, "--space", key.space, "--url", self._settings.amqp]
        program += ["--space-host", f"{name}.{namespace}.{self._settings.domain}"]
        shown = shown_of(space)
        program += ["--folder", str(folder.path), *arguments]
        cores = cores_of(needs, self._machine)
        if "--cores" not in arguments and cores is not None:
            program += ["--cores", str(cores)]
        if "--memory" not in arguments and needs.memory != DEFAULT_MEMORY:
            program += ["--memory", f"{int(needs.memory) >> 20}m"]
        if self._settings.quick:
            program.append("--quick")
        hosts = self._hosts(namespace)
        confines = Confines(
            ours=tuple(map(_place_of, (self._settings.amqp, self._settings.api))),
            hosts=hosts,
            is_caged=self._separation is not None and self._separation.is_caged,
            is_alone=self._separation is not None and self._separation.is_alone,
            # Executors have to reach the driver; which cluster it is was checked.
            is_everywhere=any(word.startswith("spark://") for word in arguments),
            cgroup=self._cgroups.make(key, amounts_of(needs, self._machine)),
            memory=memory_of(needs, self._machine),
            cores=cores,
        )
        with ExitStack() as undo:
            undo.callback(self._cgroups.remove, confines.cgroup)
            ui = undo.enter_context(closing(UiSocket(self._sockets))) if space.has_ui else None
            program += [*shown, *([str(ui.number)] if ui is not None else [])]
            command = launch_command(folder, program, self._settings.data, confines)
            environment, changed = clean_environment(folder), self._on_event(key)
            runner = SpaceRunner(key, space.uid, folder, command, environment, tuple(arguments), needs, changed, ui)
            undo.pop_all()
        runner.hosts, runner.cgroup, runner.shown = hosts, confines.cgroup, shown
        self._running[key] = runner
        runner.start()
        self._changed()
        _log.info("space %s has a runner", " ".join(filter(None, key)))
        return runner

    def end(self, runner: SpaceRunner) -> None:
        """Have a runner stop its pipelines in order, and end it with all that it runs."""
        if runner.key in self.stopping:
            return

        async def end() -> None:
            try:
                await runner.stop()
                self._leftovers.note(runner.key, None)
                others = [item for item in self._running.values() if item.folder.user == runner.folder.user]
                if runner.folder.user is not None and len(others) <= 1:
                    await asyncio.to_thread(end_user, runner.folder.user)
            finally:
                self._cgroups.remove(runner.cgroup)
                if runner.ui is not None:
                    runner.ui.close()
                self._running.pop(runner.key, None)
                self.stopping.pop(runner.key, None)
                self._changed()

        self.stopping[runner.key] = asyncio.create_task(end(), name=f"end {runner.key}")

    def end_idle(self) -> None:
        """End runners that nobody has used for a while, and those that are not as is declared any more."""
        for runner in list(self._running.values()):
            namespace, _, name = runner.key.space.partition("/")
            space = self._declared.spaces.get((namespace, name))
            is_there = space is not None and not space.is_going and space.uid == runner.space_uid
            is_other = runner.hosts != self._declared.hosts(namespace)
            if not is_there or is_other or (space is not None and runner.shown != shown_of(space)):
                self.end(runner)
            elif runner.is_busy:
                runner.used_at = time.monotonic()
            elif time.monotonic() - runner.used_at > self._settings.idle_s:
                self.end(runner)

    async def end_all(self) -> None:
        """End all runners in order."""
        for runner in list(self._running.values()):
            self.end(runner)
        await asyncio.gather(*self.stopping.values(), return_exceptions=True)

    def listed_hosts(self, namespace: str) -> str | None:
        """Return the hosts that the runners of a namespace are kept to; None: they are not."""
        is_caged = self._separation is not None and self._separation.is_caged
        return self._declared.hosts(namespace) if is_caged else None

    def python(self) -> Rule:
        """Return whether functions of Python may run here."""
        assert self._separation is not None
        return python_rule(self._separation, len(self._declared.spaces), is_api_open=self._settings.is_api_open)

    def _hosts(self, namespace: str) -> str:
        """Return the hosts that the runners of a namespace may reach besides EnMasse, as the operator wrote it."""
        hosts = self._declared.hosts(namespace)
        for problem in parse_hosts(hosts)[1]:
            _log.warning("%s of namespace %s: %s", ANNOTATION, namespace, problem)
        return hosts

    def _on_event(self, key: RunnerKey) -> Callable[[], None]:
        def on_event() -> None:
            runner = self._running.get(key)
            if runner is not None:
                self._leftovers.note(key, runner.pid)
            self._changed()

        return on_event


def _place_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
