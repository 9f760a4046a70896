"""Checks of spaces and their contents before a write: what can never become valid, or does not fit, is refused.

Everything else is accepted and waits, with a condition that gives the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.control.errors import ForbiddenError
from enmasse.control.runtime.verdicts import grant_problem
from enmasse.control.spaces.placements import make_places, plan_limits
from enmasse.model.kinds.addresses import OFFERED_TYPES, Address
from enmasse.model.kinds.connectors import first_word, name_problem
from enmasse.model.kinds.infra import (
    BrokeredBrokerInfra,
    BrokeredInfraConfig,
    BrokerInfra,
    InfraConfig,
    StandardInfraConfig,
)
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.model.kinds.plans import AddressSpacePlan
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import (
    ADDRESS,
    ADDRESS_SPACE,
    ADDRESS_SPACE_PLAN,
    BROKERED_INFRA_CONFIG,
    PIPELINE,
    STANDARD_INFRA_CONFIG,
)
from enmasse.model.schema.names import PLAN_NAMESPACE, ROOT_TOPIC, new_address_problem
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from enmasse.control.runtime.desired import Desired
    from enmasse.control.spaces.placements import Placements
    from enmasse.control.store.port import Document, Store
    from enmasse.control.store.writes import Write
    from enmasse.model.schema.resource import Resource, SpaceMember


class SpaceAdmission:
    """Admission of spaces, addresses, pipelines and infrastructure configurations.

    Args:
        placements: the placements of addresses.
        desired: the declarations, in memory.
        needs_bounds: whether tenants may take plans without bounds only where an operator has named their namespace.
    """

    kinds = frozenset(
        {ADDRESS_SPACE.name, ADDRESS.name, PIPELINE.name, STANDARD_INFRA_CONFIG.name, BROKERED_INFRA_CONFIG.name}
    )

    def __init__(self, placements: Placements, desired: Desired, *, needs_bounds: bool = False) -> None:
        self._placements = placements
        self._desired = desired
        self._needs_bounds = needs_bounds

    def admit(self, write: Write) -> Resource:
        """Return the object to be stored.

        Raises:
            InvalidResourceError: when an address is called like a pattern, or like a connector, or a pattern stands
                where an address is named, or a space cannot have addresses of its type, or what a space has does not
                fit its new plan or limits.
            ForbiddenError: when the space is being deleted, or its plan is for other namespaces, or has no bounds and
                names none.
        """
        old, new = write.old, write.new
        match new:
            case Address() if write.operation == "CREATE":
                self._check_address(new, write.store)
            case Pipeline():
                if write.operation == "CREATE":
                    _find_space(new, write.store)
                self._check_sources(old if isinstance(old, Pipeline) else None, new)
            case AddressSpace():
                former = old if isinstance(old, AddressSpace) else None
                if former is None or former.spec.plan_name != new.spec.plan_name:
                    self._check_grant(new, write.store)
                    if self._needs_bounds and not write.user.is_admin:
                        self._check_bounds(new, write.store)
                self._check_connectors(former, new)
                if former is not None:
                    self._check_plan(former, new, write.store)
            case StandardInfraConfig() | BrokeredInfraConfig() if old is None or not _has_broker(old):
                return _with_defaults(new)
        return write.resource

    def _check_address(self, address: Address, store: Store) -> None:
        if called := new_address_problem(address.spec.address, address.spec.type):
            raise InvalidResourceError(f"Address {address.metadata.name}", [Problem("spec.address", called)])
        if (topic := address.spec.topic) and self._is_pattern(address.space_key, topic):
            message = (
                f"'{topic}' is a pattern, and a subscription belongs to one topic, of which it has all names below: "
                "name that, with another subscription for each topic below it that is declared itself; or have a "
                "session of MQTT, which keeps what a filter stands for at all of them"
            )
            raise InvalidResourceError(f"Address {address.metadata.name}", [Problem("spec.topic", message)])
        found = _find_space(address, store)
        if found is None:
            return  # it waits for its space
        name = address.space
        kind = found["spec"].get("type", "standard")
        if address.spec.type not in OFFERED_TYPES[kind]:
            offered = ", ".join(sorted(OFFERED_TYPES[kind]))
            problem = Problem(
                "spec.type",
                f"a {kind} space has no addresses of type {address.spec.type}, only {offered}; "
                f"'{name}' is {kind} and stays so",
            )
            raise InvalidResourceError(f"Address {address.metadata.name}", [problem])
        word = first_word(address.spec.address)
        if any(connector["name"] == word for connector in found["spec"].get("connectors", ())):
            message = f"'{word}' is a connector of '{name}', and what begins so is behind it: use another name"
            raise InvalidResourceError(f"Address {address.metadata.name}", [Problem("spec.address", message)])

    def _check_sources(self, former: Pipeline | None, pipeline: Pipeline) -> None:
        """Raise an error if a new source of a pipeline names addresses by a pattern where each has a name."""
        known = set() if former is None else {name for source in former.spec.sources for name in _named_by(source)}
        message = (
            "'{}' is a pattern, and here are names of addresses: addressPattern reads all streams that match one; "
            "a topic brings all names below its own"
        )
        problems = [
            Problem(f"spec.sources[{index}].{'address' if source.address else 'addresses'}", message.format(name))
            for index, source in enumerate(pipeline.spec.sources)
            for name in _named_by(source)
            if name not in known and self._is_pattern(pipeline.space_key, name)
        ]
        if problems:
            raise InvalidResourceError(f"Pipeline {pipeline.metadata.name}", problems)

    def _is_pattern(self, space: str, name: str) -> bool:
        """Return whether a name stands for others, and no address of a former version is called so."""
        words = set(name.split("/"))
        return name != ROOT_TOPIC and not words.isdisjoint("#+*") and not self._desired.claimants(space, name)

    def _check_connectors(self, former: AddressSpace | None, space: AddressSpace) -> None:
        """Raise an error if a new connector has a name that leads elsewhere already."""
        known = set() if former is None else {item.name for item in former.spec.connectors}
        new = {item.name: index for index, item in enumerate(space.spec.connectors) if item.name not in known}
        if not new:
            return
        rows = (self._desired.addresses[key] for key in self._desired.addresses_of(space.key))
        taken = {word: row.address for row in rows if (word := first_word(row.address)) in new}
        problems = []
        for name, index in new.items():
            problem = name_problem(name)
            if problem is None and name in taken:
                problem = f"the space has the address '{taken[name]}', which would be behind it: use another name"
            if problem is not None:
                problems.append(Problem(f"spec.connectors[{index}].name", problem))
        if problems:
            raise InvalidResourceError(f"AddressSpace {space.metadata.name}", problems)

    def _check_grant(self, space: AddressSpace, store: Store) -> None:
        """Raise an error if a space's plan is not for its namespace; a plan may not exist yet."""
        document = store.find(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE, space.spec.plan_name)
        if document is None or "namespaces" not in document["spec"]:
            return
        plans = [restore(item) for item in store.select(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE)]
        known = {plan.metadata.name: plan for plan in plans if isinstance(plan, AddressSpacePlan)}
        if problem := grant_problem(space, known[space.spec.plan_name], known.values()):
            raise ForbiddenError(f'addressspaces.enmasse.io "{space.metadata.name}" is forbidden: {problem}')

    def _check_bounds(self, space: AddressSpace, store: Store) -> None:
        """Raise an error if a space would have a plan without bounds that no operator has given to its namespace."""
        plans = [restore(item) for item in store.select(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE)]
        known = {plan.metadata.name: plan for plan in plans if isinstance(plan, AddressSpacePlan)}
        plan, namespace = known.get(space.spec.plan_name), space.metadata.namespace
        if plan is None or plan.is_bounded or plan.spec.namespaces is not None:
            return
        bounded = sorted(
            name
            for name, other in known.items()
            if other.spec.address_space_type == space.spec.type
            and other.is_for(namespace)
            and (other.is_bounded or other.spec.namespaces is not None)
        )
        instead = f"take {', '.join(bounded)}, or" if bounded else "so"
        raise ForbiddenError(
            f'addressspaces.enmasse.io "{space.metadata.name}" is forbidden: plan {plan.metadata.name} has no bounds '
            f"and is for the namespaces that it lists, {instead} an operator lists {namespace} in the plan's "
            "spec.namespaces, or gives it limits"
        )

    def _check_plan(self, old: AddressSpace, new: AddressSpace, store: Store) -> None:
        """Raise an error unless what has a place in a space fits its new plan and limits."""
        if (old.spec.plan_name, old.spec.limits) == (new.spec.plan_name, new.spec.limits):
            return
        document = store.find(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE, new.spec.plan_name)
        plan = restore(document) if document else None
        if not isinstance(plan, AddressSpacePlan) or plan.spec.address_space_type != new.spec.type:
            return  # such a plan is waited for
        present = self._placements.of(old.key)
        future = make_places(new, plan, new.key)
        if type(present) is type(future):
            problems = present.excess(plan_limits(new, plan))
        else:
            problems = self._placements.excess_elsewhere(old.key, new, plan)
        if problems:
            path = "spec.plan" if old.spec.plan_name != new.spec.plan_name else "spec.limits"
            message = f"what the address space has does not fit plan '{plan.metadata.name}': {'; '.join(problems)}"
            raise InvalidResourceError(f"AddressSpace {new.metadata.name}", [Problem(path, message)])


def _find_space(member: SpaceMember, store: Store) -> Document | None:
    """Return the space that an object belongs to, if it exists.

    Raises:
        ForbiddenError: it is being deleted.
    """
    found = store.find(ADDRESS_SPACE.name, member.metadata.namespace, member.space)
    if found is not None and found["metadata"].get("deletionTimestamp"):
        raise ForbiddenError(
            f"nothing new can be created in address space {member.space}, because it is being deleted",
            cause="AddressSpaceTerminating",
        )
    return found


def _has_broker(resource: Resource) -> bool:
    return isinstance(resource, StandardInfraConfig | BrokeredInfraConfig) and resource.spec.broker is not None


def _with_defaults(config: InfraConfig) -> InfraConfig:
    """Return a new configuration with EnMasse's own default of what becomes of rejected messages.

    The platform's own say nothing of it, and those that an earlier version has stored keep what they mean.
    """
    spec = config.spec
    kind: Any = BrokerInfra if isinstance(config, StandardInfraConfig) else BrokeredBrokerInfra
    broker = spec.broker or kind()
    if broker.treat_reject_as_unmodified_delivery_failed is None:
        broker = broker.model_copy(update={"treat_reject_as_unmodified_delivery_failed": True})
    return config.model_copy(update={"spec": spec.model_copy(update={"broker": broker})})


def _named_by(source: SourceSpec) -> tuple[str, ...]:
    """Return the addresses that a source names."""
    return source.addresses if source.address is None else (source.address,)
