"""The reference of all fields is what the classes say."""

from __future__ import annotations

from enmasse.model.kinds import KINDS
from tests.unit.model.fields_page import PAGE, page


def test_the_page_of_fields_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.unit.model.fields_page`"


def test_the_page_of_fields_has_every_kind_and_explains_what_is_asked_for() -> None:
    text = page()
    for kind in KINDS:
        assert f"## {kind.name}\n" in text
    for field in ("spec.limits.messageRate", "spec.connectors[].addresses[].pattern", "spec.authentication.password"):
        assert f"| `{field}` |" in text
