"""Documents in the form of earlier releases, read as what they mean today."""

from __future__ import annotations

from typing import Any

__all__ = ["in_present_form"]

_PLANS = {"AddressPlan": "credit", "AddressSpacePlan": "max"}
_LISTS = {"AddressPlan": ("requiredResources", "resources"), "AddressSpacePlan": ("resources", "resourceLimits")}
_DEFINED_BY = "enmasse.io/defined-by"  # the annotation that named the infrastructure of a space plan


def in_present_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in the form of today; what is in it already, or is unknown, stays as it is.

    The first plans had their fields beside ``metadata``, and credits as a list of names and amounts.
    """
    kind = document.get("kind")
    if kind not in _PLANS or "spec" in document:
        return document
    beside = {
        key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata", "status")
    }
    if not beside:
        return document
    former, present = _LISTS[kind]
    given = beside.pop(former, None)
    if isinstance(given, list) and all(isinstance(item, dict) for item in given):
        beside[present] = {str(item.get("name")): item.get(_PLANS[kind]) for item in given}
    elif given is not None:
        beside[present] = given
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if kind == "AddressSpacePlan" and isinstance(annotations, dict) and _DEFINED_BY in annotations:
        beside.setdefault("infraConfigRef", annotations[_DEFINED_BY])
    return {key: document[key] for key in ("apiVersion", "kind", "metadata") if key in document} | {"spec": beside}
