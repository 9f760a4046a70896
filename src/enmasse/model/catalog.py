"""The objects that every installation starts with; their text is in ``catalog.yaml``."""

from __future__ import annotations

from importlib.resources import files

from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.schema.manifest import load_manifest
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.resource import Resource

CATALOG_REVISION = 6
"""Rises with every change of the text, so that existing installations get what is new."""


def default_objects() -> list[Resource]:
    """Return the default plans, infrastructure and authentication services, in the operator's namespace."""
    text = files("enmasse.model").joinpath("catalog.yaml").read_text(encoding="utf-8")
    return [
        plan.model_copy(update={"metadata": plan.metadata.model_copy(update={"namespace": PLAN_NAMESPACE})})
        for plan in load_manifest(text, "catalog.yaml")
    ]


def default_plans() -> list[Resource]:
    """Return the default plans alone."""
    return [item for item in default_objects() if isinstance(item, AddressPlan | AddressSpacePlan)]
