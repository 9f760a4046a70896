"""Users that a node is told of: kept in its journal, found one by one, and never told."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.identity.permissions import RECV, SEND, VIEW
from enmasse.identity.users import USUAL_COST, ScramKeys, Users, key_fields, make_keys
from enmasse.messaging.storage import Table
from enmasse.node.errors import EntityError
from enmasse.node.users.directory import NodeUsers, StoredUsers
from enmasse.node.users.fields import USER_TYPE
from enmasse.storage.records import explain_bad_record
from enmasse.testing.ports import CoreHarness
from tests.unit.identity.people import FEW, SEED, person
from tests.unit.node.entities_scene import refused

KEYS = {
    mechanism: make_keys(mechanism, "secret", b"salt", FEW)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1")
}
"""A second's work, done once."""


def scram(*mechanisms: str) -> dict[str, Any]:
    return {mechanism: key_fields(KEYS[mechanism]) for mechanism in mechanisms or ("SCRAM-SHA-256", "SCRAM-SHA-512")}


class Desk:
    """Stored users over a storage in memory; spaces exist by name and uid."""

    def __init__(self, harness: CoreHarness | None = None) -> None:
        self.harness = harness or CoreHarness()
        self.uids = {"ns/shop": "s1", "ns/factory": "f1"}
        self.changed: list[tuple[str, str]] = []
        self.users = StoredUsers(
            self.harness.core, self.uids.get, lambda space, name: self.changed.append((space, name))
        )
        self.users.load()
        self.answers: list[Any] = []

    def create(self, name: str = "jo", space: str = "ns/shop", **attributes: Any) -> None:
        given = {"space": space, "spaceUid": self.uids[space], "username": name, "scram": scram(), **attributes}
        self.users.create(USER_TYPE, f"{space}.{name}", given, self.answers.append)

    def created(self, name: str = "jo", space: str = "ns/shop", **attributes: Any) -> None:
        self.create(name, space, **attributes)
        self.settle()

    def settle(self) -> None:
        self.harness.commit()
        assert self.answers
        assert not any(self.answers), self.answers
        self.answers.clear()

    def restarted(self) -> Desk:
        return Desk(self.harness.restarted())


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_user_is_found_once_it_is_on_disk_and_after_a_restart(desk: Desk) -> None:
    desk.create(authorization=[{"operations": ["send"], "addresses": ["in/${username}"]}, {"operations": ["view"]}])
    assert desk.users.find("ns/shop", "jo") is None
    desk.settle()
    for users in (desk.users, desk.restarted().users):
        found = users.find("ns/shop", "jo")
        assert found is not None
        assert found.keys == {mechanism: KEYS[mechanism] for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256")}
        assert found.permissions.allow(SEND, "in/jo")
        assert not found.permissions.allow(SEND, "in/bo")
        assert not found.permissions.allow(RECV, "in/jo")
        assert found.permissions.allow_any(VIEW)
        assert users.find("ns/factory", "jo") is None
        assert users.mechanisms("ns/shop") == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert users.mechanisms("ns/factory") == set()
    assert desk.changed == [("ns/shop", "jo")]


def test_a_user_of_a_space_that_went_is_none_of_a_later_one_of_that_name(desk: Desk) -> None:
    desk.created()
    del desk.uids["ns/shop"]
    assert desk.users.find("ns/shop", "jo") is None
    desk.uids["ns/shop"] = "s2"
    assert desk.users.find("ns/shop", "jo") is None


def test_an_older_client_is_served_only_where_a_user_has_keys_for_it(desk: Desk) -> None:
    desk.created()
    desk.created("old", scram=scram("SCRAM-SHA-1"))
    desk = desk.restarted()
    assert "SCRAM-SHA-1" in desk.users.mechanisms("ns/shop")
    desk.users.space_closed("ns/shop")
    desk.harness.commit()
    assert desk.restarted().users.mechanisms("ns/shop") == set()


def test_a_failed_commit_leaves_no_user_and_the_next_one_writes_what_it_lacked(desk: Desk) -> None:
    desk.create()
    desk.harness.fail()
    assert [answer.status for answer in desk.answers] == [503]
    desk.answers.clear()
    assert desk.users.find("ns/shop", "jo") is None
    desk.harness.advance(1)
    desk.created()
    nobody = desk.users.decoy_keys("SCRAM-SHA-256", "ns/shop", "x")
    again = desk.restarted().users
    assert again.find("ns/shop", "jo") is not None
    assert again.mechanisms("ns/shop") == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert again.decoy_keys("SCRAM-SHA-256", "ns/shop", "x") == nobody


def test_what_a_check_costs_in_a_space_is_known_after_a_restart(desk: Desk) -> None:
    assert desk.users.password_cost("ns/shop") == USUAL_COST
    desk.created("jo", scram={"SCRAM-SHA-256": key_fields(make_keys("SCRAM-SHA-256", "x", b"salt", 5_000))})
    desk.created("bo", scram={"SCRAM-SHA-512": key_fields(make_keys("SCRAM-SHA-512", "x", b"salt", 4_096))})
    desk.created("flo", scram={"SCRAM-SHA-256": key_fields(make_keys("SCRAM-SHA-256", "x", b"salt", 6_000))})
    for users in (desk.users, desk.restarted().users, NodeUsers(desk.users)):
        assert users.password_cost("ns/shop") == ("SCRAM-SHA-512", 4_096)
        assert users.password_cost("ns/other") == USUAL_COST
    file = NodeUsers(desk.users)
    file.file = Users([person("jo")], SEED)
    assert file.password_cost("ns/shop") == ("SCRAM-SHA-512", 4_096)


def test_keys_change_rights_change_and_a_user_goes(desk: Desk) -> None:
    desk.created()
    other: ScramKeys = make_keys("SCRAM-SHA-256", "other", b"salt", FEW)
    name = "ns/shop.jo"
    desk.users.update(USER_TYPE, name, {"scram": {"SCRAM-SHA-256": key_fields(other)}}, desk.answers.append)
    desk.users.update(
        USER_TYPE, name, {"authorization": [{"operations": ["recv"], "addresses": ["#"]}]}, desk.answers.append
    )
    desk.settle()
    found = desk.users.find("ns/shop", "jo")
    assert found is not None
    assert found.keys == {"SCRAM-SHA-256": other}
    assert found.permissions.allow(RECV, "orders")
    desk.users.delete(USER_TYPE, name, desk.answers.append)
    assert "there is no" in refused(404, lambda: desk.users.update(USER_TYPE, name, {}, desk.answers.append))
    desk.settle()
    assert desk.users.find("ns/shop", "jo") is None
    assert desk.users.is_empty
    assert desk.changed == [("ns/shop", "jo")] * 4
    assert "there is no" in refused(404, lambda: desk.users.read(USER_TYPE, name))


def test_one_name_is_one_user(desk: Desk) -> None:
    desk.create()
    assert "exists already" in refused(409, desk.create)
    desk.settle()
    assert "exists already" in refused(409, desk.create)
    desk.created(space="ns/factory")


def test_a_certificate_proves_one_user_of_a_space(desk: Desk) -> None:
    desk.create("card", scram={}, certificates=["card.example.com"])
    assert "proves user 'card' already" in refused(409, lambda: desk.create(certificates=["card.example.com"]))
    desk.settle()
    desk.created("card", "ns/factory", certificates=["card.example.com"])
    desk = desk.restarted()
    for names, space, found in (
        (["x", "card.example.com"], "ns/shop", [("ns/shop", "card")]),
        (["card.example.com"], None, [("ns/factory", "card"), ("ns/shop", "card")]),
        (["card.example"], None, []),
        (["card.example.com"], "ns/other", []),
        (["a" * 5000], "ns/shop", []),
    ):
        assert [(user.space, user.name) for user in desk.users.certified(names, space)] == found
    desk.users.update(USER_TYPE, "ns/shop.card", {"certificates": None}, desk.answers.append)
    desk.created(certificates=["card.example.com"])
    assert [user.name for user in desk.users.certified(["card.example.com"], "ns/shop")] == ["jo"]


def test_nobody_is_told_what_is_secret(desk: Desk) -> None:
    desk.created(uid="u1", generation=3, revision="r1")
    told = desk.users.read(USER_TYPE, "ns/shop.jo")
    assert told["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert (told["uid"], told["generation"], told["revision"]) == ("u1", 3, "r1")
    assert desk.users.read_all(USER_TYPE) == [told]
    for secret in (item[key] for item in scram().values() for key in ("salt", "storedKey", "serverKey")):
        assert secret not in repr(told)


def test_a_control_process_that_has_lost_keys_gets_them_back(desk: Desk) -> None:
    desk.created()
    assert desk.users.keys_of("ns/shop.jo", None) == scram()
    refused(404, lambda: desk.users.keys_of("ns/shop.nobody", None))


def test_users_are_listed_in_steps(desk: Desk) -> None:
    for number in range(600):
        desk.create(f"u{number:03}", scram={}, uid=f"id{number}", revision=f"r{number}")
    desk.settle()
    found: dict[str, str] = {}
    after = ""
    while names := (page := desk.users.list_after("", {"after": after}))["names"]:
        found |= dict(zip(names, page["revisions"], strict=True))
        after = names[-1]
    assert found == {f"ns/shop.u{number:03}": f"r{number}" for number in range(600)}
    assert [item["username"] for item in desk.users.read_all(USER_TYPE, slice(2, 4))] == ["u002", "u003"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"secret": "hunter2"}, "has no attribute 'secret'"),
        ({"space": "shop"}, "takes <namespace>/<space>"),
        ({"space": "ns/other"}, "is named 'ns/other.jo'"),
        ({"username": "a b"}, "cannot be a user's name"),
        ({"username": 7}, "username takes a string, not a number"),
        ({"scram": {"MD5": {}}}, "takes a map of SCRAM-SHA-512"),
        ({"scram": {"SCRAM-SHA-256": {"salt": "hunter2!"}}}, "scram.SCRAM-SHA-256.iterations"),
        ({"scram": "hunter2"}, "takes a map"),
        ({"certificates": "x"}, "takes a list"),
        ({"certificates": ["x" * 300]}, "1 to 253 bytes"),
        ({"certificates": ["a\0b"]}, "1 to 253 bytes"),
        ({"authorization": {}}, "takes a list"),
        ({"authorization": [{"operations": ["write"]}]}, "takes some of send"),
        ({"authorization": [{"operations": []}]}, "takes some of send"),
        ({"authorization": [{"operations": ["send"]}]}, "'#' stands for all addresses"),
        ({"authorization": [{"operations": ["send"], "addresses": ["a*b"]}]}, "wildcard is part of a word"),
        ({"authorization": [{"operations": ["send"], "addresses": ["a"] * 1001}]}, "at most 1000 patterns"),
        ({"generation": -1}, "whole number"),
    ],
)
def test_what_cannot_be_is_refused_without_telling_it(desk: Desk, attributes: dict[str, Any], message: str) -> None:
    told = refused(
        400,
        lambda: desk.users.create(
            USER_TYPE, "ns/shop.jo", {"space": "ns/shop", "username": "jo", **attributes}, desk.answers.append
        ),
    )
    assert message in told
    assert "hunter2" not in told


def test_a_client_may_say_any_name(desk: Desk) -> None:
    desk.created()
    for name in ("", "x" * 1000, "jo\0", "JO", "shop.jo", "*"):
        assert desk.users.find("ns/shop", name) is None
    assert desk.users.find("ns", "shop.jo") is None


def test_a_node_that_starts_reads_no_user(desk: Desk) -> None:
    for number in range(50):
        desk.create(f"u{number}", scram={})
    desk.settle()
    again = desk.harness.restarted()
    read: list[bytes] = []
    scan = again.storage.scan
    again.storage.scan = lambda table, first, *rest: read.append(first) or scan(table, first, *rest)  # type: ignore[method-assign, func-returns-value]
    Desk(again)
    assert read
    assert all(first.startswith(b"k") for first in read)


def test_the_operators_file_comes_first(desk: Desk) -> None:
    desk.created("jo", certificates=["jo.example.com"])
    desk.created("bo", certificates=["bo.example.com"])
    users = NodeUsers(desk.users)
    assert users.decoy_keys("SCRAM-SHA-256", "ns/shop", "x") == desk.users.decoy_keys("SCRAM-SHA-256", "ns/shop", "x")
    jo, flo = person("jo"), person("flo", certificates=["bo.example.com"])
    users.file = Users([jo, flo], SEED)
    assert users.find("ns/shop", "jo") is jo
    bo = users.find("ns/shop", "bo")
    assert bo is not None
    assert bo.certificates == ("bo.example.com",)
    assert users.certified(["jo.example.com"], "ns/shop") == []
    assert users.certified(["bo.example.com"], None) == [flo]
    assert users.decoy_keys("SCRAM-SHA-256", "ns/shop", "x") == users.file.decoy_keys("SCRAM-SHA-256", "ns/shop", "x")


def test_records_are_sound_to_the_tools_of_the_journal(desk: Desk) -> None:
    desk.created(certificates=["jo.example.com"])
    records = list(desk.harness.storage.scan_all(Table.ENTITY))
    assert len(records) == 4
    assert [explain_bad_record(bytes([Table.ENTITY]) + key, value) for key, value in records] == [None] * 4


def test_what_a_user_may_do_is_told_with_the_permission_that_allows_it(desk: Desk) -> None:
    grants = [{"operations": ["send"], "addresses": ["in/${username}", "orders/#"]}, {"operations": ["view"]}]
    desk.created(authorization=grants)

    def may(operation: str, address: str = "") -> Any:
        found = desk.users.may("ns/shop.jo", {"operation": operation, "address": address})
        return found["allowed"], found["reason"]

    assert may("send", "orders/1") == (True, "send on in/${username}, orders/#")
    assert may("send", "in/jo")[0]
    assert may("send", "in/bo") == (False, "no permission of the user has send on in/bo")
    assert may("recv", "orders/1")[0] is False
    assert may("view") == (True, "view")
    assert may("manage") == (False, "no permission of the user has manage")
    for wrong in ({"operation": "all", "address": "a"}, {"operation": "send"}, {}, None):
        with pytest.raises(EntityError, match="expected operation"):
            desk.users.may("ns/shop.jo", wrong)
    with pytest.raises(EntityError, match="there is no"):
        desk.users.may("ns/shop.no", {"operation": "send", "address": "a"})
