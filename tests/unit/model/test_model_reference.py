"""The reference of all fields is what the classes say."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from enmasse.model.kinds.address_settings import ADDRESS_TYPES, SETTINGS
from enmasse.model.kinds.addresses import AddressSpec
from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.kinds.pipelines.pipeline import PipelineSpec, Resources, Restart
from enmasse.model.kinds.pipelines.sinks import SinkSpec
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.model.kinds.pipelines.steps import StepSpec
from enmasse.model.schema.kinds import KINDS
from enmasse.model.schema.openapi import structural
from enmasse.model.schema.schema import Model
from enmasse.node.management.entity_fields import ADDRESS_TYPE, FIELDS
from tests.unit.model import pipelines_page, settings_table
from tests.unit.model.fields_page import PAGE, page

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_the_page_of_fields_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.unit.model.fields_page`"


def test_the_table_of_settings_is_fresh() -> None:
    found = settings_table.PAGE.read_text(encoding="utf-8")
    assert found == settings_table.page(), "run `python -m tests.unit.model.settings_table`"


def test_every_field_of_an_address_is_a_setting_or_says_what_it_is() -> None:
    what_it_is = {"address", "type", "plan", "topic", "partitions", "schema", "forwarders"}
    paths = {path for setting in SETTINGS.values() for path in (setting.path, *setting.path_of.values()) if path}
    assert paths == set(_leaves(AddressSpec)) - what_it_is


@pytest.mark.parametrize("kind", ADDRESS_TYPES)
def test_a_node_takes_all_that_a_declaration_can_say(kind: str) -> None:
    takes = FIELDS[ADDRESS_TYPE]
    for setting in SETTINGS.values():
        if setting.path_for(kind):
            assert not takes[setting.name].of or kind in takes[setting.name].of


def _leaves(model: type[Model], above: str = "") -> Iterator[str]:
    """Yield the fields of a part of a resource that have no fields of their own, as a user writes them."""
    for field in model.model_fields.values():
        inner = next((part for part in get_args(field.annotation) if isinstance(part, type)), None)
        if inner is not None and issubclass(inner, Model) and field.alias not in ("schema", "forwarders"):
            yield from _leaves(inner, f"{above}{field.alias}.")
        else:
            yield above + (field.alias or "")


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
