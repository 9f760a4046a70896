"""Parts that sources, steps and sinks of a pipeline share: expectations, schemas of the registry, checks of names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_label
from enmasse.model.schema.schema import Model, describe_value
from enmasse.model.sql.ddl import DdlError, parse_ddl
from enmasse.model.sql.sql import Columns, SqlError, checked_sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


OnError = Literal["dead-letter", "drop", "null", "fail"]
"""The verdict on a row for which an expression fails."""


class Expectation(Model):
    """A condition that rows are expected to meet, and what becomes of those that do not."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Names it in status and in dead letters."""
    condition: str = Field(min_length=1)
    """The condition in SQL over the columns of the relation; a row meets it where it is true."""
    action: Literal["keep", "drop", "dead-letter", "fail"] | None = None
    """``keep`` (the default): they are counted; ``drop``: they are left out; ``dead-letter``: they go to
    ``badRecords``; ``fail``: the query fails."""


class RegistrySpec(Model):
    """The use of the space's schema registry."""

    subject: str | None = Field(default=None, min_length=1)
    """The subject with the schema. A source reads messages of any schema of the registry into its columns; left out,
    they are those of the source's ``schema``. A sink writes by it, and needs it."""
    version: int | None = Field(default=None, ge=1)
    """The version of the subject; left out: the latest when the pipeline starts."""
    message: str | None = Field(default=None, min_length=1)
    """The full name of the message that a source reads; left out: the first of the subject's file. Of protobuf."""
    wire_format: bool = True
    """True if each message begins with the id of its schema; false: all are of the subject's, and without an id."""


def table_problem(name: str) -> str | None:
    """Return what is wrong with the name of a table, or of a relation, or None."""
    if is_label(name.replace("_", "-")):
        return None
    return (
        "expected lower-case letters, digits and '_', beginning and ending with a letter or digit, "
        f"at most 63 characters, got {describe_value(name)}"
    )


def name_problems(path: str, name: str, known: Mapping[str, Columns]) -> Iterator[Problem]:
    """Yield what is wrong with the name of a relation."""
    if problem := table_problem(name):
        yield Problem(f"{path}.name", problem)
    if name in known:
        yield Problem(f"{path}.name", f"there is another relation {describe_value(name)} above")


def input_problems(path: str, name: str | None, relations: Mapping[str, Columns]) -> Iterator[Problem]:
    """Yield what is wrong with the relation that is read; None: the last one is."""
    if name is not None and name not in relations:
        there = ", ".join(relations) or "none"
        yield Problem(f"{path}.input", f"there is no relation {describe_value(name)} above; there are {there}")


def column_problem(name: str, columns: Columns) -> str | None:
    """Return what is wrong with the name of one of the columns, which is compared exactly; or None."""
    if columns is None or name in columns:
        return None
    there = ", ".join(columns)
    return f"there is no column {describe_value(name)}; there are {there}"


def column_problems(path: str, names: Sequence[str], columns: Columns) -> Iterator[Problem]:
    """Yield which names are no columns, or stand there twice."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}[{index}]", f"{describe_value(name)} stands there twice")
        if problem := column_problem(name, columns):
            yield Problem(f"{path}[{index}]", problem)


def expectation_problems(
    path: str, expectations: Sequence[Expectation], bad_records: str | None, columns: Columns
) -> Iterator[Problem]:
    """Yield what is wrong with what the rows of a source or step are expected to meet."""
    names = [one.name for one in expectations]
    for index, one in enumerate(expectations):
        place = f"{path}.expectations[{index}]"
        if not re.fullmatch(r"[A-Za-z_][\w-]{0,62}", one.name):
            yield Problem(f"{place}.name", f"expected a name such as has_device, got {describe_value(one.name)}")
        if one.name in names[:index]:
            yield Problem(f"{place}.name", f"there is another one {describe_value(one.name)} above")
        if one.action == "dead-letter" and bad_records is None:
            yield Problem(f"{path}.badRecords", "required with action dead-letter: the address that rows go to")
        try:
            checked_sql(f"SELECT ({one.condition}) AS met FROM rows", {"rows": columns})  # noqa: S608  # that is what is checked
        except SqlError as error:
            yield Problem(f"{place}.condition", str(error))


def function_problem(name: str) -> str | None:
    """Return what is wrong with the name of a function of Python, or None."""
    module, colon, function = name.partition(":")
    if colon and module.isidentifier() and function.isidentifier():
        return None
    return f"expected module:function, got {describe_value(name)}"


def ddl_problems(path: str, schema: str) -> Iterator[Problem]:
    """Yield what is wrong with columns as Spark writes them."""
    try:
        parse_ddl(schema)
    except DdlError as error:
        yield Problem(path, str(error))
