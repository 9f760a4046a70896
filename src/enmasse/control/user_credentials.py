"""What is kept of a user's password: keys to check it by, beside the user's object and never in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.identity.users import ScramKeys, make_keys
from enmasse.identity.verifiers import key_fields, read_keys
from enmasse.wire.amqp.scram import HASHES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ASIDE", "Credentials", "make_credentials"]

ASIDE: Final = "scram"
"""The name under which the store has them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys by mechanism.

    Attributes:
        id: another one whenever they change; says nothing about them.
        keys: by mechanism.
    """

    id: str
    keys: Mapping[str, ScramKeys] = field(repr=False)

    def pack(self) -> bytes:
        """Return the form in which they are kept."""
        return json.dumps({"id": self.id, "keys": self.told()}, separators=(",", ":")).encode()

    def told(self) -> dict[str, Any]:
        """Return the keys as a node is told them."""
        return {mechanism: key_fields(keys) for mechanism, keys in self.keys.items()}

    @staticmethod
    def id_of(kept: bytes) -> str:
        """Return the ``id`` of what ``pack`` has made."""
        found: str = json.loads(kept)["id"]
        return found

    @classmethod
    def unpack(cls, kept: bytes) -> Credentials:
        """Read what ``pack`` has made."""
        found = json.loads(kept)
        keys = found["keys"]
        return cls(
            found["id"],
            {
                mechanism: read_keys(mechanism, mechanism, keys[mechanism])
                for mechanism in HASHES
                if mechanism in keys
            },
        )


def make_credentials(
    password: str, mechanisms: tuple[str, ...], random: Callable[[int], bytes], known: Credentials | None = None
) -> Credentials:
    """Make the keys of a password; slow on purpose, about 10 ms for each mechanism.

    Args:
        password: any text.
        mechanisms: which keys are wanted.
        random: gives that many fresh unguessable bytes.
        known: keys of this very password, which are kept as far as they are wanted.

    Raises:
        RemoteError: the password contains what no password may contain.
    """
    former: Mapping[str, ScramKeys] = known.keys if known else {}
    keys = {name: former.get(name) or make_keys(name, password, random(16)) for name in mechanisms}
    return Credentials(random(16).hex(), keys)
