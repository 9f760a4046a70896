"""Controllers of the operator's objects: plans, infrastructure, consoles, address space schemas and resource quotas.

A plan is ready when everything that it names exists. Authentication services have a controller of their own; only
those outside the namespace that is used for them are reported here. An AddressSpaceSchema for each type of spaces
publishes what tenants may choose from.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from enmasse.control.errors import ResourceNotFoundError
from enmasse.control.in_effect import OPERATORS_KINDS
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.control.spaces.planning import plan_space_plan
from enmasse.control.store.resource_quotas import used_amounts
from enmasse.identity.rbac import CONTROL_PROCESS
from enmasse.model.kinds.authentication import AuthenticationService
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.kinds.resource_quota import ResourceQuota, ResourceQuotaStatus, in_words
from enmasse.model.kinds.space_schema import address_space_schemas
from enmasse.model.schema.conditions import READY, with_effect
from enmasse.model.schema.kinds import (
    ADDRESS_PLAN,
    ADDRESS_SPACE_PLAN,
    ADDRESS_SPACE_SCHEMA,
    AUTHENTICATION_SERVICE,
    BROKERED_INFRA_CONFIG,
    RESOURCE_QUOTA,
    STANDARD_INFRA_CONFIG,
)
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from enmasse.control.context import Context
    from enmasse.control.store.port import Change, Store

_INFRA = frozenset({STANDARD_INFRA_CONFIG.name, BROKERED_INFRA_CONFIG.name})


_QUOTA = RESOURCE_QUOTA.name

_GATHER_S: Final = 0.1
"""Seconds within which writes of a namespace are counted together in the statuses of its quotas."""


class PlanController(Controller):
    """Publishes the conditions of the operator's objects. A key is kind, namespace and name."""

    name = "plans"

    def __init__(self, context: Context) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context
        self._store = context.store

    def load(self, store: Store) -> None:
        """Enqueue all of them."""
        for kind in sorted(OPERATORS_KINDS):
            for document in store.select(kind):
                self._enqueue_object(kind, document["metadata"]["namespace"], document["metadata"]["name"])

    def apply(self, change: Change) -> None:
        """Enqueue the objects that a change concerns."""
        kind, metadata = change.document["kind"], change.document["metadata"]
        if kind not in OPERATORS_KINDS:
            return
        self._enqueue_object(kind, metadata["namespace"], metadata["name"])
        if kind in _INFRA and change.action != "MODIFIED":
            for name in self._context.desired.space_plans:
                self._enqueue_object(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE, name)

    def _enqueue_object(self, kind: str, namespace: str, name: str) -> None:
        if kind != AUTHENTICATION_SERVICE.name or namespace != PLAN_NAMESPACE:
            self.enqueue(f"{kind}/{namespace}/{name}")

    async def reconcile(self, key: str) -> bool:
        """Publish the condition of one object."""
        kind, namespace, name = key.split("/")
        document = self._store.find(kind, namespace, name)
        if document is None:
            return True
        resource = restore(document)
        generation = resource.metadata.generation
        ready = condition(READY, Verdict("Valid"), generation)
        if isinstance(resource, AddressSpacePlan) and namespace == PLAN_NAMESPACE:
            ready = plan_space_plan(resource, self._context.desired.plans)
        found = with_effect((ready,), self._context.effects.of(resource), generation)
        status = resource.status.with_conditions(found, self._context.now())
        self._context.statuses.publish(resource, status, partial(self.enqueue, key))
        return True


_KEY = "schema"
_KIND = ADDRESS_SPACE_SCHEMA.name
_SOURCES = (ADDRESS_SPACE_PLAN.name, ADDRESS_PLAN.name, AUTHENTICATION_SERVICE.name)


class SchemaController(Controller):
    """Publishes the schemas that follow from the operator's objects."""

    name = "schemas"
    workers = 1

    def __init__(self, context: Context) -> None:
        super().__init__(jitter=context.jitter)
        self._registry = context.registry

    def load(self, store: Store) -> None:
        """Enqueue the schemas."""
        self.enqueue(_KEY)

    def apply(self, change: Change) -> None:
        """Enqueue them if they depend on what changed, or were changed themselves."""
        if change.document["kind"] in (*_SOURCES, _KIND):
            self.enqueue(_KEY)

    async def reconcile(self, _key: str) -> bool:
        """Publish all schemas; unchanged ones write nothing."""
        store = self._registry.store
        found = [restore(document) for kind in _SOURCES for document in store.select(kind, PLAN_NAMESPACE)]
        wanted = address_space_schemas(
            [item for item in found if isinstance(item, AddressSpacePlan)],
            [item for item in found if isinstance(item, AddressPlan)],
            [item for item in found if isinstance(item, AuthenticationService)],
        )
        for schema in wanted:
            try:
                self._registry.replace(schema, user=CONTROL_PROCESS)
            except ResourceNotFoundError:
                self._registry.create(schema, user=CONTROL_PROCESS)
        names = {schema.metadata.name for schema in wanted}
        for document in store.select(_KIND):
            if document["metadata"]["name"] not in names:
                self._registry.delete(_KIND, "", document["metadata"]["name"], user=CONTROL_PROCESS)
        return True


class QuotaController(Controller):
    """Publishes in the status of each quota how much of it is used; a key is a namespace."""

    name = "quotas"

    def __init__(self, context: Context) -> None:
        super().__init__(jitter=context.jitter)
        self._registry = context.registry
        self._namespaces: set[str] = set()

    def load(self, store: Store) -> None:
        """Enqueue the namespaces of all quotas."""
        self._namespaces = {quota["metadata"]["namespace"] for quota in store.select(_QUOTA)}
        for namespace in self._namespaces:
            self.enqueue(namespace)

    def apply(self, change: Change) -> None:
        """Enqueue a namespace in which something has changed, if it has quotas."""
        namespace = change.document["metadata"].get("namespace", "")
        if change.document["kind"] == _QUOTA:
            self._namespaces.add(namespace)
        if namespace in self._namespaces:
            self.enqueue(namespace)

    async def reconcile(self, namespace: str) -> bool:
        """Write the statuses of the quotas of a namespace."""
        await asyncio.sleep(_GATHER_S)
        store = self._registry.store
        quotas = store.select(_QUOTA, namespace)
        if not quotas:
            self._namespaces.discard(namespace)
        changed = []
        for document in quotas:
            quota = restore(document)
            assert isinstance(quota, ResourceQuota)
            used = used_amounts(store, namespace, quota.spec.hard, document)
            status = ResourceQuotaStatus(
                hard={name: in_words(name, most) for name, most in quota.hard.items()},
                used={name: in_words(name, amount) for name, amount in used.items()},
            )
            if status != quota.status:
                changed.append(quota.model_copy(update={"status": status}))
        if changed:
            self._registry.write_status(changed)
        return True
