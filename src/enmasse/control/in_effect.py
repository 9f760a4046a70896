"""Find the settings of a declared object that have no effect, given the plans, services and infrastructure beside it.

The controllers report them in the condition ``InEffect``, and the API warns of them when the object is written.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from enmasse.control.addresses.planning import AddressView
from enmasse.control.users.authentication_services import EXTERNAL
from enmasse.model.kinds.addresses import Address
from enmasse.model.kinds.pipelines.pipeline import Pipeline, unapplied_by_type
from enmasse.model.kinds.plans import AddressSpacePlan, unapplied_over_plan
from enmasse.model.kinds.spaces import AddressSpace, AuthenticationOverrides
from enmasse.model.schema.conditions import Unapplied, over_bounds
from enmasse.model.schema.kinds import (
    ADDRESS_PLAN,
    ADDRESS_SPACE_PLAN,
    AUTHENTICATION_SERVICE,
    BROKERED_INFRA_CONFIG,
    CONSOLE_SERVICE,
    STANDARD_INFRA_CONFIG,
)
from enmasse.model.schema.names import PLAN_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.control.runtime.desired import Desired
    from enmasse.control.store.port import Store
    from enmasse.control.users.identity_providers import IdentityProviders
    from enmasse.model.schema.resource import Resource


OPERATORS_KINDS: Final = frozenset(
    {
        ADDRESS_PLAN.name,
        ADDRESS_SPACE_PLAN.name,
        AUTHENTICATION_SERVICE.name,
        BROKERED_INFRA_CONFIG.name,
        CONSOLE_SERVICE.name,
        STANDARD_INFRA_CONFIG.name,
    }
)
"""The kinds that have an effect in the operator's namespace alone."""

_INFRA_KINDS: Final = {"standard": STANDARD_INFRA_CONFIG.name, "brokered": BROKERED_INFRA_CONFIG.name}


class Effects:
    """Finds settings without effect.

    Args:
        store: the store of all objects.
        desired: spaces and plans.
        providers: the authentication of spaces.
    """

    def __init__(self, store: Store, desired: Desired, providers: IdentityProviders) -> None:
        self._store = store
        self._desired = desired
        self._providers = providers

    def of(self, resource: Resource) -> list[Unapplied]:
        """Return the settings of an object that have no effect."""
        return [*resource.unapplied(), *self._beside(resource)]

    def _beside(self, resource: Resource) -> Iterator[Unapplied]:
        match resource:
            case Address():
                declared = self._desired
                plan = AddressView(resource, declared.spaces.get(resource.space_key), plans=declared.plans).plan
                if plan is not None and plan.spec.address_type == resource.spec.type:
                    yield from unapplied_over_plan(resource, plan.spec)
            case AddressSpace():
                yield from self._of_space(resource)
            case Pipeline():
                yield from unapplied_by_type(resource.spec, lambda name: self._type_of(resource.space_key, name))
            case AddressSpacePlan():
                yield from self._of_space_plan(resource)
        if resource.kind in OPERATORS_KINDS and resource.metadata.namespace != PLAN_NAMESPACE:
            yield Unapplied("metadata.namespace", f"such objects are read in namespace {PLAN_NAMESPACE} alone")

    def _type_of(self, space: str, address: str) -> str | None:
        row = self._desired.owner(space, address)
        return None if row is None else row.type

    def _of_space(self, space: AddressSpace) -> Iterator[Unapplied]:
        asked = space.spec.authentication_service
        if asked.overrides not in (None, AuthenticationOverrides()):
            service = self._providers.service_of(space)
            if service.spec.type != EXTERNAL if service is not None else asked.kind is not None:
                why = "only an authentication service of type external can be changed so"
                yield Unapplied("spec.authenticationService.overrides", why)
        limits, plan = space.spec.limits, self._desired.space_plans.get(space.spec.plan_name)
        if limits is None or plan is None:
            return
        yield from over_bounds("spec.limits", limits, plan.spec.limits)
        if (bound := plan.spec.limits) is not None:
            if (limits.ttl_ms or 0) > (bound.ttl_ms or math.inf):
                yield Unapplied("spec.limits.ttl", f"the plan allows {bound.ttl}, which holds")
            if (limits.session_expiry_ms or 0) > (bound.session_expiry_ms or math.inf):
                why = f"the plan allows {bound.session_expiry}, which holds"
                yield Unapplied("spec.limits.sessionExpiry", why)
            if (limits.will_grace_ms or 0) > (bound.will_grace_ms or math.inf):
                yield Unapplied("spec.limits.willGrace", f"the plan allows {bound.will_grace}, which holds")
        if limits.addresses is not None and plan.spec.policy == "credits":
            yield Unapplied("spec.limits.addresses", f"plan '{plan.metadata.name}' counts addresses in credits")

    def _of_space_plan(self, plan: AddressSpacePlan) -> Iterator[Unapplied]:
        name, kind = plan.spec.infra_config_ref, _INFRA_KINDS[plan.spec.address_space_type]
        if name is not None and self._store.find(kind, PLAN_NAMESPACE, name) is None:
            yield Unapplied("spec.infraConfigRef", f"there is no {kind} {name} in namespace {PLAN_NAMESPACE}")
