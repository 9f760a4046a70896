from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.pipeline import session
from enmasse.pipeline.session import archive_name, sharing_options


@pytest.fixture
def java(tmp_path: Path) -> Path:
    made = tmp_path / "java"
    made.write_text("17")
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(session, "archive_folders", lambda: [tmp_path / "nowhere", tmp_path])
    return tmp_path


def test_without_an_archive_java_is_told_nothing(java: Path, folder: Path) -> None:
    assert sharing_options(java) == ""


def test_an_archive_is_used_until_java_changes(java: Path, folder: Path) -> None:
    archive = folder / archive_name(java)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in sharing_options(java)
    java.write_text("another 17")
    assert sharing_options(java) == ""
