"""The outcome matrix is complete, and the page that is made from its tests is fresh."""

from __future__ import annotations

from collections import Counter

from enmasse.messaging.address_types import ADDRESS_TYPES
from enmasse.node import protocols
from tests.outcomes.outcome_cells import PROTOCOLS, SITUATIONS, TYPES
from tests.outcomes.outcome_page import PAGE, load_cells, page


def test_every_type_and_protocol_has_its_column() -> None:
    assert set(ADDRESS_TYPES) <= set(TYPES)
    assert set(protocols.PROTOCOLS) == set(PROTOCOLS)


def test_every_cell_is_proven_by_exactly_one_test() -> None:
    found = Counter((item.protocol, item.address_type, item.situation) for item, _ in load_cells())
    wanted = {
        (protocol, kind, situation)
        for protocol, kinds in PROTOCOLS.items()
        for kind in kinds
        for situation in SITUATIONS
    }
    assert sorted(wanted - set(found)) == []
    assert [place for place, times in found.items() if times > 1] == []


def test_every_test_tells_its_cell() -> None:
    assert all(item.text and item.test.startswith("test_") for item, _ in load_cells())


def test_the_page_says_what_the_tests_say() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.outcomes.outcome_page`"
