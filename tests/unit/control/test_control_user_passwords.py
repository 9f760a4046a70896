"""Passwords of messaging users: taken out of what is written, made into keys once, and never seen again."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import UnfinishedWriteError
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control.store.writes import finish, finish_here
from enmasse.control.users.passwords import ASIDE, CREDENTIALS, SCRAM_SHA_1, Credentials, UserPasswords
from enmasse.identity.passwords import is_password_of
from enmasse.model.kinds.users import MessagingUser
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.control.store.port import Document

SECRET = "correct horse"


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def make_user(
    password: str | None = SECRET, *, annotations: dict[str, str] | None = None, **spec: Any
) -> MessagingUser:
    authentication = {"type": "password"} if password is None else {"type": "password", "password": base64(password)}
    user = decode(
        {
            "apiVersion": "user.enmasse.io/v1beta1",
            "kind": "MessagingUser",
            "metadata": {"name": "shop.jo", "namespace": "default", "annotations": annotations or {}},
            "spec": {"username": "jo", "authentication": authentication, **spec},
        }
    )
    assert isinstance(user, MessagingUser)
    return user


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path / "resources.db") as opened:
        yield opened


@pytest.fixture
def desk(registry: Registry) -> Registry:
    registry.add_admission(UserPasswords())
    return registry


def credentials(store: ResourceStore, document: Document) -> Credentials:
    kept = store.aside(document["metadata"]["uid"], ASIDE)
    assert kept is not None
    return Credentials.unpack(kept)


def test_keys_are_put_aside_and_the_password_is_nowhere(desk: Registry, store: ResourceStore, tmp_path: Any) -> None:
    applied = json.dumps({"kind": "MessagingUser", "spec": {"authentication": {"password": base64(SECRET)}}})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    stored = finish_here(lambda: desk.create(make_user(annotations=annotations)))
    assert stored["spec"]["authentication"] == {"type": "password"}
    kept = json.loads(stored["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    assert kept == {"kind": "MessagingUser", "spec": {"authentication": {}}}
    keys = credentials(store, stored).keys
    assert set(keys) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert is_password_of(keys, SECRET)
    assert len({item.salt for item in keys.values()}) == 2
    store.close()
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert SECRET.encode() not in data
        assert base64(SECRET).encode() not in data


def test_the_same_password_changes_nothing_and_another_one_changes_the_keys(
    desk: Registry, store: ResourceStore
) -> None:
    stored = finish_here(lambda: desk.create(make_user()))
    before, version = credentials(store, stored), store.version
    assert finish_here(lambda: desk.replace(make_user())) == stored
    assert finish_here(lambda: desk.replace(make_user(None))) == stored
    assert (credentials(store, stored), store.version) == (before, version)
    changed = finish_here(lambda: desk.replace(make_user("another")))
    after = credentials(store, stored)
    told = [item["metadata"]["annotations"][CREDENTIALS] for item in (stored, changed)]
    assert told == [before.id, after.id]
    assert after.id != before.id
    assert is_password_of(after.keys, "another")
    assert not is_password_of(after.keys, SECRET)
    assert store.version > version


def test_keys_for_older_clients_are_made_of_the_next_password_where_that_is_wanted(
    desk: Registry, store: ResourceStore
) -> None:
    stored = finish_here(lambda: desk.create(make_user()))
    before = credentials(store, stored)
    finish_here(lambda: desk.replace(make_user(annotations={SCRAM_SHA_1: "true"})))
    after = credentials(store, stored)
    assert set(after.keys) - set(before.keys) == {"SCRAM-SHA-1"}
    assert {name: after.keys[name] for name in before.keys} == dict(before.keys)


def test_who_proves_itself_otherwise_has_no_keys_any_more(desk: Registry, store: ResourceStore) -> None:
    stored = finish_here(lambda: desk.create(make_user()))
    finish_here(lambda: desk.replace(make_user(authentication={"type": "federated"})))
    assert store.aside(stored["metadata"]["uid"], ASIDE) is None


def test_two_users_with_one_password_have_different_keys(desk: Registry, store: ResourceStore) -> None:
    found = []
    for name in ("shop.jo", "shop.bo"):
        user = make_user()
        user = user.model_copy(update={"metadata": user.metadata.model_copy(update={"name": name})})
        found.append(credentials(store, finish_here(lambda user=user: desk.create(user))))  # type: ignore[misc]  # bound
    assert {key.salt for key in found[0].keys.values()}.isdisjoint(key.salt for key in found[1].keys.values())


def test_slow_work_is_done_by_a_thread_and_not_by_the_event_loop(desk: Registry, store: ResourceStore) -> None:
    with pytest.raises(UnfinishedWriteError) as unfinished:
        desk.create(make_user())
    assert store.version == 0
    threads = []
    work = unfinished.value.work

    def note_and_work() -> None:
        threads.append(threading.current_thread())
        work()

    unfinished.value.work = note_and_work
    first = True

    def write() -> Document:
        nonlocal first
        if first:
            first = False
            raise unfinished.value
        return desk.create(make_user())

    stored = asyncio.run(finish(write))
    assert is_password_of(credentials(store, stored).keys, SECRET)
    assert threads
    assert threading.main_thread() not in threads


def test_a_dry_run_writes_nothing(desk: Registry, store: ResourceStore) -> None:
    version = store.version
    document = finish_here(lambda: desk.create(make_user(), dry_run=True))
    assert "password" not in document["spec"]["authentication"]
    assert store.version == version
    assert store.aside(document["metadata"]["uid"], ASIDE) is None


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"password": "bell\a"}, "spec.authentication.password"),
        ({"password": None, "authentication": {"type": "certificate", "subject": "x" * 300}}, "at most 253 bytes"),
        ({"authorization": [{"operations": ["send"], "addresses": ["a#b"]}]}, "wildcard is part of a word"),
        (
            {"authorization": [{"operations": ["send"], "addresses": ["in/${username}*"]}]},
            "a wildcard follows a name",
        ),
    ],
)
def test_what_no_node_would_take_is_refused_at_once(desk: Registry, user: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidResourceError, match=message):
        desk.create(make_user(**user))


@pytest.mark.parametrize("password", ["hunter2", 7, ["hunter2"], {"a": "hunter2"}, "aHVudGVyMg==" * 200])
def test_a_password_that_is_none_is_not_told(password: Any) -> None:
    document = {
        "apiVersion": "user.enmasse.io/v1beta1",
        "kind": "MessagingUser",
        "metadata": {"name": "shop.jo", "namespace": "default"},
        "spec": {"username": "jo", "authentication": {"type": "password", "password": password}},
    }
    with pytest.raises(InvalidResourceError) as refusal:
        decode(document)
    assert "password" in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert "got '" not in str(refusal.value)
    assert "got 7" not in str(refusal.value)


def test_nobody_sees_the_password_by_looking_at_the_object() -> None:
    assert base64(SECRET) not in repr(make_user())
