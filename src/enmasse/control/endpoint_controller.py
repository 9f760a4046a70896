"""The controller of endpoints: certificates where nodes find them, and facts where applications find them.

It writes ``endpointStatuses``, ``caCert`` and the conditions ``CertificatesReady`` and ``EndpointsReady`` of a
space; all else of its status is others'.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from enmasse.control.endpoint_keys import key_aside
from enmasse.control.endpoint_planning import (
    Door,
    doors_of,
    export_facts,
    port_of,
    refused_hosts,
    refused_ports,
    route_hosts,
)
from enmasse.control.endpoint_port import UnusableCertificateError, Vouched
from enmasse.control.runtime import Controller
from enmasse.errors import EnmasseError
from enmasse.identity.requester import OURSELVES
from enmasse.model.conditions import Condition
from enmasse.model.kinds import decode, restore
from enmasse.model.plans import PLAN_NAMESPACE, AddressSpacePlan, PortRange
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.endpoint_port import Certificates
    from enmasse.control.events import EventRecorder
    from enmasse.control.registry import Registry
    from enmasse.control.store import Change, Document, ResourceStore
    from enmasse.model.resource import Resource
    from enmasse.model.spaces import EndpointStatus, Export

__all__ = ["EndpointLooks", "EndpointSettings"]

WILDCARD_SECRET: Final = "wildcard-endpoint-certificate"  # noqa: S105  # the name of an object
LOOK_EVERY_S: Final = 3600.0
"""Certificates end by themselves: all spaces are looked at so often."""

WARN_DAYS: Final = 30
"""So long before somebody's own certificate ends, events begin to say so."""

_EXPORT_LABEL = "enmasse.io/endpoint-export"
_KINDS = frozenset({"Secret", "ConfigMap", "Service"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Where nodes are reached.

    Attributes:
        domain: below which spaces have their hosts; nodes must know the same.
        port: of the nodes, for everything that they speak; 0: not known here.
    """

    domain: str = "enmasse.local"
    port: int = 0


class EndpointLooks:
    """Looks at the endpoints of spaces; a listener of the store.

    Args:
        registry: where they are declared.
        certificates: keeps them.
        settings: where nodes are reached.
        events: hears of certificates that are about to end.
        now: gives the present, RFC 3339 in UTC.
        jitter: gives a factor around 1 for delays.
        hosts_changed: hears of a space that gets other hosts than before, because another space has changed.

    Attributes:
        controller: what has to run for it.
    """

    def __init__(
        self,
        registry: Registry,
        certificates: Certificates,
        settings: EndpointSettings,
        events: EventRecorder,
        *,
        now: Callable[[], str],
        jitter: Callable[[], float],
        hosts_changed: Callable[[str], None] = lambda _key: None,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._certificates = certificates
        self._settings = settings
        self._events = events
        self._now = now
        self._hosts_changed = hosts_changed
        self._spaces: dict[str, AddressSpace] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._refused_ports: dict[str, str] = {}
        self._offered: dict[str, PortRange | None] = {}
        """The ports that each space plan offers."""
        self.controller = Controller("endpoints", self.look, jitter=jitter, workers=1)

    def load(self, store: ResourceStore) -> None:
        """Take up all spaces."""
        self._spaces = {}
        for document in store.select("AddressSpace"):
            space = restore(document)
            assert isinstance(space, AddressSpace)
            self._spaces[space.key] = space
        self._refused = refused_hosts(self._spaces.values(), self._settings.domain)
        self._offered = {}
        for document in store.select("AddressSpacePlan", PLAN_NAMESPACE):
            plan = restore(document)
            assert isinstance(plan, AddressSpacePlan)
            self._offered[plan.metadata.name] = plan.spec.ports
        self._refused_ports = refused_ports(self._spaces.values(), self._offered)
        self.look_at_all()

    def apply(self, change: Change) -> None:
        """Take one change."""
        document = change.document
        metadata = document["metadata"]
        if document["kind"] == "AddressSpace":
            self._see_space(change.action == "DELETED", document)
        elif document["kind"] == "AddressSpacePlan" and metadata["namespace"] == PLAN_NAMESPACE:
            self._see_plan(change.action == "DELETED", document)
        elif document["kind"] in _KINDS:
            about = (metadata["namespace"], document["kind"], metadata["name"])
            for key, space in self._spaces.items():
                if space.spec.endpoints and about in _references(space):
                    self.controller.look_at(key)

    def hosts_of(self, space: AddressSpace) -> tuple[str, ...]:
        """Return the hosts of a space's routes that it gets."""
        refused = self._refused.get(space.key, {})
        return tuple(host for host in route_hosts(space) if host not in refused)

    def port_of(self, space: AddressSpace) -> int:
        """Return the port of its own that a space gets; 0 for none."""
        return 0 if space.key in self._refused_ports else port_of(space)

    def _see_plan(self, is_gone: bool, document: Document) -> None:
        plan = restore(document)
        assert isinstance(plan, AddressSpacePlan)
        name = plan.metadata.name
        ports = None if is_gone else plan.spec.ports
        if self._offered.get(name) != ports:
            self._offered[name] = ports
            self._judge_ports()

    def _judge_ports(self) -> None:
        former, self._refused_ports = self._refused_ports, refused_ports(self._spaces.values(), self._offered)
        for key in former.keys() | self._refused_ports.keys():
            if former.get(key) != self._refused_ports.get(key):
                self.controller.look_at(key)
                self._hosts_changed(key)

    def look_at_all(self) -> None:
        """Have all spaces looked at in the background."""
        for key in self._spaces:
            self.controller.look_at(key, background=True)

    async def run(self) -> None:
        """Have all spaces looked at from time to time, until cancelled."""
        while True:
            try:
                self.warn_operator()
            except EnmasseError as error:
                _log.warning("certificates cannot be looked at: %s", error)
            await asyncio.sleep(LOOK_EVERY_S)
            self.look_at_all()

    def warn_operator(self) -> None:
        """Make events of the operator's own certificates that end soon."""
        for file, days in self._certificates.given_days_left().items():
            if days <= WARN_DAYS:
                told = (
                    f"the certificate {file} ends in {days} days"
                    if days >= 0
                    else f"the certificate {file} has ended"
                )
                self._events.record(
                    "Namespace",
                    PLAN_NAMESPACE,
                    PLAN_NAMESPACE,
                    "",
                    "Warning",
                    "CertificateExpires",
                    told,
                    api_version="v1",
                )

    def _see_space(self, is_gone: bool, document: Document) -> None:
        space = restore(document)
        assert isinstance(space, AddressSpace)
        before = self._spaces.pop(space.key, None)
        if not is_gone:
            self._spaces[space.key] = space
        if (before and route_hosts(before)) or route_hosts(space):
            former = self._refused
            self._refused = refused_hosts(self._spaces.values(), self._settings.domain)
            for key in former.keys() | self._refused.keys():
                if former.get(key) != self._refused.get(key):
                    self.controller.look_at(key)
                    self._hosts_changed(key)
        if (before and port_of(before)) or port_of(space):
            self._judge_ports()
        is_new = before is None or before.metadata.uid != space.metadata.uid
        # What changes nothing that can be seen is about a key that was put aside.
        is_aside = before is not None and before.status == space.status
        if is_gone or is_new or before is None or is_aside or _declared(before) != _declared(space):
            self.controller.look_at(space.key)

    async def look(self, key: str) -> bool:
        """Put the endpoints of one space right; whether nothing is left to do."""
        namespace, _, name = key.partition("/")
        document = self._store.find("AddressSpace", namespace, name)
        prefix = f"space.{namespace}.{name}."
        if document is None or document["metadata"].get("deletionTimestamp"):
            self._certificates.withdraw(prefix, ())
            return True
        space = restore(document)
        assert isinstance(space, AddressSpace)
        refused = self._refused.get(key, {})
        port_refused = self._refused_ports.get(key)
        doors = doors_of(space, self._settings.domain, refused, has_port=port_refused is None)
        problems: list[tuple[str, str]] = []
        statuses, authorities = [], []
        for door in doors:
            vouched = await self._keep(space, door, problems)
            statuses.append(door.status(self._settings.port, vouched.certificate if vouched else None))
            authorities.append(vouched.authority if vouched else "")
        self._certificates.withdraw(prefix, [door.file for door in doors])
        now = self._store.find("AddressSpace", namespace, name)
        if now is None or _declared(restore(now)) != _declared(space):
            return False  # it has changed meanwhile
        space = restore(now)
        assert isinstance(space, AddressSpace)
        wrong = [("HostRefused", reason) for reason in refused.values()]
        wrong += [("PortRefused", port_refused)] if port_refused else []
        wrong += self._export(space, list(zip(doors, statuses, authorities, strict=True)))
        generation = space.metadata.generation
        found = (
            _condition("CertificatesReady", "Shown", problems, generation),
            _condition("EndpointsReady", "Served", wrong, generation),
        )
        self._publish(space, found, tuple(statuses), "".join(dict.fromkeys(filter(None, authorities))))
        return True

    async def _keep(self, space: AddressSpace, door: Door, problems: list[tuple[str, str]]) -> Vouched | None:
        """Have the certificate of one endpoint be where it belongs."""
        try:
            # Making keys and writing files takes its time, and others are served meanwhile.
            vouched = await asyncio.to_thread(self._vouch(space, door))
        except UnusableCertificateError as error:
            problems.append((error.reason, f"endpoint {door.endpoint.name}: {error}"))
            self._certificates.withdraw(f"{door.file}.", ())
            return None
        cert = door.endpoint.cert
        if cert is not None and cert.provider != "selfsigned" and vouched.days_left <= WARN_DAYS:
            self._warn(space, door, vouched.days_left)
        return vouched

    def _vouch(self, space: AddressSpace, door: Door) -> Callable[[], Vouched]:
        """Return what has the certificate of one endpoint kept; it may run in a thread."""
        cert = door.endpoint.cert
        if cert is None or cert.provider == "selfsigned":
            return partial(self._certificates.keep_issued, door.file, door.hosts)
        if cert.provider == "openshift":
            raise UnusableCertificateError("Unsupported", "provider openshift needs a cluster of OpenShift")
        if cert.provider == "wildcard":
            # Which one that is, is the operator's choice alone.
            if self._store.find("Secret", PLAN_NAMESPACE, WILDCARD_SECRET) is None:
                return partial(self._certificates.keep_wildcard, door.file, door.hosts)
            certificate, key = self._secret(PLAN_NAMESPACE, WILDCARD_SECRET)
        elif cert.secret_name:
            certificate, key = self._secret(space.metadata.namespace, cert.secret_name)
        else:
            kept = self._store.aside(space.metadata.uid, key_aside(door.endpoint.name))
            certificate, key = cert.tls_cert or "", (kept or b"").decode()
        return partial(self._certificates.keep_given, door.file, door.hosts, certificate, key)

    def _secret(self, namespace: str, name: str) -> tuple[str, str]:
        document = self._store.find("Secret", namespace, name)
        if document is None:
            raise UnusableCertificateError("SecretNotFound", f"there is no Secret {name} in namespace {namespace}")
        data: Mapping[str, str] = document.get("data") or {}
        try:
            certificate, key = (b64decode(data.get(entry, "")).decode("ascii") for entry in ("tls.crt", "tls.key"))
        except ValueError:
            raise UnusableCertificateError("Unreadable", f"Secret {name}: tls.crt and tls.key are not PEM") from None
        return certificate, key

    def _warn(self, space: AddressSpace, door: Door, days: int) -> None:
        metadata = space.metadata
        self._events.record(
            space.kind,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            "Warning",
            "CertificateExpires",
            f"the certificate of endpoint {door.endpoint.name} ends in {days} days",
            api_version=space.api_version,
        )

    # What applications are told

    def _export(self, space: AddressSpace, told: list[tuple[Door, EndpointStatus, str]]) -> list[tuple[str, str]]:
        """Have the exports of all endpoints be as they should; return what hinders that."""
        problems, wanted = [], set()
        for door, status, authority in told:
            for export in door.endpoint.exports:
                wanted.add((export.kind, export.name))
                try:
                    problem = self._write_export(space, export, export_facts(status, authority))
                except EnmasseError as error:
                    problem = str(error)
                if problem:
                    problems.append(("ExportFailed", f"endpoint {door.endpoint.name}: {problem}"))
        namespace = space.metadata.namespace
        for document in self._store.dependents(space.metadata.uid):
            name = document["metadata"]["name"]
            is_export = _EXPORT_LABEL in (document["metadata"].get("labels") or {})
            if is_export and (document["kind"], name) not in wanted:
                self._registry.delete(document["kind"], namespace, name, user=OURSELVES)
        return problems

    def _write_export(self, space: AddressSpace, export: Export, facts: dict[str, str]) -> str:
        """Have one export be as it should; return why that cannot be, or nothing."""
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
        if export.kind == "ConfigMap":
            document["data"] = facts
        elif export.kind == "Secret":
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
            self._registry.create(decode(document), user=OURSELVES)
            return ""
        owners = present["metadata"].get("ownerReferences") or ()
        if all(owner["uid"] != space.metadata.uid for owner in owners):
            return f"{export.kind} {export.name} exists already, and is not this space's: choose another name"
        self._registry.replace(decode(document), user=OURSELVES)  # which writes nothing if it is the same
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
    """Return what of a space its endpoints depend on."""
    metadata = space.metadata
    return metadata.uid, metadata.generation, metadata.deletion_timestamp


def _references(space: AddressSpace) -> set[tuple[str, str, str]]:
    """Return the objects that the endpoints of a space depend on: namespace, kind and name."""
    found = set()
    for endpoint in space.spec.endpoints:
        cert = endpoint.cert
        if cert is not None and cert.provider == "wildcard":
            found.add((PLAN_NAMESPACE, "Secret", WILDCARD_SECRET))
        elif cert is not None and cert.secret_name:
            found.add((space.metadata.namespace, "Secret", cert.secret_name))
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
