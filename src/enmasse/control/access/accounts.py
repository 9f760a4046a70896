"""Accounts of people and programs that use the API, their passwords and their tokens.

Rules:
1. No password and no token is stored: argon2id hashes [RFC 9106] of the former, which are slow to guess from, and
   SHA-256 of the latter, which are random and so cannot be guessed.
2. A token has the rights that its account has now: the account's groups count, and it ends with the account. One
   that is made with another token ends no later than that one, and with it: a stolen one begets nothing that stays.
3. The file is SQLite, readable by its owner alone. The control process and a command may use it at once;
   every call is a transaction of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from enmasse.control.errors import ResourceExistsError, ResourceNotFoundError
from enmasse.databases.checksums import connect, protect
from enmasse.errors import ConfigError
from enmasse.identity.rbac import ADMINISTRATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

MIN_PASSWORD_CHARACTERS = 8
"""[NIST SP 800-63B 5.1.1]: length counts, composition does not."""

MAX_PASSWORD_BYTES = 1024
"""People do not type more, and hashing megabytes would be a denial of service."""


class WebPasswords:
    """Hashes and checks passwords; both take about 50 ms and 64 MiB, so not on the event loop.

    Args:
        hasher: with its cost; by default the second recommendation of RFC 9106.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._dummy_hash = ""

    def hash(self, password: str) -> str:
        """Return the hash of a password.

        Raises:
            ConfigError: when it is too short or too long.
        """
        if len(password) < MIN_PASSWORD_CHARACTERS:
            raise ConfigError(
                f"the password is too short: {MIN_PASSWORD_CHARACTERS} characters are expected at least"
            )
        if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
            raise ConfigError(f"the password is too long: {MAX_PASSWORD_BYTES} bytes are expected at most")
        return self._hasher.hash(password)

    def is_right(self, kept: str, password: str) -> bool:
        """Check a password; an account without one takes as long and fails."""
        if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
            return False
        if not self._dummy_hash:
            self._dummy_hash = self._hasher.hash(secrets.token_urlsafe())
        try:
            return self._hasher.verify(kept or self._dummy_hash, password) and bool(kept)
        except (VerificationError, InvalidHashError):
            return False


TOKEN_PREFIX = "enm_"  # noqa: S105  # by which people and scanners know one that has leaked

_SECRET_BYTES = 32
_ID_BYTES = 5
_FORMAT = 4
_BUSY_S = 2.0
_USED_EVERY_S = 60  # the last use of a token is recorded this exactly; more would be a write per request
_MAX_TOKENS = 1_000  # of one account; ended ones make room
_WARN_S = 7 * 86_400

TOKEN_S = 90 * 86_400
"""The lifetime of a token for which no other is named."""

BY_SESSION = "session"
"""The proof with which a token was made in the console, or by `enmasse login`."""

_SESSIONS = """
CREATE TABLE IF NOT EXISTS sessions (
    hash BLOB PRIMARY KEY, id TEXT NOT NULL, requester TEXT NOT NULL, password BLOB,
    began REAL NOT NULL, used REAL NOT NULL, host TEXT NOT NULL, agent TEXT NOT NULL
) WITHOUT ROWID"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE accounts (
    name TEXT PRIMARY KEY, groups TEXT NOT NULL, password TEXT NOT NULL, created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, account TEXT NOT NULL, note TEXT NOT NULL,
    created INTEGER NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL,
    made_by TEXT NOT NULL DEFAULT '', parent TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX tokens_of_account ON tokens (account);
{_SESSIONS};
PRAGMA user_version = {_FORMAT};
COMMIT;
"""
_SINCE_FORMAT_1 = ("made_by", "parent")
_REVOKE = """
WITH RECURSIVE below (id) AS (
    VALUES (?) UNION SELECT tokens.id FROM tokens JOIN below ON tokens.parent = below.id
)
DELETE FROM tokens WHERE id IN below
"""
_SESSION_COLUMNS = "hash, id, requester, password, began, used, host, agent"
_COLUMNS = "id, account, note, created, expires, used, made_by, parent"


@dataclass(frozen=True, slots=True)
class Account:
    """A person or program that may use the API.

    Attributes:
        name: by which role bindings name its user.
        groups: of which it is a member.
        has_password: whether it may log in with one; else tokens are the only way.
        created: seconds since 1970 UTC.
    """

    name: str
    groups: tuple[str, ...]
    has_password: bool
    created: int

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "username": self.name,
            "groups": list(self.groups),
            "hasPassword": self.has_password,
            "created": _time(self.created),
        }


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; times are seconds since 1970 UTC, 0 is never.

    Attributes:
        id: names it, and is no secret.
        account: its owner.
        note: the purpose, in its owner's words.
        created: the time at which it was made.
        expires: the time at which it expires.
        used: the time at which it was used last, to the minute.
        made_by: the proof that it was made with: ``session``, ``token``, ``certificate`` or ``operator``; empty: a
            version that did not record it made it.
        parent: the token that it was made with, and ends with; empty: there is none.
    """

    id: str
    account: str
    note: str
    created: int
    expires: int
    used: int
    made_by: str = ""
    parent: str = ""

    def ends_soon(self, now: float) -> bool:
        """Return whether its last tenth has begun, and at most its last week."""
        return self.expires > 0 and self.expires - now < min((self.expires - self.created) / 10, _WARN_S)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "id": self.id,
            "account": self.account,
            "note": self.note,
            "created": _time(self.created),
            "expires": _time(self.expires),
            "lastUsed": _time(self.used),
            "madeBy": self.made_by or None,
            "parent": self.parent or None,
        }


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token: the only time that its secret is shown."""

    token: Token
    secret: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with the secret."""
        return self.token.to_dict() | {"token": self.secret}

    def __repr__(self) -> str:
        """Leave the secret out, for logs and traces."""
        return f"NewToken({self.token!r})"


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session of a browser as it outlives the process; times are seconds since 1970 UTC.

    Attributes:
        key: the hash of its secret.
        id: names it, and is no secret.
        requester: the name of the person who has logged in.
        password: the hash of the hash of the account's password, with which the session ends, or of
            the operator's token.
        began: the time at which it began.
        used: the time at which it was used last, to the minute.
        host: the host from which it was begun.
        agent: the browser, by its own word.
    """

    key: bytes
    id: str
    requester: str
    password: bytes | None
    began: float
    used: float
    host: str
    agent: str


class Accounts:
    """The accounts of one installation, with their tokens and the sessions of browsers.

    Args:
        path: the file; made when there is none, with its directory.
        now: gives seconds since 1970 UTC.

    Raises:
        ConfigError: when the file cannot be used.
    """

    def __init__(self, path: Path, *, now: Callable[[], float]) -> None:
        self._now = now
        self._path = path
        try:
            for directory in (path.parent.parent, path.parent):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = connect(path, timeout=_BUSY_S)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{path} cannot be opened: {error}") from None
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, name: str, *, password_hash: str, groups: tuple[str, ...] = ()) -> Account:
        """Add an account.

        Args:
            name: letters, digits and ``._@-``.
            password_hash: the hash as ``WebPasswords`` makes it; empty: no password will do.
            groups: names in the same form, or ``system:masters``.

        Raises:
            ConfigError: when a name cannot be one.
            ResourceExistsError: when there is one of this name.
        """
        _check_name(name)
        for group in groups:
            if group != ADMINISTRATORS:
                _check_name(group)
        created = int(self._now())
        with self._writing():
            try:
                self._database.execute(
                    "INSERT INTO accounts VALUES (?, ?, ?, ?)", (name, " ".join(groups), password_hash, created)
                )
            except sqlite3.IntegrityError:
                raise ResourceExistsError("account", "", name) from None
        return Account(name, groups, bool(password_hash), created)

    def find(self, name: str) -> Account | None:
        """Return an account, None when there is none of this name."""
        row = self._one("SELECT name, groups, password <> '', created FROM accounts WHERE name = ?", name)
        return None if row is None else _account(row)

    def all(self) -> list[Account]:
        """Return all accounts by name."""
        with self._reading():
            rows = self._database.execute(
                "SELECT name, groups, password <> '', created FROM accounts ORDER BY name"
            ).fetchall()
        return [_account(row) for row in rows]

    def remove(self, name: str) -> None:
        """Remove an account with its tokens.

        Raises:
            ResourceNotFoundError: when there is none of this name.
        """
        with self._writing():
            if not self._database.execute("DELETE FROM accounts WHERE name = ?", (name,)).rowcount:
                raise ResourceNotFoundError("account", "", name)
            for token in self._database.execute("SELECT id FROM tokens WHERE account = ?", (name,)).fetchall():
                self._database.execute(_REVOKE, token)

    def password_of(self, name: str) -> str:
        """Return the hash of an account's password; empty when there is none."""
        row = self._one("SELECT password FROM accounts WHERE name = ?", name)
        return "" if row is None else str(row[0])

    def set_password(self, name: str, password_hash: str) -> None:
        """Give an account another password.

        Raises:
            ResourceNotFoundError: when there is none of this name.
        """
        with self._writing():
            changed = self._database.execute(
                "UPDATE accounts SET password = ? WHERE name = ?", (password_hash, name)
            ).rowcount
            if not changed:
                raise ResourceNotFoundError("account", "", name)

    def create_token(
        self, account: str, *, note: str = "", seconds: int = TOKEN_S, made_by: str = "operator", parent: str = ""
    ) -> NewToken:
        """Make a token.

        Args:
            account: its owner.
            note: the purpose; 100 characters at most.
            seconds: its lifetime; 0: until it is revoked.
            made_by: the proof that it is made with.
            parent: the token that it is to end with at the latest; empty: none.

        Raises:
            ConfigError: when the note cannot be kept, or there are too many tokens.
            ResourceNotFoundError: when there is no such account.
        """
        if len(note) > 100 or not note.isprintable():
            raise ConfigError("the note of a token is a line of at most 100 characters")
        now = int(self._now())
        secret, token_id = new_secret(), secrets.token_hex(_ID_BYTES)
        expires = now + seconds if seconds else 0
        with self._writing():
            self._database.execute("DELETE FROM tokens WHERE account = ? AND expires BETWEEN 1 AND ?", (account, now))
            if self._database.execute("SELECT 1 FROM accounts WHERE name = ?", (account,)).fetchone() is None:
                raise ResourceNotFoundError("account", "", account)
            (count,) = self._database.execute("SELECT count(*) FROM tokens WHERE account = ?", (account,)).fetchone()
            if count >= _MAX_TOKENS:
                raise ConfigError(f"account {account} has {count} tokens, as many as it may: revoke some")
            if parent:
                above = self._database.execute("SELECT expires FROM tokens WHERE id = ?", (parent,)).fetchone()
                if above is None:
                    raise ResourceNotFoundError("token", "", parent)
                expires = min(expires or above[0], above[0] or expires)
            made = Token(token_id, account, note, now, expires, 0, made_by, parent)
            self._database.execute(
                f"INSERT INTO tokens ({_COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # a constant
                (*astuple(made), hash_token(secret)),
            )
        return NewToken(made, secret)

    def tokens(self, account: str | None = None) -> list[Token]:
        """Return the tokens of an account, or all of them, oldest first."""
        with self._reading():
            rows = self._database.execute(
                f"SELECT {_COLUMNS} FROM tokens WHERE ? IS NULL OR account = ? ORDER BY created, id",  # noqa: S608  # a constant
                (account, account),
            ).fetchall()
        return [Token(*row) for row in rows]

    def revoke_token(self, token_id: str, *, account: str | None = None) -> None:
        """Revoke a token, with those that were made with it.

        Args:
            token_id: names it.
            account: the required owner; None: any.

        Raises:
            ResourceNotFoundError: when there is none.
        """
        with self._writing():
            found = self._database.execute(
                "SELECT 1 FROM tokens WHERE id = ? AND (? IS NULL OR account = ?)", (token_id, account, account)
            )
            if found.fetchone() is None:
                raise ResourceNotFoundError("token", "", token_id)
            self._database.execute(_REVOKE, (token_id,))

    def end_tokens(self, account: str, ids: Collection[str] | None = None, *, but: str = "") -> list[Token]:
        """Revoke tokens of an account, with those that were made with them, and return them.

        Args:
            account: their owner.
            ids: the ids of the tokens; others than the account's are left out. None: those made by sessions.
            but: the id of one that stays unless it is in ``ids``; empty: none does.
        """
        found = [
            token
            for token in self.tokens(account)
            if (token.id in ids if ids is not None else token.made_by == BY_SESSION and token.id != but)
        ]
        with self._writing():
            for token in found:
                self._database.execute(_REVOKE, (token.id,))
        return found

    def find_token(self, secret: str) -> tuple[Account, Token] | None:
        """Return the account of a token, and the token, None if it is not valid; record its use."""
        now = int(self._now())
        digest = hash_token(secret)
        row = self._one(
            "SELECT name, groups, password <> '', accounts.created,"
            " id, account, note, tokens.created, expires, used, made_by, parent"
            " FROM tokens JOIN accounts ON accounts.name = tokens.account"
            " WHERE hash = ? AND (expires = 0 OR expires > ?)",
            digest,
            now,
        )
        if row is None:
            return None
        token = Token(*row[4:])
        if now - token.used >= _USED_EVERY_S:
            with self._writing():
                self._database.execute("UPDATE tokens SET used = ? WHERE hash = ?", (now, digest))
        return _account(row[:4]), token

    def sessions(self) -> list[KeptSession]:
        """Return the sessions that were kept, the oldest first."""
        with self._reading():
            rows = self._database.execute(
                f"SELECT {_SESSION_COLUMNS} FROM sessions ORDER BY began"  # noqa: S608  # a constant
            ).fetchall()
        return [KeptSession(*row) for row in rows]

    def keep_session(self, session: KeptSession) -> None:
        """Keep a session, so that it outlives this process; one of the same hash is replaced."""
        with self._writing():
            self._database.execute(
                f"REPLACE INTO sessions ({_SESSION_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # a constant
                astuple(session),
            )

    def use_session(self, key: bytes, used: float) -> None:
        """Keep the time at which a session was used last."""
        with self._writing():
            self._database.execute("UPDATE sessions SET used = ? WHERE hash = ?", (used, key))

    def forget_session(self, key: bytes) -> None:
        """Forget a session, by the hash of its secret."""
        with self._writing():
            self._database.execute("DELETE FROM sessions WHERE hash = ?", (key,))

    def _prepare(self) -> None:
        with self._reading():
            self._database.execute("PRAGMA journal_mode = WAL")
            (found,) = self._database.execute("PRAGMA user_version").fetchone()
            if found > _FORMAT:
                raise ConfigError(f"{self._path} was written by a newer version of EnMasse: update this one")
            if not found:
                self._database.executescript(_SCHEMA)
        if found == 1:
            self._add_columns()
        with self._reading():
            self._database.execute(_SESSIONS)  # which formats before 4 had not
            protect(self._database)
            if found < _FORMAT:
                self._database.execute(f"PRAGMA user_version = {_FORMAT}")

    def _add_columns(self) -> None:
        with self._writing():
            (found,) = self._database.execute("PRAGMA user_version").fetchone()
            if found == 1:  # no other process has done it meanwhile
                for column in _SINCE_FORMAT_1:
                    self._database.execute(f"ALTER TABLE tokens ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
                self._database.execute(f"PRAGMA user_version = {_FORMAT}")

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self._reading(), closing(self._database.execute(query, values)) as found:
            row: tuple[Any, ...] | None = found.fetchone()
            return row

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(f"{self._path} cannot be used: {error}") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise


def hash_token(secret: str) -> bytes:
    """Return the hash of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def new_secret() -> str:
    """Return a token that cannot be guessed."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def _time(seconds: int) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None


def _account(row: tuple[Any, ...]) -> Account:
    name, groups, has_password, created = row
    return Account(name, tuple(groups.split()), bool(has_password), created)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot name an account or a group: 1 to 64 letters, digits and any of ._@- are expected, "
            "beginning with a letter or digit"
        )
