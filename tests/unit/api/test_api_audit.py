"""The audit log: what is written down of a request, and what never is."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.app import create_app
from enmasse.api.audit import AuditLevel, AuditLog
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from enmasse.control.registry import Registry

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
SPACE = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}}


@pytest.fixture
def audited(api: Any, registry: Registry, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Send requests, and return what was written down of them."""

    def play(*requests: tuple[str, str, dict[str, Any]], level: AuditLevel = "writes", **limits: int) -> Any:
        path = tmp_path / "audit.log"

        async def body(log: AuditLog) -> None:
            app = create_app(registry, asyncio.Event(), api.messages, audit=log)
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


def test_refusals_and_mistakes_are_written_down(audited: Any) -> None:
    found = audited(
        ("GET", "/apis", {"headers": {"host": "evil.example"}}),
        ("POST", SPACES, {"json": SPACE | {"kind": "Spaceship"}}),
        ("DELETE", f"{SPACES}/nothing", {}),
        ("GET", f"{SPACES}/nothing", {}),
    )
    assert [(item["verb"], item["code"]) for item in found] == [("get", 403), ("create", 400), ("delete", 404)]


def test_the_level_decides_on_reads(audited: Any) -> None:
    asked: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("GET", "/version", {}),
        ("GET", SPACES, {}),
        ("HEAD", f"{SPACES}/shop", {}),
    )
    assert [item["verb"] for item in audited(*asked, level="all")] == ["get", "list", "get"]
    assert audited(*asked, ("POST", SPACES, {"json": SPACE}), level="off") == audited(level="off")


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
