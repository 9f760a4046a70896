"""Tokens of a provider: the good ones, and every known way to pass a bad one off as good."""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.errors import TokenError, UnknownKeyError
from enmasse.identity.oidc import Identity, KeySet, read_discovery, verify_id_token, verify_token
from enmasse.identity.oidc_settings import OidcSettings
from tests.unit.identity.tokens_of_tests import ISSUER, NOW, claims, jwk, jwks, keys, private_key, token

SETTINGS = OidcSettings(ISSUER, ("messaging",), groups_claim="groups")


def encoded(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def refusal(given: str, settings: OidcSettings = SETTINGS, known: KeySet | None = None, now: float = NOW) -> str:
    with pytest.raises(TokenError) as caught:
        verify_token(given, settings, known or keys(), now)
    return caught.value.description


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_good_token_says_who_its_bearer_is(algorithm: str) -> None:
    assert verify_token(token(algorithm), SETTINGS, keys(), NOW) == Identity(
        ISSUER, "u-1", "ida", ("warehouse", "send_orders%2F%23"), ("openid", "orders"), NOW + 60
    )


def test_the_settings_say_where_the_name_is() -> None:
    settings = replace(SETTINGS, username_claim="email", groups_claim="")
    found = verify_token(token(email="ida@example.com"), settings, keys(), NOW)
    assert (found.username, found.groups) == ("ida@example.com", ())
    assert "email" in refusal(token(), settings)


def test_one_of_several_audiences_is_enough() -> None:
    assert verify_token(token(aud=["account", "messaging"]), SETTINGS, keys(), NOW).username == "ida"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"iss": "https://id.example.com/realms/other"}, "iss"),
        ({"iss": ISSUER + "/"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "account"}, "aud"),
        ({"aud": ["account"]}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": {"messaging": True}}, "aud"),
        ({"exp": None}, "exp"),
        ({"exp": NOW - 10}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": "never"}, "exp"),
        ({"exp": 10**400}, "exp"),
        ({"nbf": NOW + 11}, "nbf"),
        ({"iat": NOW + 11}, "iat"),
        ({"preferred_username": None}, "preferred_username"),
        ({"preferred_username": ["ida"]}, "preferred_username"),
        ({"preferred_username": ""}, "preferred_username"),
        ({"preferred_username": "ida ida"}, "preferred_username"),
        ({"preferred_username": "i\u0007da"}, "preferred_username"),
        ({"preferred_username": "i" * 256}, "preferred_username"),
    ],
)
def test_a_claim_that_is_wrong_makes_a_token_worthless(changed: dict[str, Any], told: str) -> None:
    reason = refusal(token(**changed))
    assert told in reason
    assert "ida" not in reason, "what a token says is not repeated"


@pytest.mark.parametrize(("exp", "is_good"), [(NOW - 9, True), (NOW - 10, False)])
def test_clocks_may_differ_a_little(exp: float, is_good: bool) -> None:
    if is_good:
        assert verify_token(token(exp=exp, nbf=NOW + 10), SETTINGS, keys(), NOW).expires_at == exp
    else:
        assert "expired" in refusal(token(exp=exp))


@pytest.mark.parametrize("name", ["\uff49da", "i\u00adda", "jo\u0308", "IDA", "\u0456da"])
def test_a_name_is_the_providers_own_to_the_letter(name: str) -> None:
    assert verify_token(token(preferred_username=name), SETTINGS, keys(), NOW).username == name


# ID tokens

CLIENT = replace(SETTINGS, client_id="console")
ID_TOKEN = {"aud": "console", "nonce": "n-1"}


def test_an_id_token_is_good_for_the_login_that_it_was_given_for() -> None:
    for more in ({}, {"azp": "console"}, {"aud": ["console", "messaging"], "azp": "console"}):
        found = verify_id_token(token(**(ID_TOKEN | more)), CLIENT, keys(), NOW, nonce="n-1")
        assert (found.subject, found.identity.username, found.expires_at) == ("u-1", "ida", NOW + 60)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"nonce": "n-2"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"nonce": ["n-1"]}, "nonce"),
        ({"azp": "shop"}, "azp"),
        ({"azp": ["console"]}, "azp"),
        ({"aud": ["console", "shop"]}, "azp"),
        ({"aud": ["console", "shop"], "azp": "shop"}, "azp"),
        ({"aud": "messaging"}, "aud"),
        ({"sub": None}, "sub"),
        ({"iss": "https://id.example.com/realms/other"}, "iss"),
        ({"exp": NOW - 11}, "exp"),
    ],
)
def test_an_id_token_of_another_login_or_client_proves_nothing(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(TokenError, match=told):
        verify_id_token(token(**(ID_TOKEN | changed)), CLIENT, keys(), NOW, nonce="n-1")


@pytest.mark.parametrize("mark", [{"typ": "ID"}, {"at_hash": "x"}, {"c_hash": "x"}])
def test_an_id_token_is_a_bearers_token_only_of_the_client_that_asked_for_it(mark: dict[str, Any]) -> None:
    for azp in ("console", "messaging"):
        assert verify_token(token(azp=azp, **mark), CLIENT, keys(), NOW).username == "ida"
    assert "azp" in refusal(token(azp="shop", **mark), CLIENT)
    assert "azp" in refusal(token(aud=["messaging", "shop"], **mark), CLIENT)
    assert verify_token(token(aud=["messaging", "account"], azp="shop"), CLIENT, keys(), NOW), "an access token"


@pytest.mark.parametrize("kind", ["logout+jwt", "application/secevent+jwt", "DPoP+JWT", "", None, "JWT", "at+jwt"])
def test_a_token_of_another_type_is_none_of_ours(kind: str | None) -> None:
    given = token(header={"typ": kind})
    if kind and kind.lower() not in ("jwt", "at+jwt"):
        assert "typ" in refusal(given)
    else:
        assert verify_token(given, SETTINGS, keys(), NOW).username == "ida"


# Attacks


def test_a_token_that_is_not_signed_is_worth_nothing() -> None:
    for algorithm in ("none", "None", "NONE", "nOnE", "", None, ["RS256"], {"RS256": 1}):
        unsigned = f"{encoded({'alg': algorithm, 'typ': 'JWT'})}.{encoded(claims())}."
        assert "algorithms" in refusal(unsigned) or "malformed" in refusal(unsigned)


@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_a_public_key_is_no_shared_secret(algorithm: str) -> None:
    public = private_key("rsa").public_key()
    for form in (serialization.Encoding.PEM, serialization.Encoding.DER):
        secret = public.public_bytes(form, serialization.PublicFormat.SubjectPublicKeyInfo)
        signed = f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{encoded(claims())}"
        digest = hmac.new(secret, signed.encode(), "sha256" if algorithm == "HS256" else "sha512").digest()
        assert "algorithms" in refusal(f"{signed}.{encoded(digest)}")


def test_a_symmetric_key_among_the_providers_is_not_used() -> None:
    secret = b"0" * 32
    known = KeySet({"keys": [{"kty": "oct", "kid": "rsa", "k": encoded(secret)}, jwk("rsa")]})
    assert len(known) == 1
    signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(claims())}"
    assert refusal(f"{signed}.{encoded(hmac.new(secret, signed.encode(), 'sha256').digest())}", known=known)


def test_the_key_of_somebody_else_signs_nothing() -> None:
    assert "signature" in refusal(token(key="rsa-other"))
    assert "signature" in refusal(token(key="rsa-other", header={"kid": None}))


def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    other = jwk("rsa-other")
    for header in (
        {"jwk": other, "kid": "rsa-other"},
        {"jku": "https://evil.example.com/keys", "kid": "rsa-other"},
        {"x5u": "https://evil.example.com/chain", "kid": "rsa-other"},
        {"x5c": ["MIIB"], "x5t": "abc", "kid": "rsa-other"},
    ):
        with pytest.raises(UnknownKeyError):
            verify_token(token(key="rsa-other", header=header), SETTINGS, keys(), NOW)
        assert "signature" in refusal(token(key="rsa-other", header={**header, "kid": "rsa"}))
        assert verify_token(token(header={**header, "kid": "rsa"}), SETTINGS, keys(), NOW), "they mean nothing"


@pytest.mark.parametrize("kid", ["other", "../../dev/null", "rsa' OR '1'='1", "\0", ""])
def test_a_key_is_found_by_its_very_name_or_not_at_all(kid: str) -> None:
    with pytest.raises(UnknownKeyError):
        verify_token(token(header={"kid": kid}), SETTINGS, keys(), NOW)


def test_a_key_is_used_for_its_own_kind_of_algorithm_alone() -> None:
    with pytest.raises(UnknownKeyError):
        verify_token(token("ES256", header={"kid": "rsa"}), SETTINGS, keys(), NOW)
    for field, value in (("alg", "RS512"), ("use", "enc"), ("key_ops", ["encrypt"]), ("crv", "P-521")):
        name, algorithm = ("ec", "ES256") if field == "crv" else ("rsa", "RS256")
        with pytest.raises(UnknownKeyError):
            verify_token(token(algorithm), SETTINGS, KeySet({"keys": [jwk(name, **{field: value})]}), NOW)


def test_a_weak_key_is_not_used() -> None:
    with pytest.raises(UnknownKeyError):
        keys("rsa-weak").find("RS256", "rsa-weak")


def test_what_is_changed_after_signing_is_noticed() -> None:
    head, body, signature = token().split(".")
    admin = encoded(claims(preferred_username="admin"))
    other_head = encoded({"alg": "RS512", "kid": "rsa"})
    for forged in (
        f"{head}.{admin}.{signature}",
        f"{other_head}.{body}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.AAAA",
    ):
        assert "signature" in refusal(forged)


@pytest.mark.parametrize("header", [{"crit": ["b64"], "b64": False}, {"crit": []}])
def test_what_must_be_understood_but_is_not_makes_a_token_worthless(header: dict[str, Any]) -> None:
    signed = f"{encoded({'alg': 'RS256', 'kid': 'rsa', **header})}.{encoded(claims())}"
    assert "header" in refusal(f"{signed}.AAAA")


def test_a_huge_token_costs_nothing() -> None:
    assert "characters" in refusal(token(padding="x" * 20_000))
    assert "characters" in refusal("." * 10_000_000)
    deep = encoded(b"[" * 5_000)
    assert "malformed" in refusal(f"{deep}.{deep}.AAAA")
    signed = f"{encoded({'alg': 'RS256', 'kid': 'rsa'})}.{deep}"
    signature = private_key("rsa").sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert "malformed" in refusal(f"{signed}.{encoded(signature)}")


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b.c", "a.b.c.d.e", "Bearer abc", "\u00e9.\u00e9.\u00e9", "e30.e30.e30"]
)
def test_rubbish_is_no_token(text: str) -> None:
    assert refusal(text)


@given(st.text(max_size=60), st.integers(min_value=0))
def test_whatever_is_written_into_a_token_nobody_else_comes_in(rubbish: str, place: int) -> None:
    good = token()
    at = place % len(good)
    try:
        found = verify_token(good[:at] + rubbish + good[at + 1 :], SETTINGS, keys(), NOW)
    except TokenError:
        return
    assert found == verify_token(good, SETTINGS, keys(), NOW), "base64 has spare bits at its end, and no more"


# What a provider says


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, "keys", {"keys": None}])
def test_keys_come_in_a_list(document: Any) -> None:
    with pytest.raises(TokenError, match="JWKS"):
        KeySet(document)


def test_keys_that_are_broken_do_not_hide_the_others() -> None:
    known = KeySet(
        {"keys": [None, {}, {"kty": "RSA", "kid": "rsa"}, {"kty": "RSA", "n": 5}, {"kty": ["RSA"]}, jwk("rsa")]}
    )
    assert verify_token(token(), SETTINGS, known, NOW).username == "ida"
    assert len(KeySet(jwks(*["rsa"] * 500))) == 100


def test_a_provider_is_who_it_says() -> None:
    said = {"issuer": ISSUER, "jwks_uri": ISSUER + "/certs", "token_endpoint": ISSUER + "/token"}
    assert read_discovery(said, ISSUER) == (ISSUER + "/certs", ISSUER + "/token", "")
    assert read_discovery({**said, "token_endpoint": 5}, ISSUER) == (ISSUER + "/certs", "", "")
    changed: list[Any] = [{**said, **wrong} for wrong in ({"issuer": "https://evil.example.com"}, {"jwks_uri": 1})]
    for wrong in (*changed, {"issuer": ISSUER}, [], None):
        with pytest.raises(TokenError):
            read_discovery(wrong, ISSUER)
