"""The records of sessions and wills in the journal.

A session has the number of a log of its own, with which all of its keys begin: so what is left of one that an
interrupted deletion has not finished is found and deleted like any log's (``delete_log``). Behind the number:

* ``s``: the session; ``g``: a group that shares a filter; ``w``: a will, of a session or of a link
* ``f`` and a number: a filter
* ``i``: the packet ids that were received, u16 each: QoS 2 messages of the client which are stored
* ``o``: what is in flight towards the client, in the order in which it was sent
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.messaging.log.layout import FRAME_BYTES
from enmasse.messaging.owners import ANONYMOUS
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.storage import Storage


SESSION = b"s"
GROUP = b"g"
WILL = b"w"
FILTER = b"f"
INCOMING = b"i"
OUTGOING = b"o"

_FLIGHT = struct.Struct(">HBBIIQI")
_LENGTH = struct.Struct(">I")
_ID = struct.Struct(">H")


class Place(NamedTuple):
    """The place on disk of a message that is in flight.

    Attributes:
        owner: the number of the account of the queue or subscription that it belongs to.
        first: the first offset of its frame.
        row: its row there.
    """

    owner: int
    first: int
    row: int


class Flight(NamedTuple):
    """A message in flight towards a client.

    Attributes:
        packet_id: the packet id.
        qos: 1 or 2.
        is_released: true if the client has it (PUBREC), and only its PUBCOMP is due.
        number: the number of the filter that it was sent for.
        place: the place of the message; of no meaning if it is released.
    """

    packet_id: int
    qos: int
    is_released: bool
    number: int
    place: Place


NOWHERE = Place(0, 0, 0)


def session_key(log_id: int, kind: bytes, number: int | None = None) -> bytes:
    """Return the key of a record."""
    key = _LENGTH.pack(log_id) + kind
    return key if number is None else key + _LENGTH.pack(number)


def put(log_id: int, kind: bytes, value: dict[str, Any], number: int | None = None) -> Operation:
    """Return the operation that writes a record of JSON."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Operation(Table.SESSION, session_key(log_id, kind, number), text.encode("utf-8", "surrogatepass"))


def remove(log_id: int, kind: bytes, number: int | None = None) -> Operation:
    """Return the operation that deletes a record."""
    return Operation(Table.SESSION, session_key(log_id, kind, number), None)


def put_will(log_id: int, value: dict[str, Any], payload: bytes) -> Operation:
    """Return the operation that writes a will: its description, then the message."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return Operation(Table.SESSION, session_key(log_id, WILL), _LENGTH.pack(len(text)) + text + payload)


def will_of(value: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the description and the message of a will's record."""
    (length,) = _LENGTH.unpack_from(value)
    end = _LENGTH.size + length
    return json.loads(value[_LENGTH.size : end]), value[end:]


def owner_in(record: dict[str, Any]) -> str:
    """Return the owner that a record has; empty: it is of an older version, which kept the user's name alone."""
    return str(record.get("owner") or ("" if record["user"] else ANONYMOUS))


def put_incoming(log_id: int, packet_ids: Iterable[int]) -> Operation:
    """Return the operation that writes the packet ids that were received."""
    value = b"".join(map(_ID.pack, packet_ids))
    return Operation(Table.SESSION, session_key(log_id, INCOMING), value or None)


def incoming_of(value: bytes) -> list[int]:
    """Return the packet ids of such a record."""
    return [packet_id for (packet_id,) in _ID.iter_unpack(value)]


def put_outgoing(log_id: int, flights: Iterable[Flight]) -> Operation:
    """Return the operation that writes what is in flight towards the client."""
    value = b"".join(
        _FLIGHT.pack(flight.packet_id, flight.qos, flight.is_released, flight.number, *flight.place)
        for flight in flights
    )
    return Operation(Table.SESSION, session_key(log_id, OUTGOING), value or None)


def outgoing_of(value: bytes) -> list[Flight]:
    """Return what such a record says."""
    return [
        Flight(packet_id, qos, bool(is_released), number, Place(owner, first, row))
        for packet_id, qos, is_released, number, owner, first, row in _FLIGHT.iter_unpack(value)
    ]


class Stored(NamedTuple):
    """The records of one session, group or will in the journal.

    Attributes:
        log_id: its number.
        session: the session's record, if it is one.
        group: the group's record, if it is one.
        will: the description of a will, and its message.
        filters: records of filters, by number.
        incoming: packet ids that were received.
        outgoing: the messages in flight.
    """

    log_id: int
    session: dict[str, Any] | None
    group: dict[str, Any] | None
    will: tuple[dict[str, Any], bytes] | None
    filters: dict[int, dict[str, Any]]
    incoming: list[int]
    outgoing: list[Flight]

    def is_of(self, uid: str) -> bool:
        """Return true if it belongs to the space with a uid, and not to a former one of its name."""
        return str(self._owner_record.get("spaceUid", uid)) == uid

    @property
    def space(self) -> str:
        """The name of the space that it belongs to; empty if what it belonged to is gone."""
        return str(self._owner_record.get("space", ""))

    @property
    def _owner_record(self) -> dict[str, Any]:
        will = None if self.will is None else self.will[0]
        return self.session or self.group or will or {}


def stored_sessions(storage: Storage) -> Iterator[Stored]:
    """Return what the journal holds, in the order of the numbers; for loading."""
    at = b""
    last = b"\xff" * 5
    log_id = -1
    gathered: list[tuple[bytes, bytes]] = []
    while found := storage.scan(Table.SESSION, at, last, FRAME_BYTES):
        for key, value in found:
            (number,) = _LENGTH.unpack_from(key)
            if number != log_id and gathered:
                yield _gather(log_id, gathered)
                gathered = []
            log_id = number
            gathered.append((key[_LENGTH.size :], value))
        at = found[-1][0] + b"\0"
    if gathered:
        yield _gather(log_id, gathered)


def _gather(log_id: int, records: list[tuple[bytes, bytes]]) -> Stored:
    by_kind: dict[bytes, bytes] = {}
    filters: dict[int, dict[str, Any]] = {}
    for key, value in records:
        if key[:1] == FILTER:
            filters[_LENGTH.unpack_from(key, 1)[0]] = json.loads(value)
        else:
            by_kind[key[:1]] = value
    session, group = by_kind.get(SESSION), by_kind.get(GROUP)
    return Stored(
        log_id,
        None if session is None else json.loads(session),
        None if group is None else json.loads(group),
        will_of(by_kind[WILL]) if WILL in by_kind else None,
        filters,
        incoming_of(by_kind.get(INCOMING, b"")),
        outgoing_of(by_kind.get(OUTGOING, b"")),
    )
