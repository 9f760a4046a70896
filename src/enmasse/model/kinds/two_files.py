"""Conversion of the two files of 2016, flavors and addresses, into plans, a space and addresses.

The operator's file maps the name of each flavor to ``{templateName, templateParameters}``. The developer's
maps each address to ``{store_and_forward, multicast, flavor, group_id}``:

    store_and_forward   multicast   is
    false               false       an anycast address
    false               true        a multicast address
    true                false       a queue
    true                true        a topic

A flavor becomes an address plan for each type of address that uses it, with the storage capacity of its
template as limit. Only addresses that store had one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from enmasse.model.kinds.addresses import GROUP
from enmasse.model.kinds.plans import TEMPLATE_PARAMETERS
from enmasse.model.schema.errors import ManifestError, Problem
from enmasse.model.schema.manifest import in_order
from enmasse.model.schema.names import PLAN_NAMESPACE, object_name
from enmasse.model.schema.objects import decode
from enmasse.model.schema.quantities import amount_of
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from enmasse.model.schema.resource import Resource


Document = dict[str, Any]

_TYPES: Final = {
    (False, False): "anycast",
    (False, True): "multicast",
    (True, False): "queue",
    (True, True): "topic",
}
_FLAVOR_FIELDS: Final = ("templateName", "templateParameters")
_ADDRESS_FIELDS: Final = ("store_and_forward", "multicast", "flavor", "group_id")
_CAPACITY: Final = "STORAGE_CAPACITY"
_DIRECT_PLANS: Final = ("standard-small-anycast", "standard-small-multicast")
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")


def from_two_files(
    addresses: Any, flavors: Any, *, space: str, namespace: str, sources: tuple[str, str]
) -> list[Resource]:
    """Return the plans, the space and the addresses that two files describe, in the order to apply them.

    Args:
        addresses: the developer's file, as JSON gives it.
        flavors: the operator's file; None if there is none.
        space: the name of the space.
        namespace: the namespace of it.
        sources: the names of the two files, for messages.

    Raises:
        ManifestError: with everything that is wrong in one of the files.
    """
    known = _flavors(flavors, sources[1])
    problems: list[Problem] = []
    found: list[tuple[str, str, Document]] = []
    for name, entry in _entries(addresses, sources[0]).items():
        problems += _wrong(name, entry, _ADDRESS_FIELDS)
        if isinstance(entry, dict):
            problems += _wrong_address(name, entry, known)
            found.append((name, _type_of(entry), entry))
    if problems:
        raise ManifestError(sources[0], None, problems)
    plans: dict[str, Document] = {}
    documents = []
    for name, kind, entry in found:
        flavor = entry.get("flavor")
        plan = None
        if flavor is not None and kind in ("queue", "topic"):
            plan = f"{_cleaned(flavor)}-{kind}"
            plans[plan] = _plan(plan, kind, flavor, known[flavor])
        documents.append(_address(name, kind, plan, entry, known.get(flavor or ""), space, namespace))
    offered = list(dict.fromkeys([*_DIRECT_PLANS, *(document["spec"]["plan"] for document in documents)]))
    everything = [*plans.values(), *_space(space, namespace, offered), *documents]
    return in_order([decode(document) for document in everything])


def _entries(document: Any, source: str) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise ManifestError(source, None, [Problem("", f"expected a map of names, got {describe_value(document)}")])
    return document


def _flavors(document: Any, source: str) -> dict[str, Document]:
    known: dict[str, Document] = {}
    problems: list[Problem] = []
    for name, entry in _entries({} if document is None else document, source).items():
        problems += _wrong(name, entry, _FLAVOR_FIELDS)
        parameters = entry.get("templateParameters", {}) if isinstance(entry, dict) else {}
        if not isinstance(parameters, dict):
            problems.append(
                Problem(f"{name}.templateParameters", f"expected a map, got {describe_value(parameters)}")
            )
        elif _CAPACITY in parameters:
            problems += _wrong_capacity(name, parameters[_CAPACITY])
        if isinstance(entry, dict):
            known[name] = entry
    if problems:
        raise ManifestError(source, None, problems)
    return known


def _wrong(name: str, entry: Any, fields: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(name, f"expected a map with {', '.join(fields)}, got {describe_value(entry)}")
        return
    for field in entry:
        if field not in fields:
            yield Problem(f"{name}.{field}", f"unknown; there are {', '.join(fields)}")


def _wrong_capacity(flavor: str, capacity: Any) -> Iterator[Problem]:
    path = f"{flavor}.templateParameters.{_CAPACITY}"
    try:
        if amount_of(capacity) >= 1:
            return
    except (TypeError, ValueError):
        pass
    yield Problem(path, f"expected an amount of bytes such as 2Gi, got {describe_value(capacity)}")


def _wrong_address(name: str, entry: Document, flavors: Mapping[str, Document]) -> Iterator[Problem]:
    for field in ("store_and_forward", "multicast"):
        if not isinstance(entry.get(field, False), bool):
            yield Problem(f"{name}.{field}", f"expected true or false, got {describe_value(entry[field])}")
    for field in ("flavor", "group_id"):
        if not isinstance(entry.get(field, ""), str):
            yield Problem(f"{name}.{field}", f"expected a string, got {describe_value(entry[field])}")
    flavor = entry.get("flavor")
    if isinstance(flavor, str) and flavor not in flavors:
        there = f"there are {', '.join(sorted(flavors))}" if flavors else "no flavors were given"
        yield Problem(f"{name}.flavor", f"unknown flavor '{flavor}'; {there}")


def _type_of(entry: Document) -> str:
    return _TYPES[entry.get("store_and_forward") is True, entry.get("multicast") is True]


def _cleaned(flavor: str) -> str:
    return _NOT_IN_NAME.sub("-", flavor.lower()).strip("-") or "flavor"


def _plan(name: str, kind: str, flavor: str, entry: Document) -> Document:
    parameters = entry.get("templateParameters", {})
    spec: Document = {"addressType": kind, "displayName": flavor, "resources": {}}
    if entry.get("templateName"):
        spec["shortDescription"] = f"Made of flavor {flavor}, which used the template {entry['templateName']}."
    if _CAPACITY in parameters:
        spec["limits"] = {"maxBytes": int(amount_of(parameters[_CAPACITY]))}
    metadata: Document = {"name": name, "namespace": PLAN_NAMESPACE}
    if unknown := [f"{key}={value}" for key, value in parameters.items() if key != _CAPACITY]:
        metadata["annotations"] = {TEMPLATE_PARAMETERS: " ".join(unknown)}
    return {"apiVersion": "admin.enmasse.io/v1beta2", "kind": "AddressPlan", "metadata": metadata, "spec": spec}


def _space(name: str, namespace: str, plans: list[str]) -> list[Document]:
    plan = f"{name}-flavors"
    return [
        {
            "apiVersion": "admin.enmasse.io/v1beta2",
            "kind": "AddressSpacePlan",
            "metadata": {"name": plan, "namespace": PLAN_NAMESPACE},
            "spec": {"addressSpaceType": "standard", "addressPlans": plans},
        },
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "AddressSpace",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "standard", "plan": plan},
        },
    ]


def _address(
    name: str, kind: str, plan: str | None, entry: Document, flavor: Document | None, space: str, namespace: str
) -> Document:
    spec: Document = {"address": name, "type": kind, "plan": plan or f"standard-small-{kind}"}
    if plan is not None and "memory" in str((flavor or {}).get("templateName", "")).lower():
        spec["storage"] = "memory"
    metadata: Document = {"name": object_name(space, name), "namespace": namespace}
    if entry.get("group_id"):
        metadata["annotations"] = {GROUP: entry["group_id"]}
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": metadata, "spec": spec}
