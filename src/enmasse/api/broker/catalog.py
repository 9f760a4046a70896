"""The catalog of the service broker: a service for each type of address spaces, a plan for each of their plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args
from uuid import UUID, uuid5

from enmasse.api.broker.requests import BINDING_PARAMETERS, INSTANCE_PARAMETERS, BrokerError
from enmasse.model.kinds.spaces import SpaceType
from enmasse.model.schema.kinds import ADDRESS_SPACE_PLAN
from enmasse.model.schema.names import PLAN_NAMESPACE

if TYPE_CHECKING:
    from enmasse.control.store.port import Store

POLLING_S: Final = 600
"""The time that a platform polls for the end of an operation."""

_OURS: Final = UUID("0b1c2f52-7d3c-5b5b-9d55-5d7f1d0c6a11")
"""The namespace of ids, which are derived from names, and so the same in every installation."""

_TEXTS: Final[dict[SpaceType, tuple[str, str]]] = {
    "standard": ("EnMasse standard", "Messaging with queues, topics, streams and direct addresses"),
    "brokered": ("EnMasse brokered", "Messaging with queues and topics on one node, in strict order"),
}

Document = dict[str, Any]


class Catalog:
    """The services and plans of the broker, read from the stored plans at each request.

    Args:
        store: the store of the plans.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def document(self) -> Document:
        """Return the catalog in the form of the specification."""
        plans = self._plans()
        services = []
        for space_type in get_args(SpaceType):
            title, description = _TEXTS[space_type]
            # A catalog is the same for all namespaces, so it has the plans that all may use.
            mine = [
                plan
                for plan in plans
                if plan["spec"]["addressSpaceType"] == space_type and "namespaces" not in plan["spec"]
            ]
            if not mine:
                continue  # a service without plans is not allowed
            services.append(
                {
                    "id": service_id(space_type),
                    "name": f"enmasse-{space_type}",
                    "description": description,
                    "tags": ["messaging", "amqp", space_type],
                    "bindable": True,
                    "instances_retrievable": True,
                    "bindings_retrievable": True,
                    "plan_updateable": True,
                    "metadata": {
                        "displayName": title,
                        "longDescription": description,
                        "providerDisplayName": "EnMasse",
                    },
                    "plans": [_plan(plan) for plan in mine],
                }
            )
        return {"services": services}

    def chosen(self, service: str, plan: str) -> tuple[SpaceType, str]:
        """Return the type of spaces and the name of the plan with these ids.

        Raises:
            BrokerError: 400 when there is no such service, or it has no such plan.
        """
        space_type = next((kind for kind in get_args(SpaceType) if service_id(kind) == service), None)
        if space_type is None:
            raise BrokerError(400, f"service_id: there is no service '{service:.100}'; the catalog lists them")
        for item in self._plans():
            name = item["metadata"]["name"]
            if plan_id(name) == plan and item["spec"]["addressSpaceType"] == space_type:
                return space_type, name
        raise BrokerError(400, f"plan_id: the service has no plan '{plan:.100}'; the catalog lists them")

    def _plans(self) -> list[Document]:
        found = self._store.select(ADDRESS_SPACE_PLAN.name, PLAN_NAMESPACE)
        return sorted(found, key=lambda item: (item["spec"].get("displayOrder") or 0, item["metadata"]["name"]))


def service_id(space_type: str) -> str:
    """Return the id of the service for a type of spaces."""
    return str(uuid5(_OURS, f"service:{space_type}"))


def plan_id(name: str) -> str:
    """Return the id of a plan."""
    return str(uuid5(_OURS, f"plan:{name}"))


def _plan(plan: Document) -> Document:
    name, spec = plan["metadata"]["name"], plan["spec"]
    limits = [f"{key}: {value}" for key, value in (spec.get("limits") or {}).items()]
    return {
        "id": plan_id(name),
        "name": name,
        "description": spec.get("shortDescription") or spec.get("displayName") or name,
        "free": True,
        "bindable": True,
        "maximum_polling_duration": POLLING_S,
        "metadata": {"displayName": spec.get("displayName") or name, "bullets": limits},
        "schemas": {
            "service_instance": {"create": {"parameters": INSTANCE_PARAMETERS}},
            "service_binding": {"create": {"parameters": BINDING_PARAMETERS}},
        },
    }
