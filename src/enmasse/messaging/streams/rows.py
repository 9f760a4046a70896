"""Messages cut out of frames for readers, each with its place and time.

Our annotations are set between two pieces of a message's head, with whatever annotations it has left as
they are encoded. The two pieces are kept, as devices repeat themselves: then a message is a few pieces of
bytes joined.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise

from enmasse.message.errors import DecodeError
from enmasse.message.sections import with_message_annotations
from enmasse.message.types import Timestamp, ULong
from enmasse.messaging.log.frame import Frame

OFFSET = "x-opt-offset"
PARTITION = "x-opt-partition"
ENQUEUED = "x-opt-enqueued-time"

OFFSET_NAME, PARTITION_NAME, ENQUEUED_NAME = OFFSET.encode(), PARTITION.encode(), ENQUEUED.encode()

KNOWN_HEADS = 1_024
KNOWN_HEAD_BYTES = 512
"""The longest head that a stream remembers: longer ones rarely repeat."""

_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")
_SAMPLE = 0x7E5C_93D1_46AF_0B28
"""Stands for each of the three values until the real ones are known."""
_VALUE = _U64.pack(_SAMPLE)
_TIME_KEY = b"\xa3" + bytes((len(ENQUEUED),)) + ENQUEUED_NAME + b"\x83"
_OFFSET_KEY = b"\xa3" + bytes((len(OFFSET),)) + OFFSET_NAME + b"\x80"
_PARTITION_KEY = b"\xa3" + bytes((len(PARTITION),)) + PARTITION_NAME + b"\x80"
_VALUES = _VALUE + _TIME_KEY + _VALUE + _OFFSET_KEY + _VALUE
"""Partition, time and offset as they stand in the annotations."""

_OURS_BYTES = len(_PARTITION_KEY + _VALUES)
_OURS_COUNT = 6
_ANNOTATIONS = b"\x00\x53\x72"
_U32 = struct.Struct(">I")
_TWO_U32 = struct.Struct(">II")

_Template = tuple[bytes, bytes] | None
"""The bytes before and behind the three values; ``None`` for a head that cannot be read."""


def annotated(head: bytes, partition: int, timestamp_us: int, offset: int) -> bytes:
    """Return a message, or its beginning, with its place and time among its annotations.

    Raises:
        DecodeError: the part before the body is malformed.
    """
    place = {
        PARTITION: ULong(partition),
        ENQUEUED: Timestamp(timestamp_us // 1000),
        OFFSET: ULong(offset),
    }
    return with_message_annotations(head, place)


def _end_of_list(head: bytes, at: int) -> int:
    """Return where a list or map ends."""
    code = head[at]
    if code == 0x45:
        return at + 1
    if code in (0xC0, 0xC1):
        return at + 2 + head[at + 1]
    if code in (0xD0, 0xD1):
        return at + 5 + int(_U32.unpack_from(head, at + 1)[0])
    raise IndexError


def _splice(head: bytes) -> _Template:
    """Return the template of a head without decoding it; ``None`` if that is not possible."""
    at = 0
    try:
        while head[at + 2] in (0x70, 0x71) and head[at] == 0 and head[at + 1] == 0x53:
            at = _end_of_list(head, at + 3)
        if head[at] != 0 or head[at + 1] != 0x53:
            return None
        entries = b""
        end = at
        count = _OURS_COUNT
        code = head[at + 2]
        if code == 0x72:
            end = _end_of_list(head, at + 3)
            if head[at + 3] == 0xC1:
                count += head[at + 5]
                entries = head[at + 6 : end]
            elif head[at + 3] == 0xD1:
                count += _U32.unpack_from(head, at + 8)[0]
                entries = head[at + 12 : end]
            else:
                return None
            if end > len(head) or OFFSET_NAME in entries or PARTITION_NAME in entries or ENQUEUED_NAME in entries:
                return None
        elif not 0x73 <= code <= 0x78:
            return None
    except (IndexError, struct.error):
        return None
    size = len(entries) + _OURS_BYTES
    is_short = size < 0xFF and count <= 0xFF
    start = bytes((0xC1, size + 1, count)) if is_short else b"\xd1" + _TWO_U32.pack(size + 4, count)
    return b"".join((head[:at], _ANNOTATIONS, start, entries, _PARTITION_KEY)), head[end:]


def make_template(head: bytes) -> _Template:
    """Return how to put a message's place and time into it; ``None`` for an unusual encoding."""
    template = _splice(head)
    if template is not None:
        return template
    try:
        sample = annotated(head, _SAMPLE, _SAMPLE * 1000, _SAMPLE)
    except DecodeError:
        return None
    before, found, behind = sample.partition(_VALUES)
    if not found or _VALUE in behind:
        return None
    return before, behind


class Templates:
    """The templates of the heads that were seen lately."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Template] = {}

    def of(self, head: bytes) -> _Template:
        """Return the template of a head."""
        known = self._known
        if head in known:
            return known[head]
        template = make_template(head)
        if len(head) <= KNOWN_HEAD_BYTES:
            if len(known) >= KNOWN_HEADS:
                known.clear()
            known[head] = template
        return template


class Rows:
    """The rows of one frame, cut out a few at a time.

    Args:
        data: the frame.
        partition: in which it lies.
        offset: the first row that is wanted.
        since_us: rows before that time are left out.
        templates: those of the stream.
    """

    __slots__ = (
        "_bodies", "_body_at", "_data", "_first", "_head_at", "_heads", "_partition", "_row", "_rows", "_templates",
        "_times",
    )  # fmt: skip

    def __init__(self, data: bytes, partition: int, offset: int, since_us: int, templates: Templates) -> None:
        frame = Frame(data, verify=False)
        self._data = data
        self._first = frame.first_offset
        self._rows = frame.rows
        self._times = frame.timestamps()
        self._row = max(0, offset - frame.first_offset)
        while self._row < self._rows and self._times[self._row] < since_us:
            self._row += 1
        self._heads = array("i")
        self._heads.frombytes(data[frame.heads.offsets_at : frame.heads.offsets_at + 4 * (frame.rows + 1)])
        self._bodies = array("i")
        self._bodies.frombytes(data[frame.bodies.offsets_at : frame.bodies.offsets_at + 4 * (frame.rows + 1)])
        self._head_at = frame.heads.data_at
        self._body_at = frame.bodies.data_at
        self._partition = partition
        self._templates = templates

    @property
    def offset(self) -> int:
        """The next row's offset; that behind the frame when there is none."""
        return self._first + self._row

    @property
    def is_over(self) -> bool:
        """True if there are no more."""
        return self._row >= self._rows

    def take(self, count: int) -> list[bytes]:
        """Return up to ``count`` messages; none when there are no more."""
        start = self._row
        end = min(start + count, self._rows)
        if end <= start:
            return []
        self._row = end
        data, head_at, body_at = self._data, self._head_at, self._body_at
        template_of = self._templates.of
        pack, join = _U64.pack, b"".join
        partition = _U64.pack(self._partition) + _TIME_KEY
        offset = self._first + start
        last_time = -1
        last_head: bytes | None = None
        template: _Template = None
        before = behind = place = b""
        found = []
        cells = zip(
            self._times[start:end],
            pairwise(self._heads[start : end + 1]),
            pairwise(self._bodies[start : end + 1]),
            strict=True,
        )
        for time, (head_start, head_end), (body_start, body_end) in cells:
            head = data[head_at + head_start : head_at + head_end]
            if head != last_head:
                last_head = head
                template = template_of(head)
                if template is not None:
                    before, behind = template
            body = data[body_at + body_start : body_at + body_end]
            if template is None:
                found.append(self._strange(head, time, offset) + body)
            else:
                if time != last_time:
                    last_time = time
                    place = partition + _I64.pack(time // 1000) + _OFFSET_KEY
                found.append(join((before, place, pack(offset), behind, body)))
            offset += 1
        return found

    def _strange(self, head: bytes, time: int, offset: int) -> bytes:
        try:
            return annotated(head, self._partition, time, offset)
        except DecodeError:
            # What a sender garbled is for its reader to judge.
            return head
