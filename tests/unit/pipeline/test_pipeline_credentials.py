from __future__ import annotations

import json
from pathlib import Path

import pytest

from enmasse.pipeline.credentials import credentials
from enmasse.pipeline.errors import AccessError, OptionError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENMASSE_CREDENTIALS", str(tmp_path))
    monkeypatch.setenv("ENMASSE_USER", "of the environment")
    monkeypatch.setenv("ENMASSE_PASSWORD", "p")
    return tmp_path


def test_named_credentials_are_read_from_their_file_each_time(folder: Path) -> None:
    for password in ("first", "second"):
        (folder / "analyst.json").write_text(json.dumps({"user": "ann", "password": password}))
        assert credentials("analyst") == {"user": "ann", "password": password}


def test_without_a_name_the_environment_says_who(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials() == {"user": "of the environment", "password": "p"}
    monkeypatch.delenv("ENMASSE_USER")
    monkeypatch.delenv("ENMASSE_PASSWORD")
    assert credentials() == {"user": None, "password": None}


def test_an_unknown_name_is_told_with_the_file_that_is_missing(folder: Path) -> None:
    with pytest.raises(AccessError, match=r"no credentials 'nobody'.*nobody\.json should hold"):
        credentials("nobody")


def test_a_name_needs_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENMASSE_CREDENTIALS")
    with pytest.raises(AccessError, match="ENMASSE_CREDENTIALS is not set"):
        credentials("analyst")


@pytest.mark.parametrize("name", ["../analyst", "a/b", ".analyst", "ann:secret", '{"user": "secret"}', "a" * 300])
def test_what_is_no_name_is_refused_and_not_repeated(folder: Path, name: str) -> None:
    with pytest.raises(OptionError, match="option credentials") as caught:
        credentials(name)
    assert name not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        '{"user": "ann", "password": "secret',
        '["secret"]',
        '{"password": "secret"}',
        '{"user": 5, "password": "secret"}',
        '{"user": "ann", "password": {"is": "secret"}}',
        '{"user": "ann", "password": "' + "secret" * 20_000 + '"}',
    ],
)
def test_a_damaged_file_is_named_and_not_repeated(folder: Path, content: str) -> None:
    (folder / "analyst.json").write_text(content)
    with pytest.raises(AccessError, match=r"analyst\.json should hold") as caught:
        credentials("analyst")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
