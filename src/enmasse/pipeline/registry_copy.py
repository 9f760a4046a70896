"""The copy of a space's schema registry that its host keeps for runners, and how they read it.

Rules:
1. The time of the file is when the host began to ask: what the registry had then is in it.
2. What is not found is looked for in a copy that is younger than what names it: so an unknown id is unknown, and not
   too new. Where no such copy comes, the work fails and is done again; nothing is taken for unknown.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from enmasse.pipeline.errors import PlanError, RegistryAwayError

FILE: Final = "registry.json"
"""In the folder ``schemas`` of a space."""
PATIENCE_S: Final = 20.0
"""The time to wait for a younger copy."""
_POLL_S: Final = 0.05
_NEVER: Final = 4_102_444_800  # the year 2100


@cache
def copy_at(path: Path) -> RegistryCopy:
    """Return the copy at a path, which this process keeps from one task to the next."""
    return RegistryCopy(path)


def write_copy(path: Path, versions: Sequence[dict[str, Any]]) -> None:
    """Write a copy that nothing younger follows, for who has no registry.

    Args:
        path: the path of the copy.
        versions: the versions as the registry lists them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(versions))
    os.utime(path, (_NEVER, _NEVER))


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry."""

    id: int
    type: str
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    text: str


class RegistryCopy:
    """The registry of a space.

    Args:
        path: the path of the copy.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._asked_s = 0.0
        self._by_id: dict[int, RegisteredSchema] = {}
        self._subjects: dict[str, dict[int, RegisteredSchema]] = {}

    def schema(self, schema_id: int, since_s: float) -> RegisteredSchema | None:
        """Return the schema of an id.

        Args:
            schema_id: as a message has it.
            since_s: the moment after which it cannot have come about.

        Raises:
            RegistryAwayError: it is not known, and no copy comes that is younger.
        """
        if schema_id not in self._by_id:
            self._refresh()
        if (found := self._by_id.get(schema_id)) is None:
            self._have_younger(since_s)
            found = self._by_id.get(schema_id)
        return found

    def subject(self, name: str, version: int | None) -> RegisteredSchema:
        """Return the schema of a version of a subject, as it is now.

        Args:
            name: the name of the subject.
            version: its number; None: the latest.

        Raises:
            PlanError: there is none.
            RegistryAwayError: that is not known.
        """
        self._have_younger(time.time())
        versions = self._subjects.get(name)
        if not versions:
            raise PlanError(f"the schema registry of the space has no subject '{name}': `enmasse schema register`")
        found = versions.get(max(versions) if version is None else version)
        if found is None:
            there = ", ".join(map(str, versions))
            raise PlanError(f"the subject '{name}' has no version {version}; there are {there}")
        return found

    def _have_younger(self, since_s: float) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._refresh()
            if self._asked_s >= since_s:
                return
            if time.monotonic() > deadline:
                raise RegistryAwayError(
                    f"the schema registry could not be read for {PATIENCE_S:g} s: the API of EnMasse is away"
                )
            time.sleep(_POLL_S)

    def _refresh(self) -> None:
        try:
            facts = self._path.stat()
            version = facts.st_ino, facts.st_mtime_ns
            if version == self._read:
                return
            self._take(json.loads(self._path.read_bytes()))
        except OSError:
            return  # the host has not written it yet
        self._read, self._asked_s = version, facts.st_mtime

    def _take(self, versions: list[dict[str, Any]]) -> None:
        self._by_id, self._subjects = {}, {}
        for item in versions:
            schema = RegisteredSchema(item["id"], item.get("schemaType", "AVRO"), item["schema"])
            self._by_id[schema.id] = schema
            if not item.get("deleted"):
                self._subjects.setdefault(item["subject"], {})[item["version"]] = schema
