"""The file of users: written and read back, and every mistake named."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from enmasse.identity.errors import UsersFileError
from enmasse.identity.permissions import RECV, SEND, Grant
from enmasse.identity.users import Users, prepared_name, space_name, user_name
from enmasse.identity.users_file import read_users, write_users
from tests.unit.identity.people import SEED, exactly, person


def test_what_is_written_is_read_back() -> None:
    users = [
        person("jo", grants=[Grant(("send", "recv"), ("orders", "stock")), Grant(("view",))]),
        person("jo", "ns/factory"),
        person("card", password=None, certificates=["card.example.com"]),
    ]
    text = write_users(users, SEED)
    found = read_users(text, exactly)
    assert found.seed == SEED
    for before, after in zip(users, found, strict=True):
        assert (before.name, before.space, before.keys, before.certificates, before.permissions.grants) == (
            after.name, after.space, after.keys, after.certificates, after.permissions.grants,
        )  # fmt: skip
    assert "secret" not in text
    assert write_users(list(found), found.seed) == text


def test_an_empty_file_has_no_users() -> None:
    for text in ("", "users:", "users: []", "# nothing"):
        assert len(read_users(text, exactly)) == 0


def test_without_a_seed_there_is_one_that_stays() -> None:
    text = yaml.safe_dump({"users": yaml.safe_load(write_users([person("jo")], SEED))["users"]})
    one, two = read_users(text, exactly), read_users(text, exactly)
    assert one.seed == two.seed != b""


def test_permissions_are_those_of_the_file() -> None:
    text = "users: [{name: jo, space: shop, authorization: [{operations: [send], addresses: [orders]}]}]"
    user = read_users(text, exactly).find("default/shop", "jo")
    assert user is not None
    assert user.permissions.allow(SEND, "orders")
    assert not user.permissions.allow(RECV, "orders")


KEYS: dict[str, Any] = {"iterations": 4096, "salt": "AAAA", "storedKey": "A" * 43 + "=", "serverKey": "A" * 43 + "="}


def one(**changes: Any) -> str:
    """A file of one user, with changes."""
    return yaml.safe_dump({"users": [{"name": "jo", "space": "shop", **changes}]})


def keys(**changes: Any) -> str:
    return one(credentials={"SCRAM-SHA-256": {**KEYS, **changes}})


def grant(**fields: Any) -> str:
    return one(authorization=[fields])


def test_the_file_for_mistakes_has_none_by_itself() -> None:
    assert len(read_users(keys(), exactly)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("users: [", "no valid YAML at line"),
        ("users: {a: b}", "users: a list is expected, not fields"),
        ("- jo", "the file: fields are expected, not a list"),
        ("people: []", "there is no field 'people'; there are seed, users"),
        ("users: [jo]", r"users\[0\]: fields are expected, not a text"),
        ("users: [{name: jo}]", r"users\[0\].space: a text is expected, not nothing"),
        ("users: [{space: shop}]", r"users\[0\].name: a text is expected"),
        ("users: [{name: 7, space: shop}]", r"users\[0\].name: a text is expected, not a number"),
        ("users: [{name: a b, space: shop}]", "cannot be a user's name"),
        ("users: [{name: '', space: shop}]", "cannot be a user's name"),
        ("users: [{name: jo, space: a/b/c}]", "NAMESPACE/SPACE is expected"),
        ("users: [{name: jo, space: shop}, {name: jo, space: default/shop}]", r"users\[1\]: user 'jo'.*occurs twice"),
        (
            "users: [{name: a, space: s, certificates: [x]}, {name: b, space: s, certificates: [x]}]",
            "certificate 'x' belongs to user 'a' already",
        ),
        ("seed: '!'", "seed: a text in base64 is expected"),
        (one(password="secret"), "there is no field 'password'; there are name, space, uid, credentials"),
        (one(credentials={"MD5": {}}), "there is no field 'MD5'; there are SCRAM-SHA-512"),
        (keys(iterations=100), "iterations: a number from 4096 to 1000000"),
        (keys(iterations=True), "iterations"),
        (keys(iterations="4096"), "iterations: .* not a text"),
        (keys(salt=""), "salt: at least one byte"),
        (keys(salt="*"), "salt: a text in base64"),
        (keys(storedKey="AAAA"), "storedKey: 32 bytes are expected, not 3"),
        (keys(serverKey=None), "serverKey: a text in base64"),
        (one(certificates="x"), "certificates: a list is expected"),
        (grant(operations=["write"], addresses=["a"]), "'write' is no operation; there are send, recv"),
        (grant(operations=[], addresses=["a"]), "operations: at least one"),
        (grant(operations=["send"]), "addresses: at least one is expected; '#' stands for all"),
        (grant(operations=["send"], addresses=["top*s"]), "a wildcard is part of a word"),
        (grant(operations=["send"], addresses=["a/#b"]), "a wildcard is part of a word"),
        (grant(operations=["send"], addresses=[7]), "addresses: texts are expected"),
        (grant(operations=["send"], addresses=["a" * 1025]), "at most 1024 characters"),
        ("users: !!python/object/apply:os.getcwd []", "no valid YAML"),
    ],
)
def test_every_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(UsersFileError, match=message):
        read_users(text, exactly)


def test_a_mistake_does_not_show_what_may_be_secret() -> None:
    for text in (keys(salt="hunter2!"), keys(iterations="hunter2"), one(credentials="hunter2")):
        with pytest.raises(UsersFileError) as caught:
            read_users(text, exactly)
        assert "hunter2" not in str(caught.value)


def test_names_are_brought_into_one_form() -> None:
    assert space_name("shop") == "default/shop"
    assert space_name("ns/shop") == "ns/shop"
    assert user_name("jo@example.com") == "jo@example.com"


@pytest.mark.parametrize("name", ["\uff49da", "jo\u0308", "i\u00adda", "\u2168", "\u017fam"])
def test_a_name_that_saslprep_makes_another_of_is_nobodys(name: str) -> None:
    with pytest.raises(UsersFileError, match="SASLprep"):
        user_name(name)
    # What stood in a file before goes on.
    [kept] = read_users(yaml.safe_dump({"users": [{"name": name, "space": "shop"}]}), exactly)
    assert kept.name == prepared_name(name) != name


def test_certificates_are_looked_up_in_a_space_or_in_all() -> None:
    users = Users(
        [person(name, space, None, certificates=["x"]) for name, space in (("a", "ns/one"), ("b", "ns/two"))], SEED
    )
    assert [user.name for user in users.certified(["x"], "ns/two")] == ["b"]
    assert [user.name for user in users.certified(["y", "x", "x"], None)] == ["a", "b"]
    assert users.certified([], None) == []
