"""Writes the rows of one task: packs, sends, and deals with refused ones.

Rules:
1. When a task ends in order, each of its rows was accepted by its address, or by the address for bad records,
   or counted as skipped. Nothing is dropped silently.
2. A refused row is at the address for bad records before anything that was packed with it is sent: else a
   replay after its cause has gone could take its place for sent.
3. What is sent together depends on the rows alone.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from enmasse.client import ConnectionDeniedError, LinkRefusedError
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import OptionError, RowRefusedError
from enmasse.pipeline.headers import header_problem
from enmasse.pipeline.sink.columns import Row, rows_of
from enmasse.pipeline.sink.connection import SpaceConnection
from enmasse.pipeline.sink.delivering import Delivering, refusal_reason
from enmasse.pipeline.sink.identity import Identity
from enmasse.pipeline.sink.messages import Encoder
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.packing import (
    AddressInfo,
    LinkKey,
    MessagePacker,
    Numbered,
    Packer,
    Parcel,
    Refusal,
    StreamPacker,
    problem_of,
)

_log = logging.getLogger(__name__)

BUFFERED_BYTES = 8 << 20
"""Values that gather before everything is sent; a task holds about three times that."""

BUFFERED_ROWS = 50_000

SENT_PARCELS = 5_000
"""Messages that gather before they are sent."""

SORTED_BYTES = 256 << 20
"""Values of a task's rows that are brought into an order in memory."""

_BUCKETS = 64
"""Names under which rows to addresses that are none are numbered."""

_MISSING_ADDRESS = "it names no address, and there is no option address"


@dataclass
class Counts:
    """The outcomes of a task's rows."""

    rows: int = 0
    refused: int = 0
    """At the address for bad records."""
    skipped: int = 0
    """Rows without a receiver."""


class SinkTask:
    """Writes the rows of one task of one batch.

    Args:
        options: the options of the sink.
        identity: the identity of the rows.
        connect: gives a connection, a new one after the last was lost.
    """

    def __init__(self, options: SinkOptions, identity: Identity, connect: Callable[[], SpaceConnection]) -> None:
        self._options = options
        self._identity = identity
        self._connect = connect
        self._encoder = Encoder(durable=options.durable)
        self._packers: dict[str, Packer | str] = {}
        """By address; a text gives the reason why it takes nothing."""
        self._infos: dict[str, AddressInfo] = {}
        self._delivering = Delivering(options, connect, self._infos.__getitem__)
        self._out: list[Parcel] = []
        self._refusals: list[Refusal] = []
        self._unsorted: list[Row] = []
        self._gathered = self._begun = 0
        """Bytes, and the number of the first row, of what gathers before everything is sent."""
        self.counts = Counts()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Counts:
        """Write all rows; as ``take`` and ``finish``."""
        for batch in batches:
            self.take(batch)
        return self.finish()

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows, of which some are sent at once.

        Raises:
            RowRefusedError: an address does not take a row, and there is none for bad records.
            AddressFullError: an address had no room for too long.
            NoConsumerError: a direct address had no receiver for too long.
            StreamUnavailableError: the node stayed away.
            OptionError: the option address names what takes no rows.
        """
        if self._options.is_sorted:
            self._keep(rows_of(batch))
        else:
            self._put(rows_of(batch))

    def finish(self) -> Counts:
        """Send what is left; returns once each row is accepted. Raises as ``take`` does."""
        if self._options.is_sorted:
            # So that rows are numbered alike however they come.
            self._unsorted.sort(key=lambda row: (row.address or "", row.value or b"", repr(row[1:])))
            self._gathered = 0
            self._put(self._unsorted)
        self._flush()
        self.counts.skipped = self._delivering.skipped
        return self.counts

    def _put(self, rows: Iterable[Row]) -> None:
        gathered, begun = self._gathered, self._begun
        index = self.counts.rows - 1
        for index, row in enumerate(rows, self.counts.rows):
            self._add(index, row)
            gathered += len(row.value or b"")
            if gathered >= BUFFERED_BYTES or index - begun >= BUFFERED_ROWS:
                self._flush()
                gathered, begun = 0, index
            elif len(self._out) >= SENT_PARCELS:
                self._send()
        self.counts.rows = index + 1
        self._gathered, self._begun = gathered, begun

    def _keep(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._gathered += len(row.value or b"") + 200
            if self._gathered > SORTED_BYTES:
                raise OptionError(
                    f"option order=content: a task has more than {SORTED_BYTES >> 20} MiB in one batch; take less at "
                    "a time, or more tasks"
                )
            self._unsorted.append(row)

    def _add(self, index: int, row: Row) -> None:
        address = row.address or self._options.address
        problem, cause = problem_of(row) if address else _MISSING_ADDRESS, "row"
        if problem is None:
            packer = self._packers.get(address)
            if packer is None:
                packer = self._packers[address] = self._packer(address)
            if isinstance(packer, str):
                problem, cause = packer, "address"
            else:
                problem = packer.add(index, row, self._out)
        if problem is not None:
            self._refuse(Refusal(Numbered(index, row, address), problem, cause=cause))

    def _packer(self, address: str) -> Packer | str:
        info = self._info(address, self._identity.producer)
        if isinstance(info, str):
            if address == self._options.address:
                raise OptionError(f"option address: cannot write to {address!r} at {self._options.url}: {info}")
            return info
        kind = StreamPacker if info.kind == "stream" else MessagePacker
        return kind(address, info, self._identity, self._encoder)

    def _info(self, address: str, producer: str) -> AddressInfo | str:
        """Return what an address is, or why it takes nothing."""
        backoff = Backoff(self._options.retry_timeout_s)
        while True:
            try:
                info = self._infos[address] = self._connect().info(address, producer)
            except EnmasseError as error:
                reason = refusal_reason(error)
                if reason is not None:
                    return reason
                # A connection that ends, as with its token, is made anew, and says then who may not come in.
                if not isinstance(error, UnavailableError | LinkRefusedError | ConnectionDeniedError):
                    raise
                backoff.wait(error)
            else:
                return info

    # Sending

    def _flush(self) -> None:
        for packer in self._packers.values():
            if not isinstance(packer, str):
                packer.close(self._out)
        self._send()

    def _send(self) -> None:
        self._bury()
        parcels, self._out[:] = list(self._out), []
        # Each address in the order of its rows, as their numbers have to rise at the address for bad records, too.
        for refusal in sorted(self._delivering.deliver(parcels), key=lambda refusal: refusal.numbered.place):
            if refusal.rows > 1:
                # Of an address that has changed meanwhile; a replay finds out about each row.
                raise RowRefusedError(f"{self._describe(refusal)} (and of {refusal.rows - 1} rows after it)")
            self._refuse(refusal)
        self._bury()

    # Bad records

    def _refuse(self, refusal: Refusal) -> None:
        if not self._options.bad_records:
            raise RowRefusedError(self._describe(refusal) + "; option badRecords names an address for such rows")
        self._refusals.append(refusal)
        if len(self._refusals) >= SENT_PARCELS:
            self._bury()

    def _bury(self) -> None:
        """Have refused rows at the address for bad records."""
        if not self._refusals:
            return
        address = self._options.bad_records
        if address not in self._infos:
            info = self._info(address, "")
            if isinstance(info, str):
                raise OptionError(f"option badRecords: cannot write to {address!r} at {self._options.url}: {info}")
        refusals, self._refusals = self._refusals, []
        parcels = [self._bad_record(refusal, self._infos[address]) for refusal in refusals]
        for refusal in self._delivering.deliver(parcels):
            raise RowRefusedError(f"the address for bad records refuses it too: {self._describe(refusal)}")
        self.counts.refused += len(refusals)
        _log.warning("%d rows were refused and are in %r; the first: %s", len(refusals), address,
                     self._describe(refusals[0]))  # fmt: skip

    def _bad_record(self, refusal: Refusal, info: AddressInfo) -> Parcel:
        """Return a refused row as a message that comes once, however often the batch is tried.

        What was refused is numbered by cause and address: of these alone the same rows come in the same order again.
        """
        place, row, address = refusal.numbered
        identity = self._identity
        # Names of addresses that are none may be as many as there are rows.
        of = zlib.crc32(address.encode()) % _BUCKETS if refusal.cause == "address" else address
        link = LinkKey(
            self._options.bad_records, "" if info.is_direct else f"{identity.producer}/{refusal.cause}/{of}"
        )
        reason: dict[str, Any] = {
            "enmasse-reason": refusal.reason,
            "enmasse-address": address,
            "enmasse-query": identity.query,
            "enmasse-batch": identity.batch,
            "enmasse-task": identity.task,
            "enmasse-row": place,
        }
        # Kept until somebody reads it, whatever expiry the row had.
        kept = row._replace(ttl=None, durable=True)
        if kept.headers and header_problem(kept.headers):
            kept = kept._replace(headers=None)
        sequence = None if info.is_direct else identity.row_sequence(place)
        payload = self._encoder.message(kept, message_id=identity.message_id(place), sequence=sequence, extra=reason)
        return Parcel(link, payload, refusal.numbered)

    def _describe(self, refusal: Refusal) -> str:
        place, row, address = refusal.numbered
        of = f" (subject {row.subject!r:.80})" if row.subject is not None else ""
        where = f"address {address!r} does not take" if address else "no address takes"
        return f"{where} {self._identity.describe(place)}{of}: {refusal.reason}"
