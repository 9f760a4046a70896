"""The file of ``enmasse pipeline test`` with what is given and what is expected, and whether it fits its pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from enmasse.cli.commands.use.tryout_messages import GivenMessage
from enmasse.cli.errors import UsageError
from enmasse.messaging.patterns import is_pattern, matches, parse
from enmasse.model.kinds.pipelines.builtins import BUILTINS, TableName
from enmasse.model.kinds.pipelines.databases import as_lake_table
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Self

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec


class Given(Model):
    """The input: rows of a table, or messages of an address or files of a folder, in a batch of their own."""

    address: str | None = None
    subject: str | None = None
    table: TableName | None = None
    files: str | None = None
    schema_: str | None = Field(default=None, alias="schema")
    rows: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    messages: tuple[GivenMessage, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        place = _only(self, ("address", "table", "files"))
        own = {
            "address": {"subject", "messages"},
            "table": {"schema_", "rows"},
            "files": {"schema_", "rows"} if "rows" in self.model_fields_set else {"messages"},
        }[place]
        _take_only(self, place, own, needed=("messages", "rows"))
        return self


class Expected(Model):
    """The output to expect, in any order: of rows the columns that are named, of messages the bodies."""

    address: str | None = None
    type: Literal["stream", "queue"] = "queue"
    table: str | None = None
    rows: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    messages: tuple[GivenMessage, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        place = _only(self, ("address", "table"))
        own = {"rows"} if place == "table" else {"messages", "type"}
        _take_only(self, place, own, needed=("messages", "rows"))
        return self


class Rows(Model):
    """The file with what is given and what is expected."""

    pipeline: str | None = None
    given: tuple[Given, ...] = Field(strict=False, min_length=1)
    expect: tuple[Expected, ...] = Field(strict=False, min_length=1)


def _only(entry: Model, names: tuple[str, ...]) -> str:
    """Return which one of some fields an entry has."""
    found = [name for name in names if getattr(entry, name) is not None]
    if len(found) != 1:
        raise PydanticCustomError(
            "entry",
            "expected one of {names}, got {found}",
            {"names": ", ".join(names), "found": " and ".join(found) or "none"},
        )
    return found[0]


def _take_only(entry: Model, place: str, own: Collection[str], needed: Iterable[str]) -> None:
    """Refuse fields that mean nothing for a place, and the lack of what it is about: an empty list says none."""
    if odd := sorted(entry.model_fields_set - {place, *own}):
        raise PydanticCustomError(
            "entry", "{odd}: not with {place}", {"odd": odd[0].removesuffix("_"), "place": place}
        )
    for name in needed:
        if name in own and name not in entry.model_fields_set:
            raise PydanticCustomError(
                "entry", "{place} needs {name}; of none say {name}: []", {"place": place, "name": name}
            )


def read_rows(place: str) -> Rows:
    """Return what a file gives and expects.

    Raises:
        UsageError: it cannot be read, or says something else.
    """
    try:
        return Rows.model_validate(yaml.safe_load(Path(place).read_text("utf-8")))
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{place}: no YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{place}: {where}: {first['msg']}") from None


class Ends(NamedTuple):
    """The names that a pipeline reads and writes."""

    read: tuple[str, ...]
    """Addresses, and patterns of them."""
    joined: tuple[str, ...]
    files: tuple[str, ...]
    written: tuple[str, ...]
    letters: tuple[str, ...]
    """Addresses for rows that are not used."""
    tables: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """True if rows name the addresses that they go to."""
        return "*" in self.written


def ends_of(spec: PipelineSpec) -> Ends:
    """Return what a pipeline reads and writes; tables of databases by their names in the lake."""
    if spec.builtin is not None:
        own = BUILTINS[spec.builtin.name].model_validate(dict(spec.builtin.parameters))
        joined = getattr(own, "table", None) if not own.reads() else None  # it is trained with the table
        return Ends(own.reads(), tuple(filter(None, [joined])), (), own.writes(), (), own.tables())
    sources = spec.sources
    read = [name for one in sources for name in (one.address, *one.addresses, one.address_pattern)]
    letters = [part.bad_records for parts in (sources, spec.steps, spec.sinks) for part in parts]
    letters += [one.watermark.late for one in sources if one.watermark is not None]

    def tables(ends: Iterable[Any]) -> Iterator[str]:
        for one in ends:
            if one.table or one.database:
                yield one.table or as_lake_table(one.database.table)

    return Ends(
        tuple(filter(None, read)),
        tuple(tables(sources)),
        tuple(source.files.path for source in sources if source.files is not None),
        tuple(sink.address for sink in spec.sinks if sink.address is not None),
        tuple(filter(None, letters)),
        tuple(tables(spec.sinks)),
    )


def check_rows(place: str, rows: Rows, ends: Ends, declared: Collection[str]) -> None:
    """Make sure that a pipeline reads what is given and writes what is expected: else all would seem to be well.

    Args:
        place: the file.
        rows: the rows that the file says.
        ends: the ends of the pipeline.
        declared: the addresses that the pipeline's file declares.

    Raises:
        UsageError: a name is none of the pipeline's.
    """
    for number, given in enumerate(rows.given):
        where = f"{place}: given.{number}"
        if given.address is not None and not (given.address in declared or is_read(given.address, ends.read)):
            raise UsageError(f"{where}: no source reads the address {given.address}: {_names(ends.read)}")
        if given.table is not None and given.table not in (*ends.joined, *ends.tables):
            raise UsageError(f"{where}: no source reads the table {given.table}: {_names(ends.joined)}")
        if given.files is not None and not any(_is_within(given.files, path) for path in ends.files):
            raise UsageError(f"{where}: no source reads files of {given.files}: {_names(ends.files)}")
    sent = (*ends.written, *ends.letters)
    for number, expected in enumerate(rows.expect):
        where = f"{place}: expect.{number}"
        if expected.table is not None and expected.table not in (*ends.tables, *ends.joined):
            raise UsageError(f"{where}: no sink writes the table {expected.table}: {_names(ends.tables)}")
        address = expected.address
        if address is not None and not (ends.is_open or address in declared or address in (*sent, *ends.read)):
            raise UsageError(f"{where}: nothing goes to the address {address}: {_names(sent)}")


def is_read(address: str, read: Iterable[str]) -> bool:
    """Return whether sources read an address: by name, as one below a topic, or by a pattern."""
    return any(
        address == name or address.startswith(f"{name}/") or (is_pattern(name) and matches(parse(name), address))
        for name in read
    )


def _is_within(path: str, folder: str) -> bool:
    return ".." not in path.split("/") and f"{path.strip('/')}/".startswith(f"{folder.strip('/')}/")


def _names(names: Iterable[str]) -> str:
    return f"expected {', '.join(dict.fromkeys(names)) or 'none'}"
