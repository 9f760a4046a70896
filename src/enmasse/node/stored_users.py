r"""The users that a node was told of, kept in its journal and nowhere else.

Rules:
1. Nothing of a user is in memory: a login reads one record, however many users there are, and a node that
   starts reads none.
2. A user belongs to one space, and to no later one of the same name.
3. Keys go in, and are told to nobody but a control process that has lost them.

Records of the table of entities: ``u<name>`` is a user; ``c<certificate>\0<space>`` says whom a name in a
certificate proves; ``k<space>`` says for which mechanisms users of a space have keys; ``k`` alone holds the
seed of the keys of users that do not exist.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.identity.permissions import Permissions
from enmasse.identity.users import ScramKeys, User, keys_of_nobody
from enmasse.identity.verifiers import to_bytes, to_text
from enmasse.messaging.storage import Operation, Table
from enmasse.node.errors import EntityError
from enmasse.node.user_fields import SECRETS, USER_TYPE, checked_user, read_grants, read_scram, user_key
from enmasse.node.user_patterns import matcher_of

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.entity_fields import Record

__all__ = ["StoredUsers"]

SEED_BYTES = 32

MOST_LISTED = 256
"""Users that are told in one answer: a few milliseconds in which the node does nothing else."""

_STEP_BYTES = 64 << 10

_MOST_KEY_BYTES = 400
"""No record has a longer key, and a client may say any name."""

_USER, _CLAIM, _KNOWN = b"u", b"c", b"k"

Done = Callable[[EntityError | None], None]


class StoredUsers:
    """The users of a node's spaces.

    Args:
        core: whose journal holds them.
        space_uid: tells the uid of the space of a name; nothing if there is none.
        changed: hears of a space and the name of one of its users who is another now, or none.
    """

    def __init__(
        self, core: Core, space_uid: Callable[[str], str | None], changed: Callable[[str, str], None]
    ) -> None:
        self._core = core
        self._space_uid = space_uid
        self._changed = changed
        self._seed = secrets.token_bytes(SEED_BYTES)
        self._has_stored_seed = False
        self._mechanisms: dict[str, set[str]] = {}
        self._unsaved: set[str] = set()
        """Spaces whose mechanisms are not on disk yet."""
        self._moving: dict[str, Record | None] = {}
        """What users will be once the change on its way is on disk."""
        self._claiming: dict[bytes, str | None] = {}
        """Whom certificates will prove then."""

    def load(self) -> None:
        """Take up what the journal says of all users together."""
        for key, value in self._scan(_KNOWN, _after(_KNOWN)):
            known = json.loads(value)
            if key == _KNOWN:
                self._seed, self._has_stored_seed = to_bytes("seed", known["seed"]), True
            else:
                self._mechanisms[key[1:].decode()] = set(known["mechanisms"])

    # Who comes in

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return next(self._scan(_USER, _after(_USER)), None) is None

    def find(self, space: str, name: str) -> User | None:
        """A user by name."""
        record = self._stored(user_key(space, name))
        uid = self._space_uid(space)
        if record is None or uid is None or record.get("spaceUid", uid) != uid:
            return None
        if (record["space"], record["username"]) != (space, name):
            return None
        permissions = Permissions(read_grants(record), matcher_of, name)
        return User(name, space, permissions, read_scram(record), tuple(record.get("certificates", ())))

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """The users that a certificate with these names proves: in a space, or in any."""
        found: dict[tuple[str, str], User] = {}
        for name in names:
            first = _CLAIM + name.encode() + b"\0"
            if space is None:
                claims = list(self._scan(first, _after(first)))
            else:
                value = self._get(first + space.encode())
                claims = [] if value is None else [(first + space.encode(), value)]
            for key, value in claims:
                where = key[len(first) :].decode()
                user = self.find(where, json.loads(value)["user"])
                if user is not None and name in user.certificates:
                    found[user.space, user.name] = user
        return list(found.values())

    def mechanisms(self, space: str) -> set[str]:
        """The SCRAM mechanisms for which a user of a space has, or had, keys."""
        return self._mechanisms.get(space, set())

    def keys_of_nobody(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Keys that no password fits, for a user that does not exist: always the same, like a user's own."""
        return keys_of_nobody(self._seed, mechanism, space, name)

    # Changing

    def create(self, _entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Add a user; ``done`` is called once it can come in.

        Raises:
            EntityError: 400 what is wrong with the attributes, 409 there is one of this name, or its certificate
                proves another.
        """
        record = checked_user(name, attributes)
        if self._present(name) is not None:
            raise EntityError(409, f"{USER_TYPE} {name!r} exists already")
        self._store(name, None, record, done)

    def update(self, _entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Change some attributes of a user; null takes one away.

        Raises:
            EntityError: 400 what is wrong with the attributes, 404 there is none of this name, 409 its
                certificate proves another.
        """
        before = self._existing(name)
        record = checked_user(name, {**before, **attributes})
        self._store(name, before, record, done)

    def delete(self, _entity_type: str, name: str, done: Done) -> None:
        """Remove a user; its connections are closed.

        Raises:
            EntityError: 404 there is none of this name.
        """
        self._store(name, self._existing(name), None, done)

    def _store(self, name: str, before: Record | None, after: Record | None, done: Done) -> None:
        given = after or before
        assert given is not None
        space, username = given["space"], given["username"]
        claims = self._claims(before, after)
        operations = [
            Operation(Table.ENTITY, key, None if user is None else json.dumps({"user": user}).encode())
            for key, user in claims.items()
        ]
        value = None if after is None else json.dumps(after).encode()
        operations.append(Operation(Table.ENTITY, _USER + name.encode(), value))
        mechanisms = self.mechanisms(space) | set(after.get("scram", ()) if after else ())
        if mechanisms != self.mechanisms(space) or space in self._unsaved:
            self._mechanisms[space] = mechanisms
            self._unsaved.add(space)
            known = json.dumps({"mechanisms": sorted(mechanisms)}).encode()
            operations.append(Operation(Table.ENTITY, _KNOWN + space.encode(), known))
        if not self._has_stored_seed:
            operations.append(Operation(Table.ENTITY, _KNOWN, json.dumps({"seed": to_text(self._seed)}).encode()))
        self._moving[name] = after
        self._claiming |= claims

        def stored(reason: str | None) -> None:
            if self._moving.get(name) is after:
                self._moving.pop(name, None)
            for key, user in claims.items():
                if self._claiming.get(key) == user:
                    self._claiming.pop(key, None)
            if reason is not None:
                done(EntityError(503, f"{name!r} was not stored: {reason}"))
                return
            self._has_stored_seed = True
            if self._mechanisms.get(space) == mechanisms:
                self._unsaved.discard(space)
            self._changed(space, username)
            done(None)

        self._core.store(operations, stored)

    def _claims(self, before: Record | None, after: Record | None) -> dict[bytes, str | None]:
        """What changes of whom names in certificates prove, by key.

        Raises:
            EntityError: 409 one of them proves another user already.
        """
        former, latter = (set(record.get("certificates", ())) if record else set() for record in (before, after))
        claims: dict[bytes, str | None] = {}
        for certificate in sorted(latter - former):
            assert after is not None
            key = _claim_key(certificate, after["space"])
            if key in self._claiming:
                other = self._claiming[key]
            else:
                value = self._get(key)
                other = None if value is None else json.loads(value)["user"]
            if other not in (None, after["username"]):
                raise EntityError(409, f"certificate {certificate!r} proves user {other!r} already")
            claims[key] = after["username"]
        for certificate in sorted(former - latter):
            assert before is not None
            claims[_claim_key(certificate, before["space"])] = None
        return claims

    def space_closed(self, space: str) -> None:
        """A space is deleted: one of the same name begins anew."""
        if self._mechanisms.pop(space, None) is not None:
            self._core.store_in_time([Operation(Table.ENTITY, _KNOWN + space.encode(), None)])

    # Reading

    def read(self, _entity_type: str, name: str) -> dict[str, Any]:
        """One user's attributes, but for what is secret.

        Raises:
            EntityError: 404 there is none of this name.
        """
        return _told(self._existing(name))

    def read_all(self, _entity_type: str, page: slice = slice(None)) -> list[dict[str, Any]]:
        """The users, or some of them in the order of their names, as ``read`` gives them."""
        found = islice(self._scan(_USER, _after(_USER)), page.start, page.stop)
        return [_told(json.loads(value)) for _, value in found]

    def list_after(self, _name: str, asked: Any) -> dict[str, Any]:
        """Names, uids and revisions of the users that follow one in the order of names, as many as one answer has.

        Args:
            asked: ``after``, the name before the first; empty for all.
        """
        after = asked.get("after", "") if isinstance(asked, dict) else ""
        if not isinstance(after, str):
            raise EntityError(400, "after is the name of a user")
        first = _USER + after.encode() + b"\0" if after else _USER
        records = [json.loads(value) for _, value in islice(self._scan(first, _after(_USER)), MOST_LISTED)]
        return {
            "names": [record["name"] for record in records],
            "uids": [record.get("uid", "") for record in records],
            "revisions": [record.get("revision", "") for record in records],
        }

    def keys_of(self, name: str, _asked: Any) -> dict[str, Any]:
        """One user's keys by mechanism, for a control process that has lost them: it gave them.

        Raises:
            EntityError: 404 there is none of this name.
        """
        return dict(self._existing(name).get("scram", {}))

    def _existing(self, name: str) -> Record:
        record = self._present(name)
        if record is None:
            raise EntityError(404, f"there is no {USER_TYPE} {name!r}")
        return record

    def _present(self, name: str) -> Record | None:
        """A user as it will be once what is under way is on disk."""
        return self._moving[name] if name in self._moving else self._stored(name)

    def _stored(self, name: str) -> Record | None:
        value = self._get(_USER + name.encode())
        record: Record | None = None if value is None else json.loads(value)
        return record

    def _get(self, key: bytes) -> bytes | None:
        return self._core.storage.get(Table.ENTITY, key) if len(key) <= _MOST_KEY_BYTES else None

    def _scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Records of the journal, read in steps."""
        while found := self._core.storage.scan(Table.ENTITY, first, last, _STEP_BYTES):
            yield from found
            first = found[-1][0] + b"\0"


def _claim_key(certificate: str, space: str) -> bytes:
    return _CLAIM + certificate.encode() + b"\0" + space.encode()


def _after(prefix: bytes) -> bytes:
    """The first key beyond all that begin so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _told(record: Record) -> dict[str, Any]:
    told = {key: value for key, value in record.items() if key not in SECRETS}
    return {"type": USER_TYPE, "identity": record["name"], **told, "mechanisms": sorted(record.get("scram", ()))}
