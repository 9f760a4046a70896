"""Hands connections of clients over to the nodes that are the homes of their spaces, and takes those of other nodes.

A node that a client has reached is its *front*: it ends TLS and WebSocket, lets the client log in, and learns its
space. If that is at home elsewhere, a header (``wire/peer_header``) tells the home whose connection it is, and what
the client has said from its login on follows it; the front then passes on bytes (``net/pipe``).

Rules:
1. Nothing behind the login is answered by the front, so the client hears what it would have heard at the home itself.
2. The home believes a header with the secret of this start of the installation. It takes a connection of a space that
   is at home there at the generation that the front says; otherwise the front knows something old.
3. A home that does not take the connection costs its clients a refusal that has them come again, and nobody else.
4. Administrators' connections are where they came to, as are those to a space's own port, which its home opens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from enmasse.errors import RemoteError
from enmasse.messaging.budget import Holder
from enmasse.net.peers import Failure, PeerCall, is_ending, path_of
from enmasse.net.pipe import HomeProtocol, PipeEnd, PipeProtocol
from enmasse.node.connections.connections import AGAIN, LINGER_S
from enmasse.wire.peer_header import Answer, PeerHeader, write_peer_header
from enmasse.wire.proxy_header import BalancerTls, ProxyHeader, ProxyHeaderError

if TYPE_CHECKING:
    import asyncio

    from enmasse.messaging.space import Space
    from enmasse.net.lanes import ConnectionLoad
    from enmasse.net.loop import Turn
    from enmasse.net.transport import Engine, EngineProtocol
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.connections.connections import Connections
    from enmasse.node.entity_records import Record

MIN_SECRET_BYTES: Final = 16

_log = logging.getLogger(__name__)


class Home(NamedTuple):
    """The home of a space.

    Attributes:
        node: its name.
        generation: counts the homes that the space has had.
    """

    node: str
    generation: int


def home_of(record: Record | None) -> Home | None:
    """Return the home of a space, given its attributes; None: they name none, and it is wherever it is asked for."""
    node = None if record is None else record.get("home")
    return None if record is None or not node else Home(node, record.get("homeGeneration", 1))


class Handovers:
    """The connections that a node hands over.

    Args:
        turn: the turn of the loop.
        connections: the connections of the node.
        name: the name of the node.
        records: the attributes of the spaces, by name.
        installation: returns the id of the installation.
        load_of: returns the place of a connection in the lanes of its space.
        outdated: called with a space as its home is not where it was thought to be.

    Attributes:
        directory: the directory of the nodes' sockets; None: the node is alone.
        secret: the secret of this start of the installation.
    """

    def __init__(
        self,
        turn: Turn,
        connections: Connections,
        name: str,
        records: Mapping[str, Record],
        installation: Callable[[], str],
        load_of: Callable[[Space], ConnectionLoad],
        outdated: Callable[[str], None],
    ) -> None:
        self.directory: Path | None = None
        self.secret = b""
        self._turn = turn
        self._connections = connections
        self._name = name
        self._records = records
        self._installation = installation
        self._load_of = load_of
        self.outdated = outdated
        self._calls: dict[ClientConnection, PeerCall] = {}
        self._pipes: dict[PipeEnd, EngineProtocol] = {}

    def __len__(self) -> int:
        """Return the number of connections that were handed over, and last."""
        return len(self._pipes)

    def elsewhere(self, space: str) -> Home | None:
        """Return the home of a space if that is another node.

        Raises:
            RemoteError: it is, and no other node is reached from here.
        """
        home = home_of(self._records.get(space))
        if home is None or home.node == self._name:
            return None
        if self.directory is None:
            raise RemoteError(AGAIN, "the space is at home at another node, which is not reached from here")
        return home

    # As a front

    def begin(self, connection: ClientConnection, space: Space) -> bool:
        """Begin to hand a connection over, whose client has logged in; return false if its space is at home here.

        Raises:
            RemoteError: it is elsewhere, and the connection cannot be handed over.
        """
        home = self.elsewhere(space.name)
        if home is None:
            return False
        words = connection.first_words
        if words is None:
            raise RemoteError(AGAIN, "the space is at home at another node, which is not reached from here")
        header = self.message(connection, space, home)
        connection.leave_login()
        self._connections.waits(connection, is_waiting=True)
        sent = 0

        def message() -> bytes:
            nonlocal sent
            said = connection.from_login()
            sent = len(said)
            return header + said

        def taken(transport: asyncio.Transport, rest: bytes) -> None:
            del self._calls[connection]
            self._log_taken(connection, space, home)
            self._join(connection, space, transport, connection.from_login()[sent:], rest)

        def failed(failure: Failure) -> None:
            del self._calls[connection]
            self._connections.waits(connection, is_waiting=False)
            self._refuse(connection, space, home, failure)

        self._calls[connection] = self.call(home, message, taken, failed, expected=words)
        return True

    def message(
        self, connection: ClientConnection, space: Space, home: Home, final_data: bytes | None = None
    ) -> bytes:
        """Return the header for a connection.

        Raises:
            RemoteError: it would be too long.
        """
        shell = self._connections.shells[connection]
        admission = connection.admission
        user, device = admission.identity()
        info = admission.peer_info
        header = PeerHeader(
            _client_of(shell),
            self.secret,
            self._installation(),
            self._name,
            space.name,
            home.generation,
            connection.protocol,
            bool(shell.transport.get_extra_info("websocket")),
            info.is_here,
            connection.container,
            admission.mechanism or "",
            shell.peer_names,
            shell.peer_chain,
            connection.final_data,
            user,
            device,
        )
        try:
            return write_peer_header(header)
        except ProxyHeaderError as error:
            raise RemoteError(
                "amqp:resource-limit-exceeded",
                f"what is known of the client cannot be told the space's home: {error}",
            ) from None

    def call(
        self,
        home: Home,
        message: Callable[[], bytes],
        taken: Callable[[asyncio.Transport, bytes], None],
        failed: Callable[[Failure], None],
        *,
        expected: bytes = b"",
    ) -> PeerCall:
        """Connect to the home of a space; see ``PeerCall``."""
        assert self.directory is not None
        return PeerCall(path_of(self.directory, home.node), message, taken, failed, expected=expected)

    def cancel(self, connection: ClientConnection) -> None:
        """Stop handing a connection over: its client is gone."""
        call = self._calls.pop(connection, None)
        if call is not None:
            call.cancel()

    def _join(
        self, connection: ClientConnection, space: Space, transport: asyncio.Transport, said: bytes, heard: bytes
    ) -> None:
        """Have client and home hear each other.

        Args:
            connection: the client's, which ends here.
            space: its space.
            transport: the connection to the home.
            said: what the client has said beyond what the home was sent with the header.
            heard: what the home has said.
        """
        self._turn.begin()
        shell = self._connections.shells[connection]
        party = space.name, connection.admission.name, connection.party[-1]
        near = PipeEnd(lambda: self._ended(near, comes_again=connection.waits_for_reset))
        far = PipeEnd()
        near.join(far)
        self._pipes[near] = shell
        former = shell.engine
        shell.limit_output(partial(_holder, self._connections, party))
        for chunk in shell.replace(near):
            near.put(chunk)
        home = self._reach(PipeProtocol, shell, space, transport, far)
        if said:
            far.put(said)
        if heard:
            home.data_received(heard)
        former.lost()

    def _ended(self, near: PipeEnd, *, comes_again: bool) -> None:
        shell = self._pipes.pop(near)
        if comes_again:
            # Its home may have said before it went that it goes.
            shell.reset_once_closed(LINGER_S)

    def _reach(
        self,
        kind: type[HomeProtocol],
        shell: EngineProtocol,
        space: Space,
        transport: asyncio.Transport,
        engine: Engine,
    ) -> EngineProtocol:
        """Have an engine speak to a home that has taken the connection of a client, which is open now."""
        load = shell.load = self._load_of(space)
        if shell.slot is not None:
            shell.slot.admit()
        home = kind(self._turn, lambda _shell: engine, yields=False)
        home.load = load
        transport.set_protocol(home)
        home.connection_made(transport)
        return home

    def attach(
        self, connection: ClientConnection, space: Space, home: Home, transport: asyncio.Transport, engine: Engine
    ) -> EngineProtocol:
        """Have an engine speak to the home of a space for a client whose own connection stays here.

        Args:
            connection: the client's.
            space: its space.
            home: the home, which has taken the connection.
            transport: the connection to it.
            engine: speaks there.
        """
        self._turn.begin()
        self._log_taken(connection, space, home)
        return self._reach(HomeProtocol, self._connections.shells[connection], space, transport, engine)

    @staticmethod
    def _log_taken(connection: ClientConnection, space: Space, home: Home) -> None:
        admission = connection.admission
        connection.log(
            "connection-handed-over",
            home=home.node,
            space=space.name,
            user=admission.name,
            mechanism=admission.mechanism,
            protocol=connection.protocol,
        )

    def _refuse(self, connection: ClientConnection, space: Space, home: Home, failure: Failure) -> None:
        """Tell a client that its connection cannot be handed over now."""
        error = self.problem(connection, space, home, failure)
        shell = self._connections.shells[connection]
        connection.close(error.condition, error.description)
        connection.ignore_rest()
        shell.reset_later(LINGER_S)

    def problem(self, connection: ClientConnection, space: Space, home: Home, failure: Failure) -> RemoteError:
        """Log that a home has not taken the connection of a client, and return what the client is told."""
        self._turn.begin()
        error = RemoteError(AGAIN, "the node that is the home of the space does not answer: connect again in a while")
        if failure.answer is Answer.GENERATION:
            self.outdated(space.name)
            error = RemoteError(AGAIN, "the space has another home by now: connect again")
        elif failure.answer is Answer.IDENTITY:
            error = RemoteError(
                "amqp:unauthorized-access", "the credentials have changed meanwhile; authenticate again"
            )
        connection.log(
            "handover-failed",
            level=logging.WARNING,
            home=home.node,
            space=space.name,
            user=connection.admission.name,
            description=failure.reason,
        )
        return error

    def has_ended(self, shell: EngineProtocol) -> bool:
        """Return true if the node has ended that has handed a connection over, or has begun to."""
        proxied = shell.proxied
        if proxied is None or not proxied.front or self.directory is None:
            return False
        # One that stops in order has taken its socket away first.
        return not path_of(self.directory, proxied.front).exists() or is_ending(proxied.front_pid)

    def stop(self) -> None:
        """Hand nothing over any more, as the node stops: others can see that it is not the clients that go."""
        if self.directory is not None:
            path_of(self.directory, self._name).unlink(missing_ok=True)
        for connection in list(self._calls):
            self.cancel(connection)

    def pipes(self) -> list[EngineProtocol]:
        """Return the connections that were handed over, and last."""
        return list(self._pipes.values())

    # As a home

    def problem_of(self, header: PeerHeader) -> tuple[str, Answer | None] | None:
        """Return why a header is refused, and what its front is told, if that is anything; None: it may be taken."""
        if not self.secret or not compare_digest(header.secret, self.secret):
            return "the secret is not that of this start", None
        if header.installation != self._installation():
            return f"the installation is {header.installation!r:.100}, which is another one", None
        home = home_of(self._records.get(header.space))
        if home is None or home.node != self._name:
            return f"space {header.space!r:.400} is not at home here", Answer.GENERATION
        if home.generation != header.generation:
            return (
                f"space {header.space!r:.400} is here at generation {home.generation}, not {header.generation}",
                Answer.GENERATION,
            )
        return None


def _holder(connections: Connections, party: tuple[object, ...], give_way: Callable[[], None]) -> Holder:
    return Holder(connections.unread, party, give_way)


def _client_of(shell: EngineProtocol) -> ProxyHeader:
    """Return what is known of the client's end of a connection."""
    version, _, cipher = shell.tls.partition(" ")
    places = [_place(shell.transport.get_extra_info(name)) for name in ("peername", "sockname")]
    source, destination = places if None not in places else (None, None)
    tls = BalancerTls(shell.is_secure, version[:64], cipher[:64])
    return ProxyHeader(True, source, destination, tls, shell.server_name)


def _place(name: object) -> tuple[str, int] | None:
    """Return the address and port of one end of a TCP connection; the zone of an address means nothing elsewhere."""
    if isinstance(name, tuple):
        with suppress(ValueError):
            return str(name[0]).partition("%")[0], int(name[1])
    return None
