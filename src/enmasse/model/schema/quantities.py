"""Amounts as Kubernetes writes them: ``512Mi``, ``2Gi``, ``500m``, ``1.5``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

_UNITS = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_SHARE = re.compile(r"[0-9]{1,3}%")
_OF_BROKERS = re.compile(r"[0-9]{1,18} ?[kKmMgG]?i?[bB]?")
_WRITTEN = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(m|k|[MGTPE]|[KMGTPE]i)?")


def amount_of(quantity: str | float) -> Decimal:
    """Return the amount that a quantity stands for.

    Raises:
        ValueError: it is none.
    """
    found = _WRITTEN.fullmatch(str(quantity))
    if found is None:
        raise ValueError(f"{quantity!r} is no quantity")
    return Decimal(found[1]) * _UNITS[found[2] or ""]


def in_short(amount: Decimal, *, is_bytes: bool = False) -> str:
    """Return the shortest quantity that is exactly an amount of 0 or more; of bytes, in powers of 1,024."""
    if is_bytes and amount:
        for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            if not amount % _UNITS[unit]:
                return f"{int(amount / _UNITS[unit])}{unit}"
    return f"{int(amount)}" if not amount % 1 else f"{int(amount * 1000)}m"


def _check(quantity: Any) -> str | int | float:
    try:
        if isinstance(quantity, str | int | float) and not isinstance(quantity, bool):
            amount_of(quantity)
            return quantity
    except ValueError:
        pass
    raise PydanticCustomError("quantity", "expected a quantity such as 512Mi, 2Gi, 500m or 1")


def _check_size(size: Any) -> str | int | float:
    return size if isinstance(size, str) and _OF_BROKERS.fullmatch(size) else _check(size)


def _check_share(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _SHARE.fullmatch(value):
        return value
    raise PydanticCustomError("share", "expected a number of 0 or more, or a share such as 50%")


def _check_port(value: Any) -> int | str:
    if isinstance(value, int) and 0 < value < 65536:
        return value
    if isinstance(value, str) and value:
        return value
    raise PydanticCustomError("port", "expected a port, or the name of one")


_EITHER = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}

Quantity = Annotated[
    str | int | float,
    PlainValidator(_check),
    WithJsonSchema(_EITHER | {"pattern": f"^{_WRITTEN.pattern}$"}),
]
"""A field that holds an amount of 0 or more."""

BrokerSize = Annotated[
    str | int | float,
    PlainValidator(_check_size),
    WithJsonSchema(_EITHER | {"pattern": f"^({_WRITTEN.pattern}|{_OF_BROKERS.pattern})$"}),
]
"""A field that holds bytes, which may be written as EnMasse 1.0's brokers do: ``64Mb``."""

NumberOrShare = Annotated[int | str, PlainValidator(_check_share), WithJsonSchema(_EITHER)]
"""A field that holds a number, or a share such as ``50%``."""

PortOrName = Annotated[int | str, PlainValidator(_check_port), WithJsonSchema(_EITHER)]
"""A field that holds a port, or the name of one."""
