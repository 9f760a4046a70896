"""Options of ``format("enmasse")``, checked once and given names and units."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from enmasse.pipeline.errors import OptionError

__all__ = ["EARLIEST", "LATEST", "Bound", "SourceOptions", "parse_seconds"]

EARLIEST = "earliest"
LATEST = "latest"

Bound = str | int
"""Where a partition begins or ends: ``earliest``, ``latest`` or an offset."""

_KNOWN = (
    "url",
    "address",
    "space",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "pollTimeout",
    "retryTimeout",
    "failOnDataLoss",
)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m)?\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


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
    """What a query asked for."""

    url: str
    """Where the stream's space is reached, ``amqp://host[:port]``."""
    address: str
    """The stream's address."""
    space: str = ""
    """Host name that chooses the space in ``open``; empty: the URL's own host."""
    starting: Bound | Mapping[int, Bound] = LATEST
    """Where a query without a checkpoint begins."""
    ending: Bound | Mapping[int, Bound] = LATEST
    """Where a batch read ends; unused by streams."""
    max_rows: int | None = None
    """Rows of one micro-batch at most, over all partitions."""
    min_partitions: int = 0
    """Tasks to aim at; ranges are split until there are as many."""
    poll_timeout_s: float = 3.0
    """How long an idle query waits for news in one call; long enough to be cheap, short enough to stop."""
    retry_timeout_s: float = 60.0
    """How long a node may be away; a supervised one is back within seconds."""
    fail_on_data_loss: bool = True
    """Whether missing rows end the query."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, default_start: Bound = LATEST) -> SourceOptions:
        """Check what the user gave to ``option(...)``.

        Args:
            options: names in any case.
            default_start: where to begin when ``startingOffsets`` is not given.

        Raises:
            OptionError: an option is missing, unknown or malformed; the message says which.
        """
        known = {name.lower(): name for name in _KNOWN} | {"path": "path"}
        values: dict[str, str] = {}
        for given, value in options.items():
            name = known.get(given.lower())
            if name is None:
                raise OptionError(f"format enmasse has no option {given!r}; it knows {', '.join(sorted(_KNOWN))}")
            values[name] = value
        address = values.get("address") or values.get("path")
        if not values.get("url"):
            raise OptionError('option url is missing: expected .option("url", "amqp://127.0.0.1:5672")')
        if not address:
            raise OptionError('option address is missing: expected .option("address", "telemetry")')
        return cls(
            url=_checked_url(values["url"]),
            address=address,
            space=values.get("space", ""),
            starting=_bound("startingOffsets", values.get("startingOffsets", default_start)),
            ending=_bound("endingOffsets", values.get("endingOffsets", LATEST)),
            max_rows=_count("maxOffsetsPerTrigger", values.get("maxOffsetsPerTrigger"), 1),
            min_partitions=_count("minPartitions", values.get("minPartitions"), 0) or 0,
            poll_timeout_s=parse_seconds("pollTimeout", values.get("pollTimeout", "3s")),
            retry_timeout_s=parse_seconds("retryTimeout", values.get("retryTimeout", "60s")),
            fail_on_data_loss=_flag("failOnDataLoss", values.get("failOnDataLoss", "true")),
        )


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"amqp", "amqp+unix"} or not (parts.hostname or parts.path):
        raise OptionError(f"option url: expected amqp://HOST[:PORT], got {url!r}")
    if parts.password is not None:
        raise OptionError("option url holds a password, which Spark would show in plans and logs; leave it out")
    return url


def _count(name: str, value: Bound | None, least: int) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < least:
        raise OptionError(f"option {name}: expected a whole number of at least {least}, got {value!r}")
    return number


def _flag(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in {"true", "false"}:
        raise OptionError(f"option {name}: expected true or false, got {value!r}")
    return lowered == "true"


def _bound(name: str, value: Bound) -> Bound | Mapping[int, Bound]:
    text = str(value).strip()
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    wanted = f'option {name}: expected earliest, latest or JSON such as {{"0": 120, "1": "latest"}}'
    try:
        given = json.loads(text)
    except ValueError:
        raise OptionError(f"{wanted}, got {text!r}") from None
    if not isinstance(given, dict):
        raise OptionError(f"{wanted}, got {text!r}")
    bounds: dict[int, Bound] = {}
    for partition, bound in given.items():
        valid = (isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0) or bound in {
            EARLIEST,
            LATEST,
        }
        if not partition.isdecimal() or not valid:
            raise OptionError(f"{wanted}; partition {partition!r} has {bound!r}")
        bounds[int(partition)] = bound
    return bounds
