"""Sequences of senders that number their messages, so that one sent again is not stored again.

Rules:
1. A link property names the producer, an annotation numbers each message: rising, gaps allowed.
2. A sequence that is committed is accepted and written nowhere; one that is on its way is released, so
   that its sender asks again once the answer is known. One that was not taken, or whose commit failed, is
   missing until it comes again, whatever came after it.
3. Producers are kept in the order of their last use. Beyond ``MAX_PRODUCERS`` the one that was silent the
   longest is forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import Sections
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.errors import AttachError

PRODUCER_PROPERTY = "enmasse:producer"
SEQUENCE_ANNOTATION = "x-opt-sequence"

MAX_PRODUCER_BYTES = 255
"""A producer's name; keys of the journal have 400 bytes."""

MAX_SEQUENCE = (1 << 64) - 1

NO_SEQUENCE = f"a link with {PRODUCER_PROPERTY} carries messages with {SEQUENCE_ANNOTATION}, a number"


def producer_name(options: AttachOptions) -> bytes | None:
    """Return the name under which a sender numbers its messages; ``None`` if it does not.

    Raises:
        AttachError: the value given is no name.
    """
    identity = options.properties.get(PRODUCER_PROPERTY)
    if identity is None:
        return None
    name = identity.encode() if isinstance(identity, str) else identity
    if not isinstance(name, bytes) or not 1 <= len(name) <= MAX_PRODUCER_BYTES:
        raise AttachError(
            "amqp:invalid-field",
            f"link property {PRODUCER_PROPERTY} takes a name of 1 to {MAX_PRODUCER_BYTES} bytes",
        )
    return name


def sequence_of(payload: bytes) -> int | None:
    """Return a message's number; ``None`` if it has none."""
    try:
        sequence = Sections(payload).message_annotations.get(SEQUENCE_ANNOTATION)
    except DecodeError:
        return None
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not 0 <= sequence <= MAX_SEQUENCE:
        return None
    return sequence


MAX_PRODUCERS = 65_536
"""Producers that a log remembers: some 10 MB at most, and more than ever write to one at a time."""

MAX_MISSING = 4_096
"""Sequences of one producer that failed and are waited for; a sender that never sends them again is not
to fill the memory."""

_LAST = struct.Struct(">Q")
_USED = struct.Struct(">I")
_NONE: frozenset[int] = frozenset()


class _Producer:
    """The sequences of one producer."""

    __slots__ = ("coming", "last", "missing", "used_s")

    def __init__(self) -> None:
        self.last = -1
        """The highest that is committed."""
        self.missing: frozenset[int] | set[int] = _NONE
        """Sequences that failed and did not come again."""
        self.coming: set[int] | None = None
        """Sequences on their way to the disk."""
        self.used_s = 0
        """The time of the last write, in seconds since 1970."""

    def record(self, stored: set[int], now_s: int) -> bytes:
        """Return the record to keep once these are stored: the highest, what is missing below it, and the time."""
        last = max(self.last, *stored)
        missing = sorted(number for number in self.missing - stored if number < last)
        return struct.pack(f">{1 + len(missing)}QI", last, *missing, now_s)

    def load(self, record: bytes) -> None:
        """Read a record; those of the first versions have no time."""
        count = len(record) // _LAST.size
        self.last, *missing = struct.unpack_from(f">{count}Q", record)
        self.missing = set(missing) or _NONE
        if len(record) % _LAST.size:
            (self.used_s,) = _USED.unpack_from(record, len(record) - _USED.size)


class Sequences:
    """The sequences of every producer that a log remembers."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[bytes, _Producer] = {}

    def __len__(self) -> int:
        """Return the number of producers that are remembered."""
        return len(self._producers)

    def knows(self, producer: bytes, sequence: int) -> bool:
        """Return whether one came before and need not be taken again."""
        known = self._producers.get(producer)
        if known is None:
            return False
        is_coming = known.coming is not None and sequence in known.coming
        return is_coming or (sequence <= known.last and sequence not in known.missing)

    def judge(self, producer: bytes, sequence: int) -> Any:
        """The outcome of one that came before; ``None`` if it is new, and then it is on its way."""
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer()
        coming = known.coming
        if coming is not None and sequence in coming:
            return RELEASED
        if sequence <= known.last and sequence not in known.missing:
            return ACCEPTED
        if coming is None:
            coming = known.coming = set()
        coming.add(sequence)
        return None

    def cut(self, coming: dict[bytes, set[int]], now_s: int) -> Iterable[tuple[bytes, bytes | None]]:
        """Return the records to write with these sequences; ``None`` deletes one."""
        producers = self._producers
        for producer, sequences in coming.items():
            known = producers.pop(producer)
            producers[producer] = known
            known.used_s = now_s
            yield producer, known.record(sequences, now_s)
        surplus = len(producers) - MAX_PRODUCERS
        if surplus > 0:
            idle = [producer for producer, known in producers.items() if not known.coming][:surplus]
            for producer in idle:
                del producers[producer]
                yield producer, None

    def stored(self, written: dict[bytes, set[int]]) -> None:
        """Note that these are on disk."""
        for producer, numbers in written.items():
            known = self._producers[producer]
            known.last = max(known.last, *numbers)
            known.missing = (known.missing - numbers) or _NONE
            self._arrived(known, numbers)

    def failed(self, lost: dict[bytes, set[int]]) -> None:
        """Note that these are not on disk, and are expected again."""
        for producer, numbers in lost.items():
            known = self._producers[producer]
            self._lack(known, numbers)
            self._arrived(known, numbers)

    def miss(self, producer: bytes, sequence: int) -> None:
        """Note that one was not taken: it is expected again, unless it is stored or on its way."""
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer()
        is_coming = known.coming is not None and sequence in known.coming
        if not is_coming and sequence > known.last:
            self._lack(known, {sequence})

    @staticmethod
    def _lack(known: _Producer, numbers: set[int]) -> None:
        missing = set(known.missing | numbers)
        if len(missing) > MAX_MISSING:
            missing = set(sorted(missing)[-MAX_MISSING:])
        known.missing = missing

    @staticmethod
    def _arrived(known: _Producer, numbers: set[int]) -> None:
        if known.coming is not None:
            known.coming -= numbers
            if not known.coming:
                known.coming = None

    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Load every producer's record."""
        loaded = []
        for producer, record in records:
            known = _Producer()
            known.load(record)
            loaded.append((producer, known))
        loaded.sort(key=lambda item: item[1].used_s)
        self._producers = dict(loaded)
