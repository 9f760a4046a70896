"""What is left of owners who are gone is ended, in parts, and nobody else's; also after a death in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enmasse.messaging.errors import AttachError
from enmasse.messaging.owners import ANONYMOUS, LOOKED_AT_ONCE
from enmasse.messaging.sessions.records import session_key, stored_sessions
from enmasse.messaging.sessions.sessions import OpenRequest
from enmasse.messaging.sessions.wills import WillMessage
from enmasse.messaging.storage import Operation, Table
from tests.unit.messaging.session_scene import Client, Scene, message


def has_gone(*owners: str) -> Any:
    return lambda owner, _user, _is_removed: owner not in owners


def of_name(scene: Scene, user: str) -> list[Any]:
    return [holding for holding in scene.space.holdings() if holding.user == user]


def test_a_user_who_was_removed_leaves_nothing_and_others_keep_theirs() -> None:
    scene = Scene()
    for number in range(LOOKED_AT_ONCE // 5):
        client = scene.client(f"anna-{number}", will=WillMessage("news", message("gone"), 10_000))
        client.subscribe("news")
        client.leave()
    other = scene.client("bert", user="bert")
    other.subscribe("news")
    other.leave()
    scene.space.owners.is_known = has_gone("user:anna")
    scene.space.owners.removed("anna")
    scene.space.owners.on_turn(0.0)
    assert 0 < len(of_name(scene, "anna")) < 2 * (LOOKED_AT_ONCE // 5), "others have their turn in between"
    scene.harness.commit()
    assert of_name(scene, "anna") == []
    scene.send("news", "a")
    after = scene.restart()
    assert [session.client_id for session in after.space.sessions] == ["bert"]
    assert after.client("bert", user="bert").bodies == ["a"]
    assert len(list(stored_sessions(after.harness.storage))) == 1


def test_what_is_left_until_the_connection_is_cut_goes_then() -> None:
    scene = Scene()
    client = scene.client("phone")
    scene.space.owners.is_known = has_gone("user:anna")
    scene.space.owners.removed("anna")
    scene.harness.commit()
    assert client.is_taken_over
    late = scene.client("desk")
    late.subscribe("news")
    late.leave()
    assert len(of_name(scene, "anna")) == 1
    scene.space.owners.cut("anna")
    scene.harness.commit()
    assert of_name(scene, "anna") == []


def test_the_next_of_the_name_gets_a_session_of_its_own_at_once() -> None:
    scene = Scene()
    client = scene.client("phone")
    client.subscribe("news")
    client.leave()
    scene.send("news", "secret")
    scene.space.owners.is_known = has_gone("user:anna")
    again = Client(scene, "phone").open(user="anna2")
    assert not again.session.is_present
    assert again.bodies == []
    assert scene.space.addresses["news"].sessions.logs == set()  # type: ignore[attr-defined]


def test_another_owner_of_the_same_name_is_refused_while_the_first_is_there() -> None:
    scene = Scene()
    scene.client("phone").leave()
    wish = {"client_id": "phone", "owner": "user:other", "user": "anna", "may_manage": False, "is_clean": False}
    with pytest.raises(AttachError, match="belongs to another user"):
        scene.space.sessions.open(
            OpenRequest(**wish, expiry_s=10, receive_maximum=1, may_receive=bool, may_send=bool),  # type: ignore[arg-type]
            Client(scene, "phone"),
            lambda _problem: None,
        )


def test_a_group_goes_on_until_the_last_of_its_owners_is_gone() -> None:
    scene = Scene()
    for user in ("anna", "bert"):
        client = scene.client(user, user=user)
        client.subscribe("$share/team/news")
        client.leave()
    scene.send("news", "a")
    for gone, groups in ((("user:anna",), 1), (("user:anna", "user:bert"), 0)):
        scene.space.owners.is_known = has_gone(*gone)
        scene.space.owners.review()
        scene.harness.commit()
        assert len(scene.space.sessions.groups) == groups
    scene.space.owners.is_known = has_gone()
    client = scene.client("new", user="anna")
    client.subscribe("$share/team/news")
    scene.send("news", "b")
    assert client.bodies == ["b"]


def test_a_death_in_between_ends_it_after_the_start() -> None:
    scene = Scene()
    client = scene.client("phone")
    client.subscribe("news")
    client.leave()
    after = scene.restart()
    after.space.owners.is_known = has_gone("user:anna")
    after.space.owners.review()
    after.harness.commit()
    assert len(after.space.sessions) == 0
    assert list(stored_sessions(after.restart().harness.storage)) == []


def test_what_cannot_be_ended_keeps_nothing_else_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for name in ("one", "two", "three"):
        scene.client(name).leave()
    sessions = list(scene.space.sessions)

    def fail() -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(type(sessions[1]), "disown", lambda self: fail() if self is sessions[1] else self.end())
    scene.space.owners.is_known = has_gone("user:anna")
    scene.space.owners.review()
    scene.harness.commit()
    assert [session.is_over for session in sessions] == [True, False, True]
    assert [name for name, _ in scene.harness.faults] == ["owners of ns/shop"]
    scene.harness.faults.clear()


def older(scene: Scene, log_id: int, **changed: Any) -> None:
    """Write a session as older versions did, without its owner."""
    (stored,) = [one for one in stored_sessions(scene.harness.storage) if one.log_id == log_id]
    assert stored.session is not None
    record = {name: value for name, value in stored.session.items() if name not in ("owner", "spaceUid")} | changed
    key = session_key(log_id, b"s")
    scene.harness.core.store_in_time([Operation(Table.SESSION, key, json.dumps(record).encode())])
    scene.harness.commit()


def test_what_an_older_version_stored_is_given_to_its_owner_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    client = scene.client("phone")
    client.leave()
    older(scene, client.session.log_id)
    monkeypatch.setattr("enmasse.messaging.owners._nobody", lambda user: f"user:{user} of the first start")
    after = scene.restart()
    after.harness.commit()
    monkeypatch.setattr("enmasse.messaging.owners._nobody", lambda user: f"user:{user} of a later one")
    later = after.restart()
    assert [session.owner for session in later.space.sessions] == ["user:anna of the first start"]


def test_where_a_provider_knows_the_users_it_is_the_firsts_of_the_name_who_comes() -> None:
    scene = Scene()
    clients = [scene.client(name) for name in ("phone", "desk")]
    for client in clients:
        client.leave()
        older(scene, client.session.log_id)
    after = scene.restart()
    with pytest.raises(AttachError, match="belongs to another user"):
        Client(after, "phone").open(user="bert")
    assert after.client("phone").session.is_present
    assert {session.client_id: session.owner for session in after.space.sessions} == {
        "phone": "user:anna",
        "desk": "",
    }
    later = after.restart()
    assert {session.client_id: session.owner for session in later.space.sessions} == {
        "phone": "user:anna",
        "desk": "",
    }


def test_what_was_left_without_a_login_is_never_a_users() -> None:
    scene = Scene()
    client = scene.client("phone")
    client.leave()
    older(scene, client.session.log_id, user="")
    after = scene.restart()
    assert [session.owner for session in after.space.sessions] == [ANONYMOUS]
    with pytest.raises(AttachError, match="belongs to another user"):
        Client(after, "phone").open()


def test_a_session_of_a_former_space_is_none_of_the_one_that_has_its_name() -> None:
    scene = Scene()
    scene.client("phone").leave()
    (stored,) = stored_sessions(scene.harness.storage)
    assert stored.is_of(scene.space.uid)
    assert not stored.is_of("another")
