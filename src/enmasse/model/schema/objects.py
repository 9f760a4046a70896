"""Objects of all kinds, as documents and the store hold them: checked, in the classes of their kinds.

Documents in the form of earlier releases are read as what they mean today. A status that comes through the API is
checked like everything else that comes from outside.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import KINDS, kind_named
from enmasse.model.schema.resource import ResourceStatus
from enmasse.model.schema.schema import describe_value, explain, without_nulls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.model.schema.kinds import Kind
    from enmasse.model.schema.resource import Resource

_PLANS = {"AddressPlan": "credit", "AddressSpacePlan": "max"}
_LISTS = {"AddressPlan": ("requiredResources", "resources"), "AddressSpacePlan": ("resources", "resourceLimits")}
_DEFINED_BY = "enmasse.io/defined-by"  # the annotation that named the infrastructure of a space plan


def in_present_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in the present form; one that has it already, or is of an unknown kind, is unchanged.

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


_FOREIGN_METADATA = ("managedFields", "selfLink")  # other servers write them into exported YAML

_IOT = "iot.enmasse.io"
_NO_THINGS = (
    "of the kinds of iot.enmasse.io this version has IoTProject alone, with v1alpha1: adapters and services are not "
    "configured by an IoTConfig; leave these objects out"
)

_KINDS = {kind.name: kind for kind in KINDS}
_MODULES = {
    "addresses": ("Address",),
    "authentication": ("AuthenticationService", "ConsoleService"),
    "core": ("ConfigMap", "Event", "Namespace", "Secret", "Service"),
    "infra": ("BrokeredInfraConfig", "StandardInfraConfig"),
    "pipelines.pipeline": ("Pipeline",),
    "nodes": ("MessagingNode",),
    "plans": ("AddressPlan", "AddressSpacePlan"),
    "projects": ("IoTProject",),
    "rbac": ("ClusterRole", "ClusterRoleBinding", "RoleBinding"),
    "resource_quota": ("ResourceQuota",),
    "space_schema": ("AddressSpaceSchema",),
    "spaces": ("AddressSpace",),
    "users": ("MessagingUser",),
    "webhooks": ("Webhook",),
}
"""The modules of the classes, named like the kinds: to load all of them takes longer than most commands do."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


_FORMER_GROUP = "admin.enmasse.io"
"""The group whose objects may have a version before, in which they are not served."""


@cache
def _class_named(kind: str) -> type[Resource]:
    found: type[Resource] = getattr(import_module(f"enmasse.model.kinds.{_MODULE_OF[kind]}"), kind)
    return found


def class_of(kind: Kind) -> type[Resource]:
    """Return the class of a kind's objects."""
    return _class_named(kind.name)


def decode(document: Any) -> Resource:
    """Turn a document, as YAML or JSON gives it, into a valid object.

    A ``status`` in the document is left out: controllers write it.

    Raises:
        InvalidResourceError: with every problem that was found.
    """
    if not isinstance(document, dict):
        problem = Problem(
            "", f"expected a map with apiVersion, kind, metadata and spec, got {describe_value(document)}"
        )
        raise InvalidResourceError("the document", [problem])
    document = without_nulls(document)
    kind = _kind_of_document(document)
    document.pop("status", None)
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        document["metadata"] = {key: metadata[key] for key in metadata if key not in _FOREIGN_METADATA}
    subject = _subject(kind.name, metadata)
    document = in_present_form(document | {"apiVersion": kind.api_version})
    model = class_of(kind)
    if "spec" in document and model.model_fields["spec"].exclude:
        raise InvalidResourceError(subject, [Problem("spec", f"unknown field: a {kind.name} has no spec")])
    try:
        resource = model.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResourceError(subject, explain(error, model)) from None
    if problems := list(resource.problems()):
        raise InvalidResourceError(subject, problems)
    return resource.settled()


def _kind_of_document(document: dict[str, Any]) -> Kind:
    name, version = document.get("kind"), document.get("apiVersion")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        is_of_things = isinstance(version, str) and version.partition("/")[0] == _IOT
        problem = Problem("kind", _NO_THINGS if is_of_things else _wrong_kind(name, _KINDS))
        raise InvalidResourceError("the document", [problem])
    former = f"{kind.group}/v1alpha1"  # the version before, of the same form
    if version not in kind.api_versions and not (version == former and kind.group == _FORMER_GROUP):
        expected = " or ".join(kind.api_versions)
        message = f"expected {expected} for kind {kind.name}, got {describe_value(version)}"
        raise InvalidResourceError(_subject(kind.name, document.get("metadata")), [Problem("apiVersion", message)])
    return kind


def _wrong_kind(found: Any, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(found, names, n=1) if isinstance(found, str) else []
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"expected one of {', '.join(names)}, got {describe_value(found)}{hint}"


def _subject(kind: str, metadata: Any) -> str:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind} {name}" if isinstance(name, str) and name else kind


def restore(document: dict[str, Any]) -> Resource:
    """Turn the stored form of an object, status included, back into the object.

    Managed fields are left out: only the store's writers need them, and read them from the stored form.
    """
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return _class_named(document["kind"]).model_validate(document | {"metadata": metadata})


def decode_status(document: dict[str, Any]) -> ResourceStatus:
    """Return the status that a document of a known kind has.

    Raises:
        InvalidResourceError: with every problem that was found.
    """
    kind = kind_named(document["kind"])
    assert kind is not None
    model = class_of(kind).model_fields["status"].annotation
    assert isinstance(model, type)
    assert issubclass(model, ResourceStatus)
    try:
        return model.model_validate(without_nulls(document.get("status") or {}), by_alias=True, by_name=False)
    except ValidationError as error:
        problems = [
            Problem(f"status.{item.path}" if item.path else "status", item.message) for item in explain(error, model)
        ]
        raise InvalidResourceError(f"{kind.name} {document['metadata']['name']}", problems) from None
