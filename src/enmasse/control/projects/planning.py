"""What a project needs in its space, and the conditions that follow from what there is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.model.schema.conditions import READY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.model.kinds.projects import IoTProject
    from enmasse.model.schema.conditions import Condition

RESOURCES_CREATED: Final = "ResourcesCreated"
RESOURCES_READY: Final = "ResourcesReady"
CONFIGURATION_ACCEPTED: Final = "ConfigurationAccepted"

Document = dict[str, Any]


def space_of_project(project: IoTProject) -> Document | None:
    """Return the space that is made for a project, None when it uses one that is there."""
    managed = project.spec.downstream_strategy.managed_strategy
    if managed is None:
        return None
    wanted = managed.address_space
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": wanted.name, "namespace": project.metadata.namespace},
        "spec": {"type": wanted.type} | ({"plan": wanted.plan} if wanted.plan else {}),
    }


def addresses_of_project(project: IoTProject) -> list[Document]:
    """Return the addresses of a project, which go with it."""
    wanted, tenant, metadata = project.addresses, project.tenant, project.metadata
    owner = {
        "apiVersion": project.api_version,
        "kind": project.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
    }
    return [
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Address",
            "metadata": {
                "name": f"{project.space}.iot-{metadata.name}-{name.replace('_', '-')}",
                "namespace": metadata.namespace,
                "ownerReferences": [owner],
            },
            "spec": {"address": f"{name}/{tenant}", "type": kind} | ({"plan": plan} if plan else {}),
        }
        for name, kind, plan in (
            ("telemetry", wanted.telemetry.type, wanted.telemetry.plan),
            ("event", "queue", wanted.event.plan),
            ("command", "anycast", wanted.command.plan),
            # Below it each application has a name of its own for the responses to its commands.
            ("command_response", "topic", None),
            ("inquiry", "anycast", wanted.command.plan),
        )
    ]


def project_conditions(created: Verdict, ready: Verdict, accepted: Verdict, generation: int) -> Sequence[Condition]:
    """Return the conditions of a project.

    Args:
        created: whether its space and addresses are there.
        ready: whether they can be used.
        accepted: whether the device registry has its tenant.
        generation: of its declaration.
    """
    parts = ((RESOURCES_CREATED, created), (RESOURCES_READY, ready), (CONFIGURATION_ACCEPTED, accepted))
    found = [condition(name, verdict, generation) for name, verdict in parts]
    unmet = next((verdict for _, verdict in parts if not verdict.is_yes), Verdict("Ready"))
    return [*found, condition(READY, unmet, generation)]
