"""The sinks of pipelines that no backup has, and the pipelines that wait after a restore to hear where they go on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError
from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, PIPELINE, WEBHOOK

RESTORED: Final = "restored.json"
"""In the folder of pipelines: those that write to what was not restored, and have not been told where they go on."""


def declared_in(store: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return kind, namespace and body of what is declared, as far as it concerns pipelines."""
    asked = (
        "SELECT kind, namespace, body FROM objects WHERE kind IN ('AddressSpace', 'Address', 'Pipeline', 'Webhook')"
    )
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        return [(kind, namespace, json.loads(body)) for kind, namespace, body in database.execute(asked)]


def outside_of(objects: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the pipelines that write to what a backup does not have: by space and name their uid, restart and sinks.

    Args:
        objects: kind, namespace and body of what is declared.
    """
    lakes: dict[str, str] = {}
    pushed: dict[str, set[str]] = {}
    topics: dict[tuple[str, str], str] = {}
    for kind, namespace, body in objects:
        name, spec = str(body["metadata"]["name"]), body.get("spec") or {}
        space = f"{namespace}.{name.partition('.')[0]}"
        s3 = (spec.get("lake") or {}).get("s3") if kind == ADDRESS_SPACE.name else None
        if s3:
            prefix = str(s3.get("prefix") or "").strip("/")
            lakes[space] = "/".join(filter(None, (f"s3://{s3['bucket']}", prefix)))
        elif kind == WEBHOOK.name:
            pushed.setdefault(space, set()).add(str(spec["address"]))
        elif kind == ADDRESS.name and spec.get("topic"):
            topics[space, str(spec["address"])] = str(spec["topic"])
    for space, addresses in pushed.items():
        addresses |= {topics[space, name] for name in addresses if (space, name) in topics}
    found: dict[str, Any] = {}
    for kind, namespace, body in objects:
        if kind != PIPELINE.name:
            continue
        name, spec = str(body["metadata"]["name"]), body.get("spec") or {}
        space = f"{namespace}.{name.partition('.')[0]}"
        sinks = sorted(set(_sinks_outside(spec, lakes.get(space), pushed.get(space, set()))))
        if sinks:
            restarted_at = (spec.get("restart") or {}).get("at")
            known = {"uid": body["metadata"].get("uid"), "restartedAt": restarted_at, "sinks": sinks}
            found.setdefault(space, {})[name] = known
    return found


def _sinks_outside(spec: Mapping[str, Any], lake: str | None, pushed: set[str]) -> Iterator[str]:
    sinks = spec.get("sinks") or ()
    tables = {sink["table"] for sink in sinks if sink.get("table")}
    addresses = {sink[key] for sink in sinks for key in ("address", "badRecords") if sink.get(key)}
    for database in (sink["database"] for sink in sinks if sink.get("database")):
        yield f"table {database['table']} of PostgreSQL at {database['host']}"
    builtin = spec.get("builtin") or {}
    if (kind := BUILTINS.get(str(builtin.get("name")))) is not None:
        with suppress(ValueError):
            parameters = kind.model_validate(builtin.get("parameters") or {})
            tables |= set(parameters.tables())
            addresses |= set(parameters.writes())
    if lake:
        yield from (f"table {table} in {lake}" for table in tables)
    is_any = "*" in addresses
    yield from (
        f"address {name}, which a webhook posts to a URL" for name in (pushed if is_any else addresses & pushed)
    )
    commands = {name for name in addresses if name == "command" or name.startswith("command/")}
    yield from (f"address {name}, which brings commands to devices" for name in commands)


class RestoredMarks:
    """The pipelines that write to what was not restored, and have not been told yet where they go on.

    Args:
        folder: the folder of the pipelines.

    Raises:
        ConfigError: the record of them cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESTORED
        try:
            self._marks: dict[str, dict[str, Any]] = json.loads(self._file.read_text())
        except FileNotFoundError:
            self._marks = {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._file} cannot be read: {error}") from None

    def sinks_ahead(self, space: str, name: str, uid: str, restart: Mapping[str, Any]) -> list[str]:
        """Return what may have rows that a pipeline is going to write again, in words; none: it may go on.

        Args:
            space: ``<namespace>.<space>``.
            name: the name of the pipeline.
            uid: the uid of the pipeline: another one of the name begins anew.
            restart: as it is declared; one with ``from`` that came after the backup says where it goes on.
        """
        mark = self._marks.get(space, {}).get(name)
        if mark is None or mark["uid"] != uid:
            return []
        is_told = bool(restart.get("from")) and restart.get("at") != mark["restartedAt"]
        return [] if is_told else list(mark["sinks"])

    def forget(self, space: str, name: str, restarted_at: str | None) -> None:
        """Forget a pipeline whose restart was done, or which is gone.

        Args:
            space: ``<namespace>.<space>``.
            name: the name of the pipeline.
            restarted_at: the restart that was done; None: it is gone.
        """
        mark = self._marks.get(space, {}).get(name)
        if mark is not None and restarted_at != mark["restartedAt"]:
            del self._marks[space][name]
            replace_file(self._file, json.dumps(self._marks, indent=1).encode())
