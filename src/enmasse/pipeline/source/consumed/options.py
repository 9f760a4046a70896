"""Options of ``format("enmasse")`` for addresses that are no streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.pipeline.credentials import LOGIN_OPTIONS
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.consumed.ledger import local_path
from enmasse.pipeline.source.options import SourceOptions

ADDRESS_TYPE = "addressType"
TYPES = tuple(name for name in ADDRESS_TYPES if name != "deadletter")

OWN = ("spoolDir", "checkpointLocation", "subscription")
"""Options that streams do not have."""

_OFFSETS = (
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "minPartitions",
    "consumer",
    "failOnDataLoss",
)
"""Options that mean nothing where there are no offsets to choose from."""

DEFAULT_ROWS = 10_000
"""Enough for full speed; as many again are on their way."""

DEFAULT_BYTES = 32 << 20
"""Bytes of a batch file at most, and of what the planner holds beside it."""

LONGEST_SUBSCRIPTION = 255


@dataclass(frozen=True)
class ConsumedOptions:
    """The options of a query."""

    source: SourceOptions
    """The options that queries over streams have, too."""
    kind: str
    """The address's type."""
    spool: Path
    """The folder of batches until they are committed; only batch reads have none."""
    checkpoint: str
    """The query's own checkpoint, as Spark was given it."""
    subscription: str
    """The name of the durable subscription, for a topic."""

    @property
    def max_rows(self) -> int:
        """Rows of one batch at most."""
        return self.source.max_rows or DEFAULT_ROWS

    @property
    def max_bytes(self) -> int:
        """Bytes of messages in one batch at most, but for the last one of them."""
        return self.source.max_bytes or DEFAULT_BYTES

    @property
    def properties_of(self) -> str:
        """The address, if what precedes the body is wanted as columns."""
        return self.source.address if self.source.include_properties else ""

    @property
    def topic(self) -> str | None:
        """The topic whose own messages carry no name, if names are wanted; empty for addresses of other types."""
        if not self.source.include_topic_name:
            return None
        return self.source.address.removesuffix("/#") if self.kind == "topic" else ""

    @property
    def is_lossy(self) -> bool:
        """True if messages are given at most once."""
        return self.kind == "multicast"

    @property
    def is_confirmed(self) -> bool:
        """True if the address confirms when an acceptance is on its disk; direct ones have none."""
        return self.kind not in {"anycast", "multicast"}

    @classmethod
    def parse(cls, options: Mapping[str, str], kind: str, *, is_batch: bool = False) -> ConsumedOptions:
        """Check what the user gave to ``option(...)``.

        Args:
            options: names in any case.
            kind: the address's type.
            is_batch: whether it is read once, by looking.

        Raises:
            OptionError: an option is missing, unknown, malformed or of no use; the message says which.
        """
        own, others = _split(options)
        source = SourceOptions.parse(others, is_batch=is_batch)
        what = f"{kind} {source.address!r}"
        given = {name.lower() for name in others}
        for name in _OFFSETS:
            if name.lower() in given:
                raise OptionError(f"option {name} has no meaning for {what}, which keeps no offsets; leave it out")
        if is_batch:
            for name in own:
                raise OptionError(f"option {name} is for streams (readStream) only; leave it out")
            return cls(source, kind, Path(), "", "")
        for name in OWN[:2]:
            if not own.get(name):
                raise OptionError(
                    f"option {name} is missing: {what} gives a message once, so a query keeps what it was given in "
                    f"spoolDir until the query's checkpoint, named again by checkpointLocation, says it is done"
                )
        spool = local_path(own["spoolDir"])
        if spool is None:
            raise OptionError(f"option spoolDir: expected a folder that is mounted here, got {own['spoolDir']!r}")
        if "subscription" in own and kind != "topic":
            raise OptionError(
                f"option subscription is for topics; {source.address!r} is of type {kind}: leave it out"
            )
        checkpoint = own["checkpointLocation"]
        place = local_path(checkpoint)
        where = checkpoint if place is None else str(place)
        subscription = own.get("subscription") or f"spark-{sha256(where.encode()).hexdigest()[:12]}"
        if len(subscription.encode()) > LONGEST_SUBSCRIPTION or "|" in subscription:
            raise OptionError(
                f"option subscription: expected a name of at most {LONGEST_SUBSCRIPTION} bytes without '|', "
                f"got {subscription!r:.300}"
            )
        return cls(source, kind, spool, where, subscription)


def check_stream(options: Mapping[str, str]) -> None:
    """Check that no option is given that only other addresses need.

    Raises:
        OptionError: something is.
    """
    for name in _split(options)[0]:
        raise OptionError(f"option {name} is for queues, topics and the like; the address is a stream: leave it out")


def place_of(options: Mapping[str, str]) -> tuple[SourceOptions, str]:
    """Read where the address is, and its type if it is given; other options are ignored.

    Raises:
        OptionError: an option that is needed for that is missing or malformed.
    """
    named = {name.lower(): value for name, value in options.items()}
    kind = named.get(ADDRESS_TYPE.lower(), "").strip().lower()
    kind = "queue" if kind == "deadletter" else kind
    if kind and kind not in TYPES:
        raise OptionError(f"option {ADDRESS_TYPE}: expected one of {', '.join(TYPES)}, deadletter; got {kind!r}")
    wanted = ("url", "address", "path", "space", *LOGIN_OPTIONS, "retryTimeout")
    return SourceOptions.parse({name: named[name.lower()] for name in wanted if name.lower() in named}), kind


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Our own options by their proper names, and the others."""
    proper = {name.lower(): name for name in OWN}
    own, others = {}, {}
    for name, value in options.items():
        if name.lower() in proper:
            own[proper[name.lower()]] = value
        elif name.lower() != ADDRESS_TYPE.lower():
            others[name] = value
    return own, others


def shared(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that streams have, too."""
    return _split(options)[1]
