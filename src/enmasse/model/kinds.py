"""The kinds of resources: how each is named in YAML, in paths and on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from enmasse.model.addresses import Address
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.plans import PLAN_NAMESPACE, AddressPlan, AddressSpacePlan
from enmasse.model.schema import describe_value, explain, without_nulls
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.model.resource import Resource

__all__ = ["KINDS", "Kind", "decode", "kind_named", "kind_of", "restore"]

_FOREIGN_METADATA = ("managedFields", "selfLink")  # other servers write them into exported YAML


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of resources.

    Attributes:
        name: as ``kind:`` has it.
        group: the API group.
        version: the version of the group.
        plural: the collection's name in paths.
        short_names: what the command line takes as well.
        model: the class that holds one.
        default_namespace: where one lies when nothing else is said.
    """

    name: str
    group: str
    version: str
    plural: str
    short_names: tuple[str, ...]
    model: type[Resource]
    default_namespace: str

    @property
    def api_version(self) -> str:
        """Group and version, as ``apiVersion:`` has it."""
        return f"{self.group}/{self.version}"

    @property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.name.lower()


KINDS: tuple[Kind, ...] = (
    Kind("AddressSpace", "enmasse.io", "v1beta1", "addressspaces", ("space", "spaces"), AddressSpace, "default"),
    Kind("Address", "enmasse.io", "v1beta1", "addresses", ("addr",), Address, "default"),
    Kind(
        "AddressSpacePlan",
        "admin.enmasse.io",
        "v1beta2",
        "addressspaceplans",
        ("splan", "splans", "spaceplan", "spaceplans"),
        AddressSpacePlan,
        PLAN_NAMESPACE,
    ),
    Kind(
        "AddressPlan",
        "admin.enmasse.io",
        "v1beta2",
        "addressplans",
        ("plan", "plans", "aplan", "aplans"),
        AddressPlan,
        PLAN_NAMESPACE,
    ),
)
"""In the order in which they are best applied: what is referred to comes first."""

_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_ANY_NAME = {name: kind for kind in KINDS for name in (kind.singular, kind.plural, *kind.short_names)}


def kind_of(resource: Resource) -> Kind:
    """Return the kind of an object."""
    return _BY_NAME[resource.kind]


def kind_named(name: str) -> Kind | None:
    """Return the kind with this name, plural or short name, in any case of letters."""
    return _BY_ANY_NAME.get(name.lower())


def decode(document: Any) -> Resource:
    """Turn a document, as YAML or JSON gives it, into a valid object.

    What a user says about ``status`` is left out: controllers write it.

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
    try:
        resource = kind.model.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResourceError(subject, explain(error, kind.model)) from None
    if problems := list(resource.problems()):
        raise InvalidResourceError(subject, problems)
    return resource


def _kind_of_document(document: dict[str, Any]) -> Kind:
    name, version = document.get("kind"), document.get("apiVersion")
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        problem = Problem("kind", _wrong_kind(name, _BY_NAME))
        raise InvalidResourceError("the document", [problem])
    if version != kind.api_version:
        message = f"expected {kind.api_version} for kind {kind.name}, got {describe_value(version)}"
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
    """Turn the stored form of an object, status included, back into the object."""
    return _BY_NAME[document["kind"]].model.model_validate(document)
