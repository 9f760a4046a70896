"""The schema registry: what clients may do with subjects, versions and levels, in the ways of Confluent's.

Rules:
1. A deleted version is found by its schema's id, and with ``deleted``; one that is deleted for good is not.
2. A level of compatibility is that of the subject, else that of the space, else BACKWARD.
3. Slow work, which is reading and comparing schemas, is done outside of transactions: when something has changed
   meanwhile, it is done again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from enmasse.schemas.compatibility import DEFAULT_LEVEL, Level, Schema, problems
from enmasse.schemas.errors import (
    INCOMPATIBLE,
    INVALID_VERSION,
    NO_LEVEL_OF_SUBJECT,
    SCHEMA_NOT_FOUND,
    SUBJECT_DELETED,
    SUBJECT_NOT_DELETED,
    SUBJECT_NOT_FOUND,
    UNPROCESSABLE,
    VERSION_DELETED,
    VERSION_NOT_DELETED,
    VERSION_NOT_FOUND,
    SchemaRegistryError,
)
from enmasse.schemas.wire_format import MAX_ID

if TYPE_CHECKING:
    from collections.abc import Collection

    from enmasse.schemas.store import SchemaStore, Tables, Version

MAX_VERSIONS: Final = 1_000
"""Of one subject: each may have to be compared with a new one."""
MAX_CHARACTERS: Final = 16 * 1024 * 1024
"""Of all schemas of a space: its runner holds them in memory."""
MAX_ROWS: Final = 20_000
"""Versions of all subjects of a space; and subjects with a level of their own."""
_SUBJECT: Final = re.compile(r"[^/\x00-\x1f\x7f]{1,255}")
_LATEST: Final = ("latest", "-1")


class SchemaRegistry:
    """The registry of one installation; its methods block, and may be called from any thread.

    Args:
        store: the store of everything.
    """

    def __init__(self, store: SchemaStore) -> None:
        self._store = store

    def forget(self, space: str) -> None:
        """Remove all that a space had, by its uid."""
        self._store.forget(space)

    def forget_others(self, spaces: Collection[str]) -> None:
        """Remove all that spaces had which are none of these."""
        self._store.forget_others(spaces)

    def revision(self, space: str) -> int:
        """Return a number that grows with each change of what a space has."""
        with self._store.transaction(space) as tables:
            return tables.revision

    # Subjects and versions

    def all_versions(self, space: str, *, prefix: str = "", deleted: bool = False) -> tuple[int, list[Version]]:
        """Return the versions of all subjects, with the revision."""
        with self._store.transaction(space) as tables:
            found = tables.versions()
            return tables.revision, [
                item for item in found if item.subject.startswith(prefix) and (deleted or not item.is_deleted)
            ]

    def subjects(self, space: str, *, prefix: str = "", deleted: bool = False, only: bool = False) -> list[str]:
        """Return the names of subjects; with ``only``, of those alone that are deleted."""
        with self._store.transaction(space) as tables:
            found = [item for item in tables.subjects() if item[0].startswith(prefix)]
        return [subject for subject, is_deleted in found if (is_deleted if only else deleted or not is_deleted)]

    def versions(self, space: str, subject: str, *, deleted: bool = False, only: bool = False) -> list[Version]:
        """Return the versions of a subject.

        Raises:
            SchemaRegistryError: there is no such subject.
        """
        with self._store.transaction(space) as tables:
            found = _versions(tables, subject, deleted=deleted or only)
        return [item for item in found if item.is_deleted or not only]

    def version(self, space: str, subject: str, version: str, *, deleted: bool = False) -> Version:
        """Return one version of a subject, by its number or ``latest``.

        Raises:
            SchemaRegistryError: there is none.
        """
        with self._store.transaction(space) as tables:
            return _version(tables, subject, version, deleted=deleted)

    def lookup(self, space: str, subject: str, schema: Schema, *, deleted: bool = False) -> Version:
        """Return the version of a subject that has a schema.

        Raises:
            SchemaRegistryError: there is none.
        """
        with self._store.transaction(space) as tables:
            found = _versions(tables, subject, deleted=deleted)
            number = tables.id_of(schema)
        there = next((item for item in reversed(found) if item.id == number), None)
        if there is None:
            raise SchemaRegistryError(SCHEMA_NOT_FOUND, f"Schema not found in subject '{subject}'")
        return there

    def register(self, space: str, subject: str, schema: Schema) -> Version:
        """Add a version with a schema to a subject, unless one has it, and return the one that has.

        Raises:
            SchemaRegistryError: it does not go with former ones, or there is no room.
        """
        if not _SUBJECT.fullmatch(subject):
            raise SchemaRegistryError(
                UNPROCESSABLE, f"Invalid subject '{subject:.60}': expected 1 to 255 characters without '/'"
            )
        while True:
            with self._store.transaction(space) as tables:
                revision = tables.revision
                there = tables.versions(subject)
                level = _level(tables, subject)
                number = tables.id_of(schema)
            former = [item for item in there if not item.is_deleted]
            if (found := next((item for item in reversed(former) if item.id == number), None)) is not None:
                return found
            if why := problems(level, schema, [item.schema for item in former]):
                raise SchemaRegistryError(
                    INCOMPATIBLE,
                    f"Schema being registered is incompatible with an earlier schema for subject '{subject}', "
                    f"with compatibility {level}: {'; '.join(why)}",
                )
            with self._store.transaction(space) as tables:
                if tables.revision == revision:
                    return _add(tables, subject, schema, there, number)

    def delete_subject(self, space: str, subject: str, *, permanent: bool) -> list[int]:
        """Delete a subject and return its versions.

        Raises:
            SchemaRegistryError: there is none; or it has to be deleted first to be deleted for good.
        """
        with self._store.transaction(space) as tables:
            found = tables.versions(subject)
            if not found:
                raise _no_subject(subject)
            left = [item for item in found if not item.is_deleted]
            if permanent and left:
                raise SchemaRegistryError(
                    SUBJECT_NOT_DELETED, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
            if not permanent and not left:
                raise SchemaRegistryError(
                    SUBJECT_DELETED, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
                )
            gone = found if permanent else left
            for item in gone:
                (tables.remove if permanent else tables.mark_deleted)(subject, item.version)
            tables.set_level(subject, None)
            tables.changed()
        return [item.version for item in gone]

    def delete_version(self, space: str, subject: str, version: str, *, permanent: bool) -> int:
        """Delete one version of a subject and return its number.

        Raises:
            SchemaRegistryError: there is none; or it has to be deleted first to be deleted for good.
        """
        with self._store.transaction(space) as tables:
            found = _version(tables, subject, version, deleted=True)
            words = f"Subject '{subject}' Version {found.version}"
            if permanent and not found.is_deleted:
                raise SchemaRegistryError(
                    VERSION_NOT_DELETED, f"{words} was not deleted first before being permanently deleted"
                )
            if not permanent and found.is_deleted:
                raise SchemaRegistryError(
                    VERSION_DELETED, f"{words} was soft deleted. Set permanent=true to delete permanently"
                )
            (tables.remove if permanent else tables.mark_deleted)(subject, found.version)
            tables.changed()
        return found.version

    # Schemas by id

    def by_id(self, space: str, schema_id: str) -> Schema:
        """Return the schema of an id, if a version has it or had it.

        Raises:
            SchemaRegistryError: there is none.
        """
        with self._store.transaction(space) as tables:
            found = tables.schema(_id_of(schema_id))
        if found is None:
            raise _no_schema(schema_id)
        return found

    def versions_of_id(self, space: str, schema_id: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of subjects that have a schema.

        Raises:
            SchemaRegistryError: there is no such schema.
        """
        with self._store.transaction(space) as tables:
            found = tables.versions(schema_id=_id_of(schema_id))
        if not found:
            raise _no_schema(schema_id)
        return [item for item in found if deleted or not item.is_deleted]

    # Compatibility

    def level(self, space: str, subject: str = "", *, or_of_space: bool = False) -> Level:
        """Return the level of a subject; of no subject: of the space.

        Raises:
            SchemaRegistryError: the subject has none of its own, and that of the space is not wanted.
        """
        with self._store.transaction(space) as tables:
            if not subject or or_of_space:
                return _level(tables, subject)
            found = tables.level(subject)
        if found is None:
            raise _no_level(subject)
        return found

    def set_level(self, space: str, subject: str, level: Level) -> None:
        """Set the level of a subject; of no subject: of the space.

        Raises:
            SchemaRegistryError: that is no name of a subject.
        """
        if subject and not _SUBJECT.fullmatch(subject):
            raise _no_subject(subject)
        with self._store.transaction(space) as tables:
            if tables.count("levels") >= MAX_ROWS:
                raise SchemaRegistryError(UNPROCESSABLE, f"{MAX_ROWS} subjects have levels: delete some")
            tables.changed()
            tables.set_level(subject, level)

    def forget_level(self, space: str, subject: str = "") -> Level:
        """Have a subject without a level of its own and return that; of no subject: the space.

        Raises:
            SchemaRegistryError: it had none.
        """
        with self._store.transaction(space) as tables:
            former = tables.level(subject)
            if former is None and subject:
                raise _no_level(subject)
            tables.set_level(subject, None)
            tables.changed()
        return former or DEFAULT_LEVEL

    def check(self, space: str, subject: str, schema: Schema, version: str | None = None) -> list[str]:
        """Return why a schema does not go with a version of a subject; with no version: why it could not be added.

        Raises:
            SchemaRegistryError: there is no such version.
        """
        with self._store.transaction(space) as tables:
            level = _level(tables, subject)
            if version is None:
                former = [item for item in tables.versions(subject) if not item.is_deleted]
            else:
                former = [_version(tables, subject, version)]
        return problems(level, schema, [item.schema for item in former])


def _add(tables: Tables, subject: str, schema: Schema, there: list[Version], number: int | None) -> Version:
    if len(there) >= MAX_VERSIONS:
        raise SchemaRegistryError(
            UNPROCESSABLE, f"Subject '{subject}' has {MAX_VERSIONS} versions: delete some for good"
        )
    if tables.count("versions") >= MAX_ROWS:
        raise SchemaRegistryError(UNPROCESSABLE, f"the space has {MAX_ROWS} versions: delete some for good")
    if number is None and tables.characters + len(schema.text) > MAX_CHARACTERS:
        raise SchemaRegistryError(
            UNPROCESSABLE, f"the schemas of the space have {MAX_CHARACTERS} characters: delete some for good"
        )
    tables.changed()
    number = tables.add_schema(schema) if number is None else number
    version = there[-1].version + 1 if there else 1
    tables.add_version(subject, version, number)
    return next(item for item in tables.versions(subject) if item.version == version)


def _level(tables: Tables, subject: str) -> Level:
    return (tables.level(subject) if subject else None) or tables.level("") or DEFAULT_LEVEL


def _versions(tables: Tables, subject: str, *, deleted: bool = False) -> list[Version]:
    found = [item for item in tables.versions(subject) if deleted or not item.is_deleted]
    if not found:
        raise _no_subject(subject)
    return found


def _version(tables: Tables, subject: str, version: str, *, deleted: bool = False) -> Version:
    is_number = version.isascii() and version.isdecimal() and 0 < int(version[:10]) <= MAX_ID
    if version not in _LATEST and not is_number:
        raise SchemaRegistryError(
            INVALID_VERSION, f"The specified version '{version:.40}' is not a valid version id: expected 1 or more, "
            "or latest"
        )  # fmt: skip
    found = _versions(tables, subject, deleted=deleted)
    if version in _LATEST:
        return found[-1]
    there = next((item for item in found if item.version == int(version)), None)
    if there is None:
        raise SchemaRegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")
    return there


def _id_of(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else 0


def _no_subject(subject: str) -> SchemaRegistryError:
    return SchemaRegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject:.255}' not found.")


def _no_schema(schema_id: str) -> SchemaRegistryError:
    return SchemaRegistryError(SCHEMA_NOT_FOUND, f"Schema {schema_id:.40} not found")


def _no_level(subject: str) -> SchemaRegistryError:
    return SchemaRegistryError(
        NO_LEVEL_OF_SUBJECT, f"Subject '{subject:.255}' does not have subject-level compatibility configured"
    )
