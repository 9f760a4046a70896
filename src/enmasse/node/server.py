"""Composes a node: journal, core, entities, users, ports and management; starts and stops it.

Order of start: the journal, the entities, then the listeners. Order of stop: no more credit; deliveries under way are
settled and committed; the connections are closed with ``amqp:connection:forced``, and those that were handed over to
nodes that go on are cut off.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.errors import ConfigError
from enmasse.identity.authorities import end_of
from enmasse.messaging.budget import Holder
from enmasse.messaging.core import Core
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.space import Service, Space
from enmasse.messaging.transaction import TransactionLimits
from enmasse.net.egress import Reach
from enmasse.net.loop import Turn
from enmasse.net.peers import PeerLayer, path_of
from enmasse.net.proxy_layer import AwaitedHeaders
from enmasse.net.transport import EngineProtocol
from enmasse.node.connections.connections import AGAIN, Connections, LaneWatcher
from enmasse.node.connections.handover import MIN_SECRET_BYTES, Handovers
from enmasse.node.connections.logs import EventLog
from enmasse.node.connections.review import Reviews
from enmasse.node.devices.devices import Devices
from enmasse.node.health import Health, LoopWatch
from enmasse.node.heap import Heap
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.management.entity_types import SESSION_TYPE, WILL_TYPE
from enmasse.node.management.installation import INSTALLATION_TYPE, Installation
from enmasse.node.management.management import Inspection, Management
from enmasse.node.management.session_views import sessions_of, wills_of
from enmasse.node.management.space_management import SpaceManagement
from enmasse.node.management.statistics import check_server, read_configuration, read_statistics
from enmasse.node.management.views import view_of
from enmasse.node.ports import (
    BACKLOG,
    HandshakeWatcher,
    ManagementPort,
    PortOptions,
    Ports,
    ServedHosts,
    SpacePorts,
    admin_port,
    reason_of,
)
from enmasse.node.protocols import PROTOCOLS, ProtocolRow, main_protocol
from enmasse.node.tenancy import DOMAIN, Names
from enmasse.node.trace import Tracer
from enmasse.node.users.directory import NodeUsers, StoredUsers
from enmasse.node.users.federation import Federation
from enmasse.node.users.fields import USER_TYPE
from enmasse.node.users.gate import Gate, GateOptions
from enmasse.node.users.owners import KnownOwners
from enmasse.node.users.password_checker import ProcessChecker
from enmasse.node.users.peer import PeerInfo
from enmasse.node.users.rights import known_grants
from enmasse.pending import Pending
from enmasse.storage.link import JournalLink
from enmasse.wire.peer_header import Answer
from enmasse.wire.sasl.mechanisms import SaslCode

if TYPE_CHECKING:
    from enmasse.identity.login import TokenAuthority
    from enmasse.identity.users import Users
    from enmasse.net.first_bytes import ProtocolSignature
    from enmasse.net.listener import MakeEngine, Port
    from enmasse.net.shared_listener import SharedListener
    from enmasse.net.transport import Engine
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.errors import EntityError
    from enmasse.node.uplinks.connectors import Connectors
    from enmasse.node.uplinks.testing import ConnectorTests
    from enmasse.node.users.users_file import UsersFile
    from enmasse.wire.peer_header import PeerHeader
    from enmasse.wire.sasl.mechanisms import Verdict


DRAIN_S = 2.0
"""Seconds that a stopping node waits for receivers to settle their deliveries."""

CLOSE_S = 2.0
"""Seconds that clients may take to answer the close."""

DROPPED_S = 1.0
"""Seconds for which messages that are dropped are told of together."""

CLOSED_AT_ONCE, CLOSE_EVERY_S = 50, 0.05
"""A node that was drained closes so many connections every so often: a thousand a second come to the others, which
let in as many by TLS on a few cores."""

_log = logging.getLogger(__name__)


def _present() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Listener:
    """An open port, or the administrator's socket."""

    def __init__(self, name: str, host: str, port: int, server: asyncio.Server | SharedListener) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.server = server


@dataclass
class _Origin:
    """The port, or the administrator's socket, that a connection came by, and what follows from it.

    Attributes:
        row: the port's own protocol.
        host: the interface.
        port: the port's number, once it is open.
        fixed: the space of every connection, whatever it names; its peers are administrators.
        default: the name of the space for clients that name none.
        port_of: the name of the space that the port belongs to, if it is one space's own, or that another node has
            handed the connection over for.
        reached_at: the URL at which clients reach that node, if there is one.
    """

    row: ProtocolRow
    host: str
    port: int = 0
    fixed: Space | None = None
    default: str | None = None
    port_of: str | None = None
    reached_at: str = ""

    @property
    def url(self) -> str:
        """The node's URL by AMQP, which every port accepts."""
        if self.reached_at:
            return self.reached_at
        host = f"[{self.host}]" if ":" in self.host else self.host
        return "" if self.fixed is not None else f"amqp://{host}:{self.port}"


class Server:
    """A node, without the signals and arguments of its process.

    Args:
        directory: the node's own files; made if it is missing, readable by its owner alone.
        name: the node's name, and its container id.
        journal_changed: called with the process id of a journal that replaced one that died.
        limits: the limits of transactions.
        gate: the operator's options for logins.
        tokens: verifies tokens and passwords of external users; by default with the spaces' OpenID providers.
        users: the file of users, if there is one.
        ports: the operator's options for ports.
        domain: the domain of hosts that mean a space: ``<space>.<namespace>.<domain>``.
        machine: this machine's own names, in lower case, which never mean a space.
        marker: the file that shows that there was a journal; see ``JournalLink``.
        protocols: the protocols of clients by name; peers that none recognises get the first.
        reach: where connectors may go; by default nowhere.

    Raises:
        ConfigError: the file of users or a certificate cannot be read, or is wrong.
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
        machine: frozenset[str] = frozenset(),
        marker: str | None = None,
        protocols: Mapping[str, ProtocolRow] = PROTOCOLS,
        reach: Reach | None = None,
    ) -> None:
        self.name = name
        self._reach = reach or Reach.of_connectors(())
        self._connector_tests: ConnectorTests | None = None
        self.protocols = protocols
        self.instance = secrets.token_hex(8)
        """An id of this start of the node."""
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
        self.core = Core(self.journal, self._turn.request, self._on_fault)
        self._turn.backlog = self.core.fan_out
        self.connections = Connections(lambda: int(time.time() * 1000))
        self.entities = Entities(self.core, secrets.token_hex, self._close_space)
        self.entities.space_changed = self._space_changed
        self.entities.grants_of = lambda space, owner, name: known_grants(
            self.gate, self.users, self.entities.spaces, space, owner, name
        )
        self.entities.protocol_holdings = self.connections.holdings
        self.entities.rates_changed = self.connections.meter
        self.space_ports = SpacePorts(self._turn.loop, self._open_space_port, self.entities.note_change)
        self.entities.port_changed = self.space_ports.set
        self.connectors: Connectors | None = None
        """The connectors of its spaces, once one has some."""
        self.entities.connectors_changed = self._connectors_changed
        self.entities.extra_status = self._space_status
        self.federation = Federation(
            self.entities.records[SPACE_TYPE],
            lambda: self.users,
            wall=time.time,
            clock=self._turn.loop.time,
            settled=self._turn.begin,
        )
        clock = self._turn.loop.time
        self.checker = ProcessChecker(self._turn)
        self.gate = Gate(self.entities.records[SPACE_TYPE], clock, gate, tokens or self.federation, self.checker)
        self.checker.reported, self.gate.report = self.gate.reported, self.checker.report
        self.gate.names = Names(self.entities.hosts, domain.lower(), machine)
        self.installation = Installation(self.core, _present)
        self._spaces = lambda: self.entities.spaces
        self.reviews = Reviews(self.connections, self._spaces, self._turn, time.time, self.federation)
        self.stored_users = StoredUsers(self.core, self._uid_of_space, self.reviews.review_user)
        self.users = self.gate.users = NodeUsers(self.stored_users)
        owners = KnownOwners(self.gate, self.users, self.federation)
        self.entities.is_known, self.entities.owner_of = owners.is_known, owners.owner_of
        self.stored_users.removed = self._user_removed
        self.stored_users.connectors_of = self._connectors_of
        self.reloads: list[Callable[[], None]] = []
        """Functions that read files again, for SIGHUP."""
        self._users_file: UsersFile | None = None
        if users is not None:
            self._read_users(users)
        self.connections.space_management = SpaceManagement(self.entities, self.connections, self._turn.loop.time)
        self.admin = Space(self.core, "$admin", secrets.token_hex)
        self.devices = self.gate.devices = Devices(
            self.admin,
            lambda: self.entities.spaces,
            names=lambda: self.gate.names,
            clock=clock,
            wall=time.time,
            passwords=self.gate.passwords,
        )
        self.devices.connected.cut = self.reviews.close
        self.devices.connected.schedule = self.reviews.schedule
        self.gate.names = self.gate.names._replace(aliases=self.devices.directory.aliases)
        self.tracer = Tracer(
            self.admin,
            self.connections,
            soon=self._turn.later,
            clock_us=lambda: time.time_ns() // 1000,
            new_id=secrets.token_hex,
            protocols=protocols,
            lines=lambda: () if self.connectors is None else self.connectors.lines(),
        )
        self.events = EventLog()
        self.core.on_dropped = self._on_dropped
        # It begins a turn regularly, so that the core notices when the wall clock is set.
        self.watch = LoopWatch(self._turn.loop, self._turn.begin)
        self.health = Health(name, self.watch, lambda: check_server(self))
        self._port_options = ports or PortOptions()
        folder = directory / "authorities"
        self.ports = Ports(
            self._turn,
            self._port_options,
            self.devices.authorities,
            folder,
            clients_changed=self.reviews.review_all,
            answer=self.health.answer,
        )
        self.connections.answer = self.health.answer
        self.connections.origins = self._port_options.origins
        self.hosts = self.connections.hosts = ServedHosts(
            self._port_options.names, self.ports.covers, lambda: self.entities.spaces, self.gate
        )
        self.gate.names = self.gate.names._replace(is_called=self.hosts.is_called)
        self.reloads.append(self.ports.reload)
        lanes = LaneWatcher(self.connections, self.admin, self._turn, self.journal)
        self.connections.watchers += (HandshakeWatcher(self.connections), lanes, self.reviews)
        self.handovers = self.connections.handovers = Handovers(
            self._turn,
            self.connections,
            name,
            self.entities.records[SPACE_TYPE],
            lambda: self.installation.id,
            lanes.load_of,
            self._home_outdated,
        )
        self.entities.is_here = lambda space: self.handovers.elsewhere(space) is None
        self.entities.home_changed = self._home_changed
        self._awaited: AwaitedHeaders | None = None
        self._admin_port: Port | None = None
        self.management_port: ManagementPort | None = None
        self._reached_at = ""
        self._outdated: dict[str, str] = {}
        """Problems of the homes of spaces, as a front has met them."""
        self.is_loaded = False
        self.is_stopping = False
        self.is_draining = False
        """True once it is about to stop, and serves on for a while."""
        self.listeners: list[Listener] = []
        self._limits = limits or TransactionLimits()
        self.transactions = self._limits.budget
        connections = self.connections
        self._heap = Heap(self._turn.loop, (connections.unread, connections.unfinished, self.transactions))
        """The budget of all transactions."""
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_at = 0.0
        self.started = time.time()
        self.admin.add(Service(self.core, "$management", self._make_management().serve))
        self._turn.add_hook(self._run_turn)

    def _make_management(self) -> Management:
        return Management(
            self.entities,
            {
                "io.enmasse.listener": lambda: view_of(self._read_listeners()),
                "io.enmasse.connection": self.connections.connections_of,
                "io.enmasse.link": self.connections.links_of,
                SESSION_TYPE: lambda: sessions_of(*self.entities.spaces.values()),
                WILL_TYPE: lambda: wills_of(*self.entities.spaces.values()),
                "io.enmasse.statistics": lambda: view_of(read_statistics(self)),
                "io.enmasse.configuration": lambda: view_of(read_configuration(self)),
                "io.enmasse.health": lambda: view_of(self.health.read()),
            },
            self._answer,
            self.admin.addresses.__contains__,
            {
                ("io.enmasse.connection", "TRACE"): self.tracer.start,
                (USER_TYPE, "LIST"): self.stored_users.list_after,
                (USER_TYPE, "KEYS"): self.stored_users.keys_of,
                (USER_TYPE, "MAY"): self.stored_users.may,
                **Inspection(self.entities, self.connections).operations,
            },
            {USER_TYPE: self.stored_users, INSTALLATION_TYPE: self.installation},
            {
                (SPACE_TYPE, "TEST-CONNECTOR"): self._test_connector,
                (INSTALLATION_TYPE, "LEASE"): self.installation.lease,
            },
        )

    def _connectors_changed(self, space: Space, given: dict[str, Any]) -> None:
        if self.connectors is None:
            # Most nodes have none, and start faster without a client.
            from enmasse.node.uplinks.connectors import Connectors  # noqa: PLC0415

            self.connectors = Connectors(
                self.core, self._turn, self._reach, lambda: self.installation.id, self.entities.note_change
            )
            self.connectors.line_made = self.tracer.on_line
        self.connectors.apply(space, given)

    def _connectors_of(self, space: str) -> Container[str]:
        found = self.entities.spaces.get(space)
        return () if found is None else found.connectors

    def _space_status(self, name: str) -> dict[str, Any]:
        found = self.space_ports.status(name)
        if name in self._outdated:
            found = found | {"homeProblem": self._outdated[name]}
        if self.connectors is not None and (connectors := self.connectors.status(name)):
            found = found | {"connectorStatus": connectors}
        return found

    def _test_connector(self, space: str, body: Any, answer: Callable[[dict[str, Any] | EntityError], None]) -> None:
        if self._connector_tests is None:
            # Most nodes test none, and start faster without it.
            from enmasse.node.uplinks.testing import ConnectorTests  # noqa: PLC0415

            self._connector_tests = ConnectorTests(self._reach, self.name)
        self._connector_tests.start(space, body, answer)

    def _read_users(self, path: Path) -> None:
        from enmasse.node.users.users_file import UsersFile  # noqa: PLC0415  YAML is not loaded where there are no users

        self._users_file = UsersFile(path, self._set_users, self._turn.loop)
        self.reloads.append(self._users_file.reload)

    def _set_users(self, users: Users) -> None:
        for space in self.entities.spaces.values():
            space.owners.review()
        self.users.file = users
        self.reviews.review_all()

    def _uid_of_space(self, name: str) -> str | None:
        record = self.entities.records[SPACE_TYPE].get(name)
        return None if record is None else str(record["uid"])

    def _user_removed(self, space: str, name: str) -> None:
        """End what a user has left behind that was removed."""
        found = self.entities.spaces.get(space)
        if found is not None:
            self._turn.begin()
            found.owners.removed(name)

    def _close_space(self, space: Space) -> None:
        self.stored_users.space_closed(space.name)
        self.connections.close_space(space)
        if self.connectors is not None:
            self.connectors.space_closed(space)

    def _space_changed(self, _space: Space) -> None:
        self.federation.prepare()
        self.reviews.review_all()

    def reload(self) -> None:
        """Read again the files that may have changed."""
        for again in self.reloads:
            again()

    # The turn

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

    def _on_dropped(self, space: str | None, address: str, reason: str) -> None:
        if self.events.note_dropped(space, address, reason):
            self._turn.loop.call_later(DROPPED_S, self.events.log_dropped)

    # Start

    async def load(self) -> None:
        """Start the journal and load what it holds."""
        for row in self.protocols.values():
            row.load()  # now, so that no client waits for it later
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
        self._heap.start()

    async def listen(
        self,
        host: str,
        port: int,
        default_space: str | None = None,
        protocol: str | None = None,
        inherited: socket.socket | None = None,
    ) -> int:
        """Open a port for clients and return its number, which may have been 0.

        Connections that name no space belong to ``default_space``, or to the only one there is.

        Args:
            host: the interface.
            port: the port's number.
            default_space: ``NAMESPACE/SPACE``.
            protocol: the port's own protocol: it accepts all, but peers that none recognises get this one.
            inherited: its socket, bound by the process that started this one, which may have given it to others, too.

        Raises:
            ConfigError: the port cannot be opened, or there is no such protocol.
        """
        row = main_protocol(self.protocols) if protocol is None else self.protocols.get(protocol)
        if row is None:
            raise ConfigError(f"{protocol!r} is no protocol of clients; there are {', '.join(self.protocols)}")
        origin = _Origin(row, host, default=default_space)
        try:
            place = (host, port) if inherited is None else inherited
            server = await self.ports.open(place, self._engine_makers(origin), self.hosts.refuse)
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be opened ({reason_of(error)}); choose another port") from None
        origin.port = port = server.sockets[0].getsockname()[1]
        # All nodes of a machine are reached at the same ports.
        self._reached_at = self._reached_at or origin.url
        self.listeners.append(Listener(row.name, host, port, server))
        self.space_ports.serve_on(host)
        return port

    async def _open_space_port(self, host: str, port: int, space: str) -> asyncio.Server | SharedListener:
        origin = _Origin(main_protocol(self.protocols), host, port, port_of=space)
        return await self.ports.open((host, port), self._engine_makers(origin), self.hosts.refuse)

    async def listen_admin(self, path: Path) -> None:
        """Open the administrator's socket, which only this user can reach, and which tells of the node's health.

        Raises:
            ConfigError: the socket cannot be made there.
        """
        origin = _Origin(main_protocol(self.protocols), "", fixed=self.admin)
        served = self._admin_port = admin_port(self._turn, self._engine_makers(origin), self.health.answer)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
            server = await self._listen_at(path, served.make_protocol)
        except OSError as error:
            raise ConfigError(f"the socket {path} cannot be made: {error.strerror or error}") from None
        self.listeners.append(Listener("admin", str(path), 0, server))

    async def listen_peers(self, directory: Path, secret: bytes) -> None:
        """Open the socket to which other nodes of the installation hand connections over, and reach theirs.

        Args:
            directory: the directory of the nodes' sockets, which only this user may look into.
            secret: the secret of this start of the installation, which all its nodes have.

        Raises:
            ConfigError: the socket cannot be made there, others may look into the directory, or the secret is short.
        """
        if len(secret) < MIN_SECRET_BYTES:
            raise ConfigError(f"the secret of the nodes has {len(secret)} bytes, and at least {MIN_SECRET_BYTES}")
        path = path_of(directory, self.name)
        awaited = self._awaited = AwaitedHeaders(self.ports.limiter.limits.max_handshakes)
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
            facts = directory.stat()
            if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & ~stat.S_IRWXU:
                raise ConfigError(f"{directory} is to be this user's own, and for no others: chmod 700 it")
            server = await self._listen_at(path, lambda: PeerLayer(awaited, self._hand_in))
        except OSError as error:
            raise ConfigError(f"the socket {path} cannot be made: {error.strerror or error}") from None
        self.handovers.directory, self.handovers.secret = directory, secret
        self.listeners.append(Listener("peers", str(path), 0, server))

    async def _listen_at(self, path: Path, make_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
        """Open a socket that only this user can reach."""
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        os.fchmod(listening.fileno(), stat.S_IRUSR | stat.S_IWUSR)  # before bind, so never wider
        listening.bind(str(path))
        return await self._turn.loop.create_unix_server(make_protocol, sock=listening, backlog=BACKLOG)

    def _hand_in(self, header: PeerHeader, layer: PeerLayer) -> None:
        """Take a connection that another node hands over, or refuse it."""
        self._turn.begin()
        problem = self.handovers.problem_of(header)
        row = self.protocols.get(header.protocol)
        if problem is None and (row is None or self.is_stopping):
            what = "the node is stopping" if row is not None else f"{header.protocol!r:.40} is no protocol of clients"
            problem = what, Answer.LATER
        slot = None if problem is not None else self.ports.limiter.enter(layer)
        if problem is None and slot is None:
            problem = "there are too many connections that are not open yet", Answer.LATER
        if problem is not None:
            layer.refuse(*problem)
            return
        assert row is not None
        origin = _Origin(row, "", port_of=header.space, reached_at=self._reached_at)
        made: list[ClientConnection] = []

        def make_engine(shell: EngineProtocol) -> Engine:
            made.append(self._make_connection(row, origin, shell))
            return self._engine_of(made[0], shell)

        layer.raise_to(EngineProtocol(self._turn, make_engine, slot=slot))
        connection = made[0]
        connection.container = header.container
        connection.handed_in(header.final_data)

        def decided(verdict: Verdict) -> None:
            self._turn.begin()
            if verdict is True:
                layer.take(self._turn)
                return
            answer = Answer.LATER if verdict is SaslCode.SYS_TEMP else Answer.IDENTITY
            layer.refuse(connection.admission.refusal or "that cannot be said now", answer)

        verdict = connection.admission.assert_identity(header.space, header.mechanism, header.user, header.device)
        if isinstance(verdict, Pending):
            verdict.then(decided)
        else:
            decided(verdict)

    def _home_outdated(self, space: str) -> None:
        """Have control look at what the node knows, as the home of a space is another one than it was told."""
        home = self.handovers.elsewhere(space)
        if home is not None:
            self._outdated[space] = f"it is not at home where it was thought to be, at generation {home.generation}"
            self.entities.note_change()

    def _home_changed(self, space: Space) -> None:
        self._outdated.pop(space.name, None)
        self.connections.rehome(space)

    async def listen_management(self, host: str, port: int, tls: Path) -> int:
        """Open a port for the control process on another machine, and return its number, which may have been 0.

        Args:
            host: the interface.
            port: its number.
            tls: the directory with the node's certificate, and with the authority that vouches for control's.

        Raises:
            ConfigError: the port cannot be opened, or the certificates cannot be used.
        """
        self.management_port = ManagementPort(self._turn, tls, self.health.answer, self._port_options.names)
        self.reloads.append(self.management_port.reload)
        origin = _Origin(main_protocol(self.protocols), host, fixed=self.admin)
        try:
            server = await self.management_port.open(host, port, self._engine_makers(origin))
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be opened ({reason_of(error)}); choose another port") from None
        port = server.sockets[0].getsockname()[1]
        self.listeners.append(Listener("management", host, port, server))
        return port

    def _engine_makers(self, origin: _Origin) -> Mapping[ProtocolSignature, MakeEngine]:
        """Return the functions that make engines for every protocol of a port, its own protocol first."""
        rows = [origin.row]
        if origin.fixed is None:
            rows += [row for row in self.protocols.values() if row is not origin.row]
        return {row.signature: partial(self._make_engine, row, origin) for row in rows}

    def _make_engine(self, row: ProtocolRow, origin: _Origin, shell: EngineProtocol) -> Engine:
        return self._engine_of(self._make_connection(row, origin, shell), shell)

    def _make_connection(self, row: ProtocolRow, origin: _Origin, shell: EngineProtocol) -> ClientConnection:
        return row.load()(
            self.connections,
            spaces=self._spaces,
            fixed=origin.fixed,
            default=origin.default,
            url=origin.url,
            peer=shell.peer,
            limits=self._limits,
            gate=self.gate,
            peer_info=self._peer_info(shell, origin),
            port_of=origin.port_of,
            events=self.events if origin.fixed is None else None,
        )

    def _engine_of(self, connection: ClientConnection, shell: EngineProtocol) -> Engine:
        engine = connection.make_engine(self.name, self._turn.now)
        shell.limit_output(lambda give_way: Holder(self.connections.unread, connection.party, give_way))
        self.connections.connected(connection, shell)
        return engine

    def _peer_info(self, shell: EngineProtocol, origin: _Origin) -> PeerInfo:
        info = PeerInfo(
            shell.peer,
            shell.proxied,
            shell.is_secure,
            shell.server_name,
            shell.peer_names,
            shell.refusal,
        )
        chain = shell.peer_chain
        if not chain or origin.fixed is not None:
            # By a balancer's word, which holds as long as the connection, or by none.
            return info._replace(is_vouched_for=lambda: True) if info.proxied is not None and info.certified else info
        # Whoever a tenant vouches for is a device of it, whatever else the certificate says.
        shown = self.devices.authorities.shown(chain, shell.server_name)
        if shown is not None:
            return info._replace(certified=(), shown=shown)
        if not self.ports.vouches(chain):
            return info._replace(certified=())
        return info._replace(is_vouched_for=partial(self.ports.vouches, chain), certified_until=end_of(chain[0]))

    # Stop

    async def drain(self, delay_s: float, hurried: asyncio.Event) -> None:
        """Serve on without being ready, so that who comes is led to others; then have the connections end at a pace.

        Args:
            delay_s: the time until it returns: load balancers look at readiness every few seconds.
            hurried: ends it, once it is set.
        """
        self.is_draining = True
        self.ports.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await hurried.wait()

    async def stop(self) -> None:
        """Stop in order, and return when everything is committed and every socket is closed."""
        self.is_stopping = True
        if self._users_file is not None:
            self._users_file.close()
        for listener in self.listeners:
            listener.server.close()
        self.space_ports.close()
        self.ports.close()
        if self._awaited is not None:
            self._awaited.shut()
        self.handovers.stop()
        if self._admin_port is not None:
            self._admin_port.limiter.shut()
        if self.management_port is not None:
            self.management_port.close()
        for space in self.entities.spaces.values():
            space.sessions.stop()
        for connection in list(self.connections.shells):
            connection.stop_senders()
        self._turn.begin()
        began = time.monotonic()
        deadline = began + DRAIN_S
        while time.monotonic() < deadline and not (self._is_settled() and self.core.is_idle):
            await asyncio.sleep(0.01)
        shells = list(self.connections.shells.items())
        for number, (connection, _) in enumerate(shells, 1):
            if self.is_draining and number % CLOSED_AT_ONCE == 0:
                await asyncio.sleep(CLOSE_EVERY_S)
            if connection in self.connections.shells:  # or it has gone meanwhile
                connection.close(AGAIN, "the node is stopping; connect again")
        waits = [asyncio.ensure_future(shell.wait_closed()) for _, shell in shells]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_S)
            for _, shell in shells:
                shell.reset()
            if late:
                await asyncio.wait(late, timeout=CLOSE_S)
        # Homes that stop, too, say so to their clients themselves; the others do not, and nobody else can.
        while len(self.handovers) and time.monotonic() < began + DRAIN_S + CLOSE_S:
            await asyncio.sleep(0.01)
        for number, pipe in enumerate(self.handovers.pipes(), 1):
            if self.is_draining and number % CLOSED_AT_ONCE == 0:
                await asyncio.sleep(CLOSE_EVERY_S)
            pipe.abort()
        if self._connector_tests is not None:
            await self._connector_tests.stop()
        if self.connectors is not None:
            await self.connectors.stop()
        self.watch.stop()
        self._heap.stop()
        await self.federation.close()
        await self.checker.stop()
        if await self._is_idle_in_time():
            self.entities.end()
            await self._is_idle_in_time()
        await self.journal.stop()

    async def _is_idle_in_time(self) -> bool:
        """Wait until everything is on disk; return false if that takes too long."""
        deadline = time.monotonic() + CLOSE_S
        while not self.core.is_idle and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return self.core.is_idle

    def _is_settled(self) -> bool:
        return all(connection.is_settled for connection in self.connections.shells)

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
