"""Drivers of a node's management port: AMQP management over its private socket, or over TLS to another machine."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from enmasse.client import (
    ConnectionDeniedError,
    LinkDetachedError,
    LinkRefusedError,
    Message,
    TlsOptions,
    connect,
)
from enmasse.client.management import Management, ManagementError
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import (
    AddressEntity,
    ConnectorEntity,
    ConnectorServer,
    ConnectorStep,
    Entity,
    EntityType,
    LogNumbers,
    MqttBounds,
    NodeFigures,
    NodeRevision,
    ObservedEntity,
    SpaceEntity,
    SpaceLimitSettings,
)
from enmasse.drivers.authority import Authority
from enmasse.errors import EnmasseError
from enmasse.identity.rbac import CONTROL_PROCESS
from enmasse.model.kinds.address_settings import SETTINGS, entity_digest, read_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from enmasse.client import Connection, Receiver
    from enmasse.control.ports import LogRange
    from enmasse.drivers.data_directory import Layout

_FILE = "management"


def node_tls(layout: Layout) -> Callable[[], TlsOptions]:
    """Return a function that gives the certificates for one attempt to connect: ours is renewed in time.

    Args:
        layout: the layout with the platform's authority and our certificate.
    """

    def options() -> TlsOptions:
        authority = Authority(layout.tls)
        certificate, key = authority.keep_client_certificate(CONTROL_PROCESS.name, layout.api_tls, _FILE)
        return TlsOptions(ca_file=authority.path, certificate=certificate, key=key)

    return options


_log = logging.getLogger(__name__)

_SPACE, _ADDRESS = "io.enmasse.space", "io.enmasse.address"
_PAGE = 64  # addresses that a node lists in one go: two milliseconds in which it does nothing else
_MAX_ADDRESSES = 10_000  # with figures in one request: half a second
_CONFIGURATION = "io.enmasse.configuration"
_INSTALLATION = "io.enmasse.installation"
_CONNECTION = "io.enmasse.connection"
_TRACE_CREDIT = 8
"""Messages of some 64 KiB that may be on their way: the node keeps the rest, up to a bound."""
_TYPES: dict[EntityType, str] = {"space": _SPACE, "address": _ADDRESS}
_OBSERVED = {
    "space": ("name", "uid", "digest", "portProblem", "connectorStatus"),
    "address": ("name", "uid", "digest"),
}
_OBSERVED_AT_ONCE = 200  # entities that a node identifies in one go: four milliseconds in which it does nothing else
_NOT_FOUND, _NOT_KNOWN = 404, 501
_STATISTICS, _HEALTH = "io.enmasse.statistics", "io.enmasse.health"
_IDENTITY = ("name", "space", "address", "addressType")
_CONNECTOR_SECRETS = {
    "ca.crt": "authorities",
    "tls.crt": "certificate",
    "tls.key": "key",
    "username": "username",
    "password": "password",
}
"""The node's names of what a connector has from secrets."""

_SPACE_LIMITS = {
    "max_connections": "maxConnections",
    "max_devices": "maxDevices",
    "max_links": "maxLinks",
    "max_message_rate": "maxMessageRate",
    "max_byte_rate": "maxByteRate",
    "max_message_size": "maxMessageSize",
    "max_ttl": "maxTtl",
    "max_retained": "maxRetained",
    "max_retained_bytes": "maxRetainedBytes",
    "max_sessions": "maxSessions",
    "max_session_bytes": "maxSessionBytes",
    "max_session_expiry": "maxSessionExpiry",
    "will_grace": "willGrace",
    "max_filter_addresses": "maxFilterAddresses",
    "max_subscriptions": "maxSubscriptions",
    "max_subscription_bytes": "maxSubscriptionBytes",
    "max_connector_connections": "maxConnectorConnections",
    "max_connector_sessions": "maxConnectorSessions",
    "max_connector_unsettled": "maxConnectorUnsettled",
    "max_connector_bytes": "maxConnectorBytes",
}
"""The node's names of the limits of a space."""

_SPACE_FIGURES = (
    "name", "maxBytes", "connections", "sessions", "subscriptions", "subscriptionBytes", "connectorStatus",
)  # fmt: skip
"""The attributes that are read of each space with a node's figures."""

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0  # a local socket costs nothing to try, and a node that is back is wanted at once
_TIMEOUT_S = 15.0  # for one operation: a commit, even on a disk that is busy with something else
_VISITOR = "enmasse-api"
"""The container id of connections within spaces."""
_ACTION_TIMEOUT_S = 600.0  # for what goes through every message of an address: there may be millions


class AmqpNodeAdmin:
    """Manages one node; ``connections`` keeps the connection up while it is iterated.

    Args:
        name: the node's name.
        url: the URL of its management, as in ``amqp+unix:///path/to/admin.sock``.
        jitter: gives a factor around 1 for delays.
        tls: returns whom to trust and which certificate to show, for each attempt; for ``amqps``.
    """

    def __init__(
        self, name: str, url: str, *, jitter: Callable[[], float], tls: Callable[[], TlsOptions] | None = None
    ) -> None:
        self._name = name
        self._url = url
        self._jitter = jitter
        self._tls = tls
        self._connection: Connection | None = None
        self._management: Management | None = None
        self._actions: Management | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self._name

    async def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""
        delay, is_logged = _FIRST_DELAY_S, False
        while True:
            try:
                async with self._connected() as lost:
                    delay, is_logged = _FIRST_DELAY_S, False
                    yield True
                    await lost.wait()
            except EnmasseError as error:
                _log.debug("node %s: %s", self._name, error)
            if not is_logged:
                is_logged = True
                yield False
            await asyncio.sleep(delay * self._jitter())
            delay = min(delay * 2, _LONGEST_DELAY_S)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncio.Event]:
        """Connect for the time of the block, and yield an event that is set when the connection is lost."""
        lost = asyncio.Event()
        tls = None if self._tls is None else self._tls()
        async with connect(self._url, container_id="enmasse-control", reconnect=False, tls=tls) as connection:
            watching = asyncio.create_task(_wait_for_loss(connection, lost))
            self._connection = connection
            self._management = Management(connection, timeout=_TIMEOUT_S)
            self._actions = Management(connection, timeout=_ACTION_TIMEOUT_S)
            try:
                yield lost
            finally:
                self._connection = self._management = self._actions = None
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def digest(self, entity: Entity) -> str:
        """Return the digest that a node has of an entity that is as this one."""
        return entity_digest({"name": entity.name, **_attributes(entity)})

    async def revision(self) -> NodeRevision:
        """Return how often the node's entities have changed."""
        with _Errors():
            asked = ("instance", "changes", "installation")
            found = await self._reachable(self._management).query(_CONFIGURATION, asked)
        return NodeRevision(found[0]["instance"], found[0]["changes"], found[0]["installation"] or "")

    async def installation(self) -> str:
        """Return the id of the installation that its journal belongs to; empty: to none yet."""
        return (await self.revision()).installation

    async def since(self) -> str:
        """Return since when it belongs to that, RFC 3339; empty: it belongs to none."""
        with _Errors():
            found = await self._reachable(self._management).query(_INSTALLATION)
        return str(found[0]["since"]) if found else ""

    async def join(self, installation: str) -> None:
        """Make its journal belong to an installation, unless it belongs to another one."""
        try:
            with _Errors():
                await self._reachable(self._management).create(_INSTALLATION, installation)
        except NodeRefusedError as error:
            if error.status != _NOT_KNOWN:
                raise
            raise NodeUnavailableError(
                f"node {self._name} is of an older version, which knows no installations: update it"
            ) from None

    async def take_over(self, former: str, installation: str) -> None:
        """Make its journal belong to an installation instead of another one, which it belongs to now."""
        with _Errors():
            await self._reachable(self._management).update(_INSTALLATION, former, {"id": installation})

    async def log_numbers(self) -> LogNumbers | None:
        """Return its log numbers; None: it is of an older version, which knows no leases."""
        with _Errors():
            found = await self._reachable(self._management).query(_INSTALLATION)
        if not found or found[0].get("nextLog") is None:
            return None
        ranges = found[0]["logRanges"]
        return LogNumbers(
            next=found[0]["nextLog"],
            ranges=None if ranges is None else [(first, end) for first, end in ranges],
            given=found[0]["logsGiven"],
        )

    async def lease_logs(self, installation: str, ranges: Sequence[LogRange], given: int) -> None:
        """Give it more log numbers, and tell it a number beyond all that are leased."""
        with _Errors():
            arguments = {"ranges": [list(found) for found in ranges], "given": given}
            await self._reachable(self._management).perform("LEASE", _INSTALLATION, installation, arguments)

    async def observe(self, kind: EntityType) -> AsyncIterator[list[ObservedEntity]]:
        """Yield all entities of a kind that the node has, in pages."""
        offset = 0
        while True:
            with _Errors():
                page = await self._reachable(self._management).query(
                    _TYPES[kind], _OBSERVED[kind], offset=offset, count=_OBSERVED_AT_ONCE
                )
            yield [_observed(item) for item in page]
            offset += len(page)
            if len(page) < _OBSERVED_AT_ONCE:
                return

    async def find(self, kind: EntityType, name: str) -> ObservedEntity | None:
        """Return what the node has under a name, or None."""
        found = await self._read(_TYPES[kind], name)
        return None if found is None else _observed(found)

    async def find_address(self, name: str) -> AddressEntity | None:
        """Return an address with all that the node knows of it, or None."""
        found = await self._read(_ADDRESS, name)
        return None if found is None else _read_address(found)

    async def find_space(self, name: str) -> SpaceEntity | None:
        """Return a space with all that the node knows of it but secrets, or None."""
        found = await self._read(_SPACE, name)
        return None if found is None else _read_space(found)

    async def _read(self, entity_type: str, name: str) -> dict[str, Any] | None:
        try:
            with _Errors():
                return await self._reachable(self._management).read(entity_type, name)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    async def figures(self, counters: Sequence[str]) -> NodeFigures:
        """Return what the node says of itself now, and of its addresses what identifies them and these counters."""
        wanted = (*_IDENTITY, *counters)
        with _Errors():
            management = self._reachable(self._management)
            statistics = await management.query(_STATISTICS)
            health = await management.query(_HEALTH)
            spaces = await management.query(_SPACE, _SPACE_FIGURES)
            addresses: list[dict[str, Any]] = []
            while len(addresses) <= _MAX_ADDRESSES:
                page = await management.query(_ADDRESS, wanted, offset=len(addresses), count=_PAGE)
                addresses += page
                if len(page) < _PAGE:
                    break
        has_more = len(addresses) > _MAX_ADDRESSES
        return NodeFigures(statistics[0], health[0], spaces, addresses[:_MAX_ADDRESSES], has_more)

    async def health(self) -> dict[str, Any]:
        """Return what the node says of its health."""
        with _Errors():
            return (await self._reachable(self._management).query(_HEALTH))[0]

    async def ping(self) -> None:
        """Send a message through an address of its own and wait until it has come back."""
        with _Errors():
            self._reachable(self._management)
            assert self._connection is not None
            async with (
                self._connection.receiver(None, dynamic=True, credit=1) as receiver,
                self._connection.sender(receiver.address) as sender,
            ):
                outcome = asyncio.ensure_future(sender.send(Message("canary")))
                try:
                    delivery = await receiver.receive()
                    if delivery is not None:
                        await delivery.accept()
                    await outcome
                finally:
                    outcome.cancel()

    async def create(self, entity: Entity) -> bool:
        """Add an entity; whether the node changed for it."""
        with _Errors():
            await self._reachable(self._management).create(_type(entity), entity.name, _attributes(entity))
        return True

    async def update(self, entity: Entity) -> bool:
        """Give an entity new attributes, with its contents left as they are; whether the node changed for it."""
        with _Errors():
            await self._reachable(self._management).update(_type(entity), entity.name, _changes(entity))
        return True

    async def delete(self, entity: Entity) -> bool:
        """Remove an entity of this name and uid with its contents; False: there is nothing of the name."""
        try:
            with _Errors():
                arguments = {"uid": entity.uid}
                await self._reachable(self._management).perform("DELETE", _type(entity), entity.name, arguments)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True

    async def set_pending(self, space: str, address: str, reason: str) -> None:
        """Set the reason why an address is not there yet, for its clients; an empty one clears it."""
        try:
            with _Errors():
                arguments = {"address": address, "reason": reason}
                await self._reachable(self._management).perform("PENDING", _SPACE, space, arguments)
        except NodeRefusedError as error:
            if error.status not in (_NOT_FOUND, _NOT_KNOWN):
                raise  # it may be of an older version, or not know the space yet

    async def test_connector(self, space: str, server: ConnectorServer, address: str) -> list[ConnectorStep]:
        """Connect to a server of a connector, and attach to an address of it unless that is empty; the steps."""
        arguments = {
            "host": server.host,
            "port": server.port,
            "address": address,
            **_shared_by_servers(server),
        }
        try:
            with _Errors():
                done = await self._reachable(self._actions).perform("TEST-CONNECTOR", _SPACE, space, arguments)
        except NodeRefusedError as error:
            if error.status != _NOT_KNOWN:
                raise
            raise NodeUnavailableError(
                f"node {self._name} is of an older version, which tests no connectors: update it"
            ) from None
        return [ConnectorStep(**step) for step in done["steps"]]

    async def act_on_messages(self, operation: str, name: str, arguments: dict[str, Any]) -> int:
        """Have something done to the messages of an address; how many they were."""
        with _Errors():
            done = await self._reachable(self._actions).perform(operation, _ADDRESS, name, arguments)
        return int(done["count"])

    @asynccontextmanager
    async def visit(self, space: str) -> AsyncIterator[Connection]:
        """Be in a space for the time of a block, as an administrator whom its limits do not concern."""
        self._reachable(self._management)  # a node that is known to be away is not waited for
        with _Errors():
            tls = None if self._tls is None else self._tls()
            async with connect(
                self._url, container_id=_VISITOR, hostname=space, reconnect=False, tls=tls
            ) as connection:
                yield connection

    @asynccontextmanager
    async def trace(self, connection: str, payload: int) -> AsyncIterator[Receiver]:
        """Receive the frames of a connection for the time of a block."""
        management = self._reachable(self._management)
        assert self._connection is not None
        with _Errors():
            found = await management.perform("TRACE", _CONNECTION, connection, {"payload": payload})
            async with self._connection.receiver(found["address"], credit=_TRACE_CREDIT, settled=True) as receiver:
                yield receiver

    async def connections_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's connections, in the words of the node, and whether there are more."""
        return await self._page("CONNECTIONS", space, offset)

    async def links_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's links, in the words of the node, and whether there are more."""
        return await self._page("LINKS", space, offset)

    async def mqtt_sessions_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's sessions of MQTT, in the words of the node, and whether there are more."""
        return await self._page("SESSIONS", space, offset)

    async def wills_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's wills, in the words of the node, and whether there are more."""
        return await self._page("WILLS", space, offset)

    async def _page(self, operation: str, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        try:
            with _Errors():
                management = self._reachable(self._management)
                page = await management.perform(operation, _SPACE, space, {"offset": offset})
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return [], False  # the node does not know the space yet
        return page["results"], page["hasMore"]

    async def retained_of(self, space: str, pattern: str, offset: int) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of the retained values whose names match, and where the next one starts, if there is one."""
        page = await self._act_on_retained("RETAINED", space, pattern, offset)
        return page.get("results", []), page.get("offset")

    async def clear_retained(self, space: str, pattern: str) -> int:
        """Clear the retained values whose names match; how many."""
        count, offset = 0, 0
        while True:
            step = await self._act_on_retained("CLEAR-RETAINED", space, pattern, offset)
            count += int(step.get("count", 0))
            following = step.get("offset")
            if following is None:
                return count
            offset = int(following)

    async def _act_on_retained(self, operation: str, space: str, pattern: str, offset: int) -> dict[str, Any]:
        try:
            with _Errors():
                arguments = {"filter": pattern, "offset": offset}
                found: dict[str, Any] = await self._reachable(self._actions).perform(
                    operation, _SPACE, space, arguments
                )
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return {}  # the node does not know the space yet
        return found

    async def close_connection(self, space: str, connection: str) -> bool:
        """Close a connection of a space; whether there was one."""
        return await self._end("CLOSE", space, {"connection": connection})

    async def end_session(self, space: str, client: str) -> bool:
        """End the session of a client; whether there was one."""
        return await self._end("END", space, {"client": client})

    async def _end(self, operation: str, space: str, arguments: dict[str, Any]) -> bool:
        try:
            with _Errors():
                await self._reachable(self._management).perform(operation, _SPACE, space, arguments)
        except NodeRefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True

    def _reachable(self, management: Management | None) -> Management:
        if management is None:
            raise NodeUnavailableError(f"node {self._name} is not connected")
        return management


_STATUS = {
    "amqp:invalid-field": 400,
    "amqp:not-implemented": 400,
    "amqp:not-allowed": 400,
    "amqp:not-found": 404,
    "amqp:resource-deleted": 404,
    "amqp:resource-limit-exceeded": 409,
    "amqp:resource-locked": 409,
}
"""The status of a management's answer that stands for the condition of a link's end."""


class _Errors:
    """Turns errors of the client into those of the port."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ManagementError):
            # 503 and the like are the node's own trouble; it may have passed at the next try.
            raise NodeRefusedError(error.status, error.description) from error
        if isinstance(error, LinkRefusedError | LinkDetachedError | ConnectionDeniedError):
            raise NodeRefusedError(_STATUS.get(error.condition, 503), error.description) from error
        if isinstance(error, NodeRefusedError):
            return
        if isinstance(error, EnmasseError) and not isinstance(error, NodeUnavailableError):
            raise NodeUnavailableError(str(error)) from error


async def _wait_for_loss(connection: Connection, lost: asyncio.Event) -> None:
    """Wait for a message that never comes: only the connection's end brings an answer."""
    try:
        async with connection.receiver(None, dynamic=True, credit=1) as receiver:
            await receiver.receive()
    except EnmasseError as error:
        _log.debug("connection lost: %s", error)
    finally:
        lost.set()


def _type(entity: Entity) -> str:
    return _TYPES[entity.entity_type]


def _attributes(entity: Entity) -> dict[str, Any]:
    """Return the attributes of a new entity; defaults are left out."""
    return {name: value for name, value in _changes(entity).items() if value is not None}


def _changes(entity: Entity) -> dict[str, Any]:
    """Return the attributes of an entity that the node has; null restores a default."""
    attributes: dict[str, Any]
    if isinstance(entity, SpaceEntity):
        attributes = {
            "spaceType": entity.space_type,
            "authentication": entity.authentication,
            "uid": entity.uid,
            "generation": entity.generation,
            "home": entity.home,
            "homeGeneration": entity.home_generation,
            "maxBytes": entity.max_bytes,
            "hosts": list(entity.hosts),
            "port": entity.port,
            "oidc": None if entity.oidc is None else dict(entity.oidc),
            "connectors": _connectors(entity),
            "acknowledgeUndeliverable": entity.acknowledges_undeliverable,
            "copyOverlapping": entity.copies_overlapping,
            "takeDollarNames": entity.takes_dollar_names,
            "takeQueryProperties": entity.takes_query_properties,
            "mqttPacketBytes": entity.mqtt.packet_bytes,
            "mqttReceiveMaximum": entity.mqtt.receive_maximum,
            "mqttKeepAlive": entity.mqtt.keep_alive_s,
            "mqttInflight": entity.mqtt.inflight,
            **{name: getattr(entity.limits, field) for field, name in _SPACE_LIMITS.items()},
        }
    else:
        attributes = {
            "space": entity.space,
            "address": entity.address,
            "addressType": entity.address_type,
            "topic": entity.topic,
            "partitions": entity.partitions,
            "uid": entity.uid,
            "generation": entity.generation,
        }
        for setting in SETTINGS.values():
            value = getattr(entity.settings, setting.field)
            attributes[setting.name] = value if value != setting.default else None
    return {name: value or None for name, value in attributes.items()}


def _connectors(entity: SpaceEntity) -> dict[str, Any]:
    """Return the connectors of a space in the words of the node."""
    found = {}
    for connector in entity.connectors:
        first = connector.servers[0]
        found[connector.name] = {
            "servers": [{"host": server.host, "port": server.port} for server in connector.servers],
            "patterns": list(connector.patterns),
            **_shared_by_servers(first),
        }
        if connector.origins:
            # For a control process that knows the space from the node alone.
            found[connector.name]["origins"] = {
                _CONNECTOR_SECRETS[entry]: "/".join(origin) for entry, origin in connector.origins.items()
            }
    return found


def _read_connector(name: str, one: dict[str, Any]) -> ConnectorEntity:
    """Return a connector as a node tells it: without its secrets, but with the places of which they are."""
    origins: dict[str, tuple[str, str]] = {}
    for entry, attribute in _CONNECTOR_SECRETS.items():
        if attribute in one.get("secrets", ()):
            secret, _, key = one.get("origins", {}).get(attribute, "").partition("/")
            origins[entry] = secret, key
    # A node of an older version does not tell whether there is TLS, and without is no guess to make.
    servers = tuple(
        ConnectorServer(item["host"], item["port"], one["tls"], {}, one.get("idleTimeout"), one.get("maxFrameSize"))
        for item in (one["servers"] if "tls" in one else ())
    )
    return ConnectorEntity(name, servers, tuple(one.get("patterns") or ()), origins)


def _shared_by_servers(server: ConnectorServer) -> dict[str, Any]:
    """Return what all servers of a connector have in common."""
    return {
        "tls": server.is_tls,
        "idleTimeout": server.idle_timeout_s,
        "maxFrameSize": server.max_frame_size,
        **{_CONNECTOR_SECRETS[entry]: text for entry, text in server.secrets.items()},
    }


def _read_address(attributes: dict[str, Any]) -> AddressEntity:
    kind = attributes.get("addressType") or ""
    return AddressEntity(
        name=attributes["name"],
        space=attributes.get("space") or "",
        address=attributes.get("address") or "",
        address_type=kind,
        topic=(attributes.get("topic") or "") if kind == "subscription" else "",
        partitions=(attributes.get("partitions") or 1) if kind == "stream" else 0,
        uid=attributes.get("uid") or "",
        generation=attributes.get("generation") or 0,
        settings=read_settings(attributes),
    )


def _observed(found: dict[str, Any]) -> ObservedEntity:
    problems = tuple((item["name"], item.get("problem") or "") for item in found.get("connectorStatus") or ())
    return ObservedEntity(
        found["name"], found.get("uid") or "", found["digest"], found.get("portProblem") or "", problems
    )


def _read_space(attributes: dict[str, Any]) -> SpaceEntity:
    bounds = {field: attributes.get(name) or 0 for field, name in _SPACE_LIMITS.items()}
    return SpaceEntity(
        name=attributes["name"],
        space_type=attributes.get("spaceType") or "standard",
        authentication=attributes.get("authentication") or "none",
        uid=attributes.get("uid") or "",
        generation=attributes.get("generation") or 0,
        max_bytes=attributes.get("maxBytes") or 0,
        limits=SpaceLimitSettings(**bounds),
        hosts=tuple(attributes.get("hosts") or ()),
        port=attributes.get("port") or 0,
        oidc=attributes.get("oidc"),
        acknowledges_undeliverable=bool(attributes.get("acknowledgeUndeliverable")),
        copies_overlapping=bool(attributes.get("copyOverlapping")),
        takes_dollar_names=bool(attributes.get("takeDollarNames")),
        takes_query_properties=bool(attributes.get("takeQueryProperties")),
        mqtt=MqttBounds(
            attributes.get("mqttPacketBytes") or 0,
            attributes.get("mqttReceiveMaximum") or 0,
            attributes.get("mqttKeepAlive") or 0,
            attributes.get("mqttInflight") or 0,
        ),
        connectors=tuple(_read_connector(name, one) for name, one in (attributes.get("connectors") or {}).items()),
        home=attributes.get("home") or "",
        home_generation=attributes.get("homeGeneration") or 0,
    )
