"""Instances of the service broker: an address space each.

Rules:
1. The record of an instance is stored beside its space, where tenants cannot write: no tenant can make a space pass
   for an instance.
2. An instance is its space: changes of the space, its plan or its deletion, are changes of the instance.
3. Access to the broker is not enough: the caller needs permission for spaces and users in the namespace.
4. An id is an account's own: two accounts may have an instance of one id each, and neither hears of the other's.
   Instances of earlier versions have no account; they are of all who have the rights in their namespace.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from enmasse.api.broker.requests import BrokerError
from enmasse.control.errors import NamespaceNotFoundError, ResourceExistsError
from enmasse.control.store.writes import finish
from enmasse.identity.rbac import AccessRequest
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from enmasse.api.broker.catalog import Catalog
    from enmasse.api.broker.requests import ProvisionRequest, UpdateRequest
    from enmasse.control.access.rights import Rights
    from enmasse.control.store.registry import Registry
    from enmasse.identity.rbac import Requester

ASIDE: Final = "service-broker"
INSTANCE_ANNOTATION: Final = "enmasse.io/service-instance-id"
"""Informative; the broker itself does not read it."""

_AUTHENTICATION = {"name": "standard-authservice", "type": "standard"}

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """The requester of an operation, with their rights."""

    requester: Requester
    rights: Rights

    def require(self, verb: str, group: str, resource: str, namespace: str, name: str = "") -> None:
        """Raise if the caller is not allowed to do something.

        Raises:
            ForbiddenError: in the words of Kubernetes.
        """
        self.rights.require(self.requester, AccessRequest(verb, group, resource, namespace, name))

    def may(self, verb: str, instance: Instance) -> bool:
        """Return whether the caller is allowed to do something with the space of an instance."""
        asked = AccessRequest(verb, "enmasse.io", "addressspaces", instance.namespace, instance.name)
        return self.rights.allows(self.requester, asked)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The record beside the space of an instance; one of an earlier version has no account."""

    instance: str
    service: str
    plan: str
    name: str
    namespace: str
    account: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance: its record and its space."""

    kept: _Kept
    space: Document

    @property
    def namespace(self) -> str:
        """The namespace of its space."""
        return str(self.space["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """The name of its space."""
        return str(self.space["metadata"]["name"])

    @property
    def is_being_deleted(self) -> bool:
        """True while it is being deleted."""
        return bool(self.space["metadata"].get("deletionTimestamp"))


class Instances:
    """All instances.

    Args:
        registry: the registry of their spaces.
        catalog: the catalog of services and plans.
    """

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._store = registry.store
        self._catalog = catalog
        self._places: dict[tuple[str, str], tuple[str, str]] = {}
        """Namespace and name of the spaces of instances by account and id, as hints for ``find``."""

    def find(self, identity: str, caller: Caller) -> Instance | None:
        """Return the caller's instance of an id, None when there is none."""
        account = caller.requester.name
        place = self._places.get((account, identity))
        space = self._store.find(ADDRESS_SPACE.name, *place) if place else None
        found = self._instance_of(space) if space else None
        if found is not None and _is_of(found, identity, account):
            return found
        self._places.pop((account, identity), None)
        former = None
        for item in self._store.select(ADDRESS_SPACE.name):
            found = self._instance_of(item)
            if found is None:
                continue
            if _is_of(found, identity, account):
                self._places[account, identity] = found.namespace, found.name
                return found
            if _is_of(found, identity, "") and caller.may("get", found):
                former = found
        return former

    async def provision(self, identity: str, wanted: ProvisionRequest, caller: Caller) -> tuple[Instance, bool]:
        """Return an instance, and whether it was made now.

        Raises:
            BrokerError: 400 for an invalid request, 409 when there is another instance of this id, or another space.
            ForbiddenError: when the caller may not have spaces there.
        """
        space_type, plan = self._catalog.chosen(wanted.service, wanted.plan)
        known = self.find(identity, caller)
        account = caller.requester.name if known is None else known.kept.account
        name = wanted.name or (known.name if known else _name_for(identity, account))
        namespace = wanted.namespace or (known.namespace if known else wanted.platform_namespace or "default")
        caller.require("create", "enmasse.io", "addressspaces", namespace)
        kept = _Kept(identity, wanted.service, wanted.plan, name, namespace, account)
        if known is not None:
            if known.kept != kept or known.is_being_deleted:
                raise BrokerError(
                    409, f"there is an instance '{identity}' already, which differs or is being deleted"
                )
            return known, False
        space = decode(
            {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": ADDRESS_SPACE.name,
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "annotations": {INSTANCE_ANNOTATION: identity},
                },
                "spec": {"type": space_type, "plan": plan, "authenticationService": _AUTHENTICATION},
            }
        )

        def write() -> Document:
            with self._store.transaction():
                created = self._registry.create(space, user=caller.requester)
                self._store.put_aside(created["metadata"]["uid"], ASIDE, json.dumps(asdict(kept)).encode())
                return created

        try:
            created = await finish(write)
        except ResourceExistsError as error:
            raise BrokerError(409, f"{error}, and is not this instance's: choose another name") from None
        except NamespaceNotFoundError as error:
            raise BrokerError(400, f"parameters.namespace: {error}") from None
        self._places[account, identity] = namespace, name
        return Instance(kept, created), True

    async def update(self, identity: str, wanted: UpdateRequest, caller: Caller) -> tuple[Instance, bool]:
        """Give an instance another plan; return it, and whether anything changed.

        Raises:
            BrokerError: 400 for an invalid request, 422 while it is being deleted.
            ForbiddenError: when the caller may not change the space.
        """
        known = self.known(identity, caller, "update")
        plan_id = wanted.plan or known.kept.plan
        if wanted.service != known.kept.service:
            raise BrokerError(400, "service_id: an instance keeps its service")
        _, plan = self._catalog.chosen(wanted.service, plan_id)
        if plan_id == known.kept.plan:
            return known, False
        if known.is_being_deleted:
            raise BrokerError(422, "the instance is being deleted", "ConcurrencyError")
        kept = replace(known.kept, plan=plan_id)
        space = decode(known.space | {"spec": known.space["spec"] | {"plan": plan}})

        def write() -> Document:
            with self._store.transaction():
                changed = self._registry.replace(space, user=caller.requester)
                self._store.put_aside(changed["metadata"]["uid"], ASIDE, json.dumps(asdict(kept)).encode())
                return changed

        return Instance(kept, await finish(write)), True

    def deprovision(self, identity: str, service: str, caller: Caller) -> None:
        """Begin to delete an instance with all that is in it.

        Raises:
            BrokerError: 410 when there is none, 400 when it is of another service.
            ForbiddenError: when the caller may not delete the space.
        """
        known = self.known(identity, caller, "delete", gone=410)
        if service != known.kept.service:
            raise BrokerError(400, "service_id: the instance is of another service")
        self._registry.delete(ADDRESS_SPACE.name, known.namespace, known.name, user=caller.requester)

    def known(self, identity: str, caller: Caller, verb: str, *, gone: int = 404) -> Instance:
        """Return an instance of the caller, after checking its permission.

        Raises:
            BrokerError: when there is none, with the code ``gone``.
            ForbiddenError: when the caller may not.
        """
        found = self.find(identity, caller)
        if found is None:
            raise BrokerError(gone, f"there is no instance '{identity:.100}'")
        caller.require(verb, "enmasse.io", "addressspaces", found.namespace, found.name)
        return found

    def _instance_of(self, space: Document) -> Instance | None:
        kept = self._store.aside(space["metadata"]["uid"], ASIDE)
        return None if kept is None else Instance(_Kept(**json.loads(kept)), space)


def is_usable(document: Document) -> bool:
    """Return whether an object is ready in its present generation."""
    generation = document["metadata"].get("generation", 0)
    return any(
        item["type"] == "Ready" and item["status"] == "True" and item.get("observedGeneration", 0) >= generation
        for item in (document.get("status") or {}).get("conditions") or ()
    )


def reasons(document: Document) -> str:
    """Return the messages in the status of an object."""
    return "; ".join((document.get("status") or {}).get("messages") or ()) or "it is being processed"


def _is_of(found: Instance, identity: str, account: str) -> bool:
    return (found.kept.instance, found.kept.account) == (identity, account)


def _name_for(identity: str, account: str) -> str:
    # Nobody can take the name of another's instance, whose id is no secret, by using that id first.
    return f"instance-{hashlib.sha256(json.dumps([account, identity]).encode()).hexdigest()[:12]}"
