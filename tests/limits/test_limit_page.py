"""Each limit is shown in each protocol or has a reason, and the page that is made from the tests' marks is fresh."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.limits.limit_list import LIMITS, PROTOCOLS, REASONS, ROOT, TOLD, load_tests
from tests.limits.limit_page import PAGE, page

CELLS = {(limit, protocol) for limit in LIMITS for protocol in PROTOCOLS}


def test_every_mark_is_of_a_limit_and_a_protocol_that_there_are() -> None:
    assert sorted(set(load_tests()) - CELLS) == []


def test_a_limit_has_a_test_in_each_protocol_or_a_reason_and_never_both() -> None:
    shown = set(load_tests())
    assert sorted(CELLS - shown - set(REASONS)) == []
    assert sorted(shown & set(REASONS)) == [], "these have a test by now"
    assert all(REASONS.values())


def test_what_a_client_is_told_of_a_limit_is_listed_for_every_protocol_that_has_it() -> None:
    for limit in LIMITS:
        told = {name.partition(" ")[0] for name in TOLD[limit]}
        has = {protocol.partition("/")[0] for protocol in PROTOCOLS if (limit, protocol) not in REASONS}
        assert told == has - {"websocket"}


def test_every_mark_in_the_text_of_a_test_is_found() -> None:
    """One on a class, or on a function that is no test, would be on no test that is collected."""

    def written() -> Iterator[str]:
        for path in (ROOT / "tests").rglob("test_*.py"):
            yield from (
                f"{path.relative_to(ROOT)}"
                for _ in re.findall(r"^ *@pytest\.mark\.limit\(", path.read_text(), re.MULTILINE)
            )

    found = {(test, limit) for (limit, _), tests in load_tests().items() for test in tests}
    assert sorted(written()) == sorted(test.partition("::")[0] for test, _ in found)


def test_the_page_says_what_the_marks_say() -> None:
    assert PAGE.read_text() == page(), "run `make reference`"
