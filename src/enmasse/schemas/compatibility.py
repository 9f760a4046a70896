"""Schemas as the registry keeps them, and whether a new one goes with those before it.

Rules:
1. BACKWARD: who reads with the new schema can read what was written with the last one. FORWARD: the other way round.
   FULL: both. With TRANSITIVE: not with the last one alone, but with each.
2. Two texts are the same schema if they are the same JSON; the order of its keys counts in JSON Schema, and does
   not in Avro, or where a client has the schema normalised. In Protobuf: if they describe the same file.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from enmasse.schemas.avro_schemas import avro_problems, check_avro
from enmasse.schemas.errors import INVALID_LEVEL, UNPROCESSABLE, InvalidSchemaError, SchemaRegistryError
from enmasse.schemas.json_containment import json_problems
from enmasse.schemas.json_schemas import check_json_schema
from enmasse.schemas.protobuf_schemas import canonical_protobuf, protobuf_problems

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
Level = Literal["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]

TYPES: Final[tuple[SchemaType, ...]] = get_args(SchemaType)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
DEFAULT_LEVEL: Final[Level] = "BACKWARD"

MAX_CHARACTERS: Final = 100_000
"""Of one schema, as of an address's."""


MAX_S: Final = 10.0
"""For all comparisons of one request."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema.

    Attributes:
        type: of it.
        text: compact JSON; of Protobuf a FileDescriptorProto in base64.
    """

    type: SchemaType
    text: str

    @property
    def identity(self) -> str:
        """A hash that the same schema has again."""
        text = self.text if self.type != "AVRO" else _compact(json.loads(self.text), sort_keys=True)
        return hashlib.sha256(f"{self.type} {text}".encode()).hexdigest()


def read_schema(kind: str, text: str, *, normalize: bool = False) -> Schema:
    """Return the schema that a text is.

    Raises:
        InvalidSchemaError: it is none.
        SchemaRegistryError: there is no such type of schemas.
    """
    of = next((known for known in TYPES if known == kind), None)
    if of is None:
        raise SchemaRegistryError(
            UNPROCESSABLE, f"schemaType: expected {', '.join(TYPES[:-1])} or {TYPES[-1]}, got '{kind:.40}'"
        )
    if len(text) > MAX_CHARACTERS:
        raise InvalidSchemaError(f"expected at most {MAX_CHARACTERS} characters, got {len(text)}")
    if of == "PROTOBUF":
        return Schema(of, canonical_protobuf(text))
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
        compact = _compact(plain, sort_keys=normalize)
        compact.encode()
    except (ValueError, RecursionError) as error:
        # The name of a primitive type is a schema as well, with quotation marks or without.
        if of != "AVRO" or not text.strip().isidentifier():
            raise InvalidSchemaError(f"it is no JSON: {error}") from None
        plain = text.strip()
        compact = _compact(plain)
    (check_avro if of == "AVRO" else check_json_schema)(plain)
    return Schema(of, compact)


def read_level(text: Any) -> Level:
    """Return a level of compatibility.

    Raises:
        SchemaRegistryError: it is none.
    """
    found = next((level for level in LEVELS if isinstance(text, str) and level == text.upper()), None)
    if found is None:
        raise SchemaRegistryError(INVALID_LEVEL, f"Invalid compatibility level: expected one of {', '.join(LEVELS)}")
    return found


def problems(level: Level, new: Schema, former: Sequence[Schema]) -> list[str]:
    """Return why a schema does not go with those before it; empty: it does.

    Args:
        level: the level that is asked for.
        new: the schema.
        former: the others, the oldest first.
    """
    if level == "NONE" or not former:
        return []
    found: list[str] = []
    deadline = time.monotonic() + MAX_S
    for other in reversed(former if level.endswith("TRANSITIVE") else former[-1:]):
        if other.type != new.type:
            found.append(f"schemas of the subject are of type {other.type}, and this one is of type {new.type}")
        else:
            if not level.startswith("FORWARD"):
                found += [f"reading what was written before: {why}" for why in _problems(reader=new, writer=other)]
            if not level.startswith("BACKWARD"):
                found += [f"reading with the former schema: {why}" for why in _problems(reader=other, writer=new)]
        if found:
            break
        if time.monotonic() > deadline:
            raise SchemaRegistryError(
                UNPROCESSABLE,
                f"comparing with all versions takes longer than {MAX_S:g} s: delete former ones, or set a level "
                "that is not transitive",
            )
    return found


def _problems(*, reader: Schema, writer: Schema) -> list[str]:
    if reader.text == writer.text:
        return []
    if reader.type == "PROTOBUF":
        return protobuf_problems(reader.text, writer.text)
    compare = avro_problems if reader.type == "AVRO" else json_problems
    return compare(json.loads(reader.text), json.loads(writer.text))


def _compact(plain: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
