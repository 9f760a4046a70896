"""The tables of a lake."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from enmasse.pipeline.lake import relation
from enmasse.pipeline.lake.objects import LakePath

PATIENCE_S = 10.0


def test_folders_are_asked_together_whether_they_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("second/_delta_log", "first/_delta_log", "files", "_staging/_delta_log"):
        (tmp_path / folder).mkdir(parents=True)
    asked, is_table = threading.Barrier(3), relation._is_table

    def together(path: LakePath) -> bool:
        asked.wait(PATIENCE_S)
        return is_table(path)

    monkeypatch.setattr(relation, "_is_table", together)
    assert relation.tables(tmp_path) == ["first", "second"]
    assert relation.tables(tmp_path / "nowhere") == []
