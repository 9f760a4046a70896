"""Searches for tenants and devices: Hono's filters and sort options, turned into conditions of SQL.

Rules:
1. A filter names a field by a JSON pointer and has a value that it must be equal to; in a text, ``*`` stands for any
   characters and ``?`` for one. All filters must hold.
2. ``/id``, ``/enabled`` and the fields that name gateways have indexes; all others are looked at row by row.
3. A list of gateways is equal to each of its entries. A device that does not say whether it is enabled is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from enmasse.iot.device import LINKS
from enmasse.iot.documents import RegistryError
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE: Final = 30
MAX_IN_PAGE: Final = 200
_MOST = 10  # filters, or sort options
_MAX_CHARACTERS = 1024
_MAX_OFFSET = 2**53

COLUMNS: Final = {"/id": "id", "/enabled": "enabled", "/status/created": "created", "/status/updated": "updated"}
_LINKED: Final = {f"/{name}": number for number, name in enumerate(LINKS)}


@dataclass(frozen=True, slots=True)
class Filter:
    """A field, and the value that it must have."""

    field: str
    value: str | bool | float


@dataclass(frozen=True, slots=True)
class Sort:
    """A field to sort by."""

    field: str
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A search.

    Attributes:
        size: the most that are answered.
        offset: the number before them that are left out.
        filters: those that all must hold.
        sorts: the order; by id, where all these are the same.
        gateways: true for gateways alone, false for all others; None: both.
    """

    size: int = PAGE
    offset: int = 0
    filters: tuple[Filter, ...] = ()
    sorts: tuple[Sort, ...] = ()
    gateways: bool | None = None

    @property
    def is_slow(self) -> bool:
        """True if it looks at all rows one by one."""
        fields = {item.field for item in self.filters} | {item.field for item in self.sorts}
        return not fields <= {"/id", "/enabled", *_LINKED}


def read_query(given: Sequence[tuple[str, str]]) -> Query:
    """Return the query in the parameters of a request.

    Raises:
        RegistryError: 400.
    """
    many: dict[str, list[str]] = {}
    for name, value in given:
        many.setdefault(name, []).append(value)
    once = {name: values[-1] for name, values in many.items()}
    is_gateway = once.get("isGateway")
    if is_gateway not in (None, "true", "false"):
        raise RegistryError(400, f"isGateway: expected true or false, got {describe_value(is_gateway)}")
    filters = tuple(_filter(item) for item in _maps(many, "filterJson", {"field", "value", "op"}))
    return Query(
        size=_number(once, "pageSize", PAGE, MAX_IN_PAGE),
        offset=_number(once, "pageOffset", 0, _MAX_OFFSET),
        filters=() if is_gateway else filters,  # as Hono has it
        sorts=tuple(_sort(item) for item in _maps(many, "sortJson", {"field", "direction"})),
        gateways=None if is_gateway is None else is_gateway == "true",
    )


def _number(given: dict[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise RegistryError(400, f"{name}: expected a whole number from 0 to {most}, got {describe_value(text)}")
    return int(text)


def _maps(given: dict[str, list[str]], name: str, known: set[str]) -> list[dict[str, Any]]:
    texts = given.get(name, [])
    if len(texts) > _MOST:
        raise RegistryError(400, f"{name}: at most {_MOST} are taken, got {len(texts)}")
    found = []
    for text in texts:
        try:
            item = json.loads(text) if len(text) <= _MAX_CHARACTERS else None
        except (ValueError, RecursionError):
            item = None
        if not isinstance(item, dict) or not known.issuperset(item):
            expected = f"expected a map in JSON with {', '.join(sorted(known))}"
            raise RegistryError(400, f"{name}: {expected}; got {describe_value(text)}")
        item["field"] = _pointer(item.get("field"), name)
        found.append(item)
    return found


def _pointer(field: object, name: str) -> str:
    if not isinstance(field, str) or not field.startswith("/") or len(field) == 1 or not field.isprintable():
        raise RegistryError(
            400, f"{name}: field: expected a JSON pointer such as /ext/brand, {describe_value(field)}"
        )
    if '"' in field:
        raise RegistryError(400, f"{name}: field: names with quotation marks cannot be searched by")
    return field


def _filter(item: dict[str, Any]) -> Filter:
    value = item.get("value")
    if item.get("op", "eq") != "eq":
        raise RegistryError(400, f"filterJson: op: expected eq, got {describe_value(item['op'])}")
    if not isinstance(value, str | bool | int | float) or not _size(value) <= 2**63 - 1:
        raise RegistryError(400, "filterJson: value: expected text, a number, true or false")
    return Filter(item["field"], value)


def _size(value: str | bool | float) -> float:
    return 0 if isinstance(value, str) else abs(value)


def _sort(item: dict[str, Any]) -> Sort:
    direction = item.get("direction", "asc")
    if direction not in ("asc", "desc"):
        raise RegistryError(400, f"sortJson: direction: expected asc or desc, got {describe_value(direction)}")
    return Sort(item["field"], direction == "desc")


@dataclass(slots=True)
class Clause:
    """A condition of SQL, with its values."""

    text: str
    values: list[object]

    def also(self, text: str, *values: object) -> None:
        """Add a condition."""
        self.text += f" AND {text}"
        self.values += values


def condition(found: Filter, clause: Clause, tenant: int | None) -> None:
    """Add the condition of a filter.

    Args:
        found: the filter.
        clause: on the table ``item``, with the columns of ``COLUMNS`` and the JSON ``body``.
        tenant: the tenant whose devices are searched; None: tenants are.
    """
    field, value = found.field, found.value
    if field == "/enabled":
        clause.also("item.enabled = ?", int(value) if isinstance(value, bool) else -1)
    elif field in COLUMNS:
        _compare(clause, f"item.{COLUMNS[field]}", value)
    elif tenant is not None and field in _LINKED and isinstance(value, str):
        # The list of a gateway's devices is short beside that of all devices, and has an index.
        inner = Clause("tenant = ? AND kind = ?", [tenant, _LINKED[field]])
        _compare(inner, "target", value)
        clause.also(f"item.id IN (SELECT device FROM links WHERE {inner.text})", *inner.values)  # noqa: S608  # constants
    else:
        where = _path(field)
        kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
        if isinstance(value, bool):
            clause.also("json_type(item.body, ?) = ?", where, str(value).lower())
            return
        clause.also(f"json_type(item.body, ?) IN {kinds}", where)
        extracted = Clause("1", [])
        _compare(extracted, "json_extract(item.body, ?)", value, where)
        clause.also(f"({extracted.text})", *extracted.values)


def _compare(clause: Clause, what: str, value: str | float, *before: object) -> None:
    if isinstance(value, str) and ("*" in value or "?" in value):
        clause.also(f"{what} GLOB ?", *before, value.replace("[", "[[]"))
    else:
        clause.also(f"{what} = ?", *before, _storable(value))


def _storable(value: str | float) -> object:
    # What is no Unicode is in no row, and cannot be asked for.
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def order(sorts: Sequence[Sort]) -> tuple[str, list[object]]:
    """Return the expressions of an order, with their values."""
    texts: list[str] = []
    values: list[object] = []
    for sort in sorts:
        direction = " DESC" if sort.is_descending else ""
        if sort.field in COLUMNS:
            texts.append(f"item.{COLUMNS[sort.field]}{direction}")
        else:
            texts.append(f"json_extract(item.body, ?){direction}")
            values.append(_path(sort.field))
    return ", ".join((*texts, "item.id")), values


def _path(pointer: str) -> str:
    """Return a JSON pointer as SQLite has paths."""
    names = (part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))
    return "$" + "".join(f'."{name}"' for name in names).encode(errors="replace").decode()
