"""SCRAM's client against the examples of the specifications, and servers that cheat."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest

from enmasse.errors import RemoteError
from enmasse.wire.sasl.scram import (
    HASHES,
    MIN_ITERATIONS,
    Scram,
    attributes_of,
    quoted,
    salted_password,
    saslprep,
    server_key,
    sign,
    to_base64,
    unquoted,
)

# RFC 5802 5, RFC 7677 3
EXAMPLES = [
    (
        "SCRAM-SHA-1",
        "fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        "SCRAM-SHA-256",
        "rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("mechanism", "nonce", "first", "final", "verdict"), EXAMPLES)
def test_the_client_says_what_the_specification_shows(
    mechanism: str, nonce: str, first: bytes, final: bytes, verdict: bytes
) -> None:
    for told_by_outcome in (False, True):
        client = Scram(mechanism, "user", "pencil", lambda: nonce)
        assert client.response() == b"n,,n=user,r=" + nonce.encode()
        assert client.answer(first) == final
        if told_by_outcome:
            client.finish(verdict)
        else:
            assert client.answer(verdict) == b""
            client.finish(None)


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_server_that_does_not_know_the_password_is_found_out(mechanism: str) -> None:
    client = Scram(mechanism, "user", "pencil", lambda: "nonce")
    client.response()
    client.answer(b"r=nonceMORE,s=c2FsdA==,i=4096")
    wrong = b"v=" + to_base64(hashlib.new(HASHES[mechanism]).digest())
    with pytest.raises(RemoteError, match="has not proved"):
        client.answer(wrong)
    with pytest.raises(RemoteError, match="has not proved"):
        client.finish(wrong)
    with pytest.raises(RemoteError, match="does not begin with"):
        client.finish(None)


def test_a_server_that_lets_in_before_it_has_asked_is_found_out() -> None:
    client = Scram("SCRAM-SHA-256", "user", "pencil", lambda: "nonce")
    client.response()
    with pytest.raises(RemoteError, match="has not proved"):
        client.finish(b"v=" + to_base64(b"\0" * 32))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=nonce,s=c2FsdA==,i=4096",  # the server adds nothing of its own
        b"r=otherMORE,s=c2FsdA==,i=4096",
        b"r=nonceMORE,s=c2FsdA==",
        b"s=c2FsdA==,r=nonceMORE,i=4096",
        b"r=nonceMORE,s=?,i=4096",
        b"r=nonceMORE,s=,i=4096",
        b"r=nonceMORE,s=c2FsdA==,i=1",
        b"r=nonceMORE,s=c2FsdA==,i=99999999",
        b"r=nonceMORE,s=c2FsdA==,i=9999999999999999999999999",
        b"r=nonceMORE,s=c2FsdA==,i=-4096",
        b"r=nonceMORE,s=c2FsdA==,i=\xd9\xa4",
        b"m=future,r=nonceMORE,s=c2FsdA==,i=4096",
        b"e=other-error",
    ],
)
def test_a_server_that_breaks_the_rules_is_left(challenge: bytes) -> None:
    client = Scram("SCRAM-SHA-256", "user", "pencil", lambda: "nonce")
    client.response()
    with pytest.raises(RemoteError):
        client.answer(challenge)


def test_one_client_serves_one_connection_after_another() -> None:
    nonces = iter(["a", "b"])
    client = Scram("SCRAM-SHA-256", "user", "pencil", lambda: next(nonces))
    for nonce in ("a", "b"):
        assert client.response() == f"n,,n=user,r={nonce}".encode()
        first = f"r={nonce}2,s=c2FsdA==,i=4096".encode()
        final = client.answer(first)
        whole = f"n=user,r={nonce},".encode() + first + b"," + final.rpartition(b",p=")[0]
        key = server_key("sha256", salted_password("sha256", "pencil", b"salt", MIN_ITERATIONS))
        client.answer(b"v=" + to_base64(sign("sha256", key, whole)))
        client.finish(None)


@pytest.mark.parametrize("name", ["jo", "a,b", "a=b", "=2C", ",=,=", "j\u00f6", "jo@shop.default"])
def test_names_are_quoted_and_back(name: str) -> None:
    assert b"," not in quoted(name)
    assert unquoted(quoted(name)) == name


@pytest.mark.parametrize("value", [b"a=b", b"=", b"=2", b"=2c", b"\xff"])
def test_badly_quoted_names_are_refused(value: bytes) -> None:
    with pytest.raises(RemoteError):
        unquoted(value)


def test_further_attributes_are_ignored() -> None:
    assert attributes_of(b"r=1=2,s=3,x=4", b"r", b"s") == [b"1=2", b"3"]


# RFC 4013 3
@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("", ""),
        ("\u00ad", ""),
    ],
)
def test_text_is_prepared_as_the_specification_shows(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "a\u0627b", "\ue000", "\ufffd", "\u2028", "a\x7f"])
def test_prohibited_text_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(RemoteError) as caught:
        saslprep(text)
    assert text not in str(caught.value)


def test_passwords_that_look_the_same_are_the_same() -> None:
    composed = "caf\u00e9"
    apart = unicodedata.normalize("NFD", composed)
    assert composed != apart
    assert salted_password("sha256", composed, b"salt", 4096) == salted_password("sha256", apart, b"salt", 4096)


def test_a_password_that_ends_in_a_newline_says_so() -> None:
    for text in ("password\n", "password\r\n"):
        with pytest.raises(RemoteError, match="it ends in a newline"):
            saslprep(text)
    with pytest.raises(RemoteError) as caught:
        saslprep("pass\nword")
    assert "ends" not in caught.value.description
