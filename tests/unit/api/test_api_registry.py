"""The device registry over HTTP: codes, headers and errors as Hono has them, and who may do what."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.access.audit import AuditLog
from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, create_app
from enmasse.api.registry.operations import OPERATIONS, PREFIX
from enmasse.control.access.accounts import Accounts
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PSK = [{"type": "psk", "auth-id": "s", "secrets": [{"key": "c2VjcmV0IGtleQ=="}]}]


class Site:
    """An API that asks for tokens: `blue` edits and `viewer` looks in namespace blue, `green` edits in green."""

    def __init__(self, directory: Path, registry: Registry, devices: DeviceRegistry, accounts: Accounts) -> None:
        registry.create_namespaces()
        for namespace in ("blue", "green"):
            registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        bindings = {"blue": ("blue", "edit"), "viewer": ("blue", "view"), "green": ("green", "edit")}
        self.tokens = {}
        for name, (namespace, role) in bindings.items():
            registry.create(
                decode(
                    {
                        "apiVersion": "rbac.authorization.k8s.io/v1",
                        "kind": "RoleBinding",
                        "metadata": {"name": name, "namespace": namespace},
                        "roleRef": {"kind": "ClusterRole", "name": f"enmasse.io:tenant-{role}"},
                        "subjects": [{"kind": "User", "name": name}],
                    }
                )
            )
        for name in (*bindings, "root"):
            accounts.add(name, password_hash="", groups=("system:masters",) if name == "root" else ())
            self.tokens[name] = accounts.create_token(name).secret
        self.audit = AuditLog(directory / "audit.log")
        self.registry = registry
        authenticator = Authenticator(accounts, is_required=True)
        parts = ApiParts(
            registry=registry,
            stop=asyncio.Event(),
            authenticator=authenticator,
            audit=self.audit,
            devices=devices,
            is_own_name="api.example.org".__eq__,
            web_origins=("https://fleet.example",),
        )
        self.app = create_app(parts)

    def __call__(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"

        async def body() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=("192.0.2.7", 40_000))
            async with httpx.AsyncClient(transport=transport, base_url="https://api.example.org") as client:
                return await client.request(method, f"{PREFIX}{path}", headers=headers, **options)

        return asyncio.run(body())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("registry")
    uids, ids, versions = itertools.count(1), itertools.count(1), itertools.count(1)
    with (
        ResourceStore(directory / "resources.db") as store,
        DeviceStore(directory / "devices.db") as kept,
        Accounts(directory / "access.db", now=lambda: 1_000.0) as accounts,
    ):
        registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        devices = DeviceRegistry(
            kept,
            now=lambda: "2026-01-01T00:00:00Z",
            new_id=lambda: f"made-{next(ids)}",
            new_version=lambda: f"v{next(versions)}",
        )
        site = Site(directory, registry, devices, accounts)
        site("blue", "POST", "/tenants/blue.plant").raise_for_status()
        yield site
        site.audit.close()


def test_a_tenant_lives_as_hono_has_it(site: Site) -> None:
    made = site("blue", "POST", "/tenants/blue.mill", json={"enabled": True, "ext": {"a": 1}})
    assert (made.status_code, made.json()) == (201, {"id": "blue.mill"})
    assert made.headers["location"] == f"{PREFIX}/tenants/blue.mill"
    again = site("blue", "POST", "/tenants/blue.mill")
    assert (again.status_code, list(again.json())) == (409, ["error"])
    found = site("blue", "GET", "/tenants/blue.mill")
    assert found.json() == {"enabled": True, "ext": {"a": 1}}
    assert found.headers["etag"] == made.headers["etag"]
    changed = site("blue", "PUT", "/tenants/blue.mill", json={}, headers={"If-Match": made.headers["etag"]})
    assert (changed.status_code, changed.content) == (204, b"")
    stale = {"If-Match": made.headers["etag"].strip('"')}  # without quotation marks, as Hono's clients send it
    assert site("blue", "PUT", "/tenants/blue.mill", json={}, headers=stale).status_code == 412
    present = {"If-Match": f'W/"x", {changed.headers["etag"]}'}
    assert site("blue", "DELETE", "/tenants/blue.mill", headers=present).status_code == 204
    gone = site("blue", "GET", "/tenants/blue.mill")
    assert (gone.status_code, gone.json()) == (404, {"error": "there is no tenant 'blue.mill'"})


def test_a_device_and_its_credentials_live_as_hono_has_them(site: Site) -> None:
    made = site("blue", "POST", "/devices/blue.plant/s-1", json={"via": "gw"})
    assert (made.status_code, made.json()) == (201, {"id": "s-1"})
    assert made.headers["location"] == f"{PREFIX}/devices/blue.plant/s-1"
    generated = site("blue", "POST", "/devices/blue.plant")
    assert generated.status_code == 201
    assert site("blue", "GET", f"/devices/blue.plant/{generated.json()['id']}").status_code == 200
    found = site("blue", "GET", "/devices/blue.plant/s-1")
    assert found.json()["via"] == ["gw"]
    assert found.json()["status"]["last-user"] == "blue"
    assert site("blue", "PUT", "/devices/blue.plant/s-1", json=found.json()).status_code == 204
    empty = site("blue", "GET", "/credentials/blue.plant/s-1")
    assert (empty.status_code, empty.json()) == (200, [])
    put = site("blue", "PUT", "/credentials/blue.plant/s-1", json=PSK, headers={"If-Match": empty.headers["etag"]})
    assert put.status_code == 204
    shown = site("blue", "GET", "/credentials/blue.plant/s-1")
    assert shown.headers["etag"] == put.headers["etag"]
    assert "c2VjcmV0" not in shown.text
    assert shown.json()[0]["secrets"][0].keys() == {"id"}
    page = site("blue", "GET", "/devices/blue.plant", params={"filterJson": '{"field": "/via", "value": "gw"}'})
    assert page.json()["total"] == 1
    assert page.json()["result"][0]["id"] == "s-1"
    none = site("blue", "GET", "/devices/blue.plant", params={"filterJson": '{"field": "/id", "value": "no"}'})
    assert (none.status_code, list(none.json())) == (404, ["error"])
    assert site("blue", "DELETE", "/devices/blue.plant/s-1").status_code == 204
    assert site("blue", "GET", "/credentials/blue.plant/s-1").status_code == 404
    assert site("blue", "DELETE", "/devices/blue.plant").status_code == 204
    assert site("blue", "GET", "/devices/blue.plant").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "options", "code"),
    [
        ("POST", "/devices/blue.plant/a", {"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ("POST", "/devices/blue.plant/a", {"content": b"a=b", "headers": {"content-type": "text/plain"}}, 400),
        ("POST", "/devices/blue.plant/a", {"json": [1]}, 400),
        ("POST", "/devices/blue.plant/a%20b", {"json": {}}, 400),
        ("POST", "/devices/blue.plant/a", {"json": {"ext": {"a": "b" * 70_000}}}, 413),
        ("PUT", "/devices/blue.plant/a", {"json": {}}, 404),
        ("PUT", "/devices/blue.plant/a", {}, 400),
        ("PUT", "/credentials/blue.plant/a", {"json": {}}, 404),
        ("GET", "/devices/blue.plant?pageSize=1000", {}, 400),
        ("POST", "/devices/blue.none/a", {"json": {}}, 404),
        ("POST", "/import/blue.plant", {"json": {}}, 400),
        ("POST", "/import/blue.plant?existing=x", {"content": b""}, 400),
        ("POST", "/import/blue.plant", {"content": b"\xff", "headers": {"content-type": "text/csv"}}, 400),
        ("GET", "/export/blue.plant?format=xml", {}, 400),
        ("GET", "/export/blue.none", {}, 404),
    ],
)
def test_a_refusal_has_the_form_of_hono(
    site: Site, method: str, path: str, options: dict[str, Any], code: int
) -> None:
    answer = site("blue", method, path, **options)
    assert (answer.status_code, list(answer.json())) == (code, ["error"]), answer.text


def test_many_devices_come_and_go_as_lines(site: Site) -> None:
    lines = '{"id": "l-1", "via": ["gw"]}\n{"id": "l-2", "enabled": false}\nnothing'
    form = {"content-type": "application/x-ndjson"}
    done = site("blue", "POST", "/import/blue.plant", content=lines, headers=form).json()
    assert (done["created"], [item["line"] for item in done["failed"]]) == (2, [3])
    csv = site("blue", "GET", "/export/blue.plant?format=csv")
    assert csv.text == "id,enabled,via\nl-1,true,gw\nl-2,false,\n"
    form = {"content-type": "text/csv"}
    again = site("blue", "POST", "/import/blue.plant?existing=replace", content=csv.text, headers=form)
    assert again.json() == {"created": 0, "updated": 2, "skipped": 0, "failed": []}
    exported = site("blue", "GET", "/export/blue.plant").text.splitlines()
    assert json.loads(exported[0]) == {"id": "l-1", "enabled": True, "via": ["gw"]}
    site("blue", "DELETE", "/devices/blue.plant").raise_for_status()
    assert site("blue", "GET", "/export/blue.plant").text == ""


def test_ids_are_those_of_devices_that_may_send_for_themselves(site: Site) -> None:
    lines = '{"id": "s-2", "via": ["gw"]}\n{"id": "off", "enabled": false}\n{"id": "gw"}\n{"id": "s-1"}'
    form = {"content-type": "application/x-ndjson"}
    site("blue", "POST", "/import/blue.plant", content=lines, headers=form).raise_for_status()
    first = site("blue", "GET", "/ids/blue.plant")
    assert first.json() == ["s-1", "s-2"]
    tag = first.headers["etag"]
    assert site("blue", "GET", "/ids/blue.plant", headers={"if-none-match": tag}).status_code == 304
    site("blue", "DELETE", "/devices/blue.plant/s-1").raise_for_status()
    assert site("blue", "GET", "/ids/blue.plant", headers={"if-none-match": tag}).json() == ["s-2"]
    # A tenant that no project of the space has.
    refused = site("blue", "GET", "/ids/blue.plant?space=shop")
    assert (refused.status_code, refused.json()) == (
        404,
        {"error": "no IoTProject of space 'shop' has the tenant blue.plant"},
    )
    site("blue", "PUT", "/tenants/blue.plant", json={"enabled": False}).raise_for_status()
    assert site("blue", "GET", "/ids/blue.plant").json() == []
    site("blue", "PUT", "/tenants/blue.plant", json={}).raise_for_status()
    site("blue", "DELETE", "/devices/blue.plant").raise_for_status()


def reads_and_writes(tenant: str) -> list[tuple[str, str, dict[str, Any]]]:
    """One request of every operation on a tenant."""
    made = []
    for operation in OPERATIONS:
        path = operation.path.replace("{tenant}", tenant).replace("{device}", "d-1")
        body: dict[str, Any] = {"json": [] if operation.body == "Credentials" else {}} if operation.body else {}
        if operation.body == "Lines":
            body = {"content": '{"id": "x"}', "headers": {"content-type": "application/x-ndjson"}}
        if "{tenant}" in operation.path:
            made.append((operation.method, path, body))
    return made


def test_another_tenants_project_answers_like_one_that_does_not_exist(site: Site) -> None:
    site("green", "POST", "/tenants/green.house").raise_for_status()
    site("green", "POST", "/devices/green.house/d-1").raise_for_status()
    there, nowhere = reads_and_writes("green.house"), reads_and_writes("green.hours")
    assert len(there) == len(OPERATIONS) - 3
    for (method, path, body), (_, other, _) in zip(there, nowhere, strict=True):
        one, two = site("blue", method, path, **body), site("blue", method, other, **body)
        assert (one.status_code, two.status_code) == (404, 404), path
        assert one.text == two.text.replace("hours", "house")
    assert site("green", "GET", "/devices/green.house/d-1").status_code == 200
    assert [item["id"] for item in site("blue", "GET", "/tenants").json()["result"]] == ["blue.plant"]
    assert site("blue", "POST", "/tenants", params={"namespace": "green"}).status_code == 404
    assert site("blue", "POST", "/tenants").status_code == 404
    for method, path, body in there:
        assert site(None, method, path, **body).status_code == 401
    site("root", "DELETE", "/tenants/green.house").raise_for_status()


def test_a_viewer_reads_but_neither_writes_nor_learns_names_of_logins(site: Site) -> None:
    site("blue", "POST", "/devices/blue.plant/d-1").raise_for_status()
    codes = {}
    for method, path, body in reads_and_writes("blue.plant"):
        codes[method, path.split("/")[1]] = site("viewer", method, path, **body).status_code
    assert {key for key, code in codes.items() if code == 200} == {
        ("GET", "tenants"),
        ("GET", "devices"),
        ("GET", "export"),
        ("GET", "ids"),
    }
    assert {code for code in codes.values() if code != 200} == {403}
    site("blue", "DELETE", "/devices/blue.plant").raise_for_status()


def test_a_tenant_of_no_namespace_is_of_who_may_do_everything(site: Site) -> None:
    made = site("root", "POST", "/tenants").json()["id"]
    assert "." not in made
    assert site("blue", "GET", f"/tenants/{made}").status_code == 404
    in_blue = site("root", "POST", "/tenants", params={"namespace": "blue"}).json()["id"]
    assert in_blue.startswith("blue.")
    assert site("blue", "GET", f"/tenants/{in_blue}").status_code == 200
    assert {made, in_blue, "blue.plant"} == {item["id"] for item in site("root", "GET", "/tenants").json()["result"]}
    assert site("root", "POST", "/tenants/yellow.plant").status_code == 404
    for tenant in (made, in_blue):
        site("root", "DELETE", f"/tenants/{tenant}").raise_for_status()


def test_writes_are_in_the_audit_log_and_secrets_are_not(site: Site) -> None:
    site("blue", "POST", "/devices/blue.plant/audited").raise_for_status()
    site("blue", "PUT", "/credentials/blue.plant/audited", json=PSK).raise_for_status()
    site("blue", "GET", "/credentials/blue.plant/audited").raise_for_status()
    entries, _ = site.audit.read(limit=10, search="audited")
    assert [(item["user"], item["verb"], item["code"]) for item in entries] == [
        ("blue", "put", 204),
        ("blue", "post", 201),
    ]
    assert "c2VjcmV0" not in json.dumps(entries)
    site("blue", "DELETE", "/devices/blue.plant").raise_for_status()


def test_pages_of_an_allowed_origin_use_the_registry_with_a_proof_of_their_own(site: Site) -> None:
    page = {"origin": "https://fleet.example", "sec-fetch-site": "cross-site"}
    asked = {**page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    answer = site(None, "OPTIONS", "/devices/acme.iot", headers=asked)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "https://fleet.example"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers
    made = site("root", "POST", "/tenants", json={}, headers=page)
    assert made.status_code == 201, made.text
    assert (made.headers["access-control-allow-origin"], made.headers["vary"]) == ("https://fleet.example", "Origin")
    assert site(None, "GET", "/tenants", headers={**page, "cookie": "enmasse-session=x"}).status_code == 401
    for other in ({"origin": "https://evil.example"}, {"origin": "null"}, {**page, "host": "evil.example"}):
        refused = site("root", "POST", "/tenants", json={}, headers=page | other)
        assert refused.status_code == 403
    refused = site("root", "DELETE", "/../../apis/enmasse.io/v1beta1/namespaces/default/addressspaces", headers=page)
    assert refused.status_code == 403, "the registry alone"
    assert "access-control-allow-origin" not in refused.headers
