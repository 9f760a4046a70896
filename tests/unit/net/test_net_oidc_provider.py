"""What a process learns from an OpenID provider, and what it does while that one is away."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from enmasse.errors import UnavailableError
from enmasse.identity.errors import TokenError
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.net.loop import run
from enmasse.net.oidc_provider import (
    MAX_ANSWER_BYTES,
    MAX_ASKING,
    MAX_WAITING,
    REFETCH_S,
    REFRESH_S,
    STALE_S,
    OidcProvider,
)
from tests.unit.client.authorities import Authority
from tests.unit.identity.tokens_of_tests import jwk, private_key
from tests.unit.net.providers import CERTS, TOKEN, Provider

DISCOVERY = "/realms/shop/.well-known/openid-configuration"


class Scene:
    """A provider, and somebody who asks it."""

    def __init__(self, provider: Provider, **settings: Any) -> None:
        self.provider = provider
        self.settings = OidcSettings(provider.issuer, ("messaging",), client_id="messaging", **settings)
        self.now = 1_000.0
        self.asker = OidcProvider(self.settings, wall=time.time, clock=lambda: self.now)

    async def judged(self, token: str) -> str:
        """The user's name, however long it takes to find it."""
        found = self.asker.judge(token)
        return (found or await self.asker.fetch_and_judge(token)).username

    async def refusal(self, token: str) -> str:
        with pytest.raises((TokenError, UnavailableError)) as caught:
            await self.judged(token)
        return f"{type(caught.value).__name__}: {caught.value}"

    def at_once(self, token: str) -> str:
        found = self.asker.judge(token)
        assert found is not None, "nobody has to be asked"
        return found.username


def play(story: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), Provider() as provider:
            scene = Scene(provider, **settings)
            try:
                await story(scene)
            finally:
                await scene.asker.close()

    run(main())


def test_keys_are_fetched_once_and_then_everybody_is_answered_at_once() -> None:
    async def story(scene: Scene) -> None:
        assert scene.asker.judge(scene.provider.token()) is None
        names = await asyncio.gather(*(scene.asker.fetch_and_judge(scene.provider.token()) for _ in range(20)))
        assert {found.username for found in names} == {"ida"}
        assert scene.at_once(scene.provider.token(preferred_username="jo")) == "jo"
        assert scene.provider.asked == [DISCOVERY, CERTS]

    play(story)


def test_a_provider_that_is_away_disturbs_nobody_whose_key_is_known() -> None:
    async def story(scene: Scene) -> None:
        scene.asker.prepare()
        await scene.judged(scene.provider.token())
        await scene.provider.stop()
        for _ in range(3):
            scene.now += REFRESH_S + 1
            assert scene.at_once(scene.provider.token()) == "ida"
            assert "UnavailableError" in await scene.refusal(scene.provider.token("rsa-new"))
        await scene.provider.start()
        scene.provider.keys = ["rsa-new"]
        assert "UnavailableError" in await scene.refusal(scene.provider.token()), "it is spared for a moment"
        assert scene.at_once(scene.provider.token("rsa")) == "ida"
        scene.now += REFETCH_S
        assert await scene.judged(scene.provider.token()) == "ida"
        assert "UnknownKeyError" in await scene.refusal(scene.provider.token("rsa")), "it was withdrawn"

    play(story)


def test_a_new_key_is_fetched_when_it_is_met_and_strangers_cannot_have_that_repeated() -> None:
    async def story(scene: Scene) -> None:
        await scene.judged(scene.provider.token())
        scene.now += REFETCH_S
        scene.provider.keys = ["rsa-new", "rsa"]
        assert await scene.judged(scene.provider.token()) == "ida"
        for _ in range(10):
            assert "UnknownKeyError" in await scene.refusal(scene.provider.token("rsa-other"))
        assert scene.provider.count(CERTS) == 2

    play(story)


def test_a_key_without_a_name_is_fetched_anew_at_a_wrong_signature_and_the_withdrawn_one_counts_no_more() -> None:
    async def story(scene: Scene) -> None:
        scene.provider.names_keys = False
        assert await scene.judged(scene.provider.token()) == "ida"
        scene.now += REFETCH_S
        scene.provider.keys = ["rsa-new"]
        assert await scene.judged(scene.provider.token()) == "ida"
        for _ in range(10):
            assert "UnknownKeyError" in await scene.refusal(scene.provider.token("rsa"))
        assert scene.provider.count(CERTS) == 2, "strangers cannot have that repeated"

    play(story)


def test_a_key_that_takes_the_name_of_an_earlier_one_is_found() -> None:
    async def story(scene: Scene) -> None:
        await scene.judged(scene.provider.token())
        scene.now += REFETCH_S
        scene.provider.answers[CERTS] = (200, {"keys": [jwk("rsa-new", kid="rsa")]})
        renewed = jwt.encode(
            jwt.decode(scene.provider.token(), options={"verify_signature": False}),
            private_key("rsa-new"),
            "RS256",
            headers={"kid": "rsa"},
        )
        assert await scene.judged(renewed) == "ida"
        assert "UnknownKeyError" in await scene.refusal(scene.provider.token())

    play(story)


def test_a_key_that_was_withdrawn_while_nobody_came_is_not_taken() -> None:
    async def story(scene: Scene) -> None:
        await scene.judged(scene.provider.token())
        scene.provider.keys = ["rsa-new"]
        scene.now += STALE_S + 1
        assert "UnknownKeyError" in await scene.refusal(scene.provider.token("rsa"))
        assert scene.at_once(scene.provider.token()) == "ida"

    play(story)


def test_nobody_is_let_in_before_a_provider_was_heard() -> None:
    async def story(scene: Scene) -> None:
        await scene.provider.stop()
        assert "UnavailableError" in await scene.refusal(scene.provider.token())
        assert "UnavailableError" in await scene.refusal(scene.provider.token())
        await scene.provider.start()
        scene.now += REFETCH_S
        assert await scene.judged(scene.provider.token()) == "ida"

    play(story)


@pytest.mark.parametrize(
    ("path", "answer", "told"),
    [
        (
            DISCOVERY,
            (200, {"issuer": "https://evil.example.com", "jwks_uri": "https://evil.example.com"}),
            "has the issuer",
        ),
        (DISCOVERY, (200, {"issuer": "?"}), "jwks_uri"),
        (DISCOVERY, (200, b"<html>"), "JSON"),
        (DISCOVERY, (302, {}), "302"),
        (DISCOVERY, (500, b"sorry"), "500"),
        (CERTS, (404, {}), "404"),
        (CERTS, (200, {"keys": 5}), "JWKS"),
        (CERTS, (200, b" " * (MAX_ANSWER_BYTES + 1)), "more than"),
        (CERTS, (200, b"[" * 100_000), "JSON"),
    ],
)
def test_a_provider_that_talks_nonsense_lets_nobody_in(path: str, answer: tuple[int, Any], told: str) -> None:
    async def story(scene: Scene) -> None:
        scene.provider.answers[path] = answer
        refusal = await scene.refusal(scene.provider.token())
        assert refusal.startswith("UnavailableError")
        assert told in refusal
        assert "/elsewhere" not in scene.provider.asked, "redirects are not followed"

    play(story)


def test_keys_and_tokens_come_over_tls_or_from_this_machine() -> None:
    async def story(scene: Scene) -> None:
        said = {"issuer": scene.provider.issuer, "jwks_uri": "http://keys.example.com/certs"}
        scene.provider.answers[DISCOVERY] = (200, said)
        assert "https is expected" in await scene.refusal(scene.provider.token())

    play(story)


# Passwords


def test_a_password_is_shown_to_the_provider() -> None:
    async def story(scene: Scene) -> None:
        found = await scene.asker.judge_password("ida", "adi")
        assert (found.username, found.expires_at) == ("ida", None)
        ((form, as_whom),) = scene.provider.forms
        assert form == {
            "grant_type": "password", "username": "ida", "password": "adi", "scope": "openid",
            "client_id": "messaging",
        }  # fmt: skip
        assert as_whom == ""
        with pytest.raises(TokenError, match="wrong password"):
            await scene.asker.judge_password("ida", "guess")

    play(story)


def test_a_client_with_a_secret_proves_itself() -> None:
    async def story(scene: Scene) -> None:
        await scene.asker.judge_password("ida", "adi")
        form, as_whom = scene.provider.forms[0]
        assert as_whom == "messaging:s3cret: %"
        assert not {"client_id", "client_secret"} & form.keys()

    play(story, client_secret="s3cret: %")


def test_an_answer_for_somebody_else_is_none() -> None:
    async def story(scene: Scene) -> None:
        foreign = scene.provider.token(aud="account")
        ours = scene.provider.token(aud="messaging", preferred_username="ida")
        for said, expected in (
            ({"access_token": foreign}, None),
            ({"access_token": "opaque", "id_token": ours}, "ida"),
            ({"access_token": scene.provider.token("rsa-other")}, None),
            ({}, None),
        ):
            scene.provider.answers[TOKEN] = (200, said)
            if expected:
                assert (await scene.asker.judge_password("ida", "adi")).username == expected
            else:
                with pytest.raises((TokenError, UnavailableError)):
                    await scene.asker.judge_password("ida", "adi")

    play(story)


@pytest.mark.parametrize(
    "answer",
    [(401, {"error": "invalid_client"}), (400, {"error": "unauthorized_client"}), (503, b""), (429, {}), (200, [])],
)
def test_what_says_nothing_of_the_password_is_no_refusal(answer: tuple[int, Any]) -> None:
    async def story(scene: Scene) -> None:
        scene.provider.answers[TOKEN] = answer
        with pytest.raises(UnavailableError) as caught:
            await scene.asker.judge_password("ida", "hunter2")
        assert "hunter2" not in str(caught.value)

    play(story)


def test_only_so_many_passwords_wait_for_a_provider() -> None:
    async def story(scene: Scene) -> None:
        await scene.judged(scene.provider.token())
        await scene.asker.judge_password("ida", "adi")
        scene.provider.is_silent = True
        waiting = [asyncio.ensure_future(scene.asker.judge_password(f"u{n}", "x")) for n in range(MAX_WAITING)]
        while scene.provider.count(TOKEN) < 1 + MAX_ASKING:
            await asyncio.sleep(0.01)
        with pytest.raises(UnavailableError, match="wait for the provider already"):
            await scene.asker.judge_password("late", "etal")
        assert scene.provider.count(TOKEN) == 1 + MAX_ASKING, "no more are asked for at a time"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        scene.provider.is_silent = False
        assert (await scene.asker.judge_password("late", "etal")).username == "late"

    play(story)


# TLS


def test_a_provider_is_believed_if_its_certificate_is(tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority(tmp_path, "authority")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.sign("localhost"))
        async with asyncio.timeout(30), Provider(context) as provider:
            good = Scene(provider, ca_cert=authority.ca_file.read_text())
            stranger = Scene(provider)
            broken = Scene(provider, ca_cert="no PEM")
            assert await good.judged(provider.token()) == "ida"
            assert "CERTIFICATE_VERIFY_FAILED" in await stranger.refusal(provider.token())
            assert "caCert" in await broken.refusal(provider.token())
            for scene in (good, stranger, broken):
                await scene.asker.close()

    run(main())


def test_settings_do_not_tell_their_secrets() -> None:
    settings = OidcSettings("https://id.example.com", ("a",), client_secret="hunter2")
    assert "hunter2" not in repr(settings)
    assert replace(settings, client_secret="other") != settings
