"""Wills of AMQP clients: by a message to ``$lwt``, or by a property of any link.

Rules:
1. A sender attached to ``$lwt`` gives the will of its link with a message, whose ``to`` is where it is sent; another
   message takes its place. The outcome is accepted once the will is on disk.
2. The link property ``enmasse:will`` gives a link a will when it is attached: a map with ``to`` and ``body``, and
   ``durable``, ``retain``, ``delay`` and ``content-type`` where they are wanted. If it cannot be stored, the link is
   detached with the reason.
3. A link that is closed without an error, and a connection that is, cancel the will. It is sent when the link is
   detached with an error, or the connection is lost. One that is detached otherwise waits for either.
4. The same owner, container and link name have one will: who comes back in time takes it over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.message.sections import RETAIN, Header, Properties, Sections, encode_message, to_of
from enmasse.messaging.address import Address
from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.errors import UNSUPPORTED_FORMAT, AttachError
from enmasse.messaging.sessions.wills import LinkKey, Will, WillMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.messaging.core import Core
    from enmasse.messaging.space import Space
    from enmasse.node.users.rights import Rights
    from enmasse.wire.amqp.link import Link


LWT: Final = "$lwt"
"""The address to which wills are sent."""

WILL: Final = "enmasse:will"
"""The property by which a link has a will."""

DELAY: Final = "x-opt-will-delay"
"""The annotation of a will that says how many seconds after the loss it is sent."""

CREDIT: Final = 10
MAX_DELAY_S: Final = 0xFFFF_FFFF


class WillProducer(Producer):
    """The end of a sender that gives wills."""

    __slots__ = ("_key", "_wills")

    def __init__(self, core: Core, port: ProducerPort, wills: LinkWills, key: LinkKey) -> None:
        super().__init__(_Wills(core, LWT), port, LWT)
        self._wills = wills
        self._key = key
        port.grant(CREDIT)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take a message as the will of the link."""
        self.on_refused()

        def decided(state: Any) -> None:
            if not settled:
                self.settle(delivery_id, state)

        if message_format:
            decided(UNSUPPORTED_FORMAT)
            return
        try:
            self._wills.put(self._key, _read(payload), decided)
        except RemoteError as error:
            decided(Rejected(AmqpError(error.condition, error.description)))

    on_crossed = on_message

    def on_refused(self) -> None:
        """Grant credit in place of what a message has used, whether it was taken or not."""
        if 2 * self.credit <= CREDIT:
            self.port.grant(CREDIT)


class _Wills(Address):
    """The address ``$lwt``."""

    kind = "service"


class LinkWills:
    """The wills of one connection's links.

    Args:
        space: the connection's space.
        rights: its permissions.
        container: the client's container id.
    """

    __slots__ = ("_container", "_left", "_rights", "_space", "_wills")

    def __init__(self, space: Space, rights: Rights, container: str) -> None:
        self._space = space
        self._rights = rights
        self._container = container
        self._wills: dict[LinkKey, Will] = {}
        self._left: dict[LinkKey, None] = {}
        """Links that are detached, and may come back as long as the connection is there."""

    def key_of(self, name: str) -> LinkKey:
        """Return what identifies the will of a link."""
        return LinkKey(self._rights.owner, self._container, name)

    def attached(self, link: Link, properties: Mapping[str, Any]) -> None:
        """Take over the will of a link that comes back, or take the one that it has by its property.

        Raises:
            AttachError: the property is none, or the user may not send there.
        """
        key = self.key_of(link.name)
        self._left.pop(key, None)
        will = self._space.sessions.wills.take_over(key, self._rights.username)
        if will is not None:
            self._wills[key] = will
        given = properties.get(WILL)
        if given is None:
            return

        def decided(state: Any) -> None:
            if state is not ACCEPTED and not link.is_detach_sent:
                link.detach(state.error)

        self.put(key, _described(given), decided)

    def put(self, key: LinkKey, message: WillMessage, done: Any) -> None:
        """Store a will; ``done`` is called with the outcome.

        Raises:
            AttachError: it is no message, the user may not send there, or there are too many.
        """
        self._rights.require_send(message.name)

        def decided(reason: str | None) -> None:
            if reason is None:
                done(ACCEPTED)
            else:
                done(Rejected(AmqpError("amqp:internal-error", f"the will was not stored: {reason}")))

        self._wills[key] = self._space.sessions.wills.put(key, self._rights.username, message, decided)

    def detached(self, link: Link, error: AmqpError | None, *, closed: bool) -> None:
        """Cancel the will of a link that is closed in order, or send it if the link has failed."""
        key = self.key_of(link.name)
        if key not in self._wills:
            return
        if error is not None:
            self._lose(key)
        elif closed:
            self._cancel(key)
        else:
            self._left[key] = None

    def closed(self, *, is_in_order: bool, is_node_gone: bool = False) -> None:
        """Cancel or send what is left, as the connection has ended.

        Args:
            is_in_order: true if the client has closed it.
            is_node_gone: true if the node has ended that the client had reached, beside this one.
        """
        grace_s = self._space.usage.limits.will_grace_ms / 1_000 if is_node_gone else 0.0
        for key in list(self._wills):
            if is_in_order:
                self._cancel(key)
            else:
                self._lose(key, grace_s)

    def _cancel(self, key: LinkKey) -> None:
        self._space.core.store_in_time([self._wills.pop(key).cancel()])

    def _lose(self, key: LinkKey, grace_s: float = 0.0) -> None:
        will = self._wills.pop(key)
        if self._space.sessions.is_stopping:
            # The client comes back, or its will is sent after the restart.
            return
        try:
            self._rights.require_send(will.message.name)
        except AttachError:
            will.lost(MAX_DELAY_S, is_allowed=False)
        else:
            will.lost(MAX_DELAY_S, grace_s=grace_s)


def _read(payload: bytes) -> WillMessage:
    """Return the will that a message is.

    Raises:
        AttachError: it does not say where it is to be sent.
    """
    to = to_of(payload)
    if not to:
        raise AttachError("amqp:precondition-failed", "a will names in its field to where it is to be sent")
    delay = Sections(payload).message_annotations.get(DELAY, 0)
    return WillMessage(to, payload, _delay(delay))


def _described(given: Any) -> WillMessage:
    """Return the will that a link's property describes."""
    if not isinstance(given, dict):
        raise AttachError("amqp:invalid-field", f"link property {WILL} is a map with to and body")
    values = {str(key): value for key, value in given.items()}
    to, body = values.get("to"), values.get("body", b"")
    if not isinstance(to, str) or not to:
        raise AttachError("amqp:invalid-field", f"link property {WILL} names in to where the will is to be sent")
    if not isinstance(body, bytes | str):
        raise AttachError("amqp:invalid-field", f"the body of link property {WILL} is a string or binary")
    kind = values.get("content-type")
    payload = encode_message(
        body,
        header=Header(durable=bool(values.get("durable", True))),
        properties=Properties(content_type=str(kind)) if kind is not None else None,
        message_annotations={RETAIN: True} if values.get("retain") else None,
    )
    return WillMessage(to, payload, _delay(values.get("delay", 0)))


def _delay(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DELAY_S:
        raise AttachError("amqp:invalid-field", f"the delay of a will is a number of seconds, not {value!r:.60}")
    return float(value)
