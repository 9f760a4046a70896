"""The attributes of users and the checks of their values.

A wrong value is answered with 400 and a sentence that names the attribute and what it takes, never the value, which
may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.identity.errors import UsersFileError
from enmasse.identity.permissions import ADDRESS_OPERATIONS, OPERATIONS, Grant, pattern_problem
from enmasse.identity.users import ScramKeys, read_keys, shown, user_name
from enmasse.node.entity_records import MAX_NAME_BYTES, Record
from enmasse.node.errors import EntityError
from enmasse.wire.sasl.scram import HASHES

USER_TYPE = "io.enmasse.user"

SECRETS = frozenset({"scram"})
"""Attributes that are never reported."""

MAX_CERTIFICATES = 64
MAX_CERTIFICATE_BYTES = 253
"""With a space it makes a key of the journal."""
MAX_SPACE_BYTES = 140
MAX_PATTERN_BYTES = 1_024
"""Of the names that clients have for themselves."""
MAX_GRANTS = 1_000
"""The most patterns of one user: all of them may be tried when a link attaches."""


def user_key(space: str, username: str) -> str:
    """Return the name of a user's entity: ``<namespace>/<space>.<username>``."""
    return f"{space}.{username}"


def checked_user(name: str, attributes: dict[str, Any]) -> Record:
    """Check attributes and return their record, without those that are null.

    Raises:
        EntityError: 400 an attribute is unknown or missing, or its value is wrong.
    """
    if not name or len(name.encode()) > MAX_NAME_BYTES:
        raise EntityError(400, f"a name has 1 to {MAX_NAME_BYTES} bytes")
    record: Record = {"name": name}
    for key, value in attributes.items():
        if key in ("name", "type", "identity") or value is None:
            continue
        check = _CHECKS.get(key)
        if check is None:
            raise EntityError(400, f"io.enmasse.user has no attribute {key!r:.100}; it has {', '.join(_CHECKS)}")
        try:
            record[key] = check(key, value)
        except UsersFileError as error:
            raise EntityError(400, f"attribute {error}") from None
    space, username = record.get("space", ""), record.get("username", "")
    if len(space.encode()) > MAX_SPACE_BYTES or space.count("/") != 1 or not all(space.split("/")):
        raise EntityError(400, f"attribute space of user {name!r} takes <namespace>/<space>")
    if user_key(space, username) != name:
        raise EntityError(400, f"user {username!r} of space {space!r} is named {user_key(space, username)!r}")
    return record


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsersFileError(f"{key} takes a string, not {shown(value)}")
    return value


def _username(key: str, value: Any) -> str:
    return user_name(_text(key, value))


def _number(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsersFileError(f"{key} takes a whole number from 0 on, not {shown(value)}")
    return value


def _scram(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(value) <= set(HASHES):
        raise UsersFileError(f"{key} takes a map of {', '.join(HASHES)} to keys")
    for mechanism, item in value.items():
        read_keys(f"{key}.{mechanism}", mechanism, item)
    return {str(mechanism): dict(item) for mechanism, item in value.items()}


def _certificates(key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_CERTIFICATES:
        raise UsersFileError(f"{key} takes a list of at most {MAX_CERTIFICATES} names")
    for item in value:
        if not isinstance(item, str) or not 1 <= len(item.encode()) <= MAX_CERTIFICATE_BYTES or "\0" in item:
            raise UsersFileError(f"{key} takes names of 1 to {MAX_CERTIFICATE_BYTES} bytes")
    return list(dict.fromkeys(value))


def _client_ids(key: str, value: Any) -> str:
    text = _text(key, value)
    if len(text.encode()) > MAX_PATTERN_BYTES or text.count("*") > 1:
        raise UsersFileError(
            f"{key} takes a text of at most {MAX_PATTERN_BYTES} bytes, in which '*' stands once at most"
        )
    return text


def _authorization(key: str, value: Any) -> list[dict[str, list[str]]]:
    if not isinstance(value, list):
        raise UsersFileError(f"{key} takes a list, not {shown(value)}")
    grants = []
    for index, item in enumerate(value):
        where = f"{key}[{index}]"
        if not isinstance(item, dict) or not set(item) <= {"operations", "addresses"}:
            raise UsersFileError(f"{where} takes operations and addresses")
        operations, addresses = (item.get(name) or [] for name in ("operations", "addresses"))
        if not isinstance(operations, list) or not operations or not all(o in OPERATIONS for o in operations):
            raise UsersFileError(f"{where}.operations takes some of {', '.join(OPERATIONS)}")
        if not isinstance(addresses, list) or not all(isinstance(a, str) and a for a in addresses):
            raise UsersFileError(f"{where}.addresses takes a list of patterns")
        if ADDRESS_OPERATIONS & set(operations) and not addresses:
            raise UsersFileError(f"{where}.addresses takes at least one pattern; '#' stands for all addresses")
        for pattern in addresses:
            if problem := pattern_problem(pattern):
                raise UsersFileError(f"{where}.addresses: {problem}")
        grants.append({"operations": [str(o) for o in operations], "addresses": [str(a) for a in addresses]})
    if sum(len(grant["addresses"]) for grant in grants) > MAX_GRANTS:
        raise UsersFileError(f"{key} takes at most {MAX_GRANTS} patterns of addresses")
    return grants


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "space": _text,
    "spaceUid": _text,
    "username": _username,
    "scram": _scram,
    "certificates": _certificates,
    "authorization": _authorization,
    "uid": _text,
    "generation": _number,
    "revision": _text,
    "clientIds": _client_ids,
}


USER_ATTRIBUTES = (*_CHECKS, "mechanisms")
"""The attributes of a user: those that can be set, and what is reported in place of keys."""


def read_scram(record: Record) -> dict[str, ScramKeys]:
    """Return the keys of a record, by mechanism."""
    found = record.get("scram", {})
    return {
        mechanism: read_keys(mechanism, mechanism, found[mechanism]) for mechanism in HASHES if mechanism in found
    }


def read_grants(record: Record) -> list[Grant]:
    """Return the permissions of a record."""
    return [Grant(tuple(item["operations"]), tuple(item["addresses"])) for item in record.get("authorization", ())]
