"""What the names in a selector mean in a message [AMQP JMS Mapping 1.0, 3.2].

``JMS...`` names are header fields of JMS, ``amqp....`` names are fields of the header and the
properties as AMQP calls them, any other is an application property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from enmasse.messaging.errors import SelectorError
from enmasse.messaging.facts import DELIVERY_TIME
from enmasse.messaging.selector_reading import application_property, key_of, list_field
from enmasse.wire.amqp.section_kinds import HEADER, HEADER_FIELDS, PROPERTIES, PROPERTY_FIELDS, Header
from enmasse.wire.amqp.sections import Sections

__all__ = ["Field", "Look", "field_of"]


class Look:
    """A message as selectors see it; what one has looked up is there for the next.

    Args:
        payload: the bytes of a message whose format is AMQP's own (0).
        attempts: its deliveries that failed at this address.
    """

    __slots__ = ("attempts", "found", "payload")

    def __init__(self, payload: bytes, attempts: int = 0) -> None:
        self.payload = payload
        self.attempts = attempts
        self.found: dict[str, Any] = {}
        """Application properties that were looked up."""


Field = Callable[[Look], Any]
"""Finds a value in a message: ``None`` where there is none. Raises ``DecodeError`` if that is malformed."""


def _identity(value: Any) -> Any:
    """A message id as JMS shows it [AMQP JMS Mapping 1.0, 3.2.1.1]."""
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    return f"ID:AMQP_ULONG:{value}" if isinstance(value, int) else value


def _header(name: str) -> Field:
    index, kind = _HEADER_PLACES[name]
    default = getattr(Header(), name)

    def find(look: Look) -> Any:
        value = list_field(look.payload, HEADER, index, kind, name)
        return default if value is None else value

    return find


def _property(name: str, shown: Callable[[Any], Any] = lambda value: value) -> Field:
    index, kind = _PROPERTY_PLACES[name]
    return lambda look: shown(list_field(look.payload, PROPERTIES, index, kind, name))


def _uuid_text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _bytes_text(value: Any) -> Any:
    return None if value is None else value.decode(errors="replace")


def _delivery_count(look: Look) -> int:
    count: int = _counted(look)
    return count + look.attempts


_HEADER_PLACES = {name: (index, kind) for index, (name, kind) in enumerate(HEADER_FIELDS)}
_PROPERTY_PLACES = {name: (index, kind) for index, (name, kind) in enumerate(PROPERTY_FIELDS)}
_counted = _header("delivery_count")
_durable = _header("durable")
_user = _property("user_id", _bytes_text)


_JMS: dict[str, Field] = {
    "JMSCorrelationID": _property("correlation_id", _identity),
    "JMSDeliveryMode": lambda look: "PERSISTENT" if _durable(look) else "NON_PERSISTENT",
    "JMSDeliveryTime": lambda look: Sections(look.payload).message_annotations.get(DELIVERY_TIME),
    "JMSDestination": _property("to"),
    "JMSExpiration": _property("absolute_expiry_time"),
    "JMSMessageID": _property("message_id", _identity),
    "JMSPriority": _header("priority"),
    "JMSRedelivered": lambda look: _delivery_count(look) > 0,
    "JMSReplyTo": _property("reply_to"),
    "JMSTimestamp": _property("creation_time"),
    "JMSType": _property("subject"),
    "JMSXDeliveryCount": lambda look: _delivery_count(look) + 1,
    "JMSXGroupID": _property("group_id"),
    "JMSXGroupSeq": _property("group_sequence"),
    "JMSXUserID": _user,
}
_AMQP: dict[str, Field] = {
    **{f"amqp.{name}": _header(name) for name, _ in HEADER_FIELDS},
    **{f"amqp.{name}": _property(name, _uuid_text) for name, _ in PROPERTY_FIELDS},
    "amqp.delivery_count": _delivery_count,
    "amqp.user_id": _user,
}
_OWN_PREFIXES = ("JMSX", "JMS_")
"""Names that JMS leaves to applications and providers as properties."""


def field_of(name: str, *, is_quoted: bool = False, position: int = 0) -> Field:
    """What finds the value of a name.

    Args:
        name: the name.
        is_quoted: whether it is the name of an application property in any case.
        position: where it stands in the selector, for errors.

    Raises:
        SelectorError: it looks like a field of the message, but there is none of that name.
    """
    if not is_quoted:
        found = _JMS.get(name) or _AMQP.get(name)
        if found is not None:
            return found
        known: tuple[str, ...] = ()
        if name.startswith("amqp."):
            known = tuple(_AMQP)
        elif name.startswith("JMS") and not name.startswith(_OWN_PREFIXES):
            known = tuple(_JMS)
        if known:
            raise SelectorError(
                f"{name} is no field of a message; there are {', '.join(sorted(known))}. "
                f'An application property of that name is written "{name}"',
                position,
            )
    key = key_of(name)

    def find(look: Look) -> Any:
        found = look.found
        if name in found:
            return found[name]
        value = found[name] = application_property(look.payload, name, key)
        return value

    return find
