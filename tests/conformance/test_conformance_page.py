"""The clause list is sound, and the page that is made from it is fresh."""

from __future__ import annotations

from tests.conformance.clause_list import load_reasons, load_sections, load_tests
from tests.conformance.clause_page import PAGE, page


def names() -> list[str]:
    return [found.name for section in load_sections() for found in section.clauses]


def test_every_clause_that_a_test_names_is_in_the_list() -> None:
    assert set(load_tests()) - set(names()) == set()


def test_every_clause_has_a_test_or_a_reason_why_not() -> None:
    listed, shown, reasons = set(names()), set(load_tests()), load_reasons()
    assert sorted(listed - shown - set(reasons)) == []
    assert sorted(shown & set(reasons)) == [], "these have a test by now"
    assert sorted(set(reasons) - listed) == [], "these are no clauses"


def test_the_page_says_what_the_list_and_the_tests_say() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.conformance.clause_page`"
