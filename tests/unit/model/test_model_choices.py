"""What a tenant may choose from, derived from the operator's objects."""

from __future__ import annotations

from enmasse.model.catalog import default_objects
from enmasse.model.kinds.authentication import AuthenticationService
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.kinds.space_schema import AddressSpaceSchema, address_space_schemas
from enmasse.model.schema.objects import restore

CATALOG = default_objects()
SPACE_PLANS = [item for item in CATALOG if isinstance(item, AddressSpacePlan)]
ADDRESS_PLANS = [item for item in CATALOG if isinstance(item, AddressPlan)]
SERVICES = [item for item in CATALOG if isinstance(item, AuthenticationService)]


def schemas(space_plans: list[AddressSpacePlan] | None = None) -> dict[str, AddressSpaceSchema]:
    found = address_space_schemas(SPACE_PLANS if space_plans is None else space_plans, ADDRESS_PLANS, SERVICES)
    return {item.metadata.name: item for item in found}


def test_each_type_of_spaces_tells_its_plans_types_and_services() -> None:
    standard, brokered = schemas()["standard"].spec, schemas()["brokered"].spec
    assert [plan.name for plan in standard.plans] == [
        "standard-small",
        "standard-medium",
        "standard-unlimited",
        "free",
    ]
    assert [plan.name for plan in brokered.plans] == ["brokered-single-broker"]
    assert [kind.name for kind in brokered.address_types] == ["queue", "topic", "subscription", "deadletter"]
    assert standard.authentication_services == ("none-authservice", "standard-authservice")
    queue = next(kind for kind in standard.address_types if kind.name == "queue")
    assert [plan.name for plan in queue.plans][:2] == ["free-queue", "standard-small-queue"]
    assert queue.plans[0].limits is not None
    assert standard.plans[-1].limits is not None


def test_a_plan_that_no_space_plan_offers_is_not_told_of() -> None:
    left = [plan for plan in SPACE_PLANS if plan.metadata.name == "free"]
    queue = next(kind for kind in schemas(left)["standard"].spec.address_types if kind.name == "queue")
    assert [plan.name for plan in queue.plans] == ["free-queue"]
    assert schemas([])["brokered"].spec.plans == ()


def test_a_plan_for_some_namespaces_is_nobody_elses_to_see() -> None:
    gold = SPACE_PLANS[0].model_copy(update={"metadata": SPACE_PLANS[0].metadata.model_copy(update={"name": "gold"})})
    gold = gold.model_copy(update={"spec": gold.spec.model_copy(update={"namespaces": ("team-b",)})})
    assert schemas([gold, *SPACE_PLANS]) == schemas()


def test_a_schema_is_kept_as_it_is() -> None:
    for item in schemas().values():
        assert restore(item.to_dict()) == item
