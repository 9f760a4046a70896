"""Logins of browsers at an OpenID provider: by a code that only the browser which began can redeem, and once."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from enmasse.api.access import authorization
from enmasse.api.access.account_routes import LOGIN_COOKIE
from enmasse.api.access.authentication import Authenticator
from enmasse.api.access.browser_logins import LOGIN_S, OidcTokens
from enmasse.api.app import ApiParts, create_app
from enmasse.identity.oidc_settings import OidcSettings
from tests.unit.api.test_api_rows import lines_of
from tests.unit.net.providers import Provider

if TYPE_CHECKING:
    from enmasse.control.store.registry import Registry


class Browser:
    """A browser before the API of an installation with a provider."""

    def __init__(self, registry: Registry, provider: Provider, *, client: str = "console") -> None:
        self.now = 1000.0
        self.later = 0.0
        provider.more["authorization_endpoint"] = f"{provider.issuer}/auth?kc=1"
        self.provider = provider
        settings = OidcSettings(provider.issuer, ("messaging",), client_id=client, groups_claim="groups")
        authenticator = Authenticator(
            is_required=True,
            operator="the operator's token",
            verifier=OidcTokens(settings, wall=lambda: time.time() + self.later, clock=time.monotonic),
            now=lambda: self.now,
            wall=lambda: time.time() + self.later,
        )
        self.close = authenticator.close
        self.app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), authenticator=authenticator))
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://localhost")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
        await self.close()

    async def leave(self, **options: str) -> dict[str, str]:
        """Go to the provider; return what it is asked."""
        answer = await self.http.get("/login/oidc", params=options)
        assert answer.status_code == 303
        url = urlsplit(answer.headers["location"])
        assert url._replace(query="").geturl() == f"{self.provider.issuer}/auth"
        return {name: values[0] for name, values in parse_qs(url.query).items()}

    async def come_back(self, asked: dict[str, str], code: str = "c-1", **more: str) -> httpx.Response:
        self.provider.codes[code] = asked["code_challenge"], asked["nonce"]
        return await self.http.get(
            urlsplit(asked["redirect_uri"]).path, params={"code": code, "state": asked["state"], **more}
        )

    async def name(self) -> Any:
        answer = await self.http.get("/whoami")
        return answer.json().get("username") if answer.status_code == 200 else answer.status_code


async def test_who_has_logged_in_at_the_provider_has_a_session(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        config = (await browser.http.get("/console/config.json")).json()
        assert config["login"] == {"required": True, "accounts": False, "oidc": "127.0.0.1"}
        asked = await browser.leave()
        assert (asked["client_id"], asked["response_type"], asked["kc"]) == ("console", "code", "1")
        assert asked["code_challenge_method"] == "S256"
        answer = await browser.come_back(asked)
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
        session = next(it for it in answer.headers.get_list("set-cookie") if it.startswith("enmasse_session="))
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in session.split(";")}
        assert await browser.name() == "oidc:ida"
        [(form, _)] = provider.forms
        assert form["redirect_uri"] == asked["redirect_uri"] == "http://localhost/login/oidc/callback"
        await browser.http.post("/logout")
        assert await browser.name() == 401


@pytest.mark.parametrize(("ago", "is_fresh"), [(0, True), (60, True), (100, False), (None, False), ("now", False)])
async def test_a_proof_at_the_provider_counts_if_it_was_given_since_it_was_asked_for(
    registry: Registry, ago: float | str | None, is_fresh: bool
) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        asked = await browser.leave(fresh="true")
        assert asked["max_age"] == "0"
        provider.lasts_s = 600
        browser.later += 60  # they look for their telephone
        if ago is not None:
            at = time.time() + browser.later
            provider.claims["auth_time"] = at - ago if isinstance(ago, float | int) else ago
        answer = await browser.come_back(asked)
        if not is_fresh:
            assert answer.status_code == 401
            assert await browser.name() == 401
            return
        _, _, proof = answer.headers["location"].partition("/console/#proof=")
        table = "/apis/access.enmasse.io/v1beta1/tokens"
        refused = await browser.http.post(table, json={})
        assert (refused.status_code, "max_age" in refused.text) == (403, False)
        assert "/login/oidc?fresh=true" in refused.json()["message"]
        # Tokens are of accounts, and this person has none.
        assert (await browser.http.post(table, json={}, headers={"EnMasse-Proof": proof})).status_code == 404


async def test_who_comes_from_the_provider_without_being_asked_anew_has_no_fresh_proof(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        asked = await browser.leave()
        assert "max_age" not in asked
        provider.claims["auth_time"] = time.time()
        assert (await browser.come_back(asked)).headers["location"] == "/console/"


async def test_a_code_is_of_no_use_in_another_browser_or_twice_or_too_late(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        asked = await browser.leave()
        cookies = httpx.Cookies(browser.http.cookies)
        browser.http.cookies.clear()
        assert (await browser.come_back(asked)).status_code == 401  # the victim of a forged link
        browser.http.cookies = cookies
        assert (await browser.come_back(asked)).status_code == 303
        browser.http.cookies.clear()
        again = await browser.leave()
        provider.codes["stolen"] = "challenge of another login", again["nonce"]
        path = urlsplit(again["redirect_uri"]).path
        stolen = await browser.http.get(path, params={"code": "stolen", "state": again["state"]})
        assert stolen.status_code == 401
        assert (await browser.come_back(again)).status_code == 401  # the login was given up
        late = await browser.leave()
        browser.later += LOGIN_S + 1
        assert (await browser.come_back(late)).status_code == 401
        refused = await browser.http.get(path, params={"error": "access_denied", "state": late["state"]})
        assert refused.status_code == 401
        assert await browser.name() == 401


@pytest.mark.slow
async def test_however_many_logins_strangers_begin_mine_is_not_pushed_out(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        mine = await browser.leave()
        cookies = httpx.Cookies(browser.http.cookies)
        for _ in range(1_100):
            browser.http.cookies.clear()
            await browser.leave()
        browser.http.cookies = cookies
        assert (await browser.come_back(mine)).status_code == 303


async def test_a_login_survives_a_restart_and_counts_once(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as before, Browser(registry, provider) as after:
        asked = await before.leave()
        after.http.cookies = httpx.Cookies(before.http.cookies)
        kept = httpx.Cookies(after.http.cookies)
        assert (await after.come_back(asked)).status_code == 303
        assert after.http.cookies.get(LOGIN_COOKIE) is None
        after.http.cookies = httpx.Cookies(kept)
        assert (await after.come_back(asked, "c-2")).status_code == 401, "it has counted, whatever the code"
        assert provider.codes, "the provider was not even asked"


async def test_what_a_browser_keeps_of_a_login_tells_and_takes_nothing(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        asked = await browser.leave()
        sealed = browser.http.cookies[LOGIN_COOKIE]
        assert asked["state"] not in sealed
        opened = base64.urlsafe_b64decode(sealed + "===")
        assert not any(asked[name].encode() in opened for name in ("state", "nonce", "code_challenge"))
        for changed in (sealed[:-6] + "AAAAAA", sealed[1:], "", "a" * 10_000, asked["state"]):
            browser.http.cookies.clear()
            browser.http.cookies.set(LOGIN_COOKIE, changed)
            assert (await browser.come_back(asked)).status_code == 401
        other = Authenticator(operator="another installation").browser_logins
        made, foreign = other.begin(asked["redirect_uri"])
        browser.http.cookies.clear()
        browser.http.cookies.set(LOGIN_COOKIE, foreign)
        assert (await browser.come_back(asked | {"state": made.state})).status_code == 401


@pytest.mark.parametrize(
    ("changed", "said", "named", "is_good"),
    [
        ({}, {}, False, True),
        ({}, {"iss": "right"}, False, True),
        ({}, {"iss": "right"}, True, True),
        ({}, {}, True, False),
        ({}, {"iss": "https://id.example.com"}, False, False),
        ({}, {"iss": "https://id.example.com"}, True, False),
        ({"nonce": "of another login"}, {}, False, False),
        ({"nonce": None}, {}, False, False),
        ({"azp": "shop"}, {}, False, False),
        ({"azp": None}, {}, False, True),
        ({"azp": None, "aud": ["console", "shop"]}, {}, False, False),
        ({"aud": "messaging"}, {}, False, False),
        ({"sub": "u-2"}, {}, False, False),
    ],
)
async def test_the_answer_has_to_be_of_this_provider_this_client_and_this_login(
    registry: Registry, changed: dict[str, Any], said: dict[str, str], named: bool, is_good: bool
) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        provider.changed = changed
        provider.more["authorization_response_iss_parameter_supported"] = named
        more = {name: provider.issuer if value == "right" else value for name, value in said.items()}
        answer = await browser.come_back(await browser.leave(), **more)
        assert answer.status_code == (303 if is_good else 401)
        assert await browser.name() == ("oidc:ida" if is_good else 401)


async def test_a_session_ends_with_its_proof(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        await browser.come_back(await browser.leave())
        browser.later += 59
        assert await browser.name() == "oidc:ida"
        browser.later += 2
        assert await browser.name() == 401
        assert "refresh_token" not in str(provider.forms)


async def test_a_session_goes_on_while_the_provider_renews_its_proof(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        provider.refreshes, provider.lasts_s = ["r-1"], 120
        await browser.come_back(await browser.leave())
        provider.refreshes.append("r-2")
        browser.later += 121
        provider.claims["groups"] = ["late"]
        provider.lasts_s = 300
        names = await asyncio.gather(*(browser.name() for _ in range(5)))
        assert names == ["oidc:ida"] * 5
        assert [form.get("refresh_token") for form, _ in provider.forms] == [None, "r-1"], "asked once"
        assert "oidc:late" in (await browser.http.get("/whoami")).json()["groups"]
        await provider.stop()
        browser.later += 300
        assert await browser.name() == 503, "it may be renewed once the provider answers"
        await provider.start()
        provider.lasts_s = 600
        assert await browser.name() == "oidc:ida"
        assert provider.forms[-1][0]["refresh_token"] == "r-2"
        provider.refreshes.clear()
        browser.later += 600
        assert await browser.name() == 401, "the provider has ended the login"


async def test_a_proof_is_not_renewed_for_somebody_else(registry: Registry) -> None:
    for other in ({"sub": "u-2"}, {"preferred_username": "jo"}):
        async with Provider() as provider, Browser(registry, provider) as browser:
            provider.refreshes = ["r-1"]
            await browser.come_back(await browser.leave())
            browser.later += 61
            provider.claims |= other
            provider.lasts_s = 120
            assert await browser.name() == 401


async def test_without_a_client_or_a_provider_that_answers_nobody_is_sent_away(registry: Registry) -> None:
    async with Provider() as provider:
        async with Browser(registry, provider, client="") as browser:
            assert (await browser.http.get("/login/oidc")).status_code == 404
            assert (await browser.http.get("/console/config.json")).json()["login"]["oidc"] is None
        async with Browser(registry, provider) as browser:
            await provider.stop()
            assert (await browser.http.get("/login/oidc")).status_code == 503


async def test_a_stream_does_not_keep_an_idle_session_alive(registry: Registry) -> None:
    async with Provider() as provider, Browser(registry, provider) as browser:
        await browser.come_back(await browser.leave())
        cookie = f"enmasse_session={browser.http.cookies['enmasse_session']}"
        lines = lines_of(browser.app, "/apis/enmasse.io/v1beta1/overview?watch=true", cookie=cookie)
        await anext(lines)
        browser.now += 43_199
        space = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "spec": {}}
        registry.store.create(space | {"metadata": {"name": "a", "namespace": "ns"}})
        browser.now += 2
        assert await browser.name() == 401
        await lines.aclose()  # type: ignore[attr-defined]


async def test_a_stream_that_has_nothing_to_tell_ends_with_its_session(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "_AGAIN_S", 0.01)
    async with Provider() as provider, Browser(registry, provider) as browser:
        await browser.come_back(await browser.leave())
        cookie = f"enmasse_session={browser.http.cookies['enmasse_session']}"
        lines = lines_of(browser.app, "/apis/enmasse.io/v1beta1/overview?watch=true", cookie=cookie)
        await anext(lines)
        browser.now += 43_201
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(lines), 60)
