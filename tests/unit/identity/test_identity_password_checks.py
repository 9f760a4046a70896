"""Checks of passwords as frames, in pieces of any size, and what they find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.password_checks import (
    Answer,
    CheckResult,
    Frame,
    ScramCheck,
    encode_answer,
    encode_check,
    encode_passed_report,
    scram_check,
    split_answers,
    split_frames,
)
from enmasse.identity.throttle import LONGEST_NAME, LoginReport, LoginStep
from enmasse.identity.users import make_keys
from enmasse.wire.sasl.scram import HASHES
from tests.unit.identity.people import FEW


def check_of(password: str, stored_password: str, mechanism: str = "SCRAM-SHA-256") -> ScramCheck:
    keys = make_keys(mechanism, stored_password, b"salt", FEW)
    return scram_check(HASHES[mechanism], password, keys.salt, keys.iterations, keys.stored)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(
    "password", ["secret", "", "caf\u00e9", "x" * 64, "x" * 65, "x" * 128, "x" * 129, "\u00e9" * 9_999]
)
def test_a_check_finds_the_password_and_no_other(mechanism: str, password: str) -> None:
    assert check_of(password, password, mechanism).is_right()
    assert not check_of(password + "x", password, mechanism).is_right()


def test_a_check_is_small_however_long_the_password_is() -> None:
    assert len(check_of("x" * 60_000, "secret").encode()) < 200


checks = st.builds(
    ScramCheck,
    name=st.sampled_from(sorted(HASHES.values())),
    key=st.binary(max_size=128),
    salt=st.binary(min_size=1, max_size=70_000),
    iterations=st.integers(1, 1_000_000),
    stored=st.binary(max_size=64),
)


@given(st.lists(checks, max_size=4), st.data())
def test_frames_come_through_in_pieces(given_checks: list[ScramCheck], data: st.DataObject) -> None:
    stream = b"".join(encode_check(number, check) for number, check in enumerate(given_checks))
    cut = data.draw(st.integers(0, len(stream)))
    found: list[Frame] = []
    rest = b""
    for piece in (stream[:cut], stream[cut:]):
        complete, rest = split_frames(rest + piece)
        found += complete
    assert rest == b""
    assert [(frame.number, frame.check) for frame in found] == list(enumerate(given_checks))


def test_a_kind_that_is_not_known_is_told_from_one_that_is() -> None:
    frame = bytearray(encode_check(7, check_of("a", "a")))
    frame[4] = 99
    found, rest = split_frames(bytes(frame) + encode_check(8, check_of("a", "a")))
    assert [(frame.number, frame.check) for frame in found] == [(7, None), (8, check_of("a", "a"))]
    assert rest == b""


reports = st.builds(
    LoginReport,
    step=st.sampled_from(LoginStep),
    network=st.text(st.characters(codec="utf-8"), max_size=40),
    space=st.text(st.characters(codec="utf-8"), max_size=40),
    user=st.text(st.characters(codec="utf-8"), max_size=LONGEST_NAME),
)
results = st.tuples(
    st.sampled_from([result for result in CheckResult if result.name != "REPORT"]), st.integers(0, 99)
)


@given(st.lists(results | reports, max_size=5), st.data())
def test_answers_come_through_in_pieces(answers: list[Answer], data: st.DataObject) -> None:
    stream = b"".join(
        encode_passed_report(answer.encode()) if isinstance(answer, LoginReport) else encode_answer(*answer)
        for answer in answers
    )
    cut = data.draw(st.integers(0, len(stream)))
    first, rest = split_answers(stream[:cut])
    second, rest = split_answers(rest + stream[cut:])
    assert ([*first, *second], rest) == (answers, b"")
