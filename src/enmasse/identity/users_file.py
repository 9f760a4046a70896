"""Reading and writing the file of users; see docs/reference/users.md."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from enmasse.identity.errors import UsersFileError
from enmasse.identity.permissions import (
    ADDRESS_OPERATIONS,
    OPERATIONS,
    Grant,
    MatcherOf,
    Permissions,
    pattern_problem,
)
from enmasse.identity.users import (
    User,
    Users,
    key_fields,
    prepared_name,
    read_keys,
    shown,
    space_name,
    to_bytes,
    to_text,
)
from enmasse.wire.sasl.scram import HASHES, sign

_HEAD = """\
# Users of EnMasse. Passwords are not in here, but from the keys weak ones can be guessed: keep it to yourself.
# `enmasse user add|remove|list --users FILE` write it anew, without any further comments.
"""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_users(text: str, matcher_of: MatcherOf) -> Users:
    """Read a file of users.

    Args:
        text: the contents of the file.
        matcher_of: compiles patterns of addresses.

    Raises:
        UsersFileError: the file is invalid; the message says where and why.
    """
    try:
        document = yaml.load(text, Loader=_LOADER)  # noqa: S506  a safe loader, the quicker one if it is there
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise UsersFileError(f"no valid YAML{where}: {getattr(error, 'problem', None) or 'not readable'}") from None
    fields = _map("the file", {} if document is None else document, ("seed", "users"))
    users: list[User] = []
    known: set[tuple[str, str]] = set()
    certificates: dict[tuple[str, str], str] = {}
    for index, item in enumerate(_list("users", fields.get("users"))):
        user = _read_user(f"users[{index}]", item, matcher_of)
        if (user.space, user.name) in known:
            raise UsersFileError(f"users[{index}]: user {user.name!r} of space {user.space!r} occurs twice")
        known.add((user.space, user.name))
        for certificate in user.certificates:
            other = certificates.setdefault((user.space, certificate), user.name)
            if other != user.name:
                raise UsersFileError(
                    f"users[{index}]: certificate {certificate!r} belongs to user {other!r} already "
                    f"in space {user.space!r}"
                )
        users.append(user)
    return Users(users, _seed(fields.get("seed"), users))


def _seed(text: Any, users: Sequence[User]) -> bytes:
    if text is not None:
        return to_bytes("seed", text)
    # Without one, the server keys of all users serve as a secret.
    kept = hashlib.sha256()
    for user in users:
        for keys in user.keys.values():
            kept.update(keys.server)
    return sign("sha256", kept.digest(), b"seed")


def _read_user(where: str, item: Any, matcher_of: MatcherOf) -> User:
    fields = _map(where, item, ("name", "space", "uid", "credentials", "certificates", "authorization"))
    for needed in ("name", "space"):
        if not isinstance(fields.get(needed), str):
            raise UsersFileError(f"{where}.{needed}: a text is expected, not {shown(fields.get(needed))}")
    try:
        name, space = prepared_name(fields["name"]), space_name(fields["space"])
    except UsersFileError as error:
        raise UsersFileError(f"{where}: {error}") from None
    where = f"{where} ({name})"
    credentials = _map(f"{where}.credentials", fields.get("credentials") or {}, tuple(HASHES))
    keys = {
        mechanism: read_keys(f"{where}.credentials.{mechanism}", mechanism, credentials[mechanism])
        for mechanism in HASHES
        if mechanism in credentials
    }
    certificates = _texts(f"{where}.certificates", fields.get("certificates"))
    grants = [
        _read_grant(f"{where}.authorization[{index}]", grant)
        for index, grant in enumerate(_list(f"{where}.authorization", fields.get("authorization")))
    ]
    uid = fields.get("uid") or ""
    if not isinstance(uid, str):
        raise UsersFileError(f"{where}.uid: a text is expected, not {shown(uid)}")
    return User(name, space, Permissions(grants, matcher_of, name), keys, certificates, uid=uid)


def _read_grant(where: str, item: Any) -> Grant:
    fields = _map(where, item, ("operations", "addresses"))
    operations = _texts(f"{where}.operations", fields.get("operations"))
    for operation in operations:
        if operation not in OPERATIONS:
            raise UsersFileError(
                f"{where}.operations: {operation!r} is no operation; there are {', '.join(OPERATIONS)}"
            )
    addresses = _texts(f"{where}.addresses", fields.get("addresses"))
    for pattern in addresses:
        if problem := pattern_problem(pattern):
            raise UsersFileError(f"{where}.addresses: {problem}")
    if not operations:
        raise UsersFileError(f"{where}.operations: at least one is expected")
    if ADDRESS_OPERATIONS & set(operations) and not addresses:
        raise UsersFileError(f"{where}.addresses: at least one is expected; '#' stands for all")
    return Grant(operations, addresses)


def _map(where: str, value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsersFileError(f"{where}: fields are expected, not {shown(value)}")
    for key in value:
        if key not in names:
            raise UsersFileError(f"{where}: there is no field {key!r:.100}; there are {', '.join(names)}")
    return value


def _list(where: str, value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsersFileError(f"{where}: a list is expected, not {shown(value)}")
    return value


def _texts(where: str, value: Any) -> tuple[str, ...]:
    found = _list(where, value)
    for item in found:
        if not isinstance(item, str) or not item:
            raise UsersFileError(f"{where}: texts are expected, not {shown(item)}")
    return tuple(found)


def write_users(users: Sequence[User], seed: bytes) -> str:
    """Return the contents of a file of users."""
    document = {"seed": to_text(seed), "users": [_user_fields(user) for user in users]}
    text: str = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    return _HEAD + text


def _user_fields(user: User) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": user.name, "space": user.space}
    if user.uid:
        fields["uid"] = user.uid
    if user.keys:
        fields["credentials"] = {mechanism: key_fields(keys) for mechanism, keys in user.keys.items()}
    if user.certificates:
        fields["certificates"] = list(user.certificates)
    fields["authorization"] = [_grant_fields(grant) for grant in user.permissions.grants]
    return fields


def _grant_fields(grant: Grant) -> Mapping[str, Any]:
    addresses = {"addresses": list(grant.addresses)} if grant.addresses else {}
    return {"operations": list(grant.operations), **addresses}
