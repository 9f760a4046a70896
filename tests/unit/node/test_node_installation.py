"""A journal says to which installation it belongs, and is given to another one only by who names the first."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.node.management.installation import INSTALLATION_TYPE, Installation
from tests.unit.node.entities_scene import Node


def installation(node: Node, now: str = "2026-01-01T00:00:00Z") -> Installation:
    found = Installation(node.harness.core, lambda: now)
    found.load()
    return found


def test_a_journal_keeps_the_first_id_that_it_gets() -> None:
    node, answers = Node(), list[EntityError | None]()
    found = installation(node)
    assert (found.id, found.read_all(INSTALLATION_TYPE)) == ("", [])
    found.create(INSTALLATION_TYPE, "one", {}, answers.append)
    assert (found.id, answers) == ("", [])  # not before it is on disk
    node.harness.commit()
    assert (found.id, answers) == ("one", [None])
    found.create(INSTALLATION_TYPE, "one", {}, answers.append)
    with pytest.raises(EntityError, match="belongs to installation 'one'"):
        found.create(INSTALLATION_TYPE, "two", {}, answers.append)
    assert installation(node).read(INSTALLATION_TYPE, "one")["since"] == "2026-01-01T00:00:00Z"


def test_a_journal_is_given_to_another_one_by_who_names_the_present_one() -> None:
    node, answers = Node(), list[EntityError | None]()
    found = installation(node)
    found.create(INSTALLATION_TYPE, "one", {}, answers.append)
    node.harness.commit()
    with pytest.raises(EntityError, match="not to 'other'"):
        found.update(INSTALLATION_TYPE, "other", {"id": "two"}, answers.append)
    for wrong in ({}, {"id": ""}, {"id": 7}, {"id": "x" * 65}):
        with pytest.raises(EntityError, match="1 to 64 letters"):
            found.update(INSTALLATION_TYPE, "one", wrong, answers.append)
    with pytest.raises(EntityError, match="always belongs"):
        found.delete(INSTALLATION_TYPE, "one", answers.append)
    later = installation(node, "2027-01-01T00:00:00Z")
    later.update(INSTALLATION_TYPE, "one", {"id": "two"}, answers.append)
    node.harness.commit()
    assert answers == [None, None]
    again = installation(node)
    assert (again.id, again.read(INSTALLATION_TYPE, "")["since"]) == ("two", "2027-01-01T00:00:00Z")


def test_log_numbers_are_drawn_from_what_the_installation_leases_once_that_is_on_disk() -> None:
    node = Node()
    answers = list[Any]()
    found = installation(node)
    found.create(INSTALLATION_TYPE, "one", {}, answers.append)
    node.space()
    node.address("first", "queue")
    found.lease("one", {"ranges": [[1, 3]], "given": 9}, answers.append)
    assert answers == [None]
    node.harness.commit()
    told = answers.pop()
    assert (told["nextLog"], told["logRanges"], told["logsGiven"]) == (2, [[1, 3]], 9)
    node.address("second", "queue")
    asked = {"space": "ns/shop", "address": "third", "addressType": "queue"}
    with pytest.raises(EntityError, match="control, which leases them, has not given it more yet") as caught:
        node.entities.create(ADDRESS_TYPE, "ns/third", asked, answers.append)
    assert caught.value.status == 503
    again = node.restarted()
    found = installation(again)
    assert found.read(INSTALLATION_TYPE, "one")["logRanges"] == []
    found.lease("one", {"ranges": [[40, 50]], "given": 60}, answers.append)
    again.harness.commit()
    again.address("third", "queue")
    assert again.entities.declared["ns/third"]["log"] == 40
    bodies: list[Any] = [None, {}, {"ranges": [[1]], "given": 1}, {"ranges": [["a", 2]], "given": 1}, {"ranges": []}]
    for wrong in bodies:
        with pytest.raises(EntityError, match="list of pairs"):
            found.lease("one", wrong, answers.append)
    with pytest.raises(EntityError, match="belongs to installation 'one'"):
        found.lease("two", {"ranges": [], "given": 1}, answers.append)
    with pytest.raises(EntityError, match="overlaps"):
        found.lease("one", {"ranges": [[45, 55]], "given": 60}, answers.append)
