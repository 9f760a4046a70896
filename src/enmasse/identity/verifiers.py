"""Keys as they are written down: in the file of users, in control's store, in a node's journal."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any

from enmasse.identity.errors import UsersFileError
from enmasse.identity.users import ScramKeys
from enmasse.wire.amqp.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS

__all__ = ["key_fields", "read_keys", "shown", "to_bytes", "to_text"]

_FIELDS = ("iterations", "salt", "storedKey", "serverKey")


def key_fields(keys: ScramKeys) -> dict[str, Any]:
    """Keys as fields of a document."""
    return {
        "iterations": keys.iterations,
        "salt": to_text(keys.salt),
        "storedKey": to_text(keys.stored),
        "serverKey": to_text(keys.server),
    }


def read_keys(where: str, mechanism: str, item: Any) -> ScramKeys:
    """Keys of a document's fields.

    Args:
        where: what the fields are called in messages.
        mechanism: of ``HASHES``.
        item: the fields.

    Raises:
        UsersFileError: they are no keys; no value is told, it may be a secret.
    """
    if not isinstance(item, Mapping) or not all(isinstance(key, str) for key in item):
        raise UsersFileError(f"{where}: fields are expected, not {shown(item)}")
    for key in item:
        if key not in _FIELDS:
            raise UsersFileError(f"{where}: there is no field {key!r:.100}; there are {', '.join(_FIELDS)}")
    iterations = item.get("iterations")
    if (
        not isinstance(iterations, int)
        or isinstance(iterations, bool)
        or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS
    ):
        raise UsersFileError(
            f"{where}.iterations: a number from {MIN_ITERATIONS} to {MAX_ITERATIONS} is expected, "
            f"not {shown(iterations)}"
        )
    salt, stored, server = (to_bytes(f"{where}.{key}", item.get(key)) for key in _FIELDS[1:])
    size = hashlib.new(HASHES[mechanism]).digest_size
    for key, value in (("storedKey", stored), ("serverKey", server)):
        if len(value) != size:
            raise UsersFileError(f"{where}.{key}: {size} bytes are expected, not {len(value)}")
    if not salt:
        raise UsersFileError(f"{where}.salt: at least one byte is expected")
    return ScramKeys(iterations, salt, stored, server)


def to_text(data: bytes) -> str:
    """Bytes in base64."""
    return b64encode(data).decode("ascii")


def to_bytes(where: str, value: Any) -> bytes:
    """Bytes of base64.

    Raises:
        UsersFileError: it is none.
    """
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        pass
    # The value may be a secret in the wrong place.
    raise UsersFileError(f"{where}: a text in base64 is expected")


def shown(value: Any) -> str:
    """What stands there, without its contents: they may be secret."""
    kinds = {dict: "fields", list: "a list", str: "a text", int: "a number", float: "a number", type(None): "nothing"}
    return kinds.get(type(value), type(value).__name__)
