"""The audit log: what is written down of a request, and what never is."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.access.audit import KEPT_DAYS, AuditLevel, AuditLog
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.control.access.roles import ROLES
from enmasse.errors import ConfigError
from enmasse.identity.rbac import AccessRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from enmasse.control.store.registry import Registry

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
SPACE = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}}


@pytest.fixture
def audited(api: Any, registry: Registry, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Send requests, and return what was written down of them."""

    def play(*requests: tuple[str, str, dict[str, Any]], level: AuditLevel = "writes", **limits: int) -> Any:
        path = tmp_path / "audit.log"

        async def body(log: AuditLog) -> None:
            app = create_app(
                ApiParts(
                    registry=registry,
                    stop=asyncio.Event(),
                    nodes={"node-0": NodeAccess(messages=api.messages)},
                    audit=log,
                )
            )
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                for method, address, options in requests:
                    await client.request(method, address, **options)

        with AuditLog(path, level, **limits) as log:
            asyncio.run(body(log))
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return play


def test_who_did_what_to_which_object_is_written_down(audited: Any) -> None:
    created, deleted = audited(
        ("POST", SPACES, {"json": SPACE, "headers": {"user-agent": "kubectl/v1.20.2"}}),
        ("GET", f"{SPACES}/shop", {}),
        ("DELETE", f"{SPACES}/shop", {"params": {"dryRun": "All"}}),
    )
    assert {key: created[key] for key in created if key not in ("time", "ms", "from")} == {
        "user": "system:operator",
        "agent": "kubectl/v1.20.2",
        "verb": "create",
        "group": "enmasse.io",
        "resource": "addressspaces",
        "namespace": "default",
        "name": "shop",
        "code": 201,
    }
    assert created["time"].endswith("Z")
    assert created["ms"] >= 0
    assert (deleted["verb"], deleted["name"], deleted["dryRun"], deleted["code"]) == ("delete", "shop", True, 200)


def nobodys(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "audit-nobody.log").read_text().splitlines()]


def test_refusals_and_mistakes_are_written_down(audited: Any, tmp_path: Path) -> None:
    found = audited(
        ("GET", "/apis", {"headers": {"host": "evil.example"}}),
        ("POST", SPACES, {"json": SPACE | {"kind": "Spaceship"}}),
        ("DELETE", f"{SPACES}/nothing", {}),
        ("GET", f"{SPACES}/nothing", {}),
    )
    assert [(item["verb"], item["code"]) for item in found] == [("create", 400), ("delete", 404)]
    assert [(item["verb"], item["code"]) for item in nobodys(tmp_path)] == [("get", 403)]


def test_nobody_washes_out_what_others_did_however_much_is_asked(audited: Any, tmp_path: Path) -> None:
    long = "x" * 12_000
    headers = {"host": "evil.example", "user-agent": long}
    flood = [("POST", f"{SPACES}/{long}/{long}", {"headers": headers, "params": {long: long}})] * 60
    kept = audited(("POST", SPACES, {"json": SPACE}), *flood, max_bytes=10_000, kept=1)
    assert [(item["verb"], item["name"]) for item in kept] == [("create", "shop")]
    assert {len(item["agent"]) for item in nobodys(tmp_path)} == {256}
    assert {item["name"][-4:] for item in nobodys(tmp_path)} == {"x..."}
    files = list(tmp_path.glob("audit-nobody.log*"))
    assert len(files) == 2
    assert all(2_000 < file.stat().st_size <= 10_000 for file in files)


def entry(user: str, number: int, days: int = 0) -> dict[str, Any]:
    time = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": time, "user": user, "verb": "create", "name": f"{number:04}", "code": 201}


def test_who_does_much_pushes_out_nobody_elses_lines(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "audit.log", max_bytes=2_000, kept=3) as log:
        for number in range(8):
            log.write(entry("tina", number))
        log.write(entry('quoted "\\" name', 0))
        for number in range(2_000):
            log.write(entry("noisy", number))
            if not number % 200:
                log.write(entry("sam", number))
        sums = {user: [e["name"] for e in log.read(limit=10_000, user=user)[0]] for user in ("tina", "sam", "noisy")}
        quoted = log.read(limit=1, user='quoted "\\" name')[0]
    assert sums["tina"] == [f"{number:04}" for number in reversed(range(8))]
    assert sums["sam"] == [f"{number:04}" for number in reversed(range(0, 2_000, 200))]
    # Of its own the latest are there, without a gap.
    assert sums["noisy"] == [f"{number:04}" for number in reversed(range(2_000 - len(sums["noisy"]), 2_000))]
    assert quoted
    files = list(tmp_path.glob("audit.log*"))
    assert len(files) <= 4
    assert all(file.stat().st_size <= 2_000 for file in files)


def test_lines_are_kept_for_some_days(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "audit.log", max_bytes=1_000, kept=3) as log:
        for number in range(3):
            log.write(entry("tina", number, days=KEPT_DAYS + 1))
            log.write(entry("sam", number, days=KEPT_DAYS - 1))
        for number in range(10):
            log.write(entry("sam", 100 + number))
        found, _ = log.read(limit=100)
    assert {item["user"] for item in found} == {"sam"}
    assert len(found) == 13


def test_fields_of_those_who_are_known_are_cut_too(audited: Any) -> None:
    long = "y" * 12_000
    (told,) = audited(
        ("DELETE", f"/apis/{long}/v1/namespaces/{long}/{long}/{long}", {"headers": {"user-agent": long}})
    )
    assert {key: len(told[key]) for key in ("group", "namespace", "resource", "name", "agent")} == dict.fromkeys(
        ("group", "namespace", "resource", "name", "agent"), 256
    )


def test_the_level_decides_on_reads(audited: Any) -> None:
    asked: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("GET", "/version", {}),
        ("GET", SPACES, {}),
        ("HEAD", f"{SPACES}/shop", {}),
    )
    assert [item["verb"] for item in audited(*asked, level="all")] == ["get", "list", "get"]
    assert audited(*asked, ("POST", SPACES, {"json": SPACE}), level="off") == audited(level="off")


def test_reviews_of_ones_own_access_are_reads(audited: Any) -> None:
    reviews: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"/apis/{group}/v1/{plural}", {"json": {"spec": {}}})
        for group, plural in (
            ("authorization.k8s.io", "selfsubjectrulesreviews"),
            ("authentication.k8s.io", "selfsubjectreviews"),
        )
    ]
    assert audited(*reviews) == []
    assert [(item["verb"], item["code"]) for item in audited(*reviews, level="all")] == [("create", 201)] * 2


def test_neither_bodies_nor_queries_get_in(audited: Any, tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "door"},
        "stringData": {"password": "open sesame"},
    }
    audited(
        ("POST", "/api/v1/namespaces/default/secrets", {"json": secret}),
        ("POST", "/login", {"json": {"username": "ann", "password": "open sesame"}}),
        ("POST", SPACES, {"json": {"password": "open sesame"}, "params": {"token": "open sesame"}}),
        level="all",
    )
    text = (tmp_path / "audit.log").read_text()
    assert "secrets" in text
    assert "sesame" not in text


def test_the_file_is_private_and_rotated_by_its_size(audited: Any, tmp_path: Path) -> None:
    audited(*[("DELETE", f"{SPACES}/nothing", {})] * 40, max_bytes=2000, kept=2)
    files = sorted(tmp_path.glob("audit.log*"))
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 2000 for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_directory_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no directory"):
        AuditLog(tmp_path / "nowhere" / "audit.log")
    AuditLog(tmp_path / "nowhere" / "audit.log", "off").close()


def test_a_log_that_cannot_be_written_is_told_of_once(
    audited: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, registry: Registry
) -> None:
    (tmp_path / "audit.log").mkdir()
    with pytest.raises(IsADirectoryError):
        audited(("POST", SPACES, {"json": SPACE}), ("DELETE", f"{SPACES}/nothing", {}))
    assert registry.store.find("AddressSpace", "default", "shop")
    assert [record.message for record in caplog.records if "audit log" in record.message] == [
        f"the audit log {tmp_path / 'audit.log'} cannot be written"
    ]


def test_administrators_read_it_from_its_end_in_parts(tmp_path: Path, registry: Registry) -> None:
    with AuditLog(tmp_path / "audit.log", max_bytes=2_000) as log:
        for number in range(40):
            user = "ann" if number % 2 else "Bob"
            log.write({"time": f"2026-01-01T00:00:{number:02}.000Z", "user": user, "name": f"<b>{number}</b>"})
        with (tmp_path / "audit.log").open("a") as file:
            file.write('{"time": "2026-')  # the disk was full

        async def body() -> list[Any]:
            app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), audit=log))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                path = "/apis/enmasse.io/v1beta1/audit"
                queries: tuple[dict[str, Any], ...] = (
                    {"limit": 3},
                    {"user": "ann", "before": "2026-01-01T00:00:39.000Z", "limit": 2},
                    {"search": "BOB", "limit": 1},
                    {"search": "nothing"},
                )
                found = [(await client.get(path, params=query)).json() for query in queries]
                assert (await client.get(path, params={"limit": 501})).status_code == 400
                return found

        latest, anns, bobs, none = asyncio.run(body())
    assert [item["name"] for item in latest["items"]] == ["<b>39</b>", "<b>38</b>", "<b>37</b>"]
    assert latest["metadata"]["hasMore"]
    assert [item["time"][17:19] for item in anns["items"]] == ["37", "35"]
    assert [item["user"] for item in bobs["items"]] == ["Bob"]
    assert (none["items"], none["metadata"]["hasMore"]) == ([], False)


def test_nobody_else_may_read_it() -> None:
    roles = [rule for role in ROLES.values() for rule in role.rules]
    ask = AccessRequest("list", "enmasse.io", "audit")
    assert not any(rule.allows(ask) for rule in roles)
