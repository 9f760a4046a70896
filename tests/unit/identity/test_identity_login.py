"""Logins: every mechanism against the same users, and everything that must not come in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enmasse.identity.login import Judged, Judgement, offered_mechanisms
from enmasse.identity.users import User
from enmasse.pending import Pending
from enmasse.wire.sasl.mechanisms import (
    Admitted,
    Anonymous,
    ClientMechanism,
    External,
    OAuthBearer,
    Plain,
    SaslCode,
    XOAuth2,
)
from enmasse.wire.sasl.scram import HASHES, Scram
from tests.unit.identity.people import Door, answered, person


def nonce() -> str:
    return "client"


def door() -> Door:
    return Door(
        person("jo", mechanisms=tuple(HASHES)),
        person("jo", "ns/factory", "other"),
        person("j\u00f6, =x", password="caf\u00e9"),
        person("card", password=None, certificates=["card.example.com"]),
        person("both", certificates=["both.example.com"]),
    )


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_lets_in_who_knows_the_password(mechanism: str) -> None:
    assert door().admits(Scram(mechanism, "jo", "secret", nonce)) == "jo"


@pytest.mark.parametrize(
    ("user", "password", "expected"),
    [
        ("jo", "secret", "jo"),
        ("jo@factory", "other", "jo"),
        ("jo@factory", "secret", None),
        ("jo", "other", None),
        ("jo", "Secret", None),
        ("jo", "", None),
        ("Jo", "secret", None),
        ("nobody", "secret", None),
        ("card", "", None),
        ("jo@elsewhere", "secret", None),
        ("jo@nowhere", "secret", None),
        ("jo@wrong", "secret", None),
        ("j\u00f6, =x", "cafe\u0301", "j\u00f6, =x"),  # another way to write the same letters
        ("jo\u00adjo"[:3], "secret", "jo"),  # a soft hyphen is nothing
        ("jo", "sec\u0007ret", None),
    ],
)
def test_both_ways_to_show_a_password_lead_to_the_same(user: str, password: str, expected: str | None) -> None:
    place = door()
    assert place.admits(Plain(user, password)) == expected
    if "\u0007" not in password:
        assert place.admits(Scram("SCRAM-SHA-256", user, password, nonce)) == expected
    assert place.admits(Plain(user, password)) == expected, "the second time the password may be remembered"


def test_the_same_name_is_another_user_in_another_space() -> None:
    place = door()
    for password, user in (("secret", "jo"), ("other", "jo@factory")):
        assert place.admits(Plain(user, password)) == "jo"
        assert place.login.user is not None
        assert place.login.user.space == ("ns/factory" if "@" in user else "ns/shop")


def test_nothing_is_checked_of_who_names_no_space_where_there_are_several() -> None:
    place = door()
    assert place.admits(Plain("jo@unsaid", "secret")) == "", "it is nobody, whom no space takes"
    assert place.login.names_no_space
    assert "name the space: USER@SPACE.NAMESPACE" in place.login.reason
    assert place.admits(Scram("SCRAM-SHA-256", "jo@unsaid", "secret", nonce)) is None
    assert place.login.names_no_space
    place.is_private = False
    assert place.admits(Plain("jo@unsaid", "secret")) is None


def test_a_password_is_not_taken_where_others_can_read_it() -> None:
    place = door()
    place.is_private = False
    assert place.admits(Plain("jo", "secret")) is None
    assert "TLS" in place.login.reason
    assert place.admits(Scram("SCRAM-SHA-256", "jo", "secret", nonce)) == "jo"


@pytest.mark.parametrize("mechanism", [Anonymous(), Plain("x@open", "any"), External("x@open")])
def test_everybody_may_enter_an_open_space_as_nobody(mechanism: ClientMechanism) -> None:
    place = Door(open_spaces=("ns/open", "ns/shop"))
    place.is_private = False
    assert place.admits(mechanism) == ""


def test_nobody_is_anonymous_where_there_are_users() -> None:
    place = door()
    assert place.admits(Anonymous()) is None
    assert place.login.reason == "only users may enter the space"


def test_scram_cannot_prove_anything_for_an_open_space() -> None:
    place = door()
    assert place.admits(Scram("SCRAM-SHA-256", "jo@open", "secret", nonce)) is None
    assert "no users" in place.login.reason


@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [
        (("card.example.com",), "", "card"),
        (("card.example.com",), "card", "card"),
        (("card.example.com",), "jo", None),
        (("unknown", "both.example.com"), "", "both"),
        (("card.example.com", "both.example.com"), "", None),
        (("card.example.com", "both.example.com"), "both", "both"),
        (("card.example.com",), "card@factory", None),
        (("stranger.example.com",), "", None),
        ((), "card", None),
    ],
)
def test_a_certificate_is_good_for_its_user(names: tuple[str, ...], wanted: str, expected: str | None) -> None:
    place = door()
    place.certified = names
    assert place.admits(External(wanted)) == expected


class Authority:
    """Gives tokens that are a user's name, and passwords that are the name backwards."""

    def __init__(self, *users: User, spaces: Sequence[str] = ("ns/shop",), takes_passwords: bool = False) -> None:
        self.tokens = {user.name: user for user in users}
        self._spaces = spaces
        self._takes_passwords = takes_passwords
        self.waiting: list[Pending[Judgement]] | None = None
        """Judgements that come later; None: all come at once."""

    def knows(self, space: str) -> bool:
        return space in self._spaces

    def takes_passwords(self, space: str) -> bool:
        return self._takes_passwords

    def judge_token(self, token: str, space: str) -> Judged:
        found = Judgement(self.tokens.get(token), "the token is bad")
        if self.waiting is None:
            return found
        self.waiting.append(Pending())
        return self.waiting[-1]

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        return self.judge_token(user if password == user[::-1] else "", space)

    def judge_again(self, user: User) -> User | None:
        return user


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (OAuthBearer("ida"), "ida"),
        (OAuthBearer("ida", "ida", "host.example.com", 5671), "ida"),
        (OAuthBearer("ida", "jo"), None),
        (OAuthBearer("bad"), None),
        (OAuthBearer("far"), None),
        (XOAuth2("ida", "ida"), "ida"),
        (XOAuth2("jo", "ida"), None),
        (XOAuth2("ida", "bad"), None),
    ],
)
def test_a_token_is_worth_what_its_authority_says(mechanism: ClientMechanism, expected: str | None) -> None:
    place = door()
    place.tokens = Authority(person("ida", password=None), person("far", "ns/factory", None))
    assert place.admits(mechanism) == expected
    is_told = expected is None and mechanism.name == "OAUTHBEARER"
    assert getattr(mechanism, "reason", None) == ('{"status":"invalid_token"}' if is_told else None)


@pytest.mark.parametrize(
    ("user", "password", "takes_passwords", "expected"),
    [
        ("ida", "adi", True, "ida"),
        ("ida@shop", "adi", True, "ida"),
        ("ida", "ida", True, None),
        ("ida", "adi", False, None),
        ("jo", "secret", True, None),
    ],
)
def test_passwords_of_others_users_are_theirs_to_check(
    user: str, password: str, takes_passwords: bool, expected: str | None
) -> None:
    place = door()
    place.tokens = Authority(person("ida", password=None), takes_passwords=takes_passwords)
    assert place.admits(Plain(user, password)) == expected
    assert place.admits(Scram("SCRAM-SHA-256", "jo", "secret", nonce)) is None, "our own keys are not asked"
    assert place.admits(Plain("jo@factory", "other")) == "jo", "other spaces have their own users"


WIDE = "\uff49da"
"""A name of which SASLprep makes ``ida``."""


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (OAuthBearer("wide"), WIDE),
        (OAuthBearer("wide", WIDE), WIDE),
        (OAuthBearer("wide", "ida"), None),
        (OAuthBearer("ida", WIDE), None),
        (XOAuth2(WIDE, "wide"), WIDE),
        (XOAuth2(WIDE, "ida"), None),
        (XOAuth2("ida", "wide"), None),
        (Plain(WIDE, WIDE[::-1]), WIDE),
        (Plain(WIDE, "adi"), None),
        (Plain("ida\uff20shop", "adi"), None),
    ],
)
def test_names_of_a_provider_are_compared_to_the_letter(mechanism: ClientMechanism, expected: str | None) -> None:
    place = door()
    wide = person(WIDE, password=None)
    authority = place.tokens = Authority(person("ida", password=None), wide, takes_passwords=True)
    authority.tokens["wide"] = wide
    assert place.admits(mechanism) == expected


def test_a_certificate_proves_the_user_that_the_client_names_to_the_letter() -> None:
    place = Door(person("ida", password=None, certificates=["card"]))
    place.certified = ("card",)
    for named, expected in (("ida", True), (WIDE, False)):
        login = place.begin()
        assert login.begin("EXTERNAL", named.encode()) is expected


def test_users_of_our_own_may_come_in_any_form_that_saslprep_makes_theirs() -> None:
    place = Door(person("ida", password="secret"), person("j\u00f6"))
    for given in ("j\u00f6", "jo\u0308"):
        assert place.admits(Plain(given, "secret")) == "j\u00f6"
        assert place.admits(Scram("SCRAM-SHA-256", given, "secret", nonce)) == "j\u00f6"


def test_a_judgement_may_come_later() -> None:
    place = door()
    authority = place.tokens = Authority()
    authority.waiting = []
    for judgement, expected in (
        (Judgement(person("ida", password=None)), True),
        (Judgement(person("ida", "ns/factory")), False),
        (Judgement(reason="wrong password"), False),
        (Judgement(reason="nobody answers", is_temporary=True), SaslCode.SYS_TEMP),
    ):
        login = place.begin()
        verdict = login.begin("XOAUTH2", b"user=ida\x01auth=Bearer ida\x01\x01")
        assert isinstance(verdict, Pending)
        assert login.user is None
        authority.waiting.pop().settle(judgement)
        assert verdict.answer == (expected,)
        assert (login.user is not None) is (expected is True)
        assert expected is True or login.reason


def test_without_an_authority_no_token_is_worth_anything() -> None:
    assert door().admits(OAuthBearer("ida")) is None


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"jo\0secret"),
        ("PLAIN", b"bo\0jo\0secret"),
        ("PLAIN", b"\0jo\xff\0secret"),
        ("EXTERNAL", b"\xff"),
        ("SCRAM-SHA-256", b"n=jo,r=abc"),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=jo,r=abc"),
        ("SCRAM-SHA-256", b"n,a=bo,n=jo,r=abc"),
        ("SCRAM-SHA-256", b"n,b=jo,n=jo,r=abc"),
        ("SCRAM-SHA-256", b"n,,m=ext,n=jo,r=abc"),
        ("SCRAM-SHA-256", b"n,,n=,r=abc"),
        ("SCRAM-SHA-256", b"n,,n=jo,r="),
        ("SCRAM-SHA-256", b"n,,n=jo"),
        ("SCRAM-SHA-256", b"n,,n=j=o,r=abc"),
        ("SCRAM-SHA-256", b"n,,n=\xff,r=abc"),
        ("SCRAM-SHA-256", b"n,,n=jo,r=a\x7fb"),
        ("SCRAM-SHA-256", b"n,,n=jo,r=" + b"a" * 513),
        ("SCRAM-SHA-256", b"n,,n=" + b"a" * 1025 + b",r=abc"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer \xff\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Basic abc\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer abc\x01"),
        ("OAUTHBEARER", b"p=x,,\x01auth=Bearer abc\x01\x01"),
        ("OAUTHBEARER", b"rubbish"),
        ("XOAUTH2", b"auth=Bearer abc\x01\x01"),
        ("XOAUTH2", b"user=\xff\x01auth=Bearer abc\x01\x01"),
    ],
)
def test_what_is_malformed_does_not_come_in(mechanism: str, response: bytes) -> None:
    place = door()
    place.tokens = Authority(person("abc", password=None))
    login = place.begin()
    assert answered(lambda: login.begin(mechanism, response)) is False
    assert login.user is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_who_only_names_a_mechanism_is_asked_to_speak(mechanism: str) -> None:
    verdict = door().begin().begin(mechanism, b"")
    assert not isinstance(verdict, int | Admitted | Pending)
    assert verdict.challenge == b""
    assert verdict.answer(b"") is False


def test_after_an_empty_beginning_all_goes_on_as_usual() -> None:
    login = door().begin()
    verdict = login.begin("PLAIN", b"")
    assert not isinstance(verdict, int | Admitted | Pending)
    assert verdict.answer(b"\0jo\0secret") is True
    assert login.user is not None


def test_reasons_hold_no_secrets() -> None:
    place = door()
    for mechanism in (
        Plain("jo", "hunter2"), Plain("nobody", "hunter2"), Scram("SCRAM-SHA-256", "jo", "hunter2", nonce)
    ):  # fmt: skip
        assert place.admits(mechanism) is None
        assert place.login.reason in {"wrong password", "no such user"}


# What is offered

TOKENS = Authority(spaces=["ns/a"])
BOTH = Authority(spaces=["ns/a"], takes_passwords=True)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ()),
        ({"has_open": True}, ("PLAIN", "ANONYMOUS")),
        ({"guarded": ["ns/shop"]}, ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")),
        ({"guarded": ["ns/empty"]}, ("SCRAM-SHA-512", "SCRAM-SHA-256")),
        ({"guarded": ["ns/factory"], "is_private": True}, ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")),
        ({"guarded": ["ns/factory"], "has_open": True}, ("SCRAM-SHA-512", "SCRAM-SHA-256", "ANONYMOUS")),
        (
            {"guarded": ["ns/factory"], "has_open": True, "is_private": True},
            ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS"),
        ),
        (
            {"guarded": ["ns/factory", "ns/a"], "is_private": True, "has_certificate": True, "tokens": TOKENS},
            ("EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN"),
        ),
        ({"guarded": ["ns/a"], "is_private": True, "tokens": TOKENS}, ("OAUTHBEARER", "XOAUTH2")),
        ({"guarded": ["ns/a"], "is_private": True, "tokens": BOTH}, ("OAUTHBEARER", "XOAUTH2", "PLAIN")),
        ({"guarded": ["ns/a"], "tokens": BOTH}, ()),
        ({"guarded": ["ns/factory"], "tokens": TOKENS}, ("SCRAM-SHA-512", "SCRAM-SHA-256")),
    ],
)
def test_what_is_good_for_any_space_is_offered(asked: dict[str, object], expected: tuple[str, ...]) -> None:
    defaults: dict[str, object] = {
        "guarded": [], "has_open": False, "is_private": False, "has_certificate": False
    }  # fmt: skip
    assert offered_mechanisms(door().users, **{**defaults, **asked}) == expected  # type: ignore[arg-type]
