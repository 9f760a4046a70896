"""The console's files: from here alone, under a policy that admits nothing else, and a page for every place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette

from enmasse.api.access.authentication import Authenticator
from enmasse.api.access.authorization import is_public
from enmasse.api.console import console_routes
from enmasse.api.kube.status import RequestError
from enmasse.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.api.conftest import Api


@pytest.fixture
def static(tmp_path: Path) -> Path:
    files = {"index.html": "<html>page</html>", "app-AB12CD34.js": "run()" * 100, "style.css": "p {}"}
    for name, text in files.items():
        (tmp_path / "static").mkdir(exist_ok=True)
        (tmp_path / "static" / name).write_text(text)
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "static"


async def get(static: Path, path: str, **headers: str) -> httpx.Response:
    app = Starlette(routes=console_routes(Authenticator(), static))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.get(path, headers=headers)


async def test_files_are_served_under_a_policy_that_admits_no_foreign_script(static: Path) -> None:
    page = await get(static, "/console/")
    assert (page.text, page.headers["content-type"]) == ("<html>page</html>", "text/html; charset=utf-8")
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == "'none'"
    assert page.headers["cache-control"] == "no-cache"
    script = await get(static, "/console/app-AB12CD34.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-encoding"] == "gzip"
    again = await get(static, "/console/app-AB12CD34.js", **{"if-none-match": script.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("path", ["spaces/default/shop", "addresses/shop.orders", "a/b.css/%F0%9F%9A%80", "x%00y"])
async def test_any_place_in_the_console_is_its_page(static: Path, path: str) -> None:
    assert (await get(static, f"/console/{path}")).text == "<html>page</html>"


async def test_a_file_of_an_older_build_is_not_the_page(static: Path) -> None:
    with pytest.raises(RequestError, match="has no file"):
        await get(static, "/console/app-00000000.js")


@pytest.mark.parametrize("path", ["../secret.txt", "..%2Fsecret.txt", "%2e%2e/secret.txt", "/etc/passwd"])
async def test_nothing_else_of_the_machine_is_served(static: Path, path: str) -> None:
    answer = await get(static, f"/console/{path}")
    assert answer.text in ("<html>page</html>", "Not Found")


async def test_a_file_that_was_built_anew_is_read_again(static: Path) -> None:
    app = Starlette(routes=console_routes(Authenticator(), static))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        before = await client.get("/console/")
        (static / "index.html").write_text("<html>another</html>")
        after = await client.get("/console/", headers={"if-none-match": before.headers["etag"]})
    assert after.text == "<html>another</html>"


def test_without_a_build_it_says_how_to_make_one(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from enmasse.api import console

    monkeypatch.setattr(console._Files, "read", lambda *_: None)
    answer = api("GET", "/console/")
    assert answer.status_code == 503
    assert "make console" in answer.json()["message"]
    assert api("GET", "/console").headers["location"] == "/console/"


def test_how_one_logs_in_is_said_to_everybody(api: Api) -> None:
    found: Any = api("GET", "/console/config.json").json()
    assert found == {"version": __version__, "login": {"required": False, "accounts": False, "oidc": None}}


@pytest.mark.parametrize("path", ["/consolex", "/console.json", "/apis", "/login/", "/"])
def test_no_other_path_became_public(path: str) -> None:
    assert not is_public(path)
    assert is_public("/console/a")
