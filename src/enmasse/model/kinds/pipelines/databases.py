"""Tables of databases that pipelines read and write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_subdomain
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BATCHES: Final = "enmasse_batches"
"""The table of a database that says which batches are written."""


class Database(Model):
    """A table of a database."""

    type: Literal["postgresql"]
    """The kind of database."""
    host: str
    """Its name or address; an operator has to list it in the annotation ``enmasse.io/pipeline-hosts``."""
    port: int = Field(default=5432, ge=1, le=65535)
    """Its port."""
    database: str
    """The name of the database."""
    table: str
    """The table, as ``machines`` or ``plant.machines``; without a schema it is of ``public``."""
    credentials_secret: str
    """A Secret of the namespace with ``username`` and ``password`` of a user of the database, and, unless ``tls`` is
    ``off``, ``ca.crt``: the authorities that the host's certificate is verified by."""
    tls: Literal["verify", "off"] | None = None
    """``verify`` (the default): connections are encrypted, and the host proves its name; ``off``: neither, for
    networks that are trusted."""


_HOST = re.compile(r"[A-Za-z0-9_:]([-A-Za-z0-9_.:]{0,251}[A-Za-z0-9])?")
_LONGEST_NAME = 63
"""Bytes of a name of PostgreSQL; it cuts longer ones off."""


def database_problems(path: str, database: Database) -> Iterator[Problem]:
    """Yield what is wrong with a table of a database."""
    if not _HOST.fullmatch(database.host):
        expected = "expected the name or the address of a host, without a port and a scheme"
        yield Problem(f"{path}.host", f"{expected}, got {describe_value(database.host)}")
    if not _is_database_name(database.database):
        expected = f"expected a name of at most {_LONGEST_NAME} bytes"
        yield Problem(f"{path}.database", f"{expected}, got {describe_value(database.database)}")
    parts = database.table.split(".")
    if len(parts) > 2 or not all(map(_is_database_name, parts)):
        expected = f"expected a table such as machines or plant.machines, names of at most {_LONGEST_NAME} bytes"
        yield Problem(f"{path}.table", f"{expected}, got {describe_value(database.table)}")
    if parts[-1] == BATCHES:
        yield Problem(f"{path}.table", f"expected another table: {BATCHES} says which batches are written")
    if not is_subdomain(database.credentials_secret):
        said = f"expected the name of a Secret, got {describe_value(database.credentials_secret)}"
        yield Problem(f"{path}.credentialsSecret", said)


def _is_database_name(name: str) -> bool:
    return name.isprintable() and 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME


def as_lake_table(table: str) -> str:
    """Return what a table of a database is called as one of the lake: ``plant_machines`` for ``plant.machines``."""
    return re.sub(r"[^a-z0-9]+", "_", table.lower()).strip("_")


def as_lake_tables(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pipeline, as JSON has it, with tables of the lake in the place of those of databases."""

    def replaced(part: Mapping[str, Any]) -> dict[str, Any]:
        if not part.get("database"):
            return dict(part)
        name = as_lake_table(part["database"]["table"])
        return {key: value for key, value in part.items() if key != "database"} | {"table": name}

    spec = dict(document["spec"])
    for parts in ("sources", "sinks"):
        if spec.get(parts):
            spec[parts] = [replaced(part) for part in spec[parts]]
    return {**document, "spec": spec}
