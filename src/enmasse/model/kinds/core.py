"""The kinds of Kubernetes' core group that are needed beside our own: the same fields, as far as we use them."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import ROUTE_DOMAINS, domain_problem, is_label
from enmasse.model.schema.quantities import PortOrName
from enmasse.model.schema.resource import Data, Resource, ResourceStatus
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_ENTRY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_MAX_ENTRIES_BYTES = 1024 * 1024


class NamespaceSpec(Model):
    """The programs that have work to do before the namespace is deleted."""

    finalizers: tuple[str, ...] = Field(default=(), strict=False)


class NamespaceStatus(ResourceStatus):
    """The phase of a namespace."""

    is_ready: bool = Field(default=True, exclude=True)
    phase: str = "Active"
    """Active or Terminating."""
    messages: tuple[str, ...] = Field(default=(), strict=False, exclude=True)


class Namespace(Resource):
    """A room for the objects of one tenant, or one team."""

    is_namespaced: ClassVar[bool] = False

    api_version: Literal["v1"] = "v1"
    kind: Literal["Namespace"] = "Namespace"
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        listed = self.metadata.annotations.get(ROUTE_DOMAINS)
        if listed and (problem := domain_problem(listed)):
            yield Problem(f"metadata.annotations[{ROUTE_DOMAINS}]", problem)

    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a name."""
        if is_label(name):
            return None
        return (
            "expected lower-case letters, digits and '-', beginning and ending with a letter or digit, "
            f"at most 63 characters, got {describe_value(name)}"
        )


class ConfigMap(Data):
    """Entries that programs read."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["ConfigMap"] = "ConfigMap"
    data: dict[str, str] = Field(default_factory=dict)
    """Text by name."""
    binary_data: dict[str, str] = Field(default_factory=dict)
    """Bytes by name, in base64."""
    is_immutable: bool | None = Field(default=None, alias="immutable")
    """True if it can only be deleted."""

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from _entry_problems("data", self.data)
        yield from _entry_problems("binaryData", self.binary_data)
        yield from _base64_problems("binaryData", self.binary_data)
        yield from _size_problems("data", [*self.data.values(), *self.binary_data.values()])


class Secret(Data):
    """Entries that programs read and nobody else should."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Secret"] = "Secret"
    type: str = "Opaque"
    """The purpose, as `kubernetes.io/tls`."""
    data: dict[str, str] = Field(default_factory=dict, repr=False)
    """Bytes by name, in base64."""
    string_data: dict[str, str] = Field(default_factory=dict, repr=False, json_schema_extra={"writeOnly": True})
    """Text by name; what is written here is kept in `data`."""
    is_immutable: bool | None = Field(default=None, alias="immutable")
    """True if it can only be deleted."""

    def settled(self) -> Self:
        """Return it with all entries in ``data``."""
        if not self.string_data:
            return self
        encoded = {name: b64encode(text.encode()).decode() for name, text in self.string_data.items()}
        return self.model_copy(update={"data": self.data | encoded, "string_data": {}})

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from _entry_problems("data", self.data)
        yield from _entry_problems("stringData", self.string_data)
        yield from _base64_problems("data", self.data)
        yield from _size_problems("data", [*self.data.values(), *self.string_data.values()])


class ServicePort(Model):
    """One port of a service."""

    name: str | None = None
    port: int = Field(ge=1, le=65535)
    protocol: str | None = None
    target_port: PortOrName | None = None
    node_port: int | None = None
    app_protocol: str | None = None


class ServiceSpec(Model):
    """The address and ports of a service."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] = "ClusterIP"
    ports: tuple[ServicePort, ...] = Field(default=(), strict=False)
    external_name: str | None = None
    """The host that type ExternalName stands for."""
    selector: dict[str, str] = Field(default_factory=dict)


class ServiceStatus(ResourceStatus):
    """Nothing that is written here yet."""

    is_ready: bool = Field(default=True, exclude=True)
    phase: str = Field(default="Active", exclude=True)
    messages: tuple[str, ...] = Field(default=(), strict=False, exclude=True)


class Service(Resource):
    """A name under which a program finds another."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Service"] = "Service"
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class ObjectReference(Model):
    """Another object."""

    api_version: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    field_path: str | None = None


class EventSource(Model):
    """The program that reports an event."""

    component: str | None = None
    host: str | None = None


class EventSeries(Model):
    """The repetitions of an event."""

    count: int | None = None
    last_observed_time: str | None = None


class Event(Data):
    """Something that happened to an object."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Event"] = "Event"
    involved_object: ObjectReference
    """The object that it happened to."""
    type: str = "Normal"
    """Normal or Warning."""
    reason: str = ""
    """One CamelCase word for programs."""
    message: str = ""
    """A sentence for people."""
    source: EventSource = EventSource()
    count: int = 1
    """The number of times that it happened."""
    first_timestamp: str | None = None
    """RFC 3339 in UTC."""
    last_timestamp: str | None = None
    """RFC 3339 in UTC."""
    event_time: str | None = None
    action: str | None = None
    related: ObjectReference | None = None
    series: EventSeries | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None


def _entry_problems(path: str, names: Iterable[str]) -> Iterator[Problem]:
    for name in names:
        if _ENTRY.fullmatch(name) is None:
            expected = "expected letters, digits, '-', '_' and '.', at most 253 characters"
            yield Problem(path, f"{expected}, got {describe_value(name)}")


def _base64_problems(path: str, entries: dict[str, Any]) -> Iterator[Problem]:
    for name, text in entries.items():
        try:
            b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            yield Problem(
                f"{path}.{name}", "expected base64; text belongs into stringData of a Secret, data of a ConfigMap"
            )


def _size_problems(path: str, values: list[str]) -> Iterator[Problem]:
    if (size := sum(map(len, values))) > _MAX_ENTRIES_BYTES:
        yield Problem(path, f"expected at most {_MAX_ENTRIES_BYTES} bytes together, got {size}")
