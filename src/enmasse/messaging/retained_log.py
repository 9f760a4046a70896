"""The retained values of one address, and how they are written to the journal.

Layout, big-endian, in the table ``RETAINED``:

    key      log u32, digest of the name (BLAKE2b, 16 bytes)
    value    when the message came u64 (microseconds since 1970), length of the name u32, the name, the message

Rules:
1. What was set or cleared in a turn is written with the batch of that turn, as the messages themselves are. A value
   that could not be written is written again until it is, or is none any more.
2. A value that a transaction sets is written with the transaction, and known only then.
3. All of it goes with the address.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from enmasse.errors import EnmasseError
from enmasse.messaging.facts import Facts, known_facts
from enmasse.messaging.patterns import Wild
from enmasse.messaging.sessions.filters import ROOT
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.retained import Retained, Value


TAKING_UNITS = 10
"""The work of taking over a value, or of looking at some that are another's, in units of a turn (``core``)."""

_LOAD_BYTES = 1 << 20
_HEAD = struct.Struct(">QI")
_LOG = struct.Struct(">I")
_DIGEST_BYTES = 16

Done = Callable[[str | None], None]
"""Called with nothing once what was asked for is on disk, or with the reason why it is not."""


class RetainedError(EnmasseError):
    """Raised for a record in the journal that is no retained value."""


class _Staged:
    """A value that a transaction sets."""

    __slots__ = ("done", "facts", "is_superseded", "name", "payload")

    def __init__(self, name: str, payload: bytes | None, facts: Facts, done: Done) -> None:
        self.name = name
        self.payload = payload
        self.facts = facts
        self.done = done
        self.is_superseded = False
        """True if the name was given another value since."""


class _Cut:
    """The part of one batch that belongs to an address's values."""

    __slots__ = ("dones", "names", "staged")

    def __init__(self, names: list[str], dones: list[Done], staged: list[_Staged]) -> None:
        self.names = names
        self.dones = dones
        self.staged = staged


class RetainedLog:
    """The retained values of one address.

    Args:
        core: the core whose batches it is written with.
        address: the name of the address.
        log_id: under which they are kept; 0 keeps them in memory alone.
    """

    __slots__ = (
        "_changed", "_changed_bytes", "_dones", "_flying", "_staged", "address", "core", "index", "is_closed",
        "log_id", "values",
    )  # fmt: skip

    def __init__(self, core: Core, address: str, log_id: int) -> None:
        self.core = core
        self.address = address
        self.log_id = log_id
        self.index: Retained | None = None
        """The values of the space, from when the address belongs to one."""
        self.values: dict[str, Value] = {}
        self.is_closed = False
        self._changed: dict[str, None] = {}
        """Names whose values are not on disk as they are."""
        self._changed_bytes = 0
        self._dones: list[Done] = []
        self._staged: list[_Staged] = []
        self._flying: list[_Staged] = []
        """The changes that are on their way to the disk."""

    @property
    def name(self) -> str:
        """The name for reports."""
        return f"retained values of {self.address}"

    def join(self, index: Retained) -> None:
        """Be part of the values of a space."""
        self.index = index

    def get(self, name: str) -> Value | None:
        """Return the value of a name, if it belongs to this address."""
        value = None if self.index is None else self.index.get(name)
        return value if value is not None and value.home is self else None

    # Changing

    def set(self, name: str, payload: bytes, facts: Facts, done: Done | None = None) -> None:
        """Make a message the value of a name, whatever the bounds are; see ``Retained.refusal``.

        Args:
            name: the address, or a name below it.
            payload: the message.
            facts: the facts of the message.
            done: called once the value is on disk, or that of a later message.
        """
        assert self.index is not None
        self.index.put(self, name, payload, facts, 0)
        self._change(name, len(payload), done)

    def clear(self, name: str, done: Done | None = None) -> bool:
        """Forget the value of a name; return whether there was one.

        Args:
            name: the address, or a name below it.
            done: called once that is on disk.
        """
        assert self.index is not None
        value = self.values.get(name)
        if value is not None:
            self.index.drop(value)
        self._change(name, 0, done, is_other=value is not None)
        return value is not None

    def take_along(self, *, owns_subtree: bool) -> Iterator[int]:
        """Take over the values of its names from the topics above, which had them before the address was there.

        Args:
            owns_subtree: whether names below the address are its own, too.

        Returns:
            A chore.
        """
        assert self.index is not None
        name = self.address
        for value in self.index.search((*name.split("/"), Wild.REST) if owns_subtree else tuple(name.split("/"))):
            if value is not None and (value.home.address == ROOT or name.startswith(f"{value.home.address}/")):
                self.index.move(value, self)
                self._change(value.name, len(value.payload), None)
            yield TAKING_UNITS

    def lost(self, value: Value) -> None:
        """Note that another address has a value of the same name now."""
        self.values.pop(value.name, None)
        self._change(value.name, 0, None)

    def _change(self, name: str, size: int, done: Done | None, *, is_other: bool = True) -> None:
        for staged in (*self._staged, *self._flying):
            if staged.name == name:
                staged.is_superseded = is_other = True
        if not self.log_id:
            if done is not None:
                done(None)
            return
        if is_other:
            self._changed[name] = None
            self._changed_bytes += size
            self.core.gathered_bytes += size
        if done is not None:
            self._dones.append(done)
        self.core.write(self)

    def stage(self, name: str, payload: bytes | None, facts: Facts, done: Done) -> None:
        """Have a value set with the next batch, and known only then; without a message it is cleared."""
        self._staged.append(_Staged(name, payload, facts, done))
        self.core.write(self)

    # The journal

    def cut(self, wall_us: int) -> tuple[list[Operation], _Cut | None]:
        """Return what has changed."""
        operations: list[Operation] = []
        self.core.gathered_bytes -= self._changed_bytes
        changed, self._changed, self._changed_bytes = list(self._changed), {}, 0
        dones, self._dones = self._dones, []
        staged, self._staged = self._staged, []
        for name in changed:
            value = self.values.get(name)
            record = None
            if value is not None:
                came_us = value.since_us + self.core.shift_us if value.since_us else wall_us
                record = _encode(name, value.payload, came_us)
            operations.append(Operation(Table.RETAINED, self._key(name), record))
        if self.log_id:
            for item in staged:
                if not item.is_superseded:
                    record = None if item.payload is None else _encode(item.name, item.payload, wall_us)
                    operations.append(Operation(Table.RETAINED, self._key(item.name), record))
        self._flying = staged
        return operations, _Cut(changed, dones, staged) if operations or dones or staged else None

    def committed(self, token: _Cut) -> None:
        """Note that a cut is on disk."""
        self._flying = []
        for item in token.staged:
            if not (item.is_superseded or self.is_closed):
                self._apply(item)
            item.done(None)
        for done in token.dones:
            done(None)

    def _apply(self, item: _Staged) -> None:
        """Make known what a transaction has set."""
        assert self.index is not None
        if item.payload is not None:
            self.index.put(self, item.name, item.payload, item.facts, 0)
        elif (value := self.values.get(item.name)) is not None:
            self.index.drop(value)

    def failed(self, token: _Cut, reason: str) -> None:
        """Note that a cut was not written: what was set is written again, but for what transactions did."""
        self._flying = []
        if token.names and not self.is_closed:
            self._changed = dict.fromkeys(token.names) | self._changed
            self.core.write(self)
        for item in token.staged:
            item.done(reason)
        for done in token.dones:
            done(reason)

    def _key(self, name: str) -> bytes:
        return _LOG.pack(self.log_id) + blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()

    def load(self) -> None:
        """Load the values that the journal holds; one that is damaged is left out, and reported.

        Only an address of a space has values.
        """
        if self.index is None or not self.log_id:
            return
        at, last = _LOG.pack(self.log_id), _LOG.pack(self.log_id + 1)
        while found := self.core.storage.scan(Table.RETAINED, at, last, _LOAD_BYTES):
            for _, record in found:
                try:
                    since_us, name, payload = decode_value(record)
                except RetainedError as error:
                    self.core.report(self.name, error)
                    continue
                other = self.index.get(name)
                if other is None or 0 < other.since_us < since_us:
                    self.index.put(self, name, payload, known_facts(payload), since_us)
                else:
                    self._change(name, 0, None)
            at = found[-1][0] + b"\0"

    def close(self) -> None:
        """Forget all values, as the address is deleted; what is on disk is deleted with its log."""
        self.is_closed = True
        self.core.gathered_bytes -= self._changed_bytes
        self._changed, self._changed_bytes = {}, 0
        if self.index is not None:
            for value in list(self.values.values()):
                self.index.drop(value)
        dones, self._dones = self._dones, []
        staged, self._staged = self._staged, []
        for done in (*dones, *(item.done for item in staged)):
            done("the address was deleted")


def _encode(name: str, payload: bytes, wall_us: int) -> bytes:
    encoded = name.encode()
    return _HEAD.pack(wall_us, len(encoded)) + encoded + payload


def decode_value(record: bytes) -> tuple[int, str, bytes]:
    """Return when a value came, its name and its message.

    Raises:
        RetainedError: the record is none of a value.
    """
    try:
        since_us, length = _HEAD.unpack_from(record)
        start = _HEAD.size + length
        if start > len(record):
            raise RetainedError(f"a retained value whose name of {length} bytes is cut short")
        return since_us, record[_HEAD.size : start].decode(), record[start:]
    except (struct.error, UnicodeDecodeError) as error:
        raise RetainedError(f"a record that is no retained value: {error}") from None
