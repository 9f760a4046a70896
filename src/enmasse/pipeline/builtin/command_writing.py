"""From an alert to the command that it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

__all__ = ["COMMANDS_DDL", "CommandWriting", "fill", "fits"]

COMMANDS_DDL: Final = "alert STRING, device STRING, value STRING, timestamp TIMESTAMP"
_SCHEMA: Final = pa.schema(
    [
        ("alert", pa.string()),
        ("device", pa.string()),
        ("value", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
_FIELD: Final = re.compile(r"\{([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\}")


@dataclass(frozen=True)
class CommandWriting:
    """What ``mapInArrow`` calls: messages with alerts in, a command for each alert that fits out.

    What is no JSON object, or names no device, asks for no command.
    """

    match: Mapping[str, Any]
    body: Mapping[str, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take ``partition, offset, timestamp, key, value``."""
        for batch in batches:
            rows = [command for row in batch.to_pylist() if (command := self._command(row)) is not None]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)

    def _command(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            alert = json.loads(row["value"] or b"")
        except ValueError:
            return None
        if not isinstance(alert, dict) or not fits(alert, self.match):
            return None
        device = alert.get("device") or (row["key"] or b"").decode(errors="replace")
        if not isinstance(device, str) or not device:
            return None
        alert.setdefault("id", f"{row['partition']}-{row['offset']}")
        alert["device"] = device
        return {
            "alert": str(alert["id"]),
            "device": device,
            "value": json.dumps(fill(self.body, alert), ensure_ascii=False),
            "timestamp": row["timestamp"],
        }


def fits(alert: Mapping[str, Any], match: Mapping[str, Any]) -> bool:
    """Whether each field is what it must be, or one of those that it may be."""
    for name, wanted in match.items():
        allowed = wanted if isinstance(wanted, list | tuple) else [wanted]
        if _look_up(alert, name) not in allowed:
            return False
    return True


def fill(template: Any, alert: Mapping[str, Any]) -> Any:
    """A template with the alert's fields in it.

    A text that is one ``{field}`` and nothing else becomes the field as it is, a number a number; in longer
    texts fields become text. A field that the alert lacks is null, or nothing.
    """
    if isinstance(template, str):
        whole = _FIELD.fullmatch(template)
        if whole is not None:
            return _look_up(alert, whole[1])
        return _FIELD.sub(lambda found: _as_text(_look_up(alert, found[1])), template)
    if isinstance(template, Mapping):
        return {name: fill(item, alert) for name, item in template.items()}
    if isinstance(template, list | tuple):
        return [fill(item, alert) for item in template]
    return template


def _look_up(alert: Mapping[str, Any], path: str) -> Any:
    found: Any = alert
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
