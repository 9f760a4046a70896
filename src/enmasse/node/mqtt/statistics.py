"""Statistics of a space as clients of MQTT read them: messages under ``$SYS/broker``, as Mosquitto has them.

Rules:
1. They are of the client's space alone, and for users with the permission ``view``.
2. They cost nothing while nobody is subscribed: they are counted when somebody subscribes, and every ``INTERVAL_S``
   while there are subscribers. Then those that have changed are sent, with QoS 0 and RETAIN.
3. A subscription to them ends with its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import filter_footprint
from enmasse.messaging.patterns import Pattern, matches, parse_filter
from enmasse.messaging.sessions.crowd import MAX_MATCHES
from enmasse.messaging.sessions.filters import Filter
from enmasse.version import __version__
from enmasse.wire.mqtt.packets import PublishProperties, Version
from enmasse.wire.mqtt.writing import encode_publish, encode_publish_properties

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.connections.connections import Connections
    from enmasse.node.mqtt.connection import MqttConnection


INTERVAL_S: Final = 10.0
"""Mosquitto's own interval."""

MAX_WORDS: Final = 8
"""The most words of a filter: comparing takes time by its length."""

ROOT: Final = "$SYS"

FED_BY_NODE: Final = f"names below {ROOT} are statistics of the service, which nobody else may publish"
"""The reason why what a client publishes there reaches nobody."""


def is_of_statistics(text: str) -> bool:
    """Return true if a name or filter is that of statistics."""
    return text == ROOT or text.startswith(f"{ROOT}/")


def read_statistics(space: Space, connections: Connections) -> dict[str, str]:
    """Return the statistics of a space by name: version, clients, messages, bytes and sessions."""
    clients, receivers, bytes_in, bytes_out = connections.traffic_of(space)
    received = sent = stored = dropped = 0
    for address in space.addresses.values():
        came, went = address.traffic()
        received += came
        sent += went
        stored += address.depth or 0
        dropped += address.dropped
    sessions = list(space.sessions)
    away = sum(session.holder is None for session in sessions)
    found = {
        "version": f"EnMasse {__version__}",
        "clients/connected": clients,
        "clients/disconnected": away,
        "clients/total": clients + away,
        "subscriptions/count": receivers,
        "retained messages/count": len(space.retained),
        "messages/received": received,
        "messages/sent": sent,
        "messages/stored": stored + sum(session.depth for session in sessions),
        "publish/messages/dropped": dropped + space.unroutable,
        "store/messages/bytes": space.bytes_stored,
        "bytes/received": bytes_in,
        "bytes/sent": bytes_out,
    }
    return {f"{ROOT}/broker/{name}": str(value) for name, value in found.items()}


class _SpaceStatistics:
    """The subscribers to one space's statistics, and what they were told last."""

    def __init__(self, space: Space, connections: Connections) -> None:
        self._space = space
        self._connections = connections
        self._told: dict[str, str] = {}
        self._is_ticking = False
        self.subscribers: dict[MqttConnection, dict[str, tuple[Pattern, int]]] = {}

    def begin(self, subscriber: MqttConnection, pattern: Pattern, identifier: int) -> None:
        """Send a subscriber all statistics that it wants, and have it sent later ones."""
        self._told = read_statistics(self._space, self._connections)
        _send(subscriber, self._told, [(pattern, identifier)])
        if not self._is_ticking:
            self._is_ticking = True
            self._space.core.call_later(INTERVAL_S, self._tick)

    def _tick(self) -> None:
        if not self.subscribers:
            self._is_ticking = False
            return
        self._space.core.call_later(INTERVAL_S, self._tick)
        before, self._told = self._told, read_statistics(self._space, self._connections)
        changed = {name: value for name, value in self._told.items() if before.get(name) != value}
        for subscriber, filters in self.subscribers.items():
            wanted = list(filters.values())
            # Once for all filters that match, or a copy for each, as the client's session has messages.
            for together in [wanted] if subscriber.session.is_joint else [[one] for one in wanted]:
                _send(subscriber, changed, together)


def _send(subscriber: MqttConnection, values: dict[str, str], filters: list[tuple[Pattern, int]]) -> None:
    engine = subscriber.engine
    if engine.is_blocked:
        return
    for name, value in values.items():
        identifiers = [identifier for pattern, identifier in filters if matches(pattern, name)]
        if not identifiers:
            continue
        properties = b""
        if engine.version is Version.V5:
            known = [identifier for identifier in identifiers if identifier]
            properties = encode_publish_properties(PublishProperties(subscription_identifiers=known))
        packet = encode_publish(name.encode(), value.encode(), retain=True, properties=properties)
        if not 0 < engine.peer_maximum_packet_size < len(packet):
            engine.put(packet)


class Statistics:
    """The statistics that clients of a node are subscribed to, by space."""

    def __init__(self) -> None:
        self._spaces: dict[Space, _SpaceStatistics] = {}

    def subscribe(self, subscriber: MqttConnection, connections: Connections, text: str, identifier: int) -> None:
        """Subscribe a client to statistics; they are sent at once.

        Raises:
            AttachError: the user may not see them, it is no filter, or the space has as many as it may.
        """
        space = subscriber.space
        assert space is not None
        if not subscriber.admission.rights.may_view:
            raise AttachError("amqp:unauthorized-access", f"to receive from {ROOT} takes the permission view")
        pattern = parse_filter(Filter(text).topic)
        if len(pattern) > MAX_WORDS:
            raise AttachError("amqp:not-found", f"no statistics have names of {len(pattern)} words")
        filters = self._filters_of(subscriber)
        if text not in filters:
            if len(filters) >= MAX_MATCHES:
                raise AttachError(
                    "amqp:resource-limit-exceeded",
                    f"the client has {MAX_MATCHES} filters of {ROOT}, as many as one may have",
                )
            space.usage.require_room(filter_footprint(text))
            space.usage.take(filter_footprint(text))
        found = self._spaces.get(space)
        if found is None:
            found = self._spaces[space] = _SpaceStatistics(space, connections)
        found.subscribers.setdefault(subscriber, {})[text] = pattern, identifier
        found.begin(subscriber, pattern, identifier)

    def unsubscribe(self, subscriber: MqttConnection, text: str) -> bool:
        """End a subscription; false if there is none."""
        filters = self._filters_of(subscriber)
        if filters.pop(text, None) is None:
            return False
        assert subscriber.space is not None
        subscriber.space.usage.give_back(filter_footprint(text))
        if not filters:
            self.leave(subscriber)
        return True

    def of(self, subscriber: MqttConnection) -> list[str]:
        """Return the filters of a client."""
        return list(self._filters_of(subscriber))

    def leave(self, subscriber: MqttConnection) -> None:
        """End all subscriptions of a client."""
        space = subscriber.space
        found = None if space is None else self._spaces.get(space)
        if space is None or found is None:
            return
        for text in found.subscribers.pop(subscriber, {}):
            space.usage.give_back(filter_footprint(text))
        if not found.subscribers:
            del self._spaces[space]

    def _filters_of(self, subscriber: MqttConnection) -> dict[str, tuple[Pattern, int]]:
        found = None if subscriber.space is None else self._spaces.get(subscriber.space)
        return {} if found is None else found.subscribers.get(subscriber, {})
