"""The common parts of the documents of the registry: ids, times, names with hyphens, sizes, and their errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from enmasse.errors import ConfigError, ResourceError, UnavailableError
from enmasse.model.schema.schema import Model, describe_value, explain

Document = dict[str, Any]

MAX_BYTES: Final = 64 * 1024
"""The largest document of a tenant, a device, or the credentials of one."""

MAX_ID: Final = 255
_MAX_DEPTH = 16

TENANT_ID: Final = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9_.-]{{1,{MAX_ID}}}")
DEVICE_ID: Final = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9_.:=-]{{1,{MAX_ID}}}")
_LETTERS: Final = {TENANT_ID: "letters, digits, '_', '.' and '-'", DEVICE_ID: "letters, digits and any of '_.:=-'"}


class RegistryError(ConfigError):
    """A request that the registry refuses.

    Attributes:
        code: the status of HTTP.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class RegistryUnavailableError(UnavailableError):
    """Raised when the file of the registry cannot be used now, or a search takes too long."""


class RegistryFullError(ResourceError):
    """Raised when the disk has no room for another write."""


class Part(Model):
    """A part of a document: strict, frozen, with hyphens in the names of its fields."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), validate_by_name=False)


P = TypeVar("P", bound=Part)


def _time(text: str) -> str:
    if parse_time(text) is None:
        raise PydanticCustomError("time", "expected a time of RFC 3339, such as 2026-01-31T12:00:00Z")
    return text


def parse_time(text: str) -> datetime | None:
    """Return a time of RFC 3339, None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None and len(text) >= len("2026-01-31T12:00Z") else None


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _device_id(value: str) -> str:
    if DEVICE_ID.fullmatch(value) is None:
        raise PydanticCustomError("id", f"expected 1 to {MAX_ID} characters: {_LETTERS[DEVICE_ID]}")
    return value


Time = Annotated[str, AfterValidator(_time)]
Free = dict[str, Any]
"""A map whose entries are the client's own."""
Limit = Annotated[int, Field(ge=-1, le=2**53)]
"""-1 is no limit."""
Ids = Annotated[
    tuple[Annotated[str, AfterValidator(_device_id)], ...],
    Field(strict=False, max_length=100),
    BeforeValidator(_as_list),
]
"""Ids of devices, or of groups of them; one may stand without a list around it, as in Hono."""


def checked_id(pattern: re.Pattern[str], value: Any, what: str) -> str:
    """Return an id that is one.

    Raises:
        RegistryError: 400.
    """
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        expected = f"expected 1 to {MAX_ID} characters: {_LETTERS[pattern]}"
        raise RegistryError(400, f"{what}: {expected}; got {describe_value(value)}")
    return value


def validated(model: type[P], document: Any, path: str = "") -> P:
    """Return a document as its class.

    Raises:
        RegistryError: 400, with every problem.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        within = f"{path}." if path else ""
        problems = [f"{within}{it.path}: {it.message}" if it.path else it.message for it in explain(error, model)]
        raise RegistryError(400, "; ".join(problems[:10])) from None


def compact(value: Any, what: str = "the document") -> str:
    """Return JSON within the bounds of what is stored.

    Raises:
        RegistryError: 413 when it is too long, 400 when it is too deep or has what JSON has not.
    """
    _expect_depth(value, what)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RegistryError(400, f"{what} has a half of a surrogate pair, which is not a character") from None
    except ValueError:
        raise RegistryError(400, f"{what} has a number that JSON has not") from None
    if size > MAX_BYTES:
        raise RegistryError(413, f"{what} has {size} bytes: at most {MAX_BYTES} are taken")
    return text


def _expect_depth(value: Any, what: str) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
        if not level:
            return
    raise RegistryError(400, f"{what} is nested more than {_MAX_DEPTH} deep")


NewId = Callable[[], str]
