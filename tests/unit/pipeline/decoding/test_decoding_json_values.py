"""Values of JSON, made up: each comes out as it was sent, or is bad for a reason, at every depth alike."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.model.sql.ddl import parse_ddl
from enmasse.pipeline.decoding.json_documents import VALUES, json_problem, read_json
from enmasse.pipeline.decoding.json_rows import rows_reader
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}

DIGITS = st.from_regex(r"-?(0|[1-9][0-9]{0,24})([.][0-9]{1,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
NEAR_BOUNDS = st.builds(
    lambda bits, off, sign, end: f"{sign * (1 << bits) + off}{end}",
    st.sampled_from((7, 15, 31, 53, 63, 64)),
    st.integers(-2, 2),
    st.sampled_from((-1, 1)),
    st.sampled_from(("", ".0", ".5", "e0")),
)
NUMBERS = DIGITS | NEAR_BOUNDS
MOMENTS = st.datetimes(datetime.fromisoformat("0001-01-03"), datetime.fromisoformat("9999-12-29"))
TEXTS = st.one_of(
    st.text(),
    NUMBERS,
    MOMENTS.map(datetime.isoformat),
    MOMENTS.map(lambda moment: f"{moment.isoformat(' ')}Z"),
    st.dates().map(date.isoformat),
    st.binary(max_size=12).map(lambda content: b64encode(content).decode()),
    st.sampled_from(("true", "NaN", "19,90", "0000-01-01", "2026-02-30", "2026", "AAF=")),
)
TOKENS = st.one_of(NUMBERS, TEXTS.map(json.dumps), st.sampled_from(("true", "false", "NaN", "-Infinity", "[]", "{}")))

BAD = object()


def number_of(token: str) -> Decimal | None:
    """Return the exact number that a token is, if it is one."""
    return Decimal(token) if token[-1] in "0123456789" else None


def text_of(token: str) -> str | None:
    return json.loads(token) if token[0] == '"' else None


def integer(bits: int, token: str) -> Any:
    number = number_of(token)
    bound = 1 << bits - 1
    if number is None or number != number.to_integral_value():
        return BAD
    return int(number) if -bound <= number < bound else BAD


def floating(token: str) -> Any:
    made = float(token) if number_of(token) is not None else math.nan
    return made if math.isfinite(made) else BAD


def decimal(token: str) -> Any:
    text = text_of(token)
    try:
        number = (
            number_of(token) if text is None else Decimal(text) if text.isascii() and text.strip() == text else None
        )
        if number is None or "_" in token:
            return BAD
        made = number.quantize(Decimal("0.01"), context=Context(prec=10, rounding=ROUND_HALF_UP))
    except InvalidOperation:
        return BAD
    return made if made.is_finite() else BAD


def text(token: str) -> Any:
    found = text_of(token)
    if found is not None:
        return BAD if any("\ud800" <= letter <= "\udfff" for letter in found) else found
    return BAD if token in ("NaN", "-Infinity") else token


def boolean(token: str) -> Any:
    return {"true": True, "false": False}.get(token, BAD)


def binary(token: str) -> Any:
    """Return the base64 that is to be made again of the bytes that come out, to the letter."""
    found = text_of(token)
    return BAD if found is None else found.replace("\r", "").replace("\n", "")


def day(token: str) -> Any:
    found = text_of(token) or ""
    try:
        made = date.fromisoformat(found)
    except ValueError:
        return BAD
    return made if made.isoformat() == found else BAD


TYPES: dict[str, Callable[[str], Any]] = {
    **{of: partial(integer, bits) for of, bits in BITS.items()},
    "DOUBLE": floating,
    "DECIMAL(10,2)": decimal,
    "STRING": text,
    "BOOLEAN": boolean,
    "DATE": day,
    "BINARY": binary,
}


def decoder(schema: str) -> Callable[[str], list[Any] | str]:
    """Return the function that gives the values of a message, or why it is bad; quick reading must agree with it."""
    columns = parse_ddl(schema)
    shape, read_quickly = shaper(columns, VALUES, json_problem), rows_reader(columns)

    def outcome(document: str) -> list[Any] | str:
        content = document.encode(errors="surrogatepass")
        found: list[Any] | str
        try:
            found = shape(read_json(content))
        except RecordProblem as problem:
            found = str(problem)
        row = read_quickly(content)
        assert row is None or repr(row) == repr(found)
        return found

    return outcome


@pytest.mark.parametrize("of", TYPES)
@given(token=TOKENS)
@example(token="9007199254740993.0")
@example(token="1.10")
@example(token="-0")
@example(token='"\\ud83d"')
@example(token="1e400")
def test_a_value_comes_out_as_it_was_sent_or_is_bad_for_a_reason_at_every_depth(of: str, token: str) -> None:
    outcome = decoder(f"c {of}, s STRUCT<a: ARRAY<MAP<STRING, {of}>>>")
    expected = TYPES[of](token)
    top = outcome(f'{{"c":{token}}}')
    deep = outcome(f'{{"s":{{"a":[{{"k":{token}}}]}}}}')
    if isinstance(top, str):
        assert top.startswith(f"c: expected {of}, got ")
        assert isinstance(deep, str)
        # Texts that are no base64 are most.
        assert expected is BAD or of == "BINARY"
        return
    value = top[0]
    assert deep == [None, {"a": [[("k", value)]]}]
    found = b64encode(value).decode() if of == "BINARY" else value
    assert (type(found), found) == (type(expected), expected)


@given(moment=MOMENTS, zone=st.integers(-17 * 60, 17 * 60))
def test_a_moment_is_the_same_in_each_spelling(moment: datetime, zone: int) -> None:
    outcome = decoder("c TIMESTAMP, n TIMESTAMP_NTZ")
    micros = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    elsewhere = moment + timedelta(minutes=zone)
    offset = f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:{abs(zone) % 60:02}"
    for written in (moment.isoformat(), f"{moment.isoformat()}Z", f"{elsewhere.isoformat()}{offset}"):
        assert outcome(json.dumps({"c": written})) == [micros, None]
    assert outcome(json.dumps({"n": moment.isoformat()})) == [None, micros]


@given(number=NUMBERS)
def test_a_moment_of_a_number_is_of_seconds_or_milliseconds_and_within_the_years(number: str) -> None:
    since = float(number)
    micros = since * (1e6 if abs(since) < 1e11 else 1e3)
    is_within = -62_135_596_800_000_000 <= micros <= 253_402_300_799_999_999
    found = decoder("c TIMESTAMP")(f'{{"c":{number}}}')
    assert is_within is not isinstance(found, str)
    if not isinstance(found, str):
        assert abs(found[0] - micros) <= max(1, abs(micros) * 2**-50)


DOCUMENTS = st.text(st.sampled_from('{}[]":,0123456789.eE+-\\/ntrufalsNIiy abc\t\n\x00\x7f\u00e4\ud800'), max_size=24)


@given(
    text=DOCUMENTS,
    place=st.sampled_from(('{"n":1,"x":%s}', '{"n":1,"x":"%s"}', '{"n":1}%s', "%s", '{"c":"%s"}', '{"n":%s}')),
)
@example(text="[" * 2000 + "]" * 2000, place='{"n":1,"x":%s}')
@example(text='1,"n":"a"', place='{"n":%s}')
@example(text='1.0,"n":null', place='{"n":%s}')
@example(text="\\ud800", place='{"n":1,"x":"%s"}')
def test_a_document_read_quickly_is_one_and_has_the_values_of_one(text: str, place: str) -> None:
    decoder("n BIGINT, c STRING NOT NULL")(place % text)
    decoder("n BIGINT, c STRING")(place % text)


@pytest.mark.parametrize(
    ("of", "token"),
    [
        *[(of, "17") for of in (*BITS, "FLOAT", "DOUBLE", "DECIMAL(10,2)", "TIMESTAMP")],
        ("STRING", '"\\u00e4\\n"'),
        ("BOOLEAN", "true"),
        ("BINARY", '"AAE="'),
        ("DATE", '"2026-01-05"'),
        ("TIMESTAMP", '"2026-01-05T09:00:00-02:00"'),
        ("TIMESTAMP_NTZ", '"2026-01-05T09:00:00"'),
        ("DECIMAL(10,2)", "-0.15"),
        ("MAP<DATE, INT>", '{"2026-01-05":1}'),
    ],
)
def test_values_that_fit_are_read_quickly_at_every_depth(of: str, token: str) -> None:
    columns = parse_ddl(
        f"c {of} NOT NULL, s STRUCT<a: ARRAY<MAP<STRING, {of}>>, b: STRUCT<c: {of} NOT NULL>>, `d.e` {of}"
    )
    document = f'{{"c":{token},"s":{{"a":[{{"k":{token}}},null],"b":{{"c":{token}}}}},"d.e":{token},"more":[{{}}]}}'
    row = rows_reader(columns)(document.encode())
    assert row == shaper(columns, VALUES, json_problem)(read_json(document.encode()))
