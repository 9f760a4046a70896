"""The reference of all fields is what the classes say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from enmasse.model.builtins import BUILTINS
from enmasse.model.kinds import KINDS
from enmasse.model.openapi import structural
from enmasse.model.pipelines import PipelineSpec, Resources, Restart, SinkSpec, SourceSpec, StepSpec
from tests.unit.model import pipelines_page
from tests.unit.model.fields_page import PAGE, page

if TYPE_CHECKING:
    from enmasse.model.schema import Model


def test_the_page_of_fields_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.unit.model.fields_page`"


def test_the_page_of_fields_has_every_kind_and_explains_what_is_asked_for() -> None:
    text = page()
    for kind in KINDS:
        assert f"## {kind.name}\n" in text
    for field in ("spec.limits.messageRate", "spec.connectors[].addresses[].pattern", "spec.authentication.password"):
        assert f"| `{field}` |" in text


def test_the_made_parts_of_the_page_of_pipelines_are_fresh() -> None:
    found = pipelines_page.PAGE.read_text(encoding="utf-8")
    assert found == pipelines_page.page(), "run `python -m tests.unit.model.pipelines_page`"


@pytest.mark.parametrize("model", [PipelineSpec, SourceSpec, StepSpec, SinkSpec, Restart, Resources])
def test_the_page_of_pipelines_names_every_field(model: type[Model]) -> None:
    text = pipelines_page.PAGE.read_text(encoding="utf-8")
    inside = {Restart: "restart.", Resources: "resources."}.get(model, "")
    for field in model.model_fields.values():
        assert f"`{inside}{field.alias}`" in text or f"`spec.{field.alias}`" in text or f"`{field.alias}." in text


def test_every_parameter_of_a_builtin_pipeline_says_what_it_is() -> None:
    for name, model in BUILTINS.items():
        for key, field in structural(model)["properties"].items():
            told = field.get("description", "")
            assert told or key in ("table", "model"), f"{name}: {key}"
