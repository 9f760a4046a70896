from __future__ import annotations

import pytest

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.bounds import Moment, moments_of, parse_bounds, parse_moment

NOON = Moment(1_769_860_800_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        (" Latest ", "latest"),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31 13:00:00+01:00", NOON),
        ("2026-01-31T12:00:00.000250Z", Moment(NOON.us + 250)),
        ('{"0": 12, "1": "latest", "2": "2026-01-31T12:00:00Z"}', {0: 12, 1: "latest", 2: NOON}),
        ("1902-01-01", Moment(0)),
    ],
)
def test_a_reading_begins_at_a_name_an_offset_or_a_moment(text: str, expected: object) -> None:
    assert parse_bounds("startingOffsets", text) == expected


@pytest.mark.parametrize(
    "text", ["newest", "12", "[1]", '{"0": -3}', '{"zero": 3}', '{"0": true}', '{"0": "x"}', "{"]
)
def test_what_is_none_of_these_is_named(text: str) -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        parse_bounds("endingOffsets", text)


@pytest.mark.parametrize("text", ["1769860800000", "2026-01-31T12:00:00Z"])
def test_a_time_is_milliseconds_or_iso(text: str) -> None:
    assert parse_moment("startingTimestamp", text) == NOON


@pytest.mark.parametrize("text", ["", "noon", "1" * 30, "-5"])
def test_a_time_that_is_none_is_named(text: str) -> None:
    with pytest.raises(OptionError, match="startingTimestamp"):
        parse_moment("startingTimestamp", text)


def test_moments_are_found_among_other_bounds() -> None:
    assert moments_of({0: 5, 1: NOON, 2: NOON, 3: "latest"}) == {NOON}
    assert moments_of(NOON) == {NOON}
    assert moments_of("earliest") == set()


def test_a_moment_reads_as_one() -> None:
    assert str(NOON) == "2026-01-31T12:00:00+00:00"
