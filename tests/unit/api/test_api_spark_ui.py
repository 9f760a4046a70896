"""Spark's pages: who sees them, and what a page may do in a browser that is logged in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx
import pytest

from enmasse.api import spark_ui
from enmasse.api.access.audit import AuditLog
from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, create_app
from enmasse.api.pipelines import PipelineHost
from enmasse.control.access.accounts import Accounts
from enmasse.errors import UnavailableError

if TYPE_CHECKING:
    from enmasse.control.store.registry import Registry

UI = "/apis/enmasse.io/v1beta1/namespaces/{}/pipelines/{}/ui"

MOVED = {
    "moved": "http://127.0.0.1:4040/spark/x/jobs/?a=1",
    "moved-up": "/spark/x/%2e./../apis",
    "moved-wrong": "http://[",
}


class Pages(PipelineHost):
    """A host with pages for one pipeline, which says what it was asked."""

    asked: list[tuple[str, str, str, Mapping[str, str]]]

    @asynccontextmanager
    async def spark_page(
        self, namespace: str, name: str, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        self.asked.append((namespace, name, path, headers))
        if name == "shop.quiet":
            raise UnavailableError("space shop does not show Spark's pages")
        if path.startswith("moved"):
            yield self._answer(302, b"", location=MOVED[path])
        elif path.startswith("static"):
            yield self._answer(200, b"let a", **{"content-type": "text/javascript"})
        else:
            content = b"<html><head><title>x</title></head><script>steal()</script></html>"
            yield self._answer(200, content, **{"content-type": "text/html;charset=utf-8"})

    @staticmethod
    def _answer(code: int, content: bytes, **headers: str) -> httpx.Response:
        async def parts() -> AsyncIterator[bytes]:
            yield content

        return httpx.Response(code, headers=headers, content=parts())


class Place:
    """An API with accounts, and a client of each."""

    def __init__(self, registry: Registry, accounts: Accounts, audit: AuditLog, folder: Path) -> None:
        self.registry, self.accounts = registry, accounts
        self.pages = Pages(Path("nowhere"))
        self.pages.asked = []
        self.audit = folder / "audit.log"
        self.app = create_app(
            ApiParts(
                registry=registry,
                stop=asyncio.Event(),
                pipelines=self.pages,
                authenticator=Authenticator(accounts, is_required=True),
                audit=audit,
            )
        )

    def add(self, name: str, role: str, namespace: str = "default") -> str:
        self.registry.store.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": namespace, "uid": name},
                "roleRef": {"kind": "ClusterRole", "name": f"enmasse.io:{role}"},
                "subjects": [{"kind": "User", "name": name}],
            }
        )
        self.accounts.add(name, password_hash="", groups=())
        return self.accounts.create_token(name).secret

    @asynccontextmanager
    async def client(self, token: str = "") -> AsyncIterator[httpx.AsyncClient]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://localhost", headers=headers) as client:
            yield client


@pytest.fixture
def place(registry: Registry, tmp_path: Path) -> Any:
    for name in ("shop.hot", "shop.quiet"):
        spec = {"sources": [{"name": "r", "address": "a"}], "sinks": [{"table": "t"}]}
        registry.store.create(
            {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": "Pipeline",
                "metadata": {"name": name, "namespace": "default"},
                "spec": spec,
            }
        )
    with (
        Accounts(tmp_path / "access.db", now=lambda: 1_000.0) as accounts,
        AuditLog(tmp_path / "audit.log", "all") as audit,
    ):
        yield Place(registry, accounts, audit, tmp_path)


async def test_only_who_may_see_a_pipelines_pages_is_led_to_them(place: Place) -> None:
    vera, other = place.add("vera", "tenant-view"), place.add("otto", "tenant-edit", "other")
    path = UI.format("default", "shop.hot")
    async with place.client() as nobody, place.client(other) as otto, place.client(vera) as client:
        assert (await nobody.get(path)).status_code == 401
        assert (await otto.get(path)).status_code == 403
        assert (await client.get(UI.format("default", "shop.none"))).status_code == 404
        quiet = await client.get(UI.format("default", "shop.quiet"))
        assert (quiet.status_code, "does not show" in quiet.json()["message"]) == (503, True)
        place.pages.asked.clear()
        led = await client.get(path)
        assert led.status_code == 303
        # As a browser without a login has it.
        page = await nobody.get(led.headers["location"])
        assert page.status_code == 200
        assert place.pages.asked[-1][:3] == ("default", "shop.hot", "jobs/")
        assert place.pages.asked[-1][3]["x-forwarded-context"] == led.headers["location"].removesuffix("/jobs/")
        guessed = led.headers["location"].replace("/spark/", "/spark/A")
        assert (await nobody.get(guessed)).status_code == 404
        assert {(await nobody.request(m, led.headers["location"])).status_code for m in ("POST", "DELETE")} == {405}
        ticket = led.headers["location"].split("/")[2]
    assert "/spark/" in place.audit.read_text() + place.audit.with_name("audit-nobody.log").read_text()
    assert ticket not in place.audit.read_text() + place.audit.with_name("audit-nobody.log").read_text()


async def test_a_page_has_no_origin_and_reaches_nothing_but_its_own_kind(place: Place) -> None:
    async with place.client(place.add("vera", "tenant-view")) as client:
        base = (await client.get(UI.format("default", "shop.hot"))).headers["location"].removesuffix("jobs/")
        page = await client.get(f"{base}SQL/?q=1")
        assert place.pages.asked[-1][2] == "SQL/?q=1"
        policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
        assert policy["sandbox"] == "allow-scripts allow-forms"
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["connect-src"] == policy["form-action"] == f"https://localhost{base}"
        assert page.text.startswith("<html><head><script>")  # storage, which a page without an origin has not
        script = await client.get(f"{base}static/webui.js")
        assert (script.text, script.headers["cross-origin-resource-policy"]) == ("let a", "cross-origin")
        for path, location in {"": "spark/x/jobs/?a=1", "-up": "", "-wrong": ""}.items():
            assert (await client.get(f"{base}moved{path}")).headers["location"] == base + location
        asked = await client.options(f"{base}api/v1/applications")
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "*")


async def test_a_path_that_leads_up_is_asked_of_nobody(place: Place) -> None:
    async with place.client(place.add("vera", "tenant-view")) as client:
        base = (await client.get(UI.format("default", "shop.hot"))).headers["location"].removesuffix("jobs/")
    place.pages.asked.clear()

    async def code(target: str) -> int:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            # A client of HTTP would put such a path right.
            written = {"path": unquote(target), "raw_path": target.encode()}
            await place.app({**scope, **written}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://localhost") as client:
            return (await client.get("/")).status_code

    for up in ("../../../log/other/shop.x", "%2e%2E/%2e./log/other/shop.x", "jobs/..", "./jobs/", "a/..%2fb"):
        assert await code(base + up) == 404
    assert await code(base.replace("/spark/", "/spark%2F") + "jobs/") == 404
    assert not place.pages.asked
    assert await code(f"{base}jobs/...") == 200


async def test_a_ticket_ends_with_the_login_the_right_and_after_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.client() as nobody:

        async def led(token: str) -> str:
            async with place.client(token) as client:
                return (await client.get(UI.format("default", "shop.hot"))).headers["location"]

        async def code(location: str) -> int:
            return (await nobody.get(location)).status_code

        first = await led(place.add("vera", "tenant-view"))
        assert await code(first) == 200
        place.registry.store.delete("RoleBinding", "default", "vera")
        assert await code(first) == 404
        second = await led(place.add("ida", "tenant-view"))
        assert await code(second) == 200
        place.accounts.remove("ida")
        assert await code(second) == 404
        token = place.add("olga", "tenant-view")
        third = await led(token)
        assert await code(third) == 200
        monkeypatch.setattr(spark_ui, "IDLE_S", -1.0)
        assert await code(third) == 404
        monkeypatch.undo()
        monkeypatch.setattr(spark_ui, "MAX_TICKETS", 2)
        others = await led(place.add("ella", "tenant-view"))
        tickets = [await led(token) for _ in range(3)]
        assert [await code(ticket) for ticket in (others, *tickets)] == [200, 404, 200, 200]


@pytest.mark.parametrize("begins", [False, True])
async def test_who_leaves_before_a_page_is_whole_has_nobody_work_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        asked.set()
        yield b"<html>"
        await asyncio.Event().wait()

    @asynccontextmanager
    async def spark_page(*_: object) -> AsyncIterator[httpx.Response]:
        try:
            if not begins:
                asked.set()
                await asyncio.Event().wait()
            yield httpx.Response(200, headers={"content-type": "text/html"}, content=endless())
        finally:
            left.set()

    async with place.client(place.add("vera", "tenant-view")) as client:
        path = (await client.get(UI.format("default", "shop.hot"))).headers["location"]
    monkeypatch.setattr(place.pages, "spark_page", spark_page)
    messages = [{"type": "http.request"}]

    async def receive() -> dict[str, str]:
        if messages:
            return messages.pop()
        await asked.wait()
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        pass

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "scheme": "https",
        "server": ("localhost", 443),
    }
    async with asyncio.timeout(30):
        await place.app(scope, receive, send)
        await left.wait()
