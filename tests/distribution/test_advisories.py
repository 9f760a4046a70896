"""No version that we ask for, have or ship has a hole that the list of advisories knows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.distribution import advisories
from tests.distribution.advisories import Advisory


def test_no_range_of_ours_admits_a_version_with_a_hole() -> None:
    admitted = [
        f"{requirement} admits {advisory.id} ({', '.join(advisory.affected)}): {advisory.about}"
        for requirement in advisories.declared()
        for advisory in advisories.read()
        if advisory.package == canonicalize_name(requirement.name)
        and not advisory.accepted
        and advisory.is_admitted_by(requirement)
    ]
    assert admitted == []


def test_nothing_that_is_installed_here_has_a_hole() -> None:
    installed = advisories.installed()
    assert {"starlette", "cryptography", "cffi"} <= installed.keys()
    assert advisories.holes("PyPI", installed.items()) == []


def test_no_package_of_the_console_has_a_hole() -> None:
    assert "react" in dict(advisories.of_console())
    assert advisories.holes("npm", advisories.of_console()) == []


def test_the_list_is_in_order_and_says_of_each_what_it_is_about() -> None:
    entries = advisories.read()
    assert entries == sorted(entries)
    assert len({(entry.ecosystem, entry.package, entry.id) for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.about.endswith("."), entry
        assert entry.affected, entry
        assert not entry.affects("9999") or entry.accepted, entry
        assert not entry.accepted or entry.accepted.endswith("."), entry


@pytest.mark.parametrize(
    ("asked", "affected", "is_admitted"),
    [
        ("p>=1.0,<3", "<1.0", False),
        ("p>=1.0,<3", "<1.0.1", True),
        ("p>=1.0,<3", ">=2.0,<2.5", True),
        ("p>=1.0,<3", ">=3.0,<3.5", False),
        ("p>=2.5,<3", ">=2.0,<2.5", False),
        ("p>=2.5,<3", ">=2.0,<=2.5", True),
        ("p", "<1.0", True),
        ("p<3", ">=2.0,<2.5", True),
        ("p>=2.10.1", "==2.10.0", False),
        ("p>=2.10.0", "==2.10.0", True),
        ("p>=6.31", "<5.29.6 | >=6.30.0rc1,<6.33.5", True),
    ],
)
def test_a_range_admits_a_hole_where_both_have_a_version(asked: str, affected: str, *, is_admitted: bool) -> None:
    advisory = Advisory("PyPI", "p", "CVE-1", tuple(affected.split(" | ")), "A hole.")
    assert advisory.is_admitted_by(Requirement(asked)) == is_admitted


def record(name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}, {"type": "GIT", "events": [{"introduced": "0"}]}]
    package = {"ecosystem": "PyPI", "name": "H2"}
    affected = [{"package": package, "ranges": ranges}, {"package": {**package, "name": "other"}, "ranges": ranges}]
    return {"id": name, "published": "2026-01-01T00:00:00Z", "affected": affected, **more}


ANSWERS = [
    {
        "vulns": [
            record("PYSEC-2026-1", {"introduced": "0"}, {"fixed": "9"}, aliases=["CVE-2025-57804", "GHSA-1"]),
            record("GHSA-1", {"introduced": "0"}, {"fixed": "4.3.0"}, aliases=["CVE-2025-57804"]),
            record("GHSA-2", {"introduced": "0"}, {"fixed": "1"}, withdrawn="2026-02-01T00:00:00Z"),
            record("GHSA-3", {"introduced": "0"}, {"fixed": "1"}, published="2016-01-01T00:00:00Z"),
        ],
        "next_page_token": "more",
    },
    {
        "vulns": [
            record(
                "GHSA-4",
                {"introduced": "1.0"},
                {"last_affected": "1.5"},
                {"introduced": "2.0"},
                {"fixed": "2.1"},
                {"introduced": "3.0"},
            )
        ]
    },
]


@pytest.fixture
def osv() -> Iterator[str]:
    """An OSV that knows h2 alone, in two pages."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/query"
            knows = question["package"] == {"ecosystem": "PyPI", "name": "h2"}
            answer = json.dumps(ANSWERS["page_token" in question] if knows else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_refreshed_list_has_what_osv_knows_and_keeps_what_was_written(
    osv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {"ecosystem": "PyPI", "package": "h2", "id": "GHSA-1", "affected": ["<4"]}
    ours = {"about": "What somebody can do.", "accepted": "Why that is nothing here."}
    copy = tmp_path / "advisories.json"
    copy.write_text(json.dumps([{**written, **ours}, {**written, **ours, "package": "gone"}]))
    monkeypatch.setattr(advisories, "LIST", copy)
    monkeypatch.setattr(advisories, "installed", lambda: {"anyio": "4.14.2", "h2": "4.4.1"})  # not two hundred
    unwritten = Advisory("PyPI", "h2", "GHSA-4", (">=1.0,<=1.5", ">=2.0,<2.1", ">=3.0"), "")
    assert advisories.refresh(osv) == [unwritten]
    assert advisories.read() == [Advisory("PyPI", "h2", "CVE-2025-57804", ("<4.3.0",), **ours), unwritten]
