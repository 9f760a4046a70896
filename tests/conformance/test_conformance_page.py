"""The lists of clauses are sound, and the pages that are made from them are fresh."""

from __future__ import annotations

import pytest

from tests.conformance.clause_list import SPECIFICATIONS, Specification, load_reasons, load_sections, load_tests
from tests.conformance.clause_page import page

each_specification = pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda found: found.folder)


def names(specification: Specification) -> list[str]:
    return [found.name for section in load_sections(specification) for found in section.clauses]


def test_every_clause_that_a_test_names_is_in_a_list() -> None:
    assert set(load_tests()) - {name for found in SPECIFICATIONS for name in names(found)} == set()


@each_specification
def test_a_clause_without_a_test_has_a_reason_and_no_other(specification: Specification) -> None:
    listed, shown, reasons = set(names(specification)), set(load_tests()), load_reasons(specification)
    assert sorted(listed - shown - set(reasons)) == []
    assert sorted(shown & set(reasons)) == [], "these have a test by now"
    assert sorted(set(reasons) - listed) == [], "these are no clauses"


@each_specification
def test_no_clause_is_listed_twice(specification: Specification) -> None:
    listed = names(specification)
    assert len(listed) == len(set(listed)) > 100


@each_specification
def test_a_page_says_what_the_list_and_the_tests_say(specification: Specification) -> None:
    assert specification.page.read_text() == page(specification), "run `python -m tests.conformance.clause_page`"
