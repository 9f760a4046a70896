"""What is a selector, and what is said of what is none."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.message.sections import encode_message
from enmasse.messaging.errors import SelectorError
from enmasse.messaging.selectors.grammar import MAX_DEPTH, parse
from enmasse.messaging.selectors.lexer import KEYWORDS, MAX_LENGTH
from enmasse.messaging.selectors.nodes import (
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Negative,
    Node,
    Not,
)
from enmasse.messaging.selectors.selector import compile_selector
from tests.support.chance import examples

MALFORMED = [
    ("", 1, "a name, a value or"),
    ("   ", 4, "the end"),
    ("one", 0, ""),
    ("1", 1, "a condition, found a number"),
    ("'a'", 1, "a condition, found a string"),
    ("one + 1", 1, "a condition, found a number"),
    ("one = 1 two", 9, "an operator or the end, found 'two'"),
    ("one =", 6, "a name, a value or"),
    ("one = 1)", 8, "an operator or the end"),
    ("(one = 1", 9, "an operator or )"),
    ("one = 1 AND", 12, "a name"),
    ("AND one = 1", 1, "a name, a value or (, found 'AND'"),
    ("one AND 5", 9, "a condition, found a number"),
    ("5 AND one", 1, "a condition, found a number"),
    ("one OR 'x'", 8, "a condition, found a string"),
    ("NOT 5", 5, "a condition, found a number"),
    ("NOT one + 5", 5, "a condition"),
    ("one = two = three", 11, "AND, OR or the end"),
    ("one < two < 3", 11, "AND, OR or the end"),
    ("one = NOT two", 7, "a name, a value or ("),
    ("one == 1", 6, "a name, a value or ("),
    ("one != 1", 5, "unequal is written <>"),
    ("one ! 1", 5, "means nothing here"),
    ("one ; 1", 5, "means nothing here"),
    ("one = #", 7, "means nothing here"),
    ("one < 'a'", 7, "a number, found a string"),
    ("'a' < one", 1, "a number, found a string"),
    ("one >= TRUE", 8, "a number, found a condition"),
    ("one + 'a' = 5", 7, "a number, found a string"),
    ("'a' + one = 5", 1, "a number, found a string"),
    ("-'a' = 5", 2, "a number, found a string"),
    ("-(one = 1) = 5", 2, "a number, found a condition"),
    ("one = -", 8, "a name, a value or ("),
    ("one = 'abc", 7, "no closing '"),
    ("one = 'abc''", 7, "no closing '"),
    ('"abc = 5', 1, 'no closing "'),
    ('"" = 5', 1, "empty"),
    ("one = 12abc", 7, "'12a' is no number"),
    ("one = 1.2.3", 7, "no number"),
    ("one = 0x", 7, "no number"),
    ("one = 089", 7, "no octal number"),
    ("one = 18446744073709551616", 7, "largest whole number"),
    ("one = 1e999", 7, "larger than any number"),
    ("one = 1L2", 7, "no number"),
    ("one IS 5", 8, "NULL or NOT NULL, found 5"),
    ("one IS NOT 5", 12, "NULL, found 5"),
    ("one NOT 5", 9, "BETWEEN, IN or LIKE"),
    ("one NOT", 8, "BETWEEN, IN or LIKE"),
    ("one BETWEEN 1", 14, "AND and the upper bound"),
    ("one BETWEEN 1 OR 2", 15, "AND and the upper bound"),
    ("one BETWEEN 'a' AND 'b'", 13, "a number, found a string"),
    ("'a' BETWEEN 1 AND 2", 1, "a number"),
    ("one IN 'a'", 8, "( and the values"),
    ("one IN ()", 9, "a name, a value"),
    ("one IN ('a' 'b')", 13, ", or )"),
    ("one IN ('a',)", 13, "a name, a value"),
    ("one IN (two)", 9, "only constants"),
    ("one LIKE two", 10, "a pattern in single quotes"),
    ("one LIKE 5", 10, "a pattern"),
    ("5 LIKE 'a'", 1, "a string, found a number"),
    ("one LIKE 'a' ESCAPE", 20, "one character"),
    ("one LIKE 'a' ESCAPE 'ab'", 21, "one character"),
    ("one LIKE 'a' ESCAPE ''", 21, "one character"),
    ("one LIKE 'a!' ESCAPE '!'", 10, "escapes nothing"),
    ("one ESCAPE 'a'", 5, "an operator or the end"),
    ("JMSPriorty = 4", 1, "JMSPriority"),
    ("one = 1 AND amqp.colour = 4", 13, "amqp.subject"),
    ("one." + " = 1", 4, "means nothing here"),
    ("." + "one = 1", 1, "means nothing here"),
    ("x" * (MAX_LENGTH + 1), MAX_LENGTH + 1, "are allowed"),
    ("(" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "levels deep"),
]


@pytest.mark.parametrize(("text", "position", "what"), MALFORMED, ids=[text[:40] for text, _, _ in MALFORMED])
def test_what_is_wrong_is_named_with_its_place(text: str, position: int, what: str) -> None:
    if not position:
        parse(text)
        return
    with pytest.raises(SelectorError) as error:
        compile_selector(text)
    assert error.value.position == position
    assert what in error.value.description
    assert f"at character {position}:" in error.value.description
    assert error.value.condition == "amqp:invalid-field"


def test_the_deepest_and_the_longest_selectors_can_be_applied() -> None:
    depth = MAX_DEPTH - 4
    deep = "(" * depth + "a = 1" + " OR b + 1 = 2 AND c = 1)" * depth
    parens = "(" * (MAX_DEPTH - 1) + "TRUE" + ")" * (MAX_DEPTH - 1)
    sums = "(1 + 2 * " * (MAX_DEPTH // 3 - 1) + "x" + ")" * (MAX_DEPTH // 3 - 1) + " > 0"
    payload = encode_message("", application_properties={"a": 1, "x": 3})
    for text in (deep, parens, sums):
        assert compile_selector(text).matches(payload)
    for unit, first in (("OR a = 1 ", "a = 2 "), ("AND a = 1 ", "a = 1 ")):
        text = first + unit * ((MAX_LENGTH - len(first)) // len(unit))
        assert compile_selector(text).matches(payload)
    assert compile_selector("a = 1" + "+0" * 2000).matches(payload)
    assert compile_selector("- " * 1000 + "a = 1").matches(payload)
    assert compile_selector("NOT " * 1000 + "a = 1").matches(payload)
    assert compile_selector("a IN (" + "2," * 2000 + "1)").matches(payload)


@pytest.mark.parametrize(
    "text",
    [
        "(" * (MAX_LENGTH // 2),
        "NOT (" * (MAX_LENGTH // 5),
        "-(" * (MAX_LENGTH // 2),
        "a OR b AND c = d + e * (" * 100,
        "a = (" * 700,
        "a BETWEEN (" * 300,
    ],
)
def test_nesting_without_end_is_refused_within_the_stack(text: str) -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(SelectorError, match="levels deep"):
        compile_selector(text)
    assert sys.getrecursionlimit() == limit


def test_keywords_are_keywords_in_any_case() -> None:
    assert parse("a Is nOt nUll aNd b lIKe 'x' eScape '!'") == parse("a IS NOT NULL AND b LIKE 'x' ESCAPE '!'")
    assert parse("tRUE") == Literal(value=True)


def test_signs_of_constants_are_part_of_them() -> None:
    assert parse("a = - - -5") == Comparison("=", Identifier("a"), Literal(-5))
    assert parse("a = +5") == Comparison("=", Identifier("a"), Literal(5))


names = st.from_regex(r"[A-Za-z_$][\w$]{0,6}(\.[\w$]{1,3})?", fullmatch=True).filter(
    lambda name: name.upper() not in KEYWORDS and not name.startswith(("JMS", "amqp."))
)
strings = st.text(max_size=8)
numbers = st.integers(-(2**64) + 1, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
identifiers = st.builds(Identifier, names) | st.builds(
    Identifier, st.text(min_size=1, max_size=8), st.just(value=True)
)
choices = st.builds(Literal, strings | numbers | st.booleans())


def arithmetic_of(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    steps = st.sampled_from(("+-", "*/")).flatmap(
        lambda signs: st.lists(st.tuples(st.sampled_from(signs), inner), min_size=1, max_size=3)
    )
    variable = inner.filter(lambda node: not isinstance(node, Literal))
    return st.builds(Arithmetic, inner, steps.map(tuple)) | st.builds(Negative, variable)


values: st.SearchStrategy[Node] = st.recursive(identifiers | st.builds(Literal, numbers), arithmetic_of, max_leaves=5)
patterns = st.text("ab%_'é", max_size=6)
simple: st.SearchStrategy[Node] = st.one_of(
    st.builds(Comparison, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), values, values),
    st.builds(Comparison, st.sampled_from(("=", "<>")), identifiers, choices),
    st.builds(Between, values, values, values, st.booleans()),
    st.builds(In, identifiers, st.lists(choices, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Like, identifiers, patterns, st.sampled_from(("", "!", "'")), st.booleans()).filter(
        lambda node: not node.escape or not node.pattern.endswith(node.escape)
    ),
    st.builds(IsNull, identifiers, st.booleans()),
    identifiers,
    st.builds(Literal, st.booleans()),
)


def conditions_of(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    operands: Any = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.builds(Not, inner) | st.builds(Logical, st.sampled_from(("AND", "OR")), operands)


conditions: st.SearchStrategy[Node] = st.recursive(simple, conditions_of, max_leaves=8)


@settings(max_examples=examples(40))
@given(conditions)
def test_a_tree_survives_being_written_and_read(tree: Node) -> None:
    assert parse(str(tree)) == tree


@settings(max_examples=examples(40))
@given(conditions)
def test_every_tree_can_be_applied_to_every_message(tree: Node) -> None:
    selector = compile_selector(str(tree))
    opposite = compile_selector(f"NOT {tree}")
    for properties in ({}, {"a": 1, "b": "x", "A": True, "_": 2.5}):
        payload = encode_message("", application_properties=properties)
        assert not (selector.matches(payload) and opposite.matches(payload))


WORDS = st.sampled_from(
    (*KEYWORDS, "a", "JMSType", "'x'", "'", '"q"', "5", "1.5", "(", ")", "=", "<>", "<", "+", "-", "*", "/", ",", "!")
)


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60))
def test_any_text_is_a_selector_or_refused_with_its_place(text: str) -> None:
    position = 1
    try:
        compile_selector(text).matches(encode_message("", application_properties={"a": 5}))
    except SelectorError as error:
        position = error.position
    assert 1 <= position <= len(text) + 1
