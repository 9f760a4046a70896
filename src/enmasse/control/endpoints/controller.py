"""Reconcile the endpoints of spaces: provide certificates to the nodes and connection details to applications.

The controller writes ``endpointStatuses``, ``caCert`` and the conditions ``CertificatesReady`` and ``EndpointsReady``
of a space; other controllers write the rest of its status.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from enmasse.control.endpoints.admission import HostRefusal, key_aside, refused_hosts, route_hosts
from enmasse.control.endpoints.planning import SpaceEndpoint, export_facts, plan_endpoints, port_of, refused_ports
from enmasse.control.ports import ServedCertificate, UnusableCertificateError
from enmasse.control.runtime.controller import Controller
from enmasse.errors import EnmasseError
from enmasse.identity.rbac import CONTROL_PROCESS
from enmasse.model.kinds.plans import AddressSpacePlan, PortRange
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.conditions import Condition
from enmasse.model.schema.kinds import ADDRESS_SPACE, ADDRESS_SPACE_PLAN, CONFIG_MAP, NAMESPACE, SECRET, SERVICE
from enmasse.model.schema.names import PLAN_NAMESPACE, granted_domains
from enmasse.model.schema.objects import decode, restore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.context import Context
    from enmasse.control.ports import Certificates
    from enmasse.control.store.port import Change, Document, Store
    from enmasse.model.kinds.spaces import EndpointStatus, Export
    from enmasse.model.schema.resource import Resource


WILDCARD_SECRET: Final = "wildcard-endpoint-certificate"  # noqa: S105  # the name of an object
RECONCILE_EVERY_S: Final = 3600.0
"""Seconds between two rounds over all spaces: certificates end without any change."""

WARN_DAYS: Final = 30
"""Events warn of the end of a given certificate so many days before."""

_EXPORT_LABEL = "enmasse.io/endpoint-export"
_KINDS = frozenset({SECRET.name, CONFIG_MAP.name, SERVICE.name})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """The hosts and ports of nodes.

    Attributes:
        domain: below which spaces have their hosts; nodes must know the same.
        port: the port of the nodes, for everything that they speak; 0: not known here.
        machine: names of this machine, in lower case, which are no space's.
        grants_all: whether a namespace has every domain for hosts if no operator has listed some.
        needs_bounds: whether a plan without bounds is for the namespaces alone that an operator has named.
    """

    domain: str = "enmasse.local"
    port: int = 0
    machine: frozenset[str] = frozenset()
    grants_all: bool = False
    needs_bounds: bool = False


class EndpointController(Controller):
    """Reconciles the endpoints of spaces.

    Args:
        context: the context of the controllers.
        certificates: provides them to nodes.
        settings: hosts and ports of nodes.
    """

    name = "endpoints"
    workers = 1

    def __init__(self, context: Context, certificates: Certificates, settings: EndpointSettings) -> None:
        super().__init__(jitter=context.jitter)
        self._context = context
        self._registry = context.registry
        self._store = context.store
        self._certificates = certificates
        self._settings = settings
        self._now = context.now
        self._spaces: dict[str, AddressSpace] = {}
        self._granted: dict[str, tuple[str, ...]] = {}
        """The domains that each namespace may have hosts of."""
        self._refused: dict[str, dict[str, HostRefusal]] = {}
        self._refused_ports: dict[str, str] = {}
        self._closed_ports: dict[str, str] = {}
        """The reasons why ports that spaces have are not open, as nodes tell them."""
        self._offered: dict[str, PortRange | None] = {}
        """The ports that each space plan offers."""

    def load(self, store: Store) -> None:
        """Load all spaces and enqueue them."""
        self._spaces = {}
        for document in store.select(ADDRESS_SPACE.name):
            space = restore(document)
            assert isinstance(space, AddressSpace)
            self._spaces[space.key] = space
        self._granted = {item["metadata"]["name"]: self._grants(item) for item in store.select(NAMESPACE.name)}
        served = {
            status.external_host: space.key
            for space in self._spaces.values()
            for status in space.status.endpoint_statuses
            if status.external_host in route_hosts(space)
        }
        self._refused = self._judge(served)
        self._offered = {}
        for document in store.select(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE):
            plan = restore(document)
            assert isinstance(plan, AddressSpacePlan)
            self._offered[plan.metadata.name] = plan.spec.ports
        self._refused_ports = refused_ports(self._spaces.values(), self._offered)
        self.enqueue_all()

    def apply(self, change: Change) -> None:
        """Take one change."""
        document = change.document
        metadata = document["metadata"]
        if document["kind"] == ADDRESS_SPACE.name:
            self._apply_space(change.action == "DELETED", document)
        elif document["kind"] == NAMESPACE.name:
            self._apply_namespace(change.action == "DELETED", document)
        elif document["kind"] == ADDRESS_SPACE_PLAN.name and metadata["namespace"] == PLAN_NAMESPACE:
            self._apply_plan(change.action == "DELETED", document)
        elif document["kind"] in _KINDS:
            about = (metadata["namespace"], document["kind"], metadata["name"])
            for key, space in self._spaces.items():
                if space.spec.served_endpoints and about in _references(space):
                    self.enqueue(key)

    def hosts_of(self, space: AddressSpace) -> tuple[str, ...]:
        """Return the hosts of a space's routes that it gets."""
        refused = self._refused.get(space.key, {})
        return tuple(host for host in route_hosts(space) if host not in refused)

    def port_of(self, space: AddressSpace) -> int:
        """Return the port of its own that a space gets; 0 for none."""
        return 0 if space.key in self._refused_ports else port_of(space)

    def note_port(self, key: str, problem: str) -> None:
        """Take note of the reason why the port of a space is not open; empty: it is, or there is none."""
        former = self._closed_ports.pop(key, "")
        if problem:
            self._closed_ports[key] = problem
        if former != problem:
            self.enqueue(key)

    def _grants(self, namespace: Document) -> tuple[str, ...]:
        annotations = namespace["metadata"].get("annotations") or {}
        return granted_domains(annotations, is_everything=self._settings.grants_all)

    def _apply_namespace(self, is_deleted: bool, document: Document) -> None:
        name = document["metadata"]["name"]
        granted = None if is_deleted else self._grants(document)
        if self._granted.get(name) == granted:
            return
        owners = self._owners()
        if granted is None:
            del self._granted[name]
        else:
            self._granted[name] = granted
        self._judge_hosts(owners)

    def _owners(self) -> dict[str, str]:
        """Return the hosts that spaces have now, with the keys of these."""
        return {host: space.key for space in self._spaces.values() for host in self.hosts_of(space)}

    def _judge(self, owners: Mapping[str, str]) -> dict[str, dict[str, HostRefusal]]:
        settings = self._settings
        return refused_hosts(
            self._spaces.values(), settings.domain, self._granted, machine=settings.machine, owners=owners
        )

    def _judge_hosts(self, owners: Mapping[str, str]) -> None:
        former, self._refused = self._refused, self._judge(owners)
        for key in former.keys() | self._refused.keys():
            if former.get(key) != self._refused.get(key):
                self.enqueue(key)
                self._context.enqueue_space(key)

    def _apply_plan(self, is_deleted: bool, document: Document) -> None:
        plan = restore(document)
        assert isinstance(plan, AddressSpacePlan)
        name = plan.metadata.name
        ports = None if is_deleted else plan.spec.ports
        if self._offered.get(name) != ports:
            self._offered[name] = ports
            self._judge_ports()

    def _judge_ports(self) -> None:
        former, self._refused_ports = self._refused_ports, refused_ports(self._spaces.values(), self._offered)
        for key in former.keys() | self._refused_ports.keys():
            if former.get(key) != self._refused_ports.get(key):
                self.enqueue(key)
                self._context.enqueue_space(key)

    def enqueue_all(self) -> None:
        """Enqueue all spaces, in the background."""
        for key, space in self._spaces.items():
            self.enqueue(key, background=True)
            if space.spec.connectors:  # their certificates end, too
                self._context.enqueue_space(key, background=True)

    async def run_beside(self) -> None:
        """Enqueue all spaces from time to time, until cancelled."""
        while True:
            try:
                self.warn_operator()
            except EnmasseError as error:
                _log.warning("certificates cannot be read: %s", error)
            await asyncio.sleep(RECONCILE_EVERY_S)
            self.enqueue_all()

    def warn_operator(self) -> None:
        """Record events of the operator's own certificates that end soon."""
        if self._context.events is None:
            return
        for file, days in self._certificates.given_days_left().items():
            if days <= WARN_DAYS:
                message = (
                    f"the certificate {file} ends in {days} days"
                    if days >= 0
                    else f"the certificate {file} has ended"
                )
                self._context.events.record(
                    NAMESPACE.name,
                    PLAN_NAMESPACE,
                    PLAN_NAMESPACE,
                    "",
                    "Warning",
                    "CertificateExpires",
                    message,
                    api_version="v1",
                )

    def _apply_space(self, is_deleted: bool, document: Document) -> None:
        space = restore(document)
        assert isinstance(space, AddressSpace)
        before = self._spaces.get(space.key)
        has_hosts = bool((before and route_hosts(before)) or route_hosts(space))
        owners = self._owners() if has_hosts else {}
        self._spaces.pop(space.key, None)
        if not is_deleted:
            self._spaces[space.key] = space
        if has_hosts:
            self._judge_hosts(owners)
        if (before and port_of(before)) or port_of(space):
            self._judge_ports()
        is_new = before is None or before.metadata.uid != space.metadata.uid
        # What changes nothing that can be seen is about a key that was put aside.
        is_aside = before is not None and before.status == space.status
        if is_deleted or is_new or before is None or is_aside or _declared(before) != _declared(space):
            self.enqueue(space.key)

    async def reconcile(self, key: str) -> bool:
        """Reconcile the endpoints of one space; return whether nothing is left to do."""
        namespace, _, name = key.partition("/")
        document = self._store.find(ADDRESS_SPACE.name, namespace, name)
        prefix = f"space.{namespace}.{name}."
        if document is None or document["metadata"].get("deletionTimestamp"):
            self._certificates.withdraw(prefix, ())
            self._closed_ports.pop(key, None)
            return True
        space = restore(document)
        assert isinstance(space, AddressSpace)
        refused = self._refused.get(key, {})
        port_refused = self._refused_ports.get(key)
        endpoints = plan_endpoints(space, self._settings.domain, refused, has_port=port_refused is None)
        problems: list[tuple[str, str]] = []
        statuses, authorities = [], []
        for endpoint in endpoints:
            served = await self._keep(space, endpoint, problems)
            statuses.append(endpoint.status(self._settings.port, served.certificate if served else None))
            authorities.append(served.authority if served else "")
        self._certificates.withdraw(prefix, [endpoint.file for endpoint in endpoints])
        now = self._store.find(ADDRESS_SPACE.name, namespace, name)
        if now is None or _declared(restore(now)) != _declared(space):
            return False  # it has changed meanwhile
        space = restore(now)
        assert isinstance(space, AddressSpace)
        wrong: list[tuple[str, str]] = [*refused.values()]
        wrong += [("PortRefused", port_refused)] if port_refused else []
        wrong += [("PortClosed", closed)] if (closed := self._closed_ports.get(key)) else []
        wrong += self._export(space, list(zip(endpoints, statuses, authorities, strict=True)))
        generation = space.metadata.generation
        found = (
            _condition("CertificatesReady", "Shown", problems, generation),
            _condition("EndpointsReady", "Served", wrong, generation),
        )
        self._publish(space, found, tuple(statuses), "".join(dict.fromkeys(filter(None, authorities))))
        return True

    async def _keep(
        self, space: AddressSpace, endpoint: SpaceEndpoint, problems: list[tuple[str, str]]
    ) -> ServedCertificate | None:
        """Provide the certificate of one endpoint; add what hinders that to ``problems``."""
        try:
            # Making keys and writing files takes its time, and others are served meanwhile.
            served = await asyncio.to_thread(self._keeping(space, endpoint))
        except UnusableCertificateError as error:
            problems.append((error.reason, f"endpoint {endpoint.declared.name}: {error}"))
            self._certificates.withdraw(f"{endpoint.file}.", ())
            return None
        cert = endpoint.declared.cert
        if cert is not None and cert.provider != "selfsigned" and served.days_left <= WARN_DAYS:
            self._warn(space, endpoint, served.days_left)
        return served

    def _keeping(self, space: AddressSpace, endpoint: SpaceEndpoint) -> Callable[[], ServedCertificate]:
        """Return a function that provides the certificate of one endpoint; it may run in a thread."""
        cert = endpoint.declared.cert
        if cert is None or cert.provider == "selfsigned":
            return partial(self._certificates.keep_issued, endpoint.file, endpoint.hosts)
        if cert.provider == "openshift":
            raise UnusableCertificateError("Unsupported", "provider openshift needs a cluster of OpenShift")
        if cert.provider == "wildcard":
            # Which one that is, is the operator's choice alone.
            if self._store.find(SECRET.name, PLAN_NAMESPACE, WILDCARD_SECRET) is None:
                return partial(self._certificates.keep_wildcard, endpoint.file, endpoint.hosts)
            certificate, key = self._secret(PLAN_NAMESPACE, WILDCARD_SECRET)
        elif cert.secret_name:
            certificate, key = self._secret(space.metadata.namespace, cert.secret_name)
        else:
            kept = self._store.aside(space.metadata.uid, key_aside(endpoint.declared.name))
            certificate, key = cert.tls_cert or "", (kept or b"").decode()
        return partial(self._certificates.keep_given, endpoint.file, endpoint.hosts, certificate, key)

    def _secret(self, namespace: str, name: str) -> tuple[str, str]:
        document = self._store.find(SECRET.name, namespace, name)
        if document is None:
            raise UnusableCertificateError("SecretNotFound", f"there is no Secret {name} in namespace {namespace}")
        data: Mapping[str, str] = document.get("data") or {}
        try:
            certificate, key = (b64decode(data.get(entry, "")).decode("ascii") for entry in ("tls.crt", "tls.key"))
        except ValueError:
            raise UnusableCertificateError("Unreadable", f"Secret {name}: tls.crt and tls.key are not PEM") from None
        return certificate, key

    def _warn(self, space: AddressSpace, endpoint: SpaceEndpoint, days: int) -> None:
        if self._context.events is None:
            return
        metadata = space.metadata
        self._context.events.record(
            space.kind,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            "Warning",
            "CertificateExpires",
            f"the certificate of endpoint {endpoint.declared.name} ends in {days} days",
            api_version=space.api_version,
        )

    # Connection details for applications

    def _export(
        self, space: AddressSpace, planned: list[tuple[SpaceEndpoint, EndpointStatus, str]]
    ) -> list[tuple[str, str]]:
        """Write the exports of all endpoints; return what hinders that."""
        problems, wanted = [], set()
        for endpoint, status, authority in planned:
            for export in endpoint.declared.exports:
                wanted.add((export.kind, export.name))
                try:
                    problem = self._write_export(space, export, export_facts(status, authority))
                except EnmasseError as error:
                    problem = str(error)
                if problem:
                    problems.append(("ExportFailed", f"endpoint {endpoint.declared.name}: {problem}"))
        namespace = space.metadata.namespace
        for document in self._store.dependents(space.metadata.uid):
            name = document["metadata"]["name"]
            if document["metadata"].get("namespace") != namespace:
                continue  # whoever says that it belongs to the space is in another namespace, and has named ours
            is_export = _EXPORT_LABEL in (document["metadata"].get("labels") or {})
            if is_export and (document["kind"], name) not in wanted:
                self._registry.delete(document["kind"], namespace, name, user=CONTROL_PROCESS)
        return problems

    def _write_export(self, space: AddressSpace, export: Export, facts: dict[str, str]) -> str:
        """Write one export; return why that cannot be done, or nothing."""
        namespace = space.metadata.namespace
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": export.kind,
            "metadata": {
                "name": export.name,
                "namespace": namespace,
                "labels": {_EXPORT_LABEL: space.metadata.name},
                "ownerReferences": [
                    {
                        "apiVersion": space.api_version,
                        "kind": space.kind,
                        "name": space.metadata.name,
                        "uid": space.metadata.uid,
                    }
                ],
            },
        }
        if export.kind == CONFIG_MAP.name:
            document["data"] = facts
        elif export.kind == SECRET.name:
            document["data"] = {name: b64encode(text.encode()).decode() for name, text in facts.items()}
        else:
            document["spec"] = {
                "type": "ExternalName",
                "externalName": facts["service.host"],
                "ports": [
                    {"name": name.removeprefix("service.port."), "port": int(port)}
                    for name, port in facts.items()
                    if name.startswith("service.port.")
                ],
            }
        present = self._store.find(export.kind, namespace, export.name)
        if present is None:
            self._registry.create(decode(document), user=CONTROL_PROCESS)
            return ""
        owners = present["metadata"].get("ownerReferences") or ()
        if all(owner["uid"] != space.metadata.uid for owner in owners):
            return f"{export.kind} {export.name} exists already, and is not this space's: choose another name"
        self._registry.replace(decode(document), user=CONTROL_PROCESS)  # which writes nothing if it is the same
        return ""

    def _publish(
        self,
        space: AddressSpace,
        found: tuple[Condition, ...],
        statuses: tuple[EndpointStatus, ...],
        authorities: str,
    ) -> None:
        own = {item.type for item in found}
        others = tuple(item for item in space.status.conditions if item.type not in own)
        status = space.status.with_conditions((*others, *found), self._now())
        status = status.model_copy(update={"endpoint_statuses": statuses, "ca_cert": authorities or None})
        if status != space.status:
            # At once, and not with others: what they have found meanwhile is found once more.
            self._registry.write_status([space.model_copy(update={"status": status})])


def _declared(space: Resource) -> tuple[Any, ...]:
    """Return the facts of a space that its endpoints depend on."""
    metadata = space.metadata
    return metadata.uid, metadata.generation, metadata.deletion_timestamp


def _references(space: AddressSpace) -> set[tuple[str, str, str]]:
    """Return the objects that the endpoints of a space depend on: namespace, kind and name."""
    found = set()
    for endpoint in space.spec.served_endpoints:
        cert = endpoint.cert
        if cert is not None and cert.provider == "wildcard":
            found.add((PLAN_NAMESPACE, SECRET.name, WILDCARD_SECRET))
        elif cert is not None and cert.secret_name:
            found.add((space.metadata.namespace, SECRET.name, cert.secret_name))
        found |= {(space.metadata.namespace, export.kind, export.name) for export in endpoint.exports}
    return found


def _condition(kind: str, good: str, problems: list[tuple[str, str]], generation: int) -> Condition:
    return Condition(
        type=kind,
        status="False" if problems else "True",
        reason=problems[0][0] if problems else good,
        message="; ".join(message for _, message in problems),
        observed_generation=generation,
    )
