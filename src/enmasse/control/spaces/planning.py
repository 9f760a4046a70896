"""Plan one space: the entity that nodes should have, and the conditions of spaces and plans. Pure.

The rules are those of ``addresses/planning.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from enmasse.control.ports import MqttBounds, SpaceEntity
from enmasse.control.runtime.node_mirror import Outcome
from enmasse.control.runtime.verdicts import ADMITTED, PlanCatalog, Verdict, condition, judge_space_plan
from enmasse.control.spaces.effective import effective_space_limits, limit_settings
from enmasse.control.users.authentication_services import Authentication, is_realm_missing
from enmasse.model.kinds.spaces import MqttOptions
from enmasse.model.schema.conditions import READY, Condition, is_served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.control.nodes.planning import Home
    from enmasse.control.ports import ConnectorEntity, Entity
    from enmasse.model.kinds.plans import AddressSpacePlan
    from enmasse.model.kinds.spaces import AddressSpace


@dataclass(frozen=True, slots=True)
class SpaceView:
    """Everything that one space depends on.

    Attributes:
        space: the space as declared.
        plans: the operator's plans.
        excess: a sentence for each limit that is exceeded by what has a place already.
        authentication: the authentication of its users.
        hosts: the hosts that stand for it, beside its own.
        port: the port of its own; 0 for none.
        connectors: its connectors with what lies in secrets.
        waiting: why others of its connectors wait, by their names.
        home: the node that has its addresses; None: there is but one node.
        unplaced: why it has no home; None if it has one.
    """

    space: AddressSpace
    plans: PlanCatalog = field(default_factory=PlanCatalog)
    excess: tuple[str, ...] = ()
    authentication: Authentication = field(default_factory=Authentication)
    hosts: tuple[str, ...] = ()
    port: int = 0
    connectors: tuple[ConnectorEntity, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    home: Home | None = None
    unplaced: Verdict | None = None

    @property
    def plan(self) -> AddressSpacePlan | None:
        """Its plan, if that exists."""
        return self.plans.spaces.get(self.space.spec.plan_name)


NODE_UNAVAILABLE = Verdict("NodeUnavailable", "the node cannot be reached")


def judge_space(view: SpaceView) -> Verdict:
    """Return whether a space can be served."""
    for verdict in (judge_space_plan(view.space, view.plans), view.authentication.verdict):
        if not verdict.is_yes:
            return verdict
    if not is_served(view.space.status.conditions) and is_realm_missing(view.authentication.state):
        # Once a space is served it stays so, whatever happens to those who know its users.
        return view.authentication.state
    return view.unplaced or ADMITTED


def wanted_space(view: SpaceView) -> SpaceEntity:
    """Return the entity of a space for nodes."""
    space, metadata = view.space, view.space.metadata
    limits = effective_space_limits(space.spec, view.plan.spec if view.plan else None)
    mqtt = space.spec.mqtt or MqttOptions()
    return SpaceEntity(
        space.key,
        space.spec.type,
        view.authentication.kind,
        metadata.uid,
        metadata.generation,
        limits.max_bytes or 0,
        limits=limit_settings(limits),
        hosts=view.hosts,
        port=view.port,
        oidc=view.authentication.oidc,
        acknowledges_undeliverable=mqtt.undeliverable == "acknowledge",
        copies_overlapping=mqtt.overlapping == "each",
        takes_dollar_names=bool(mqtt.dollar_names),
        takes_query_properties=space.spec.http is not None and bool(space.spec.http.query_properties),
        mqtt=MqttBounds(
            mqtt.maximum_packet_size or 0, mqtt.receive_maximum or 0, mqtt.keep_alive or 0, mqtt.inflight or 0
        ),
        connectors=view.connectors,
        home=view.home.node if view.home is not None else "",
        home_generation=view.home.generation if view.home is not None else 0,
    )


def space_conditions(view: SpaceView, ready: Condition) -> tuple[Condition, ...]:
    """Return the conditions of a space.

    Args:
        view: the facts that it depends on.
        ready: whether it is ready.
    """
    generation = view.space.metadata.generation
    plan = judge_space_plan(view.space, view.plans)
    applied = condition("PlanApplied", plan, generation)
    if plan.is_yes and view.excess:
        # It goes on, with all that has a place: nothing is taken away from those who had it first.
        message = f"{'; '.join(view.excess)}; what is there stays, and nothing new finds a place"
        applied = applied.model_copy(update={"reason": "QuotaExceeded", "message": message})
    return (applied, condition("AuthenticationReady", view.authentication.condition_verdict, generation), ready)


def plan_space_plan(plan: AddressSpacePlan, plans: PlanCatalog) -> Condition:
    """Return the condition ``Ready`` of a space plan: whether the address plans that it offers exist."""
    missing = [name for name in plan.spec.address_plans if name not in plans.addresses]
    message = f"unknown address plans: {', '.join(missing)}" if missing else ""
    verdict = Verdict("UnknownPlan", message) if missing else Verdict("Valid")
    return condition(READY, verdict, plan.metadata.generation)


def readiness(verdict: Verdict, wanted: Entity | None, outcome: Outcome | None, generation: int) -> Condition:
    """Return the condition ``Ready`` of a space or an address.

    Args:
        verdict: whether it can be served.
        wanted: the entity for the node, None when there is none.
        outcome: the result of applying it, None when it was not applied.
        generation: the generation of the declaration.
    """
    if wanted is None or outcome is None:
        return condition(READY, verdict, generation)
    if not outcome.is_reachable:
        return condition(READY, NODE_UNAVAILABLE, generation)
    present = outcome.present
    if present is not None and (present.uid, present.digest) == (wanted.uid, outcome.digest):
        return condition(READY, Verdict("Served"), generation)
    if outcome.refusal:
        reason = "NodeDiffers" if outcome.differs else "NodeRefused"
        return condition(READY, Verdict(reason, outcome.refusal), generation)
    return condition(READY, Verdict("Configuring", "the node is being configured"), generation)
