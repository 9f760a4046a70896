"""Options of ``format("enmasse")`` for writing, checked once and given names and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enmasse.pipeline.credentials import ENVIRONMENT_LOGIN, LOGIN_OPTIONS, Login
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.options import checked_url, parse_seconds, with_place

_KNOWN = (
    "url",
    "address",
    "space",
    *LOGIN_OPTIONS,
    "badRecords",
    "onNoConsumer",
    "noConsumerTimeout",
    "sendTimeout",
    "retryTimeout",
    "durable",
    "order",
    "producer",
    "sequence",
)
_BATCH_ONLY = ("producer", "sequence")
_OF_SPARK = frozenset({"checkpointlocation", "path", "queryname"})
"""Options that Spark passes on though they are its own."""

MAX_SEQUENCE = (1 << 31) - 1
"""Rows and frames are numbered below it in 64 bits."""

MAX_PRODUCER_BYTES = 200
"""A node keeps 255, the number of the task included."""


@dataclass(frozen=True)
class SinkOptions:
    """The options of a query that writes."""

    url: str
    """URL of the space, ``amqp[s]://host[:port]``."""
    address: str = ""
    """The address of rows that name no address of their own; empty: each row has to."""
    space: str = ""
    """Host name that chooses the space in ``open``; empty: the URL's own host."""
    login: Login = ENVIRONMENT_LOGIN
    """The user to come as, and the authorities to trust."""
    bad_records: str = ""
    """The address of refused rows; empty: the batch fails."""
    skips_no_consumer: bool = False
    """True if rows for a direct address that nobody receives from are dropped and counted."""
    no_consumer_timeout_s: float = 2.0
    """Seconds that a receiver is waited for before a row is skipped; one that is busy answers sooner."""
    send_timeout_s: float = 60.0
    """Seconds that an address may take nothing before the batch fails."""
    retry_timeout_s: float = 60.0
    """Seconds that a node may be away; a supervised one is back within seconds."""
    durable: bool = True
    """True if messages survive a restart where the row has no such column."""
    is_sorted: bool = False
    """True if a task's rows are brought into the order of their content first."""
    producer: str = ""
    """Batch only: under which name a repeated write is known."""
    sequence: int = 0
    """Batch only: the number of the write among those of its producer."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_batch: bool = False) -> SinkOptions:
        """Check what the user gave to ``option(...)``.

        Args:
            options: names in any case.
            is_batch: whether they are of ``df.write``.

        Raises:
            OptionError: an option is missing, unknown or malformed; the message says which.
        """
        values = with_place(_named(options, is_batch))
        if not values.get("url"):
            raise OptionError('option url is missing: expected .option("url", "amqp://127.0.0.1:5672")')
        order = _one_of("order", values.get("order", "arrival"), "arrival", "content")
        no_consumer = _one_of("onNoConsumer", values.get("onNoConsumer", "fail"), "fail", "skip")
        producer, sequence = _numbering(values)
        return cls(
            url=checked_url(values["url"]),
            address=values.get("address", ""),
            space=values.get("space", ""),
            login=Login.parse(values, values["url"]),
            bad_records=values.get("badRecords", ""),
            skips_no_consumer=no_consumer == "skip",
            no_consumer_timeout_s=parse_seconds("noConsumerTimeout", values.get("noConsumerTimeout", "2s")),
            send_timeout_s=parse_seconds("sendTimeout", values.get("sendTimeout", "60s")),
            retry_timeout_s=parse_seconds("retryTimeout", values.get("retryTimeout", "60s")),
            durable=_one_of("durable", values.get("durable", "true"), "true", "false") == "true",
            is_sorted=order == "content",
            producer=producer,
            sequence=sequence,
        )


def _named(options: Mapping[str, str], is_batch: bool) -> dict[str, str]:
    known = {name.lower(): name for name in _KNOWN if is_batch or name not in _BATCH_ONLY}
    values: dict[str, str] = {}
    for given, value in options.items():
        name = known.get(given.lower())
        if name is not None:
            values[name] = value
        elif given.lower() == "path":
            values.setdefault("address", value)
        elif given.lower() not in _OF_SPARK:
            hint = "; it is for df.write only" if given.lower() in _BATCH_ONLY else ""
            names = ", ".join(sorted(known.values()))
            raise OptionError(f"format enmasse has no option {given!r} for writing{hint}; it knows {names}")
    return values


def _one_of(name: str, value: str, *allowed: str) -> str:
    lowered = value.strip().lower()
    if lowered not in allowed:
        raise OptionError(f"option {name}: expected {' or '.join(allowed)}, got {value!r}")
    return lowered


def _numbering(values: Mapping[str, str]) -> tuple[str, int]:
    producer, sequence = values.get("producer", ""), values.get("sequence", "")
    if bool(producer) != bool(sequence):
        raise OptionError(
            "options producer and sequence belong together: a name, and the number of the write, such as the batch's"
        )
    if len(producer.encode()) > MAX_PRODUCER_BYTES:
        raise OptionError(f"option producer: expected a name of at most {MAX_PRODUCER_BYTES} bytes")
    if sequence and (not sequence.isdecimal() or int(sequence) > MAX_SEQUENCE):
        raise OptionError(f"option sequence: expected a number from 0 to {MAX_SEQUENCE}, got {sequence!r}")
    return producer, int(sequence or 0)
