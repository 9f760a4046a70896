"""Forms of LIKE."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.selectors.evaluation import like


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "is_match"),
    [
        ("", "", "", True),
        ("", "", "a", False),
        ("%", "", "", True),
        ("%%", "", "abc", True),
        ("_", "", "", False),
        ("_", "", "a", True),
        ("_%_", "", "a", False),
        ("_%_", "", "ab", True),
        ("12%3", "", "123", True),
        ("12%3", "", "12993", True),
        ("12%3", "", "1234", False),
        ("l_se", "", "lose", True),
        ("l_se", "", "loose", False),
        ("a%a", "", "a", False),
        ("a%a", "", "aa", True),
        ("%ab%ab%", "", "xabyab", True),
        ("%ab%ab%", "", "xaby", False),
        ("%a_c%", "", "xxabc", True),
        ("%a_c%", "", "aacx", True),
        ("%a_c%d", "", "abdacd", False),
        ("\\_%", "\\", "_foo", True),
        ("\\_%", "\\", "bar", False),
        ("%\\%%", "\\", "50% off", True),
        ("%\\%%", "\\", "50 off", False),
        ("!!%", "!", "!x", True),
        ("a!b", "!", "ab", True),
        ("%%", "%", "%", True),
        ("__", "_", "_", True),
        (".*", "", "abc", False),
        ("a\nb%", "", "a\nb\nc", True),
    ],
)
def test_a_form_matches_what_it_describes(pattern: str, escape: str, text: str, is_match: bool) -> None:
    assert like(pattern, escape)(text) is is_match


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=12))
def test_forms_agree_with_regular_expressions(pattern: str, text: str) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(sign, sign) for sign in pattern)
    assert like(pattern)(text) is (re.fullmatch(expression, text) is not None)


@given(st.text("ab%_!", max_size=8), st.text("ab%_!", max_size=12))
def test_escaped_signs_stand_for_themselves(pattern: str, text: str) -> None:
    escaped = "".join("!" + sign for sign in pattern)
    assert like(escaped, "!")(text) is (text == pattern)
    assert like(f"%{escaped}%", "!")(text) is (pattern in text)


def test_a_form_made_to_keep_a_matcher_busy_is_answered_at_once() -> None:
    text = "a" * 50_000
    assert not like("%a" * 1_000 + "%b%c")(text)
    assert not like("%_a" * 500 + "%_b_%c")(text)
    assert not like("%" + "a_" * 1_000 + "b%c")(text + "c")
