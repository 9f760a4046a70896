"""Tokens of an OpenID provider at the API, by a real provider on a port of this machine."""

from __future__ import annotations

import asyncio
import time

import pytest

from enmasse.api.access.browser_logins import OidcTokens
from enmasse.api.kube.status import RequestError
from enmasse.identity.oidc_settings import OidcSettings
from tests.unit.net.providers import Provider


def tokens_of(provider: Provider) -> OidcTokens:
    settings = OidcSettings(provider.issuer, ("messaging",), groups_claim="groups")
    return OidcTokens(settings, wall=time.time, clock=time.monotonic)


def test_a_token_names_a_user_and_groups_that_are_nobody_elses() -> None:
    async def body() -> None:
        async with Provider() as provider:
            tokens = tokens_of(provider)
            found = await tokens.requester_of(provider.token(groups=["admins", "system:masters"]))
            assert found is not None
            assert found.name == "oidc:ida"
            assert found.groups == ("oidc:admins", "oidc:system:masters", "system:authenticated")
            assert not found.is_admin
            await tokens.close()

    asyncio.run(body())


def test_a_token_that_does_not_hold_is_worth_nothing() -> None:
    async def body() -> None:
        async with Provider() as provider:
            tokens = tokens_of(provider)
            good = provider.token()
            for wrong in (
                provider.token(aud="somebody-else"),
                provider.token(exp=time.time() - 60),
                provider.token(iss="https://id.example.com/other"),
                provider.token(key="rsa-2"),
                good[:-4] + "AAAA",
                "no token at all",
            ):
                assert await tokens.requester_of(wrong) is None
            assert await tokens.requester_of(good) is not None
            await tokens.close()

    asyncio.run(body())


def test_a_provider_that_is_away_is_told_and_is_no_refusal() -> None:
    async def body() -> None:
        async with Provider() as provider:
            tokens, token = tokens_of(provider), provider.token()
            await provider.stop()
            with pytest.raises(RequestError) as caught:
                await tokens.requester_of(token)
            assert caught.value.code == 503
            await tokens.close()

    asyncio.run(body())
