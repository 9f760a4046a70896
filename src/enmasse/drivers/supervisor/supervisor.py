"""``enmasse up``: run one control process, the nodes and the host of pipelines, on ports that stay the same.

Rules:
1. Ports are chosen once; a process that is restarted serves the same ones. Those for clients are bound here, and all
   nodes accept from them.
2. A node opens its ports only after ``endpoints.json`` names its new process
   ids: it sends ``loaded``, the file is replaced, and it receives its word.
3. Processes are stopped in order: pipelines first, while they can still report and reach their addresses; then
   control, so that nothing is declared any more; then the nodes, all at once.
4. A file that cannot be written is reported and tried again; no process ends, nor waits, because a file of ours
   cannot be written or another process has died.
5. Whatever ends the supervisor ends its children: their standard input ends.
6. Everything runs once each endpoint has answered a probe. What does not answer, or does not open its ports, is
   named and waited for: a node may have much to load.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.control.access.accounts import new_secret
from enmasse.drivers.authority import keep_certificate, keep_renewing
from enmasse.drivers.data_directory import DirectoryLock, Layout, keep_secret, make_private
from enmasse.drivers.pipelines_folder import pipelines_folder
from enmasse.drivers.supervisor.child import Child
from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, Process, read_endpoints, write_endpoints
from enmasse.drivers.supervisor.node_children import NodeChildren, require_node_journal
from enmasse.drivers.supervisor.node_count import choose_nodes
from enmasse.drivers.supervisor.ports import ClientSockets, choose_ports
from enmasse.drivers.supervisor.probes import failed_probes
from enmasse.errors import ConfigError
from enmasse.net.connection_limiter import room_for_connections
from enmasse.net.logs import JsonFormatter, TextFormatter
from enmasse.node.protocols import PROTOCOLS
from enmasse.storage.errors import JournalMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from enmasse.drivers.supervisor.child import Event
    from enmasse.drivers.supervisor.ports import Ports


_log = logging.getLogger(__name__)

_PIPELINES_PATIENCE_S = 25.0  # queries end the batch that runs, then Spark ends
_CONTROL_PATIENCE_S = 5.0
_PUBLISH_AGAIN_S = 0.5
_NODE_PATIENCE_S = 20.0  # it settles what is under way and commits before it ends
_PACE_S = 20.0  # as many connections as a node has, at the pace of one that was drained
_START_PATIENCE_S = 15.0  # a start takes a few seconds; longer if a node has much to load
_PROBE_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The settings of ``enmasse up``.

    Attributes:
        data: the data directory.
        host: the loopback interface to serve.
        automatic_ports: take free ports instead of the customary ones.
        amqp_port: this one for AMQP; None: chosen.
        api_port: this one for the API; None: chosen.
        further_ports: those for protocols beside AMQP, by name; the others are chosen.
        log_format: ``text`` or ``json``, in all logs.
        api_auth: the users of the API: ``token``, ``open`` or ``required``.
        allow_python: true if users' Python runs even where the API is open.
        control_arguments: further ones for the control process.
        node_arguments: further ones for the node.
        drain_delay_s: the time that nodes serve on when they are to stop.
        domain: below which spaces have their hosts.
        api_tls_host: the interface on which the API is served with TLS; None: it is not.
        api_tls_port: this port for it; None: chosen.
        nodes: the number of nodes; None: as many as there were, and one at first.
        with_pipelines: true if pipelines are run.
        pipelines_folder: the folder of their tables, checkpoints and logs; None: below the data directory.
    """

    data: Path
    host: str = "127.0.0.1"
    automatic_ports: bool = False
    amqp_port: int | None = None
    api_port: int | None = None
    further_ports: Mapping[str, int] = field(default_factory=dict)
    log_format: str = "text"
    api_auth: str = "token"
    allow_python: bool = False
    control_arguments: tuple[str, ...] = ()
    node_arguments: tuple[str, ...] = ()
    drain_delay_s: float = 0.0
    domain: str = "enmasse.local"
    api_tls_host: str | None = None
    api_tls_port: int | None = None
    nodes: int | None = None
    with_pipelines: bool = True
    pipelines_folder: Path | None = None


def run_supervisor(
    settings: UpSettings, *, on_ready: Callable[[Endpoints], None], report: Callable[[str], None]
) -> int:
    """Run everything until SIGINT or SIGTERM; return the exit code.

    Args:
        settings: the settings of what to start.
        on_ready: called once every endpoint has answered.
        report: shows a sentence to the user.

    Raises:
        ConfigError: when the directory is in use, a port is taken, or the limit of open files is too low.
        UnavailableError: when a process ends before it has ever worked.
    """
    room_for_connections()  # the node and control would say the same, but here it is one sentence
    layout = Layout(settings.data.absolute())
    make_private(layout.data)
    with ExitStack() as held:
        held.enter_context(DirectoryLock(layout.data))
        os.umask(0o077)  # of our children, too
        _wait_for_former(layout, report)
        if settings.with_pipelines:
            folder = settings.pipelines_folder or layout.pipelines
            held.enter_context(pipelines_folder(layout, folder.absolute()))
        nodes = choose_nodes(layout, settings.nodes)
        _require_a_journal(layout, nodes)  # a node would refuse too, but here it is one sentence
        # The file of a former run would lead others to processes that have ended.
        try:
            layout.endpoints.unlink(missing_ok=True)
            layout.logs.mkdir(exist_ok=True)
            handler = logging.FileHandler(layout.logs / "supervisor.log", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{error.filename or layout.data} cannot be written ({error.strerror}): see to it that you may, or "
                "name another directory with --data"
            ) from None
        keep_certificate(layout.tls, settings.host)
        keep_secret(layout.operator_token, new_secret, report)  # control would report it in its log only
        logging.raiseExceptions = False  # a log on a full disk is no reason to fill the terminal
        handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        ports = choose_ports(
            layout,
            settings.host,
            automatic=settings.automatic_ports,
            amqp=settings.amqp_port,
            api=settings.api_port,
            api_tls_host=settings.api_tls_host,
            api_tls=settings.api_tls_port,
            further=settings.further_ports,
        )
        sockets = ClientSockets(settings.host, ports)

        def report_and_log(sentence: str) -> None:
            _log.warning("%s", sentence)
            with suppress(OSError):  # the terminal may be closed, or be a file on a full disk
                report(sentence)

        def ready(endpoints: Endpoints) -> None:
            with suppress(OSError):
                on_ready(endpoints)

        try:
            return asyncio.run(_Supervisor(layout, settings, nodes, ports, sockets, ready, report_and_log).run())
        finally:
            with suppress(OSError):
                layout.endpoints.unlink(missing_ok=True)
            with suppress(OSError):
                handler.close()


def _require_a_journal(layout: Layout, nodes: Sequence[str]) -> None:
    """Check that not all nodes have lost their journals: the others serve without those that have.

    Raises:
        JournalMissingError: they have.
    """
    for name in nodes[:-1]:
        with suppress(JournalMissingError):
            require_node_journal(layout, name)
            return
    require_node_journal(layout, nodes[-1])


def _wait_for_former(layout: Layout, report: Callable[[str], None]) -> None:
    """Wait until the children of a supervisor that was killed have ended, as they do by themselves."""
    former = read_endpoints(layout.endpoints) or Endpoints()
    deadline = time.monotonic() + _NODE_PATIENCE_S
    is_reported = False
    while left := [item for item in former.processes if _is_ours(item.pid)]:
        if not is_reported:
            report("waiting for the processes of a former run to end ...")
            is_reported = True
        if time.monotonic() > deadline:
            named = ", ".join(f"{item.kind} {item.pid}" for item in left)
            raise ConfigError(f"processes of a former run do not end: {named}; end them by hand")
        time.sleep(0.1)


def _is_ours(pid: int) -> bool:
    """Return whether a process is one of EnMasse: its number may be another program's by now."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return pid != os.getpid() and b"enmasse" in command


def _tls_url(settings: UpSettings, ports: Ports) -> str:
    host = settings.api_tls_host or ""
    if host in ("0.0.0.0", "::"):  # noqa: S104  # the readers are on this machine
        host = "localhost"
    return f"https://[{host}]:{ports.api_tls}" if ":" in host else f"https://{host}:{ports.api_tls}"


class _Supervisor:
    def __init__(
        self,
        layout: Layout,
        settings: UpSettings,
        nodes: Sequence[str],
        ports: Ports,
        sockets: ClientSockets,
        on_ready: Callable[[Endpoints], None],
        report: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._on_ready = on_ready
        self._report = report
        self._host = settings.host
        self._node_patience_s = _NODE_PATIENCE_S
        if settings.drain_delay_s:
            self._node_patience_s += settings.drain_delay_s + _PACE_S
        host = settings.host
        shown = f"[{host}]" if ":" in host else host
        self._endpoints = Endpoints(
            endpoints=(
                Endpoint("amqp", f"amqp://{shown}:{ports.amqp}"),
                Endpoint("amqps", f"amqps://{shown}:{ports.amqp}"),
                *(
                    Endpoint(scheme, PROTOCOLS[name].url(host, port, is_secure=bool(number)))
                    for name, port in ports.further.items()
                    for number, scheme in enumerate(PROTOCOLS[name].schemes)
                ),
                Endpoint("api", f"http://{shown}:{ports.api}"),
                Endpoint("console", f"http://{shown}:{ports.api}/console/"),
                Endpoint("registry", f"http://{shown}:{ports.api}/registry/v1"),
                Endpoint("schemas", f"http://{shown}:{ports.api}/schemas/v1"),
                *([Endpoint("api-tls", _tls_url(settings, ports))] if settings.api_tls_host else []),
            ),
            domain=settings.domain.lower(),
        )
        self._processes = {"supervisor": Process("supervisor", "supervisor", os.getpid())}
        self._starting = {"control", *nodes}  # the processes that have not opened their ports yet
        self._all_listen = asyncio.Event()
        self._publishing: asyncio.TimerHandle | None = None  # set while the file could not be written
        data = ["--data", str(layout.data), "--supervised", "--log-format", settings.log_format]
        api_arguments = ["--host", host, "--port", str(ports.api), "--api-auth", settings.api_auth]
        api_arguments += [*settings.control_arguments, "--domain", settings.domain, "--amqp-port", str(ports.amqp)]
        if settings.api_tls_host is not None:
            api_arguments += ["--tls-host", settings.api_tls_host, "--tls-port", str(ports.api_tls)]
        for name in nodes:
            api_arguments += ["--node", name]
        self._control = Child(
            "control",
            [sys.executable, "-m", "enmasse", "control", *data, *api_arguments],
            log=layout.logs / "control.log",
            on_start=self._control_started,
            on_event=self._on_control_event,
            report=report,
        )
        tls = ["--tls", str(layout.tls), "--domain", settings.domain, "--log-format", settings.log_format]
        self._nodes = NodeChildren(
            nodes,
            [*tls, *settings.node_arguments],
            layout,
            sockets,
            published=self._publish_nodes,
            settled=self._settled,
            report=report,
        )
        self._control_listens = asyncio.Event()
        self._pipelines: Child | None = None
        if settings.with_pipelines:
            api = f"http://{shown}:{ports.api}"
            where = ["--data", str(layout.data), "--api", api, "--amqp", f"amqp://{shown}:{ports.amqp}"]
            where += ["--domain", settings.domain, "--supervised", "--log-format", settings.log_format]
            where += ["--api-auth", settings.api_auth, *(["--allow-python"] if settings.allow_python else [])]
            if settings.pipelines_folder is not None:
                where += ["--folder", str(settings.pipelines_folder.absolute())]
            self._pipelines = Child(
                "pipelines",
                [sys.executable, "-m", "enmasse.pipeline", "host", *where],
                log=layout.logs / "pipelines.log",
                on_start=self._pipelines_started,
                on_event=lambda _event: None,
                report=report,
                is_needed=lambda: False,
            )

    async def run(self) -> int:
        """Run everything until a signal."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        children = (self._control, *self._nodes.all)
        running = [asyncio.create_task(child.run(), name=child.name) for child in children]
        stopping = asyncio.create_task(stop.wait())
        renewing = asyncio.create_task(keep_renewing(self._layout.tls, self._host, self._report))
        hosting = asyncio.create_task(self._host_pipelines())
        announcing = asyncio.create_task(self._announce())
        try:
            await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            renewing.cancel()
            announcing.cancel()
            if self._pipelines is not None:
                await self._pipelines.stop(_PIPELINES_PATIENCE_S)
            hosting.cancel()
            await self._control.stop(_CONTROL_PATIENCE_S)
            await self._nodes.stop(self._node_patience_s)
            for task in running:
                if not task.done():
                    task.cancel()
            await asyncio.wait(running)
        for task in running:
            if not task.cancelled():
                task.result()  # raises what ended it
        return 0

    async def _announce(self) -> None:
        """Tell that everything runs, once every endpoint has answered; name what does not come up."""
        try:
            async with asyncio.timeout(_START_PATIENCE_S):
                await self._all_listen.wait()
        except TimeoutError:
            logs = " and ".join(f"{name} ({self._layout.logs / name}.log)" for name in sorted(self._starting))
            self._report(f"{logs}: no port was opened in {_START_PATIENCE_S:g} s; waiting for that")
            await self._all_listen.wait()
        told: list[str] = []
        while failed := await asyncio.to_thread(failed_probes, self._endpoints):
            if failed != told:
                self._report("\n".join([*failed, "waiting for that"]))
                told = failed
            await asyncio.sleep(_PROBE_AGAIN_S)
        self._on_ready(self._endpoints)

    async def _host_pipelines(self) -> None:
        """Keep the host of pipelines running; messaging goes on without it."""
        await self._control_listens.wait()
        if self._pipelines is not None:
            await self._pipelines.run()

    def _pipelines_started(self, pid: int) -> None:
        self._processes["pipelines"] = Process("pipelines", "pipelines", pid)
        self._publish_nodes()

    def _control_started(self, pid: int) -> None:
        self._processes["control"] = Process("control", "control", pid)
        self._publish_nodes()

    def _on_control_event(self, event: Event) -> None:
        if event.get("event") == "listening":
            self._settled("control")
            self._control_listens.set()
            self._nodes.open("control")  # a reader of the file must find the API behind it

    def _publish_nodes(self) -> None:
        """Publish the processes, unless the file would name no node."""
        if self._nodes.processes:
            self._publish()

    def _publish(self) -> None:
        first = [self._processes[name] for name in ("supervisor", "control") if name in self._processes]
        last = [self._processes[name] for name in ("pipelines",) if name in self._processes]
        processes = (*first, *self._nodes.processes, *last)
        self._endpoints = replace(self._endpoints, processes=processes)
        if self._publishing is not None:
            self._publishing.cancel()
        was_unwritten, self._publishing = self._publishing is not None, None
        try:
            write_endpoints(self._layout.endpoints, self._endpoints)
        except ConfigError as error:
            if not was_unwritten:
                self._report(f"{error}; trying again until it can be")
            self._publishing = asyncio.get_running_loop().call_later(_PUBLISH_AGAIN_S, self._publish)
        else:
            if was_unwritten:
                self._report(f"{self._layout.endpoints} is written again")

    def _settled(self, name: str) -> None:
        """Wait no longer for a process that is to open its ports."""
        if name in self._starting:
            self._starting.remove(name)
            if not self._starting:
                self._all_listen.set()
