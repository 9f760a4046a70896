"""A node put together: journal, core, entities, listeners, management.

Order of start: journal, snapshot, then listeners. Order of stop: no more credit, what is on its way is
settled and committed, then the connections are closed with ``amqp:connection:forced``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.errors import ConfigError
from enmasse.messaging.anycast import Anycast
from enmasse.messaging.core import Core
from enmasse.messaging.delivery import Producer
from enmasse.messaging.space import Service, Space
from enmasse.net.loop import Turn
from enmasse.net.transport import EngineProtocol
from enmasse.node.admission import Facts
from enmasse.node.binding import Binding
from enmasse.node.connections import Connections
from enmasse.node.coordinator import Coordinator, TransactionLimits
from enmasse.node.entities import Entities
from enmasse.node.entity_fields import SPACE_TYPE
from enmasse.node.expiry import Expiry
from enmasse.node.federation import Federation
from enmasse.node.gate import Gate, GateOptions
from enmasse.node.health import Health, LoopWatch
from enmasse.node.inspection import Inspection
from enmasse.node.installation import INSTALLATION_TYPE, Installation
from enmasse.node.logs import LoggedBinding, Tally
from enmasse.node.management import Management
from enmasse.node.ports import Admitting, PortOptions, Ports
from enmasse.node.review import review, review_user
from enmasse.node.space_desk import SpaceDesk
from enmasse.node.space_lanes import SpaceLanes
from enmasse.node.space_ports import SpacePorts
from enmasse.node.statistics import check_server, read_configuration, read_statistics
from enmasse.node.stored_users import StoredUsers
from enmasse.node.tenancy import DOMAIN, Names
from enmasse.node.trace import Tracer
from enmasse.node.user_directory import NodeUsers
from enmasse.node.user_fields import USER_TYPE
from enmasse.storage.link import JournalLink
from enmasse.version import __version__
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.identity.tokens import TokenAuthority
    from enmasse.identity.users import Users
    from enmasse.node.management_port import ManagementPort
    from enmasse.node.users import UsersFile

__all__ = ["Server"]

DRAIN_S = 2.0
"""How long a stopping node waits for receivers to settle what they have."""

CLOSE_S = 2.0
"""How long clients may take to answer the close."""

ANONYMOUS_RELAY = "ANONYMOUS-RELAY"

_log = logging.getLogger(__name__)


def _present() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Listener:
    """One open port, or the administrator's socket."""

    def __init__(self, name: str, host: str, port: int, server: asyncio.Server) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.server = server


class Server:
    """A data-plane process without its signals and arguments.

    Args:
        directory: the node's own files; made if it is missing, readable by its owner alone.
        name: the node's name, and its container id.
        journal_changed: called with the process id of a journal that replaced one that died.
        limits: what transactions may take, and how long.
        gate: what the operator decides on who may come in.
        tokens: knows the users of some spaces in place of the node; by default the providers of external ones do.
        users: the file of users; without it there are none.
        ports: what the operator decides on the ports.
        domain: host names below it always mean a space, as in ``<space>.<namespace>.<domain>``.
        marker: the file that tells that there was a journal; see ``JournalLink``.

    Raises:
        ConfigError: the file of users or a certificate cannot be read, or holds what cannot be.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        journal_changed: Callable[[int], None] | None = None,
        limits: TransactionLimits | None = None,
        gate: GateOptions | None = None,
        tokens: TokenAuthority | None = None,
        users: Path | None = None,
        ports: PortOptions | None = None,
        domain: str = DOMAIN,
        marker: str | None = None,
    ) -> None:
        self.name = name
        self.instance = secrets.token_hex(8)
        """Another one with every start."""
        self.directory = directory
        self._turn = Turn(asyncio.get_running_loop())
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
        except OSError as error:
            raise ConfigError(
                f"{directory} cannot be made ({error.strerror}): name another place with --data"
            ) from None
        self.journal = JournalLink(
            directory / "journal",
            marker=marker,
            loss_changed=lambda is_lost: self.core.shut(is_lost),  # noqa: PLW0108  made below
            journal_changed=journal_changed,
        )
        self.core = Core(self.journal, self._request_turn, self._on_fault)
        self.connections = Connections(lambda: int(time.time() * 1000))
        self.entities = Entities(self.core, secrets.token_hex, self._close_space)
        self.entities.space_changed = self._space_changed
        self.entities.rates_changed = self.connections.meter
        self.space_ports = SpacePorts(self._turn.loop, self._open_space_port)
        self.entities.port_changed = self.space_ports.set
        self.entities.notes = self.space_ports.told
        self.federation = Federation(
            self.entities.records[SPACE_TYPE],
            lambda: self.users,
            wall=time.time,
            clock=self._turn.loop.time,
            settled=self._turn.begin,
        )
        clock = self._turn.loop.time
        self.gate = Gate(self.entities.records[SPACE_TYPE], clock, gate, tokens or self.federation)
        self.gate.names = Names(self.entities.hosts, domain.lower())
        self.installation = Installation(self.core, _present)
        self.stored_users = StoredUsers(self.core, self._uid_of_space, self._review_user)
        self.users = self.gate.users = NodeUsers(self.stored_users)
        self.reloads: list[Callable[[], None]] = []
        """What is to be read again when the operator asks for it (SIGHUP)."""
        self._users_file: UsersFile | None = None
        if users is not None:
            from enmasse.node.users import UsersFile  # noqa: PLC0415  YAML is not loaded where there are no users

            self._users_file = UsersFile(users, self._set_users, self._turn.loop)
            self.reloads.append(self._users_file.reload)
        self.connections.desk = SpaceDesk(self.entities, self.connections, self._turn.loop.time)
        self.admin = Space(self.core, "$admin", secrets.token_hex)
        self.tracer = Tracer(
            self.admin,
            self.connections,
            soon=self._turn.later,
            clock_us=lambda: time.time_ns() // 1000,
            new_id=secrets.token_hex,
        )
        self.tally = Tally()
        # So there is a turn every now and then, which finds out that the wall clock was set.
        self.watch = LoopWatch(self._turn.loop, self._turn.begin)
        self.health = Health(name, self.watch, lambda: check_server(self))
        self.ports = Ports(self._turn, ports or PortOptions(), self.health.answer)
        self.reloads.append(self.ports.reload)
        self.connections.watchers.append(Admitting(self.connections))
        self.connections.watchers.append(SpaceLanes(self.connections, self.admin, self._turn, self.journal))
        self.connections.watchers.append(Expiry(self._turn.loop, time.time, self.federation))
        self.management_port: ManagementPort | None = None
        self.is_loaded = False
        self.is_stopping = False
        self.listeners: list[Listener] = []
        self._limits = limits or TransactionLimits()
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_at = 0.0
        self.started = time.time()
        management = Management(
            self.entities,
            {
                "io.enmasse.listener": self._read_listeners,
                "io.enmasse.connection": self.connections.read_connections,
                "io.enmasse.link": self.connections.read_links,
                "io.enmasse.statistics": lambda: read_statistics(self),
                "io.enmasse.configuration": lambda: read_configuration(self),
                "io.enmasse.health": self.health.read,
            },
            self._answer,
            {
                ("io.enmasse.connection", "TRACE"): self.tracer.start,
                (USER_TYPE, "LIST"): self.stored_users.list_after,
                (USER_TYPE, "KEYS"): self.stored_users.keys_of,
                **Inspection(self.entities, self.connections).operations,
            },
            {USER_TYPE: self.stored_users, INSTALLATION_TYPE: self.installation},
        )
        self.admin.add(Service(self.core, "$management", management.serve))
        self._turn.add_hook(self._run_turn)

    def _set_users(self, users: Users) -> None:
        self.users.file = users
        self._review()

    def _uid_of_space(self, name: str) -> str | None:
        record = self.entities.records[SPACE_TYPE].get(name)
        return None if record is None else str(record["uid"])

    def _close_space(self, space: Space) -> None:
        self.stored_users.space_closed(space.name)
        self.connections.close_space(space)

    def _review_user(self, space: str, name: str) -> None:
        """A user is another one now, or none: so its connections are reviewed."""
        if self.gate.has(space, name):
            self._turn.begin()
            review_user(self.connections, self.entities.spaces.get(space), name)

    def _space_changed(self, _space: Space) -> None:
        self.federation.prepare()
        self._review()

    def _review(self) -> None:
        """Who may come in, or what they may do, has changed: so it does for those that are here."""
        self._turn.begin()
        review(self.connections, self.entities.spaces.values())

    def reload(self) -> None:
        """Read files again that may have changed."""
        for again in self.reloads:
            again()

    # The turn

    def _request_turn(self) -> None:
        self._turn.begin()

    def _run_turn(self, now: float) -> None:
        self.core.run_turn(now, int(self._turn.wall * 1_000_000))
        deadline = self.core.next_deadline()
        if deadline is not None and (self._deadline is None or deadline < self._deadline_at):
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline_at = deadline
            self._deadline = self._turn.loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        # A timer may be a little early by the turn's clock, and would then run again and again.
        self.core.handle_deadline(max(self._turn.begin(), self._deadline_at))

    def _on_fault(self, name: str, error: Exception) -> None:
        _log.error("%r failed in its turn", name, exc_info=error)

    # Start

    async def load(self) -> None:
        """Start the journal and take up what it holds."""
        await self.journal.start(self.core)
        self.installation.load()
        self.entities.load()
        self.stored_users.load()
        guarded = [name for name in self.entities.spaces if not self.gate.is_open(name)]
        if guarded and self.users.is_empty:
            _log.warning(
                "nobody can enter %s: there are no users; declare MessagingUsers, or start the node with --users",
                ", ".join(guarded[:5]),
            )
        self.federation.prepare()
        self.is_loaded = True
        self.watch.start()

    async def listen(self, host: str, port: int, default_space: str | None = None) -> int:
        """Open a port for clients and return its number, which may have been 0.

        Connections that name no space belong to ``default_space``, or to the only one there is.

        Raises:
            ConfigError: the port cannot be opened.
        """
        url = ""

        def connected(shell: EngineProtocol) -> Connection:
            return self._make_engine(shell, None, default_space, url)

        try:
            server = await self.ports.open(host, port, connected)
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be opened ({error.strerror}); choose another port") from None
        port = server.sockets[0].getsockname()[1]
        url = f"amqp://[{host}]:{port}" if ":" in host else f"amqp://{host}:{port}"
        self.listeners.append(Listener("amqp", host, port, server))
        self.space_ports.serve_on(host)
        return port

    async def _open_space_port(self, host: str, port: int, space: str) -> asyncio.Server:
        url = f"amqp://[{host}]:{port}" if ":" in host else f"amqp://{host}:{port}"
        return await self.ports.open(host, port, lambda shell: self._make_engine(shell, None, space, url))

    async def listen_admin(self, path: Path) -> None:
        """Open the administrator's socket, which only this user can reach.

        Raises:
            ConfigError: the socket cannot be made there.
        """

        def connected(shell: EngineProtocol) -> Connection:
            return self._make_engine(shell, self.admin, None, "")

        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                server = await self._turn.loop.create_unix_server(
                    lambda: EngineProtocol(self._turn, connected), str(path)
                )
            finally:
                os.umask(before)
        except OSError as error:
            raise ConfigError(f"the socket {path} cannot be made: {error.strerror or error}") from None
        self.listeners.append(Listener("admin", str(path), 0, server))

    async def listen_management(self, host: str, port: int, tls: Path) -> int:
        """Open a port for the control process on another machine, and return its number, which may have been 0.

        Args:
            host: the interface.
            port: its number.
            tls: the directory with our certificate there, and with the authority that vouches for control's.

        Raises:
            ConfigError: the port cannot be opened, or the certificates cannot be used.
        """

        def connected(shell: EngineProtocol) -> Connection:
            return self._make_engine(shell, self.admin, None, "")

        from enmasse.node.management_port import ManagementPort  # noqa: PLC0415  loads much, for this alone

        self.management_port = ManagementPort(self._turn, tls, self.health.answer)
        self.reloads.append(self.management_port.reload)
        try:
            server = await self.management_port.open(host, port, connected)
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be opened ({error.strerror}); choose another port") from None
        port = server.sockets[0].getsockname()[1]
        self.listeners.append(Listener("management", host, port, server))
        return port

    def _make_engine(self, shell: EngineProtocol, fixed: Space | None, default: str | None, url: str) -> Connection:
        binding = (LoggedBinding if fixed is None else Binding)(
            self.connections,
            spaces=lambda: self.entities.spaces,
            fixed=fixed,
            default=default,
            url=url,
            peer=shell.peer,
            limits=self._limits,
            gate=self.gate,
            facts=Facts(shell.peer, shell.is_secure, shell.server_name, shell.peer_names, shell.refusal),
        )
        binding.connection = Connection(
            binding,
            container_id=self.name,
            sasl=binding.sasl(),
            is_server=True,
            now=self._turn.now,
            properties={"product": "enmasse", "version": __version__},
            offered_capabilities=(ANONYMOUS_RELAY,),
        )
        if isinstance(binding, LoggedBinding):
            binding.tally = self.tally
        self.connections.connected(binding, shell)
        return binding.connection

    # Stop

    async def stop(self) -> None:
        """Stop in order; returns when everything is committed and every socket is closed."""
        self.is_stopping = True
        if self._users_file is not None:
            self._users_file.close()
        for listener in self.listeners:
            listener.server.close()
        self.space_ports.close()
        self.ports.close()
        if self.management_port is not None:
            self.management_port.close()
        for binding in list(self.connections.shells):
            for end in binding.links.values():
                # Control links go on: what has begun may still be discharged.
                if isinstance(end, Producer) and not isinstance(end.address, Coordinator):
                    end.port.grant(0)
                    end.address.remove_producer(end)
        self._turn.begin()
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and not (self._is_settled() and self.core.is_idle):
            await asyncio.sleep(0.01)
        forced = AmqpError("amqp:connection:forced", "the node is stopping; connect again")
        shells = list(self.connections.shells.items())
        for binding, _ in shells:
            binding.connection.close(forced)
        waits = [asyncio.ensure_future(shell.wait_closed()) for _, shell in shells]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_S)
            for _, shell in shells:
                shell.abort()
            if late:
                await asyncio.wait(late, timeout=CLOSE_S)
        self.watch.stop()
        await self.federation.close()
        if await self._is_idle_in_time():
            self.entities.end()
            await self._is_idle_in_time()
        await self.journal.stop()

    async def _is_idle_in_time(self) -> bool:
        """Wait until everything is on disk; false where that takes too long."""
        deadline = time.monotonic() + CLOSE_S
        while not self.core.is_idle and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return self.core.is_idle

    def _is_settled(self) -> bool:
        ends = [end for binding in self.connections.shells for end in binding.links.values()]
        return not any(end.unsettled for end in ends if not isinstance(end, Producer))

    # Management

    def _answer(self, to: str, payload: bytes) -> None:
        address = self.admin.addresses.get(to)
        if isinstance(address, Anycast):
            address.offer(payload)

    def _read_listeners(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "io.enmasse.listener",
                "identity": listener.name,
                "name": listener.name,
                "host": listener.host,
                "port": listener.port,
                "connections": len(self.connections),
            }
            for listener in self.listeners
        ]
