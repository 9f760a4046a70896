"""Accounts and tokens, and what is kept of them."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from enmasse.control.access.accounts import Accounts, WebPasswords
from enmasse.control.errors import ResourceExistsError, ResourceNotFoundError
from enmasse.databases.checksums import connect, protect
from enmasse.errors import ConfigError

PASSWORDS = WebPasswords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(tmp_path: Path, clock: Clock) -> Iterator[Accounts]:
    with Accounts(tmp_path / "access.db", now=clock) as found:
        yield found


def test_neither_passwords_nor_tokens_are_kept(accounts: Accounts, tmp_path: Path) -> None:
    accounts.add("tina", password_hash=PASSWORDS.hash("correct horse"))
    secret = accounts.create_token("tina").secret
    assert secret.startswith("enm_")
    assert len(secret) == 4 + 43  # 256 bits
    accounts.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"$argon2id$" in kept
    assert hashlib.sha256(secret.encode()).digest() in kept
    assert secret.encode() not in kept
    assert secret[4:].encode() not in kept
    assert b"correct horse" not in kept
    assert stat.S_IMODE((tmp_path / "access.db").stat().st_mode) == 0o600


def test_a_password_is_right_or_not_and_nobody_has_none() -> None:
    kept = PASSWORDS.hash("correct horse")
    assert PASSWORDS.is_right(kept, "correct horse")
    assert not PASSWORDS.is_right(kept, "wrong horse")
    assert not PASSWORDS.is_right("", "correct horse")
    assert not PASSWORDS.is_right("no hash at all", "correct horse")
    assert not PASSWORDS.is_right(kept, "x" * 1025)
    assert PASSWORDS.hash("correct horse") != kept


@pytest.mark.parametrize("password", ["short", "x" * 1025])
def test_a_password_of_no_sensible_length_is_refused(password: str) -> None:
    with pytest.raises(ConfigError):
        PASSWORDS.hash(password)


def test_a_token_is_worth_what_its_account_is(accounts: Accounts) -> None:
    accounts.add("tina", password_hash="", groups=("blue", "green"))
    secret = accounts.create_token("tina", note="laptop").secret
    known = accounts.find_token(secret)
    assert known is not None
    found, _ = known
    assert (found.name, found.groups, found.has_password) == ("tina", ("blue", "green"), False)
    accounts.remove("tina")
    accounts.add("tina", password_hash="")
    assert accounts.find_token(secret) is None


def test_a_token_ends_when_its_time_is_over(accounts: Accounts, clock: Clock) -> None:
    accounts.add("tina", password_hash="")
    secret = accounts.create_token("tina", seconds=60).secret
    clock.now += 59
    assert accounts.find_token(secret) is not None
    clock.now += 1
    assert accounts.find_token(secret) is None


def test_a_token_ends_when_it_is_revoked_by_its_owner_alone(accounts: Accounts) -> None:
    accounts.add("tina", password_hash="")
    made = accounts.create_token("tina")
    with pytest.raises(ResourceNotFoundError):
        accounts.revoke_token(made.token.id, account="mallory")
    accounts.revoke_token(made.token.id, account="tina")
    assert accounts.find_token(made.secret) is None


def test_the_last_use_of_a_token_is_told_to_the_minute(accounts: Accounts, clock: Clock) -> None:
    accounts.add("tina", password_hash="")
    secret = accounts.create_token("tina").secret
    assert accounts.tokens()[0].used == 0
    accounts.find_token(secret)
    clock.now += 59
    accounts.find_token(secret)
    assert accounts.tokens("tina")[0].used == 1_000
    clock.now += 1
    accounts.find_token(secret)
    assert accounts.tokens("tina")[0].used == 1_060


def test_no_token_is_worth_anything_that_was_not_made_here(accounts: Accounts) -> None:
    accounts.add("tina", password_hash="")
    made = accounts.create_token("tina")
    for wrong in ("", "enm_", made.secret[:-1], made.secret + "A", made.token.id, "\ud800"):
        assert accounts.find_token(wrong) is None


def test_the_secret_of_a_token_is_not_in_its_representation(accounts: Accounts) -> None:
    accounts.add("tina", password_hash="")
    made = accounts.create_token("tina")
    assert made.secret not in repr(made)


@pytest.mark.parametrize("name", ["", "system:masters", "oidc:tina", "a b", "-x", "x" * 65, "tina\n"])
def test_an_account_cannot_have_the_name_of_somebody_else(accounts: Accounts, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name an account"):
        accounts.add(name, password_hash="")


def test_an_account_exists_once(accounts: Accounts) -> None:
    accounts.add("tina", password_hash="")
    with pytest.raises(ResourceExistsError, match="account 'tina' exists already"):
        accounts.add("tina", password_hash="")
    for act in (lambda: accounts.remove("tom"), lambda: accounts.create_token("tom")):
        with pytest.raises(ResourceNotFoundError, match="there is no account 'tom'"):
            act()


def test_what_an_older_version_stored_goes_on(accounts: Accounts, tmp_path: Path) -> None:
    accounts.add("tina", password_hash="")
    secret = accounts.create_token("tina", note="laptop", made_by="session").secret
    accounts.close()
    with closing(connect(tmp_path / "access.db", timeout=1)) as older:
        older.executescript(
            "CREATE TABLE former (id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, account TEXT NOT NULL,"
            " note TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL)"
            " WITHOUT ROWID; INSERT INTO former SELECT id, hash, account, note, created, expires, used FROM tokens;"
            " DROP TABLE tokens; ALTER TABLE former RENAME TO tokens;"
            " PRAGMA user_version = 1"
        )
        protect(older)
    for _ in range(2):
        with Accounts(tmp_path / "access.db", now=lambda: 2_000.0) as again:
            known = again.find_token(secret)
            assert known is not None
            assert (known[1].note, known[1].made_by, known[1].parent) == ("laptop", "", "")
            assert again.end_tokens("tina") == []  # nobody knows by what it was made


def test_a_token_for_another_ends_with_the_account_of_that_which_made_it(accounts: Accounts) -> None:
    for name in ("ann", "tina"):
        accounts.add(name, password_hash="")
    first = accounts.create_token("ann", seconds=0)
    below = accounts.create_token("tina", seconds=60, parent=first.token.id)
    assert below.token.expires == 1_060
    accounts.remove("ann")
    assert accounts.find_token(below.secret) is None


def test_a_command_may_change_accounts_while_the_server_uses_them(accounts: Accounts, tmp_path: Path) -> None:
    with Accounts(tmp_path / "access.db", now=lambda: 2_000.0) as other:
        other.add("tina", password_hash="")
    assert accounts.find("tina") is not None


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "access.db").write_text("this is no database, and long enough to be looked at as one" * 20)
    with pytest.raises(ConfigError, match="cannot be used"):
        Accounts(tmp_path / "access.db", now=lambda: 0.0)
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(ConfigError, match="newer version"):
        Accounts(tmp_path / "newer.db", now=lambda: 0.0)
