"""Options of ``format("enmasse")`` for streams, checked once and given names and units."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from enmasse.model.sql.ddl import Column
from enmasse.model.sql.message_columns import raw_columns
from enmasse.pipeline.credentials import ENVIRONMENT_LOGIN, LOGIN_OPTIONS, Login
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.bounds import EARLIEST, LATEST, Bounds, parse_bounds, parse_moment, parse_moments

_KNOWN = (
    "url",
    "address",
    "subscribe",
    "space",
    *LOGIN_OPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerPartition",
    "maxBytesPerTrigger",
    "minPartitions",
    "includeProperties",
    "includeHeaders",
    "includeTopicName",
    "consumer",
    "pollTimeout",
    "retryTimeout",
    "failOnDataLoss",
)
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SCHEMES = frozenset({"amqp", "amqps", "amqpws", "amqpwss", "amqp+unix"})
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m)?\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
_SIZE = re.compile(r"\s*(\d+)\s*([kmg]?)(?:i?b)?\s*", re.IGNORECASE)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

URL_VARIABLE, SPACE_VARIABLE = "ENMASSE_URL", "ENMASSE_SPACE"
"""The environment's place, where the options name none: ``enmasse.notebook`` sets it."""

MAX_ADDRESSES = 200
"""Of one source: each costs the planner a connection and a thread."""

LONGEST_CONSUMER = 255
"""Bytes of a consumer's name, as the node keeps it."""


def parse_seconds(name: str, text: str) -> float:
    """Seconds from ``3``, ``2.5s``, ``500ms`` or ``1m``.

    Raises:
        OptionError: the text is none of these; the message names the option.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise OptionError(f"option {name}: expected a duration such as 3s or 500ms, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class SourceOptions:
    """The options of a query over a stream."""

    url: str
    """URL of the stream's space, ``amqp[s]://host[:port]``."""
    address: str
    """The stream's address."""
    space: str = ""
    """Host name that chooses the space in ``open``; empty: the URL's own host."""
    login: Login = ENVIRONMENT_LOGIN
    """The user to come as, and the authorities to trust."""
    starting: Bounds = LATEST
    """The bound where a query without a checkpoint begins."""
    ending: Bounds = LATEST
    """The bound where a batch read ends; unused by streams."""
    max_rows: int | None = None
    """Rows of one micro-batch at most, over all partitions."""
    max_bytes: int | None = None
    """Bytes of one micro-batch at most, estimated by the mean of what is stored."""
    min_rows: int = 0
    """Rows of one micro-batch at least, unless it has waited for ``max_delay_s``."""
    max_delay_s: float = 900.0
    """Seconds that a micro-batch waits for ``min_rows``."""
    max_task_rows: int | None = None
    """Rows of one task at most; ranges are split for it."""
    min_partitions: int = 0
    """Tasks to aim at; ranges are split until there are as many."""
    include_properties: bool = False
    """True if to decode what precedes the body."""
    include_headers: bool = False
    """True if to give the application properties in order and with their types."""
    include_topic_name: bool = False
    """True if to give the name that a message of a topic was sent to."""
    consumer: str = ""
    """Name under which the stream keeps how far the query has come; empty: it is not kept."""
    poll_timeout_s: float = 3.0
    """Seconds that an idle query waits for news in one call; long enough to be cheap, short enough to stop."""
    retry_timeout_s: float = 60.0
    """Seconds that a node may be away; a supervised one is back within seconds."""
    fail_on_data_loss: bool = True
    """True if missing rows end the query."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a row."""
        return raw_columns(
            with_properties=self.include_properties,
            with_headers=self.include_headers,
            with_topic_name=self.include_topic_name,
        )

    @classmethod
    def several(cls, options: Mapping[str, str], *, is_batch: bool = False) -> dict[str, SourceOptions]:
        """Return the options of each address of ``subscribe``; empty where one address is read.

        Raises:
            OptionError: as ``parse``; or ``subscribe`` names none, too many, or has others beside it.
        """
        given = {name.lower(): name for name in options}
        if "subscribe" not in given:
            return {}
        text = options[given["subscribe"]]
        listed = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
        names = list(dict.fromkeys(str(name).strip() for name in listed))
        if not 1 <= len(names) <= MAX_ADDRESSES or not all(names):
            raise OptionError(
                f"option subscribe: expected 1 to {MAX_ADDRESSES} addresses, as in a,b, got {text!r:.200}"
            )
        ours = ("subscribe", "subscribepattern")
        rest = {name: value for name, value in options.items() if name.lower() not in ours}
        if beside := next((name for name in ("address", "path") if name in given), None):
            raise OptionError(f"options subscribe and {beside} are both given; leave one of them out")
        return {name: cls.parse(rest | {"address": name}, is_batch=is_batch) for name in names}

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_batch: bool = False) -> SourceOptions:
        """Check what the user gave to ``option(...)``.

        Args:
            options: names in any case.
            is_batch: whether it is read once, from the earliest row unless something else is said.

        Raises:
            OptionError: an option is missing, unknown, malformed or of no use; the message says which.
        """
        values = with_place(_named(options))
        if not is_batch and (useless := [name for name in _BATCH_ONLY if name in values]):
            raise OptionError(f"option {useless[0]} is for spark.read only: a stream has no end; leave it out")
        address = values.get("address") or values.get("path")
        if not values.get("url"):
            raise OptionError('option url is missing: expected .option("url", "amqp://127.0.0.1:5672")')
        if not address:
            raise OptionError('option address is missing: expected .option("address", "telemetry")')
        consumer = values.get("consumer", "")
        if len(consumer.encode()) > LONGEST_CONSUMER:
            raise OptionError(f"option consumer: expected a name of at most {LONGEST_CONSUMER} bytes")
        return cls(
            url=checked_url(values["url"]),
            address=address,
            space=values.get("space", ""),
            login=Login.parse(values, values["url"]),
            starting=_where("starting", values, EARLIEST if is_batch else LATEST),
            ending=_where("ending", values, LATEST),
            max_rows=_count("maxOffsetsPerTrigger", values.get("maxOffsetsPerTrigger"), 1),
            max_bytes=_size("maxBytesPerTrigger", values.get("maxBytesPerTrigger")),
            min_rows=_count("minOffsetsPerTrigger", values.get("minOffsetsPerTrigger"), 1) or 0,
            max_delay_s=parse_seconds("maxTriggerDelay", values.get("maxTriggerDelay", "15m")),
            max_task_rows=_count("maxRecordsPerPartition", values.get("maxRecordsPerPartition"), 1),
            min_partitions=_count("minPartitions", values.get("minPartitions"), 0) or 0,
            include_properties=_flag("includeProperties", values.get("includeProperties", "false")),
            include_headers=_flag("includeHeaders", values.get("includeHeaders", "false")),
            include_topic_name=_flag("includeTopicName", values.get("includeTopicName", "false")),
            consumer=consumer,
            poll_timeout_s=parse_seconds("pollTimeout", values.get("pollTimeout", "3s")),
            retry_timeout_s=parse_seconds("retryTimeout", values.get("retryTimeout", "60s")),
            fail_on_data_loss=_flag("failOnDataLoss", values.get("failOnDataLoss", "true")),
        )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their proper names."""
    known = {name.lower(): name for name in _KNOWN} | {"path": "path"}
    values: dict[str, str] = {}
    for given, value in options.items():
        name = known.get(given.lower())
        if name is None and given.lower() == "subscribepattern":
            raise OptionError(
                "option subscribePattern: only a declared pipeline knows the addresses of its space, and has "
                "addressPattern for it; name them with subscribe"
            )
        if name is None:
            raise OptionError(f"format enmasse has no option {given!r}; it knows {', '.join(sorted(_KNOWN))}")
        values[name] = value
    return values


def with_place(values: dict[str, str]) -> dict[str, str]:
    """Return options with the environment's URL and space, if they name no URL."""
    if not values.get("url") and (url := os.environ.get(URL_VARIABLE)):
        values["url"] = url
        if space := os.environ.get(SPACE_VARIABLE):
            values.setdefault("space", space)
    return values


def checked_url(url: str) -> str:
    """Return the URL, if it can be one of a space and holds no secret.

    Raises:
        OptionError: it cannot, or does.
    """
    parts = urlsplit(url)
    if parts.password is not None:
        raise OptionError(
            "option url holds a password, which Spark would show in plans and logs: leave it out, and name "
            "credentials with option credentials"
        )
    if parts.scheme not in _SCHEMES or not (parts.hostname or parts.path):
        raise OptionError(f"option url: expected amqp://HOST[:PORT] or amqps://HOST[:PORT], got {url!r:.200}")
    return url


def _where(end: str, values: Mapping[str, str], default: str) -> Bounds:
    by_offset, by_time, each_by_time = f"{end}Offsets", f"{end}Timestamp", f"{end}OffsetsByTimestamp"
    given = [name for name in (by_offset, by_time, each_by_time) if name in values]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} are both given; leave one of them out")
    if each_by_time in values:
        return parse_moments(each_by_time, values[each_by_time])
    if by_time in values:
        return parse_moment(by_time, values[by_time])
    return parse_bounds(by_offset, values.get(by_offset, default))


def _count(name: str, value: str | None, least: int) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < least:
        raise OptionError(f"option {name}: expected a whole number of at least {least}, got {value!r}")
    return number


def _size(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    match = _SIZE.fullmatch(value)
    size = int(match[1]) * _SIZES[match[2].lower()] if match is not None else 0
    if not size:
        raise OptionError(f"option {name}: expected a number of bytes such as 67108864 or 64m, got {value!r}")
    return size


def _flag(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in {"true", "false"}:
        raise OptionError(f"option {name}: expected true or false, got {value!r}")
    return lowered == "true"
