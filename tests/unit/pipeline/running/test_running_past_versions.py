"""Past versions of tables in the text of a query."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.querying import past_versions


def test_a_version_or_a_moment_makes_a_relation_of_its_own() -> None:
    text, found = past_versions(
        "SELECT * FROM readings VERSION AS OF 12 a JOIN `table:odd` FOR SYSTEM_TIME AS OF '2026-01-31' b ON a.x = b.x"
    )
    assert text == "SELECT * FROM `readings@12` a JOIN `table:odd@2026-01-31` b ON a.x = b.x"
    assert found == {
        "readings@12": ("readings", 12),
        "table:odd@2026-01-31": ("table:odd", datetime(2026, 1, 31, tzinfo=UTC)),
    }


def test_the_same_words_in_a_text_are_none() -> None:
    text = "SELECT 'a VERSION AS OF 1', 'it''s' FROM t"
    assert past_versions(text) == (text, {})
    with pytest.raises(PlanError, match="expected a moment such as"):
        past_versions("SELECT * FROM t TIMESTAMP AS OF 'yesterday'")
