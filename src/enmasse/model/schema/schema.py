"""The base of all resource classes, and errors in words that help the author of the YAML.

Rules:
1. Unknown fields are refused: a misspelt field that is silently ignored is the costliest kind.
2. Types are strict: ``partitions: "4"`` is a string, not a number.
3. Objects are frozen; a change is a copy.
4. A null means that the field is absent, as the Kubernetes API has it.
5. A field that holds a secret says ``repr=False``: then no message and no log shows it either.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic.alias_generators import to_camel

from enmasse.model.schema.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails


_SHOWN_CHARACTERS = 60  # of a wrong value; enough to recognise it, too few to flood a terminal

_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a map",
    "model_type": "a map",
    "tuple_type": "a list",
    "list_type": "a list",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
}

_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a string of the form {pattern}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
}


class Model(BaseModel):
    """A part of a resource: frozen, strict, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,  # a command uses few of them
    )

    entry_keys: ClassVar[tuple[str, ...]] = ()
    """In a list of such parts: the fields that identify each of them; empty: the list is one value."""

    telling_empty: ClassVar[frozenset[str]] = frozenset()
    """Optional fields, as they are written, that mean something although nothing is in them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without absent fields and optional ones that are empty."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_serializer(mode="wrap")
    def _leave_out_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = handler(self)
        for name, field in type(self).model_fields.items():
            key = field.alias or name
            if not field.is_required() and fields.get(key) in ([], {}) and key not in self.telling_empty:
                del fields[key]
        return dict(fields)


def without_nulls(value: Any) -> Any:
    """Return ``value`` with null map entries left out, at every depth."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def describe_value(value: Any) -> str:
    """Return a value as a person would write it in YAML, cut to a readable length."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            shown = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "..."
            return f"'{shown}'"
        case dict():
            return "a map"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def join_path(parts: Sequence[int | str]) -> str:
    """Return a path as in ``spec.forwarders[0].name``."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def explain(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Turn pydantic's findings into problems with a path, what was expected and what was found."""
    return [
        Problem(
            join_path(detail["loc"]),
            _message(detail, model),
            detail["loc"] if detail["type"] == "extra_forbidden" else (),
        )
        for detail in error.errors()
    ]


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown_field(detail["loc"], model)
    return expected(detail, is_secret=_is_secret(detail["loc"], model))


def expected(detail: ErrorDetails, *, is_secret: bool = False) -> str:
    """Return the sentence on a wrong value: what was expected, and what was found.

    Args:
        detail: of a finding of pydantic.
        is_secret: do not show the value.
    """
    kind, found, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "required, but it is missing"
    shown = "something that is not shown" if is_secret else describe_value(found)
    hint = "; put it in quotes" if kind == "string_type" and isinstance(found, bool | int | float) else ""
    if kind in ("literal_error", "enum"):
        wanted = "one of " + context["expected"].replace("'", "").replace(" or ", ", ")
    elif kind in _BOUNDS:
        wanted = _BOUNDS[kind].format_map(context)
    elif kind in _EXPECTED:
        wanted = _EXPECTED[kind]
    elif kind == "value_error":
        text = str(context["error"]).rstrip(".")
        return text if shown in text else f"{text}, got {shown}"
    else:
        return f"{detail['msg'].removeprefix('Input ')}, got {shown}"
    return f"expected {wanted}, got {shown}{hint}"


def _is_secret(location: Sequence[int | str], model: type[BaseModel]) -> bool:
    """Return True if a path leads to, or into, a field whose value is never shown, even a wrong one."""
    for end, name in enumerate(location):
        owner = _model_at(location[:end], model)
        fields = {field.alias: field for field in owner.model_fields.values()} if owner else {}
        if name in fields and not fields[name].repr:
            return True
    return False


def _unknown_field(location: Sequence[int | str], model: type[BaseModel]) -> str:
    owner = _model_at(location[:-1], model)
    name = str(location[-1])
    if owner is None:
        return "unknown field"
    known = sorted(field.alias or key for key, field in owner.model_fields.items())
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(known)}"
    return f"unknown field{hint}"


def _model_at(location: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel] | None:
    """Follow a path through nested models, or return None where it leaves them."""
    current: type[BaseModel] | None = model
    for part in location:
        if current is None:
            return None
        if isinstance(part, int):
            continue
        fields = {field.alias or key: field for key, field in current.model_fields.items()}
        field = fields.get(part)
        current = _nested_model(field.annotation) if field is not None else None
    return current


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _nested_model(part))), None)
