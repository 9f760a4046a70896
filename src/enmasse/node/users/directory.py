r"""The users of a node: those of the operator's file, and those declared through management, kept in its journal.

Rules:
1. The file is the operator's. A user in it precedes a declared one of the same name, and takes its certificate.
2. Declared users are not kept in memory: a login reads one record, however many users there are, and a node that
   starts reads none.
3. A declared user belongs to one space, and not to a later one of the same name.
4. Keys are stored, and reported to nobody but a control process that has lost them.

Records of the table of entities: ``u<name>`` is a user; ``c<certificate>\0<space>`` is the user that a name in a
certificate proves; ``k<space>`` has the mechanisms for which users of a space have keys, and what the check of a
password costs there; ``k`` alone has the seed of the keys of users that do not exist.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.identity.permissions import ADDRESS_OPERATIONS, ALL, MANAGE, VIEW, Permissions
from enmasse.identity.users import (
    DEFAULT_ITERATIONS,
    USUAL_COST,
    PasswordCost,
    ScramKeys,
    User,
    Users,
    decoy_keys,
    password_cost,
    to_bytes,
    to_text,
)
from enmasse.messaging.storage import Operation, Table
from enmasse.node.errors import EntityError
from enmasse.node.patterns import matcher_of
from enmasse.node.users.fields import SECRETS, USER_TYPE, checked_user, read_grants, read_scram, user_key

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.entity_records import Record

SEED_BYTES = 32
UID_BYTES = 16

MAX_LISTED = 256
"""The most users of one answer: a few milliseconds in which the node does nothing else."""

_STEP_BYTES = 64 << 10

_MAX_KEY_BYTES = 400
"""No record has a longer key, whatever name a client sends."""

_USER, _CLAIM, _KNOWN = b"u", b"c", b"k"

Done = Callable[[EntityError | None], None]


class StoredUsers:
    """The users of a node's spaces that are declared through management.

    Args:
        core: the core whose journal holds them.
        space_uid: returns the uid of a space by its name, or None if there is none.
        changed: called with the space and the name of a user that is changed or deleted.

    Attributes:
        removed: called with these if the user is deleted, or another one now.
        connectors_of: returns the names of a space's connectors.
    """

    def __init__(
        self, core: Core, space_uid: Callable[[str], str | None], changed: Callable[[str, str], None]
    ) -> None:
        self._core = core
        self._space_uid = space_uid
        self._changed = changed
        self.removed: Callable[[str, str], None] = lambda _space, _name: None
        self.connectors_of: Callable[[str], Container[str]] = lambda _space: ()
        self._seed = secrets.token_bytes(SEED_BYTES)
        self._has_stored_seed = False
        self._mechanisms: dict[str, set[str]] = {}
        self._costs: dict[str, PasswordCost] = {}
        self._unsaved: set[str] = set()
        """Spaces whose mechanisms are not on disk yet."""
        self._moving: dict[str, Record | None] = {}
        """Users as they will be once the changes under way are on disk."""
        self._claiming: dict[bytes, str | None] = {}
        """The users that certificates will prove then."""

    def load(self) -> None:
        """Read what the journal has of all users together: the seed and the mechanisms."""
        for key, value in self._scan(_KNOWN, _after(_KNOWN)):
            known = json.loads(value)
            if key == _KNOWN:
                self._seed, self._has_stored_seed = to_bytes("seed", known["seed"]), True
            else:
                space = key[1:].decode()
                self._mechanisms[space] = set(known["mechanisms"])
                if "cost" in known:
                    self._costs[space] = PasswordCost(*known["cost"])

    # Logins

    @property
    def is_empty(self) -> bool:
        """True if there are no users."""
        return next(self._scan(_USER, _after(_USER)), None) is None

    def find(self, space: str, name: str) -> User | None:
        """Return a user by name, or None."""
        record = self._stored(user_key(space, name))
        uid = self._space_uid(space)
        if record is None or uid is None or record.get("spaceUid", uid) != uid:
            return None
        if (record["space"], record["username"]) != (space, name):
            return None
        permissions = Permissions(read_grants(record), matcher_of, name)
        certificates = tuple(record.get("certificates", ()))
        return User(
            name,
            space,
            permissions,
            read_scram(record),
            certificates,
            uid=record.get("uid", ""),
            client_ids=record.get("clientIds", ""),
        )

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """Return the users that a certificate with these names proves, in a space or in any."""
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
        """Return the SCRAM mechanisms for which a user of a space has, or had, keys."""
        return self._mechanisms.get(space, set())

    def decoy_keys(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Return keys that no password fits, for a user that does not exist: always the same, like a user's own."""
        cost = self.password_cost(space)
        iterations = cost.iterations if cost.mechanism == mechanism else DEFAULT_ITERATIONS
        return decoy_keys(self._seed, mechanism, space, name, iterations)

    def password_cost(self, space: str) -> PasswordCost:
        """Return what the check of a password costs, or has cost, at most in a space."""
        return self._costs.get(space, USUAL_COST)

    # Changing

    def create(self, _entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Add a user; ``done`` is called once it can log in.

        Raises:
            EntityError: 400 what is wrong with the attributes, 409 there is one of this name, or its certificate
                proves another.
        """
        record = checked_user(name, attributes)
        if self._present(name) is not None:
            raise EntityError(409, f"{USER_TYPE} {name!r} exists already")
        record.setdefault("uid", secrets.token_hex(UID_BYTES))
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
        cost = (password_cost(read_scram(after)) if after else None) or self.password_cost(space)
        if space in self._costs:
            cost = max(cost, self._costs[space], key=lambda each: each.weight)
        if (mechanisms, cost) != (self.mechanisms(space), self._costs.get(space)) or space in self._unsaved:
            self._mechanisms[space], self._costs[space] = mechanisms, cost
            self._unsaved.add(space)
            known = json.dumps({"mechanisms": sorted(mechanisms), "cost": cost}).encode()
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
            if before is not None and (after is None or after.get("uid") != before.get("uid")):
                self.removed(space, username)
            done(None)

        self._core.store(operations, stored)

    def _claims(self, before: Record | None, after: Record | None) -> dict[bytes, str | None]:
        """Return the changes of the users that names in certificates prove, by key.

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
        """Forget the mechanisms of a deleted space."""
        self._costs.pop(space, None)
        if self._mechanisms.pop(space, None) is not None:
            self._core.store_in_time([Operation(Table.ENTITY, _KNOWN + space.encode(), None)])

    # Reading

    def read(self, _entity_type: str, name: str) -> dict[str, Any]:
        """Return a user's attributes without its secrets.

        Raises:
            EntityError: 404 there is none of this name.
        """
        return _reported(self._existing(name))

    def read_all(self, _entity_type: str, page: slice = slice(None)) -> list[dict[str, Any]]:
        """Return the users, or a page of them in the order of their names, as ``read`` does."""
        found = islice(self._scan(_USER, _after(_USER)), page.start, page.stop)
        return [_reported(json.loads(value)) for _, value in found]

    def list_after(self, _name: str, asked: Any) -> dict[str, Any]:
        """Return names, uids and revisions of the users after one in the order of names, as many as one answer has.

        Args:
            asked: ``after``, the name before the first; empty for all.
        """
        after = asked.get("after", "") if isinstance(asked, dict) else ""
        if not isinstance(after, str):
            raise EntityError(400, "after is the name of a user")
        first = _USER + after.encode() + b"\0" if after else _USER
        records = [json.loads(value) for _, value in islice(self._scan(first, _after(_USER)), MAX_LISTED)]
        return {
            "names": [record["name"] for record in records],
            "uids": [record.get("uid", "") for record in records],
            "revisions": [record.get("revision", "") for record in records],
        }

    def keys_of(self, name: str, _asked: Any) -> dict[str, Any]:
        """Return a user's keys by mechanism, for a control process that has lost what it once set.

        Raises:
            EntityError: 404 there is none of this name.
        """
        return dict(self._existing(name).get("scram", {}))

    def may(self, name: str, asked: Any) -> dict[str, Any]:
        """Return whether a user may do something, and by which of its permissions.

        Raises:
            EntityError: 404 there is none of this name, 400 the question is none.
        """
        given = asked if isinstance(asked, dict) else {}
        operation, address = given.get("operation"), given.get("address")
        if operation not in (*ADDRESS_OPERATIONS, VIEW, MANAGE) or operation == ALL or not isinstance(address, str):
            raise EntityError(400, "expected operation (send, recv, view or manage) and address")
        record = self._existing(name)
        user = self.find(record["space"], record["username"])
        if user is None:
            return {"allowed": False, "reason": "the user is of a former space of this name"}
        for grant in user.permissions.grants:
            alone = Permissions((grant,), matcher_of, user.name)
            if operation in ADDRESS_OPERATIONS:
                is_allowed = alone.cover(operation, address, self.connectors_of(record["space"]))
            else:
                is_allowed = alone.allow_any(operation)
            if is_allowed:
                words = (", ".join(grant.operations), ", ".join(grant.addresses))
                return {"allowed": True, "reason": " on ".join(word for word in words if word)}
        what = f"{operation} on {address}" if operation in ADDRESS_OPERATIONS else operation
        return {"allowed": False, "reason": f"no permission of the user has {what}"}

    def _existing(self, name: str) -> Record:
        record = self._present(name)
        if record is None:
            raise EntityError(404, f"there is no {USER_TYPE} {name!r}")
        return record

    def _present(self, name: str) -> Record | None:
        """Return a user as it will be once the changes under way are on disk."""
        return self._moving[name] if name in self._moving else self._stored(name)

    def _stored(self, name: str) -> Record | None:
        value = self._get(_USER + name.encode())
        record: Record | None = None if value is None else json.loads(value)
        return record

    def _get(self, key: bytes) -> bytes | None:
        return self._core.storage.get(Table.ENTITY, key) if len(key) <= _MAX_KEY_BYTES else None

    def _scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over records of the journal, read in steps."""
        while found := self._core.storage.scan(Table.ENTITY, first, last, _STEP_BYTES):
            yield from found
            first = found[-1][0] + b"\0"


def _claim_key(certificate: str, space: str) -> bytes:
    return _CLAIM + certificate.encode() + b"\0" + space.encode()


def _after(prefix: bytes) -> bytes:
    """Return the first key after all keys with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _reported(record: Record) -> dict[str, Any]:
    shown = {key: value for key, value in record.items() if key not in SECRETS}
    return {"type": USER_TYPE, "identity": record["name"], **shown, "mechanisms": sorted(record.get("scram", ()))}


class NodeUsers:
    """All users of a node, those of the file first.

    Args:
        stored: the declared users.

    Attributes:
        file: the users of the file, as it is now.
    """

    def __init__(self, stored: StoredUsers) -> None:
        self.file = Users()
        self._stored = stored

    @property
    def is_empty(self) -> bool:
        """True if there are no users."""
        return not len(self.file) and self._stored.is_empty

    def find(self, space: str, name: str) -> User | None:
        """Return a user by name, or None."""
        return self.file.find(space, name) or self._stored.find(space, name)

    def all(self, space: str, name: str) -> list[User]:
        """Return the users of a name: the one who comes in first, and a declared one that the file hides."""
        return [user for user in (self.file.find(space, name), self._stored.find(space, name)) if user is not None]

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """Return the users that a certificate with these names proves, in a space or in any."""
        given = list(names)
        listed = self.file.certified(given, space)
        spaces = {user.space for user in listed}
        others = self._stored.certified(given, space)
        return listed + [
            user for user in others if user.space not in spaces and self.file.find(user.space, user.name) is None
        ]

    def mechanisms(self, space: str) -> set[str]:
        """Return the SCRAM mechanisms for which a user of a space has keys."""
        return self.file.mechanisms(space) | self._stored.mechanisms(space)

    def decoy_keys(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Return keys that no password fits, for a user that does not exist: always the same, like a user's own."""
        is_stored = not self.file.mechanisms(space) and self._stored.mechanisms(space)
        source = self._stored if is_stored or not len(self.file) else self.file
        return source.decoy_keys(mechanism, space, name)

    def password_cost(self, space: str) -> PasswordCost:
        """Return what the check of a password costs at most in a space."""
        costs = [source.password_cost(space) for source in (self.file, self._stored) if source.mechanisms(space)]
        return max(costs, key=lambda cost: cost.weight, default=self.file.password_cost(space))
