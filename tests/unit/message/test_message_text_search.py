"""A text is found in messages, wherever it may stand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from enmasse.client import Message
from enmasse.message.text_search import TextSearch

ORDER = Message(
    "Two Lamps für Köln",
    subject="Order",
    to="shop/orders",
    message_id=UUID("12345678-1234-5678-1234-56789abcdeff"),
    correlation_id=4711,
    group_id="G-7",
    properties={"colour": "Red", "n": 42, "paid": True, "rate": 1e-05, "note": None, "raw": b"caf\xc3\xa9"},
    annotations={"x-opt-origin": "south", "x-opt-id": "secret-name"},
)


@pytest.mark.parametrize(
    "words",
    [
        "lamps", "LAMPS FÜR", "köln", "order", "shop/ord", "9abcdeff", "4711", "g-7", "colour=red", "red", "42",
        "n=42", "true", "paid=True", "1e-05", "none", "café", "raw=caf", "x-opt-origin=SOUTH", "south", "s f", "",
    ],
)  # fmt: skip
def test_a_text_is_found_in_any_case_where_a_message_has_it(words: str) -> None:
    assert TextSearch(words).matches(ORDER.encode())


@pytest.mark.parametrize(
    "words", ["lampsf", "43", "false", "order shop", "secret-name", "x-opt-id", "red42", "Straße"]
)
def test_what_is_not_in_a_message_is_not_found(words: str) -> None:
    assert not TextSearch(words).matches(ORDER.encode())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"raw \xff bytes", "raw"),
        (b"raw \xff bytes", "\ufffd"),
        ([1, "two", None], "'two'"),
        ([1, "two", None], "two"),
        ({"a": {"b": "deep"}}, "'b': 'deep'"),
        ({"a": {"b": "deep"}}, "DEEP"),
        (12.5, "12.5"),
        (float("inf"), "inf"),
        ("İzmir", "i"),
        ("Straße", "STRAßE"),
        ("300 \N{KELVIN SIGN}", "300 k"),
        ("x=y", "x=y"),
    ],
)
def test_bodies_of_every_sort_are_searched(body: Any, words: str) -> None:
    assert TextSearch(words).matches(Message(body).encode())


def test_what_is_no_message_has_no_text() -> None:
    assert not TextSearch("a").matches(b"a")
    assert not TextSearch("a=b").matches(b"\x00\x53\x77\xa1\xff")
